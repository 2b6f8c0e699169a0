/* Half precision, conversions of small formats and related arithmetic: operand encoding shared by
 * decoder and handlers. */
#ifndef GBPF_SOFT_SERVER_EXEC_OP_HALF_H
#define GBPF_SOFT_SERVER_EXEC_OP_HALF_H

#include "soft/server/exec/op/number.h"

/* In addition to FLAG_* of op.h. */
enum {
	FLAG_RELU = 16,	   /* negative results become +0, NaN becomes canonical */
	FLAG_NAN = 32,	   /* min, max: a NaN operand gives NaN */
	FLAG_XORSIGN = 64, /* min, max of magnitudes, with the sign of the product */
	FLAG_FINITE = 128, /* .satfinite */
	FLAG_PAIR = 8,	   /* cvt: two values to one register, or one register of two values */
};

/* half.c: sub = enum exec_alu, type2 = enum exec_num_format, n = 1 or 2 halves. */
int exec_op_half(struct exec_warp *w, const struct exec_op *o, uint32_t m);
/* half_quick.c: returns the fastest handler for this operation, or conversion, on this processor.
 */
struct exec_handlers;
exec_op_fn exec_half_quick(const struct exec_handlers *h, const struct exec_op *o);
exec_op_fn exec_half_quick_cvt(const struct exec_handlers *h, const struct exec_op *o, bool pair);
/* type = enum exec_cmp, sub = BOOL_*; p, q: the result and its negation, or the results of two
 * halves. */
int exec_op_half_compare(struct exec_warp *w, const struct exec_op *o, uint32_t m);
/* min, max of f32 with .xorsign.abs: sub = ALU_MIN or ALU_MAX. */
int exec_op_minmax_xorsign(struct exec_warp *w, const struct exec_op *o, uint32_t m);

/* cvt.c. Types of conversions in addition to enum exec_type. */
enum { CVT_BF16 = TY_COUNT + 1, CVT_TF32, CVT_E4M3, CVT_E5M2 };
int exec_op_cvt_any(struct exec_warp *w, const struct exec_op *o, uint32_t m); /* n = rounding */
int exec_op_cvt_pair(struct exec_warp *w, const struct exec_op *o,
		     uint32_t m); /* d = convert(a) | convert(b) */
int exec_op_cvt_pack(struct exec_warp *w, const struct exec_op *o,
		     uint32_t m); /* cvt.pack: imm = bits of a part */

#endif
