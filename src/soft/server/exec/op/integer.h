/* Rare integer instructions, computed lane by lane. */
#ifndef GBPF_SOFT_SERVER_EXEC_OP_INTEGER_H
#define GBPF_SOFT_SERVER_EXEC_OP_INTEGER_H

#include "soft/server/exec/op.h"

/* sub = enum exec_integer_op; up to three 32-bit sources. flags: INTEGER_*. */
int exec_op_integer(struct exec_warp *w, const struct exec_op *o, uint32_t m);
exec_op_fn exec_integer_dp4a(enum exec_type a, enum exec_type b);
enum exec_integer_op {
	INTEGER_FNS,
	INTEGER_BMSK,
	INTEGER_SZEXT,
	INTEGER_DP4A, /* by exec_integer_dp4a() */
	INTEGER_DP2A,
	INTEGER_MAD_HI_SAT,
	INTEGER_MAD24_HI_SAT,
	INTEGER_MIN_RELU,
	INTEGER_MAX_RELU,
	INTEGER_ADD2, /* two 16-bit halves */
	INTEGER_MIN2,
	INTEGER_MAX2,
};
enum { INTEGER_CLAMP = 1, INTEGER_SIGNED = 2, INTEGER_HIGH = 4, INTEGER_RELU = 8 };
/* p = (d != 0) sub r, after a lop3 whose result is a. */
int exec_op_nonzero(struct exec_warp *w, const struct exec_op *o, uint32_t m);
/* mov of bytes: d = low byte of a, below b; d = the byte of a at bit imm. */
int exec_op_pack_bytes(struct exec_warp *w, const struct exec_op *o, uint32_t m);
int exec_op_unpack_byte(struct exec_warp *w, const struct exec_op *o, uint32_t m);

#endif
