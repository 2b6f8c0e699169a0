/* Decoding of conversions. */
#include "soft/server/exec/decode/decode_kernel.h"
#include "soft/server/exec/op/half.h"

#include <errno.h>
#include <string.h>

/* Types of conversions only, and how their values lie in registers. */
static const struct cvt_type {
	const char *word;
	uint8_t type;	       /* exec_type or CVT_* */
	uint8_t parts;	       /* values per register */
	uint8_t bits;	       /* bits of one of two values */
	enum exec_type holder; /* type of the register */
} cvt_types[] = {
	{ ".bf16", CVT_BF16, 1, 16, TY_U16 },  { ".tf32", CVT_TF32, 1, 32, TY_U32 },
	{ ".f16x2", TY_F16, 2, 16, TY_U32 },   { ".bf16x2", CVT_BF16, 2, 16, TY_U32 },
	{ ".e4m3x2", CVT_E4M3, 2, 8, TY_U16 }, { ".e5m2x2", CVT_E5M2, 2, 8, TY_U16 },
};

/* Returns the first type not taken; parts 0: none left. */
static struct cvt_type take_cvt_type(struct exec_decoder *d)
{
	for (unsigned i = 0; i < d->insn->n_modifiers; i++) {
		const char *word = d->insn->modifiers[i];

		if (d->used_modifiers >> i & 1) {
			continue;
		}
		for (size_t k = 0; k < ARRAY_SIZE(cvt_types); k++) {
			if (strcmp(word, cvt_types[k].word) == 0) {
				d->used_modifiers |= 1u << i;
				return cvt_types[k];
			}
		}
		if (exec_dec_type(word) < TY_PRED) {
			enum exec_type t = exec_dec_type(word);

			d->used_modifiers |= 1u << i;
			return (struct cvt_type){ word, (uint8_t)t, word[1] == 'b' ? 0 : 1, 0, t };
		}
	}
	return (struct cvt_type){ 0 };
}

/* Returns a handler of the fast table, which requires registers of the types' own size, no .sat and
 * the default rounding. */
static exec_op_fn quick_cvt(struct exec_decoder *d, const struct exec_op *op, int round)
{
	enum exec_type to = op->type, from = op->type2;
	bool int_round = op->flags & FLAG_INT_ROUND;

	if (op->flags & (FLAG_SAT | FLAG_RELU | FLAG_FINITE) || to >= TY_COUNT ||
	    from >= TY_COUNT || (op->wide & WIDE_A) != (exec_dec_is_wide(from) ? WIDE_A : 0) ||
	    (op->wide & WIDE_D) != (exec_dec_is_wide(to) ? WIDE_D : 0)) {
		return NULL;
	}
	if (exec_dec_is_float(from) && !exec_dec_is_float(to)) {
		return int_round && round == ROUND_RZ && !(op->flags & FLAG_FTZ)
			       ? d->h->cvt[to][from]
			       : NULL;
	}
	if (int_round && from == to && !(op->flags & FLAG_FTZ)) {
		return d->h->alu[ALU_ROUND_N + round][to];
	}
	if (int_round || round > ROUND_RN || (op->flags & FLAG_FTZ && from != TY_F32)) {
		return NULL;
	}
	if (op->flags & FLAG_FTZ) {
		from = TY_F32Z;
	}
	return d->h->cvt[to][from];
}

/* Two values to one register, or one register of two values to another. */
static int cvt_pair(struct exec_decoder *d, struct exec_op *op, const struct cvt_type *to,
		    const struct cvt_type *from)
{
	const struct ptx_operand *in = d->insn->operands;
	bool both = from->parts == 2;
	int err = exec_dec_modifiers_done(d);

	op->fn = exec_op_cvt_pair;
	op->fn = both ? op->fn : exec_half_quick_cvt(d->h, op, true);
	op->size = to->bits;
	if (err == 0 && to->parts != 2) {
		err = exec_dec_fail(d, "a conversion between these types is not supported");
	}
	if (err == 0 && !both && from->type != TY_F32) {
		err = exec_dec_fail(d, "two sources are .f32");
	}
	if (err == 0) {
		err = exec_dec_operands(d, both ? 2 : 3);
	}
	if (err == 0) {
		err = exec_dec_source(d, &in[1], from->holder, &op->a);
	}
	if (err == 0 && !both) {
		err = exec_dec_source(d, &in[2], from->holder, &op->b);
	}
	if (both) {
		op->flags |= FLAG_PAIR;
		op->e = from->bits;
	}
	if (err == 0) {
		err = exec_dec_dest(d, &in[0], to->holder, &op->d);
	}
	return err < 0 ? err : exec_dec_emit(d, op);
}

