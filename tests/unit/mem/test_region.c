/* The hash table of regions against a sorted array. Keys collide as those of the shim do:
 * allocations are aligned to 512 bytes, 2 MiB or more, handles are consecutive. Nothing is lost,
 * found twice or mixed up, however entries wrap around the end and move back. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "mem/region.h"

#define LIVE_MAX 4096u
#define OWNERS 16u
#define EPOCHS 4u

void *__real_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size);

static bool no_memory;

void *__wrap_calloc(size_t n, size_t size)
{
	return no_memory ? NULL : __real_calloc(n, size);
}

static uint64_t random_next(uint64_t *seed)
{
	*seed ^= *seed << 13;
	*seed ^= *seed >> 7;
	*seed ^= *seed << 17;
	return *seed;
}

/* ---- the model: entries in the order of their keys ---- */

struct model {
	struct mem_region e[LIVE_MAX];
	size_t n;
	bool seen[LIVE_MAX];
};

/* Returns the index of the first entry whose key is not lower. */
static size_t model_at(const struct model *m, uint64_t key)
{
	size_t low = 0, high = m->n;

	while (low < high) {
		size_t mid = (low + high) / 2;

		if (m->e[mid].key < key) {
			low = mid + 1;
		} else {
			high = mid;
		}
	}
	return low;
}

static bool model_has(const struct model *m, uint64_t key)
{
	size_t i = model_at(m, key);

	return i < m->n && m->e[i].key == key;
}

static void model_add(struct model *m, const struct mem_region *r)
{
	size_t i = model_at(m, r->key);

	memmove(&m->e[i + 1], &m->e[i], (m->n - i) * sizeof(m->e[0]));
	m->e[i] = *r;
	m->n++;
}

static void model_remove(struct model *m, uint64_t key)
{
	size_t i = model_at(m, key);

	m->n--;
	memmove(&m->e[i], &m->e[i + 1], (m->n - i) * sizeof(m->e[0]));
}

static void assert_same(const struct mem_region *a, const struct mem_region *b)
{
	assert_int_equal(a->key, b->key);
	assert_int_equal(a->bytes, b->bytes);
	assert_int_equal(a->owner, b->owner);
	assert_int_equal(a->epoch, b->epoch);
	assert_int_equal(a->row, b->row);
	assert_int_equal(a->count, b->count);
}

/* The table has the model's entries, each once, and each is found. */
static void check_all(const struct mem_regions *t, struct model *m)
{
	size_t n = 0;

	assert_int_equal(t->n, m->n);
	assert_int_equal(t->size & (t->size - 1), 0);
	assert_true(t->n == 0 || t->n < t->size); /* a search ends at a free slot */
	memset(m->seen, 0, sizeof(m->seen));
	for (size_t i = 0; i < t->size; i++) {
		if (t->slot[i].count) {
			size_t at = model_at(m, t->slot[i].key);

			assert_true(at < m->n && !m->seen[at]);
			m->seen[at] = true;
			assert_same(&t->slot[i], &m->e[at]);
			assert_ptr_equal(mem_regions_find(t, t->slot[i].key), &t->slot[i]);
			n++;
		}
	}
	assert_int_equal(n, m->n);
}

/* ---- random operations ---- */

struct keys {
	const char *name;
	uint64_t first, step, range; /* of keys: first + step * [0, range) */
	size_t live;		     /* entries around which their number moves */
};

static struct mem_region region_of(uint64_t key, uint64_t *seed)
{
	return (struct mem_region){ .key = key,
				    .bytes = random_next(seed),
				    .owner = random_next(seed) % OWNERS,
				    .epoch = random_next(seed) % EPOCHS,
				    .row = (uint32_t)random_next(seed) % 8,
				    .count = 1 + (uint32_t)random_next(seed) % 5 };
}

static void add_or_take(struct mem_regions *t, struct model *m, const struct keys *k,
			uint64_t *seed)
{
	uint64_t key = k->first + k->step * (random_next(seed) % k->range);
	bool there = model_has(m, key),
	     adding = m->n < 2 * k->live * (random_next(seed) % 256) / 256;
	struct mem_region got;

	if (there && !adding) {
		assert_true(mem_regions_take(t, key, &got));
		assert_same(&got, &m->e[model_at(m, key)]);
		model_remove(m, key);
	} else if (!there && adding && m->n < LIVE_MAX) {
		got = region_of(key, seed);
		assert_int_equal(mem_regions_add(t, &got), 0);
		model_add(m, &got);
	} else if (!there) {
		got.key = 7;
		assert_false(mem_regions_take(t, key, &got));
		assert_int_equal(got.key, 7);
	}
}

static void find_one(const struct mem_regions *t, const struct model *m, const struct keys *k,
		     uint64_t *seed)
{
	uint64_t key = k->first + k->step * (random_next(seed) % k->range);
	const struct mem_region *r = mem_regions_find(t, key);

	assert_int_equal(r != NULL, model_has(m, key));
	if (r) {
		assert_same(r, &m->e[model_at(m, key)]);
	}
}

