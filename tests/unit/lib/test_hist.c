/* Buckets of duration histograms: eight in each power of two, by literals and by their bounds. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "proto/pages.h"

static void buckets_are_eighths_of_powers_of_two(void **state)
{
	static const struct {
		uint64_t ns;
		unsigned bucket;
	} cases[] = {
		{ 0, 0 },
		{ 1, 1 },
		{ 7, 7 },
		{ 8, 8 },
		{ 9, 9 },
		{ 15, 15 },
		{ 16, 16 },
		{ 17, 16 },
		{ 18, 17 },
		{ 31, 23 },
		{ 32, 24 },
		{ 35, 24 },
		{ 36, 25 },
		{ 1000, 63 },
		{ 1023, 63 },
		{ 1024, 64 },
		{ 1151, 64 },
		{ 1152, 65 },
		{ 1000000, 143 },
		{ UINT64_C(1) << 49, 376 },
		{ (UINT64_C(1) << 50) - 1, 383 },
		{ UINT64_C(1) << 50, 383 }, /* the last one has everything above */
		{ UINT64_MAX, 383 },
	};

	for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		assert_int_equal(proto_hist_bucket(cases[i].ns), cases[i].bucket);
	}
}

static void floors_are_the_least_durations_of_their_buckets(void **state)
{
	assert_int_equal(proto_hist_floor(0), 0);
	assert_int_equal(proto_hist_floor(7), 7);
	assert_int_equal(proto_hist_floor(8), 8);
	assert_int_equal(proto_hist_floor(17), 18);
	assert_int_equal(proto_hist_floor(65), 1152);
	for (unsigned b = 1; b < 384; b++) {
		assert_int_equal(proto_hist_bucket(proto_hist_floor(b)), b);
		assert_int_equal(proto_hist_bucket(proto_hist_floor(b) - 1), b - 1);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(buckets_are_eighths_of_powers_of_two),
		cmocka_unit_test(floors_are_the_least_durations_of_their_buckets),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
