/* The histogram of tools: the numbering of tracers/fine.h and of the printer agree, and percentiles
 * are those of the values to a 16th. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cli/trace.h"

/* The program's own function, compiled for the host; its header declares helpers of eBPF. */
uint32_t fine_bucket_of(uint64_t v);

/* For messages about connections, of which there are none here. */
const char *cli_verb_name(const struct cli *c, char *out, size_t cap)
{
	(void)c;
	snprintf(out, cap, "test");
	return out;
}

static uint64_t durations(const uint64_t *fine, uint64_t max, const char *name)
{
	json_t *d = cli_trace_durations(fine, max);
	uint64_t n = cli_u64(d, name);

	json_decref(d);
	return n;
}

static void one_value_is_in_its_bucket(void **state)
{
	static uint64_t fine[CLI_FINE_BUCKETS];
	uint32_t last = 0;

	(void)state;
	for (unsigned e = 0; e < 48; e++) {
		for (unsigned step = 0; step < 64; step++) {
			uint64_t v = (UINT64_C(1) << e) + (((UINT64_C(1) << e) * step) >> 6);
			uint32_t b = fine_bucket_of(v);

			assert_in_range(b, last, CLI_FINE_BUCKETS - 1);
			last = b;
			fine[b] = 1;
			/* max is held to the bucket, so these are its bounds */
			assert_true(durations(fine, 0, "max_ns") <= v);
			assert_true(durations(fine, UINT64_MAX, "max_ns") >= v);
			assert_true(durations(fine, UINT64_MAX, "p50_ns") -
					    durations(fine, 0, "max_ns") <=
				    v / 16);
			assert_int_equal(durations(fine, v, "max_ns"), v);
			assert_int_equal(durations(fine, v, "count"), 1);
			fine[b] = 0;
		}
	}
	assert_int_equal(last, CLI_FINE_BUCKETS - 1);
	assert_int_equal(fine_bucket_of(0), 0);
	assert_int_equal(fine_bucket_of(UINT64_MAX), CLI_FINE_BUCKETS - 1);
}

static int compare(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

static void percentiles_are_those_of_the_values(void **state)
{
	static const struct {
		const char *name;
		unsigned permille;
	} all[] = { { "p50_ns", 500 }, { "p90_ns", 900 }, { "p99_ns", 990 } };
	uint64_t values[1000], fine[CLI_FINE_BUCKETS] = { 0 }, seed = 1;

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(values); i++) {
		seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407;
		values[i] = (seed >> 33) >> (seed >> 60);
		fine[fine_bucket_of(values[i])]++;
	}
	qsort(values, ARRAY_SIZE(values), sizeof(values[0]), compare);
	for (unsigned i = 0; i < ARRAY_SIZE(all); i++) {
		uint64_t exact = values[all[i].permille - 1];
		uint64_t p = durations(fine, values[999], all[i].name);

		assert_in_range(p, exact, exact + exact / 16);
	}
	assert_int_equal(durations(fine, values[999], "max_ns"), values[999]);
	assert_int_equal(durations(fine, 0, "count"), 1000);
}

static void rows_are_powers_of_two(void **state)
{
	uint64_t fine[CLI_FINE_BUCKETS] = { 0 };
	json_t *d, *b, *buckets;

	(void)state;
	fine[fine_bucket_of(0)] = 1;
	fine[fine_bucket_of(1024)] = 2;
	fine[fine_bucket_of(2047)] = 3;
	fine[fine_bucket_of(2048)] = 4;
	d = cli_trace_durations(fine, 2048);
	buckets = json_object_get(d, "buckets");
	assert_int_equal(json_array_size(buckets), 3);
	b = json_array_get(buckets, 1);
	assert_int_equal(cli_u64(b, "low_ns"), 1024);
	assert_int_equal(cli_u64(b, "high_ns"), 2047);
	assert_int_equal(cli_u64(b, "count"), 5);
	assert_int_equal(cli_u64(json_array_get(buckets, 2), "low_ns"), 2048);
	json_decref(d);
	memset(fine, 0, sizeof(fine));
	assert_int_equal(durations(fine, 7, "max_ns"), 0);
	assert_int_equal(durations(fine, 7, "p99_ns"), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(one_value_is_in_its_bucket),
		cmocka_unit_test(percentiles_are_those_of_the_values),
		cmocka_unit_test(rows_are_powers_of_two),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
