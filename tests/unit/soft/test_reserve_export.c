/* Memory that the windows of several clients use. */
#include "reserve_rig.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static struct softd_client *second_client;
static struct softd_memory *second;

static void begin_second(void)
{
	second_client = calloc(1, sizeof(*second_client));
	second = calloc(1, sizeof(*second));
	assert_true(second_client && second);
	second_client->machine = machine;
	second_client->windows[0] = second;
	assert_int_equal(softd_memory_init(second, gpu), 0);
}

static void end_second(void)
{
	if (second->space.host) {
		softd_memory_finish(second, machine);
	}
	free(second);
	free(second_client);
}

static void an_export_is_seen_by_its_importers(void **state)
{
	struct softd_extent *x;
	uint64_t a;

	begin_second();
	assert_int_equal(rig_device(2 * PAGE), 1);
	assert_int_equal(rig_device(PAGE), 4);
	assert_null(softd_memory_export(m, address_of(2)));
	assert_null(softd_memory_export(m, address_of(9)));
	x = softd_memory_export(m, address_of(4));
	assert_ptr_equal(softd_memory_export(m, address_of(4)), x);
	assert_int_equal(x->refs, 1);
	assert_int_equal(x->offset, 4 * PAGE);
	assert_int_equal(x->bytes, PAGE);
	assert_ptr_equal(x->home, m);
	assert_int_equal(x->home_page, 4);
	assert_true(x->secret[0] && x->secret[1]);
	assert_int_equal(softd_memory_open_extent(second, machine, 2, x, 0), 0);
	assert_int_equal(softd_memory_open_extent(second, machine, 2, x, PAGE + 1), 0);
	a = softd_memory_open_extent(second, machine, 2, x, PAGE);
	assert_true(a == second->space.base + SHARED * PAGE);
	assert_int_equal(x->refs, 2);
	assert_int_equal(machine->pinned, 1);
	assert_int_equal(gpu->memory_used, 3 * PAGE); /* charged once */
	assert_int_equal(second->owned_bytes[2], 0);
	*(uint8_t *)softd_memory_at(m, address_of(4), 1, 3) = 11;
	assert_int_equal(*(uint8_t *)softd_memory_at(second, a, PAGE, 3), 11);
	assert_int_equal(softd_memory_close_extent(second, machine, a + PAGE), -ENOENT);
	assert_int_equal(softd_memory_close_extent(m, machine, address_of(4)), -ENOENT);
	assert_null(softd_memory_export(second, a)); /* not exported again */
	assert_int_equal(softd_memory_free(second, machine, a), 0);
	assert_null(softd_memory_at(second, a, 1, 1));
	assert_int_equal(second->n, 0);
	assert_int_equal(second->space.host[SHARED * PAGE], 0);
	assert_int_equal(x->refs, 1);
	assert_int_equal(machine->pinned, 0);
	rig_fail("mmap", ENOMEM, 0);
	assert_int_equal(softd_memory_open_extent(second, machine, 2, x, PAGE), 0);
	second->pinned = 8192;
	assert_int_equal(softd_memory_open_extent(second, machine, 2, x, PAGE), 0);
	second->pinned = 0;
	rig_fail("realloc", ENOMEM, 0);
	free(second->allocs);
	second->allocs = NULL;
	second->cap = 0;
	assert_int_equal(softd_memory_open_extent(second, machine, 2, x, PAGE), 0);
	assert_int_equal(second->n + second->pinned + machine->pinned, 0);
	assert_int_equal(x->refs, 1);
	end_second();
}

