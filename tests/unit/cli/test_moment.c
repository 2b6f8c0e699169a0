/* Moments that users name, in Central European time: clocks are put forward at 2026-03-29 01:00 UTC
 * and back at 2026-10-25 01:00 UTC. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <time.h>

#include "cli/cli.h"

#define S UINT64_C(1000000000)
#define NOW 1795798800	/* 2026-11-27 18:00 */
#define BACK 1792893600 /* 2026-10-25 03:00, an hour after clocks were put back */

const char *cli_sign(const char *utf8, const char *ascii)
{
	return ascii;
}

static void moments_are_local(void **state)
{
	static const struct {
		uint64_t now;
		const char *text;
		uint64_t s;
	} cases[] = {
		{ NOW, "90s", NOW - 90 },
		{ NOW, "2h", NOW - 7200 },
		{ NOW, "10:00", 1795770000 },
		{ NOW, "22:30:05", 1795728605 },
		{ NOW, "18:00", NOW },
		{ NOW, "18:00:01", NOW - 86400 + 1 },
		{ NOW, "today", 1795734000 },
		{ NOW, "yesterday", 1795647600 },
		{ NOW, "yesterday 22:30:05", 1795728605 },
		{ NOW, "2026-11-27", 1795734000 },
		{ NOW, "2026-11-27T10:00", 1795770000 },
		{ NOW, "2026-11-27 10:00:00.999", 1795770000 },
		{ NOW, "2026-07-01 12:00", 1782900000 },
		/* 02:30 came twice: as a time of day the later, of a day the first */
		{ BACK, "02:30", 1792891800 },
		{ BACK, "2026-10-25 02:30", 1792888200 },
		{ 1792889100, "02:30", 1792888200 }, /* between the two */
		/* 02:30 did not come: as a time of day that of the day before */
		{ 1774778400, "02:30", 1774661400 },
		{ 1774778400, "2026-03-29 02:30", 1774747800 },
		{ NOW, "1970-01-01", 0 },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		uint64_t ns = 1;

		assert_int_equal(cli_parse_moment(cases[i].text, cases[i].now * S, &ns), 0);
		assert_int_equal(ns / S, cases[i].s);
	}
}

/* Clocks go from 2026-10-04 00:00 to 01:00. */
static void a_day_without_midnight_begins_later(void **state)
{
	static const char *const texts[] = { "today", "2026-10-04", "2026-10-04 00:00" };
	uint64_t ns;

	setenv("TZ", "PYT4PYST,M10.1.0/0,M3.4.0/0", 1);
	tzset();
	for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
		assert_int_equal(cli_parse_moment(texts[i], 1791129600 * S, &ns), 0);
		assert_int_equal(ns / S, 1791086400);
	}
	setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3", 1);
	tzset();
}

/* A double beyond the range is not converted, which C does not define. */
static void durations_are_refused_before_they_are_converted(void **state)
{
	static const char *const texts[] = { "1e300",  "1e19",	 "1000000001",
					     "1e300d", "12000d", "inf" };
	uint64_t ns = 7;

	for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
		assert_true(cli_parse_duration(texts[i], S, &ns) < 0);
		assert_int_equal(ns, 7);
	}
	assert_int_equal(cli_parse_duration("999999999", S, &ns), 0);
	assert_int_equal(ns, 999999999 * S);
	assert_int_equal(cli_parse_moment("11000d", NOW * S, &ns), 0);
}

static void what_is_no_moment_is_refused(void **state)
{
	static const char *const texts[] = {
		"",	      "tomorrow",    "24:00",
		"22:60",      "22",	     "2:00",
		"22:00 ",     "2026-02-29",  "2026-04-31",
		"2026-13-01", "2026-00-01",  "2026-01-00",
		"1969-12-31", "2600-01-01",  "2026-1-1",
		"today22:00", "2026-11-27 ", "2026-11-27 25:00",
		"-5m",	      "5 m",
	};
	uint64_t ns;

	for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
		assert_true(cli_parse_moment(texts[i], NOW * S, &ns) < 0);
	}
	assert_int_equal(cli_parse_moment("2028-02-29", NOW * S, &ns), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(moments_are_local),
		cmocka_unit_test(a_day_without_midnight_begins_later),
		cmocka_unit_test(durations_are_refused_before_they_are_converted),
		cmocka_unit_test(what_is_no_moment_is_refused),
	};

	setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3", 1);
	tzset();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
