/* Arithmetic, logic and bits. */
#include "soft/server/exec/decode.h"
#include "soft/server/exec/decode_half.h"
#include "soft/server/exec/half.h"

#include <errno.h>
#include <string.h>

/* Emits an operation with a destination and n sources, all of type t (dest type may be wider). */
static int emit_n(struct decoder *d, op_fn fn, enum exec_type dest, enum exec_type t, int n,
		  struct op *op)
{
	const struct ptx_operand *in = d->insn->operands;
	uint32_t *src[3] = { &op->a, &op->b, &op->c };
	int err = dec_operands(d, (unsigned)n + 1);

	if (err == 0 && !fn) {
		err = dec_fail(d, "this type is not supported here");
	}
	for (int i = 0; err == 0 && i < n; i++) {
		err = dec_source(d, &in[i + 1], t, src[i]);
	}
	if (err == 0) {
		err = dec_dest(d, &in[0], dest, &op->d);
	}
	op->fn = fn;
	return err < 0 ? err : dec_emit(d, op);
}

static op_fn alu(struct decoder *d, int which, enum exec_type t)
{
	return t < TY_COUNT ? d->h->alu[which][t] : NULL;
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

static int rounding(struct decoder *d)
{
	static const char *const words[] = { ".rn", ".rz", ".rm", ".rp" };

	return dec_pick(d, words, 4, -1);
}

/* Rounding other than to nearest; f64, f32 and f32 with .ftz or .sat. */
static int emit_rounded(struct decoder *d, int slow, enum exec_type t, int round, int n, bool ftz,
			bool sat)
{
	struct op op = dec_op(d, NULL);

	op.sub = (uint8_t)slow;
	op.type = t;
	op.n = (uint8_t)round;
	op.flags = (uint8_t)((ftz ? FLAG_FTZ : 0) | (sat ? FLAG_SAT : 0));
	if (t != TY_F32 && t != TY_F64) {
		return dec_fail(d, "this type is not supported here");
	}
	return emit_n(d, op_round, t, t, n, &op);
}

/* add, sub, min, max, abs, neg, rem, sad ... : integers and floats. */
int dec_arith(struct decoder *d, int which, int n)
{
	static const uint8_t saturating[ALU_COUNT] = {
		[ALU_ADD] = ALU_ADD_SAT, [ALU_SUB] = ALU_SUB_SAT, [ALU_MUL] = ALU_MUL_SAT
	};
	struct op op = dec_op(d, NULL);
	enum exec_type t = dec_take_type(d);
	bool ftz, sat;
	int round;

	if (dec_half_here(d)) {
		return dec_half(d, which, n);
	}
	if (dec_has(d, ".cc")) {
		op.sub = which == ALU_ADD ? CARRY_ADD : CARRY_SUB;
		op.flags = CARRY_OUT;
		op.type = t;
		return which == ALU_ADD || which == ALU_SUB
			       ? emit_n(d, dec_is_float(t) ? NULL : op_carry, t, t, n, &op)
			       : dec_fail(d, ".cc is not supported here");
	}
	sat = saturating[which] && dec_has(d, ".sat");
	if (t == TY_F32 || t == TY_F64) {
		round = which == ALU_ADD || which == ALU_SUB || which == ALU_MUL ? rounding(d) : -1;
		ftz = dec_has(d, ".ftz");
		if (round > ROUND_RN) {
			return emit_rounded(d,
					    which == ALU_ADD   ? SLOW_ADD
					    : which == ALU_SUB ? SLOW_SUB
							       : SLOW_MUL,
					    t, round, n, ftz, sat);
		}
		if ((which == ALU_MIN || which == ALU_MAX) && dec_has(d, ".NaN")) {
			which = which == ALU_MIN ? ALU_MIN_NAN : ALU_MAX_NAN;
		}
		t = ftz && t == TY_F32 ? TY_F32Z : t;
		dec_has(d, ".approx"); /* of tanh */
	}
	return emit_n(d, alu(d, sat ? saturating[which] : which, t), t, t, n, &op);
}

/* mul and mad of integers: .lo, .hi, .wide; floats go on to dec_arith and dec_fma. */
int dec_mul(struct decoder *d, int base, int n)
{
	static const char *const parts[] = { ".lo", ".hi", ".wide" };
	int part = dec_pick(d, parts, 3, -1);
	struct op op = dec_op(d, NULL);
	enum exec_type t;

	if (part < 0) {
		return base == ALU_MUL ? dec_arith(d, ALU_MUL, 2) : dec_fma(d, 0, 0);
	}
	t = dec_take_type(d);
	if (base == ALU_MAD && dec_has(d, ".cc")) {
		op.sub = part == 0 ? CARRY_MAD_LO : CARRY_MAD_HI;
		op.flags = CARRY_OUT;
		op.type = t;
		return emit_n(d, part < 2 && dec_type_bytes(t) >= 4 ? op_carry : NULL, t, t, 3,
			      &op);
	}
	if (base == ALU_MAD && part == 1 && dec_has(d, ".sat")) {
		return dec_fail(d, ".sat is not supported here");
	}
	op.fn = alu(d, base + part, t);
	if (part == 2) {
		const struct ptx_operand *in = d->insn->operands;
		int err = dec_operands(d, (unsigned)n + 1);

		if (err == 0 && !op.fn) {
			err = dec_fail(d, "this type is not supported here");
		}
		if (err == 0) {
			err = dec_source(d, &in[1], t, &op.a);
		}
		if (err == 0) {
			err = dec_source(d, &in[2], t, &op.b);
		}
		if (err == 0 && n == 3) {
			err = dec_source(d, &in[3], widened(t), &op.c);
		}
		if (err == 0) {
			err = dec_dest(d, &in[0], widened(t), &op.d);
		}
		return err < 0 ? err : dec_emit(d, &op);
	}
	return emit_n(d, op.fn, t, t, n, &op);
}

int dec_mul24(struct decoder *d, int base, int n)
{
	static const char *const parts[] = { ".lo", ".hi" };
	struct op op = dec_op(d, NULL);
	int part = dec_pick(d, parts, 2, 0);
	enum exec_type t = dec_take_type(d);

	return emit_n(d, alu(d, base + part, t), t, t, n, &op);
}

/* rcp, sqrt, rsqrt, ex2, lg2, sin, cos. */
int dec_float_op(struct decoder *d, int which, int n)
{
	struct op op = dec_op(d, NULL);
	enum exec_type t = dec_take_type(d);
	bool ftz;
	int round;

	if (dec_half_here(d)) {
		return dec_half(d, which, n);
	}
	ftz = dec_has(d, ".ftz");
	round = rounding(d);
	dec_has(d, ".approx");
	if (round > ROUND_RN) {
		if (which != ALU_RCP && which != ALU_SQRT) {
			return dec_fail(d, "this rounding is not supported here");
		}
		return emit_rounded(d, which == ALU_RCP ? SLOW_RCP : SLOW_SQRT, t, round, n, ftz,
				    false);
	}
	t = ftz && t == TY_F32 ? TY_F32Z : t;
	return emit_n(d, alu(d, which, t), t, t, n, &op);
}

int dec_div(struct decoder *d, int a, int b)
{
	struct op op = dec_op(d, NULL);
	enum exec_type t = dec_take_type(d);
	bool ftz = dec_has(d, ".ftz");
	int round = rounding(d);

	if (dec_is_float(t)) {
		dec_has(d, ".approx");
		dec_has(d, ".full");
	}
	if (round > ROUND_RN) {
		return emit_rounded(d, SLOW_DIV, t, round, 2, ftz, false);
	}
	t = ftz && t == TY_F32 ? TY_F32Z : t;
	return emit_n(d, alu(d, ALU_DIV, t), t, t, 2, &op);
}

int dec_fma(struct decoder *d, int a, int b)
{
	struct op op = dec_op(d, NULL);
	enum exec_type t = dec_take_type(d);
	int round;
	bool ftz, sat;

	if (dec_half_here(d)) {
		return dec_half(d, ALU_FMA, 3);
	}
	round = rounding(d);
	ftz = dec_has(d, ".ftz");
	sat = dec_has(d, ".sat");
	if (round > ROUND_RN) {
		return emit_rounded(d, SLOW_FMA, t, round, 3, ftz, sat);
	}
	t = ftz && t == TY_F32 ? TY_F32Z : t;
	return emit_n(d, alu(d, sat ? ALU_FMA_SAT : ALU_FMA, t), t, t, 3, &op);
}

static int pred_logic(struct decoder *d, int which, int n)
{
	static const uint8_t logic[ALU_COUNT] = { [ALU_AND] = LOGIC_AND,
						  [ALU_OR] = LOGIC_OR,
						  [ALU_XOR] = LOGIC_XOR,
						  [ALU_NOT] = LOGIC_NOT };
	struct op op = dec_op(d, op_pred_logic);
	uint16_t b = 0;
	uint8_t b_not = 0;
	int err = dec_operands(d, (unsigned)n + 1);

	op.sub = logic[which];
	if (err == 0) {
		err = dec_pred(d, &d->insn->operands[0], &op.p, NULL);
	}
	if (err == 0) {
		err = dec_pred(d, &d->insn->operands[1], &op.r, &op.r_not);
	}
	if (err == 0 && n == 2) {
		err = dec_pred(d, &d->insn->operands[2], &b, &b_not);
	}
	op.q = b;
	op.flags = b_not;
	if (err == 0 && op.p == EXEC_NO_PRED) {
		return dec_fail(d, "a predicate is expected");
	}
	return err < 0 ? err : dec_emit(d, &op);
}

/* and, or, xor, not, cnot: of predicates too. */
int dec_logic(struct decoder *d, int which, int n)
{
	struct op op = dec_op(d, NULL);
	enum exec_type t = dec_take_type(d);

	if (t == TY_PRED && which != ALU_CNOT) {
		return pred_logic(d, which, n);
	}
	return emit_n(d, alu(d, which, t), t, t, n, &op);
}

int dec_shift(struct decoder *d, int which, int b)
{
	const struct ptx_operand *in = d->insn->operands;
	struct op op = dec_op(d, NULL);
	enum exec_type t = dec_take_type(d);
	int err = dec_operands(d, 3);

	op.fn = alu(d, which, t);
	if (err == 0 && !op.fn) {
		err = dec_fail(d, "this type is not supported here");
	}
	if (err == 0) {
		err = dec_source(d, &in[1], t, &op.a);
	}
	if (err == 0) {
		err = dec_source(d, &in[2], TY_U32, &op.b);
	}
	if (err == 0) {
		err = dec_dest(d, &in[0], t, &op.d);
	}
	return err < 0 ? err : dec_emit(d, &op);
}

/* popc, clz (32-bit result), brev. */
int dec_bits(struct decoder *d, int which, int b)
{
	struct op op = dec_op(d, NULL);
	enum exec_type t = dec_take_type(d);

	return emit_n(d, alu(d, which, t), which == ALU_BREV ? t : TY_U32, t, 1, &op);
}

int dec_bfind(struct decoder *d, int a, int b)
{
	struct op op = dec_op(d, NULL);
	bool shift = dec_has(d, ".shiftamt");
	enum exec_type t = dec_take_type(d);

	return emit_n(d, alu(d, shift ? ALU_BFIND_SHIFT : ALU_BFIND, t), TY_U32, t, 1, &op);
}

/* bfe d, a, b, c and bfi d, a, b, c, e: positions and lengths are 32 bits wide. */
int dec_bfe(struct decoder *d, int which, int b)
{
	const struct ptx_operand *in = d->insn->operands;
	struct op op = dec_op(d, NULL);
	enum exec_type t = dec_take_type(d);
	bool insert = which == ALU_BFI;
	int err = dec_operands(d, insert ? 5 : 4);

	op.fn = alu(d, which, t);
	if (err == 0 && !op.fn) {
		err = dec_fail(d, "this type is not supported here");
	}
	if (err == 0) {
		err = dec_source(d, &in[1], t, &op.a);
	}
	if (err == 0) {
		err = dec_source(d, &in[2], insert ? t : TY_U32, &op.b);
	}
	if (err == 0) {
		err = dec_source(d, &in[3], TY_U32, &op.c);
	}
	if (err == 0 && insert) {
		err = dec_source(d, &in[4], TY_U32, &op.e);
	}
	if (err == 0) {
		err = dec_dest(d, &in[0], t, &op.d);
	}
	return err < 0 ? err : dec_emit(d, &op);
}

int dec_prmt(struct decoder *d, int a, int b)
{
	static const char *const modes[] = {
		NULL, ".f4e", ".b4e", ".rc8", ".ecl", ".ecr", ".rc16"
	};
	struct op op = dec_op(d, NULL);
	enum exec_type t = dec_take_type(d);

	op.sub = (uint8_t)dec_pick(d, modes, 7, 0);
	return emit_n(d, alu(d, ALU_PRMT, t), t, t, 3, &op);
}

int dec_lop3(struct decoder *d, int a, int b)
{
	const struct ptx_operand *in = d->insn->operands;
	struct op op = dec_op(d, d->h->alu[ALU_LOP3][TY_U32]);
	enum exec_type t = dec_take_type(d);
	int err = dec_operands(d, 5);

	if (err == 0 && (t != TY_U32 || in[4].kind != PTX_INT || in[4].value > 255)) {
		err = dec_fail(d, "a table of 8 bits is expected");
	}
	for (int i = 0; err == 0 && i < 3; i++) {
		err = dec_source(d, &in[i + 1], t, i == 0 ? &op.a : i == 1 ? &op.b : &op.c);
	}
	if (err == 0) {
		op.imm = (int64_t)in[4].value;
		err = dec_dest(d, &in[0], t, &op.d);
	}
	return err < 0 ? err : dec_emit(d, &op);
}

int dec_shf(struct decoder *d, int a, int b)
{
	static const char *const sides[] = { ".l", ".r" };
	static const char *const modes[] = { ".wrap", ".clamp" };
	struct op op = dec_op(d, NULL);
	int side = dec_pick(d, sides, 2, -1), mode = dec_pick(d, modes, 2, -1);
	enum exec_type t = dec_take_type(d);

	if (side < 0 || mode < 0) {
		return dec_fail(d, ".l or .r and .wrap or .clamp are expected");
	}
	return emit_n(d, alu(d, ALU_SHF_L_WRAP + side * 2 + mode, t), t, t, 3, &op);
}

/* addc, subc, madc: with the carry of the last .cc. */
int dec_carry(struct decoder *d, int kind, int n)
{
	static const char *const parts[] = { ".lo", ".hi" };
	struct op op = dec_op(d, NULL);
	int part = n == 3 ? dec_pick(d, parts, 2, -1) : 0;
	enum exec_type t;

	if (part < 0) {
		return dec_fail(d, ".lo or .hi is expected");
	}
	op.sub = (uint8_t)(kind + part);
	op.flags = (uint8_t)(CARRY_IN | (dec_has(d, ".cc") ? CARRY_OUT : 0));
	t = dec_take_type(d);
	op.type = t;
	return emit_n(d, !dec_is_float(t) && dec_type_bytes(t) >= 4 ? op_carry : NULL, t, t, n,
		      &op);
}

int dec_testp(struct decoder *d, int a, int b)
{
	static const char *const tests[] = { ".finite",	    ".infinite", ".number",
					     ".notanumber", ".normal",	 ".subnormal" };
	struct op op = dec_op(d, op_testp);
	int test = dec_pick(d, tests, 6, -1), err;

	op.type = dec_take_type(d);
	op.sub = (uint8_t)test;
	err = dec_operands(d, 2);
	if (err == 0 && (test < 0 || (op.type != TY_F32 && op.type != TY_F64))) {
		err = dec_fail(d, "a test such as .finite and a type are expected");
	}
	if (err == 0) {
		err = dec_source(d, &d->insn->operands[1], op.type, &op.a);
	}
	if (err == 0) {
		err = dec_pred(d, &d->insn->operands[0], &op.p, NULL);
	}
	return err < 0 ? err : dec_emit(d, &op);
}

int dec_dp4a(struct decoder *d, int a, int b)
{
	struct op op = dec_op(d, op_dp4a);
	enum exec_type ta = dec_take_type(d), tb = dec_take_type(d);

	op.type = ta;
	op.type2 = tb;
	if (dec_type_bytes(ta) != 4 || dec_type_bytes(tb) != 4 || dec_is_float(ta) ||
	    dec_is_float(tb)) {
		return dec_fail(d, "two types are expected");
	}
	return emit_n(d, op_dp4a, TY_U32, TY_U32, 3, &op);
}
