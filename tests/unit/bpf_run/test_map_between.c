/* Interleavings of map operations: at each named point of an operation, other operations run from
 * beginning to end, as another thread's would while the first thread is preempted. The interrupted
 * operation must still give a correct result. Random choices under fixed seeds; tiny maps, so that
 * operations collide. */
#include "map_env.h"

#include <errno.h>

#include "base/clock.h"
#include "base/compiler.h"
#include "base/point.h"
#include "bpf/run/map/ring.h"

#define KEYS 10u
#define STABLE 1000u /* a key that is only looked up */

static struct one_map map;
static uint64_t seed;
static int inside, depth; /* points count while an outer operation runs */
static int64_t there[KEYS];
static int64_t pushed, popped, sum;
static uint64_t next_number = 1;

static uint64_t fake_now = 1000000000000u;

static uint64_t fake_clock(void)
{
	return fake_now;
}

static void some_operation(void);
static void write_one(void);

/* Not at every pass, and a few operations at a time; within them another level, seldom. */
void point_reached(const char *name)
{
	uint64_t r = test_random(&seed);

	(void)name;
	if (!inside || depth >= 2 || r % (depth ? 16 : 3)) {
		return;
	}
	depth++;
	for (uint64_t n = 1 + (r >> 20) % 6; n > 0; n--) {
		some_operation();
	}
	depth--;
}

static void keyed_operation(void)
{
	uint64_t k = test_random(&seed) % KEYS, value = k * 7;
	uint64_t *at;
	int err;

	switch (test_random(&seed) % 3) {
	case 0:
		err = ebpf_map_update(&map.m, &k, &value, 1);
		assert_true(err == 0 || err == -EEXIST || err == -E2BIG || err == -EBUSY);
		there[k] += err == 0;
		break;
	case 1:
		err = ebpf_map_delete(&map.m, &k);
		assert_true(err == 0 || err == -ENOENT || err == -EBUSY);
		there[k] -= err == 0;
		break;
	default:
		k = STABLE;
		at = ebpf_map_lookup(&map.m, &k);
		assert_non_null(at);
		assert_int_equal(*at, STABLE * 7);
	}
}

static void listed_operation(void)
{
	uint64_t value[2] = { next_number, ~next_number };

	if (test_random(&seed) % 2) {
		next_number++;
		if (ebpf_map_push(&map.m, value, 0) == 0) {
			pushed++;
			sum += (int64_t)value[0];
		}
	} else if (ebpf_map_pop(&map.m, value) == 0) {
		assert_int_equal(value[0], ~value[1]);
		popped++;
		sum -= (int64_t)value[0];
	}
}

static void some_operation(void)
{
	if (map.m.key_bytes) {
		keyed_operation();
	} else if (map.m.type == GBPF_MAP_RINGBUF) {
		write_one();
	} else {
		listed_operation();
	}
}

static void check_keys(void)
{
	uint32_t n = 0, seen[KEYS] = { 0 };

	for (uint64_t k = 0; k < KEYS; k++) {
		uint64_t *at = ebpf_map_lookup(&map.m, &k);

		if (map.m.type == GBPF_MAP_HASH) { /* of an LRU_HASH keys go by themselves */
			assert_in_range(there[k], 0, 1);
			assert_int_equal(at != NULL, there[k]);
		}
		if (at) {
			assert_int_equal(*at, k * 7);
			n++;
		}
	}
	for (uint32_t s = 0; s < ebpf_map_slots(&map.m); s++) {
		uint64_t key, value;

		if (ebpf_map_slot(&map.m, s, &key, &value) == 1 && key != STABLE) {
			assert_true(key < KEYS);
			assert_int_equal(value, key * 7);
			assert_int_equal(seen[key]++, 0);
			n--;
		}
	}
	assert_int_equal(n, 0);
}

/* Nothing was lost on the way: as many elements as there should be can be put in. */
static void check_capacity(uint32_t entries)
{
	uint32_t n = 0;

	assert_int_equal(ebpf_map_clear(&map.m), 0);
	for (int round = 0; round < 200 && n < entries; round++) {
		for (uint64_t k = 0; k < entries; k++) {
			uint64_t value[2] = { k * 7, ~(k * 7) };
			int err = map.m.key_bytes ? ebpf_map_update(&map.m, &k, value, 1)
						  : ebpf_map_push(&map.m, value, 0);

			n += err == 0;
		}
		fake_now += 120000000000u;
	}
	assert_int_equal(n, entries);
	assert_int_equal(ebpf_map_clear(&map.m), 0);
}

