/* hang: where the warps stand that run now, by the last line that they came to. */
#include "cli/trace.h"

#include <stdlib.h>

#define SLOTS 16384u
#define PLACES 8192u /* tracers/hang.bpf.c */
#define ROWS 20u

enum { OWNER, BLOCK, BEGIN_NS, TIME_NS, WARP, LANES, KIND, PLACE, SM, ROW, WORDS };
enum { BEGUN, ENDED, LOST, FIGURES };

static const char *const fields[] = { "owner", "block", "begin_ns", "time_ns", "warp", "lanes",
				      "kind",  "place", "sm",	    "(row)",   NULL };
static const struct cli_trace_map warps = { "warps",
					    SLOTS,
					    fields,
					    CLI_TRACE_STATES,
					    TIME_NS,
					    .places = PLACES,
					    .place_word = PLACE,
					    .row_word = ROW };
static const struct cli_trace_map totals = { "figures", FIGURES, NULL, CLI_TRACE_SUMS, 0 };

static const char *const kinds[] = { "begin", "before barrier", "behind barrier", "branch",
				     "line" };

/* ---- figures ---- */

static const char *kind_of(const uint64_t *w)
{
	return w[KIND] < ARRAY_SIZE(kinds) ? kinds[w[KIND]] : "unknown";
}

static uint64_t age(uint64_t now, uint64_t then)
{
	return (int64_t)(now - then) > 0 ? now - then : 0;
}

/* Orders warps by place, those of one place by block. */
static int by_place(const void *a, const void *b)
{
	static const unsigned order[] = { KIND, ROW, BLOCK, WARP };
	const uint64_t *x = *(const uint64_t *const *)a, *y = *(const uint64_t *const *)b;

	for (unsigned i = 0; i < ARRAY_SIZE(order); i++) {
		if (x[order[i]] != y[order[i]]) {
			return x[order[i]] < y[order[i]] ? -1 : 1;
		}
	}
	return 0;
}

static bool same_place(const uint64_t *a, const uint64_t *b)
{
	return a[KIND] == b[KIND] && a[ROW] == b[ROW];
}

/* Adds where a warp is to an object. */
static json_t *with_place(json_t *to, const struct cli_trace_rows *rows, const uint64_t *w)
{
	json_object_set_new(to, "place", json_string(kind_of(w)));
	cli_trace_row_json(to, rows, w[ROW] ? w[ROW] - 1 : SIZE_MAX);
	return to;
}

/* Of the n warps at one place, in the order of their blocks. */
static json_t *place_json(const struct cli_trace_values *v, const uint64_t *const *at, size_t n)
{
	uint64_t now = v->now_ns, blocks = 0, oldest = 0, newest = UINT64_MAX, longest = 0;

	for (size_t i = 0; i < n; i++) {
		blocks += !i || at[i][BLOCK] != at[i - 1][BLOCK];
		oldest = MAX(oldest, age(now, at[i][TIME_NS]));
		newest = MIN(newest, age(now, at[i][TIME_NS]));
		longest = MAX(longest, age(now, at[i][BEGIN_NS]));
	}
	return with_place(json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "warps", (json_int_t)n,
				    "blocks", (json_int_t)blocks, "block", (json_int_t)at[0][BLOCK],
				    "warp", (json_int_t)at[0][WARP], "newest_ns",
				    (json_int_t)newest, "oldest_ns", (json_int_t)oldest,
				    "running_ns", (json_int_t)longest),
			  v->rows, at[0]);
}

static json_t *warp_json(const struct cli_trace_values *v, const uint64_t *w)
{
	return with_place(json_pack("{s:I, s:I, s:I, s:I, s:I, s:I}", "block", (json_int_t)w[BLOCK],
				    "warp", (json_int_t)w[WARP], "sm", (json_int_t)w[SM], "lanes",
				    (json_int_t)w[LANES], "age_ns",
				    (json_int_t)age(v->now_ns, w[TIME_NS]), "running_ns",
				    (json_int_t)age(v->now_ns, w[BEGIN_NS])),
			  v->rows, w);
}

