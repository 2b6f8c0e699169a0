/* hotbranch: conditional branches that divide warps, by line. */
#include "cli/trace.h"

enum { LANES = CLI_SITE_WORDS, TAKEN, DIVERGENT, WORDS };

static const char *const fields[] = { "count", "lanes", "taken", "divergent", NULL };
static const struct cli_trace_map sites = { "sites", CLI_TRACE_ROWS, fields, CLI_TRACE_PLACED };

static void add_site(json_t *s, const uint64_t *at)
{
	json_object_set_new(s, "divergent", json_integer((json_int_t)at[DIVERGENT]));
	json_object_set_new(s, "lanes", json_integer((json_int_t)at[LANES]));
	json_object_set_new(s, "taken", json_integer((json_int_t)at[TAKEN]));
}

static json_t *figures(const struct cli_trace_values *v)
{
	json_t *list = cli_trace_sites(v->rows, v->at[0], WORDS, add_site), *s;
	uint64_t count = 0, divergent = 0;
	size_t i;

	json_array_foreach(list, i, s)
	{
		count += cli_u64(s, "count");
		divergent += cli_u64(s, "divergent");
	}
	return json_pack("{s:I, s:I, s:o}", "count", (json_int_t)count, "divergent",
			 (json_int_t)divergent, "sites", list);
}

static void add_cells(struct cli_table *t, const json_t *s, uint64_t max)
{
	cli_table_cell(t, "%.0f %%",
		       100 * cli_trace_ratio(cli_u64(s, "taken"), cli_u64(s, "lanes")));
	cli_table_cell(t, "%llu", (unsigned long long)cli_u64(s, "divergent"));
	cli_table_cell(t, "%.0f %%",
		       100 * cli_trace_ratio(cli_u64(s, "divergent"), cli_u64(s, "count")));
	cli_trace_bar(t, cli_u64(s, "divergent"), max);
}

static void print(const struct cli *c, const json_t *f)
{
	static const char *const heads[] = { "TAKEN", "DIVERGENT", "OF COUNT", "SHARE", NULL };
	uint64_t count = cli_u64(f, "count"), divergent = cli_u64(f, "divergent");

	if (!count) {
		puts("no conditional branches");
		return;
	}
	cli_trace_print_sites(c, json_object_get(f, "sites"), "divergent", heads, add_cells);
	printf("%llu branch%s of warps, %.1f %% divergent\n", (unsigned long long)count,
	       count == 1 ? "" : "es", 100 * cli_trace_ratio(divergent, count));
}

const struct cli_trace_tool cli_trace_hotbranch = {
	.name = "hotbranch",
	.doc = "conditional branches that divide warps",
	.forms = "PTX",
	.maps = { &sites },
	.figures = figures,
	.print = print,
};
