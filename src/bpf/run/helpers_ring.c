/* Helpers on ring buffers. The pointer to a record does not identify its ring, so submit searches
 * for the ring that contains it; policies have one or two. */
#include "bpf/run/helpers.h"

#include <errno.h>

#include "bpf/run/map/map_type.h"
#include "bpf/run/map/ring.h"

EBPF_HELPER(bpf_ringbuf_output)
{
	int r = a4 ? -EINVAL : ebpf_ring_output(ebpf_helper_ptr(a1), ebpf_helper_ptr(a2), a3);

	return r && r != -EAGAIN ? ebpf_helper_failed(env, r) : (uint64_t)(int64_t)r;
}

EBPF_HELPER(bpf_ringbuf_reserve)
{
	if (a3) {
		(void)ebpf_helper_failed(env, -EINVAL);
		return 0;
	}
	return (uint64_t)(uintptr_t)ebpf_ring_reserve(ebpf_helper_ptr(a1), a2);
}

static void finish(struct ebpf_env *env, uint64_t record, int discard)
{
	for (uint32_t i = 0; i < env->n_maps; i++) {
		const struct ebpf_map *m = &env->maps[i];

		if (m->type == GBPF_MAP_RINGBUF && ebpf_ring_has(m, ebpf_helper_ptr(record))) {
			(void)ebpf_ring_finish(m, ebpf_helper_ptr(record), discard);
			return;
		}
	}
	(void)ebpf_helper_failed(env, -EINVAL);
}

EBPF_HELPER(bpf_ringbuf_submit)
{
	finish(env, a1, 0);
	return 0;
}

EBPF_HELPER(bpf_ringbuf_discard)
{
	finish(env, a1, 1);
	return 0;
}

EBPF_HELPER(bpf_ringbuf_query)
{
	return ebpf_ring_query(ebpf_helper_ptr(a1), a2);
}
