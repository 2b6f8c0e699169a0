/* Windows of device addresses: where allocations lie, what they are charged, and which addresses
 * and rights are valid. */
#include "window_rig.h"

#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/shm.h"

static void windows_have_three_parts(void **state)
{
	/* device, pinned, and 16 times the memory, at least 16 GiB; in units of 2 MiB */
	assert_true(softd_memory_window_bytes(128 * MIB, 128 * MIB, GIB) == 16 * GIB + 256 * MIB);
	assert_true(softd_memory_window_bytes(128 * MIB, 128 * MIB, 2 * GIB) ==
		    32 * GIB + 256 * MIB);
	assert_true(softd_memory_window_bytes(PAGE, 0, 1) == 16 * GIB + 2 * MIB);
	assert_true(m->space.base == BASE);
	assert_true(m->space.bytes == 16 * GIB + 256 * MIB);
	assert_int_equal(m->device_pages, DEVICE_PAGES);
	assert_int_equal(m->shared_page, 2 * DEVICE_PAGES);
	gpu->index = 3;
	softd_memory_finish(m, machine);
	assert_int_equal(calls.discards, 0); /* the whole file goes */
	machine->pinned_limit = 64 * MIB + 1;
	assert_int_equal(softd_memory_init(m, gpu), 0);
	assert_true(m->space.base == BASE + (UINT64_C(3) << 40));
	assert_int_equal(m->shared_page, 2 * DEVICE_PAGES + 512); /* rounded up */
	machine->pinned_limit = 64 * MIB;
}

static void a_window_that_cannot_be_made_leaves_nothing(void **state)
{
	unsigned unmaps = 0;

	softd_memory_finish(m, machine);
	for (unsigned i = 0; i < 3; i++) { /* addresses, rights, the device's memory */
		calls.unmaps = 0;
		rig_fail("mmap", ENOMEM, i);
		assert_int_equal(softd_memory_init(m, gpu), -ENOMEM);
		assert_null(m->space.host);
		unmaps += calls.unmaps;
	}
	assert_int_equal(unmaps, 1 + 1 + 2);
	rig_fail("calloc", ENOMEM, 0); /* the store */
	assert_int_equal(softd_memory_init(m, gpu), -ENOMEM);
	checking = true;
	rig_fail("mmap", ENOMEM, 2); /* the shadow */
	assert_int_equal(softd_memory_init(m, gpu), -ENOMEM);
	checking = false;
	rig_fail("mmap", EINVAL, 2);
	assert_int_equal(softd_memory_init(m, gpu), -ENOMEM);
}

/* First fit; an invalid page lies between neighbours, so that an overrun is found. */
static void allocations_do_not_touch(void **state)
{
	assert_int_equal(rig_device(1), 1);
	assert_int_equal(rig_device(PAGE), 3);
	assert_int_equal(rig_device(PAGE + 1), 5);
	assert_int_equal(rig_device(2 * PAGE), 8);
	assert_int_equal(rig_device(1), 11);
	assert_int_equal(free_page(5), 0); /* pages 5 and 6 */
	assert_int_equal(rig_device(3 * PAGE), 13);
	assert_int_equal(rig_device(2 * PAGE), 5);
	assert_int_equal(free_page(5), 0);
	assert_int_equal(rig_device(PAGE), 5);
	assert_int_equal(rig_device(PAGE), 17);
	assert_int_equal(free_page(1), 0);
	assert_int_equal(rig_device(2 * PAGE), 19);
	assert_int_equal(rig_device(PAGE), 1);
	assert_int_equal(free_page(2), -ENOENT);
	assert_int_equal(free_page(4), -ENOENT);
	assert_int_equal(softd_memory_free(m, machine, address_of(1) + 1), -ENOENT);
	assert_int_equal(softd_memory_free(m, machine, BASE - PAGE), -ENOENT);
	assert_int_equal(softd_memory_free(m, machine, BASE + m->space.bytes), -ENOENT);
	assert_int_equal(softd_memory_free(m, machine, BASE), -ENOENT);
}

