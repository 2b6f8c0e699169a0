/* Which chunks leave: mem_swap_pick() over the order in which programs use their memory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>

#include "base/compiler.h"
#include "mem/swap_map.h"

#define UNIT MEM_SWAP_UNIT
#define LAYERS 8u
#define COST 20u

static struct mem_swap_map map;
static struct mem_swap_region *layer[LAYERS];
static uint32_t cost_of_first; /* layer; of each other one COST */

/* Adds a region of n chunks of UNIT on the device. */
static struct mem_swap_region *add(unsigned n)
{
	struct mem_swap_region *r = mem_swap_region_create(n * UNIT, UNIT, UNIT, 0);
	uint64_t base = UNIT;

	for (size_t i = 0; i < map.n; i++) {
		base = map.region[i]->base + map.region[i]->reserved;
	}
	assert_non_null(r);
	assert_int_equal(mem_swap_add(&map, r, base), 0);
	for (uint32_t i = 0; i < n; i++) {
		mem_swap_place(&map, &r->chunk[i], MEM_SWAP_DEVICE);
	}
	return r;
}

static int set_up(void **state)
{
	cost_of_first = COST;
	for (unsigned i = 0; i < LAYERS; i++) {
		layer[i] = add(1);
	}
	return 0;
}

static int tear_down(void **state)
{
	while (map.n) {
		struct mem_swap_region *r = map.region[0];

		for (uint32_t i = 0; i < r->n; i++) {
			mem_swap_place(&map, &r->chunk[i], MEM_SWAP_NOWHERE);
		}
		mem_swap_remove(&map, r);
		free(r);
	}
	free(map.region);
	map = (struct mem_swap_map){ 0 };
	return 0;
}

static void use(unsigned i)
{
	struct mem_swap_need need = { 0 };

	mem_swap_begin_use(&map);
	mem_swap_use(&map, layer[i], layer[i]->base, UNIT, i ? COST : cost_of_first, &need);
}

static void use_all(void)
{
	for (unsigned i = 0; i < LAYERS; i++) {
		use(i);
	}
}

static void use_all_backwards(void)
{
	for (unsigned i = LAYERS; i-- > 0;) {
		use(i);
	}
}

/* Returns the layer that would leave; LAYERS: another region. */
static unsigned leaves(void)
{
	struct mem_swap_chunk *list[1];
	double worth;
	unsigned i = 0;

	assert_int_equal(mem_swap_pick(&map, 0, UINT64_MAX, UNIT, UINT64_MAX, list, 1, &worth), 1);
	while (i < LAYERS && layer[i] != list[0]->region) {
		i++;
	}
	return i;
}

static void of_layers_used_in_turn_the_latest_leaves(void **state)
{
	for (unsigned pass = 0; pass < 3; pass++) {
		use_all();
	}
	for (unsigned i = 0; i < 2 * LAYERS; i++) {
		use(i % LAYERS);
		assert_int_equal(leaves(), i % LAYERS);
	}
}

/* As in training: the layers that were just used are used next. */
static void of_layers_used_forward_and_back_those_of_the_other_end_leave(void **state)
{
	for (unsigned pass = 0; pass < 3; pass++) {
		use_all();
		use_all_backwards();
	}
	use_all();
	assert_int_equal(leaves(), 0);
	use_all_backwards();
	assert_int_equal(leaves(), LAYERS - 1);
}

/* The weights are used once more, by the optimizer. */
static void what_is_used_three_times_in_a_step_is_expected_as_often(void **state)
{
	for (unsigned pass = 0; pass < 3; pass++) {
		use_all();
		use_all_backwards();
		use_all();
	}
	use_all();
	assert_int_equal(leaves(), 0);
	use_all_backwards();
	assert_int_equal(leaves(), LAYERS - 1);
	use_all();
	assert_int_equal(leaves(), LAYERS - 1);
}

/* It was worth as much as the others until then. */
static void what_is_no_longer_used_leaves(void **state)
{
	for (unsigned pass = 0; pass < 4; pass++) {
		use_all();
	}
	for (unsigned i = 0; i < 4 * (LAYERS - 1); i++) {
		use(i % (LAYERS - 1));
	}
	assert_int_equal(leaves(), LAYERS - 1);
}

