/* atomhot: atomic operations by line and by 512 bytes of memory. */
#include "cli/trace.h"

#define REGION_BYTES 512u

enum { LANES = CLI_SITE_WORDS, SAME, SITE_WORDS };
enum { REGION_LANES = CLI_REGION_WORDS, REGION_WORDS };

static const char *const site_fields[] = { "count", "lanes", "same", NULL };
static const struct cli_trace_map sites = { "sites", CLI_TRACE_ROWS, site_fields,
					    CLI_TRACE_PLACED };
static const char *const region_fields[] = { "count",	"mixed",  "owner", "owners",
					     "squares", "spread", "lanes", NULL };
static const struct cli_trace_map regions = {
	"regions", CLI_TRACE_REGIONS, region_fields, CLI_TRACE_SUMS, 0, CLI_REGION_LASTING
};

static void add_site(json_t *s, const uint64_t *at)
{
	json_object_set_new(s, "lanes", json_integer((json_int_t)at[LANES]));
	json_object_set_new(s, "same_address_lanes", json_integer((json_int_t)at[SAME]));
}

static void add_region(json_t *r, const uint64_t *at)
{
	json_object_set_new(r, "lanes", json_integer((json_int_t)at[REGION_LANES]));
}

static uint64_t sum(const json_t *list, const char *member)
{
	uint64_t n = 0;
	const json_t *e;
	size_t i;

	json_array_foreach(list, i, e)
	{
		n += cli_u64(e, member);
	}
	return n;
}

static json_t *figures(const struct cli_trace_values *v)
{
	json_t *at_sites = cli_trace_sites(v->rows, v->at[0], SITE_WORDS, add_site);
	uint64_t mixed;
	json_t *list = cli_trace_regions(v->at[1], REGION_WORDS, REGION_BYTES, add_region, &mixed);

	return json_pack("{s:I, s:I, s:i, s:I, s:I, s:o, s:o}", "count",
			 (json_int_t)sum(at_sites, "count"), "lanes",
			 (json_int_t)sum(at_sites, "lanes"), "region_bytes", (int)REGION_BYTES,
			 "spread", (json_int_t)sum(list, "spread"), "mixed", (json_int_t)mixed,
			 "sites", at_sites, "regions", list);
}

static void add_site_cells(struct cli_table *t, const json_t *s, uint64_t max)
{
	uint64_t lanes = cli_u64(s, "lanes");

	cli_table_cell(t, "%llu", (unsigned long long)lanes);
	cli_table_cell(t, "%.0f %%",
		       100 * cli_trace_ratio(cli_u64(s, "same_address_lanes"), lanes));
	cli_trace_bar(t, lanes, max);
}

static void add_region_cells(struct cli_table *t, const json_t *r, uint64_t max)
{
	cli_table_cell(t, "%llu", (unsigned long long)cli_u64(r, "lanes"));
	cli_trace_bar(t, cli_u64(r, "lanes"), max);
}

static void print(const struct cli *c, const json_t *f)
{
	static const char *const site_heads[] = { "LANES", "ONE ADDRESS", "SHARE", NULL };
	static const char *const region_heads[] = { "LANES", "SHARE", NULL };
	uint64_t count = cli_u64(f, "count"), lanes = cli_u64(f, "lanes");

	if (!count) {
		puts("no atomic operations");
		return;
	}
	cli_trace_print_sites(c, json_object_get(f, "sites"), "lanes", site_heads, add_site_cells);
	putchar('\n');
	if (json_array_size(json_object_get(f, "regions"))) {
		cli_trace_print_regions(c, json_object_get(f, "regions"), "lanes", region_heads,
					add_region_cells);
	}
	printf("%llu atomic operation%s of warps, of %llu lane%s\n", (unsigned long long)count,
	       PLURAL(count), (unsigned long long)lanes, PLURAL(lanes));
	cli_trace_print_inexact(cli_u64(f, "spread"), cli_u64(f, "mixed"));
}

const struct cli_trace_tool cli_trace_atomhot = {
	.name = "atomhot",
	.doc = "atomic operations by line and address: where many meet",
	.forms = "PTX",
	.maps = { &sites, &regions },
	.by_address = true,
	.figures = figures,
	.print = print,
};
