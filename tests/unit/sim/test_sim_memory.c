/* The model of memory that leaves the device: what moves, and for how long. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>

#include "base/compiler.h"
#include "shim/mem/swap_int.h"
#include "shim/mem/swap_region.h"
#include "sim/sim_memory.h"

#define MIB SIM_MIB
#define MS UINT64_C(1000000)

/* 64 MiB take 1 ms to the host and 2 ms back. */
static const struct sim_link simple = { 64000 * MIB, 32000 * MIB, 16000 * MIB };

static struct sim_memory mem;
static struct sim_room room;

static int begin(void **state)
{
	(void)state;
	mem = (struct sim_memory){ .out_bytes = 0 };
	room = (struct sim_room){ .device = 512 * MIB, .host = 1024 * MIB };
	return 0;
}

static int end(void **state)
{
	(void)state;
	sim_memory_finish(&mem);
	return 0;
}

static struct mem_swap_region *add(uint64_t bytes, uint64_t expected_ns)
{
	struct mem_swap_region *r = NULL;
	uint64_t ns;

	assert_int_equal(sim_memory_add(&mem, bytes, false, &simple, &room, &r, &ns), 0);
	assert_int_equal(ns, expected_ns);
	return r;
}

/* Begins a use that needs a region. */
static struct mem_swap_need use(struct mem_swap_region *r, uint32_t cost)
{
	struct mem_swap_need need = { 0 };

	mem_swap_begin_use(&mem.map);
	mem_swap_use(&mem.map, r, r->base, SIM_NAMED_MAX, cost, &need);
	return need;
}

static void expect_at(const struct mem_swap_region *r, uint64_t device, uint64_t host)
{
	assert_int_equal(sim_memory_region_at(r, MEM_SWAP_DEVICE), device);
	assert_int_equal(sim_memory_region_at(r, MEM_SWAP_HOST), host);
}

/* The model has the processes' numbers. */
static void sizes_are_those_of_processes(void **state)
{
	(void)state;
	assert_int_equal(SIM_CHUNK, SHIM_SWAP_CHUNK);
	assert_int_equal(SIM_CHUNK_MAX, SHIM_SWAP_CHUNK_MAX);
	assert_int_equal(SIM_LARGE, SHIM_SWAP_LARGE);
	assert_int_equal(SIM_BATCH, SHIM_SWAP_BATCH);
	assert_int_equal(SIM_BATCH_BYTES, SHIM_SWAP_BATCH_BYTES);
	assert_int_equal(MEM_SWAP_LEAVING, SHIM_SWAP_BATCH);
}

static void time_is_bytes_by_rate(void **state)
{
	(void)state;
	assert_int_equal(sim_memory_time(64 * MIB, simple.out), MS);
	assert_int_equal(sim_memory_time(0, simple.out), 0);
	assert_int_equal(sim_memory_time(UINT64_C(1) << 40, SIM_RATE_MIN), 4096 * 1000 * MS);
	assert_int_equal(sim_memory_time(UINT64_C(51900000000), SIM_BACK_RATE), 1000 * MS);
}

static void new_region_displaces_the_oldest(void **state)
{
	struct mem_swap_region *x = add(256 * MIB, 0), *y = add(256 * MIB, 0), *z;

	(void)state;
	z = add(128 * MIB, 2 * MS);
	expect_at(x, 128 * MIB, 128 * MIB);
	expect_at(y, 256 * MIB, 0);
	expect_at(z, 128 * MIB, 0);
	assert_int_equal(room.device, 0);
	assert_int_equal(room.host, 896 * MIB);
	assert_int_equal(mem.out_bytes, 128 * MIB);
	assert_int_equal(sim_memory_at(&mem, MEM_SWAP_HOST), 128 * MIB);
}

static void nothing_leaves_while_work_goes_on(void **state)
{
	struct mem_swap_region *x = add(384 * MIB, 0), *y = NULL;
	uint64_t ns = 1;

	(void)state;
	assert_int_equal(sim_memory_add(&mem, 256 * MIB, true, &simple, &room, &y, &ns), 0);
	assert_int_equal(ns, 0);
	expect_at(x, 384 * MIB, 0);
	expect_at(y, 128 * MIB, 128 * MIB);
}

