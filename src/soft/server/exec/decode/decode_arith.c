/* Decoding of arithmetic, logic and shifts. */
#include "soft/server/exec/decode/decode_kernel.h"
#include "soft/server/exec/decode/decode_arith.h"
#include "soft/server/exec/op/half.h"
#include "soft/server/exec/op/integer.h"

#include <errno.h>
#include <string.h>

/* Emits an operation with a destination and n sources, all of type t (dest may be wider). */
int exec_dec_emit_n(struct exec_decoder *d, exec_op_fn fn, enum exec_type dest, enum exec_type t,
		    int n, struct exec_op *op)
{
	const struct ptx_operand *in = d->insn->operands;
	uint32_t *src[3] = { &op->a, &op->b, &op->c };
	int err = exec_dec_operands(d, (unsigned)n + 1);

	if (err == 0 && !fn) {
		err = exec_dec_fail(d, "this type is not supported here");
	}
	for (int i = 0; err == 0 && i < n; i++) {
		err = exec_dec_source(d, &in[i + 1], t, src[i]);
	}
	if (err == 0) {
		err = exec_dec_dest(d, &in[0], dest, &op->d);
	}
	op->fn = fn;
	return err < 0 ? err : exec_dec_emit(d, op);
}

static enum exec_type widened(enum exec_type t)
{
	switch (t) {
	case TY_U16:
		return TY_U32;
	case TY_S16:
		return TY_S32;
	case TY_U32:
		return TY_U64;
	default:
		return TY_S64;
	}
}

static int rounding(struct exec_decoder *d)
{
	static const char *const words[] = { ".rn", ".rz", ".rm", ".rp" };

	return exec_dec_pick(d, words, 4, -1);
}

/* Roundings other than to nearest; f64, f32 and f32 with .ftz or .sat. */
static int emit_rounded(struct exec_decoder *d, int slow, enum exec_type t, int round, int n,
			bool ftz, bool sat)
{
	struct exec_op op = exec_dec_op(d, NULL);

	op.sub = (uint8_t)slow;
	op.type = t;
	op.n = (uint8_t)round;
	op.flags = (uint8_t)((ftz ? FLAG_FTZ : 0) | (sat ? FLAG_SAT : 0));
	if (t != TY_F32 && t != TY_F64) {
		return exec_dec_fail(d, "this type is not supported here");
	}
	return exec_dec_emit_n(d, exec_op_round, t, t, n, &op);
}

/* min and max of floats: of two or three values, .NaN, .xorsign.abs. */
static int min_max(struct exec_decoder *d, int which, enum exec_type t)
{
	const struct ptx_operand *in = d->insn->operands;
	struct exec_op op = exec_dec_op(d, NULL);
	bool ftz = exec_dec_has(d, ".ftz"), nan = exec_dec_has(d, ".NaN"),
	     three = d->insn->n_operands == 4;
	bool xorsign = exec_dec_has(d, ".xorsign") && exec_dec_has(d, ".abs");
	int err;

	if (xorsign && t == TY_F32 && !three) {
		op.sub = (uint8_t)which;
		op.flags = (uint8_t)((ftz ? FLAG_FTZ : 0) | (nan ? FLAG_NAN : 0));
		return exec_dec_emit_n(d, exec_op_minmax_xorsign, t, t, 2, &op);
	}
	which = !nan ? which : which == ALU_MIN ? ALU_MIN_NAN : ALU_MAX_NAN;
	op.fn = xorsign ? NULL : exec_dec_alu(d, which, ftz && t == TY_F32 ? TY_F32Z : t);
	if (!three) {
		return exec_dec_emit_n(d, op.fn, t, t, 2, &op);
	}
	err = exec_dec_operands(d, 4);
	if (err == 0 && !op.fn) {
		err = exec_dec_fail(d, "this type is not supported here");
	}
	if (err == 0) {
		err = exec_dec_source(d, &in[1], t, &op.a);
	}
	if (err == 0) {
		err = exec_dec_source(d, &in[2], t, &op.b);
	}
	if (err == 0) {
		err = exec_dec_new_register(d, t, &op.d);
	}
	if (err == 0) {
		err = exec_dec_emit(d, &op);
	}
	op.a = op.d;
	if (err == 0) {
		err = exec_dec_source(d, &in[3], t, &op.b);
	}
	if (err == 0) {
		err = exec_dec_dest(d, &in[0], t, &op.d);
	}
	return err < 0 ? err : exec_dec_emit(d, &op);
}

