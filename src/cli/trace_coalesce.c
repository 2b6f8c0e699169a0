/* coalesce: sectors of global memory by line, and the strides of lanes. */
#include "cli/trace.h"

enum { SECTORS = CLI_SITE_WORDS, IDEAL, SAME, UNIT, CONSTANT, MIXED, WORDS };

static const char *const fields[] = { "count", "sectors",  "ideal", "same",
				      "unit",  "constant", "mixed", NULL };
static const struct cli_trace_map sites = { "sites", CLI_TRACE_ROWS, fields, CLI_TRACE_PLACED };

static void add_site(json_t *s, const uint64_t *at)
{
	static const char *const names[] = {
		[SECTORS] = "sectors", [IDEAL] = "fewest_sectors", [SAME] = "same",
		[UNIT] = "unit",       [CONSTANT] = "constant",	   [MIXED] = "mixed",
	};

	for (unsigned w = SECTORS; w < WORDS; w++) {
		json_object_set_new(s, names[w], json_integer((json_int_t)at[w]));
	}
	json_object_set_new(s, "wasted_sectors",
			    json_integer((json_int_t)(at[SECTORS] - MIN(at[IDEAL], at[SECTORS]))));
}

static json_t *figures(const struct cli_trace_values *v)
{
	json_t *list = cli_trace_sites(v->rows, v->at[0], WORDS, add_site), *s;
	uint64_t count = 0, sectors = 0, fewest = 0;
	size_t i;

	json_array_foreach(list, i, s)
	{
		count += cli_u64(s, "count");
		sectors += cli_u64(s, "sectors");
		fewest += cli_u64(s, "fewest_sectors");
	}
	return json_pack("{s:I, s:I, s:I, s:o}", "count", (json_int_t)count, "sectors",
			 (json_int_t)sectors, "fewest_sectors", (json_int_t)fewest, "sites", list);
}

/* Returns the stride of most accesses. */
static const char *stride_of(const json_t *s)
{
	static const char *const names[] = { "unit", "same", "constant", "mixed" };
	const char *best = names[0];

	for (size_t i = 1; i < ARRAY_SIZE(names); i++) {
		best = cli_u64(s, names[i]) > cli_u64(s, best) ? names[i] : best;
	}
	return best;
}

static void add_cells(struct cli_table *t, const json_t *s, uint64_t max)
{
	uint64_t count = cli_u64(s, "count");

	cli_table_cell(t, "%.1f", cli_trace_ratio(cli_u64(s, "sectors"), count));
	cli_table_cell(t, "%.1f", cli_trace_ratio(cli_u64(s, "fewest_sectors"), count));
	cli_table_cell(t, "%s", stride_of(s));
	cli_table_cell(t, "%llu", (unsigned long long)cli_u64(s, "wasted_sectors"));
	cli_trace_bar(t, cli_u64(s, "wasted_sectors"), max);
}

static void print(const struct cli *c, const json_t *f)
{
	static const char *const heads[] = {
		"SECTORS", "FEWEST", "STRIDE", "WASTED", "SHARE", NULL
	};
	uint64_t sectors = cli_u64(f, "sectors"), count = cli_u64(f, "count");

	if (!count) {
		puts("no accesses to global memory");
		return;
	}
	cli_trace_print_sites(c, json_object_get(f, "sites"), "wasted_sectors", heads, add_cells);
	printf("%llu access%s of warps, %.1f sectors each; %.0f %% of the sectors needed\n",
	       (unsigned long long)count, count == 1 ? "" : "es", cli_trace_ratio(sectors, count),
	       100 * cli_trace_ratio(cli_u64(f, "fewest_sectors"), sectors));
}

const struct cli_trace_tool cli_trace_coalesce = {
	.name = "coalesce",
	.doc = "accesses to global memory that touch more sectors than they need",
	.forms = "PTX",
	.maps = { &sites },
	.figures = figures,
	.print = print,
};
