/* Operands of instructions and initializers of variables. Recursion is bounded by
 * PTX_OPERAND_NESTING_MAX. */
#include "ptx/parse/parse_int.h"

#include <errno.h>
#include <string.h>

int ptx_parse_operands(struct ptx_parser *p, char close, unsigned depth, struct ptx_operand **ret,
		       uint32_t *ret_n)
{
	struct buf *stack = &p->scratch;
	size_t base = stack->len;
	struct ptx_operand one;
	uint32_t n = 0;
	int err;

	while (!ptx_parse_is(p, close)) {
		one = (struct ptx_operand){ 0 };
		err = ptx_parse_operand(p, &one, depth);
		if (err < 0) {
			return err;
		}
		if (buf_add(stack, &one, sizeof(one)) < 0) {
			return ptx_parse_no_memory(p);
		}
		n++;
		if (!ptx_parse_take(p, ',') && !ptx_parse_is(p, close)) {
			const char wanted[] = { '\'', ',',  '\'',  ' ',	 'o', 'r',
						' ',  '\'', close, '\'', '\0' };

			return ptx_parse_unexpected(p, wanted);
		}
	}
	ptx_parse_next(p);
	*ret_n = n;
	*ret = NULL;
	if (n) {
		*ret = ptx_arena_array(&p->module->arena, n, sizeof(one));
		if (!*ret) {
			return ptx_parse_no_memory(p);
		}
		memcpy(*ret, stack->data + base, n * sizeof(one));
		stack->len = base;
	}
	return 0;
}

/* generic(sym) or mask(sym); the token is the parenthesis. */
static int parse_wrapped(struct ptx_parser *p, struct ptx_operand *o, enum ptx_operand_kind kind)
{
	int err;

	o->kind = kind;
	ptx_parse_next(p);
	err = ptx_parse_word(p, "a variable's name", &o->name);
	if (err == 0 && kind == PTX_MASK) {
		err = ptx_parse_offset(p, &o->offset);
	}
	if (err == 0) {
		err = ptx_parse_expect(p, ')');
	}
	if (err == 0 && kind == PTX_GENERIC) {
		err = ptx_parse_offset(p, &o->offset);
	}
	return err;
}

/* "[2]", "[%r1]" or "[%r1 + 1]" behind the name of an array: see parse_element.c. */
static int parse_index(struct ptx_parser *p, struct ptx_operand *o, unsigned depth)
{
	struct ptx_operand *index = ptx_arena_alloc(&p->module->arena, sizeof(*index));
	int err;

	if (!index) {
		return ptx_parse_no_memory(p);
	}
	ptx_parse_next(p);
	err = ptx_parse_operand(p, index, depth + 1);
	if (err == 0 && index->kind != PTX_INT && index->kind != PTX_NAME) {
		return ptx_parse_fail(p, -EINVAL, "an index is a register or a whole number");
	}
	o->kind = PTX_ELEMENT;
	o->args = index;
	o->n_args = 1;
	p->has_elements = true;
	return err < 0 ? err : ptx_parse_expect(p, ']');
}

/* A name with its .x suffixes, and its offset or index. */
static int parse_name(struct ptx_parser *p, struct ptx_operand *o, unsigned depth)
{
	struct ptx_token t = p->token;

	o->kind = PTX_NAME;
	ptx_parse_next(p);
	while (p->token.kind == PTX_TOK_DOT && p->token.glued) {
		t.len = (size_t)(p->token.text + p->token.len - t.text);
		ptx_parse_next(p);
	}
	if (t.len > PTX_NAME_MAX) {
		return ptx_parse_fail(p, -EFBIG, "a name is longer than %u bytes", PTX_NAME_MAX);
	}
	if (ptx_parse_is(p, '(') && t.len == 7 && memcmp(t.text, "generic", 7) == 0) {
		return parse_wrapped(p, o, PTX_GENERIC);
	}
	o->name = ptx_parse_text(p, &t);
	if (!o->name) {
		return ptx_parse_no_memory(p);
	}
	return ptx_parse_is(p, '[') && p->opcode && !depth ? parse_index(p, o, depth)
							   : ptx_parse_offset(p, &o->offset);
}

static int parse_group(struct ptx_parser *p, struct ptx_operand *o, unsigned depth,
		       enum ptx_operand_kind kind, char close)
{
	o->kind = kind;
	ptx_parse_next(p);
	return ptx_parse_operands(p, close, depth + 1, &o->args, &o->n_args);
}

