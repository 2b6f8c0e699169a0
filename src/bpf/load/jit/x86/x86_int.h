/* Shared by the files of the x86-64 back end: the state of one compilation, and the mapping of eBPF
 * registers to machine registers. */
#ifndef GBPF_BPF_LOAD_JIT_X86_X86_INT_H
#define GBPF_BPF_LOAD_JIT_X86_X86_INT_H

#include "bpf/load/jit/jit_int.h"
#include "bpf/load/jit/x86/x86_emit.h"

struct x86_jit {
	struct ebpf_jit *plan; /* borrowed */
	struct x86_code code;
	int relax; /* short jumps may be chosen in this pass */
	int exact; /* 1: loops are aligned; 0: the maximum padding is assumed */
};

extern const uint8_t x86_reg_of[11]; /* eBPF register -> x86 register */

/* Scratch registers, which hold no eBPF register. */
enum { JIT_SCRATCH = R11, JIT_SCRATCH2 = R10 };

static inline unsigned x86_env_reg(const struct x86_jit *j)
{
	return j->plan->helper_calls ? R12 : R9; /* r9 need not be saved, but calls clobber it */
}

static inline int32_t x86_map_handle(uint32_t map)
{
	return (int32_t)(offsetof(struct ebpf_env, maps) + map * sizeof(struct ebpf_map));
}

static inline int32_t x86_map_data(uint32_t map)
{
	return x86_map_handle(map) + (int32_t)offsetof(struct ebpf_map, data);
}

/* Returns the function that a local call or a function address refers to. */
static inline struct ebpf_jit_func *x86_func_at(struct x86_jit *j, const struct ebpf_insn *i)
{
	return &j->plan->funcs[j->plan->notes[i - j->plan->insns + 1 + i->imm].func];
}

/* Zero-extends the register: the effect of a 32-bit operation that changes nothing else. */
static inline void x86_zero_extend(struct x86_code *c, int wide, unsigned reg)
{
	if (!wide) {
		x86_mov(c, 0, reg, reg);
	}
}

/* Returns the memory operand of a load or store. */
struct x86_mem x86_mem_of(const struct ebpf_jit_note *note, const struct ebpf_insn *access);
void x86_load_mem(struct x86_code *c, const struct ebpf_insn *i, unsigned dst,
		  const struct x86_mem *m);

/* Emit fused instructions (jit_fuse.c). */
void x86_update(struct x86_jit *j, const struct ebpf_insn *store, const struct x86_mem *m);
int x86_operand(struct x86_jit *j, const struct ebpf_insn *i, const struct ebpf_jit_note *note);
void x86_compare_memory(struct x86_jit *j, const struct ebpf_insn *jump,
			const struct ebpf_jit_note *note);

enum x86_alu x86_simple_op(unsigned op);
void x86_arithmetic(struct x86_jit *j, const struct ebpf_insn *i, const struct ebpf_jit_note *note);
void x86_division(struct x86_code *c, const struct ebpf_insn *i);
void x86_ld_imm64(struct x86_jit *j, const struct ebpf_insn *i);
void x86_memory(struct x86_jit *j, const struct ebpf_insn *i, const struct ebpf_jit_note *note);
void x86_call(struct x86_jit *j, const struct ebpf_insn *i, const struct ebpf_jit_note *note);
void x86_epilogue(struct x86_jit *j, const struct ebpf_jit_func *f);
/* Returns the offset from rsp of the number of tail calls, in a root. */
int32_t x86_tail_count(const struct x86_jit *j, const struct ebpf_jit_func *f);
/* Returns whether the function receives the environment and must preserve r12 of its caller. */
int x86_sets_env(const struct x86_jit *j, const struct ebpf_jit_func *f);

#endif
