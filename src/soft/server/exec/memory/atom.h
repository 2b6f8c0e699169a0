/* Atomic operations: what the decoder fills in and the handlers read. */
#ifndef GBPF_SOFT_SERVER_EXEC_MEMORY_ATOM_H
#define GBPF_SOFT_SERVER_EXEC_MEMORY_ATOM_H

#include "soft/server/exec/op.h"

enum exec_atom_half { ATOM_PLAIN, ATOM_F16, ATOM_BF16 }; /* op.type2 */
enum { ATOM_OLD = 1 };					 /* op.flags: the old value goes to d */

/* n elements one after the other, each atomic: values in registers from b, old ones from d. */
int exec_op_atom_vector(struct exec_warp *w, const struct exec_op *o, uint32_t m);
/* cas and exch of .b128: each operand is two 64-bit registers in a row. */
int exec_op_atom_pair(struct exec_warp *w, const struct exec_op *o, uint32_t m);

#endif
