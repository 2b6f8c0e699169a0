/* Log lines: form, levels, length, and journald. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <regex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"

static int file, standard_error;
static char line[4096];

static int set_up(void **state)
{
	setenv("TZ", "XYZ-5:30", 1); /* 5:30 east of Greenwich */
	tzset();
	unsetenv("JOURNAL_STREAM");
	log_setup("test", LOG_LEVEL_DEBUG);
	file = memfd_create("log", MFD_CLOEXEC);
	standard_error = dup(STDERR_FILENO);
	return file >= 0 && standard_error >= 0 ? 0 : -1;
}

static int tear_down(void **state)
{
	close(standard_error);
	return close(file);
}

/* Prints with standard error being the file; what was printed is in line. */
#define PRINT(...)                                                                                 \
	do {                                                                                       \
		assert_int_equal(ftruncate(file, 0), 0);                                           \
		lseek(file, 0, SEEK_SET);                                                          \
		dup2(file, STDERR_FILENO);                                                         \
		log_print(__VA_ARGS__);                                                            \
		dup2(standard_error, STDERR_FILENO);                                               \
		memset(line, 0, sizeof(line));                                                     \
		assert_true(pread(file, line, sizeof(line) - 1, 0) >= 0);                          \
	} while (0)

static void assert_matches(const char *pattern)
{
	regex_t r;

	assert_int_equal(regcomp(&r, pattern, REG_EXTENDED | REG_NOSUB), 0);
	if (regexec(&r, line, 0, NULL, 0) != 0) {
		fail_msg("%s does not match %s", line, pattern);
	}
	regfree(&r);
}

#define STAMP "^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\\.[0-9]{3}\\+0530 "

/* The first test: nothing was set up. */
static void the_default_is_gbpf_and_no_debug_messages(void **state)
{
	file = memfd_create("log", MFD_CLOEXEC);
	standard_error = dup(STDERR_FILENO);
	PRINT(LOG_LEVEL_DEBUG, "quiet");
	assert_string_equal(line, "");
	PRINT(LOG_LEVEL_INFO, "loud");
	assert_matches(" info gbpf: loud\n$");
	tear_down(state);
}

static void a_line_has_time_level_and_name(void **state)
{
	PRINT(LOG_LEVEL_ERROR, "cannot %s: %d", "x", 7);
	assert_matches(STAMP "error test: cannot x: 7\n$");
	PRINT(LOG_LEVEL_WARN, "w");
	assert_matches(STAMP "warning test: w\n$");
	PRINT(LOG_LEVEL_INFO, "i");
	assert_matches(STAMP "info test: i\n$");
	PRINT(LOG_LEVEL_DEBUG, "d");
	assert_matches(STAMP "debug test: d\n$");
}

static void the_time_is_the_wall_clocks(void **state)
{
	uint64_t before = clock_wall_ns() / 1000000u, after, then;
	struct tm tm = { 0 };
	const char *rest;

	PRINT(LOG_LEVEL_INFO, "now");
	after = clock_wall_ns() / 1000000u;
	rest = strptime(line, "%Y-%m-%dT%H:%M:%S", &tm);
	assert_non_null(rest);
	then = (uint64_t)timegm(&tm) * 1000 - 19800 * 1000 + strtoul(rest + 1, NULL, 10);
	assert_true(before <= then && then <= after);
}

static void less_important_lines_are_left_out(void **state)
{
	log_setup("test", LOG_LEVEL_WARN);
	PRINT(LOG_LEVEL_INFO, "i");
	assert_string_equal(line, "");
	PRINT(LOG_LEVEL_WARN, "w");
	assert_matches("w\n$");
	PRINT(LOG_LEVEL_ERROR, "e");
	assert_matches("e\n$");
}

static void journald_gets_the_level_as_a_number(void **state)
{
	setenv("JOURNAL_STREAM", "1:2", 1);
	PRINT(LOG_LEVEL_ERROR, "e");
	assert_string_equal(line, "<3>test: e\n");
	PRINT(LOG_LEVEL_DEBUG, "d");
	assert_string_equal(line, "<7>test: d\n");
}

/* 1023 bytes with the newline. */
static void long_lines_are_cut(void **state)
{
	char text[2000];

	setenv("JOURNAL_STREAM", "1:2", 1); /* nine bytes in front */
	memset(text, 'x', sizeof(text));
	text[1999] = 0;
	PRINT(LOG_LEVEL_INFO, "%s", text);
	assert_int_equal(strlen(line), 1023);
	assert_memory_equal(line, "<6>test: x", 10);
	assert_memory_equal(line + 1020, "xx\n", 3);
	for (size_t n = 1012; n <= 1015; n++) {
		text[n] = 0;
		PRINT(LOG_LEVEL_INFO, "%s", text);
		assert_int_equal(strlen(line), n < 1013 ? n + 10 : 1023);
		assert_int_equal(line[strlen(line) - 1], '\n');
		text[n] = 'x';
	}
}

static void a_closed_log_is_no_error(void **state)
{
	close(STDERR_FILENO);
	log_print(LOG_LEVEL_ERROR, "lost");
	dup2(standard_error, STDERR_FILENO);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_default_is_gbpf_and_no_debug_messages),
		cmocka_unit_test_setup_teardown(a_line_has_time_level_and_name, set_up, tear_down),
		cmocka_unit_test_setup_teardown(the_time_is_the_wall_clocks, set_up, tear_down),
		cmocka_unit_test_setup_teardown(less_important_lines_are_left_out, set_up,
						tear_down),
		cmocka_unit_test_setup_teardown(journald_gets_the_level_as_a_number, set_up,
						tear_down),
		cmocka_unit_test_setup_teardown(long_lines_are_cut, set_up, tear_down),
		cmocka_unit_test_setup_teardown(a_closed_log_is_no_error, set_up, tear_down),
	};

	unsetenv("JOURNAL_STREAM");
	return cmocka_run_group_tests(tests, NULL, NULL);
}
