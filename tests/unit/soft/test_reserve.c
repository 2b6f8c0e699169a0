/* Reserved addresses and the mappings in them: placement, rights, and what is given back. */
#include "reserve_rig.h"

#include <errno.h>
#include <string.h>

static uint64_t shared(uint64_t n)
{
	return address_of(SHARED) + n * G;
}

static uint64_t reserve(uint64_t bytes, uint64_t align, uint64_t wish)
{
	return softd_memory_reserve(m, bytes, align, wish);
}

static void addresses_are_reserved_in_units_of_2_mib(void **state)
{
	assert_true(reserve(G, 0, 0) == shared(0));
	assert_true(reserve(2 * G, 0, 0) == shared(2)); /* a page between, and aligned */
	assert_true(reserve(G, 16 * MIB, 0) == shared(8));
	assert_true(reserve(G, PAGE, 0) == shared(5));
	assert_int_equal(reserve(G + PAGE, 0, 0), 0);
	assert_int_equal(reserve(0, 0, 0), 0);
	assert_int_equal(reserve(17 * GIB, 0, 0), 0);
	assert_int_equal(gpu->memory_used, 0);
	assert_int_equal(softd_memory_owner(m, shared(0)), 16);
	assert_null(softd_memory_at(m, shared(0), 1, 1));
	assert_int_equal(softd_memory_restrict(m, shared(0), 3), -ENOENT);
	assert_int_equal(softd_memory_free(m, machine, shared(0)), -ENOENT);
	assert_int_equal(softd_memory_unreserve(m, shared(0), 2 * G), -ENOENT);
	assert_int_equal(softd_memory_unreserve(m, shared(2), G), -ENOENT);
	assert_int_equal(softd_memory_unreserve(m, shared(3), G), -ENOENT);
	assert_int_equal(softd_memory_unreserve(m, shared(2), 2 * G), 0);
	assert_true(reserve(G, 0, 0) == shared(2));
	assert_int_equal(rig_device(PAGE), 1);
	assert_int_equal(softd_memory_unreserve(m, address_of(1), PAGE), -ENOENT);
}

/* A wish is granted if the range is free; ranges may touch then. */
static void wishes_are_granted_where_there_is_room(void **state)
{
	assert_true(reserve(2 * G, 0, shared(10)) == shared(10));
	assert_true(reserve(G, 0, shared(12)) == shared(12));
	assert_true(reserve(G, 0, shared(9)) == shared(9));
	/* otherwise another place */
	assert_true(reserve(G, 0, shared(11)) == shared(0));
	assert_true(reserve(2 * G, 0, shared(8)) == shared(2));
	assert_true(reserve(8 * G, 0, shared(5)) == shared(14));
	assert_true(reserve(G, 0, shared(30) + PAGE) == shared(5));
	assert_true(reserve(G, 0, BASE - G) != BASE - G);
	assert_true(reserve(G, 0, BASE) != BASE); /* not in the third part */
	assert_true(reserve(G, 0, shared(0) - G) != shared(0) - G);
	assert_true(reserve(G, 0, BASE + m->space.bytes - G) == BASE + m->space.bytes - G);
	assert_true(reserve(2 * G, 0, BASE + m->space.bytes - 2 * G) !=
		    BASE + m->space.bytes - 2 * G);
	assert_true(reserve(2 * G, 0, BASE + m->space.bytes - G) != BASE + m->space.bytes - G);
	assert_true(reserve(G, 4 * G, shared(40)) == shared(40));
	assert_true(reserve(G, 4 * G, shared(42)) != shared(42));
}

static int map(uint64_t n, uint64_t units, struct softd_extent *x, uint64_t offset)
{
	return softd_memory_map(m, machine, shared(n), units * G, x, offset);
}