/* add, sub, min, max, abs, neg, rem, sad ... : integers and floats. */
int exec_dec_arith(struct exec_decoder *d, int which, int n)
{
	static const uint8_t saturating[ALU_COUNT] = {
		[ALU_ADD] = ALU_ADD_SAT, [ALU_SUB] = ALU_SUB_SAT, [ALU_MUL] = ALU_MUL_SAT
	};
	struct exec_op op = exec_dec_op(d, NULL);
	enum exec_type t = exec_dec_take_type(d);
	bool ftz, sat;
	int round;

	if (exec_dec_half_here(d)) {
		return exec_dec_half(d, which, n);
	}
	if (exec_dec_short_pair_here(d)) {
		return exec_dec_short_pair(d, which);
	}
	if (t == TY_S32 && (which == ALU_MIN || which == ALU_MAX) && exec_dec_has(d, ".relu")) {
		op.sub = which == ALU_MIN ? INTEGER_MIN_RELU : INTEGER_MAX_RELU;
		return exec_dec_emit_n(d, exec_op_integer, t, t, 2, &op);
	}
	if ((t == TY_F32 || t == TY_F64) && (which == ALU_MIN || which == ALU_MAX)) {
		return min_max(d, which, t);
	}
	if (exec_dec_has(d, ".cc")) {
		op.sub = which == ALU_ADD ? CARRY_ADD : CARRY_SUB;
		op.flags = CARRY_OUT;
		op.type = t;
		return which == ALU_ADD || which == ALU_SUB
			       ? exec_dec_emit_n(d, exec_dec_is_float(t) ? NULL : exec_op_carry, t,
						 t, n, &op)
			       : exec_dec_fail(d, ".cc is not supported here");
	}
	sat = saturating[which] && exec_dec_has(d, ".sat");
	if (t == TY_F32 || t == TY_F64) {
		round = which == ALU_ADD || which == ALU_SUB || which == ALU_MUL ? rounding(d) : -1;
		ftz = exec_dec_has(d, ".ftz");
		if (round > ROUND_RN) {
			return emit_rounded(d,
					    which == ALU_ADD   ? SLOW_ADD
					    : which == ALU_SUB ? SLOW_SUB
							       : SLOW_MUL,
					    t, round, n, ftz, sat);
		}
		t = ftz && t == TY_F32 ? TY_F32Z : t;
		exec_dec_has(d, ".approx"); /* of tanh */
	}
	return exec_dec_emit_n(d, exec_dec_alu(d, sat ? saturating[which] : which, t), t, t, n,
			       &op);
}

/* mul and mad of integers: .lo, .hi, .wide; floats go on to exec_dec_arith and exec_dec_fma. */
int exec_dec_mul(struct exec_decoder *d, int base, int n)
{
	static const char *const parts[] = { ".lo", ".hi", ".wide" };
	int part = exec_dec_pick(d, parts, 3, -1);
	struct exec_op op = exec_dec_op(d, NULL);
	enum exec_type t;

	if (part < 0) {
		return base == ALU_MUL ? exec_dec_arith(d, ALU_MUL, 2) : exec_dec_fma(d, 0, 0);
	}
	t = exec_dec_take_type(d);
	if (base == ALU_MAD && exec_dec_has(d, ".cc")) {
		op.sub = part == 0 ? CARRY_MAD_LO : CARRY_MAD_HI;
		op.flags = CARRY_OUT;
		op.type = t;
		return exec_dec_emit_n(
			d, part < 2 && exec_dec_type_bytes(t) >= 4 ? exec_op_carry : NULL, t, t, 3,
			&op);
	}
	if (base == ALU_MAD && part == 1 && exec_dec_has(d, ".sat")) {
		op.sub = INTEGER_MAD_HI_SAT;
		op.n = 3;
		return exec_dec_emit_n(d, t == TY_S32 ? exec_op_integer : NULL, t, t, 3, &op);
	}
	op.fn = exec_dec_alu(d, base + part, t);
	if (part == 2) {
		const struct ptx_operand *in = d->insn->operands;
		int err = exec_dec_operands(d, (unsigned)n + 1);

		if (err == 0 && !op.fn) {
			err = exec_dec_fail(d, "this type is not supported here");
		}
		if (err == 0) {
			err = exec_dec_source(d, &in[1], t, &op.a);
		}
		if (err == 0) {
			err = exec_dec_source(d, &in[2], t, &op.b);
		}
		if (err == 0 && n == 3) {
			err = exec_dec_source(d, &in[3], widened(t), &op.c);
		}
		if (err == 0) {
			err = exec_dec_dest(d, &in[0], widened(t), &op.d);
		}
		return err < 0 ? err : exec_dec_emit(d, &op);
	}
	return exec_dec_emit_n(d, op.fn, t, t, n, &op);
}

