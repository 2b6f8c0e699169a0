/* Small allocations in packs against a model that has a byte for each grain: none overlap, each has
 * the smallest room in which it fits, and what is freed next to room becomes one with it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "mem/pack.h"

#define PACKS 3u
#define LIVE_MAX 4000u
#define BASE (UINT64_C(1) << 40)
#define FAR (UINT64_C(1) << 30) /* from one pack to the next */

void *__real_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size);

static unsigned calloc_left; /* calls that succeed */

void *__wrap_calloc(size_t n, size_t size)
{
	return calloc_left && calloc_left-- ? __real_calloc(n, size) : NULL;
}

static struct mem_pack_set set;

static int set_up(void **state)
{
	calloc_left = UINT32_MAX;
	memset(&set, 0, sizeof(set));
	return 0;
}

static uint64_t random_next(uint64_t *seed)
{
	*seed ^= *seed << 13;
	*seed ^= *seed >> 7;
	*seed ^= *seed << 17;
	return *seed;
}

static void expect_empty(void)
{
	assert_int_equal(set.n, 0);
	assert_int_equal(set.words, 0);
	for (unsigned i = 0; i < MEM_PACK_GRAINS; i++) {
		assert_null(set.room[i]);
		assert_false(set.sizes[i / 64] >> i % 64 & 1);
	}
}

static void allocations_lie_one_behind_the_other(void **state)
{
	struct mem_pack_part *a = mem_pack_add(&set, BASE, 1), *b, *c;

	assert_int_equal(mem_pack_address(a), BASE);
	b = mem_pack_take(&set, 513);
	c = mem_pack_take(&set, 512);
	assert_int_equal(mem_pack_address(b), BASE + 512);
	assert_int_equal(mem_pack_address(c), BASE + 512 + 1024);
	assert_int_equal(a->pack->n, 3);
	mem_pack_remove(a->pack);
	expect_empty();
}

static void an_address_is_in_the_bytes_that_were_asked_for(void **state)
{
	struct mem_pack_part *a = mem_pack_add(&set, BASE, 100), *b = mem_pack_take(&set, 70000);

	assert_ptr_equal(mem_pack_find(a->pack, BASE), a);
	assert_ptr_equal(mem_pack_find(a->pack, BASE + 99), a);
	assert_null(mem_pack_find(a->pack, BASE + 100));
	assert_null(mem_pack_find(a->pack, BASE + 511));
	assert_ptr_equal(mem_pack_find(a->pack, BASE + 512), b);
	assert_ptr_equal(mem_pack_find(a->pack, BASE + 512 + 69999), b);
	assert_null(mem_pack_find(a->pack, BASE + 512 + 70000));
	assert_null(mem_pack_find(a->pack, BASE + MEM_PACK_BYTES - 1));
	mem_pack_give(a);
	assert_null(mem_pack_find(b->pack, BASE));
	mem_pack_remove(b->pack);
}

static void an_allocation_gets_the_smallest_room_of_all_packs(void **state)
{
	struct mem_pack_part *a = mem_pack_add(&set, BASE, MEM_PACK_BYTES - 8 * 512);
	struct mem_pack_part *b = mem_pack_add(&set, BASE + FAR, MEM_PACK_BYTES - 3 * 512), *c, *d;

	c = mem_pack_take(&set, 2 * 512 + 1);
	assert_ptr_equal(c->pack, b->pack);
	d = mem_pack_take(&set, 512);
	assert_ptr_equal(d->pack, a->pack);
	assert_null(mem_pack_take(&set, 8 * 512));
	assert_non_null(mem_pack_take(&set, 7 * 512));
	assert_null(mem_pack_take(&set, 1));
	mem_pack_remove(a->pack);
	mem_pack_remove(b->pack);
	expect_empty();
}

static void what_is_freed_becomes_one_room(void **state)
{
	struct mem_pack_part *p[4] = { mem_pack_add(&set, BASE, 512) };
	static const unsigned orders[4][4] = {
		{ 0, 1, 2, 3 }, { 3, 2, 1, 0 }, { 0, 2, 1, 3 }, { 1, 3, 0, 2 }
	};

	for (unsigned k = 0; k < ARRAY_SIZE(orders); k++) {
		struct mem_pack *pack = p[0]->pack;

		for (unsigned i = 1; i < 4; i++) {
			p[i] = mem_pack_take(&set, i * 700);
		}
		for (unsigned i = 0; i < 4; i++) {
			assert_int_equal(pack->n, 4 - i);
			mem_pack_give(p[orders[k][i]]);
		}
		assert_int_equal(pack->n, 0);
		p[0] = mem_pack_take(&set, MEM_PACK_BYTES);
		assert_int_equal(mem_pack_address(p[0]), BASE);
		mem_pack_give(p[0]);
		p[0] = mem_pack_take(&set, 512);
	}
	mem_pack_remove(p[0]->pack);
	expect_empty();
}

static void a_whole_pack_is_one_allocation(void **state)
{
	struct mem_pack_part *a = mem_pack_add(&set, BASE, MEM_PACK_BYTES);

	assert_null(mem_pack_take(&set, 1));
	assert_ptr_equal(mem_pack_find(a->pack, BASE + MEM_PACK_BYTES - 1), a);
	mem_pack_give(a);
	assert_int_equal(a->pack->n, 0);
	mem_pack_remove(a->pack);
	expect_empty();
}