/* A use that is expected soon makes up for what others are worth more. */
static void what_is_used_soon_stays_although_it_is_worth_less(void **state)
{
	cost_of_first = COST / 2;
	for (unsigned pass = 0; pass < 3; pass++) {
		use_all();
	}
	assert_int_equal(leaves(), LAYERS - 1);
	use(0);
	assert_int_equal(leaves(), 0);
	use(1);
	assert_int_equal(leaves(), 0);
}

static void without_a_pattern_what_is_worth_least_leaves(void **state)
{
	static const unsigned order[] = { 0, 1, 2, 3, 4, 5, 6, 7, 1, 2, 4, 7, 0, 6, 5 };

	for (unsigned i = 0; i < ARRAY_SIZE(order); i++) {
		use(order[i]);
	}
	assert_int_equal(leaves(), 3);
}

/* Freed chunks hide a later one that could leave only if they are 16 times as many as are looked
 * at.
 */
static void freed_chunks_are_passed_over(void **state)
{
	struct mem_swap_region *freed = mem_swap_region_create(16 * 1024 * UNIT, UNIT, UNIT, 0),
			       *r = mem_swap_region_create(UNIT, UNIT, UNIT, 0);
	struct mem_swap_map m = { 0 };
	struct mem_swap_chunk *list[2];
	double worth;

	freed->freed = true;
	assert_int_equal(mem_swap_add(&m, freed, UNIT), 0);
	assert_int_equal(mem_swap_add(&m, r, UNIT + freed->reserved), 0);
	for (uint32_t i = 0; i < freed->n; i++) {
		mem_swap_place(&m, &freed->chunk[i], MEM_SWAP_DEVICE);
	}
	mem_swap_place(&m, &r->chunk[0], MEM_SWAP_DEVICE);
	assert_int_equal(mem_swap_pick(&m, 0, UINT64_MAX, 2 * UNIT, UINT64_MAX, list, 2, &worth),
			 0);
	mem_swap_place(&m, &freed->chunk[0], MEM_SWAP_HOST);
	assert_int_equal(mem_swap_pick(&m, 0, UINT64_MAX, 2 * UNIT, UINT64_MAX, list, 2, &worth),
			 1);
	assert_ptr_equal(list[0], &r->chunk[0]);
	free(freed);
	free(r);
	free(m.region);
}

static bool is_above(const struct mem_swap_chunk *c, uint64_t address)
{
	return c->address > address;
}

static void only_chunks_that_may_leave_are_chosen(void **state)
{
	struct mem_swap_region *r = add(3);
	struct mem_swap_chunk *list[2];
	double worth;

	assert_int_equal(mem_swap_pick_if(&map, 0, UINT64_MAX, 2 * UNIT, UINT64_MAX, is_above,
					  r->base, list, 2, &worth),
			 2);
	assert_ptr_equal(list[0], &r->chunk[1]);
	assert_ptr_equal(list[1], &r->chunk[2]);
	assert_int_equal(mem_swap_pick_if(&map, 0, UINT64_MAX, 2 * UNIT, UINT64_MAX, is_above,
					  r->chunk[1].address, list, 2, &worth),
			 1);
	assert_ptr_equal(list[0], &r->chunk[2]);
}

#define TEST(t) cmocka_unit_test_setup_teardown(t, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(of_layers_used_in_turn_the_latest_leaves),
		TEST(of_layers_used_forward_and_back_those_of_the_other_end_leave),
		TEST(what_is_used_three_times_in_a_step_is_expected_as_often),
		TEST(what_is_no_longer_used_leaves),
		TEST(what_is_used_soon_stays_although_it_is_worth_less),
		TEST(without_a_pattern_what_is_worth_least_leaves),
		cmocka_unit_test_teardown(only_chunks_that_may_leave_are_chosen, tear_down),
		cmocka_unit_test(freed_chunks_are_passed_over),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
