/* Values of the data flow, shared by its files. */
#ifndef GBPF_BPF_LOAD_JIT_PTX_JIT_PTX_FLOW_INT_H
#define GBPF_BPF_LOAD_JIT_PTX_JIT_PTX_FLOW_INT_H

#include "bpf/load/jit/ptx/jit_ptx_flow.h"

extern const struct ebpf_ptx_value ebpf_ptx_any, ebpf_ptx_scalar;

struct ebpf_ptx_value ebpf_ptx_constant(int64_t v);
/* Returns whether a and b are the same, padding aside. */
int ebpf_ptx_same(const struct ebpf_ptx_value *a, const struct ebpf_ptx_value *b);
int ebpf_ptx_is_ctx(const struct ebpf_ptx_value *v);
int ebpf_ptx_is_frame(const struct ebpf_ptx_value *v);
/* Returns the value on a path that is one of two. */
struct ebpf_ptx_value ebpf_ptx_join(struct ebpf_ptx_value a, struct ebpf_ptx_value b);
/* Returns the result of arithmetic on the registers. */
struct ebpf_ptx_value ebpf_ptx_computed(const struct ebpf_ptx_value *regs,
					const struct ebpf_insn *i);

/* Finds the number that a register has at a call, which the verifier has proved to be always the
 * same: clang loads arguments right in front of it. Returns 0 if it is loaded elsewhere. */
int ebpf_ptx_number_before(const struct ebpf_jit *plan, uint32_t pc, unsigned reg, uint32_t *ret);
/* Returns the number of arguments of a helper. */
unsigned ebpf_ptx_arity(int slot);
/* Returns whether an instruction can do with a stack in registers, and counts the words that it
 * uses in slots_of[its function]. regs: before it. */
int ebpf_ptx_stack_use(const struct ebpf_jit *plan, uint32_t pc, const struct ebpf_ptx_value *regs,
		       uint8_t *slots_of);

#endif