/* One of at most 1 MiB does not reach into the next 2 MiB. */
static void small_allocations_lie_in_a_block(void **state)
{
	assert_int_equal(rig_device(200 * PAGE), 1);
	assert_int_equal(rig_device(200 * PAGE), 202);
	assert_int_equal(rig_device(200 * PAGE), 512);
	assert_int_equal(rig_device(PAGE), 403);
	assert_int_equal(rig_device(400 * PAGE), 713);
	assert_int_equal(rig_device(MIB), 1114);
	assert_int_equal(rig_device(MIB), 1536);
	assert_int_equal(rig_device(MIB + 1), 1793);
}

/* The last page of the device's part stays invalid, too. */
static void parts_are_filled_to_their_end(void **state)
{
	assert_int_equal(rig_device((DEVICE_PAGES - 1) * PAGE), 0);
	assert_int_equal(rig_device((DEVICE_PAGES - 2) * PAGE), 1);
	assert_int_equal(rig_device(1), 0);
	assert_int_equal(free_page(1), 0);
	assert_int_equal(rig_device((DEVICE_PAGES - 4) * PAGE), 1);
	assert_int_equal(rig_device(PAGE), DEVICE_PAGES - 2);
	assert_int_equal(rig_device(0), 0);
	assert_int_equal(rig_device(m->space.bytes + 1), 0);
	assert_int_equal(rig_device(UINT64_MAX), 0);
	assert_int_equal(m->n, 2);
}

static void memory_is_charged_in_pages(void **state)
{
	machine->opt.memory_bytes = 10 * PAGE;
	assert_int_equal(rig_device(1), 1);
	assert_int_equal(gpu->memory_used, PAGE);
	assert_int_equal(rig_device(8 * PAGE + 1), 3);
	assert_int_equal(gpu->memory_used, 10 * PAGE);
	assert_int_equal(m->owned_bytes[0], 10 * PAGE);
	assert_int_equal(rig_device(1), 0);
	assert_int_equal(m->n, 2); /* and no address is taken */
	assert_int_equal(free_page(3), 0);
	assert_int_equal(gpu->memory_used, PAGE);
	assert_int_equal(m->owned_bytes[0], PAGE);
	assert_int_equal(calls.discards, 1);
	assert_int_equal(calls.offset, 3 * PAGE);
	assert_int_equal(calls.bytes, 9 * PAGE);
	assert_int_equal(rig_device(9 * PAGE), 3);
	assert_int_equal(free_page(1) + free_page(3), 0);
	assert_int_equal(gpu->memory_used + m->owned_bytes[0], 0);
}

static void pinned_memory_maps_its_descriptor(void **state)
{
	int fd = shm_create("pinned", 4 * PAGE, SHM_NOEXEC);
	uint8_t *mine = shm_map(fd, 4 * PAGE, 1), *theirs;

	assert_int_equal(pinned(3 * PAGE + 1, fd), DEVICE_PAGES + 1);
	assert_int_equal(machine->pinned_used, 4 * PAGE);
	assert_int_equal(machine->pinned, 1);
	assert_int_equal(m->pinned, 1);
	assert_int_equal(m->owned_bytes[0], 0);
	assert_int_equal(gpu->memory_used, 0);
	assert_int_equal(calls.at, (DEVICE_PAGES + 1) * PAGE);
	assert_int_equal(calls.bytes, 4 * PAGE);
	theirs = softd_memory_at(m, address_of(DEVICE_PAGES + 1), 4 * PAGE, 3);
	assert_non_null(theirs);
	theirs[PAGE] = 9;
	assert_int_equal(mine[PAGE], 9);
	assert_int_equal(free_page(DEVICE_PAGES + 1), 0);
	assert_int_equal(theirs[PAGE], 0); /* another mapping is there */
	assert_int_equal(mine[PAGE], 9);
	assert_int_equal(machine->pinned_used + machine->pinned + m->pinned, 0);
	assert_int_equal(m->owned_bytes[0], 0);
	shm_unmap(mine, 4 * PAGE);
	close(fd);
}

