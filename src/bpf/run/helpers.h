/* The functions of the helpers, one per line of hooks.def. helpers_*.c define them; env.c puts them
 * into the table. No helper waits, allocates or enters the kernel (reading the clock uses the
 * vDSO). */
#ifndef GBPF_BPF_RUN_HELPERS_H
#define GBPF_BPF_RUN_HELPERS_H

#include "base/atomic.h"
#include "base/compiler.h"
#include "bpf/run/env.h"

#define EBPF_HELPER(name)                                                                          \
	uint64_t ebpf_help_##name(UNUSED uint64_t a1, UNUSED uint64_t a2, UNUSED uint64_t a3,      \
				  UNUSED uint64_t a4, UNUSED uint64_t a5,                          \
				  UNUSED struct ebpf_env *env)

#define GBPF_HELPER(id, name, type, params, ret, a1, a2, a3, a4, a5, sides, cost, doc)             \
	EBPF_HELPER(name);
#include "gbpf/hooks.def"

static inline void *ebpf_helper_ptr(uint64_t v)
{
	return (void *)(uintptr_t)v;
}

/* Counts and returns an error that indicates a fault of the program and voids its verdict: an
 * argument out of range, or a map that it may not write. Full, empty, present and absent are
 * results, not errors. */
static inline uint64_t ebpf_helper_failed(struct ebpf_env *env, int64_t error)
{
	(void)add_relaxed(&env->helper_errors, 1);
	return (uint64_t)error;
}

#endif
