/* Runs every engine through one call: both interpreters and the compiled code, with the same memory
 * and environment. */
#ifndef GBPF_TESTS_BPF_ENGINES_H
#define GBPF_TESTS_BPF_ENGINES_H

#include <stddef.h>
#include <stdint.h>

#include "bpf/run/env.h"

/* Machine code of many programs in one executable mapping. */
struct code_pool {
	uint8_t *plain; /* owned */
	size_t len, cap;
	void *exec; /* owned */
};

void pool_init(struct code_pool *p, size_t cap);
/* Adds a program. Returns the offset of its entry, or the error of ebpf_jit_x86(). */
int pool_add(struct code_pool *p, const struct ebpf_insn *insns, uint32_t n,
	     const struct ebpf_env *env);
/* Makes the added programs executable. Returns 0 or -errno. */
int pool_map(struct code_pool *p);
uint64_t pool_run(const struct code_pool *p, int entry, void *ctx, struct ebpf_env *env);
/* Forgets everything that was added. */
void pool_clear(struct code_pool *p);
void pool_finish(struct code_pool *p);

/* An environment with maps of heap memory. */
struct test_env {
	struct ebpf_env env;
	struct ebpf_map_def defs[EBPF_MAX_MAPS];
	unsigned n;
	size_t bytes[EBPF_REGIONS];
	void *mem[EBPF_REGIONS]; /* owned */
};

void test_env_init(struct test_env *t);
int test_env_add(struct test_env *t, const char *name, uint32_t value_bytes, uint32_t entries,
		 uint32_t flags, uint32_t is_data);
/* Lays out and binds (zeroed). 0 or -errno. */
int test_env_bind(struct test_env *t);
/* Zeroes all map memory and counters. */
void test_env_reset(struct test_env *t);
void test_env_finish(struct test_env *t);

#endif
