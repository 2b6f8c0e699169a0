/* Control flow helpers: loops with callbacks, open-coded iterators, locks. The compiler inlines
 * loops and iterators; these functions define their behaviour. */
#include "bpf/run/helpers.h"

#include <errno.h>

#define MAX_ROUNDS (1u << 23)
#define LOCK_SPINS 100000u

EBPF_HELPER(bpf_loop)
{
	uint32_t n = (uint32_t)a1;

	if (n > MAX_ROUNDS || a4) {
		return ebpf_helper_failed(env, a4 ? -EINVAL : -E2BIG);
	}
	for (uint32_t i = 0; i < n; i++) {
		if (ebpf_call_back(a2, i, a3, 0, 0, env)) {
			return i + 1;
		}
	}
	return n;
}

struct iter_num {
	int32_t cur; /* the number before the next result */
	int32_t end;
};

EBPF_HELPER(bpf_iter_num_new)
{
	struct iter_num *it = ebpf_helper_ptr(a1);
	int32_t start = (int32_t)a2, end = (int32_t)a3;

	it->cur = it->end = 0;
	if (start > end) {
		return (uint64_t)-EINVAL;
	}
	if ((int64_t)end - start > MAX_ROUNDS) {
		return (uint64_t)-E2BIG;
	}
	it->cur = (int32_t)((uint32_t)start - 1u);
	it->end = end;
	return 0;
}

EBPF_HELPER(bpf_iter_num_next)
{
	struct iter_num *it = ebpf_helper_ptr(a1);
	int32_t next = (int32_t)((uint32_t)it->cur + 1u);

	if (next >= it->end) {
		it->cur = it->end = 0;
		return 0;
	}
	it->cur = next;
	return (uint64_t)(uintptr_t)&it->cur;
}

EBPF_HELPER(bpf_iter_num_destroy)
{
	struct iter_num *it = ebpf_helper_ptr(a1);

	it->cur = it->end = 0;
	return 0;
}

/* Locks exist only in memory of gbpfd, and one thread runs its programs. A lock that is already
 * held was left behind by a fault, so it is taken over without waiting. */
EBPF_HELPER(bpf_spin_lock)
{
	uint32_t *lock = ebpf_helper_ptr(a1);

	for (uint32_t i = 0; i < LOCK_SPINS; i++) {
		uint32_t expected = 0;

		if (cas_acqrel(lock, &expected, 1u)) {
			return 0;
		}
		cpu_relax();
	}
	return 0;
}

EBPF_HELPER(bpf_spin_unlock)
{
	store_release((uint32_t *)ebpf_helper_ptr(a1), 0u);
	return 0;
}

/* The engines implement tail calls inline. A call of the function itself fails. */
EBPF_HELPER(bpf_tail_call)
{
	return (uint64_t)-ENOENT;
}