/* Takes all entries of an owner until that epoch: exactly those of the model. */
static void take_owner(struct mem_regions *t, struct model *m, uint64_t owner, uint64_t epoch)
{
	struct mem_region got;
	size_t cursor = 0;

	while (mem_regions_take_owned(t, owner, epoch, &cursor, &got)) {
		size_t i = model_at(m, got.key);

		assert_int_equal(got.owner, owner);
		assert_true(got.epoch <= epoch);
		assert_true(i < m->n);
		assert_same(&got, &m->e[i]);
		model_remove(m, got.key);
	}
	for (size_t i = 0; i < m->n; i++) {
		assert_true(m->e[i].owner != owner || m->e[i].epoch > epoch);
	}
}

/* The same for a range of keys. */
static void take_range(struct mem_regions *t, struct model *m, uint64_t first, uint64_t last)
{
	struct mem_region got;
	size_t cursor = 0;

	while (mem_regions_take_between(t, first, last, &cursor, &got)) {
		size_t i = model_at(m, got.key);

		assert_true(got.key >= first && got.key <= last);
		assert_true(i < m->n);
		assert_same(&got, &m->e[i]);
		model_remove(m, got.key);
	}
	for (size_t i = 0; i < m->n; i++) {
		assert_true(m->e[i].key < first || m->e[i].key > last);
	}
}

static void random_operations(const struct keys *k, unsigned operations, uint64_t seed)
{
	static struct model m;
	struct mem_regions t = { 0 };

	print_message("%s: seed %#lx\n", k->name, seed);
	memset(&m, 0, sizeof(m));
	for (unsigned i = 0; i < operations; i++) {
		uint64_t what = random_next(&seed) % 1024;

		if (what == 0) {
			take_owner(&t, &m, random_next(&seed) % OWNERS,
				   random_next(&seed) % EPOCHS);
		} else if (what == 1) {
			uint64_t first = k->first + k->step * (random_next(&seed) % k->range);

			take_range(&t, &m, first, first + k->step * (k->range / 16));
		} else if (what < 300) {
			find_one(&t, &m, k, &seed);
		} else {
			add_or_take(&t, &m, k, &seed);
		}
		if (i % 512 == 0) {
			check_all(&t, &m);
		}
	}
	check_all(&t, &m);
	for (uint64_t owner = 0; owner < OWNERS; owner++) {
		take_owner(&t, &m, owner, UINT64_MAX);
	}
	assert_int_equal(m.n, 0);
	check_all(&t, &m);
	mem_regions_finish(&t);
	assert_null(t.slot);
	assert_null(mem_regions_find(&t, k->first));
}

static void random_operations_agree_with_a_sorted_array(void **state)
{
	static const struct keys keys[] = {
		{ "2 MiB aligned", 0x7f0000000000, 2u << 20, 4000, 1500 },
		{ "handles", 1, 1, 4000, 1500 },
		{ "512 byte aligned", 0x7f4000000000, 512, 6000, 2000 },
		{ "1 GiB aligned: one chain", 0x10000000000, 1u << 30, 300, 100 },
		{ "few in the smallest table", 0x7f0000000000, 2u << 20, 60, 20 },
	};

	for (size_t i = 0; i < ARRAY_SIZE(keys); i++) {
		random_operations(&keys[i], 200000, 0x5deece66d + i);
	}
}

/* ---- chains ---- */

/* Returns where a key lies that has the table for itself. */
static size_t home_of(uint64_t key)
{
	struct mem_region r = { .key = key, .count = 1 };
	struct mem_regions t = { 0 };
	size_t home;

	assert_int_equal(mem_regions_add(&t, &r), 0);
	home = (size_t)(mem_regions_find(&t, key) - t.slot);
	assert_int_equal(t.size, 64);
	mem_regions_finish(&t);
	return home;
}

/* Stores n keys whose home is in the last slots of a table of 64, in a random order of homes. */
static void keys_at_the_end(uint64_t *key, unsigned n, size_t slots)
{
	uint64_t next = 1;

	for (unsigned i = 0; i < n; next += 977) {
		if (home_of(next) >= 64 - slots) {
			key[i++] = next;
		}
	}
}

