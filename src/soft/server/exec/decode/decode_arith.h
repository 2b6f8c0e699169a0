/* What the decoders of arithmetic, halves, integers and comparisons share. */
#ifndef GBPF_SOFT_SERVER_EXEC_DECODE_DECODE_ARITH_H
#define GBPF_SOFT_SERVER_EXEC_DECODE_DECODE_ARITH_H

#include "soft/server/exec/decode/decode_kernel.h"

/* Emits an operation with a destination and n sources, all of type t. fn NULL: refused. */
int dec_emit_n(struct decoder *d, op_fn fn, enum exec_type dest, enum exec_type t, int n,
	       struct op *op);
static inline op_fn dec_alu(struct decoder *d, int which, enum exec_type t)
{
	return t < TY_COUNT ? d->h->alu[which][t] : NULL;
}

/* The instruction's type is .f16, .f16x2, .bf16 or .bf16x2. */
bool dec_half_here(const struct decoder *d);
int dec_half(struct decoder *d, int alu, int sources);
/* Fills in handler and flags of a comparison; *ret: the operands' type. */
int dec_half_comparison(struct decoder *d, struct op *op, int cmp, enum exec_type *ret);

/* decode_integer.c: .u16x2 and .s16x2, two halves at once. */
bool dec_short_pair_here(const struct decoder *d);
int dec_short_pair(struct decoder *d, int alu);

#endif
