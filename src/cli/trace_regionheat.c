/* regionheat: accesses to global memory by region, 2 MiB unless --region says otherwise. */
#include "cli/trace.h"

enum { WRITES = CLI_REGION_WORDS, ATOMICS, BULK, SECTORS, WORDS };

static const char *const fields[] = { "count",	"mixed",   "owner", "owners",  "squares", "spread",
				      "writes", "atomics", "bulk",  "sectors", NULL };
static const struct cli_trace_map regions = { "regions", CLI_TRACE_REGIONS, fields, CLI_TRACE_SUMS,
					      0,	 CLI_REGION_LASTING };

static const char *const members[] = { "reads", "writes", "atomics", "bulk", "sectors" };

static void add_region(json_t *r, const uint64_t *at)
{
	uint64_t others = at[WRITES] + at[ATOMICS] + at[BULK];
	uint64_t reads = at[CLI_REGION_COUNT] - MIN(others, at[CLI_REGION_COUNT]);

	json_object_set_new(r, members[0], json_integer((json_int_t)reads));
	for (unsigned w = WRITES; w < WORDS; w++) {
		json_object_set_new(r, members[1 + w - WRITES], json_integer((json_int_t)at[w]));
	}
}

static json_t *figures(const struct cli_trace_values *v)
{
	uint64_t mixed, count = 0, spread = 0, sums[ARRAY_SIZE(members)] = { 0 };
	json_t *list = cli_trace_regions(v->at[0], WORDS, v->region_bytes, add_region, &mixed), *r;
	json_t *f;
	size_t i;

	json_array_foreach(list, i, r)
	{
		count += cli_u64(r, "count");
		spread += cli_u64(r, "spread");
		for (unsigned k = 0; k < ARRAY_SIZE(members); k++) {
			sums[k] += cli_u64(r, members[k]);
		}
	}
	f = json_pack("{s:I, s:I, s:I, s:I}", "region_bytes", (json_int_t)v->region_bytes, "count",
		      (json_int_t)(count + mixed), "spread", (json_int_t)spread, "mixed",
		      (json_int_t)mixed);
	for (unsigned k = 0; k < ARRAY_SIZE(members); k++) {
		json_object_set_new(f, members[k], json_integer((json_int_t)sums[k]));
	}
	json_object_set_new(f, "regions", list);
	return f;
}

static void add_cells(struct cli_table *t, const json_t *r, uint64_t max)
{
	for (unsigned k = 0; k < ARRAY_SIZE(members); k++) {
		cli_table_cell(t, "%llu", (unsigned long long)cli_u64(r, members[k]));
	}
	cli_trace_bar(t, cli_u64(r, "sectors"), max);
}

static void print(const struct cli *c, const json_t *f)
{
	static const char *const heads[] = { "READS",	"WRITES", "ATOMICS", "BULK",
					     "SECTORS", "SHARE",  NULL };
	const json_t *list = json_object_get(f, "regions");
	uint64_t count = cli_u64(f, "count"), n = json_array_size(list);
	char text[24];

	if (!count) {
		puts("no accesses to global memory");
		return;
	}
	cli_trace_print_regions(c, list, "sectors", heads, add_cells);
	putchar('\n');
	cli_trace_draw_regions(list, "sectors", cli_u64(f, "region_bytes"));
	printf("%llu access%s of warps in %llu region%s, %s in all\n", (unsigned long long)count,
	       count == 1 ? "" : "es", (unsigned long long)n, PLURAL(n),
	       cli_bytes(text, n * cli_u64(f, "region_bytes")));
	cli_trace_print_inexact(cli_u64(f, "spread"), cli_u64(f, "mixed"));
}

const struct cli_trace_tool cli_trace_regionheat = {
	.name = "regionheat",
	.doc = "which parts of global memory kernels read and write",
	.forms = "PTX",
	.maps = { &regions },
	.by_address = true,
	.region_shift = "region_shift",
	.figures = figures,
	.print = print,
};