static void mappings_lie_in_reserved_ranges(void **state)
{
	struct softd_extent *x = extent(4 * G);

	assert_int_equal(gpu->memory_used, 4 * G);
	assert_true(reserve(4 * G, 0, 0) == shared(0));
	assert_int_equal(map(4, 1, x, 0), -EINVAL);
	assert_int_equal(map(3, 2, x, 0), -EINVAL);
	assert_int_equal(map(0, 5, x, 0), -EINVAL);
	assert_int_equal(softd_memory_map(m, machine, shared(0) + PAGE, G, x, 0), -EINVAL);
	assert_int_equal(softd_memory_map(m, machine, shared(0), PAGE, x, 0), -EINVAL);
	assert_int_equal(softd_memory_map(m, machine, shared(0), 0, x, 0), -EINVAL);
	assert_int_equal(softd_memory_map(m, machine, BASE - G, G, x, 0), -EINVAL);
	assert_int_equal(map(0, 1, x, PAGE), -EINVAL);
	assert_int_equal(map(0, 1, x, 4 * G), -EINVAL);
	assert_int_equal(map(0, 1, x, 5 * G), -EINVAL);
	assert_int_equal(map(0, 2, x, 3 * G), -EINVAL);
	assert_int_equal(rig_device(G), 1);
	assert_int_equal(softd_memory_map(m, machine, address_of(1), G, x, 0), -EINVAL);
	assert_int_equal(x->refs, 1);
	assert_int_equal(map(1, 2, x, G), 0);
	assert_int_equal(x->refs, 2);
	assert_int_equal(machine->pinned, 1);
	assert_int_equal(m->pinned, 1);
	assert_int_equal(calls.at, (SHARED + 512) * PAGE);
	assert_int_equal(calls.bytes, 2 * G);
	assert_int_equal(calls.offset, G);
	assert_int_equal(map(1, 1, x, 0), -EINVAL); /* overlaps */
	assert_int_equal(map(0, 2, x, 0), -EINVAL);
	assert_int_equal(map(2, 2, x, 0), -EINVAL);
	assert_int_equal(map(3, 1, x, 3 * G), 0); /* touches */
	assert_int_equal(map(0, 1, x, 0), 0);
	assert_int_equal(m->n_maps, 3);
	assert_int_equal(m->maps[0].first, SHARED);
	assert_int_equal(m->maps[2].first, SHARED + 3 * 512);
	assert_int_equal(softd_memory_unreserve(m, shared(0), 4 * G), -EBUSY);
	softd_extent_unref(x);
	assert_int_equal(gpu->memory_used, 5 * G);
	assert_int_equal(softd_memory_unmap(m, machine, shared(0), 4 * G), 0);
	assert_int_equal(gpu->memory_used, G);
	assert_int_equal(machine->pinned + m->pinned, 0);
	assert_int_equal(softd_memory_unreserve(m, shared(0), 4 * G), 0);
}

static void rights_are_set_by_mapping(void **state)
{
	struct softd_extent *x = extent(4 * G);

	assert_true(reserve(5 * G, 0, 0) == shared(0));
	assert_int_equal(map(0, 1, x, 0), 0);
	assert_int_equal(map(1, 2, x, G), 0);
	assert_int_equal(map(4, 1, x, 0), 0);
	assert_null(softd_memory_at(m, shared(0), 1, 1)); /* none at first */
	assert_int_equal(softd_memory_set_access(m, shared(0), 2 * G, 3), -EINVAL);
	assert_int_equal(softd_memory_set_access(m, shared(1), G, 3), -EINVAL);
	assert_int_equal(softd_memory_set_access(m, shared(2), G, 3), -EINVAL);
	assert_int_equal(softd_memory_set_access(m, shared(0), 4 * G, 3), -EINVAL);
	assert_int_equal(softd_memory_set_access(m, shared(3), G, 3), -EINVAL);
	assert_int_equal(softd_memory_set_access(m, shared(0), 0, 3), -EINVAL);
	assert_int_equal(softd_memory_set_access(m, shared(0), 3 * G, 0xff), 0);
	assert_int_equal(m->pages[SHARED], 3);
	assert_int_equal(m->pages[SHARED + 3 * 512 - 1], 3);
	assert_int_equal(m->pages[SHARED + 3 * 512], 0);
	assert_non_null(softd_memory_at(m, shared(0), 3 * G, 3));
	assert_null(softd_memory_at(m, shared(0), 3 * G + 1, 3)); /* the gap */
	assert_null(softd_memory_at(m, shared(3), 1, 3));
	assert_null(softd_memory_at(m, shared(2), 3 * G, 3));
	assert_null(softd_memory_at(m, shared(4), 1, 3));
	assert_int_equal(softd_memory_set_access(m, shared(4), G, 1), 0);
	assert_non_null(softd_memory_at(m, shared(4), G, 1));
	assert_null(softd_memory_at(m, shared(4), 1, 2));
	assert_int_equal(softd_memory_set_access(m, shared(1), 2 * G, 1), 0);
	assert_non_null(softd_memory_at(m, shared(0), 3 * G, 1));
	assert_null(softd_memory_at(m, shared(0), G + 1, 3));
	assert_non_null(softd_memory_at(m, shared(0), G, 3));
	/* memory is the extent's, wherever it is mapped */
	*(uint8_t *)softd_memory_at(m, shared(0), 1, 3) = 42;
	assert_int_equal(*(uint8_t *)softd_memory_at(m, shared(4), 1, 1), 42);
	softd_extent_unref(x);
}

static void mapped_host_memory_is_reached_over_the_link(void **state)
{
	struct softd_extent *x = softd_extent_create(gpu, G, true), *y = extent(G);
	uint64_t address, bytes;

	assert_non_null(x);
	assert_true(reserve(G, 0, 0) == shared(0));
	assert_true(reserve(3 * G, 0, shared(1)) == shared(1));
	assert_int_equal(map(2, 1, x, 0), 0);
	assert_int_equal(map(3, 1, y, 0), 0);
	assert_int_equal(softd_memory_set_access(m, shared(2), 2 * G, 3), 0);
	assert_true(softd_memory_on_host(m, shared(2)));
	assert_true(softd_memory_on_host(m, shared(3) - 1));
	assert_false(softd_memory_on_host(m, shared(3)));
	assert_non_null(softd_memory_at(m, shared(2), 2 * G, 3));
	assert_int_equal(softd_memory_set_access(m, shared(2), G, 1), 0);
	assert_null(softd_memory_at(m, shared(2), 1, 2));
	softd_memory_reservation(m, shared(2), &address, &bytes);
	assert_true(address == shared(1) && bytes == 3 * G);
	softd_memory_reservation(m, shared(1), &address, &bytes);
	assert_true(address == shared(1) && bytes == 3 * G);
	softd_extent_unref(x);
	softd_extent_unref(y);
}

