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

static int parse_signed(struct ptx_parser *p, struct ptx_operand *o)
{
	bool negative = false, inverted = false;

	while (ptx_parse_is(p, '-') || ptx_parse_is(p, '+') || ptx_parse_is(p, '~')) {
		if (inverted || (negative && !ptx_parse_is(p, '~'))) {
			return ptx_parse_unexpected(p, "a number");
		}
		negative = negative || ptx_parse_is(p, '-');
		inverted = ptx_parse_is(p, '~');
		ptx_parse_next(p);
	}
	o->value = p->token.value;
	if (p->token.kind == PTX_TOK_INT) {
		o->kind = PTX_INT;
		o->value = inverted ? ~o->value : o->value;
		o->value = negative ? 0 - o->value : o->value;
		o->negative = negative != inverted && o->value != 0;
	} else if (p->token.kind == PTX_TOK_F32 && !inverted) {
		o->kind = PTX_F32;
		o->value ^= negative ? UINT64_C(1) << 31 : 0;
	} else if (p->token.kind == PTX_TOK_F64 && !inverted) {
		o->kind = PTX_F64;
		o->value ^= negative ? UINT64_C(1) << 63 : 0;
	} else {
		return ptx_parse_unexpected(p, "a number");
	}
	ptx_parse_next(p);
	return 0;
}

/* "+8", "-8", "+-8" after a name. */
static int parse_offset(struct ptx_parser *p, int64_t *ret)
{
	bool negative = false;

	if (!ptx_parse_is(p, '+') && !ptx_parse_is(p, '-')) {
		return 0;
	}
	while (ptx_parse_is(p, '+') || ptx_parse_is(p, '-')) {
		negative = negative != ptx_parse_is(p, '-');
		ptx_parse_next(p);
	}
	if (p->token.kind != PTX_TOK_INT) {
		return ptx_parse_unexpected(p, "an offset");
	}
	*ret = (int64_t)(negative ? 0 - p->token.value : p->token.value);
	ptx_parse_next(p);
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
		err = parse_offset(p, &o->offset);
	}
	if (err == 0) {
		err = ptx_parse_expect(p, ')');
	}
	if (err == 0 && kind == PTX_GENERIC) {
		err = parse_offset(p, &o->offset);
	}
	return err;
}

/* A name with its .x suffixes and offset. */
static int parse_name(struct ptx_parser *p, struct ptx_operand *o)
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
	return parse_offset(p, &o->offset);
}

static int parse_group(struct ptx_parser *p, struct ptx_operand *o, unsigned depth,
		       enum ptx_operand_kind kind, char close)
{
	o->kind = kind;
	ptx_parse_next(p);
	return ptx_parse_operands(p, close, depth + 1, &o->args, &o->n_args);
}

/* Parses the arguments of a call, or one integer constant expression: "(.s64) 5", "(1 + 2) * 3". */
static int parse_parenthesis(struct ptx_parser *p, struct ptx_operand *o, unsigned depth)
{
	struct ptx_lexer after = p->lexer;
	struct ptx_token t;
	int err;

	ptx_lexer_next(&after, &t);
	if (t.kind == PTX_TOK_DOT) {
		ptx_parse_next(p);
		ptx_parse_next(p);
		err = ptx_parse_expect(p, ')');
		return err < 0 ? err : ptx_parse_operand(p, o, depth + 1);
	}
	err = parse_group(p, o, depth, PTX_TUPLE, ')');
	if (err == 0 && o->n_args == 1 && o->args[0].kind == PTX_INT && !ptx_parse_is(p, ',') &&
	    !ptx_parse_is(p, ';')) {
		*o = o->args[0];
		return ptx_parse_fold(p, o, depth);
	}
	return err;
}

static int parse_address(struct ptx_parser *p, struct ptx_operand *o, unsigned depth)
{
	struct ptx_operand base = { 0 };
	int err;

	o->kind = PTX_ADDRESS;
	ptx_parse_next(p);
	err = p->token.kind == PTX_TOK_WORD ? parse_name(p, &base) : parse_signed(p, &base);
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

static bool next_is_word(const struct ptx_parser *p)
{
	struct ptx_lexer after = p->lexer;
	struct ptx_token t;

	ptx_lexer_next(&after, &t);
	return t.kind == PTX_TOK_WORD;
}

/* "-%r1"; the token is the minus. */
static int parse_negated(struct ptx_parser *p, struct ptx_operand *o)
{
	int err;

	ptx_parse_next(p);
	err = parse_name(p, o);
	if (err == 0 && (o->kind != PTX_NAME || o->offset)) {
		return ptx_parse_unexpected(p, "a register behind the minus");
	}
	return err < 0 ? err : wrap(p, o, PTX_MINUS, 1);
}

static bool next_is_parenthesis(const struct ptx_parser *p)
{
	struct ptx_lexer after = p->lexer;
	struct ptx_token t;

	ptx_lexer_next(&after, &t);
	return t.punct == '(';
}

static bool next_is_number(const struct ptx_parser *p)
{
	struct ptx_lexer after = p->lexer;
	struct ptx_token t;

	ptx_lexer_next(&after, &t);
	return t.punct == '(' || t.kind == PTX_TOK_INT;
}

static int parse_primary(struct ptx_parser *p, struct ptx_operand *o, unsigned depth)
{
	int err;

	switch (p->token.punct) {
	case '{':
		return parse_group(p, o, depth, PTX_VECTOR, '}');
	case '(':
		return parse_parenthesis(p, o, depth);
	case '[':
		return parse_address(p, o, depth);
	case '!':
		if (next_is_number(p)) {
			return ptx_parse_constant(p, o, depth);
		}
		ptx_parse_next(p);
		err = p->token.kind == PTX_TOK_WORD ? parse_name(p, o)
						    : ptx_parse_unexpected(p, "a predicate");
		return err < 0 ? err : wrap(p, o, PTX_NOT, 1);
	case '-':
		if (next_is_word(p)) {
			return parse_negated(p, o);
		}
		break;
	default:
		break;
	}
	if (p->token.kind == PTX_TOK_WORD) {
		return parse_name(p, o);
	}
	if (p->token.kind == PTX_TOK_PUNCT && next_is_parenthesis(p)) {
		return ptx_parse_constant(p, o, depth);
	}
	err = parse_signed(p, o);
	if (err == 0 && o->kind == PTX_INT && ptx_parse_is(p, '(')) {
		o->negative = false;
		return parse_wrapped(p, o, PTX_MASK);
	}
	return err < 0 || o->kind != PTX_INT ? err : ptx_parse_fold(p, o, depth);
}

int ptx_parse_operand(struct ptx_parser *p, struct ptx_operand *o, unsigned depth)
{
	int err;

	if (depth > PTX_OPERAND_NESTING_MAX) {
		return ptx_parse_fail(p, -EFBIG, "more than %u brackets inside each other",
				      PTX_OPERAND_NESTING_MAX);
	}
	err = parse_primary(p, o, depth);
	if (err < 0 || !ptx_parse_take(p, '|')) {
		return err;
	}
	err = wrap(p, o, PTX_PAIR, 2);
	return err < 0 ? err : parse_primary(p, &o->args[1], depth);
}