static void pinned_memory_has_limits(void **state)
{
	int fd = shm_create("pinned", 64 * MIB, SHM_NOEXEC);

	assert_int_equal(pinned(64 * MIB + 1, fd), 0);
	assert_int_equal(pinned(64 * MIB, fd), DEVICE_PAGES + 1);
	assert_int_equal(pinned(1, fd), 0);
	assert_int_equal(free_page(DEVICE_PAGES + 1), 0);
	machine->pinned_used = 64 * MIB - PAGE + 1; /* room for less than a page */
	assert_int_equal(pinned(1, fd), 0);
	assert_int_equal(m->n, 0);
	machine->pinned_used = 0;
	m->pinned = 8192; /* mappings of one client */
	assert_int_equal(pinned(1, fd), 0);
	m->pinned = 8191;
	assert_int_equal(pinned(1, fd), DEVICE_PAGES + 1);
	assert_int_equal(free_page(DEVICE_PAGES + 1), 0);
	m->pinned = 0;
	machine->pinned = 49152; /* and of all */
	assert_int_equal(pinned(1, fd), 0);
	machine->pinned = 49151;
	assert_int_equal(pinned(1, fd), DEVICE_PAGES + 1);
	assert_int_equal(machine->pinned, 49152);
	assert_int_equal(free_page(DEVICE_PAGES + 1), 0);
	machine->pinned = 0;
	rig_fail("mmap", ENOMEM, 0);
	assert_int_equal(pinned(1, fd), 0);
	assert_int_equal(machine->pinned + m->pinned + m->n + machine->pinned_used, 0);
	close(fd);
}

/* The client may have sealed its memory against writing. */
static void sealed_memory_is_mapped_privately(void **state)
{
	int fd = shm_create("pinned", PAGE, SHM_NOEXEC);
	uint8_t *p;

	assert_int_equal(shm_seal_future_write(fd), 0);
	assert_int_equal(pinned(PAGE, fd), DEVICE_PAGES + 1);
	assert_true(calls.flags & MAP_PRIVATE);
	p = softd_memory_at(m, address_of(DEVICE_PAGES + 1), 1, 1);
	*p = 1; /* does not fault */
	assert_int_equal(free_page(DEVICE_PAGES + 1), 0);
	rig_fail("mmap", EACCES, 0);
	assert_int_equal(pinned(PAGE, fd), DEVICE_PAGES + 1);
	assert_true(calls.flags & MAP_PRIVATE);
	close(fd);
}

static void ranges_are_valid_within_one_allocation(void **state)
{
	assert_int_equal(rig_device(2 * PAGE), 1);
	assert_int_equal(rig_device(PAGE), 4);
	assert_non_null(softd_memory_at(m, address_of(1), 2 * PAGE, 3));
	assert_ptr_equal(softd_memory_at(m, address_of(2), 0, 3), m->space.host + 2 * PAGE);
	assert_non_null(softd_memory_at(m, address_of(3) - 1, 1, 3));
	assert_null(softd_memory_at(m, address_of(1), 2 * PAGE + 1, 3));
	assert_null(softd_memory_at(m, address_of(3) - 1, 2, 3));
	assert_null(softd_memory_at(m, address_of(3), 1, 3));
	assert_null(softd_memory_at(m, address_of(1) - 1, 1, 3));
	assert_null(softd_memory_at(m, address_of(1) - 1, 2, 3));
	assert_null(softd_memory_at(m, address_of(1), 4 * PAGE, 3)); /* across the gap */
	assert_null(softd_memory_at(m, BASE - 1, 1, 1));
	assert_null(softd_memory_at(m, BASE + m->space.bytes, 0, 1));
	assert_null(softd_memory_at(m, BASE + m->space.bytes - 1, 2, 1));
	assert_non_null(softd_memory_at(m, BASE + m->space.bytes - 1, 0, 1));
	assert_null(softd_memory_at(m, address_of(1), UINT64_MAX, 1));
}

