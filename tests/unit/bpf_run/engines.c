/* Engines and environments for the tests of this folder. */
#include "engines.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/compiler.h"
#include "bpf/load/jit/jit.h"
#include "bpf/run/exec_mem.h"
#include "bpf/run/policy_image.h"

void pool_init(struct code_pool *p, size_t cap)
{
	*p = (struct code_pool){ .plain = malloc(cap), .cap = cap };
}

int pool_add(struct code_pool *p, const struct ebpf_insn *insns, uint32_t n,
	     const struct ebpf_env *env)
{
	return ebpf_jit_x86(insns, n, env->maps, env->n_maps, p->plain, p->cap, &p->len);
}

int pool_map(struct code_pool *p)
{
	struct ebpf_exec_part part = { p->plain, 0, p->len };
	int fd = ebpf_exec_create("test-code", ROUND_UP(p->len, 4096u), &part, 1), err;

	if (fd < 0) {
		return fd;
	}
	err = ebpf_exec_map(fd, 0, ROUND_UP(p->len, 4096u), &p->exec);
	close(fd);
	return err;
}

uint64_t pool_run(const struct code_pool *p, int entry, void *ctx, struct ebpf_env *env)
{
	return ((ebpf_entry)((uintptr_t)p->exec + (unsigned)entry))(ctx, env);
}

void pool_clear(struct code_pool *p)
{
	if (p->exec) {
		munmap(p->exec, ROUND_UP(p->len, 4096u));
	}
	p->exec = NULL;
	p->len = 0;
}

void pool_finish(struct code_pool *p)
{
	pool_clear(p);
	free(p->plain);
}

void test_env_init(struct test_env *t)
{
	memset(t, 0, sizeof(*t));
	ebpf_env_init(&t->env);
}

int test_env_add(struct test_env *t, const char *name, uint32_t value_bytes, uint32_t entries,
		 uint32_t flags, uint32_t is_data)
{
	struct ebpf_map_def *d = &t->defs[t->n];

	if (t->n == EBPF_MAX_MAPS) {
		return -E2BIG;
	}
	*d = (struct ebpf_map_def){ .type = 2,
				    .key_bytes = 4,
				    .value_bytes = value_bytes,
				    .max_entries = entries,
				    .flags = flags,
				    .is_data = is_data };
	snprintf(d->name, sizeof(d->name), "%s", name);
	t->n++;
	return 0;
}

int test_env_bind(struct test_env *t)
{
	int err = ebpf_maps_layout(t->defs, t->n, t->env.maps, t->bytes);

	if (err) {
		return err;
	}
	t->env.n_maps = t->n;
	for (int r = 0; r < EBPF_REGIONS; r++) {
		if (t->bytes[r]) {
			t->mem[r] = aligned_alloc(4096, t->bytes[r]);
			ebpf_maps_bind(t->env.maps, t->n, (enum ebpf_region)r, t->mem[r]);
		}
	}
	test_env_reset(t);
	return 0;
}

void test_env_reset(struct test_env *t)
{
	for (int r = 0; r < EBPF_REGIONS; r++) {
		if (t->mem[r]) {
			memset(t->mem[r], 0, t->bytes[r]);
		}
	}
	memset(t->env.notes, 0, sizeof(t->env.notes));
	t->env.helper_errors = 0;
	t->env.random_state = 1;
}

void test_env_finish(struct test_env *t)
{
	for (int r = 0; r < EBPF_REGIONS; r++) {
		free(t->mem[r]);
	}
}
