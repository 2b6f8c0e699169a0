/* Constant expressions, folded while parsing. Values are of type s64, u64 or f64, and operators do
 * to them what they do in ptxas (13.0): a literal is an s64 if it fits and has no U; one u64 makes
 * both sides of an operator u64, but for shifts, which take their count modulo 64, and % is always
 * of u64. A float of 32 bits stays as it is. Depth is bounded by DEPTH_MAX. */
#include <errno.h>
#include <string.h>

#include "ptx/parse/parse_int.h"

#define DEPTH_MAX 64u /* of parentheses, signs and levels of precedence */
#define ADDITIVE 8u   /* + - * / % bind more tightly */

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

struct constant {
	enum { S64, U64, F64, F32 } type;
	uint64_t bits;
};

static bool is_float(const struct constant *c)
{
	return c->type == F64 || c->type == F32;
}

static double to_double(struct constant c)
{
	double v;

	memcpy(&v, &c.bits, sizeof(v));
	return v;
}

static struct constant of_double(double v)
{
	struct constant c = { .type = F64 };

	memcpy(&c.bits, &v, sizeof(v));
	return c;
}

static struct constant of_bool(bool v)
{
	return (struct constant){ .type = S64, .bits = v };
}

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

static int by_zero(struct ptx_parser *p)
{
	return ptx_parse_fail(p, -EINVAL, "a constant is divided by zero");
}

static int apply_floats(struct ptx_parser *p, unsigned op, double a, double b, struct constant *ret)
{
	switch (op) {
	case EQ:
		*ret = of_bool(a == b);
		return 0;
	case NE:
		*ret = of_bool(a != b);
		return 0;
	case LT:
		*ret = of_bool(a < b);
		return 0;
	case LE:
		*ret = of_bool(a <= b);
		return 0;
	case GT:
		*ret = of_bool(a > b);
		return 0;
	case GE:
		*ret = of_bool(a >= b);
		return 0;
	case ADD:
		*ret = of_double(a + b);
		return 0;
	case SUB:
		*ret = of_double(a - b);
		return 0;
	case MUL:
		*ret = of_double(a * b);
		return 0;
	case DIV:
		*ret = of_double(b == 0 ? 0 : a / b);
		return b == 0 ? by_zero(p) : 0;
	default:
		return ptx_parse_fail(p, -EINVAL, "an operator of whole numbers between floats");
	}
}

/* The quotient INT64_MIN / -1 is INT64_MIN. */
static uint64_t divide(uint64_t x, uint64_t y, bool is_signed)
{
	if (!is_signed) {
		return x / y;
	}
	return y == UINT64_MAX ? 0 - x : (uint64_t)((int64_t)x / (int64_t)y);
}

static bool is_less(uint64_t x, uint64_t y, bool is_signed)
{
	return is_signed ? (int64_t)x < (int64_t)y : x < y;
}

static int apply(struct ptx_parser *p, unsigned op, struct constant a, struct constant b,
		 struct constant *ret)
{
	uint64_t x = a.bits, y = b.bits;
	bool is_signed = a.type == S64 && b.type == S64;

	if (a.type == F32 || b.type == F32) {
		return ptx_parse_fail(p, -EINVAL, "an operator of a float of 32 bits");
	}
	if ((a.type == F64) != (b.type == F64)) {
		return ptx_parse_fail(p, -EINVAL, "a float and a whole number in one operation");
	}
	if (a.type == F64) {
		return apply_floats(p, op, to_double(a), to_double(b), ret);
	}
	if ((op == DIV || op == REM) && !y) {
		return by_zero(p);
	}
	ret->type = is_signed ? S64 : U64;
	switch (op) {
	case OR_OR:
		*ret = of_bool(x || y);
		break;
	case AND_AND:
		*ret = of_bool(x && y);
		break;
	case EQ:
		*ret = of_bool(x == y);
		break;
	case NE:
		*ret = of_bool(x != y);
		break;
	case LT:
		*ret = of_bool(is_less(x, y, is_signed));
		break;
	case LE:
		*ret = of_bool(!is_less(y, x, is_signed));
		break;
	case GT:
		*ret = of_bool(is_less(y, x, is_signed));
		break;
	case GE:
		*ret = of_bool(!is_less(x, y, is_signed));
		break;
	case OR:
		ret->bits = x | y;
		break;
	case XOR:
		ret->bits = x ^ y;
		break;
	case AND:
		ret->bits = x & y;
		break;
	case SHL:
		*ret = (struct constant){ a.type, x << (y & 63) };
		break;
	case SHR:
		*ret = (struct constant){ a.type, a.type == S64 ? (uint64_t)((int64_t)x >> (y & 63))
								: x >> (y & 63) };
		break;
	case ADD:
		ret->bits = x + y;
		break;
	case SUB:
		ret->bits = x - y;
		break;
	case MUL:
		ret->bits = x * y;
		break;
	case DIV:
		ret->bits = divide(x, y, is_signed);
		break;
	default:
		ret->bits = x % y;
		break;
	}
	return 0;
}

static int expression(struct ptx_parser *p, unsigned level, unsigned depth, struct constant *ret);