static void rights_are_those_of_the_allocation(void **state)
{
	assert_int_equal(rig_device(2 * PAGE), 1);
	assert_int_equal(softd_memory_restrict(m, address_of(1), 1), 0);
	assert_non_null(softd_memory_at(m, address_of(2), 1, 1));
	assert_null(softd_memory_at(m, address_of(2), 1, 2));
	assert_null(softd_memory_at(m, address_of(1), 1, 3));
	assert_int_equal(m->pages[3], 0);
	assert_int_equal(softd_memory_restrict(m, address_of(1), 0xff), 0);
	assert_int_equal(m->pages[2], 3);
	assert_int_equal(softd_memory_restrict(m, address_of(2), 1), -ENOENT);
	assert_int_equal(softd_memory_restrict(m, address_of(7), 1), -ENOENT);
}

static void owners_are_known_by_address(void **state)
{
	assert_int_equal(rig_device(2 * PAGE), 1);
	assert_true(softd_memory_alloc(m, machine, 5, PAGE, SOFT_MEMORY_DEVICE, -1) ==
		    address_of(4));
	assert_int_equal(softd_memory_owner(m, address_of(1)), 0);
	assert_int_equal(softd_memory_owner(m, address_of(3) - 1), 0);
	assert_int_equal(softd_memory_owner(m, address_of(3)), 16);
	assert_int_equal(softd_memory_owner(m, address_of(4)), 5);
	assert_int_equal(softd_memory_owner(m, address_of(5)), 16);
	assert_int_equal(softd_memory_owner(m, address_of(0)), 16);
}

static void bytes_have_states_while_checking(void **state)
{
	uint8_t *shadow;

	softd_memory_finish(m, machine);
	checking = true;
	assert_int_equal(softd_memory_init(m, gpu), 0);
	shadow = m->space.shadow;
	assert_non_null(shadow);
	assert_int_equal(rig_device(PAGE + 1), 1);
	assert_int_equal(shadow[PAGE - 1], 0);
	assert_int_equal(shadow[PAGE], EXEC_SHADOW_ALLOCATED | EXEC_SHADOW_INITIALIZED);
	assert_int_equal(shadow[2 * PAGE], EXEC_SHADOW_ALLOCATED | EXEC_SHADOW_INITIALIZED);
	assert_int_equal(shadow[2 * PAGE + 1], 0); /* behind the bytes that were asked for */
	assert_int_equal(free_page(1), 0);
	assert_int_equal(shadow[PAGE - 1], 0);
	assert_int_equal(shadow[PAGE], EXEC_SHADOW_FREED);
	assert_int_equal(shadow[3 * PAGE - 1], EXEC_SHADOW_FREED);
	assert_int_equal(shadow[3 * PAGE], 0);
	assert_int_equal(rig_device(4 * MIB), 1);
	softd_memory_drop(m, machine, 0);
	assert_int_equal(shadow[PAGE] | shadow[1025 * PAGE - 1], EXEC_SHADOW_FREED);
	calls.unmaps = 0;
	softd_memory_finish(m, machine);
	assert_int_equal(calls.unmaps, 3); /* addresses, rights, shadow */
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, rig_set_up, rig_tear_down)
		T(windows_have_three_parts),
		T(a_window_that_cannot_be_made_leaves_nothing),
		T(allocations_do_not_touch),
		T(small_allocations_lie_in_a_block),
		T(parts_are_filled_to_their_end),
		T(memory_is_charged_in_pages),
		T(pinned_memory_maps_its_descriptor),
		T(pinned_memory_has_limits),
		T(sealed_memory_is_mapped_privately),
		T(ranges_are_valid_within_one_allocation),
		T(rights_are_those_of_the_allocation),
		T(owners_are_known_by_address),
		T(bytes_have_states_while_checking),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
