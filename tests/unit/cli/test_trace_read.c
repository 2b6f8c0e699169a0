/* What is read of the programs that have a tool: a gbpfd is feigned here. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cli/probe_options.h"
#include "cli/trace.h"

#define ID 7

/* ---- gbpfd: what it answers ---- */

static char tenants[512], counts[512], places[512]; /* elements of arrays */
static char why[512];
static unsigned kernels, refused, falls_back, unseen;
static bool list_fails;
static struct gbpf_hello hello;

static int answer(char **ret, const char *member, const char *elements)
{
	size_t size = strlen(member) + strlen(elements) + 16;

	*ret = malloc(size);
	assert_non_null(*ret);
	snprintf(*ret, size, "{\"%s\": [%s]}", member, elements);
	return 0;
}

int gbpf_probe_list(struct gbpf *g, char **ret_json)
{
	char probe[2048];

	(void)g;
	snprintf(probe, sizeof(probe),
		 "{\"id\": %d, \"state\": \"attached\", \"kernels\": %u, \"waiting\": 0, "
		 "\"refused\": %u, \"why\": \"%s\", \"falls_back\": %u, \"unseen\": %u, "
		 "\"tenants\": [%s]}",
		 ID, kernels, refused, why, falls_back, unseen, tenants);
	return answer(ret_json, "probes", probe);
}

int gbpf_map_drain(struct gbpf *g, const struct gbpf_map *m, char **ret_json)
{
	(void)g;
	(void)m;
	return answer(ret_json, "programs", "");
}

int gbpf_map_dump(struct gbpf *g, const struct gbpf_map *m, const char *after, unsigned limit,
		  int nonzero, char **ret_json)
{
	bool list = strcmp(m->name, "KERNEL_PLACES") == 0;

	(void)g;
	(void)limit;
	assert_null(after);
	assert_int_equal(nonzero, 1);
	assert_int_equal(m->probe, ID);
	return list && list_fails ? -EPIPE : answer(ret_json, "entries", list ? places : counts);
}

const struct gbpf_error *gbpf_last_error(const struct gbpf *g)
{
	static const struct gbpf_error e = { -EPIPE, GBPF_CODE_UNREACHABLE, "", "", "", "" };

	(void)g;
	return &e;
}

