/* Atomic operations: operand encoding shared by decoder and handlers. */
#ifndef GBPF_SOFT_SERVER_EXEC_MEMORY_ATOM_H
#define GBPF_SOFT_SERVER_EXEC_MEMORY_ATOM_H

#include "soft/server/exec/op.h"

enum exec_atom_half { ATOM_PLAIN, ATOM_F16, ATOM_BF16 }; /* values of op.type2 */
enum { ATOM_OLD = 1 };					 /* op.flags: return the old value in d */

/* n consecutive elements, each atomic: values in registers from b, old values to registers from d.
 */
int exec_op_atom_vector(struct exec_warp *w, const struct exec_op *o, uint32_t m);
/* cas and exch of .b128: each operand is two consecutive 64-bit registers. */
int exec_op_atom_pair(struct exec_warp *w, const struct exec_op *o, uint32_t m);
/* Applies o's operation (sub, type, type2, size) to an aligned element of device memory. Returns
 * the old value. */
uint64_t exec_atom_device(const struct exec_op *o, void *p, uint64_t a);

#endif
