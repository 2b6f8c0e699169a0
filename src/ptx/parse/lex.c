/* The lexer: comments and blanks, words, numbers. */
#include "ptx/lex.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

static bool is_word_start(char c)
{
	return isalpha((unsigned char)c) || c == '_' || c == '$' || c == '%';
}

static bool is_word(char c)
{
	return isalnum((unsigned char)c) || c == '_' || c == '$';
}

void ptx_lexer_init(struct ptx_lexer *x, const char *text, size_t len)
{
	*x = (struct ptx_lexer){ .pos = text, .end = text + len, .line = 1 };
}

/* Returns false if the comment is not closed. */
static bool skip_block_comment(struct ptx_lexer *x)
{
	for (x->pos += 2; x->pos + 1 < x->end; x->pos++) {
		if (x->pos[0] == '*' && x->pos[1] == '/') {
			x->pos += 2;
			return true;
		}
		x->line += *x->pos == '\n';
	}
	return false;
}

static bool at_comment(const struct ptx_lexer *x)
{
	return x->pos + 1 < x->end && x->pos[0] == '/' && (x->pos[1] == '/' || x->pos[1] == '*');
}

static void skip_line_comment(struct ptx_lexer *x)
{
	while (x->pos < x->end && *x->pos != '\n') {
		x->pos++;
	}
}

static bool skip_blank(struct ptx_lexer *x)
{
	while (x->pos < x->end) {
		if (at_comment(x)) {
			if (x->pos[1] == '/') {
				skip_line_comment(x);
			} else if (!skip_block_comment(x)) {
				return false;
			}
		} else if (isspace((unsigned char)*x->pos)) {
			x->line += *x->pos == '\n';
			x->pos++;
		} else {
			return true;
		}
	}
	return true;
}

static void bad(struct ptx_token *t, const char *why)
{
	t->kind = PTX_TOK_BAD;
	t->error = why;
}

static int digit(char c)
{
	if (c >= '0' && c <= '9') {
		return c - '0';
	}
	c |= 0x20;
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : 99;
}

/* Reads digits of a base; returns false if there are none or the value exceeds 64 bits. */
static bool digits(const char **p, const char *end, int base, uint64_t *ret)
{
	const char *start = *p;
	uint64_t v = 0;

	while (*p < end && digit(**p) < base) {
		if (__builtin_mul_overflow(v, (uint64_t)base, &v) ||
		    __builtin_add_overflow(v, (uint64_t)digit(**p), &v)) {
			return false;
		}
		(*p)++;
	}
	*ret = v;
	return *p > start;
}

static void lex_hex_float(struct ptx_lexer *x, struct ptx_token *t, unsigned n)
{
	const char *p = t->text + 2;

	t->kind = n == 8 ? PTX_TOK_F32 : PTX_TOK_F64;
	if (!digits(&p, x->end, 16, &t->value) || p != t->text + 2 + n) {
		bad(t, n == 8 ? "0f needs 8 hexadecimal digits" : "0d needs 16 hexadecimal digits");
		return;
	}
	x->pos = p;
}

static void lex_decimal_float(struct ptx_lexer *x, struct ptx_token *t)
{
	char text[64], *end;
	const char *p = t->text;
	size_t n = 0;
	double v;

	while (p < x->end && n < sizeof(text) - 1 &&
	       (isdigit((unsigned char)*p) || *p == '.' || *p == 'e' || *p == 'E' ||
		((*p == '+' || *p == '-') && (p[-1] == 'e' || p[-1] == 'E')))) {
		text[n++] = *p++;
	}
	text[n] = '\0';
	v = strtod(text, &end);
	if (end != text + n) {
		bad(t, "not a number");
		return;
	}
	t->kind = PTX_TOK_F64;
	memcpy(&t->value, &v, sizeof(v));
	x->pos = p;
}