static void keyed(uint32_t type, uint32_t entries, uint32_t buckets, uint64_t start)
{
	uint64_t stable = STABLE, value = STABLE * 7;

	seed = start;
	map_make(&map, map_def(type, 8, 8, entries + 1, 0));
	map.m.n_slots = MIN(map.m.n_slots, buckets);
	for (int round = 0; round < 60; round++) {
		memset(there, 0, sizeof(there));
		assert_int_equal(ebpf_map_update(&map.m, &stable, &value, 0), 0);
		for (int op = 0; op < 150; op++) {
			inside = 1;
			some_operation();
			inside = 0;
			check_keys();
		}
		check_capacity(entries + 1);
	}
	map_drop(&map);
}

static void hash_tables_fit_together(void **state)
{
	for (uint64_t c = 0; c < 24; c++) {
		keyed(GBPF_MAP_HASH, (const uint32_t[]){ 2, 5, 9, 12 }[c % 4],
		      (const uint32_t[]){ 1, 2, 16 }[c / 4 % 3], 0x9e3779b97f4a7c15u * (c + 1));
	}
}

static void queues_and_stacks_fit_together(void **state)
{
	for (uint64_t c = 0; c < 24; c++) {
		uint32_t entries = (const uint32_t[]){ 1, 2, 3, 7 }[c / 2 % 4];

		seed = 0x2545f4914f6cdd1du * (c + 1);
		map_make(&map, map_def(c % 2 ? GBPF_MAP_STACK : GBPF_MAP_QUEUE, 0, 16, entries, 0));
		for (int round = 0; round < 60; round++) {
			uint64_t value[2];

			pushed = popped = sum = 0;
			for (int op = 0; op < 150; op++) {
				inside = 1;
				some_operation();
				inside = 0;
				assert_int_equal(ebpf_map_count(&map.m), pushed - popped);
			}
			while (ebpf_map_pop(&map.m, value) == 0) {
				assert_int_equal(value[0], ~value[1]);
				sum -= (int64_t)value[0];
				popped++;
			}
			assert_int_equal(pushed, popped);
			assert_int_equal(sum, 0);
			check_capacity(entries);
		}
		map_drop(&map);
	}
}

/* ---- rings: writers between the steps of writers, and a reader ---- */

static struct ebpf_ring_reader reader;
static uint64_t written, got_sum, got_n, dropped;

static void write_one(void)
{
	uint64_t record[20], n = 1 + test_random(&seed) % 20, number = next_number++;

	for (uint64_t i = 0; i < n; i++) {
		record[i] = number;
	}
	if (ebpf_ring_output(&map.m, record, n * 8) == 0) {
		written += number;
	} else {
		dropped++;
	}
}

static void read_some(void)
{
	uint64_t record[20];
	int got = ebpf_ring_read(&map.m, &reader, record, sizeof(record), 1, 0);

	if (got > 0) {
		for (int i = 0; i < got / 8; i++) {
			assert_int_equal(record[i], record[0]);
		}
		got_sum += record[0];
		got_n++;
	}
}

static void ring_operation(void)
{
	write_one();
	if (depth == 0 && test_random(&seed) % 2) {
		int saved = inside;

		inside = 0; /* one reader alone */
		read_some();
		read_some();
		inside = saved;
	}
}

static void rings_fit_together(void **state)
{
	map_make(&map, map_def(GBPF_MAP_RINGBUF, 0, 0, 4096, TENANT));
	ebpf_ring_open(&reader, &map.m);
	seed = 4711;
	for (int op = 0; op < 100000; op++) {
		inside = 1;
		ring_operation();
		inside = 0;
	}
	for (int i = 0; i < 200; i++) {
		read_some();
	}
	assert_int_equal(got_sum, written);
	assert_true(got_n > 50000);
	assert_int_equal(reader.lost | reader.broken, 0);
	map_drop(&map);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(hash_tables_fit_together),
		cmocka_unit_test(queues_and_stacks_fit_together),
		cmocka_unit_test(rings_fit_together),
	};

	clock_set_source(fake_clock);
	return cmocka_run_group_tests_name("between", tests, NULL, NULL);
}