/* Freed by its owner: the pages are given back when the last user closes it. */
static void an_export_outlives_its_allocation(void **state)
{
	struct softd_extent *x;
	uint64_t a;

	begin_second();
	assert_int_equal(rig_device(PAGE), 1);
	x = softd_memory_export(m, address_of(1));
	a = softd_memory_open_extent(second, machine, 0, x, PAGE);
	*(uint8_t *)softd_memory_at(second, a, 1, 3) = 11;
	assert_int_equal(softd_memory_free(m, machine, address_of(1)), 0);
	assert_int_equal(calls.discards, 0);
	assert_null(softd_memory_at(m, address_of(1), 1, 1));
	assert_int_equal(softd_memory_free(m, machine, address_of(1)), -ENOENT);
	assert_int_equal(softd_memory_restrict(m, address_of(1), 3), -ENOENT);
	assert_int_equal(gpu->memory_used, PAGE);
	assert_int_equal(rig_device(PAGE), 3); /* its address is not used again */
	assert_int_equal(*(uint8_t *)softd_memory_at(second, a, 1, 3), 11);
	assert_int_equal(softd_memory_close_extent(second, machine, a), 0);
	assert_int_equal(calls.discards, 1);
	assert_int_equal(calls.offset, PAGE);
	assert_int_equal(gpu->memory_used, PAGE);
	assert_int_equal(rig_device(PAGE), 1);
	assert_int_equal(m->space.host[PAGE], 0);
	end_second();
}

/* The owner's process goes: its other pages are given back, those of the export stay. */
static void an_export_outlives_its_client(void **state)
{
	struct softd_extent *x;
	uint64_t a, b;

	begin_second();
	assert_int_equal(rig_device(PAGE), 1);
	assert_int_equal(rig_device(2 * PAGE), 3);
	assert_int_equal(rig_device(PAGE), 6);
	x = softd_memory_export(m, address_of(3));
	a = softd_memory_open_extent(second, machine, 0, x, 2 * PAGE);
	b = softd_memory_open_extent(second, machine, 1, x, PAGE);
	*(uint8_t *)softd_memory_at(second, a, 1, 3) = 11;
	memset(&calls, 0, sizeof(calls));
	softd_memory_finish(m, machine);
	assert_int_equal(calls.discards, 2);
	assert_true(calls.unlocked);
	assert_int_equal(calls.offset, 5 * PAGE);
	assert_int_equal(calls.bytes, (DEVICE_PAGES - 5) * PAGE);
	assert_int_equal(gpu->memory_used, 2 * PAGE);
	assert_null(x->home);
	assert_int_equal(*(uint8_t *)softd_memory_at(second, b, 1, 3), 11);
	softd_memory_drop(second, machine, 1);
	assert_int_equal(x->refs, 1);
	assert_int_equal(gpu->memory_used, 2 * PAGE);
	softd_memory_drop(second, machine, 0);
	assert_int_equal(gpu->memory_used, 0);
	assert_int_equal(second->n, 0);
	end_second();
}

static void a_client_that_goes_drops_everything(void **state)
{
	struct softd_extent *x = extent(G), *y;
	uint64_t a;

	begin_second();
	assert_true(softd_memory_reserve(second, 2 * G, 0, 0) != 0);
	assert_int_equal(
		softd_memory_map(second, machine, second->space.base + SHARED * PAGE, G, x, 0), 0);
	assert_int_equal(rig_device(PAGE), 1);
	y = softd_memory_export(m, address_of(1));
	a = softd_memory_open_extent(second, machine, 0, y, PAGE);
	assert_true(a != 0);
	assert_true(softd_memory_alloc(second, machine, 3, PAGE, SOFT_MEMORY_DEVICE, -1) != 0);
	assert_int_equal(gpu->memory_used, G + 2 * PAGE);
	assert_int_equal(machine->pinned, 2);
	softd_memory_finish(second, machine);
	assert_int_equal(x->refs, 1);
	assert_int_equal(y->refs, 1);
	assert_int_equal(machine->pinned, 0);
	assert_int_equal(gpu->memory_used, G + PAGE);
	softd_extent_unref(x);
	assert_int_equal(gpu->memory_used, PAGE);
	end_second();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, rig_set_up, rig_tear_down)
		T(an_export_is_seen_by_its_importers),
		T(an_export_outlives_its_allocation),
		T(an_export_outlives_its_client),
		T(a_client_that_goes_drops_everything),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
