/* bankconf: bank conflicts of shared memory by line. */
#include "cli/trace.h"

#define CLASSES 5u /* 2, 3-4, 5-8, 9-16, 17-32 ways */

enum { CONFLICTS = CLI_SITE_WORDS, WAYS, WORDS = WAYS + CLASSES };

static const char *const fields[] = { "count", "conflicts", "ways2",  "ways4",
				      "ways8", "ways16",    "ways32", NULL };
static const struct cli_trace_map sites = { "sites", CLI_TRACE_ROWS, fields, CLI_TRACE_PLACED };

static void add_site(json_t *s, const uint64_t *at)
{
	uint64_t conflicted = 0;
	unsigned ways = 1;

	for (unsigned k = 0; k < CLASSES; k++) {
		conflicted += at[WAYS + k];
		ways = at[WAYS + k] ? 2u << k : ways;
	}
	json_object_set_new(s, "conflicted", json_integer((json_int_t)conflicted));
	json_object_set_new(s, "extra_rounds", json_integer((json_int_t)at[CONFLICTS]));
	json_object_set_new(s, "ways_at_most", json_integer((json_int_t)ways));
}

static json_t *figures(const struct cli_trace_values *v)
{
	json_t *list = cli_trace_sites(v->rows, v->at[0], WORDS, add_site), *s;
	uint64_t count = 0, conflicted = 0, rounds = 0;
	size_t i;

	json_array_foreach(list, i, s)
	{
		count += cli_u64(s, "count");
		conflicted += cli_u64(s, "conflicted");
		rounds += cli_u64(s, "extra_rounds");
	}
	return json_pack("{s:I, s:I, s:I, s:o}", "count", (json_int_t)count, "conflicted",
			 (json_int_t)conflicted, "extra_rounds", (json_int_t)rounds, "sites", list);
}

static void add_cells(struct cli_table *t, const json_t *s, uint64_t max)
{
	cli_table_cell(t, "%.0f %%",
		       100 * cli_trace_ratio(cli_u64(s, "conflicted"), cli_u64(s, "count")));
	cli_table_cell(t, "%llu", (unsigned long long)cli_u64(s, "ways_at_most"));
	cli_table_cell(t, "%llu", (unsigned long long)cli_u64(s, "extra_rounds"));
	cli_trace_bar(t, cli_u64(s, "extra_rounds"), max);
}

static void print(const struct cli *c, const json_t *f)
{
	static const char *const heads[] = { "CONFLICTED", "WAYS <=", "EXTRA ROUNDS", "SHARE",
					     NULL };
	uint64_t count = cli_u64(f, "count");

	if (!count) {
		puts("no accesses to shared memory");
		return;
	}
	cli_trace_print_sites(c, json_object_get(f, "sites"), "extra_rounds", heads, add_cells);
	printf("%llu access%s of warps, %.0f %% with conflicts; %.2f rounds each\n",
	       (unsigned long long)count, count == 1 ? "" : "es",
	       100 * cli_trace_ratio(cli_u64(f, "conflicted"), count),
	       1 + cli_trace_ratio(cli_u64(f, "extra_rounds"), count));
}

const struct cli_trace_tool cli_trace_bankconf = {
	.name = "bankconf",
	.doc = "accesses to shared memory whose lanes conflict in a bank",
	.forms = "PTX",
	.maps = { &sites },
	.figures = figures,
	.print = print,
};
