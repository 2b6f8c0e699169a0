/* Constant integer expressions in initializers and immediates, folded while parsing. Depth is
 * bounded by PTX_OPERAND_NESTING_MAX. */
#include <errno.h>
#include <string.h>

#include "ptx/parse/parse_int.h"

enum operator{
	OR_OR,
	AND_AND,
	OR,
	XOR,
	AND,
	EQ,
	NE,
	LT,
	LE,
	GT,
	GE,
	SHL,
	SHR,
	ADD,
	SUB,
	MUL,
	DIV,
	REM
};

static const struct {
	char text[3];
	uint8_t op, level; /* a higher level binds more tightly */
} operators[] = {
	/* Operators of two characters come first. */
	{ "||", OR_OR, 1 }, { "&&", AND_AND, 2 }, { "==", EQ, 6 },  { "!=", NE, 6 },
	{ "<=", LE, 7 },    { ">=", GE, 7 },	  { "<<", SHL, 8 }, { ">>", SHR, 8 },
	{ "|", OR, 3 },	    { "^", XOR, 4 },	  { "&", AND, 5 },  { "<", LT, 7 },
	{ ">", GT, 7 },	    { "+", ADD, 9 },	  { "-", SUB, 9 },  { "*", MUL, 10 },
	{ "/", DIV, 10 },   { "%", REM, 10 },
};

/* Returns the operator at the token without taking it, or -1. The lexer returns a lone % as a word.
 */
static int at_operator(const struct ptx_parser *p)
{
	const char *t = p->token.text;
	size_t left = p->token.kind == PTX_TOK_PUNCT || (p->token.kind == PTX_TOK_WORD &&
							 p->token.len == 1 && *t == '%')
			      ? (size_t)(p->lexer.end - t)
			      : 0;

	for (size_t i = 0; i < ARRAY_SIZE(operators); i++) {
		size_t n = strlen(operators[i].text);

		if (n <= left && memcmp(t, operators[i].text, n) == 0) {
			return (int)i;
		}
	}
	return -1;
}

static int apply(struct ptx_parser *p, unsigned op, int64_t a, int64_t b, int64_t *ret)
{
	uint64_t x = (uint64_t)a, y = (uint64_t)b;

	switch (op) {
	case OR_OR:
		*ret = a || b;
		return 0;
	case AND_AND:
		*ret = a && b;
		return 0;
	case OR:
		*ret = a | b;
		return 0;
	case XOR:
		*ret = a ^ b;
		return 0;
	case AND:
		*ret = a & b;
		return 0;
	case EQ:
		*ret = a == b;
		return 0;
	case NE:
		*ret = a != b;
		return 0;
	case LT:
		*ret = a < b;
		return 0;
	case LE:
		*ret = a <= b;
		return 0;
	case GT:
		*ret = a > b;
		return 0;
	case GE:
		*ret = a >= b;
		return 0;
	case SHL:
		*ret = y < 64 ? (int64_t)(x << y) : 0;
		return 0;
	case SHR:
		*ret = y < 64 ? a >> y : a < 0 ? -1 : 0;
		return 0;
	case ADD:
		*ret = (int64_t)(x + y);
		return 0;
	case SUB:
		*ret = (int64_t)(x - y);
		return 0;
	case MUL:
		*ret = (int64_t)(x * y);
		return 0;
	default:
		break;
	}
	if (b == 0) {
		return ptx_parse_fail(p, -EINVAL, "a constant is divided by zero");
	}
	/* Avoid INT64_MIN / -1, the one quotient that overflows. */
	if (b == -1) {
		*ret = op == DIV ? (int64_t)(0 - x) : 0;
		return 0;
	}
	*ret = op == DIV ? a / b : a % b;
	return 0;
}

static int expression(struct ptx_parser *p, unsigned level, unsigned depth, int64_t *ret);

