/* What the decoders of arithmetic and of comparisons ask about halves. */
#ifndef GBPF_SOFT_SERVER_EXEC_DECODE_HALF_H
#define GBPF_SOFT_SERVER_EXEC_DECODE_HALF_H

#include "soft/server/exec/decode.h"

/* The instruction's type is .f16, .f16x2, .bf16 or .bf16x2. */
bool dec_half_here(const struct decoder *d);
int dec_half(struct decoder *d, int alu, int sources);
/* Fills in handler and flags of a comparison; *ret: the operands' type. */
int dec_half_comparison(struct decoder *d, struct op *op, int cmp, enum exec_type *ret);

#endif
