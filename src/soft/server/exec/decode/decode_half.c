/* Decoding of f16, f16x2, bf16, bf16x2: arithmetic and comparisons. */
#include "soft/server/exec/decode/decode_arith.h"
#include "soft/server/exec/op/half.h"

#include <errno.h>
#include <string.h>

static const struct {
	const char *word;
	enum exec_num_format format;
	uint8_t n;
} halves[] = { { ".f16", NUM_F16, 1 },
	       { ".f16x2", NUM_F16, 2 },
	       { ".bf16", NUM_BF16, 1 },
	       { ".bf16x2", NUM_BF16, 2 } };

/* Returns the index in halves[] of the last modifier, or -1. */
static int half_kind(const struct exec_decoder *d)
{
	const char *last = d->insn->n_modifiers ? d->insn->modifiers[d->insn->n_modifiers - 1] : "";

	for (int i = 0; i < (int)ARRAY_SIZE(halves); i++) {
		if (strcmp(last, halves[i].word) == 0) {
			return i;
		}
	}
	return -1;
}

bool exec_dec_half_here(const struct exec_decoder *d)
{
	return half_kind(d) >= 0;
}

/* Takes the modifiers that this operation may have. */
static int half_flags(struct exec_decoder *d, int which)
{
	int flags = exec_dec_has(d, ".ftz") ? FLAG_FTZ : 0;

	switch (which) {
	case ALU_ADD:
	case ALU_SUB:
	case ALU_MUL:
		exec_dec_has(d, ".rn");
		flags |= exec_dec_has(d, ".sat") ? FLAG_SAT : 0;
		break;
	case ALU_FMA:
		exec_dec_has(d, ".rn");
		flags |= exec_dec_has(d, ".sat") ? FLAG_SAT : 0;
		flags |= exec_dec_has(d, ".relu") ? FLAG_RELU : 0;
		break;
	case ALU_MIN:
	case ALU_MAX:
		flags |= exec_dec_has(d, ".NaN") ? FLAG_NAN : 0;
		flags |= exec_dec_has(d, ".xorsign") && exec_dec_has(d, ".abs") ? FLAG_XORSIGN : 0;
		break;
	case ALU_EX2:
	case ALU_TANH:
		exec_dec_has(d, ".approx");
		break;
	default:
		break;
	}
	return flags;
}

/* Emits the operation for n sources; min and max also take three. */
int exec_dec_half(struct exec_decoder *d, int which, int n)
{
	const struct ptx_operand *in = d->insn->operands;
	int kind = half_kind(d), err;
	enum exec_type t = halves[kind].n == 2 ? TY_U32 : TY_U16;
	struct exec_op op = exec_dec_op(d, exec_op_half);
	uint32_t *src[3] = { &op.a, &op.b, &op.c };
	bool three = (which == ALU_MIN || which == ALU_MAX) && d->insn->n_operands == 4;

	op.sub = (uint8_t)which;
	op.n = halves[kind].n;
	op.type2 = halves[kind].format;
	op.flags = (uint8_t)half_flags(d, which);
	op.fn = exec_half_quick(d->h, &op);
	exec_dec_has(d, halves[kind].word);
	switch (which) {
	case ALU_ADD:
	case ALU_SUB:
	case ALU_MUL:
	case ALU_FMA:
	case ALU_MIN:
	case ALU_MAX:
	case ALU_ABS:
	case ALU_NEG:
	case ALU_EX2:
	case ALU_TANH:
		break;
	default:
		return exec_dec_fail(d, "this type is not supported here");
	}
	err = exec_dec_operands(d, (unsigned)(n + 1 + three));
	for (int i = 0; err == 0 && i < n; i++) {
		err = exec_dec_source(d, &in[i + 1], t, src[i]);
	}
	if (err == 0 && three) {
		err = exec_dec_new_register(d, TY_U32, &op.d);
		if (err == 0) {
			err = exec_dec_emit(d, &op);
		}
		op.a = op.d;
		if (err == 0) {
			err = exec_dec_source(d, &in[3], t, &op.b);
		}
	}
	if (err == 0) {
		err = exec_dec_dest(d, &in[0], t, &op.d);
	}
	return err < 0 ? err : exec_dec_emit(d, &op);
}

/* setp and set: how to compare halves, as half_kind found them. */
int exec_dec_half_comparison(struct exec_decoder *d, struct exec_op *op, int cmp,
			     enum exec_type *ret)
{
	int kind = half_kind(d);

	if (cmp < 0 || cmp > CMP_NAN) {
		return exec_dec_fail(d, "this comparison of this type is not supported");
	}
	op->fn = exec_op_half_compare;
	op->type = (uint8_t)cmp;
	op->type2 = halves[kind].format;
	op->n = halves[kind].n;
	op->flags = exec_dec_has(d, ".ftz") ? FLAG_FTZ : 0;
	*ret = op->n == 2 ? TY_U32 : TY_U16;
	return 0;
}