/* "(.u64) x" has no effect: all values have 64 bits. */
static bool take_cast(struct ptx_parser *p)
{
	struct ptx_lexer x = p->lexer;
	struct ptx_token a, b;

	ptx_lexer_next(&x, &a);
	ptx_lexer_next(&x, &b);
	if (!ptx_parse_is(p, '(') || a.kind != PTX_TOK_DOT || b.punct != ')') {
		return false;
	}
	for (int i = 0; i < 3; i++) {
		ptx_parse_next(p);
	}
	return true;
}

static int primary(struct ptx_parser *p, unsigned depth, int64_t *ret)
{
	char sign = p->token.punct;
	int err;

	if (depth > PTX_OPERAND_NESTING_MAX) {
		return ptx_parse_fail(p, -EFBIG, "a constant expression is nested too deeply");
	}
	if (p->token.kind == PTX_TOK_INT) {
		*ret = (int64_t)p->token.value;
		ptx_parse_next(p);
		return 0;
	}
	if (take_cast(p)) {
		return primary(p, depth + 1, ret);
	}
	if (ptx_parse_take(p, '(')) {
		err = expression(p, 0, depth + 1, ret);
		return err < 0 ? err : ptx_parse_expect(p, ')');
	}
	if (sign != '-' && sign != '+' && sign != '~' && sign != '!') {
		return ptx_parse_unexpected(p, "a whole number");
	}
	ptx_parse_next(p);
	err = primary(p, depth + 1, ret);
	*ret = err < 0	     ? 0
	       : sign == '-' ? (int64_t)(0 - (uint64_t)*ret)
	       : sign == '~' ? ~*ret
	       : sign == '!' ? !*ret
			     : *ret;
	return err;
}

/* Parses the operators and right sides of at least this level; ret holds the left side. */
static int rest(struct ptx_parser *p, unsigned level, unsigned depth, int64_t *ret)
{
	int i, err = 0;

	while (err == 0 && (i = at_operator(p)) >= 0 && operators[i].level > level) {
		int64_t right = 0;

		for (size_t n = strlen(operators[i].text); n > 0; n--) {
			ptx_parse_next(p);
		}
		err = primary(p, depth + 1, &right);
		if (err == 0) {
			err = rest(p, operators[i].level, depth + 1, &right);
		}
		if (err == 0) {
			err = apply(p, operators[i].op, *ret, right, ret);
		}
	}
	return err;
}

/* condition ? a : b has the lowest precedence. */
static int choice(struct ptx_parser *p, unsigned depth, int64_t *ret)
{
	int64_t yes, no;
	int err;

	if (!ptx_parse_take(p, '?')) {
		return 0;
	}
	err = expression(p, 0, depth + 1, &yes);
	if (err == 0) {
		err = ptx_parse_expect(p, ':');
	}
	if (err == 0) {
		err = expression(p, 0, depth + 1, &no);
	}
	*ret = err < 0 ? 0 : *ret ? yes : no;
	return err;
}

static int expression(struct ptx_parser *p, unsigned level, unsigned depth, int64_t *ret)
{
	int err = primary(p, depth, ret);

	if (err == 0) {
		err = rest(p, level, depth, ret);
	}
	return err < 0 || level ? err : choice(p, depth, ret);
}

int ptx_parse_constant(struct ptx_parser *p, struct ptx_operand *o, unsigned depth)
{
	int64_t v = 0;
	int err = expression(p, 0, depth, &v);

	*o = (struct ptx_operand){ .kind = PTX_INT, .value = (uint64_t)v, .negative = v < 0 };
	return err;
}

int ptx_parse_fold(struct ptx_parser *p, struct ptx_operand *o, unsigned depth)
{
	int64_t v = (int64_t)o->value;
	int err;

	if (at_operator(p) < 0 && !ptx_parse_is(p, '?')) {
		return 0;
	}
	err = rest(p, 0, depth, &v);
	if (err == 0) {
		err = choice(p, depth, &v);
	}
	o->value = (uint64_t)v;
	o->negative = v < 0;
	return err;
}
