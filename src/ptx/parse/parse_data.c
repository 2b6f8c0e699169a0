/* Finds declarations of .global and .const variables among the tokens of a text (ptx/data_bytes.h).
 * Of code only the tokens are read: a state space there is glued to its instruction (ld.global). */
#include "ptx/data_bytes.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "ptx/parse/parse_int.h"

struct data_reader {
	struct ptx_parser p;
	ptx_data_fn *fn;
	void *arg;
};

/* A declaration: its type, then one declarator after the other. */
struct declaration {
	uint64_t element, align; /* bytes; element 0: no type was found */
};

/* Reads the next token. Skips a word or character that is no token, so that each call advances. */
static void advance(struct ptx_parser *p)
{
	struct ptx_lexer *x = &p->lexer;

	ptx_parse_next(p);
	if (p->token.kind == PTX_TOK_BAD && x->pos == p->token.text && x->pos < x->end) {
		do {
			x->pos++;
		} while (x->pos < x->end && isalnum((unsigned char)*x->pos));
	}
}

static bool ends(const struct ptx_parser *p)
{
	return p->token.kind == PTX_TOK_END || ptx_parse_is(p, ';');
}

/* Skips a group in parentheses, brackets or braces, of which the token is the first character.
 * Returns the number of elements between commas at its own depth. */
static uint64_t skip_group(struct ptx_parser *p)
{
	uint64_t n = 0, depth = 0;
	bool in_element = false;

	do {
		bool opens = ptx_parse_is(p, '{') || ptx_parse_is(p, '(') || ptx_parse_is(p, '[');
		bool closes = ptx_parse_is(p, '}') || ptx_parse_is(p, ')') || ptx_parse_is(p, ']');

		if (depth && !closes && !(depth == 1 && ptx_parse_is(p, ','))) {
			n += !in_element;
			in_element = true;
		} else if (depth == 1) {
			in_element = false;
		}
		depth += opens;
		depth -= closes;
		advance(p);
	} while (depth && !ends(p));
	return n;
}

/* Reads a whole number. Returns false if it is none. */
static bool read_number(struct ptx_parser *p, uint64_t *ret)
{
	struct ptx_operand o;

	if (ptx_parse_constant(p, &o) < 0 || o.kind != PTX_INT || o.negative) {
		return false;
	}
	*ret = o.value;
	return true;
}

/* Reads what is between the space and the first name. Returns false if this is no declaration. */
static bool read_head(struct ptx_parser *p, struct declaration *d)
{
	uint64_t vector = 1;

	*d = (struct declaration){ .align = 1 };
	if (ptx_parse_is(p, '[')) { /* .const[bank] */
		(void)skip_group(p);
	}
	while (p->token.kind == PTX_TOK_DOT) {
		char word[16] = "";

		memcpy(word, p->token.text, MIN(p->token.len, sizeof(word) - 1));
		advance(p);
		if (strcmp(word, ".align") == 0) {
			if (!read_number(p, &d->align)) {
				return false;
			}
		} else if (strcmp(word, ".v2") == 0 || strcmp(word, ".v4") == 0 ||
			   strcmp(word, ".v8") == 0) {
			vector = (uint64_t)(word[2] - '0');
		} else if (strcmp(word, ".attribute") == 0 && ptx_parse_is(p, '(')) {
			(void)skip_group(p);
		} else if (ptx_type_bytes(word)) {
			d->element = ptx_type_bytes(word);
		}
	}
	d->element *= vector;
	return d->element != 0;
}

/* Multiplies, or stores UINT64_MAX. */
static void scale(uint64_t *bytes, uint64_t by)
{
	*bytes = checked_mul(*bytes, by, bytes) ? UINT64_MAX : *bytes;
}

/* Reads a name with its dimensions and initializer, and reports its size. Returns false if there is
 * no name. */
static bool read_declarator(struct data_reader *r, const struct declaration *d)
{
	struct ptx_parser *p = &r->p;
	uint64_t bytes = d->element, n;
	bool is_open = false;

	if (p->token.kind != PTX_TOK_WORD) {
		return false;
	}
	advance(p);
	if (ptx_parse_take(p, '<')) {
		scale(&bytes, p->token.kind == PTX_TOK_INT ? p->token.value : 0);
		advance(p);
		if (!ptx_parse_take(p, '>')) {
			return false;
		}
	}
	while (ptx_parse_take(p, '[')) {
		if (ptx_parse_is(p, ']')) {
			is_open = true;
		} else if (read_number(p, &n)) {
			scale(&bytes, n);
		}
		if (!ptx_parse_take(p, ']')) {
			return false;
		}
	}
	n = 0;
	if (ptx_parse_take(p, '=')) {
		n = ptx_parse_is(p, '{') ? skip_group(p) : 0;
		while (!ends(p) && !ptx_parse_is(p, ',')) {
			advance(p);
		}
	}
	if (is_open) {
		scale(&bytes, n);
	}
	if (bytes && d->align > 1 && bytes < UINT64_MAX - d->align) {
		bytes = ROUND_UP(bytes, d->align);
	}
	if (bytes) {
		r->fn(r->arg, bytes);
	}
	return true;
}

static void read_declaration(struct data_reader *r)
{
	struct declaration d;

	advance(&r->p);
	if (!read_head(&r->p, &d)) {
		return;
	}
	while (read_declarator(r, &d) && ptx_parse_take(&r->p, ',')) {
	}
}

/* Returns true if the token is a state space that begins a declaration. before: the preceding
 * token; linkage: that is one of .visible, .extern, .weak and .common. */
static bool at_declaration(const struct ptx_parser *p, enum ptx_token_kind before, bool linkage)
{
	if (!ptx_parse_is_dot(p, ".global") && !ptx_parse_is_dot(p, ".const")) {
		return false;
	}
	return linkage || before == PTX_TOK_PUNCT ||
	       (before != PTX_TOK_DOT && (!p->token.glued || before == PTX_TOK_END));
}

static void read_text(struct data_reader *r)
{
	enum ptx_token_kind before = PTX_TOK_END;
	bool linkage = false;

	advance(&r->p);
	while (r->p.token.kind != PTX_TOK_END) {
		if (at_declaration(&r->p, before, linkage)) {
			read_declaration(r);
			before = PTX_TOK_PUNCT;
			linkage = false;
			continue;
		}
		before = r->p.token.kind;
		linkage = ptx_parse_at_linkage(&r->p);
		advance(&r->p);
	}
}

int ptx_data_bytes(const char *text, size_t len, ptx_data_fn *fn, void *arg)
{
	struct data_reader r = { .p.name = "", .fn = fn, .arg = arg };

	r.p.module = calloc(1, sizeof(*r.p.module));
	if (!r.p.module) {
		return -ENOMEM;
	}
	ptx_arena_init(&r.p.module->arena);
	ptx_lexer_init(&r.p.lexer, text, len);
	buf_init(&r.p.scratch);
	read_text(&r);
	buf_finish(&r.p.scratch);
	ptx_module_free(r.p.module);
	return 0;
}
