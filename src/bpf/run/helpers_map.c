/* Helpers on maps: call the operations and classify their results as results or errors. */
#include "bpf/run/helpers.h"

#include <errno.h>
#include <string.h>

#include "bpf/run/map/map_type.h"

static uint64_t result(struct ebpf_env *env, int r)
{
	return r == -EINVAL || r == -EPERM ? ebpf_helper_failed(env, r) : (uint64_t)(int64_t)r;
}

EBPF_HELPER(bpf_map_lookup_elem)
{
	return (uint64_t)(uintptr_t)ebpf_map_lookup(ebpf_helper_ptr(a1), ebpf_helper_ptr(a2));
}

EBPF_HELPER(bpf_map_update_elem)
{
	const struct ebpf_map *m = ebpf_helper_ptr(a1);
	int r = ebpf_map_update(m, ebpf_helper_ptr(a2), ebpf_helper_ptr(a3), a4);

	/* An index beyond the end of an array is always an error. */
	if (r < 0 && (m->ops->traits & EBPF_MAP_INDEXED)) {
		return ebpf_helper_failed(env, r);
	}
	return result(env, r);
}

EBPF_HELPER(bpf_map_delete_elem)
{
	return result(env, ebpf_map_delete(ebpf_helper_ptr(a1), ebpf_helper_ptr(a2)));
}

EBPF_HELPER(bpf_map_push_elem)
{
	return result(env, ebpf_map_push(ebpf_helper_ptr(a1), ebpf_helper_ptr(a2), a3));
}

/* Clears the value of a failed pop or peek: the program may read its buffer, so the buffer must not
 * keep other data. */
static uint64_t taken(struct ebpf_env *env, const struct ebpf_map *m, void *value, int r)
{
	if (r) {
		memset(value, 0, m->value_bytes);
	}
	return result(env, r);
}

EBPF_HELPER(bpf_map_pop_elem)
{
	return taken(env, ebpf_helper_ptr(a1), ebpf_helper_ptr(a2),
		     ebpf_map_pop(ebpf_helper_ptr(a1), ebpf_helper_ptr(a2)));
}

EBPF_HELPER(bpf_map_peek_elem)
{
	return taken(env, ebpf_helper_ptr(a1), ebpf_helper_ptr(a2),
		     ebpf_map_peek(ebpf_helper_ptr(a1), ebpf_helper_ptr(a2)));
}

EBPF_HELPER(gbpf_hist_add)
{
	int r = ebpf_map_hist_add(ebpf_helper_ptr(a1), (uint32_t)a2, a3);

	return r ? ebpf_helper_failed(env, r) : 0;
}

static uint64_t each_array(const struct ebpf_map *m, uint64_t fn, uint64_t arg,
			   struct ebpf_env *env)
{
	for (uint32_t i = 0; i < m->max_entries; i++) {
		uint32_t key = i;
		void *value = ebpf_map_lookup(m, &key);

		if (!value) {
			return i;
		}
		if (ebpf_call_back(fn, (uintptr_t)m, (uintptr_t)&key, (uintptr_t)value, arg, env)) {
			return i + 1;
		}
	}
	return m->max_entries;
}

/* Visits the elements of a hash table. The callback may delete the current element and change
 * others. */
static uint64_t each_hash(const struct ebpf_map *m, uint64_t fn, uint64_t arg, struct ebpf_env *env)
{
	uint64_t n = 0;

	for (uint32_t i = 0; m->data && i < m->max_entries; i++) {
		void *key, *value;

		if (!ebpf_map_element(m, i, &key, &value)) {
			continue;
		}
		n++;
		if (ebpf_call_back(fn, (uintptr_t)m, (uintptr_t)key, (uintptr_t)value, arg, env)) {
			break;
		}
	}
	return n;
}

EBPF_HELPER(bpf_for_each_map_elem)
{
	const struct ebpf_map *m = ebpf_helper_ptr(a1);

	if (a4 || !(m->ops->traits & EBPF_MAP_IN_PLACE)) {
		return ebpf_helper_failed(env, -EINVAL);
	}
	return m->ops->traits & EBPF_MAP_HASHED ? each_hash(m, a2, a3, env)
						: each_array(m, a2, a3, env);
}

static void *tenant_region(struct ebpf_env *env, const struct ebpf_map *m, uint64_t tenant)
{
	if (!env->tenants || !env->tenants->region || tenant > UINT32_MAX ||
	    m->region != EBPF_REGION_TENANT) {
		return NULL;
	}
	return env->tenants->region(env->tenants->ctx, (uint32_t)tenant);
}

EBPF_HELPER(gbpf_tenant_lookup)
{
	const struct ebpf_map *m = ebpf_helper_ptr(a1);
	uint8_t *base = tenant_region(env, m, a2);
	struct ebpf_map at;

	if (!base || (m->ops->traits & EBPF_MAP_PER_THREAD)) {
		return 0;
	}
	ebpf_map_at(&at, m, base);
	return (uint64_t)(uintptr_t)ebpf_map_lookup(&at, ebpf_helper_ptr(a3));
}

/* The tenant writes the memory behind the map, so no result indicates a fault of the program. */
EBPF_HELPER(gbpf_tenant_pop)
{
	const struct ebpf_map *m = ebpf_helper_ptr(a1);
	uint8_t *base = tenant_region(env, m, a2);
	struct ebpf_map at;
	int r = -ENOENT;

	if (base) {
		ebpf_map_at(&at, m, base);
		r = ebpf_map_pop(&at, ebpf_helper_ptr(a3));
	}
	if (r) {
		memset(ebpf_helper_ptr(a3), 0, m->value_bytes);
		r = r == -ENOENT ? r : -EBUSY;
	}
	return (uint64_t)(int64_t)r;
}

EBPF_HELPER(gbpf_thread_sum)
{
	const struct ebpf_map *m = ebpf_helper_ptr(a1);
	uint32_t index = (uint32_t)a3;
	uint8_t *base = tenant_region(env, m, a2);
	struct ebpf_map at;

	if (!base || !(m->ops->traits & EBPF_MAP_PER_THREAD) || index >= m->max_entries) {
		return 0;
	}
	ebpf_map_at(&at, m, base);
	return ebpf_thread_sum(&at, index, 0);
}