int exec_dec_mul24(struct exec_decoder *d, int base, int n)
{
	static const char *const parts[] = { ".lo", ".hi" };
	struct exec_op op = exec_dec_op(d, NULL);
	int part = exec_dec_pick(d, parts, 2, 0);
	enum exec_type t = exec_dec_take_type(d);

	if (base == ALU_MAD24 && part == 1 && exec_dec_has(d, ".sat")) {
		op.sub = INTEGER_MAD24_HI_SAT;
		op.n = 3;
		return exec_dec_emit_n(d, t == TY_S32 ? exec_op_integer : NULL, t, t, 3, &op);
	}
	return exec_dec_emit_n(d, exec_dec_alu(d, base + part, t), t, t, n, &op);
}

/* rcp, sqrt, rsqrt, ex2, lg2, sin, cos. */
int exec_dec_float_op(struct exec_decoder *d, int which, int n)
{
	struct exec_op op = exec_dec_op(d, NULL);
	enum exec_type t = exec_dec_take_type(d);
	bool ftz;
	int round;

	if (exec_dec_half_here(d)) {
		return exec_dec_half(d, which, n);
	}
	ftz = exec_dec_has(d, ".ftz");
	round = rounding(d);
	if (exec_dec_has(d, ".approx") && ftz && t == TY_F64) {
		op.sub = which == ALU_RCP ? APPROX_RCP64 : APPROX_RSQRT64;
		return exec_dec_emit_n(
			d, which == ALU_RCP || which == ALU_RSQRT ? exec_op_approx : NULL, t, t, n,
			&op);
	}
	if (round > ROUND_RN) {
		if (which != ALU_RCP && which != ALU_SQRT) {
			return exec_dec_fail(d, "this rounding is not supported here");
		}
		return emit_rounded(d, which == ALU_RCP ? SLOW_RCP : SLOW_SQRT, t, round, n, ftz,
				    false);
	}
	t = ftz && t == TY_F32 ? TY_F32Z : t;
	return exec_dec_emit_n(d, exec_dec_alu(d, which, t), t, t, n, &op);
}

int exec_dec_div(struct exec_decoder *d, int a, int b)
{
	struct exec_op op = exec_dec_op(d, NULL);
	enum exec_type t = exec_dec_take_type(d);
	bool ftz = exec_dec_has(d, ".ftz");
	int round = rounding(d);

	if (t == TY_F32 && exec_dec_has(d, ".approx")) {
		op.sub = APPROX_DIV;
		op.flags = ftz ? FLAG_FTZ : 0;
		return exec_dec_emit_n(d, exec_op_approx, t, t, 2, &op);
	}
	if (t == TY_F32) {
		exec_dec_has(d, ".full");
	}
	if (round > ROUND_RN) {
		return emit_rounded(d, SLOW_DIV, t, round, 2, ftz, false);
	}
	t = ftz && t == TY_F32 ? TY_F32Z : t;
	return exec_dec_emit_n(d, exec_dec_alu(d, ALU_DIV, t), t, t, 2, &op);
}

int exec_dec_fma(struct exec_decoder *d, int a, int b)
{
	struct exec_op op = exec_dec_op(d, NULL);
	enum exec_type t = exec_dec_take_type(d);
	int round;
	bool ftz, sat;

	if (exec_dec_half_here(d)) {
		return exec_dec_half(d, ALU_FMA, 3);
	}
	round = rounding(d);
	ftz = exec_dec_has(d, ".ftz");
	sat = exec_dec_has(d, ".sat");
	if (round > ROUND_RN) {
		return emit_rounded(d, SLOW_FMA, t, round, 3, ftz, sat);
	}
	t = ftz && t == TY_F32 ? TY_F32Z : t;
	return exec_dec_emit_n(d, exec_dec_alu(d, sat ? ALU_FMA_SAT : ALU_FMA, t), t, t, 3, &op);
}

