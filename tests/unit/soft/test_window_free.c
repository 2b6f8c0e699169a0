/* Allocations of a window that are given back: their pages, large ones, those of a context, and the
 * tables that list them. */
#include "window_rig.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/shm.h"

static void freed_memory_is_zero_when_it_comes_again(void **state)
{
	uint8_t *p;

	assert_int_equal(rig_device(2 * PAGE), 1);
	p = softd_memory_at(m, address_of(1), 2 * PAGE, 3);
	assert_non_null(p);
	memset(p, 7, 2 * PAGE);
	assert_int_equal(free_page(1), 0);
	assert_null(softd_memory_at(m, address_of(1), 1, 1));
	assert_int_equal(rig_device(2 * PAGE), 1);
	assert_int_equal(p[0] + p[2 * PAGE - 1], 0);
}

/* Large memory is given back without the lock. */
static void large_allocations_are_released_in_steps(void **state)
{
	int fd = shm_create("pinned", 4 * MIB, SHM_NOEXEC);
	struct softd_release l;

	assert_int_equal(rig_device(4 * MIB - PAGE), 1);
	assert_int_equal(rig_device(4 * MIB), 1025);
	assert_false(softd_memory_release_begin(m, address_of(1), &l));
	assert_false(softd_memory_release_begin(m, address_of(2), &l));
	assert_true(softd_memory_release_begin(m, address_of(1025), &l));
	assert_int_equal(l.first, 1025);
	assert_int_equal(l.pages, 1024);
	assert_false(l.pinned);
	assert_null(softd_memory_at(m, address_of(1025), 1, 1));
	assert_int_equal(m->owned_bytes[0], 4 * MIB - PAGE);
	assert_int_equal(free_page(1025), -ENOENT); /* not twice */
	assert_false(softd_memory_release_begin(m, address_of(1025), &l));
	assert_int_equal(softd_memory_restrict(m, address_of(1025), 1), -ENOENT);
	l = (struct softd_release){ 1025, 1024, false };
	softd_memory_release_pages(m, &l);
	assert_int_equal(calls.offset, 1025 * PAGE);
	assert_int_equal(calls.bytes, 4 * MIB);
	assert_int_equal(m->n, 2); /* the addresses are reserved until the end */
	assert_int_equal(gpu->memory_used, 8 * MIB - PAGE);
	softd_memory_release_end(m, machine, &l);
	assert_int_equal(m->n, 1);
	assert_int_equal(gpu->memory_used, 4 * MIB - PAGE);

	assert_int_equal(pinned(4 * MIB, fd), DEVICE_PAGES + 1);
	*(uint8_t *)softd_memory_at(m, address_of(DEVICE_PAGES + 1), 1, 3) = 5;
	assert_true(softd_memory_release_begin(m, address_of(DEVICE_PAGES + 1), &l));
	assert_true(l.pinned);
	assert_int_equal(m->owned_bytes[0], 4 * MIB - PAGE);
	softd_memory_release_pages(m, &l);
	assert_int_equal(calls.at, (DEVICE_PAGES + 1) * PAGE);
	assert_int_equal(calls.bytes, 4 * MIB);
	assert_int_equal(calls.fd, -1);
	assert_int_equal(m->space.host[(DEVICE_PAGES + 1) * PAGE], 0);
	assert_int_equal(machine->pinned_used, 4 * MIB);
	softd_memory_release_end(m, machine, &l);
	assert_int_equal(machine->pinned_used + machine->pinned + m->pinned, 0);
	close(fd);
}

static void what_belongs_to_a_context_goes_with_it(void **state)
{
	for (unsigned i = 0; i < 12; i++) {
		assert_true(softd_memory_alloc(m, machine, i % 3, i % 4 ? PAGE : 4 * MIB,
					       SOFT_MEMORY_DEVICE, -1) != 0);
	}
	assert_int_equal(m->owned_bytes[1], 4 * MIB + 3 * PAGE);
	softd_memory_drop(m, machine, 1);
	assert_int_equal(m->n, 8);
	assert_int_equal(m->owned_bytes[1], 0);
	assert_int_equal(m->owned_bytes[0], 4 * MIB + 3 * PAGE);
	assert_int_equal(calls.discards, 4);
	for (uint32_t i = 0; i < m->n; i++) {
		assert_int_not_equal(m->allocs[i].owner, 1);
		assert_true(i == 0 || m->allocs[i].first > m->allocs[i - 1].first);
	}
	softd_memory_drop(m, machine, 1);
	assert_int_equal(m->n, 8);
	calls.unlocked = false;
	while (m->n > 4) {
		softd_memory_drop(m, machine, 0);
	}
	softd_memory_drop(m, machine, 2);
	assert_int_equal(gpu->memory_used, 0);
}

static void pages_are_given_back_without_the_lock(void **state)
{
	assert_int_equal(rig_device(4 * MIB), 1);
	softd_memory_drop(m, machine, 0);
	assert_true(calls.unlocked);
	assert_int_equal(rig_device(PAGE), 1);
	softd_memory_drop(m, machine, 0);
	assert_false(calls.unlocked);
}

static void tables_grow_up_to_a_limit(void **state)
{
	struct softd_alloc *saved;
	uint32_t n;

	for (unsigned i = 0; i < 65; i++) {
		assert_int_equal(rig_device(1), 1 + 2 * i);
		assert_int_equal(m->cap, i < 64 ? 64 : 128);
	}
	for (; m->n < 128;) {
		assert_true(rig_device(1) != 0);
	}
	rig_fail("realloc", ENOMEM, 0);
	assert_int_equal(rig_device(1), 0);
	assert_int_equal(gpu->memory_used, 128 * PAGE);
	saved = m->allocs;
	n = m->n;
	m->n = m->cap = 65536;
	assert_int_equal(softd_memory_grow(m), -ENOSPC);
	m->allocs = NULL;
	m->n = m->cap = 65535;
	assert_int_equal(softd_memory_grow(m), 0);
	assert_int_equal(m->cap, 131070);
	free(m->allocs);
	m->allocs = saved;
	m->n = m->cap = n;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, rig_set_up, rig_tear_down)
		T(freed_memory_is_zero_when_it_comes_again),
		T(large_allocations_are_released_in_steps),
		T(what_belongs_to_a_context_goes_with_it),
		T(pages_are_given_back_without_the_lock),
		T(tables_grow_up_to_a_limit),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