static bool is_warp_size(const struct ptx_token *t)
{
	return t->kind == PTX_TOK_WORD && t->len == 7 && memcmp(t->text, "WARP_SZ", 7) == 0;
}

bool ptx_parse_at_warp_size(const struct ptx_parser *p)
{
	return is_warp_size(&p->token);
}

static bool at_name(const struct ptx_parser *p)
{
	return p->token.kind == PTX_TOK_WORD && !is_warp_size(&p->token);
}

static int parse_address(struct ptx_parser *p, struct ptx_operand *o, unsigned depth)
{
	struct ptx_operand base = { 0 };
	int err;

	o->kind = PTX_ADDRESS;
	ptx_parse_next(p);
	err = at_name(p) ? parse_name(p, &base, depth + 1) : ptx_parse_constant(p, &base);
	if (err < 0) {
		return err;
	}
	if (base.kind != PTX_NAME && base.kind != PTX_INT) {
		return ptx_parse_fail(p, -EINVAL, "an address is a name or a whole number");
	}
	o->name = base.name;
	o->offset = base.kind == PTX_INT ? (int64_t)base.value : base.offset;
	if (ptx_parse_take(p, ',')) {
		return ptx_parse_operands(p, ']', depth + 1, &o->args, &o->n_args);
	}
	return ptx_parse_expect(p, ']');
}

/* Makes *o the first argument of a new operand of that kind with n arguments. */
static int wrap(struct ptx_parser *p, struct ptx_operand *o, enum ptx_operand_kind kind, uint32_t n)
{
	struct ptx_operand *args = ptx_arena_array(&p->module->arena, n, sizeof(*args));

	if (!args) {
		return ptx_parse_no_memory(p);
	}
	args[0] = *o;
	*o = (struct ptx_operand){ .kind = kind, .args = args, .n_args = n };
	return 0;
}

static struct ptx_token token_after(const struct ptx_parser *p)
{
	struct ptx_lexer after = p->lexer;
	struct ptx_token t;

	ptx_lexer_next(&after, &t);
	return t;
}

/* "-%r1" or "!%p1", and not a constant. */
static bool at_sign_of_name(const struct ptx_parser *p)
{
	struct ptx_token t = token_after(p);

	return (ptx_parse_is(p, '-') || ptx_parse_is(p, '!')) && t.kind == PTX_TOK_WORD &&
	       !is_warp_size(&t);
}

static int parse_sign_of_name(struct ptx_parser *p, struct ptx_operand *o, unsigned depth)
{
	bool minus = ptx_parse_is(p, '-');
	int err;

	ptx_parse_next(p);
	err = parse_name(p, o, depth);
	if (err == 0 && (o->kind != PTX_NAME || o->offset)) {
		return ptx_parse_unexpected(p,
					    minus ? "a register behind the minus" : "a predicate");
	}
	return err < 0 ? err : wrap(p, o, minus ? PTX_MINUS : PTX_NOT, 1);
}

static int parse_primary(struct ptx_parser *p, struct ptx_operand *o, unsigned depth)
{
	if (ptx_parse_is(p, '{')) {
		return parse_group(p, o, depth, PTX_VECTOR, '}');
	}
	if (ptx_parse_is(p, '(') && !depth && p->opcode && strcmp(p->opcode, "call") == 0) {
		return parse_group(p, o, depth, PTX_TUPLE, ')');
	}
	if (ptx_parse_is(p, '[')) {
		return parse_address(p, o, depth);
	}
	if (at_name(p)) {
		return parse_name(p, o, depth);
	}
	if (at_sign_of_name(p)) {
		return parse_sign_of_name(p, o, depth);
	}
	if (p->token.kind == PTX_TOK_INT && token_after(p).punct == '(') {
		o->value = p->token.value;
		ptx_parse_next(p);
		return parse_wrapped(p, o, PTX_MASK);
	}
	return ptx_parse_constant(p, o);
}

int ptx_parse_operand(struct ptx_parser *p, struct ptx_operand *o, unsigned depth)
{
	int err;

	if (depth > PTX_OPERAND_NESTING_MAX) {
		return ptx_parse_fail(p, -EFBIG, "more than %u brackets inside each other",
				      PTX_OPERAND_NESTING_MAX);
	}
	err = parse_primary(p, o, depth);
	if (err < 0 || o->kind == PTX_ELEMENT || !ptx_parse_take(p, '|')) {
		return err;
	}
	err = wrap(p, o, PTX_PAIR, 2);
	return err < 0 ? err : parse_primary(p, &o->args[1], depth + 1);
}