static void region_beyond_limit_and_swap_is_refused(void **state)
{
	struct mem_swap_region *x = NULL;
	uint64_t ns;

	(void)state;
	assert_int_equal(sim_memory_add(&mem, 1538 * MIB, false, &simple, &room, &x, &ns), -ENOSPC);
	assert_null(x);
	assert_int_equal(mem.map.n, 0);
	assert_int_equal(sim_memory_at(&mem, MEM_SWAP_DEVICE), 0);
	assert_int_equal(sim_memory_at(&mem, MEM_SWAP_HOST), 0);
	end(state);
	begin(state);
	x = add(1536 * MIB, 0);
	expect_at(x, 512 * MIB, 1024 * MIB);
}

/* Out 1, 2, 3, 4 ms; back after the first of them 2 ms each. */
static void fetch_overlaps_both_directions(void **state)
{
	struct mem_swap_region *x = add(256 * MIB, 0), *y = add(256 * MIB, 0);
	struct mem_swap_region *z = add(256 * MIB, 4 * MS);
	struct mem_swap_need need = use(x, 5);
	uint64_t ns = 0;

	(void)state;
	assert_int_equal(need.missing, 256 * MIB);
	assert_int_equal(sim_memory_move_ns(&simple, need.missing, room.device), 8 * MS);
	assert_int_equal(mem_swap_ratio(&mem.map, 0, &need, 0, mem.map.uses), 1000000000);
	assert_true(sim_memory_is_missing(&mem, mem.map.uses));
	assert_true(sim_memory_fetch_once(&mem, mem.map.uses, &simple, &room, &ns));
	assert_int_equal(ns, 9 * MS);
	expect_at(x, 256 * MIB, 0);
	expect_at(y, 0, 256 * MIB);
	expect_at(z, 256 * MIB, 0);
	assert_false(sim_memory_is_missing(&mem, mem.map.uses));
	assert_false(sim_memory_fetch_once(&mem, mem.map.uses, &simple, &room, &ns));
	assert_int_equal(ns, 9 * MS);
	assert_int_equal(mem.out_bytes, 512 * MIB);
	assert_int_equal(mem.back_bytes, 256 * MIB);
}

static void fetch_into_room_moves_nothing_out(void **state)
{
	struct mem_swap_region *x;
	uint64_t ns = 0;

	(void)state;
	room.device = 0;
	x = add(128 * MIB, 0);
	room.device = 64 * MIB;
	(void)use(x, 1);
	assert_int_equal(
		mem_swap_ratio(&mem.map, 0, &(struct mem_swap_need){ .missing = MIB }, MIB, 1),
		UINT64_MAX);
	assert_true(sim_memory_fetch_once(&mem, 1, &simple, &room, &ns));
	assert_int_equal(ns, 2 * MS);
	expect_at(x, 64 * MIB, 64 * MIB);
	assert_int_equal(mem.out_bytes, 0);
	assert_false(sim_memory_fetch_once(&mem, 1, &simple, &room, &ns));
}

static void what_launches_need_more_stays(void **state)
{
	struct mem_swap_region *x = add(256 * MIB, 0), *y = add(256 * MIB, 0), *z;
	struct mem_swap_need need;
	uint64_t ns = 0;

	(void)state;
	(void)use(x, 100);
	(void)use(y, 10);
	z = add(256 * MIB, 4 * MS); /* which is worth nothing yet: y leaves */
	expect_at(y, 0, 256 * MIB);
	(void)use(z, 50);
	need = use(y, 10);
	/* y is worth 20 of each unit, z 50. */
	assert_in_range(mem_swap_ratio(&mem.map, 0, &need, 0, mem.map.uses), 395, 405);
	assert_true(sim_memory_fetch_once(&mem, mem.map.uses, &simple, &room, &ns));
	expect_at(x, 256 * MIB, 0);
	expect_at(y, 256 * MIB, 0);
	expect_at(z, 0, 256 * MIB);
}

/* 100 chunks would leave, which are worth as much as what is missing; a pause moves 64. */
static void ratio_counts_all_that_would_leave(void **state)
{
	struct mem_swap_region *x = NULL;
	struct mem_swap_need need = { 0 };
	uint64_t ns;

	(void)state;
	for (unsigned i = 0; i < 256; i++) {
		(void)add(2 * MIB, 0);
	}
	assert_int_equal(sim_memory_add(&mem, 200 * MIB, true, &simple, &room, &x, &ns), 0);
	mem_swap_begin_use(&mem.map);
	for (unsigned i = 0; i < 256; i++) {
		mem_swap_use(&mem.map, mem.map.region[i], mem.map.region[i]->base, 2 * MIB, 10,
			     &need);
	}
	need = use(x, 10);
	assert_int_equal(need.missing, 200 * MIB);
	assert_in_range(mem_swap_ratio(&mem.map, 0, &need, 0, mem.map.uses), 995, 1005);
}

