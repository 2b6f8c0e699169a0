/* Decoding of integer bit operations: counting, fields, permutations, tables, dot products, pairs
 * of 16-bit values. */
#include "soft/server/exec/decode/decode_arith.h"
#include "soft/server/exec/op/integer.h"

#include <errno.h>
#include <string.h>

/* popc, clz (32-bit result), brev. */
int exec_dec_bits(struct exec_decoder *d, int which, int b)
{
	struct exec_op op = exec_dec_op(d, NULL);
	enum exec_type t = exec_dec_take_type(d);

	return exec_dec_emit_n(d, exec_dec_alu(d, which, t), which == ALU_BREV ? t : TY_U32, t, 1,
			       &op);
}

int exec_dec_bfind(struct exec_decoder *d, int a, int b)
{
	struct exec_op op = exec_dec_op(d, NULL);
	bool shift = exec_dec_has(d, ".shiftamt");
	enum exec_type t = exec_dec_take_type(d);

	return exec_dec_emit_n(d, exec_dec_alu(d, shift ? ALU_BFIND_SHIFT : ALU_BFIND, t), TY_U32,
			       t, 1, &op);
}

/* bfe d, a, b, c and bfi d, a, b, c, e: positions and lengths have 32 bits. */
int exec_dec_bfe(struct exec_decoder *d, int which, int b)
{
	const struct ptx_operand *in = d->insn->operands;
	struct exec_op op = exec_dec_op(d, NULL);
	enum exec_type t = exec_dec_take_type(d);
	bool insert = which == ALU_BFI;
	int err = exec_dec_operands(d, insert ? 5 : 4);

	op.fn = exec_dec_alu(d, which, t);
	if (err == 0 && !op.fn) {
		err = exec_dec_fail(d, "this type is not supported here");
	}
	if (err == 0) {
		err = exec_dec_source(d, &in[1], t, &op.a);
	}
	if (err == 0) {
		err = exec_dec_source(d, &in[2], insert ? t : TY_U32, &op.b);
	}
	if (err == 0) {
		err = exec_dec_source(d, &in[3], TY_U32, &op.c);
	}
	if (err == 0 && insert) {
		err = exec_dec_source(d, &in[4], TY_U32, &op.e);
	}
	if (err == 0) {
		err = exec_dec_dest(d, &in[0], t, &op.d);
	}
	return err < 0 ? err : exec_dec_emit(d, &op);
}

int exec_dec_prmt(struct exec_decoder *d, int a, int b)
{
	static const char *const modes[] = {
		NULL, ".f4e", ".b4e", ".rc8", ".ecl", ".ecr", ".rc16"
	};
	struct exec_op op = exec_dec_op(d, NULL);
	enum exec_type t = exec_dec_take_type(d);

	op.sub = (uint8_t)exec_dec_pick(d, modes, 7, 0);
	return exec_dec_emit_n(d, exec_dec_alu(d, ALU_PRMT, t), t, t, 3, &op);
}

/* lop3.and.b32 d|p, a, b, c, table, q: also p = (d != 0) and q. */
static int lop3_predicate(struct exec_decoder *d, const struct exec_op *lop3, int word)
{
	const struct ptx_operand *in = d->insn->operands;
	struct exec_op op = exec_dec_op(d, exec_op_nonzero);
	int err = exec_dec_pred(d, &in[0].args[1], &op.p, NULL);

	op.a = lop3->d;
	op.sub = word ? BOOL_OR : BOOL_AND;
	if (err == 0) {
		err = exec_dec_pred(d, &in[5], &op.r, &op.r_not);
	}
	return err < 0 ? err : exec_dec_emit(d, &op);
}

int exec_dec_lop3(struct exec_decoder *d, int a, int b)
{
	static const char *const words[] = { ".and", ".or" };
	const struct ptx_operand *in = d->insn->operands, *dest = in;
	struct exec_op op = exec_dec_op(d, d->h->alu[ALU_LOP3][TY_U32]);
	enum exec_type t = exec_dec_take_type(d);
	int word = exec_dec_pick(d, words, 2, -1), err = exec_dec_operands(d, word < 0 ? 5 : 6);

	if (err == 0 && (t != TY_U32 || in[4].kind != PTX_INT || in[4].value > 255)) {
		err = exec_dec_fail(d, "a table of 8 bits is expected");
	}
	if (err == 0 && word >= 0) {
		if (in[0].kind != PTX_PAIR) {
			return exec_dec_fail(d, "a register and a predicate are expected");
		}
		dest = &in[0].args[0];
	}
	for (int i = 0; err == 0 && i < 3; i++) {
		err = exec_dec_source(d, &in[i + 1], t, i == 0 ? &op.a : i == 1 ? &op.b : &op.c);
	}
	if (err == 0) {
		op.imm = (int64_t)in[4].value;
		err = exec_dec_dest(d, dest, t, &op.d);
	}
	if (err == 0) {
		err = exec_dec_emit(d, &op);
	}
	return err < 0 || word < 0 ? err : lop3_predicate(d, &op, word);
}

