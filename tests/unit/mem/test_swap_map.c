/* Regions of memory that can leave the device against a model: which region an address is in, and
 * the order in which chunks came to their places. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "mem/swap_map.h"

#define UNIT MEM_SWAP_UNIT
#define MOST (4 * UNIT)
#define LIVE_MAX 200u
#define SPACE 4000u /* units of addresses */

void *__real_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t size);
void *__wrap_realloc(void *p, size_t size);

static bool no_memory;

void *__wrap_calloc(size_t n, size_t size)
{
	return no_memory ? NULL : __real_calloc(n, size);
}

void *__wrap_realloc(void *p, size_t size)
{
	return no_memory ? NULL : __real_realloc(p, size);
}

static uint64_t seed = 88172645463325252u;

static unsigned random_below(unsigned n)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return (unsigned)(seed % n);
}

/* ---- the model ---- */

static struct mem_swap_region *taken[SPACE]; /* by unit of addresses */
static struct mem_swap_region *live[LIVE_MAX];
static unsigned n_live;
static struct mem_swap_chunk *order[2][MEM_SWAP_PLACES][SPACE];
static unsigned n_order[2][MEM_SWAP_PLACES];

static void model_place(struct mem_swap_chunk *c, enum mem_swap_place place)
{
	int row = c->region->row;
	unsigned n = n_order[row][c->place], i = 0;

	if (c->place) {
		while (order[row][c->place][i] != c) {
			i++;
		}
		memmove(&order[row][c->place][i], &order[row][c->place][i + 1],
			(n - i - 1) * sizeof(order[0][0][0]));
		n_order[row][c->place]--;
	}
	if (place) {
		order[row][place][n_order[row][place]++] = c;
	}
}

static void check(const struct mem_swap_map *m)
{
	assert_int_equal(m->n, n_live);
	for (unsigned u = 0; u < SPACE; u++) {
		uint64_t address = (u + 1) * UNIT + random_below((unsigned)UNIT);
		struct mem_swap_region *r = taken[u];

		r = r && address - r->base < r->bytes ? r : NULL;
		assert_ptr_equal(mem_swap_find(m, address), r);
	}
	for (unsigned row = 0; row < 2; row++) {
		for (unsigned place = MEM_SWAP_DEVICE; place < MEM_SWAP_PLACES; place++) {
			const struct mem_swap_list *l = &m->at[row][place];
			const struct mem_swap_chunk *c = l->first, *last = NULL;
			uint64_t bytes = 0;

			for (unsigned i = 0; i < n_order[row][place]; i++, c = c->next) {
				assert_ptr_equal(c, order[row][place][i]);
				assert_ptr_equal(c->prev, last);
				assert_int_equal(c->place, place);
				bytes += c->bytes;
				last = c;
			}
			assert_null(c);
			assert_ptr_equal(l->last, last);
			assert_int_equal(l->bytes, bytes);
		}
	}
}

static void add(struct mem_swap_map *m)
{
	uint64_t bytes = 1 + random_below(20 * (unsigned)UNIT), at;
	struct mem_swap_region *r = mem_swap_region_create(bytes, MOST, (int)random_below(2));
	uint64_t sum = 0;
	unsigned units, u;

	assert_non_null(r);
	assert_int_equal(r->reserved, ROUND_UP(bytes, UNIT));
	units = (unsigned)(r->reserved / UNIT);
	u = random_below(SPACE - units);
	for (unsigned i = 0; i < units; i++) {
		if (taken[u + i]) {
			free(r);
			return;
		}
	}
	at = (u + 1) * UNIT;
	assert_int_equal(mem_swap_add(m, r, at), 0);
	for (uint32_t i = 0; i < r->n; i++) {
		assert_int_equal(r->chunk[i].address, at + sum);
		assert_true(r->chunk[i].bytes == MOST ||
			    (i == r->n - 1 && r->chunk[i].bytes < MOST && r->chunk[i].bytes));
		sum += r->chunk[i].bytes;
	}
	assert_int_equal(sum, r->reserved);
	for (unsigned i = 0; i < units; i++) {
		taken[u + i] = r;
	}
	r->owner = random_below(3);
	r->epoch = random_below(3);
	live[n_live++] = r;
}

static void drop(struct mem_swap_map *m, unsigned i)
{
	struct mem_swap_region *r = live[i];

	for (uint32_t k = 0; k < r->n; k++) {
		model_place(&r->chunk[k], MEM_SWAP_NOWHERE);
		mem_swap_place(m, &r->chunk[k], MEM_SWAP_NOWHERE);
	}
	for (unsigned u = 0; u < SPACE; u++) {
		taken[u] = taken[u] == r ? NULL : taken[u];
	}
	live[i] = live[--n_live];
	mem_swap_remove(m, r);
}

static void move(struct mem_swap_map *m)
{
	struct mem_swap_region *r = live[random_below(n_live)];
	struct mem_swap_chunk *c = &r->chunk[random_below(r->n)];
	enum mem_swap_place place = (enum mem_swap_place)random_below(MEM_SWAP_PLACES);

	model_place(c, place);
	mem_swap_place(m, c, place);
}

/* Returns whether a live region has that owner, and an epoch up to the given one. */
static bool has_owner(uint64_t owner, uint64_t epoch)
{
	for (unsigned i = 0; i < n_live; i++) {
		if (live[i]->owner == owner && live[i]->epoch <= epoch) {
			return true;
		}
	}
	return false;
}

static void regions_and_places_are_those_of_the_model(void **state)
{
	struct mem_swap_map m = { 0 };

	for (unsigned step = 0; step < 20000; step++) {
		unsigned what = random_below(10);

		if (what < 3 && n_live < LIVE_MAX) {
			add(&m);
		} else if (what < 4 && n_live) {
			drop(&m, random_below(n_live));
		} else if (n_live) {
			move(&m);
		}
		if (step % 50 == 0) {
			uint64_t owner = random_below(3), epoch = random_below(3);
			struct mem_swap_region *r = mem_swap_of_owner(&m, owner, epoch);

			check(&m);
			assert_int_equal(r != NULL, has_owner(owner, epoch));
			assert_true(!r || (r->owner == owner && r->epoch <= epoch));
		}
	}
	while (n_live) {
		drop(&m, 0);
	}
	check(&m);
	free(m.region);
}

static void sizes_beyond_all_addresses_are_refused(void **state)
{
	assert_null(mem_swap_region_create(UINT64_MAX, MOST, 0));
	assert_null(mem_swap_region_create(UINT64_MAX - UNIT, UNIT, 0));
}

static void without_memory_nothing_is_added(void **state)
{
	struct mem_swap_map m = { 0 };
	struct mem_swap_region *r = mem_swap_region_create(1, MOST, 0);

	no_memory = true;
	assert_null(mem_swap_region_create(1, MOST, 0));
	assert_int_equal(mem_swap_add(&m, r, UNIT), -ENOMEM);
	no_memory = false;
	assert_null(mem_swap_find(&m, UNIT));
	assert_int_equal(mem_swap_add(&m, r, UNIT), 0);
	assert_ptr_equal(mem_swap_find(&m, UNIT), r);
	assert_null(mem_swap_find(&m, UNIT + 1));
	mem_swap_remove(&m, r);
	free(m.region);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(regions_and_places_are_those_of_the_model),
		cmocka_unit_test(sizes_beyond_all_addresses_are_refused),
		cmocka_unit_test(without_memory_nothing_is_added),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