static void full_host_keeps_all_in_place(void **state)
{
	struct mem_swap_region *x;
	uint64_t ns = 0;

	(void)state;
	room.host = 256 * MIB;
	(void)add(512 * MIB, 0);
	x = add(256 * MIB, 4 * MS);
	assert_int_equal(room.host, 0);
	expect_at(x, 256 * MIB, 0);
	(void)use(mem.map.region[0], 1);
	assert_false(sim_memory_fetch_once(&mem, mem.map.uses, &simple, &room, &ns));
	assert_int_equal(ns, 0);
	assert_int_equal(mem.out_bytes, 256 * MIB);
}

static uint64_t remove_region(struct mem_swap_region *r)
{
	room.device += sim_memory_region_at(r, MEM_SWAP_DEVICE);
	room.host += sim_memory_region_at(r, MEM_SWAP_HOST);
	sim_memory_remove(&mem, r);
	return sim_memory_fill(&mem, &simple, &room);
}

static void freed_room_is_filled(void **state)
{
	struct mem_swap_region *x = add(256 * MIB, 0), *y = add(256 * MIB, 0);
	struct mem_swap_region *z = add(384 * MIB, 6 * MS);

	(void)state;
	expect_at(x, 0, 256 * MIB);
	expect_at(y, 128 * MIB, 128 * MIB);
	(void)use(x, 1);
	assert_int_equal(remove_region(z), 12 * MS);
	expect_at(x, 256 * MIB, 0);
	expect_at(y, 256 * MIB, 0);
	assert_int_equal(mem.back_bytes, 384 * MIB);
	assert_int_equal(room.device, 0);
	assert_int_equal(room.host, 1024 * MIB);
	assert_int_equal(remove_region(y), 0);
	assert_int_equal(room.device, 256 * MIB);
}

/* 2 GiB come back in two pauses. */
static void pause_moves_a_gib_at_most(void **state)
{
	struct mem_swap_region *x;
	struct mem_swap_need need = { 0 };
	uint64_t ns = 0;

	(void)state;
	room = (struct sim_room){ .device = 0, .host = 2048 * MIB };
	x = add(2048 * MIB, 0);
	room.device = 2048 * MIB;
	mem_swap_begin_use(&mem.map);
	mem_swap_use(&mem.map, x, x->base, UINT64_MAX, 1, &need);
	assert_true(sim_memory_fetch_once(&mem, 1, &simple, &room, &ns));
	expect_at(x, 1024 * MIB, 1024 * MIB);
	assert_int_equal(ns, 32 * MS);
	assert_true(sim_memory_fetch_once(&mem, 1, &simple, &room, &ns));
	expect_at(x, 2048 * MIB, 0);
	assert_int_equal(ns, 64 * MS);
	assert_false(sim_memory_fetch_once(&mem, 1, &simple, &room, &ns));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(sizes_are_those_of_processes),
		cmocka_unit_test(time_is_bytes_by_rate),
		cmocka_unit_test_setup_teardown(new_region_displaces_the_oldest, begin, end),
		cmocka_unit_test_setup_teardown(nothing_leaves_while_work_goes_on, begin, end),
		cmocka_unit_test_setup_teardown(region_beyond_limit_and_swap_is_refused, begin,
						end),
		cmocka_unit_test_setup_teardown(fetch_overlaps_both_directions, begin, end),
		cmocka_unit_test_setup_teardown(fetch_into_room_moves_nothing_out, begin, end),
		cmocka_unit_test_setup_teardown(what_launches_need_more_stays, begin, end),
		cmocka_unit_test_setup_teardown(ratio_counts_all_that_would_leave, begin, end),
		cmocka_unit_test_setup_teardown(full_host_keeps_all_in_place, begin, end),
		cmocka_unit_test_setup_teardown(freed_room_is_filled, begin, end),
		cmocka_unit_test_setup_teardown(pause_moves_a_gib_at_most, begin, end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
