/* Rows of tools by place, and the text of their lines. */
#include <grp.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "cli/trace.h"

/* For messages about connections, of which there are none here. */
const char *cli_verb_name(const struct cli *c, char *out, size_t cap)
{
	(void)c;
	snprintf(out, cap, "test");
	return out;
}

static char folder[] = "/tmp/gbpf-rows-XXXXXX";

static int setup(void **state)
{
	(void)state;
	return !mkdtemp(folder) || chdir(folder) || chmod(folder, 0755) ? -1 : 0;
}

static int teardown(void **state)
{
	(void)state;
	(void)unlink("a.cu");
	(void)unlink("later.cu");
	(void)unlink("pipe");
	return rmdir(folder);
}

static void write_file(const char *text, size_t bytes)
{
	FILE *f = fopen("a.cu", "w");

	assert_non_null(f);
	assert_int_equal(fwrite(text, 1, bytes, f), bytes);
	assert_int_equal(fclose(f), 0);
	assert_int_equal(chmod("a.cu", 0644), 0);
}

static void assert_line(struct cli_trace_sources *s, const char *file, uint64_t line,
			const char *wanted)
{
	char text[CLI_TRACE_SOURCE_BYTES];

	memset(text, 'x', sizeof(text));
	cli_trace_source(s, file, line, text);
	assert_string_equal(text, wanted);
}

/* In a document of its own. */
static void assert_source(const char *file, uint64_t line, const char *wanted)
{
	struct cli_trace_sources *s = cli_trace_sources_new();

	assert_non_null(s);
	assert_line(s, file, line, wanted);
	cli_trace_sources_free(s);
}

static void a_line_is_without_its_blanks(void **state)
{
	static const char text[] = "first\n\t  y[i] = a *\tx[i];  \r\n\n\x1b[31mred\x7f\xff\nlast";

	(void)state;
	write_file(text, sizeof(text) - 1);
	assert_source("a.cu", 1, "first");
	assert_source("a.cu", 2, "y[i] = a * x[i];");
	assert_source("a.cu", 3, "");
	assert_source("a.cu", 4, "?[31mred??");
	assert_source("a.cu", 5, "last");
	assert_source("a.cu", 6, "");
	assert_source("a.cu", UINT64_MAX, "");
	assert_source("a.cu", 0, "");
}

static void a_long_line_is_cut(void **state)
{
	char text[CLI_TRACE_SOURCE_BYTES * 3], wanted[CLI_TRACE_SOURCE_BYTES];

	(void)state;
	memset(text, 'y', sizeof(text));
	memset(wanted, 'y', sizeof(wanted) - 1);
	wanted[sizeof(wanted) - 1] = 0;
	write_file(text, sizeof(text));
	assert_source("a.cu", 1, wanted);
	assert_source("a.cu", 2, "");
}

/* What is written later, or by others, has no part in it. */
static void a_file_of_a_document_is_read_once(void **state)
{
	struct cli_trace_sources *s = cli_trace_sources_new();

	(void)state;
	assert_non_null(s);
	write_file("first\nsecond\nthird", 18);
	assert_line(s, "a.cu", 2, "second");
	assert_line(s, "later.cu", 1, "");
	write_file("text\n", 5);
	assert_line(s, "a.cu", 1, "first");
	assert_line(s, "a.cu", 3, "third");
	assert_line(s, "a.cu", 4, "");
	assert_int_equal(rename("a.cu", "later.cu"), 0);
	assert_line(s, "later.cu", 1, "");
	assert_int_equal(unlink("later.cu"), 0);
	assert_line(s, "a.cu", 2, "second");
	cli_trace_sources_free(s);
	write_file("text\n", 5);
	assert_source("a.cu", 1, "text");
	assert_line(NULL, "a.cu", 1, "");
}