/* A chain wraps around the end of the table; entries leave it in random orders. */
static void chains_survive_removal_across_the_end(void **state)
{
	static struct model m;
	uint64_t key[40], seed = 0xbadc0de;

	for (unsigned round = 0; round < 600; round++) {
		struct mem_regions t = { 0 };
		unsigned n = 2 + round % 39, taken = 0;

		memset(&m, 0, sizeof(m));
		if (round % 50 == 0) {
			keys_at_the_end(key, ARRAY_SIZE(key), 1 + round / 50);
		}
		for (unsigned i = 0; i < n; i++) {
			struct mem_region r = region_of(key[i], &seed);

			assert_int_equal(mem_regions_add(&t, &r), 0);
			model_add(&m, &r);
		}
		assert_int_equal(t.size, 64);
		for (; m.n && taken < n; taken++) {
			struct mem_region got;
			size_t i = random_next(&seed) % m.n;

			if (taken % 8 == 7) {
				take_owner(&t, &m, m.e[i].owner, UINT64_MAX);
			} else {
				assert_true(mem_regions_take(&t, m.e[i].key, &got));
				assert_same(&got, &m.e[i]);
				model_remove(&m, got.key);
			}
			check_all(&t, &m);
		}
		assert_int_equal(t.n, 0);
		mem_regions_finish(&t);
	}
}

/* All of an owner are taken in one pass although entries of both owners move across the end. */
static void an_owners_entries_are_taken_in_one_pass(void **state)
{
	static struct model m;
	uint64_t key[48];

	keys_at_the_end(key, ARRAY_SIZE(key), 2);
	for (unsigned pattern = 1; pattern < 256; pattern++) {
		struct mem_regions t = { 0 };

		memset(&m, 0, sizeof(m));
		for (unsigned i = 0; i < ARRAY_SIZE(key); i++) {
			struct mem_region r = { .key = key[i],
						.owner = pattern >> (i * 5 % 8) & 1,
						.count = 1 };

			assert_int_equal(mem_regions_add(&t, &r), 0);
			model_add(&m, &r);
		}
		take_owner(&t, &m, 1, UINT64_MAX);
		check_all(&t, &m);
		take_range(&t, &m, 0, UINT64_MAX);
		check_all(&t, &m);
		assert_int_equal(m.n, 0);
		mem_regions_finish(&t);
	}
}

/* ---- growth ---- */

static void growth_keeps_a_quarter_of_the_slots_free(void **state)
{
	struct mem_regions t = { 0 };

	for (uint64_t i = 0; i < 100000; i++) {
		struct mem_region r = { .key = i * (2u << 20), .bytes = i, .count = 1 };

		assert_int_equal(mem_regions_add(&t, &r), 0);
		assert_true(t.n * 4 <= t.size * 3);
	}
	assert_int_equal(t.n, 100000);
	assert_int_equal(t.size, 262144);
	for (uint64_t i = 0; i < 100000; i++) {
		assert_int_equal(mem_regions_find(&t, i * (2u << 20))->bytes, i);
		assert_null(mem_regions_find(&t, i * (2u << 20) + 1));
	}
	mem_regions_finish(&t);
}

/* Growth that fails changes nothing. A removal makes room for an addition without growth. */
static void out_of_memory_loses_nothing(void **state)
{
	struct mem_region r = { .key = 1, .count = 1 }, got;
	struct mem_regions t = { 0 };

	no_memory = true;
	assert_int_equal(mem_regions_add(&t, &r), -ENOMEM);
	assert_null(t.slot);
	assert_int_equal(t.size, 0);
	assert_null(mem_regions_find(&t, 1));
	no_memory = false;
	for (; r.key <= 48; r.key++) {
		assert_int_equal(mem_regions_add(&t, &r), 0);
	}
	no_memory = true;
	assert_int_equal(mem_regions_add(&t, &r), -ENOMEM);
	assert_int_equal(t.n, 48);
	assert_null(mem_regions_find(&t, 49));
	for (uint64_t key = 1; key <= 48; key++) {
		assert_int_equal(mem_regions_find(&t, key)->key, key);
	}
	assert_true(mem_regions_take(&t, 5, &got));
	assert_int_equal(mem_regions_add(&t, &got), 0);
	no_memory = false;
	assert_int_equal(mem_regions_add(&t, &r), 0);
	assert_int_equal(t.size, 128);
	assert_int_equal(t.n, 49);
	mem_regions_finish(&t);
}

static void an_empty_table_has_nothing(void **state)
{
	struct mem_regions t = { 0 };
	struct mem_region got;
	size_t cursor = 0;

	assert_null(mem_regions_find(&t, 0));
	assert_false(mem_regions_take(&t, 0, &got));
	assert_false(mem_regions_take_owned(&t, 0, UINT64_MAX, &cursor, &got));
	assert_false(mem_regions_take_between(&t, 0, UINT64_MAX, &cursor, &got));
	mem_regions_finish(&t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_empty_table_has_nothing),
		cmocka_unit_test(random_operations_agree_with_a_sorted_array),
		cmocka_unit_test(chains_survive_removal_across_the_end),
		cmocka_unit_test(an_owners_entries_are_taken_in_one_pass),
		cmocka_unit_test(growth_keeps_a_quarter_of_the_slots_free),
		cmocka_unit_test(out_of_memory_loses_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