const struct gbpf_hello *gbpf_hello(const struct gbpf *g)
{
	(void)g;
	return &hello;
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

/* Of other files of gbpf. */
const char *cli_verb_name(const struct cli *c, char *out, size_t cap)
{
	(void)c;
	snprintf(out, cap, "test");
	return out;
}

json_t *cli_probe_coverage(struct gbpf *g, const char *to, bool look)
{
	(void)g;
	(void)to;
	(void)look;
	return NULL;
}

/* ---- a tool with sums by place, and one with states ---- */

static const char *const sum_fields[] = { "count", NULL };
static const struct cli_trace_map sums = { "sites", CLI_TRACE_ROWS, sum_fields, CLI_TRACE_PLACED,
					   0 };
static const struct cli_trace_tool by_place = { .name = "by_place", .maps = { &sums } };

enum { TIME, PLACE, ROW, WORDS };
static const char *const state_fields[] = { "time", "place", "(row)", NULL };
static const struct cli_trace_map states = {
	"warps", 2,	      state_fields,	   CLI_TRACE_STATES,
	TIME,	 .places = 8, .place_word = PLACE, .row_word = ROW
};
static const struct cli_trace_tool of_now = { .name = "of_now", .maps = { &states } };

static struct cli_trace t;

static int setup(void **state)
{
	(void)state;
	t = (struct cli_trace){ .tool = &by_place, .id = ID };
	hello = (struct gbpf_hello){ .size = sizeof(hello), .generation = 1 };
	tenants[0] = counts[0] = places[0] = why[0] = 0;
	kernels = refused = falls_back = unseen = 0;
	list_fails = false;
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	cli_trace_finish(&t);
	return 0;
}

/* The process 100, as tenant 1, since a time. */
static void connect_at(unsigned ns, bool reattached)
{
	snprintf(tenants, sizeof(tenants),
		 "{\"tenant\": 1, \"pid\": 100, \"ended\": false, \"connected_ns\": %u, "
		 "\"reattached\": %s}",
		 ns, reattached ? "true" : "false");
}

/* It has counted this at place 0. */
static void count(unsigned n)
{
	snprintf(counts, sizeof(counts), "{\"tenant\": 1, \"key\": 0, \"value\": {\"count\": %u}}",
		 n);
}

/* Its place 0 is a site of this kernel. */
static void list(const char *kernel)
{
	snprintf(places, sizeof(places),
		 "{\"tenant\": 1, \"key\": 0, \"value\": {\"kernel\": %d, \"name\": \"%s\", "
		 "\"file\": \"\", \"hook\": 38, \"site\": 0, \"line\": 0}}",
		 kernel[0], kernel);
}

static void read_all(void)
{
	struct cli c = { .quiet = true };

	assert_int_equal(cli_trace_read(&c, &t), CLI_OK);
	assert_false(t.ended);
}

static void add_nothing(json_t *site, const uint64_t *words)
{
	(void)site;
	(void)words;
}

static const char *name_of(const json_t *o)
{
	return json_is_true(json_object_get(o, "others"))    ? "others"
	       : json_is_true(json_object_get(o, "unknown")) ? "unknown"
							     : cli_text(o, "kernel");
}

/* wanted: of each row kernel=count. */
static void assert_rows(const char *wanted)
{
	struct cli_trace_values v;
	json_t *rows, *row;
	char text[256] = "";
	size_t i;

	assert_true(cli_trace_sum(&t, NULL, &v));
	rows = cli_trace_sites(v.rows, v.at[0], 1, add_nothing);
	json_array_foreach(rows, i, row)
	{
		size_t n = strlen(text);

		snprintf(text + n, sizeof(text) - n, "%s%s=%llu", i ? " " : "", name_of(row),
			 (unsigned long long)cli_u64(row, "count"));
	}
	assert_string_equal(text, wanted);
	json_decref(rows);
	cli_trace_values_finish(&v);
}

/* ---- which program has counted ---- */

static void a_program_has_its_rows(void **state)
{
	(void)state;
	connect_at(1000, false);
	count(5);
	list("heat");
	read_all();
	assert_rows("heat=5");
	count(8);
	read_all();
	assert_rows("heat=8");
}

static void a_program_that_executes_another_one_counts_for_itself(void **state)
{
	(void)state;
	connect_at(1000, false);
	count(5);
	list("heat");
	read_all();
	connect_at(2000, false);
	count(6);
	list("access");
	read_all();
	assert_rows("heat=5 access=6");
	read_all();
	assert_rows("heat=5 access=6");
}

/* With its values, which are those of before, too. */
static void a_program_that_comes_back_is_the_same(void **state)
{
	(void)state;
	connect_at(1000, false);
	count(5);
	list("heat");
	read_all();
	hello.generation = 2;
	connect_at(20, true);
	count(7);
	read_all();
	assert_rows("heat=7");
	connect_at(9000, false); /* and executes another one at once */
	count(9);
	list("access");
	read_all();
	assert_rows("heat=7 access=9");
}

static void values_are_of_several_programs_also_when_these_have_ended(void **state)
{
	(void)state;
	connect_at(1000, false);
	count(5);
	list("heat");
	read_all();
	assert_false(cli_trace_several(&t));
	connect_at(2000, false);
	list("access");
	read_all();
	assert_true(cli_trace_several(&t));
	tenants[0] = counts[0] = 0;
	read_all();
	assert_null(t.programs);
	assert_true(cli_trace_several(&t));
}

static void values_are_of_one_program_if_others_have_none(void **state)
{
	(void)state;
	connect_at(1000, false);
	read_all();
	connect_at(2000, false);
	count(5);
	list("heat");
	read_all();
	connect_at(3000, false);
	counts[0] = 0;
	read_all();
	assert_non_null(t.programs);
	assert_false(cli_trace_several(&t));
}

/* Returns the kernel of the state in an entry. Caller frees. */
static json_t *state_json(size_t entry)
{
	const uint64_t *w = t.programs->now.at[0] + entry * WORDS;
	json_t *o = json_object();

	assert_int_not_equal(w[ROW], 0);
	cli_trace_row_json(o, t.rows, w[ROW] - 1);
	return o;
}

static void states_of_a_program_that_executes_another_one_are_at_its_places(void **state)
{
	json_t *o;

	(void)state;
	t.tool = &of_now;
	snprintf(counts, sizeof(counts),
		 "{\"tenant\": 1, \"key\": 1, \"value\": {\"time\": 50, \"place\": 0}}");
	connect_at(1000, false);
	list("heat");
	read_all();
	o = state_json(1);
	assert_string_equal(name_of(o), "heat");
	json_decref(o);
	connect_at(2000, false);
	list("access");
	read_all();
	o = state_json(1);
	assert_string_equal(name_of(o), "access");
	json_decref(o);
}

/* ---- rows without a line ---- */

static void places_that_are_not_listed_are_unknown(void **state)
{
	(void)state;
	connect_at(1000, false);
	count(5);
	read_all();
	assert_rows("unknown=5");
	list("heat");
	read_all();
	assert_rows("heat=5");
}

static void a_list_that_cannot_be_read_is_read_later(void **state)
{
	(void)state;
	connect_at(1000, false);
	count(5);
	list("heat");
	list_fails = true;
	read_all();
	assert_true(t.absent);
	assert_rows("unknown=5");
	list_fails = false;
	read_all();
	assert_false(t.absent);
	assert_rows("heat=5");
}

/* A place that is known is not looked up in every list, but in that of a gbpfd that was restarted.
 */
static void a_known_place_keeps_its_row(void **state)
{
	static const char more[] = "{\"tenant\": 1, \"key\": 0, \"value\": {\"count\": 5}}, "
				   "{\"tenant\": 1, \"key\": 1, \"value\": {\"count\": 2}}";

	(void)state;
	connect_at(1000, false);
	count(5);
	list("heat");
	read_all();
	snprintf(counts, sizeof(counts), "%s", more);
	list("access");
	read_all();
	assert_rows("heat=5 unknown=2");
	hello.generation = 2;
	connect_at(20, true);
	read_all();
	assert_rows("access=5 unknown=2");
}

/* Notes the rows of all figures so far. */
static void note_rest(struct cli_trace_rest *rest, bool total)
{
	struct cli_trace_values v;
	json_t *figures;

	assert_true(cli_trace_sum(&t, NULL, &v));
	figures = json_pack("{s:o}", "sites", cli_trace_sites(v.rows, v.at[0], 1, add_nothing));
	cli_trace_rest_note(rest, figures, total);
	json_decref(figures);
	cli_trace_values_finish(&v);
}

static void places_that_are_listed_later_are_not_unknown_in_the_total(void **state)
{
	struct cli_trace_rest rest = { 0 };

	(void)state;
	connect_at(1000, false);
	count(5);
	read_all();
	note_rest(&rest, false);
	assert_true(rest.unknown);
	assert_true(rest.was_unknown);
	list("heat");
	read_all();
	note_rest(&rest, true);
	assert_false(rest.unknown);
	assert_true(rest.was_unknown);
	assert_false(rest.others);
}

static void states_at_unknown_places_are_counted_once(void **state)
{
	struct cli_trace_rest rest = { 0 };
	json_t *figures = json_pack("{s:[{s:b}]}", "places", "unknown", 1);

	(void)state;
	cli_trace_rest_note(&rest, figures, false);
	assert_true(rest.unknown);
	assert_false(rest.was_unknown);
	json_decref(figures);
}

static void the_total_is_not_an_interval(void **state)
{
	struct cli_trace_rest rest = { 0 };

	(void)state;
	connect_at(1000, false);
	count(5);
	read_all();
	note_rest(&rest, true);
	assert_true(rest.unknown);
	assert_false(rest.was_unknown);
}

static void the_last_place_is_that_of_others(void **state)
{
	(void)state;
	connect_at(1000, false);
	snprintf(counts, sizeof(counts), "{\"tenant\": 1, \"key\": %u, \"value\": {\"count\": 3}}",
		 CLI_TRACE_PLACES - 1);
	read_all();
	assert_rows("others=3");
}

/* ---- the document ---- */

static json_t *document(void)
{
	return cli_trace_document(&t, "train", NULL, 1000000000, true, json_object());
}

static void what_a_program_did_stays_known_when_it_has_ended(void **state)
{
	json_t *d;

	(void)state;
	connect_at(1000, false);
	kernels = 4;
	refused = 1;
	snprintf(why, sizeof(why), "size: no PTX");
	falls_back = 2;
	unseen = 3;
	read_all();
	tenants[0] = why[0] = 0;
	kernels = refused = falls_back = unseen = 0;
	read_all();
	assert_int_equal(t.kernels, 0);
	assert_int_equal(t.falls_back, 2);
	d = document();
	assert_int_equal(cli_u64(d, "kernels"), 4);
	assert_int_equal(cli_u64(d, "refused"), 1);
	assert_string_equal(cli_text(d, "why"), "size: no PTX");
	assert_int_equal(cli_u64(d, "falls_back"), 2);
	assert_int_equal(cli_u64(d, "unseen"), 3);
	assert_string_equal(cli_text(d, "kernel"), "*");
	json_decref(d);
}

static void a_reason_that_is_cut_within_a_character_is_a_text(void **state)
{
	json_t *d;

	(void)state;
	for (size_t i = 0; i < CLI_TRACE_WHY; i += 2) {
		memcpy(why + i, "\xc3\xa9", 3);
	}
	read_all();
	assert_int_equal(strlen(t.why), CLI_TRACE_WHY - 1);
	d = document();
	assert_non_null(d);
	assert_int_equal(strlen(cli_text(d, "why")), CLI_TRACE_WHY - 1);
	json_decref(d);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_program_has_its_rows),
		TEST(a_program_that_executes_another_one_counts_for_itself),
		TEST(a_program_that_comes_back_is_the_same),
		TEST(values_are_of_several_programs_also_when_these_have_ended),
		TEST(values_are_of_one_program_if_others_have_none),
		TEST(states_of_a_program_that_executes_another_one_are_at_its_places),
		TEST(places_that_are_not_listed_are_unknown),
		TEST(a_list_that_cannot_be_read_is_read_later),
		TEST(a_known_place_keeps_its_row),
		TEST(places_that_are_listed_later_are_not_unknown_in_the_total),
		TEST(states_at_unknown_places_are_counted_once),
		TEST(the_total_is_not_an_interval),
		TEST(the_last_place_is_that_of_others),
		TEST(what_a_program_did_stays_known_when_it_has_ended),
		TEST(a_reason_that_is_cut_within_a_character_is_a_text),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