static void ranges_are_unmapped_whole(void **state)
{
	struct softd_extent *x = extent(4 * G);

	assert_true(reserve(4 * G, 0, 0) == shared(0));
	assert_int_equal(map(0, 1, x, 0), 0);
	assert_int_equal(map(1, 1, x, G), 0);
	assert_int_equal(map(2, 2, x, 2 * G), 0);
	assert_int_equal(softd_memory_set_access(m, shared(0), 4 * G, 3), 0);
	memset(softd_memory_at(m, shared(0), 4 * G, 3), 7, 4 * G);
	assert_int_equal(softd_memory_unmap(m, machine, shared(2), G), -EINVAL);
	assert_int_equal(softd_memory_unmap(m, machine, shared(0), 3 * G), -EINVAL);
	assert_int_equal(softd_memory_unmap(m, machine, shared(1), G), 0);
	assert_int_equal(m->n_maps, 2);
	assert_int_equal(m->pages[SHARED + 512], 0);
	assert_int_equal(m->pages[SHARED + 1023], 0);
	assert_int_equal(m->pages[SHARED + 1024], 3);
	assert_int_equal(m->pages[SHARED + 511], 3);
	assert_int_equal(m->space.host[(SHARED + 512) * PAGE], 0); /* another mapping */
	assert_int_equal(m->space.host[(SHARED + 1024) * PAGE], 7);
	assert_int_equal(x->refs, 3);
	assert_int_equal(softd_memory_unmap(m, machine, shared(0), 4 * G), -EINVAL);
	assert_int_equal(softd_memory_unmap(m, machine, shared(1), G), -EINVAL);
	assert_int_equal(softd_memory_unmap(m, machine, shared(0), G), 0);
	assert_int_equal(softd_memory_unmap(m, machine, shared(2), 2 * G), 0);
	assert_int_equal(x->refs, 1);
	softd_extent_unref(x);
}

static void mappings_that_fail_leave_nothing(void **state)
{
	struct softd_extent *x = extent(G);

	assert_true(reserve(40 * G, 0, 0) == shared(0));
	rig_fail("realloc", ENOMEM, 0);
	assert_int_equal(map(0, 1, x, 0), -ENOMEM);
	m->pinned = 8192;
	assert_int_equal(map(0, 1, x, 0), -ENOMEM);
	m->pinned = 0;
	rig_fail("mmap", ENOMEM, 0);
	assert_int_equal(map(0, 1, x, 0), -ENOMEM);
	assert_int_equal(m->n_maps + m->pinned + machine->pinned, 0);
	assert_int_equal(x->refs, 1);
	for (unsigned i = 0; i < 17; i++) {
		assert_int_equal(map(2 * (i * 7 % 17), 1, x, 0), 0); /* in no order */
		assert_int_equal(m->cap_maps, i < 16 ? 16 : 32);
		if (i == 15) { /* the table is full */
			assert_int_equal(softd_memory_unmap(m, machine, shared(0), G), 0);
			assert_int_equal(map(0, 1, x, 0), 0);
		}
	}
	for (uint32_t i = 0; i < 17; i++) {
		assert_int_equal(m->maps[i].first, SHARED + 1024 * i);
		assert_int_equal(m->maps[i].pages, 512);
		assert_ptr_equal(m->maps[i].extent, x);
	}
	softd_extent_unref(x);
}

static void mapped_bytes_have_states_while_checking(void **state)
{
	struct softd_extent *x;
	const uint8_t *shadow;

	softd_memory_finish(m, machine);
	checking = true;
	assert_int_equal(softd_memory_init(m, gpu), 0);
	shadow = m->space.shadow + SHARED * PAGE;
	x = extent(G);
	assert_true(reserve(2 * G, 0, 0) == shared(0));
	assert_int_equal(map(0, 1, x, 0), 0);
	assert_int_equal(shadow[0] & shadow[G - 1], 3);
	assert_int_equal(shadow[G], 0);
	assert_int_equal(softd_memory_unmap(m, machine, shared(0), G), 0);
	assert_int_equal(shadow[0] & shadow[G - 1], EXEC_SHADOW_FREED);
	assert_int_equal(shadow[G], 0);
	softd_extent_unref(x);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, rig_set_up, rig_tear_down)
		T(addresses_are_reserved_in_units_of_2_mib),
		T(wishes_are_granted_where_there_is_room),
		T(mappings_lie_in_reserved_ranges),
		T(rights_are_set_by_mapping),
		T(mapped_host_memory_is_reached_over_the_link),
		T(ranges_are_unmapped_whole),
		T(mappings_that_fail_leave_nothing),
		T(mapped_bytes_have_states_while_checking),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
