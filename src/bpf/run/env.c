/* The helper table of the environment, and the helpers that query time, random numbers and tenants.
 */
#include "bpf/run/env.h"

#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "bpf/run/helpers.h"

EBPF_HELPER(bpf_ktime_get_ns)
{
	return clock_now_ns();
}

/* xorshift64*. Concurrent threads may draw the same number, which is allowed. */
EBPF_HELPER(bpf_get_prandom_u32)
{
	uint64_t x = load_relaxed(&env->random_state);

	x ^= x >> 12;
	x ^= x << 25;
	x ^= x >> 27;
	store_relaxed(&env->random_state, x);
	return (x * UINT64_C(0x2545f4914f6cdd1d)) >> 32;
}

EBPF_HELPER(gbpf_tenant_class)
{
	if (!env->tenants || !env->tenants->class_id || a1 > UINT32_MAX) {
		return (uint64_t)-ENOENT;
	}
	return (uint64_t)(int64_t)env->tenants->class_id(env->tenants->ctx, (uint32_t)a1);
}

EBPF_HELPER(gbpf_tenant_weight)
{
	if (!env->tenants || !env->tenants->weight || a1 > UINT32_MAX) {
		return (uint64_t)-ENOENT;
	}
	return (uint64_t)(int64_t)env->tenants->weight(env->tenants->ctx, (uint32_t)a1);
}

EBPF_HELPER(gbpf_tenant_vgpu)
{
	if (!env->tenants || !env->tenants->vgpu || a1 > UINT32_MAX) {
		return (uint64_t)-ENOENT;
	}
	return (uint64_t)(int64_t)env->tenants->vgpu(env->tenants->ctx, (uint32_t)a1);
}

EBPF_HELPER(gbpf_tenant_stat)
{
	if (!env->tenants || !env->tenants->stat || a1 > UINT32_MAX || a2 > UINT32_MAX) {
		return 0;
	}
	return env->tenants->stat(env->tenants->ctx, (uint32_t)a1, (uint32_t)a2);
}

/* Asks gbpfd for a change of tenant a1. An invalid value is a fault of the program; a tenant that
 * has exited, or without that control, is not. */
static uint64_t request(struct ebpf_env *env,
			int (*ask)(void *ctx, uint32_t tenant, uint32_t value), uint64_t tenant,
			uint64_t value)
{
	int r;

	if (value > UINT32_MAX) {
		return ebpf_helper_failed(env, -EINVAL);
	}
	r = tenant > UINT32_MAX ? -ENOENT
				: ask(env->tenants->ctx, (uint32_t)tenant, (uint32_t)value);
	return r == -EINVAL ? ebpf_helper_failed(env, r) : (uint64_t)(int64_t)r;
}

EBPF_HELPER(gbpf_slice_set)
{
	if (!env->tenants || !env->tenants->slice_set) {
		return (uint64_t)-ENOENT;
	}
	return request(env, env->tenants->slice_set, a1, a2);
}

EBPF_HELPER(gbpf_preempt_now)
{
	if (!env->tenants || !env->tenants->preempt_now) {
		return (uint64_t)-ENOENT;
	}
	return request(env, env->tenants->preempt_now, a1, a2);
}

EBPF_HELPER(gbpf_tenant_explain)
{
	char text[EBPF_PRINT_TEXT];

	if (!env->tenants || !env->tenants->explain || a1 > UINT32_MAX) {
		return (uint64_t)-ENOENT;
	}
	ebpf_print_format(text, ebpf_helper_ptr(a2), (uint32_t)a3, ebpf_helper_ptr(a4),
			  (uint32_t)a5);
	return (uint64_t)(int64_t)env->tenants->explain(env->tenants->ctx, (uint32_t)a1, text);
}

EBPF_HELPER(gbpf_note)
{
	if (a1 >= EBPF_NOTES) {
		return ebpf_helper_failed(env, -EINVAL);
	}
	add_relaxed(&env->notes[a1], a2);
	return 0;
}

/* A helper of programs inside kernels, called from a program that was not verified. */
static EBPF_HELPER(inside_kernels)
{
	return ebpf_helper_failed(env, -EINVAL);
}

#define HELPER_LOCAL(name) ebpf_help_##name
#define HELPER_DAEMON(name) ebpf_help_##name
#define HELPER_BOTH(name) ebpf_help_##name
#define HELPER_ALL(name) ebpf_help_##name
#define HELPER_DEVICE(name) ebpf_help_inside_kernels

static const ebpf_helper_fn all_helpers[EBPF_HELPER_SLOTS] = {
#define GBPF_HELPER(id, name, type, params, ret, a1, a2, a3, a4, a5, sides, cost, doc)             \
	[EBPF_SLOT_##name] = HELPER_##sides(name),
#include "gbpf/hooks.def"
};

void ebpf_env_init(struct ebpf_env *env)
{
	memset(env, 0, sizeof(*env));
	memcpy(env->helpers, all_helpers, sizeof(env->helpers));
	/* Differs between processes and starts; must not be 0. */
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
