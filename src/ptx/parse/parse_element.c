/* Elements of arrays as operands, "buf[2]" and "buf[%r1 + 1]". The parser leaves them as they are
 * written, and when the module is complete each becomes what all else reads: the address or the
 * name of the variable with an offset, or, if the index is in a register, a register that is
 * computed in front of the instruction. As in ptxas (13.0), the index counts elements of the type,
 * whatever the dimensions, and the product is a number of 32 bits without sign. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/strmap.h"
#include "ptx/parse/parse_int.h"
#include "ptx/stem.h"

#define STEM "element"

/* What a name stands for in the innermost scope that declares it. */
struct cell {
	const struct ptx_variable *variable; /* NULL: nothing */
	unsigned depth;			     /* of that scope */
};

struct hidden {
	struct cell *cell, before;
};

/* Names stay in `cells`: what comes and goes with scopes is what they stand for. */
struct elements {
	struct ptx_parser *p;
	struct strmap cells; /* of struct cell; of ranges by their name and '<' */
	struct buf hidden;   /* of struct hidden, to restore at the ends of open scopes */
	uint32_t stem;
	unsigned depth; /* of scopes */
};

static struct cell *cell_of(struct elements *e, const struct ptx_variable *v)
{
	size_t n = strlen(v->name);
	struct buf key;
	struct cell *c = NULL;

	buf_init(&key);
	buf_add(&key, v->name, n);
	buf_add(&key, "<", v->has_range);
	if (!key.failed) {
		c = strmap_get_n(&e->cells, key.data, key.len);
		if (!c) {
			c = ptx_arena_alloc(&e->p->module->arena, sizeof(*c));
			c = c && strmap_add_n(&e->cells, key.data, key.len, c) == 0 ? c : NULL;
		}
	}
	buf_finish(&key);
	return c;
}

static int declare(struct elements *e, const struct ptx_variable *v)
{
	struct hidden h = { .cell = cell_of(e, v) };

	if (!h.cell) {
		return ptx_parse_no_memory(e->p);
	}
	h.before = *h.cell;
	*h.cell = (struct cell){ .variable = v, .depth = e->depth };
	return buf_add(&e->hidden, &h, sizeof(h)) < 0 ? ptx_parse_no_memory(e->p) : 0;
}

static void leave_scope(struct elements *e, size_t before)
{
	while (e->hidden.len > before) {
		struct hidden h;

		e->hidden.len -= sizeof(h);
		memcpy(&h, e->hidden.data + e->hidden.len, sizeof(h));
		*h.cell = h.before;
	}
}

/* Returns the innermost of what the name stands for by itself and as one of a range; NULL: nothing.
 * A range's own name may end in digits: the longest number counts, as in the decoder. */
static const struct ptx_variable *find(const struct elements *e, const char *name)
{
	const struct cell *own = strmap_get(&e->cells, name), *range = NULL;
	size_t n = strlen(name), digits = 0;
	char key[PTX_RANGE_NAME_MAX + 1];

	while (digits < n && digits < 8 && name[n - 1 - digits] >= '0' &&
	       name[n - 1 - digits] <= '9') {
		digits++;
	}
	for (; digits && !range && n - digits < sizeof(key); digits--) {
		size_t stem = n - digits;
		const struct cell *c;

		memcpy(key, name, stem);
		key[stem] = '<';
		c = strmap_get_n(&e->cells, key, stem + 1);
		if (c && c->variable && (name[stem] != '0' || digits == 1) &&
		    strtoul(name + stem, NULL, 10) < c->variable->range) {
			range = c;
		}
	}
	own = own && own->variable ? own : NULL;
	if (own && range) {
		return own->depth >= range->depth ? own->variable : range->variable;
	}
	return own ? own->variable : range ? range->variable : NULL;
}

static bool has_modifier(const struct ptx_insn *insn, const char *word)
{
	for (unsigned i = 0; i < insn->n_modifiers; i++) {
		if (strncmp(insn->modifiers[i], word, strlen(word)) == 0) {
			return true;
		}
	}
	return false;
}

/* Returns whether the operand is the address that the instruction accesses. */
static bool is_accessed(const struct ptx_insn *insn, uint32_t operand)
{
	if (strcmp(insn->opcode, "st") == 0) {
		return operand == 0;
	}
	return operand == 1 &&
	       (strcmp(insn->opcode, "ld") == 0 || strcmp(insn->opcode, "ldu") == 0);
}

