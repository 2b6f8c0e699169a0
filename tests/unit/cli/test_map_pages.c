/* Pages of a map are read as one answer: a gbpfd is feigned here. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cli/connect.h"

/* ---- gbpfd: what it answers ---- */

static const char *pages[4]; /* NULL: the call fails */
static unsigned asked;	     /* pages so far */
static char calls[128];	     /* of each call: after/limit */

int gbpf_map_dump(struct gbpf *g, const struct gbpf_map *m, const char *after, unsigned limit,
		  int nonzero, char **ret_json)
{
	size_t n = strlen(calls);

	(void)g;
	(void)m;
	assert_int_equal(nonzero, 1);
	assert_true(asked < ARRAY_SIZE(pages));
	snprintf(calls + n, sizeof(calls) - n, "%s%s/%u", n ? " " : "", after ? after : "", limit);
	*ret_json = pages[asked] ? strdup(pages[asked]) : NULL;
	return pages[asked++] ? 0 : -EPIPE;
}

/* Of other calls and files. */
const struct gbpf_error *gbpf_last_error(const struct gbpf *g)
{
	(void)g;
	return NULL;
}

int gbpf_open(struct gbpf **ret, const char *runtime_dir, unsigned flags)
{
	(void)ret;
	(void)runtime_dir;
	(void)flags;
	return -EPIPE;
}

void gbpf_close(struct gbpf *g)
{
	(void)g;
}

void gbpf_set_timeout(struct gbpf *g, unsigned timeout_ms)
{
	(void)g;
	(void)timeout_ms;
}

int gbpf_call(struct gbpf *g, const char *method, const char *params, int fd, char **ret_json)
{
	(void)g;
	(void)method;
	(void)params;
	(void)fd;
	(void)ret_json;
	return -EPIPE;
}

const char *cli_verb_name(const struct cli *c, char *out, size_t cap)
{
	(void)c;
	(void)cap;
	return out;
}

int cli_fail(struct cli *c, int exit_code, const char *code, const char *hint, const char *fmt, ...)
{
	(void)c;
	(void)code;
	(void)hint;
	(void)fmt;
	return exit_code;
}

int cli_fail_report(struct cli *c, int exit_code, const char *what, const struct report *r)
{
	(void)c;
	(void)what;
	(void)r;
	return exit_code;
}

/* ---- tests ---- */

static int setup(void **state)
{
	(void)state;
	memset(pages, 0, sizeof(pages));
	asked = 0;
	calls[0] = 0;
	return 0;
}

/* Reads the map and compares the answer, as text with sorted members; wanted NULL: there is none.
 */
static void assert_dump(uint64_t limit, int code, const char *wanted)
{
	const struct gbpf_map map = { .size = sizeof(map), .name = "counts" };
	json_t *result;
	char *text;

	assert_int_equal(cli_map_dump(NULL, &map, limit, true, &result), code);
	text = result ? json_dumps(result, JSON_COMPACT | JSON_SORT_KEYS) : NULL;
	assert_string_equal(text ? text : "none", wanted ? wanted : "none");
	free(text);
	json_decref(result);
}

static void pages_are_one_answer(void **state)
{
	(void)state;
	pages[0] = "{\"map\":\"counts\",\"entries\":[1,2],\"next\":\"a\",\"dropped\":2}";
	pages[1] = "{\"map\":\"counts\",\"entries\":[],\"next\":\"b\"}";
	pages[2] = "{\"map\":\"counts\",\"entries\":[3],\"dropped\":3}";
	assert_dump(0, 0, "{\"dropped\":5,\"entries\":[1,2,3],\"map\":\"counts\",\"more\":false}");
	assert_string_equal(calls, "/1000 a/1000 b/1000");
}

static void values_that_all_found_room_are_not_mentioned(void **state)
{
	(void)state;
	pages[0] = "{\"entries\":[1],\"next\":\"a\"}";
	pages[1] = "{\"entries\":[2]}";
	assert_dump(0, 0, "{\"entries\":[1,2],\"more\":false}");
}

static void a_limit_ends_the_reading(void **state)
{
	(void)state;
	pages[0] = "{\"entries\":[1,2],\"next\":\"a\"}";
	pages[1] = "{\"entries\":[3],\"next\":\"b\"}";
	assert_dump(3, 0, "{\"entries\":[1,2,3],\"more\":true}");
	assert_string_equal(calls, "/3 a/1");
}

static void a_map_that_ends_at_the_limit_has_no_more(void **state)
{
	(void)state;
	pages[0] = "{\"entries\":[1,2]}";
	assert_dump(2, 0, "{\"entries\":[1,2],\"more\":false}");
}

static void a_page_is_not_as_large_as_the_limit(void **state)
{
	(void)state;
	pages[0] = "{\"entries\":[1],\"next\":\"a\"}";
	pages[1] = "{\"entries\":[2]}";
	assert_dump(1001, 0, "{\"entries\":[1,2],\"more\":false}");
	assert_string_equal(calls, "/1000 a/1000");
}

static void a_part_of_a_map_is_no_answer(void **state)
{
	(void)state;
	pages[0] = "{\"entries\":[1],\"next\":\"a\"}";
	assert_dump(0, -EPIPE, NULL);
	asked = 0;
	pages[1] = "[2]";
	assert_dump(0, 0, NULL);
	assert_int_equal(asked, 2);
}

#define TEST(name) cmocka_unit_test_setup(name, setup)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(pages_are_one_answer),
		TEST(values_that_all_found_room_are_not_mentioned),
		TEST(a_limit_ends_the_reading),
		TEST(a_map_that_ends_at_the_limit_has_no_more),
		TEST(a_page_is_not_as_large_as_the_limit),
		TEST(a_part_of_a_map_is_no_answer),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
