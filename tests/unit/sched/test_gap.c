/* The two estimates that only compute: the close delay that would have cost least, and the period
 * of a latency program's requests. Figures are literals. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "sched/gap.h"
#include "sched/rhythm.h"

#define US UINT64_C(1000)
#define MS UINT64_C(1000000)

static struct sched_gaps gaps_of(unsigned n, uint64_t gap_ns)
{
	struct sched_gaps g;

	memset(&g, 0, sizeof(g));
	for (unsigned i = 0; i < n; i++) {
		sched_gaps_add(&g, gap_ns);
	}
	return g;
}

static void four_pauses_are_needed(void **state)
{
	struct sched_gaps g = gaps_of(3, 10 * US);

	assert_int_equal(sched_gaps_best(&g, 600 * US), 0);
	sched_gaps_add(&g, 10 * US);
	assert_int_equal(sched_gaps_best(&g, 600 * US), 10 * US);
}

/* A pause of exactly a bound belongs to it, one of a nanosecond more to the next. */
static void delays_are_bounds_of_buckets(void **state)
{
	static const uint64_t cases[][2] = {
		{ 0, 5000 },	      { 5000, 5000 },	    { 5001, 7100 },
		{ 40000, 40000 },     { 40001, 56600 },	    { 905000, 905000 },
		{ 1280000, 1280000 }, { 1280001, 2000000 }, { 2000000, 2000000 },
	};
	struct sched_gaps g;

	for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		g = gaps_of(20, cases[i][0]);
		assert_int_equal(sched_gaps_best(&g, 100 * MS), cases[i][1]);
	}
	g = gaps_of(20, 2 * MS + 1); /* longer than any delay */
	assert_int_equal(sched_gaps_best(&g, 100 * MS), 0);
}

/* n short pauses of 10 us and m of 1 s: waiting 10 us costs (n + m) * 10 us + m reopenings, closing
 * at once n + m reopenings. So it pays off when n reopenings cost more than (n + m) * 10 us. */
static void delay_pays_off_against_reopenings(void **state)
{
	struct sched_gaps g = gaps_of(10, 10 * US);

	for (unsigned i = 0; i < 40; i++) {
		sched_gaps_add(&g, 1000 * MS);
	}
	assert_int_equal(sched_gaps_best(&g, 50 * US - 1), 0);
	assert_int_equal(sched_gaps_best(&g, 50 * US), 0); /* as dear */
	assert_int_equal(sched_gaps_best(&g, 50 * US + 1), 10 * US);
}

/* Of two kinds of short pauses the delay covers the longer one if that is worth it. */
static void longer_pauses_are_covered_if_they_are_many(void **state)
{
	struct sched_gaps g = gaps_of(30, 20 * US);

	for (unsigned i = 0; i < 30; i++) {
		sched_gaps_add(&g, 320 * US);
	}
	/* 30 * 20 + 30 * (20 + r) against 30 * 20 + 30 * 320 */
	assert_int_equal(sched_gaps_best(&g, 299 * US), 20 * US);
	assert_int_equal(sched_gaps_best(&g, 301 * US), 320 * US);
}

static void old_pauses_lose_weight(void **state)
{
	struct sched_gaps g = gaps_of(255, 10 * US);

	assert_int_equal(g.total, 255);
	sched_gaps_add(&g, 10 * US);
	assert_int_equal(g.total, 128); /* halved */
	assert_int_equal(g.n[2], 128);
	for (unsigned i = 0; i < 2000; i++) {
		sched_gaps_add(&g, 160 * US);
	}
	assert_int_equal(g.n[2], 0);
	assert_int_equal(sched_gaps_best(&g, 600 * US), 160 * US);
}

/* ---- rhythm ---- */

/* Opens n requests, each that long after the one before. */
static void open_all(struct sched_rhythm_log *r, uint64_t *at, unsigned n, uint64_t gap)
{
	for (unsigned i = 0; i < n; i++) {
		*at += gap;
		sched_rhythm_add(r, *at);
	}
}

static uint64_t period_of(const struct sched_rhythm_log *r)
{
	uint64_t spread;

	return sched_rhythm_period(r, &spread);
}

static void eight_gaps_are_needed(void **state)
{
	struct sched_rhythm_log r = { 0 };
	uint64_t at = 1000 * MS, spread = 0;

	open_all(&r, &at, 8, 10 * MS); /* seven gaps */
	assert_int_equal(period_of(&r), 0);
	open_all(&r, &at, 1, 10 * MS);
	assert_int_equal(sched_rhythm_period(&r, &spread), 10 * MS);
	assert_int_equal(spread, 10 * MS / 16);
}

