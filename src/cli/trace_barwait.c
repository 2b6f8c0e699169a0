/* barwait: how long warps wait at barriers and for copies, in all and by line. */
#include "cli/trace.h"

#define KINDS 3u

enum { WAIT_NS = CLI_SITE_WORDS, BY_KIND, WORDS = BY_KIND + KINDS };

static const char *const fields[] = { "count", "wait_ns", "blocks", "mbarriers", "copies", NULL };
static const struct cli_trace_map sites = { "sites", CLI_TRACE_ROWS, fields, CLI_TRACE_PLACED };
static const struct cli_trace_map waits = { "waits", CLI_FINE_BUCKETS, NULL };

/* A line may have barriers of several kinds. */
static const char *kind_of(const uint64_t by_kind[KINDS])
{
	static const char *const names[KINDS] = { "block", "mbarrier", "copies" };
	const char *name = NULL;

	for (unsigned k = 0; k < KINDS; k++) {
		if (by_kind[k]) {
			name = name ? "several" : names[k];
		}
	}
	return name ? name : "unknown";
}

static void add_site(json_t *s, const uint64_t *at)
{
	json_object_set_new(s, "kind", json_string(kind_of(at + BY_KIND)));
	json_object_set_new(s, "wait_ns", json_integer((json_int_t)at[WAIT_NS]));
}

static json_t *figures(const struct cli_trace_values *v)
{
	/* The longest is not counted, so the histogram's bound stands for it. */
	return json_pack("{s:o, s:o}", "waits", cli_trace_durations(v->at[1], UINT64_MAX), "sites",
			 cli_trace_sites(v->rows, v->at[0], WORDS, add_site));
}

static void add_cells(struct cli_table *t, const json_t *s, uint64_t max)
{
	uint64_t ns = cli_u64(s, "wait_ns"), count = cli_u64(s, "count");
	char text[24];

	cli_table_cell(t, "%s", cli_text(s, "kind"));
	cli_table_cell(t, "%s", cli_duration(text, count ? ns / count : 0));
	cli_table_cell(t, "%s", cli_duration(text, ns));
	cli_trace_bar(t, ns, max);
}

static void print(const struct cli *c, const json_t *f)
{
	static const char *const heads[] = { "KIND", "MEAN", "SUM", "SHARE", NULL };

	if (json_array_size(json_object_get(f, "sites"))) {
		cli_trace_print_sites(c, json_object_get(f, "sites"), "wait_ns", heads, add_cells);
		putchar('\n');
	}
	cli_trace_print_durations(c, json_object_get(f, "waits"), "wait");
}

const struct cli_trace_tool cli_trace_barwait = {
	.name = "barwait",
	.doc = "how long warps wait at barriers of their block, at mbarriers and for copies",
	.forms = "PTX",
	.maps = { &sites, &waits },
	.figures = figures,
	.print = print,
};