/* 64 MiB; of these files each line of one byte has 4 bytes more. */
static void the_files_of_a_document_have_a_limit(void **state)
{
	struct cli_trace_sources *s = cli_trace_sources_new();
	size_t bytes = 3u << 20;
	char *text = malloc(bytes), name[24];
	unsigned read = 0;

	(void)state;
	assert_non_null(s);
	assert_non_null(text);
	memset(text, '\n', bytes);
	text[0] = 'x';
	write_file(text, bytes);
	for (unsigned i = 0; i < 9; i++) {
		char line[CLI_TRACE_SOURCE_BYTES];

		snprintf(name, sizeof(name), "%.*s./a.cu", (int)(2 * i), "././././././././././");
		cli_trace_source(s, name, 1, line);
		read += line[0] == 'x';
		cli_trace_source(s, name, bytes, line);
		assert_string_equal(line, "");
	}
	assert_int_equal(read, 4);
	cli_trace_sources_free(s);
	free(text);
}

/* A user without rights is not in the groups that root has here. */
static void root_has_no_groups_while_it_looks(void **state)
{
	gid_t before[1024], group = 4242, now[2];
	int n = getgroups(ARRAY_SIZE(before), before);

	(void)state;
	if (geteuid() != 0 || n < 0 || setgroups(1, &group) < 0) {
		print_message("only root can be in a group of a folder's\n");
		skip();
	}
	write_file("secret\n", 7);
	assert_int_equal(chown(folder, 0, group), 0);
	assert_int_equal(chmod(folder, 0710), 0);
	assert_source("a.cu", 1, "");
	assert_int_equal(chmod(folder, 0711), 0);
	assert_source("a.cu", 1, "secret");
	assert_int_equal(getgroups(2, now), 1);
	assert_int_equal(now[0], group);
	assert_int_equal(setfsuid((uid_t)-1), 0);
	assert_int_equal(setfsgid((gid_t)-1), 0);
	assert_int_equal(chown(folder, 0, 0), 0);
	assert_int_equal(chmod(folder, 0755), 0);
	assert_int_equal(setgroups((size_t)n, before), 0);
}

static void what_is_no_source_file_is_not_read(void **state)
{
	(void)state;
	assert_int_equal(mkfifo("pipe", 0644), 0);
	assert_source("pipe", 1, "");
	assert_source("nothing.cu", 1, "");
	assert_source("", 1, "");
	assert_source("...end/of/a.cu", 1, "");
	assert_source(folder, 1, "");
	assert_source("/dev/zero", 1, "");
	assert_source("/proc/self/environ", 1, "");
}

static void long_files_and_those_of_others_are_not_read(void **state)
{
	(void)state;
	write_file("text\n", 5);
	assert_int_equal(truncate("a.cu", ((off_t)4 << 20)), 0);
	assert_source("a.cu", 1, "text");
	assert_int_equal(truncate("a.cu", ((off_t)4 << 20) + 1), 0);
	assert_source("a.cu", 1, "");
	write_file("secret\n", 7);
	assert_int_equal(chmod("a.cu", 0600), 0);
	assert_source("a.cu", 1, geteuid() == 0 ? "" : "secret");
	assert_int_equal(chmod("a.cu", 0644), 0);
	assert_source("a.cu", 1, "secret");
	assert_int_equal(chmod(folder, 0700), 0);
	assert_source("a.cu", 1, geteuid() == 0 ? "" : "secret");
	assert_int_equal(chmod(folder, 0755), 0);
}

/* ---- rows ---- */

static unsigned row(struct cli_trace_rows *rows, const char *kernel, int hook, const char *file,
		    int line, int site)
{
	json_t *v = json_pack("{s:i, s:i, s:i, s:i, s:s, s:s}", "kernel", kernel[0], "hook", hook,
			      "line", line, "site", site, "name", kernel, "file", file);
	unsigned n = cli_trace_row(rows, v);

	json_decref(v);
	return n;
}