/* "(.u64)" */
static bool at_cast(const struct ptx_parser *p)
{
	struct ptx_lexer x = p->lexer;
	struct ptx_token a, b;

	ptx_lexer_next(&x, &a);
	ptx_lexer_next(&x, &b);
	return ptx_parse_is(p, '(') && a.kind == PTX_TOK_DOT && b.punct == ')';
}

static int primary(struct ptx_parser *p, unsigned depth, struct constant *ret);

static int cast(struct ptx_parser *p, unsigned depth, struct constant *ret)
{
	bool to_signed;
	int err;

	ptx_parse_next(p);
	to_signed = ptx_parse_is_dot(p, ".s64");
	if (!to_signed && !ptx_parse_is_dot(p, ".u64")) {
		return ptx_parse_unexpected(p, ".s64 or .u64");
	}
	ptx_parse_next(p);
	ptx_parse_next(p);
	err = primary(p, depth + 1, ret);
	if (err == 0 && is_float(ret)) {
		return ptx_parse_fail(p, -EINVAL, "a float cannot be cast");
	}
	ret->type = to_signed ? S64 : U64;
	return err;
}

static int sign(struct ptx_parser *p, unsigned depth, struct constant *ret)
{
	char c = p->token.punct;
	int err;

	ptx_parse_next(p);
	err = primary(p, depth + 1, ret);
	if (err < 0 || c == '+') {
		return err;
	}
	if (c == '-' && is_float(ret)) {
		ret->bits ^= UINT64_C(1) << (ret->type == F64 ? 63 : 31);
	} else if (c == '-') {
		ret->bits = 0 - ret->bits;
	} else if (is_float(ret)) {
		return ptx_parse_fail(p, -EINVAL, "an operator of whole numbers before a float");
	} else if (c == '~') {
		ret->bits = ~ret->bits;
	} else {
		*ret = of_bool(!ret->bits);
	}
	return 0;
}

static int primary(struct ptx_parser *p, unsigned depth, struct constant *ret)
{
	const struct ptx_token *t = &p->token;
	int err;

	if (depth > DEPTH_MAX) {
		return ptx_parse_fail(p, -EFBIG, "a constant expression is nested too deeply");
	}
	if (t->kind == PTX_TOK_INT || t->kind == PTX_TOK_F64 || t->kind == PTX_TOK_F32) {
		bool is_unsigned = t->value > INT64_MAX || (t->text[t->len - 1] | 0x20) == 'u';

		ret->type = t->kind == PTX_TOK_F64   ? F64
			    : t->kind == PTX_TOK_F32 ? F32
			    : is_unsigned	     ? U64
						     : S64;
		ret->bits = t->value;
		ptx_parse_next(p);
		return 0;
	}
	if (ptx_parse_at_warp_size(p)) {
		*ret = (struct constant){ S64, PTX_WARP_SIZE };
		ptx_parse_next(p);
		return 0;
	}
	if (at_cast(p)) {
		return cast(p, depth, ret);
	}
	if (ptx_parse_take(p, '(')) {
		err = expression(p, 0, depth + 1, ret);
		return err < 0 ? err : ptx_parse_expect(p, ')');
	}
	if (t->punct && strchr("-+~!", t->punct)) {
		return sign(p, depth, ret);
	}
	return ptx_parse_unexpected(p, "a number");
}

/* Parses the operators and right sides of at least this level; ret holds the left side. */
static int rest(struct ptx_parser *p, unsigned level, unsigned depth, struct constant *ret)
{
	int i, err = 0;

	while (err == 0 && (i = at_operator(p)) >= 0 && operators[i].level > level) {
		struct constant right = { 0 };

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
static int choice(struct ptx_parser *p, unsigned depth, struct constant *ret)
{
	struct constant yes, no;
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
	if (err == 0 && (is_float(ret) || is_float(&yes) || is_float(&no))) {
		return ptx_parse_fail(p, -EINVAL, "a float in a choice");
	}
	if (err == 0) {
		*ret = ret->bits ? yes : no;
	}
	return err;
}

static int expression(struct ptx_parser *p, unsigned level, unsigned depth, struct constant *ret)
{
	int err = primary(p, depth, ret);

	if (err == 0) {
		err = rest(p, level, depth, ret);
	}
	return err < 0 || level ? err : choice(p, depth, ret);
}

int ptx_parse_constant(struct ptx_parser *p, struct ptx_operand *o)
{
	struct constant c = { 0 };
	int err = expression(p, 0, 0, &c);

	*o = (struct ptx_operand){ .kind = c.type == F64   ? PTX_F64
					   : c.type == F32 ? PTX_F32
							   : PTX_INT,
				   .value = c.bits,
				   /* The number of INT64_MIN without its minus is a u64. */
				   .negative = c.type == S64 && (int64_t)c.bits < 0 &&
					       (int64_t)c.bits != INT64_MIN };
	return err;
}

int ptx_parse_offset(struct ptx_parser *p, int64_t *ret)
{
	struct constant c = { 0 };
	int err = 0;

	if (ptx_parse_is(p, '+') || ptx_parse_is(p, '-')) {
		err = rest(p, ADDITIVE, 0, &c);
	}
	*ret = (int64_t)c.bits;
	return err;
}