static int by_number(const void *a, const void *b)
{
	const uint64_t *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

static uint64_t count_blocks(const uint64_t *const *at, size_t n)
{
	uint64_t *blocks = calloc(n + 1, sizeof(*blocks)), different = 0;

	for (size_t i = 0; blocks && i < n; i++) {
		blocks[i] = at[i][BLOCK];
	}
	if (blocks) {
		qsort(blocks, n, sizeof(*blocks), by_number);
	}
	for (size_t i = 0; blocks && i < n; i++) {
		different += !i || blocks[i] != blocks[i - 1];
	}
	free(blocks);
	return different;
}

/* Returns the warps that run, by place. at: room for all. */
static size_t running(const uint64_t *words, const uint64_t **at)
{
	size_t n = 0;

	for (size_t i = 0; i < SLOTS; i++, words += WORDS) {
		if (words[OWNER] && words[TIME_NS]) {
			at[n++] = words;
		}
	}
	qsort(at, n, sizeof(*at), by_place);
	return n;
}

static json_t *figures(const struct cli_trace_values *v)
{
	const uint64_t **at = calloc(SLOTS, sizeof(*at));
	json_t *by = json_array(), *list = json_array();
	size_t n = at ? running(v->at[0], at) : 0;
	uint64_t blocks = count_blocks(at, n);

	for (size_t i = 0, end; i < n; i = end) {
		for (end = i + 1; end < n && same_place(at[i], at[end]); end++) {
		}
		json_array_append_new(by, place_json(v, at + i, end - i));
	}
	for (size_t i = 0; i < n; i++) {
		json_array_append_new(list, warp_json(v, at[i]));
	}
	free(at);
	return json_pack("{s:I, s:I, s:I, s:I, s:I, s:o, s:o}", "running", (json_int_t)n, "blocks",
			 (json_int_t)blocks, "begun", (json_int_t)v->at[1][BEGUN], "ended",
			 (json_int_t)v->at[1][ENDED], "lost", (json_int_t)v->at[1][LOST], "places",
			 by, "warps", list);
}

/* ---- text ---- */

static void add_row(struct cli_table *t, const json_t *p, uint64_t most, bool source)
{
	char newest[24], oldest[24], longest[24];

	cli_table_cell(t, "%s", cli_text(p, "place"));
	cli_trace_row_cells(t, p, source);
	cli_table_cell(t, "%llu", (unsigned long long)cli_u64(p, "warps"));
	cli_table_cell(t, "%llu", (unsigned long long)cli_u64(p, "blocks"));
	cli_table_cell(t, "%llu.%llu", (unsigned long long)cli_u64(p, "block"),
		       (unsigned long long)cli_u64(p, "warp"));
	cli_table_cell(t, "%s", cli_duration(newest, cli_u64(p, "newest_ns")));
	cli_table_cell(t, "%s", cli_duration(oldest, cli_u64(p, "oldest_ns")));
	cli_table_cell(t, "%s", cli_duration(longest, cli_u64(p, "running_ns")));
	cli_trace_bar(t, cli_u64(p, "warps"), most);
}

static int more_warps_first(const void *a, const void *b)
{
	const json_t *const *x = a, *const *y = b;
	uint64_t m = cli_u64(*x, "warps"), n = cli_u64(*y, "warps");

	return (m < n) - (m > n);
}

static void print_places(const struct cli *c, const json_t *places_json)
{
	static const char *const heads[] = { "WARPS",  "BLOCKS", "FIRST",
					     "NEWEST", "OLDEST", "RUNNING" };
	bool source = cli_trace_any_source(places_json);
	size_t n = json_array_size(places_json);
	const json_t **all = calloc(n + 1, sizeof(*all));
	struct cli_table t;

	for (size_t i = 0; all && i < n; i++) {
		all[i] = json_array_get(places_json, i);
	}
	if (all) {
		qsort(all, n, sizeof(*all), more_warps_first);
	}
	cli_table_init(&t);
	cli_table_column(&t, "LAST PLACE", false);
	cli_trace_row_columns(&t, source);
	for (size_t i = 0; i < ARRAY_SIZE(heads); i++) {
		cli_table_column(&t, heads[i], true);
	}
	cli_table_column(&t, "SHARE", false);
	for (size_t i = 0; all && i < MIN(n, (size_t)ROWS); i++) {
		add_row(&t, all[i], cli_u64(all[0], "warps"), source);
	}
	free(all);
	cli_table_print(&t, stdout, c->color_out);
	cli_table_finish(&t);
	if (n > ROWS) {
		printf("%zu more places; --json shows all\n", n - ROWS);
	}
}

static void print(const struct cli *c, const json_t *f)
{
	uint64_t n = cli_u64(f, "running"), blocks = cli_u64(f, "blocks");
	uint64_t ended = cli_u64(f, "ended"), lost = cli_u64(f, "lost");

	if (n) {
		print_places(c, json_object_get(f, "places"));
	}
	printf("%llu warp%s of %llu block%s running, %llu ended\n", (unsigned long long)n,
	       PLURAL(n), (unsigned long long)blocks, PLURAL(blocks), (unsigned long long)ended);
	if (lost) {
		printf("%llu more warp%s not followed: launches of one kernel at the same time, or "
		       "too many warps\n",
		       (unsigned long long)lost, lost == 1 ? " was" : "s were");
	}
}

const struct cli_trace_tool cli_trace_hang = {
	.name = "hang",
	.doc = "where running warps stand: the last barrier, branch or line of each",
	.forms = "PTX",
	.maps = { &warps, &totals },
	.figures = figures,
	.print = print,
};
