/* memtrace: accesses by memory space, kind and width. */
#include "cli/trace.h"

#define KINDS 6u
#define WIDTHS 8u

enum { COUNT, LANES, BYTES, SECTORS, WORDS };

static const char *const spaces[] = { "generic", "global", "shared", "local", "constant" };
static const char *const kinds[KINDS] = { "load", "store", "atomic", "async", "bulk", "matrix" };
static const char *const fields[] = { "count", "lanes", "bytes", "sectors", NULL };
static const struct cli_trace_map accesses = { "accesses", ARRAY_SIZE(spaces) * KINDS *WIDTHS,
					       fields };

static json_t *access_json(unsigned k, const uint64_t *at)
{
	return json_pack("{s:s, s:s, s:i, s:I, s:I, s:I, s:I}", "space",
			 spaces[k / (KINDS * WIDTHS)], "kind", kinds[k / WIDTHS % KINDS],
			 "lane_bytes", 1 << k % WIDTHS, "count", (json_int_t)at[COUNT], "lanes",
			 (json_int_t)at[LANES], "bytes", (json_int_t)at[BYTES], "sectors",
			 (json_int_t)at[SECTORS]);
}

static json_t *figures(const struct cli_trace_values *v)
{
	json_t *list = json_array();
	uint64_t sum[WORDS] = { 0 };

	for (unsigned k = 0; k < accesses.entries; k++) {
		const uint64_t *at = v->at[0] + (size_t)k * WORDS;

		if (!at[COUNT]) {
			continue;
		}
		for (unsigned w = 0; w < WORDS; w++) {
			sum[w] += at[w];
		}
		json_array_append_new(list, access_json(k, at));
	}
	return json_pack("{s:I, s:I, s:I, s:o}", "count", (json_int_t)sum[COUNT], "lanes",
			 (json_int_t)sum[LANES], "bytes", (json_int_t)sum[BYTES], "accesses", list);
}

static void print(const struct cli *c, const json_t *f)
{
	static const char *const heads[] = { "WIDTH", "COUNT", "LANES", "BYTES", "SECTORS EACH" };
	const json_t *list = json_object_get(f, "accesses"), *a;
	uint64_t most = 0, count = cli_u64(f, "count");
	char bytes[24];
	struct cli_table t;
	size_t i;

	if (!count) {
		puts("no accesses");
		return;
	}
	cli_table_init(&t);
	cli_table_column(&t, "SPACE", false);
	cli_table_column(&t, "KIND", false);
	for (i = 0; i < ARRAY_SIZE(heads); i++) {
		cli_table_column(&t, heads[i], true);
	}
	cli_table_column(&t, "SHARE", false);
	json_array_foreach(list, i, a)
	{
		most = MAX(most, cli_u64(a, "bytes"));
	}
	json_array_foreach(list, i, a)
	{
		cli_table_cell(&t, "%s", cli_text(a, "space"));
		cli_table_cell(&t, "%s", cli_text(a, "kind"));
		cli_table_cell(&t, "%llu", (unsigned long long)cli_u64(a, "lane_bytes"));
		cli_table_cell(&t, "%llu", (unsigned long long)cli_u64(a, "count"));
		cli_table_cell(&t, "%llu", (unsigned long long)cli_u64(a, "lanes"));
		cli_table_cell(&t, "%s", cli_bytes(bytes, cli_u64(a, "bytes")));
		cli_table_cell(&t, "%.1f",
			       cli_trace_ratio(cli_u64(a, "sectors"), cli_u64(a, "count")));
		cli_trace_bar(&t, cli_u64(a, "bytes"), most);
	}
	cli_table_print(&t, stdout, c->color_out);
	cli_table_finish(&t);
	printf("%llu access%s of warps, %s\n", (unsigned long long)count, count == 1 ? "" : "es",
	       cli_bytes(bytes, cli_u64(f, "bytes")));
}

const struct cli_trace_tool cli_trace_memtrace = {
	.name = "memtrace",
	.doc = "loads, stores and atomics by memory space and width, with their sectors",
	.forms = "PTX",
	.maps = { &accesses },
	.figures = figures,
	.print = print,
};