static void lex_number(struct ptx_lexer *x, struct ptx_token *t)
{
	const char *p = t->text;
	char next = p + 1 < x->end ? p[1] : '\0';
	int base = 10;

	if (*p == '0' && (next == 'f' || next == 'F')) {
		lex_hex_float(x, t, 8);
		return;
	}
	if (*p == '0' && (next == 'd' || next == 'D')) {
		lex_hex_float(x, t, 16);
		return;
	}
	if (*p == '0' && (next == 'x' || next == 'X' || next == 'b' || next == 'B')) {
		base = next == 'x' || next == 'X' ? 16 : 2;
		p += 2;
	} else if (*p == '0' && isdigit((unsigned char)next)) {
		base = 8;
	}
	t->kind = PTX_TOK_INT;
	if (!digits(&p, x->end, base, &t->value)) {
		bad(t, "not a number of at most 64 bits");
		return;
	}
	if (base == 10 && p < x->end && (*p == '.' || *p == 'e' || *p == 'E')) {
		lex_decimal_float(x, t);
		return;
	}
	p += p < x->end && (*p == 'U' || *p == 'u');
	if (p < x->end && is_word(*p)) {
		bad(t, "not a number");
		return;
	}
	x->pos = p;
}

static void lex_string(struct ptx_lexer *x, struct ptx_token *t)
{
	t->kind = PTX_TOK_STRING;
	for (x->pos++; x->pos < x->end && *x->pos != '\n'; x->pos++) {
		if (*x->pos == '"') {
			x->pos++;
			return;
		}
		if (*x->pos == '\\' && x->pos + 1 < x->end && x->pos[1] != '\n') {
			x->pos++;
		}
	}
	bad(t, "string is not closed");
}

static void lex_dot(struct ptx_lexer *x, struct ptx_token *t)
{
	const char *p = t->text + 1;

	while (p < x->end &&
	       (is_word(*p) || (p + 2 < x->end && p[0] == ':' && p[1] == ':' && is_word(p[2])))) {
		p += *p == ':' ? 2 : 1;
	}
	t->kind = PTX_TOK_DOT;
	if (p == t->text + 1) {
		bad(t, "a dot without a word");
		return;
	}
	x->pos = p;
}

void ptx_lexer_next(struct ptx_lexer *x, struct ptx_token *t)
{
	const char *before = x->pos;
	bool closed = skip_blank(x);

	*t = (struct ptx_token){ .line = x->line, .text = x->pos, .glued = before == x->pos };
	if (!closed) {
		bad(t, "comment is not closed");
		return;
	}
	if (x->pos == x->end) {
		t->kind = PTX_TOK_END;
		return;
	}
	if (is_word_start(*x->pos)) {
		t->kind = PTX_TOK_WORD;
		do {
			x->pos++;
		} while (x->pos < x->end && is_word(*x->pos));
	} else if (*x->pos == '.') {
		lex_dot(x, t);
	} else if (isdigit((unsigned char)*x->pos)) {
		lex_number(x, t);
	} else if (*x->pos == '"') {
		lex_string(x, t);
	} else if (strchr(",;:{}()[]+-@!|=<>&~*/^?", *x->pos)) {
		t->kind = PTX_TOK_PUNCT;
		t->punct = *x->pos++;
	} else {
		bad(t, "a character that PTX does not use");
	}
	t->len = (size_t)(x->pos - t->text);
}

static size_t trimmed(const char *from, const char *to)
{
	while (to > from && isspace((unsigned char)to[-1])) {
		to--;
	}
	return (size_t)(to - from);
}

size_t ptx_lexer_line(struct ptx_lexer *x)
{
	const char *from = x->pos;
	bool quoted = false;

	while (x->pos < x->end && *x->pos != '\n' && (quoted || !at_comment(x))) {
		quoted = quoted != (*x->pos == '"');
		x->pos++;
	}
	return trimmed(from, x->pos);
}

size_t ptx_lexer_unknown(struct ptx_lexer *x)
{
	const char *from = x->pos, *to = x->pos;
	unsigned depth = 0;

	while (x->pos < x->end) {
		uint32_t line = x->line;
		struct ptx_token t = { 0 };

		if (!skip_blank(x)) {
			return 0;
		}
		if (x->pos == x->end ||
		    (depth == 0 && x->line != line && (*x->pos == '.' || *x->pos == '}'))) {
			break;
		}
		if (depth == 0 && *x->pos == '}') {
			break;
		}
		if (*x->pos == '"') {
			lex_string(x, &t);
			if (t.kind == PTX_TOK_BAD) {
				return 0;
			}
			to = x->pos;
			continue;
		}
		depth += *x->pos == '{';
		depth -= *x->pos == '}';
		to = ++x->pos;
		if (depth == 0 && (to[-1] == ';' || to[-1] == '}')) {
			break;
		}
	}
	return depth == 0 ? (size_t)(to - from) : 0;
}
