/* The helpers, and the table through which running code reaches them. No helper blocks, allocates
 * or calls the kernel (reading the clock stays in the vDSO). */
#include "bpf/run/env.h"

#include <errno.h>
#include <string.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "base/compiler.h"

#define ARGS uint64_t a1, uint64_t a2, uint64_t a3, uint64_t a4, uint64_t a5, struct ebpf_env *env

static const void *ptr(uint64_t v)
{
	return (const void *)(uintptr_t)v;
}

static uint64_t count_error(struct ebpf_env *env, int64_t result)
{
	if (result < 0) {
		add_relaxed(&env->helper_errors, 1);
	}
	return (uint64_t)result;
}

static uint64_t help_bpf_map_lookup_elem(ARGS)
{
	return (uint64_t)(uintptr_t)ebpf_map_lookup(ptr(a1), ptr(a2));
}

static uint64_t help_bpf_map_update_elem(ARGS)
{
	return count_error(env, ebpf_map_update(ptr(a1), ptr(a2), ptr(a3), a4));
}

static uint64_t help_bpf_ktime_get_ns(ARGS)
{
	return clock_now_ns();
}

/* xorshift64*: threads that race may draw the same number, which is allowed. */
static uint64_t help_bpf_get_prandom_u32(ARGS)
{
	uint64_t x = load_relaxed(&env->random_state);

	x ^= x >> 12;
	x ^= x << 25;
	x ^= x >> 27;
	store_relaxed(&env->random_state, x);
	return (x * UINT64_C(0x2545f4914f6cdd1d)) >> 32;
}

static uint64_t help_gbpf_tenant_lookup(ARGS)
{
	const struct ebpf_map *map = ptr(a1);
	uint32_t index = ebpf_map_index(ptr(a3));
	uint8_t *base = NULL;

	if (env->tenants && env->tenants->region && a2 <= UINT32_MAX &&
	    map->region == EBPF_REGION_TENANT && index < map->max_entries) {
		base = env->tenants->region(env->tenants->ctx, (uint32_t)a2);
	}
	if (!base) {
		return 0;
	}
	return (uint64_t)(uintptr_t)(base + map->region_offset + (size_t)index * map->stride);
}

static uint64_t help_gbpf_tenant_class(ARGS)
{
	if (!env->tenants || !env->tenants->class_id || a1 > UINT32_MAX) {
		return (uint64_t)-ENOENT;
	}
	return (uint64_t)(int64_t)env->tenants->class_id(env->tenants->ctx, (uint32_t)a1);
}

static uint64_t help_gbpf_tenant_weight(ARGS)
{
	if (!env->tenants || !env->tenants->weight || a1 > UINT32_MAX) {
		return (uint64_t)-ENOENT;
	}
	return (uint64_t)(int64_t)env->tenants->weight(env->tenants->ctx, (uint32_t)a1);
}

static uint64_t help_gbpf_note(ARGS)
{
	if (a1 >= EBPF_NOTES) {
		return count_error(env, -EINVAL);
	}
	add_relaxed(&env->notes[a1], a2);
	return 0;
}

/* Until the operations behind them are there; the verifier refuses calls of them. */
#define ABSENT(name)                                                                               \
	static uint64_t help_##name(ARGS)                                                          \
	{                                                                                          \
		return 0;                                                                          \
	}
ABSENT(bpf_map_delete_elem)
ABSENT(bpf_tail_call)
ABSENT(bpf_map_push_elem)
ABSENT(bpf_map_pop_elem)
ABSENT(bpf_map_peek_elem)
ABSENT(bpf_spin_lock)
ABSENT(bpf_spin_unlock)
ABSENT(bpf_ringbuf_output)
ABSENT(bpf_ringbuf_reserve)
ABSENT(bpf_ringbuf_submit)
ABSENT(bpf_ringbuf_discard)
ABSENT(bpf_ringbuf_query)
ABSENT(bpf_for_each_map_elem)
ABSENT(bpf_loop)
ABSENT(gbpf_hist_add)
ABSENT(gbpf_thread_sum)
ABSENT(bpf_iter_num_new)
ABSENT(bpf_iter_num_next)
ABSENT(bpf_iter_num_destroy)

static const ebpf_helper_fn all_helpers[EBPF_HELPER_SLOTS] = {
#define GBPF_HELPER(id, name, type, params, ret, a1, a2, a3, a4, a5, sides, cost, doc)             \
	[EBPF_SLOT_##name] = help_##name,
#include "gbpf/hooks.def"
};

void ebpf_env_init(struct ebpf_env *env)
{
	memset(env, 0, sizeof(*env));
	memcpy(env->helpers, all_helpers, sizeof(env->helpers));
	/* Different between processes and starts; must not be 0. */
	env->random_state = (clock_now_ns() ^ (uint64_t)(uintptr_t)env) | 1;
}

int ebpf_helper_slot(int32_t id)
{
	switch (id) {
#define GBPF_HELPER(id, name, type, params, ret, a1, a2, a3, a4, a5, sides, cost, doc)             \
	case id:                                                                                   \
		return EBPF_SLOT_##name;
#include "gbpf/hooks.def"
	default:
		return -ENOENT;
	}
}