static void equal_lines_share_a_row(void **state)
{
	struct cli_trace_rows *rows = cli_trace_rows_new();

	(void)state;
	assert_non_null(rows);
	assert_int_equal(row(rows, "a", 38, "x.cu", 7, 3), 0);
	assert_int_equal(row(rows, "a", 38, "x.cu", 7, 9), 0); /* another program numbers so */
	assert_int_equal(row(rows, "b", 38, "x.cu", 7, 3), 1);
	assert_int_equal(row(rows, "a", 40, "x.cu", 7, 3), 2);
	assert_int_equal(row(rows, "a", 38, "y.cu", 7, 3), 3);
	assert_int_equal(row(rows, "a", 38, "x.cu", 8, 3), 4);
	assert_int_equal(row(rows, "a", 38, "", 0, 3), 5);
	assert_int_equal(row(rows, "a", 38, "", 0, 4), 6);
	assert_int_equal(row(rows, "a", 38, "", 0, 3), 5);
	cli_trace_rows_free(rows);
}

static void rows_beyond_the_last_are_the_others(void **state)
{
	struct cli_trace_rows *rows = cli_trace_rows_new();
	json_t *o = json_object();

	(void)state;
	assert_non_null(rows);
	for (int i = 0; i < (int)CLI_TRACE_ROWS + 9; i++) {
		assert_int_equal(row(rows, "a", 38, "", 0, i),
				 (unsigned)i < CLI_TRACE_UNKNOWN ? (unsigned)i : CLI_TRACE_OTHERS);
	}
	cli_trace_row_json(o, rows, CLI_TRACE_OTHERS);
	assert_true(json_is_true(json_object_get(o, "others")));
	assert_true(json_is_false(json_object_get(o, "unknown")));
	assert_string_equal(cli_text(o, "kernel"), "");
	cli_trace_row_json(o, rows, CLI_TRACE_UNKNOWN);
	assert_true(json_is_false(json_object_get(o, "others")));
	assert_true(json_is_true(json_object_get(o, "unknown")));
	assert_string_equal(cli_text(o, "kernel"), "");
	cli_trace_row_json(o, rows, CLI_TRACE_UNKNOWN - 1);
	assert_true(json_is_false(json_object_get(o, "others")));
	assert_true(json_is_false(json_object_get(o, "unknown")));
	assert_string_equal(cli_text(o, "kernel"), "a");
	cli_trace_row_json(o, NULL, 0);
	assert_true(json_is_true(json_object_get(o, "others")));
	json_decref(o);
	cli_trace_rows_free(rows);
}

/* What a program wrote to its list. */
static void values_that_make_no_sense_are_rows(void **state)
{
	struct cli_trace_rows *rows = cli_trace_rows_new();
	json_t *v = json_pack("{s:s, s:[i], s:s}", "kernel", "18446744073709551615", "name", 5,
			      "line", "x"),
	       *o = json_object();

	(void)state;
	assert_non_null(rows);
	assert_int_equal(cli_trace_row(rows, v), 0);
	assert_int_equal(cli_trace_row(rows, NULL), 1);
	cli_trace_row_json(o, rows, 0);
	assert_string_equal(cli_text(o, "kernel"), "");
	json_decref(v);
	json_decref(o);
	cli_trace_rows_free(rows);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_line_is_without_its_blanks),
		cmocka_unit_test(a_long_line_is_cut),
		cmocka_unit_test(a_file_of_a_document_is_read_once),
		cmocka_unit_test(the_files_of_a_document_have_a_limit),
		cmocka_unit_test(root_has_no_groups_while_it_looks),
		cmocka_unit_test(what_is_no_source_file_is_not_read),
		cmocka_unit_test(long_files_and_those_of_others_are_not_read),
		cmocka_unit_test(equal_lines_share_a_row),
		cmocka_unit_test(rows_beyond_the_last_are_the_others),
		cmocka_unit_test(values_that_make_no_sense_are_rows),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