static int pred_logic(struct exec_decoder *d, int which, int n)
{
	static const uint8_t logic[ALU_COUNT] = { [ALU_AND] = LOGIC_AND,
						  [ALU_OR] = LOGIC_OR,
						  [ALU_XOR] = LOGIC_XOR,
						  [ALU_NOT] = LOGIC_NOT };
	struct exec_op op = exec_dec_op(d, exec_op_pred_logic);
	uint16_t b = 0;
	uint8_t b_not = 0;
	int err = exec_dec_operands(d, (unsigned)n + 1);

	op.sub = logic[which];
	if (err == 0) {
		err = exec_dec_pred(d, &d->insn->operands[0], &op.p, NULL);
	}
	if (err == 0) {
		err = exec_dec_pred(d, &d->insn->operands[1], &op.r, &op.r_not);
	}
	if (err == 0 && n == 2) {
		err = exec_dec_pred(d, &d->insn->operands[2], &b, &b_not);
	}
	op.q = b;
	op.flags = b_not;
	if (err == 0 && op.p == EXEC_NO_PRED) {
		return exec_dec_fail(d, "a predicate is expected");
	}
	return err < 0 ? err : exec_dec_emit(d, &op);
}

/* and, or, xor, not, cnot: of predicates too. */
int exec_dec_logic(struct exec_decoder *d, int which, int n)
{
	struct exec_op op = exec_dec_op(d, NULL);
	enum exec_type t = exec_dec_take_type(d);

	if (t == TY_PRED && which != ALU_CNOT) {
		return pred_logic(d, which, n);
	}
	return exec_dec_emit_n(d, exec_dec_alu(d, which, t), t, t, n, &op);
}

int exec_dec_shift(struct exec_decoder *d, int which, int b)
{
	const struct ptx_operand *in = d->insn->operands;
	struct exec_op op = exec_dec_op(d, NULL);
	enum exec_type t = exec_dec_take_type(d);
	int err = exec_dec_operands(d, 3);

	op.fn = exec_dec_alu(d, which, t);
	if (err == 0 && !op.fn) {
		err = exec_dec_fail(d, "this type is not supported here");
	}
	if (err == 0) {
		err = exec_dec_source(d, &in[1], t, &op.a);
	}
	if (err == 0) {
		err = exec_dec_source(d, &in[2], TY_U32, &op.b);
	}
	if (err == 0) {
		err = exec_dec_dest(d, &in[0], t, &op.d);
	}
	return err < 0 ? err : exec_dec_emit(d, &op);
}

/* addc, subc, madc: with the carry of the last .cc. */
int exec_dec_carry(struct exec_decoder *d, int kind, int n)
{
	static const char *const parts[] = { ".lo", ".hi" };
	struct exec_op op = exec_dec_op(d, NULL);
	int part = n == 3 ? exec_dec_pick(d, parts, 2, -1) : 0;
	enum exec_type t;

	if (part < 0) {
		return exec_dec_fail(d, ".lo or .hi is expected");
	}
	op.sub = (uint8_t)(kind + part);
	op.flags = (uint8_t)(CARRY_IN | (exec_dec_has(d, ".cc") ? CARRY_OUT : 0));
	t = exec_dec_take_type(d);
	op.type = t;
	return exec_dec_emit_n(
		d, !exec_dec_is_float(t) && exec_dec_type_bytes(t) >= 4 ? exec_op_carry : NULL, t,
		t, n, &op);
}

int exec_dec_testp(struct exec_decoder *d, int a, int b)
{
	static const char *const tests[] = { ".finite",	    ".infinite", ".number",
					     ".notanumber", ".normal",	 ".subnormal" };
	struct exec_op op = exec_dec_op(d, exec_op_testp);
	int test = exec_dec_pick(d, tests, 6, -1), err;

	op.type = exec_dec_take_type(d);
	op.sub = (uint8_t)test;
	err = exec_dec_operands(d, 2);
	if (err == 0 && (test < 0 || (op.type != TY_F32 && op.type != TY_F64))) {
		err = exec_dec_fail(d, "a test such as .finite and a type are expected");
	}
	if (err == 0) {
		err = exec_dec_source(d, &d->insn->operands[1], op.type, &op.a);
	}
	if (err == 0) {
		err = exec_dec_pred(d, &d->insn->operands[0], &op.p, NULL);
	}
	return err < 0 ? err : exec_dec_emit(d, &op);
}