int exec_dec_shf(struct exec_decoder *d, int a, int b)
{
	static const char *const sides[] = { ".l", ".r" };
	static const char *const modes[] = { ".wrap", ".clamp" };
	struct exec_op op = exec_dec_op(d, NULL);
	int side = exec_dec_pick(d, sides, 2, -1), mode = exec_dec_pick(d, modes, 2, -1);
	enum exec_type t = exec_dec_take_type(d);

	if (side < 0 || mode < 0) {
		return exec_dec_fail(d, ".l or .r and .wrap or .clamp are expected");
	}
	return exec_dec_emit_n(d, exec_dec_alu(d, ALU_SHF_L_WRAP + side * 2 + mode, t), t, t, 3,
			       &op);
}

/* dp4a and dp2a: n is INTEGER_DP4A or INTEGER_DP2A. */
int exec_dec_dot(struct exec_decoder *d, int which, int n)
{
	static const char *const parts[] = { ".lo", ".hi" };
	struct exec_op op = exec_dec_op(d, NULL);
	int part = which == INTEGER_DP2A ? exec_dec_pick(d, parts, 2, -1) : 0;
	enum exec_type ta = exec_dec_take_type(d), tb = exec_dec_take_type(d);

	op.sub = (uint8_t)which;
	op.type = ta;
	op.type2 = tb;
	op.flags = part > 0 ? INTEGER_HIGH : 0;
	op.n = 3;
	if (part < 0 || (ta != TY_U32 && ta != TY_S32) || (tb != TY_U32 && tb != TY_S32)) {
		return exec_dec_fail(d, "two types are expected, and .lo or .hi for dp2a");
	}
	return exec_dec_emit_n(d,
			       which == INTEGER_DP4A ? exec_integer_dp4a(ta, tb) : exec_op_integer,
			       TY_U32, TY_U32, 3, &op);
}

/* fns, bmsk, szext. */
int exec_dec_integer(struct exec_decoder *d, int which, int n)
{
	static const char *const modes[] = { ".clamp", ".wrap" };
	struct exec_op op = exec_dec_op(d, NULL);
	int mode = which == INTEGER_FNS ? 1 : exec_dec_pick(d, modes, 2, -1);
	enum exec_type t = exec_dec_take_type(d);

	if (mode < 0) {
		return exec_dec_fail(d, ".clamp or .wrap is expected");
	}
	if (t != TY_U32 && !(which == INTEGER_SZEXT && t == TY_S32)) {
		return exec_dec_fail(d, "this type is not supported here");
	}
	op.sub = (uint8_t)which;
	op.n = (uint8_t)n;
	op.flags = (uint8_t)((mode == 0 ? INTEGER_CLAMP : 0) | (t == TY_S32 ? INTEGER_SIGNED : 0));
	return exec_dec_emit_n(d, exec_op_integer, TY_U32, TY_U32, n, &op);
}

bool exec_dec_short_pair_here(const struct exec_decoder *d)
{
	const char *last = d->insn->n_modifiers ? d->insn->modifiers[d->insn->n_modifiers - 1] : "";

	/* .relu may follow the type. */
	for (unsigned i = 0; i < d->insn->n_modifiers; i++) {
		const char *word = d->insn->modifiers[i];

		last = strcmp(word, ".u16x2") == 0 || strcmp(word, ".s16x2") == 0 ? word : last;
	}
	return strcmp(last, ".u16x2") == 0 || strcmp(last, ".s16x2") == 0;
}

int exec_dec_short_pair(struct exec_decoder *d, int which)
{
	struct exec_op op = exec_dec_op(d, NULL);
	bool relu = which != ALU_ADD && exec_dec_has(d, ".relu");

	op.sub = which == ALU_ADD ? INTEGER_ADD2 : which == ALU_MIN ? INTEGER_MIN2 : INTEGER_MAX2;
	if (which != ALU_ADD && which != ALU_MIN && which != ALU_MAX) {
		return exec_dec_fail(d, "this type is not supported here");
	}
	if (exec_dec_has(d, ".s16x2")) {
		op.flags = (uint8_t)(INTEGER_SIGNED | (relu ? INTEGER_RELU : 0));
	} else if (!exec_dec_has(d, ".u16x2") || relu) {
		return exec_dec_fail(d, ".relu is for signed types");
	}
	return exec_dec_emit_n(d, exec_op_integer, TY_U32, TY_U32, 2, &op);
}