static int cvt_pack(struct exec_decoder *d)
{
	static const struct {
		const char *word;
		uint8_t bits, is_signed, sources;
	} packs[] = { { ".u16", 16, 0, 2 }, { ".s16", 16, 1, 2 }, { ".u8", 8, 0, 3 },
		      { ".s8", 8, 1, 3 },   { ".u4", 4, 0, 3 },	  { ".s4", 4, 1, 3 },
		      { ".u2", 2, 0, 3 },   { ".s2", 2, 1, 3 } };
	const struct ptx_operand *in = d->insn->operands;
	uint32_t *src[3];
	struct exec_op op = exec_dec_op(d, exec_op_cvt_pack);
	bool sat = exec_dec_has(d, ".sat");
	int err = 0;

	src[0] = &op.a;
	src[1] = &op.b;
	src[2] = &op.c;
	op.n = 0;
	for (size_t i = 0; i < ARRAY_SIZE(packs) && op.n == 0; i++) {
		if (exec_dec_has(d, packs[i].word)) {
			op.size = packs[i].bits;
			op.sub = packs[i].is_signed;
			op.n = packs[i].sources;
		}
	}
	if (!sat || op.n == 0 || !exec_dec_has(d, ".s32") ||
	    (op.n == 3 && !exec_dec_has(d, ".b32"))) {
		return exec_dec_fail(d, "this form of cvt.pack is not supported");
	}
	err = exec_dec_operands(d, op.n + 1u);
	for (unsigned i = 0; err == 0 && i < op.n; i++) {
		err = exec_dec_source(d, &in[i + 1], TY_U32, src[i]);
	}
	if (err == 0) {
		err = exec_dec_dest(d, &in[0], TY_U32, &op.d);
	}
	return err < 0 ? err : exec_dec_emit(d, &op);
}

static int cvt_flags(struct exec_decoder *d)
{
	static const struct {
		const char *word;
		uint8_t flag;
	} words[] = { { ".ftz", FLAG_FTZ },
		      { ".sat", FLAG_SAT },
		      { ".relu", FLAG_RELU },
		      { ".satfinite", FLAG_FINITE } };
	int flags = 0;

	for (size_t i = 0; i < ARRAY_SIZE(words); i++) {
		flags |= exec_dec_has(d, words[i].word) ? words[i].flag : 0;
	}
	return flags;
}

int exec_dec_cvt(struct exec_decoder *d, int a, int b)
{
	static const char *const rounds[] = { ".rn", ".rz", ".rm", ".rp", ".rna" };
	static const char *const int_rounds[] = { ".rni", ".rzi", ".rmi", ".rpi" };
	const struct ptx_operand *in = d->insn->operands;
	struct exec_op op = exec_dec_op(d, exec_op_cvt_any);
	bool wide_to = false, wide_from = false;
	int round = exec_dec_pick(d, rounds, 5, -1),
	    int_round = exec_dec_pick(d, int_rounds, 4, -1), err;
	struct cvt_type to, from;
	exec_op_fn quick;

	if (exec_dec_has(d, ".pack")) {
		return cvt_pack(d);
	}
	op.flags = (uint8_t)cvt_flags(d);
	to = take_cvt_type(d);
	from = take_cvt_type(d);
	if (to.parts == 0 || from.parts == 0 || from.type == CVT_TF32 ||
	    (to.type == CVT_TF32 && from.type != TY_F32) ||
	    (round == ROUND_RNA && to.type != CVT_TF32)) {
		return exec_dec_fail(d, "a conversion between these types is not supported");
	}
	op.type = to.type;
	op.type2 = from.type;
	op.flags |= int_round >= 0 ? FLAG_INT_ROUND : 0;
	op.n = (uint8_t)(int_round >= 0 ? int_round : round >= 0 ? round : ROUND_RN);
	if (to.parts == 2 || from.parts == 2) {
		return cvt_pair(d, &op, &to, &from);
	}
	err = exec_dec_operands(d, 2);
	if (err == 0) {
		err = exec_dec_source_any(d, &in[1], from.holder, &op.a, &wide_from);
	}
	if (err == 0) {
		err = exec_dec_dest_any(d, &in[0], to.holder, &op.d, &wide_to);
	}
	if (err < 0) {
		return err;
	}
	op.wide = (uint8_t)((wide_from ? WIDE_A : 0) | (wide_to ? WIDE_D : 0));
	quick = quick_cvt(d, &op, op.n);
	op.fn = quick ? quick : exec_half_quick_cvt(d->h, &op, false);
	return exec_dec_emit(d, &op);
}