static void without_host_memory_nothing_is_lost(void **state)
{
	struct mem_pack_part *a, *b;

	for (unsigned i = 0; i < 2; i++) {
		calloc_left = i;
		assert_null(mem_pack_add(&set, BASE, 512));
		expect_empty();
	}
	calloc_left = 3;
	a = mem_pack_add(&set, BASE, 512);
	b = mem_pack_take(&set, 512); /* which has all of the rest */
	assert_non_null(b);
	assert_null(mem_pack_take(&set, 512));
	assert_int_equal(b->bytes, 512);
	calloc_left = UINT32_MAX;
	mem_pack_give(b);
	b = mem_pack_take(&set, 1024);
	assert_int_equal(mem_pack_address(b), BASE + 512);
	assert_non_null(mem_pack_take(&set, MEM_PACK_BYTES - 1536));
	mem_pack_remove(a->pack);
	expect_empty();
}

/* ---- against a model ---- */

static struct {
	bool used;
	uint8_t grain[MEM_PACK_GRAINS]; /* 1: allocated */
	struct mem_pack *pack;
} model[PACKS];
static struct mem_pack_part *live[LIVE_MAX];
static unsigned n_live;

static unsigned number_of(const struct mem_pack *p)
{
	return (unsigned)((p->base - BASE) / FAR);
}

/* Returns the size of the smallest room that fits, in grains; 0: none. */
static uint32_t model_smallest(uint32_t grains)
{
	uint32_t least = 0;

	for (unsigned k = 0; k < PACKS; k++) {
		uint32_t run = 0;

		for (uint32_t i = 0; model[k].used && i <= MEM_PACK_GRAINS; i++) {
			if (i < MEM_PACK_GRAINS && !model[k].grain[i]) {
				run++;
				continue;
			}
			least = run >= grains && (!least || run < least) ? run : least;
			run = 0;
		}
	}
	return least;
}

/* Returns the size of the room that begins or ends next to grains that were allocated now. */
static uint32_t room_around(unsigned k, uint32_t first, uint32_t grains)
{
	uint32_t begin = first, end = first + grains;

	while (begin && !model[k].grain[begin - 1]) {
		begin--;
	}
	while (end < MEM_PACK_GRAINS && !model[k].grain[end]) {
		end++;
	}
	return end - begin;
}

static void mark(const struct mem_pack_part *part, uint8_t is)
{
	unsigned k = number_of(part->pack);

	for (uint32_t i = 0; i < part->grains; i++) {
		assert_int_equal(model[k].grain[part->first + i], !is);
		model[k].grain[part->first + i] = is;
	}
}

static void take_one(uint64_t bytes)
{
	uint32_t grains = (uint32_t)((bytes + 511) / 512), least = model_smallest(grains);
	struct mem_pack_part *part = mem_pack_take(&set, bytes);

	assert_int_equal(part != NULL, least != 0);
	for (unsigned k = 0; k < PACKS && !part; k++) {
		if (!model[k].used) {
			memset(model[k].grain, 0, sizeof(model[k].grain));
			model[k].used = true;
			part = mem_pack_add(&set, BASE + k * FAR, bytes);
			model[k].pack = part->pack;
			least = MEM_PACK_GRAINS;
		}
	}
	if (!part) {
		return;
	}
	assert_int_equal(part->grains, grains);
	assert_int_equal(room_around(number_of(part->pack), part->first, grains), least);
	mark(part, 1);
	live[n_live++] = part;
}

static void give_one(unsigned i)
{
	struct mem_pack_part *part = live[i];
	struct mem_pack *pack = part->pack;
	uint64_t address = mem_pack_address(part);

	assert_ptr_equal(mem_pack_find(pack, address + part->bytes / 2), part);
	mark(part, 0);
	live[i] = live[--n_live];
	mem_pack_give(part);
	assert_null(mem_pack_find(pack, address));
	if (!pack->n) {
		model[number_of(pack)].used = false;
		mem_pack_remove(pack);
	}
}

static void random_allocations_are_those_of_the_model(void **state)
{
	uint64_t seed = 42;

	print_message("seed %llu\n", (unsigned long long)seed);
	n_live = 0;
	memset(model, 0, sizeof(model));
	for (unsigned i = 0; i < 20000; i++) {
		uint64_t r = random_next(&seed);
		bool grows = i % 4000 < 2500;

		if (n_live && (r % 8 < (grows ? 3u : 5u) || n_live == LIVE_MAX)) {
			give_one((unsigned)(random_next(&seed) % n_live));
		} else {
			take_one(1 + random_next(&seed) % (r >> 8 & 7 ? 6000 : MEM_PACK_BYTES));
		}
	}
	while (n_live) {
		give_one(n_live - 1);
	}
	expect_empty();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(allocations_lie_one_behind_the_other, set_up),
		cmocka_unit_test_setup(an_address_is_in_the_bytes_that_were_asked_for, set_up),
		cmocka_unit_test_setup(an_allocation_gets_the_smallest_room_of_all_packs, set_up),
		cmocka_unit_test_setup(what_is_freed_becomes_one_room, set_up),
		cmocka_unit_test_setup(a_whole_pack_is_one_allocation, set_up),
		cmocka_unit_test_setup(without_host_memory_nothing_is_lost, set_up),
		cmocka_unit_test_setup(random_allocations_are_those_of_the_model, set_up),
	};

	return cmocka_run_group_tests_name("mem_pack", tests, NULL, NULL);
}
