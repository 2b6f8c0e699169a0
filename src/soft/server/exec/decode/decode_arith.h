/* Declarations shared by the decoders of arithmetic, halves, integers and comparisons. */
#ifndef GBPF_SOFT_SERVER_EXEC_DECODE_DECODE_ARITH_H
#define GBPF_SOFT_SERVER_EXEC_DECODE_DECODE_ARITH_H

#include "soft/server/exec/decode/decode_kernel.h"

/* Emits an operation with a destination and n sources, all of type t. Refuses fn NULL. */
int exec_dec_emit_n(struct exec_decoder *d, exec_op_fn fn, enum exec_type dest, enum exec_type t,
		    int n, struct exec_op *op);
static inline exec_op_fn exec_dec_alu(struct exec_decoder *d, int which, enum exec_type t)
{
	return t < TY_COUNT ? d->h->alu[which][t] : NULL;
}

/* Returns true if the instruction's type is .f16, .f16x2, .bf16 or .bf16x2. */
bool exec_dec_half_here(const struct exec_decoder *d);
int exec_dec_half(struct exec_decoder *d, int alu, int sources);
/* Fills in handler and flags of a comparison; *ret: type of the operands. */
int exec_dec_half_comparison(struct exec_decoder *d, struct exec_op *op, int cmp,
			     enum exec_type *ret);

/* decode_integer.c: .u16x2 and .s16x2, two halves at once. */
bool exec_dec_short_pair_here(const struct exec_decoder *d);
int exec_dec_short_pair(struct exec_decoder *d, int alu);

#endif