/* Without a space, an access of a variable is one in its space, but one of a register is not. */
static bool loses_space(const struct ptx_insn *insn, const struct ptx_variable *v)
{
	return v->space != PTX_GLOBAL && !has_modifier(insn, ".shared") &&
	       !has_modifier(insn, ".local") && !has_modifier(insn, ".const") &&
	       !has_modifier(insn, ".param");
}

/* Returns the type of a register by which an index of it is converted; NULL: it is none. */
static const char *index_type(const struct ptx_variable *v)
{
	static const char *const types[][2] = {
		{ ".u16", ".u16" }, { ".b16", ".u16" }, { ".s16", ".s16" },
		{ ".u32", ".u32" }, { ".b32", ".u32" }, { ".s32", ".u32" },
		{ ".u64", ".u64" }, { ".b64", ".u64" }, { ".s64", ".u64" },
	};

	for (size_t i = 0; v && v->space == PTX_REG && !v->vector && i < ARRAY_SIZE(types); i++) {
		if (strcmp(v->type, types[i][0]) == 0) {
			return types[i][1];
		}
	}
	return NULL;
}

/* Puts the instruction into a scope in which the element's address is computed, by parsing
 * that scope. */
static int by_register(struct elements *e, struct ptx_list *list, struct ptx_insn *insn,
		       struct ptx_operand *o, const struct ptx_variable *v)
{
	bool accessed = is_accessed(insn, (uint32_t)(o - insn->operands));
	const struct ptx_operand *index = o->args;
	const char *type = index_type(find(e, index->name));
	bool narrow = !accessed && insn->n_modifiers &&
		      ptx_type_bytes(insn->modifiers[insn->n_modifiers - 1]) == 4;
	unsigned bytes = ptx_type_bytes(v->type), bits = narrow ? 32 : 64;
	struct ptx_parser inner = *e->p;
	struct ptx_scope *scope;
	struct buf text;
	int err;

	if (e->depth == PTX_NESTING_MAX) {
		return ptx_parse_fail(e->p, -EFBIG, "an index in a register in %u scopes",
				      PTX_NESTING_MAX);
	}
	if (!type) {
		return ptx_parse_fail(e->p, -EINVAL, "%s cannot be an index", index->name);
	}
	if (accessed && loses_space(insn, v)) {
		return ptx_parse_fail(e->p, -EINVAL,
				      "an index in a register needs the space of %s in the "
				      "instruction",
				      o->name);
	}
	buf_init(&text);
	buf_printf(&text,
		   "{ .reg .b32 %%" STEM "%u_i; .reg .b%u %%" STEM "%u_a, %%" STEM "%u_b; "
		   "cvt.u32%s %%" STEM "%u_i, %s; mad.lo.u32 %%" STEM "%u_i, %%" STEM
		   "%u_i, %u, %u;"
		   " cvt.u%u.u32 %%" STEM "%u_a, %%" STEM "%u_i; mov.u%u %%" STEM "%u_b, %s; "
		   "add.u%u %%" STEM "%u_a, %%" STEM "%u_a, %%" STEM "%u_b; }",
		   e->stem, bits, e->stem, e->stem, type, e->stem, index->name, e->stem, e->stem,
		   bytes, (uint32_t)index->offset * bytes, bits, e->stem, e->stem, bits, e->stem,
		   o->name, bits, e->stem, e->stem, e->stem);
	scope = ptx_parse_item(e->p, PTX_SCOPE, sizeof(*scope));
	o->name = NULL;
	if (scope && !text.failed) {
		char name[32];
		int n = snprintf(name, sizeof(name), "%%" STEM "%u_a", e->stem);

		o->name = ptx_arena_text(&e->p->module->arena, name, (size_t)n);
	}
	if (!o->name) {
		buf_finish(&text);
		return ptx_parse_no_memory(e->p);
	}
	o->kind = accessed ? PTX_ADDRESS : PTX_NAME;
	o->args = NULL;
	o->n_args = 0;
	ptx_lexer_init(&inner.lexer, buf_text(&text), text.len);
	inner.lexer.line = insn->item.line;
	ptx_parse_next(&inner);
	ptx_parse_next(&inner); /* the brace */
	err = ptx_parse_body(&inner, &scope->body, PTX_NESTING_MAX, &scope->end_line);
	e->p->scratch = inner.scratch;
	buf_finish(&text);
	if (err < 0) {
		return err;
	}
	scope->item.line = insn->item.line;
	ptx_list_insert(list, insn->item.prev, &scope->item);
	ptx_list_remove(list, &insn->item);
	ptx_list_append(&scope->body, &insn->item);
	return 0;
}