static void periods_are_2_ms_and_longer(void **state)
{
	struct sched_rhythm_log r = { 0 };
	uint64_t at = 1000 * MS;

	open_all(&r, &at, 20, 2 * MS);
	assert_int_equal(period_of(&r), 2 * MS);
	open_all(&r, &at, 20, 2 * MS - 1);
	assert_int_equal(period_of(&r), 0);
	open_all(&r, &at, 20, 2000 * MS); /* the longest gap */
	assert_int_equal(period_of(&r), 2000 * MS);
	open_all(&r, &at, 1, 2000 * MS + 1); /* starts over */
	assert_int_equal(period_of(&r), 0);
	open_all(&r, &at, 7, 5 * MS);
	assert_int_equal(period_of(&r), 0);
	open_all(&r, &at, 1, 5 * MS);
	assert_int_equal(period_of(&r), 5 * MS);
}

/* The spread is a sixteenth, at least 0.1 ms; three quarters of the gaps must lie within. */
static void three_quarters_must_be_near(void **state)
{
	struct sched_rhythm_log r;
	uint64_t at, spread;

	for (int later = -1; later < 2; later += 2) {
		for (uint64_t off = 1 * MS; off <= 1 * MS + 1; off++) { /* 16 ms / 16 */
			r = (struct sched_rhythm_log){ 0 };
			at = 1000 * MS;
			open_all(&r, &at, 13, 16 * MS); /* twelve gaps of sixteen */
			open_all(&r, &at, 4, later > 0 ? 16 * MS + off : 16 * MS - off);
			assert_int_equal(period_of(&r), 16 * MS); /* three quarters are exact */
			r = (struct sched_rhythm_log){ 0 };
			open_all(&r, &at, 12, 16 * MS); /* eleven, and five */
			open_all(&r, &at, 5, later > 0 ? 16 * MS + off : 16 * MS - off);
			assert_int_equal(sched_rhythm_period(&r, &spread) != 0, off == 1 * MS);
		}
	}
	r = (struct sched_rhythm_log){ 0 };
	at = 1000 * MS;
	open_all(&r, &at, 17, 1 * MS);
	(void)sched_rhythm_period(&r, &spread);
	assert_int_equal(spread, 100 * US);
}

/* Whatever their order, and with equal ones among them. */
static void period_is_the_median_of_the_gaps(void **state)
{
	static const uint64_t orders[][9] = {
		{ 5070, 5010, 5050, 5030, 5000, 5060, 5020, 5040, 5080 },
		{ 5080, 5070, 5060, 5050, 5040, 5030, 5020, 5010, 5000 },
		{ 5000, 5010, 5020, 5030, 5040, 5050, 5060, 5070, 5080 },
		{ 5090, 5040, 5040, 5010, 5040, 5000, 5090, 5040, 5080 },
	};

	for (unsigned i = 0; i < sizeof(orders) / sizeof(orders[0]); i++) {
		struct sched_rhythm_log r = { 0 };
		uint64_t at = 1000 * MS;

		sched_rhythm_add(&r, at);
		for (unsigned k = 0; k < 9; k++) {
			at += orders[i][k] * US;
			sched_rhythm_add(&r, at);
		}
		assert_int_equal(period_of(&r), 5040 * US);
	}
}

static void only_the_last_sixteen_count(void **state)
{
	struct sched_rhythm_log r = { 0 };
	uint64_t at = 1000 * MS;

	open_all(&r, &at, 17, 10 * MS);
	open_all(&r, &at, 11, 30 * MS);
	assert_int_equal(period_of(&r), 0); /* neither has three quarters */
	open_all(&r, &at, 1, 30 * MS);
	assert_int_equal(period_of(&r), 30 * MS);
	sched_rhythm_add(&r, at); /* at the same time, or earlier: no gap */
	sched_rhythm_add(&r, at - MS);
	at -= MS;
	open_all(&r, &at, 3, 30 * MS);
	assert_int_equal(period_of(&r), 30 * MS);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(four_pauses_are_needed),
		cmocka_unit_test(delays_are_bounds_of_buckets),
		cmocka_unit_test(delay_pays_off_against_reopenings),
		cmocka_unit_test(longer_pauses_are_covered_if_they_are_many),
		cmocka_unit_test(old_pauses_lose_weight),
		cmocka_unit_test(eight_gaps_are_needed),
		cmocka_unit_test(periods_are_2_ms_and_longer),
		cmocka_unit_test(three_quarters_must_be_near),
		cmocka_unit_test(period_is_the_median_of_the_gaps),
		cmocka_unit_test(only_the_last_sixteen_count),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
