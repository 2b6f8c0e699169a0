/* The interpreter: the reference for every other engine. */
#ifndef GBPF_BPF_RUN_INTERP_INTERP_H
#define GBPF_BPF_RUN_INTERP_INTERP_H

#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"
#include "bpf/run/env.h"

/* Runs a verified program without checks other than those that define results (division by zero
 * ...). A failed tail call returns -ENOENT to the program, or -ELOOP after the maximum number. */
uint64_t ebpf_interp_code(const struct ebpf_code *code, void *ctx, struct ebpf_env *env);
/* Like ebpf_interp_code(), for a program without tail calls. */
uint64_t ebpf_interp_verified(const struct ebpf_insn *insns, uint32_t n, void *ctx,
			      struct ebpf_env *env);

/* Runs a function of a verified program, for ebpf_call_back(). It is called from a helper that the
 * interpreter called, and uses the frames that its caller has left. */
uint64_t ebpf_interp_call(const struct ebpf_insn *fn, uint64_t a1, uint64_t a2, uint64_t a3,
			  uint64_t a4, struct ebpf_env *env);

/* Runs interpreted callbacks on this thread instead of ebpf_interp_call; set by a checked run while
 * one of its helpers runs. */
struct ebpf_callee {
	uint64_t (*call)(struct ebpf_callee *self, const struct ebpf_insn *fn, uint64_t a1,
			 uint64_t a2, uint64_t a3, uint64_t a4);
	struct ebpf_env *env; /* environment whose helpers call back */
};
extern TLS_FAST struct ebpf_callee *ebpf_callee;

struct ebpf_memory {
	uint64_t base;
	uint64_t bytes;
	int writable;
};

/* Runs arbitrary bytes as a program and checks every instruction, jump and access. Each access must
 * lie in the stack of a running frame, in one of regions, in the value memory of the maps of env
 * (if given), or in memory that helpers returned (map values, records). Callbacks of helpers run in
 * the next frame under the same checks. fuel: maximum number of instructions. r1, r2: initial
 * registers. observer (may be NULL) is called before every instruction with the registers, for the
 * soundness tests of the verifier. Returns 0 with *ret_r0, or -EFAULT (access), -EINVAL
 * (instruction), -ETIME (fuel) or -ELOOP (frames), with the place in *ret_pc. */
typedef void (*ebpf_observe_fn)(void *arg, uint32_t pc, unsigned frame, const uint64_t regs[11]);
struct ebpf_checked_run {
	const struct ebpf_memory *regions;
	unsigned n_regions;
	uint64_t r1, r2;
	uint64_t fuel;
	ebpf_observe_fn observe;
	void *observe_arg;
	struct ebpf_env
		*env; /* NULL: map loads and helper calls are -EINVAL; helpers that are NULL, too */
	const struct ebpf_tail_at *tails; /* as in struct ebpf_code */
	uint32_t n_tails;
};
int ebpf_interp_checked(const struct ebpf_insn *insns, uint32_t n,
			const struct ebpf_checked_run *run, uint64_t *ret_r0, uint32_t *ret_pc);

#endif