static int replace(struct elements *e, struct ptx_list *list, struct ptx_insn *insn,
		   uint32_t operand)
{
	struct ptx_operand *o = &insn->operands[operand];
	const struct ptx_variable *v = find(e, o->name);

	e->p->token.line = insn->item.line;
	if (!operand && !is_accessed(insn, operand)) {
		return ptx_parse_fail(e->p, -EINVAL, "an element of %s is no destination", o->name);
	}
	if (!v || !v->n_dims || v->space == PTX_REG || !ptx_type_bytes(v->type)) {
		return ptx_parse_fail(e->p, -EINVAL, "%s is not an array that is declared before",
				      o->name);
	}
	if (o->args->kind == PTX_NAME) {
		return by_register(e, list, insn, o, v);
	}
	o->offset = (uint32_t)(o->args->value * ptx_type_bytes(v->type));
	o->kind = is_accessed(insn, operand) ? PTX_ADDRESS : PTX_NAME;
	o->args = NULL;
	o->n_args = 0;
	return 0;
}

static int in_insn(struct elements *e, struct ptx_list *list, struct ptx_insn *insn)
{
	uint32_t found = UINT32_MAX;

	for (uint32_t i = 0; i < insn->n_operands; i++) {
		if (insn->operands[i].kind == PTX_ELEMENT) {
			e->p->token.line = insn->item.line;
			if (found != UINT32_MAX) {
				return ptx_parse_fail(e->p, -EINVAL,
						      "more than one element of an array");
			}
			found = i;
		}
	}
	return found == UINT32_MAX ? 0 : replace(e, list, insn, found);
}

static int in_list(struct elements *e, struct ptx_list *list);

static int in_scope(struct elements *e, struct ptx_list *body)
{
	size_t before = e->hidden.len;
	int err;

	e->depth++;
	err = in_list(e, body);
	e->depth--;
	leave_scope(e, before);
	return err;
}

static int in_function(struct elements *e, struct ptx_function *f)
{
	size_t before = e->hidden.len;
	int err = 0;

	for (uint32_t i = 0; err == 0 && i < f->n_returns; i++) {
		err = declare(e, &f->returns[i]);
	}
	for (uint32_t i = 0; err == 0 && i < f->n_params; i++) {
		err = declare(e, &f->params[i]);
	}
	err = err < 0 ? err : in_scope(e, &f->body);
	leave_scope(e, before);
	return err;
}

/* Recursion is bounded by the parser's limit on scopes. */
static int in_list(struct elements *e, struct ptx_list *list)
{
	int err = 0;

	for (struct ptx_item *it = list->first, *next; err == 0 && it; it = next) {
		next = it->next;
		switch (it->kind) {
		case PTX_VARIABLE:
			err = declare(e, (const struct ptx_variable *)it);
			break;
		case PTX_FUNCTION:
			err = in_function(e, (struct ptx_function *)it);
			break;
		case PTX_SCOPE:
			err = in_scope(e, &((struct ptx_scope *)it)->body);
			break;
		case PTX_INSN:
			err = in_insn(e, list, (struct ptx_insn *)it);
			break;
		default:
			break;
		}
	}
	return err;
}

int ptx_parse_elements(struct ptx_parser *p)
{
	struct elements e = { .p = p };
	int err;

	if (!p->has_elements) {
		return 0;
	}
	e.stem = ptx_stem_number(&p->module->items, STEM);
	if (e.stem > PTX_STEM_MAX) {
		return ptx_parse_fail(p, -EFBIG, "names that begin with %%" STEM "%u",
				      PTX_STEM_MAX);
	}
	strmap_init(&e.cells);
	buf_init(&e.hidden);
	err = in_list(&e, &p->module->items);
	buf_finish(&e.hidden);
	strmap_finish(&e.cells);
	return err;
}
