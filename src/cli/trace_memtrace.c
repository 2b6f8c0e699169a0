/* memtrace: accesses by memory space, kind and width. */
#include "cli/trace.h"

#define KINDS 6u
#define WIDTHS 8u

#define WARP 32u
#define FULL_MAX 16u

/* Words of the map: accesses of one lane in one sector, those of full warps by their sectors, and
 * figures of all others. Then figures of an entry. */
enum { SINGLE, REST = FULL_MAX + 1, REST_SECTORS, REST_LANES, OTHERS, OTHER_BYTES, WORDS };
enum { COUNT, LANES, BYTES, SECTORS, SUMS };

static const char *const spaces[] = { "generic", "global", "shared", "local", "constant" };
static const char *const kinds[KINDS] = { "load", "store", "atomic", "async", "bulk", "matrix" };
static const char *const fields[WORDS + 1] = { "single",  "s1",	   "s2",     "s3",   "s4",  "s5",
					       "s6",	  "s7",	   "s8",     "s9",   "s10", "s11",
					       "s12",	  "s13",   "s14",    "s15",  "s16", "count",
					       "sectors", "lanes", "others", "bytes" };
static const struct cli_trace_map accesses = { "accesses", ARRAY_SIZE(spaces) * KINDS *WIDTHS,
					       fields };

/* What the words of entry k mean together. */
static void add_up(unsigned k, const uint64_t *words, uint64_t sums[SUMS])
{
	sums[COUNT] = words[SINGLE] + words[REST];
	sums[SECTORS] = words[SINGLE] + words[REST_SECTORS];
	sums[LANES] = words[SINGLE] + words[REST_LANES];
	for (unsigned s = 1; s <= FULL_MAX; s++) {
		sums[COUNT] += words[s];
		sums[SECTORS] += words[s] * s;
		sums[LANES] += words[s] * WARP;
	}
	sums[BYTES] = (sums[LANES] << k % WIDTHS) + words[OTHER_BYTES];
	sums[LANES] += words[OTHERS];
}

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
	uint64_t sum[SUMS] = { 0 }, at[SUMS];

	for (unsigned k = 0; k < accesses.entries; k++) {
		add_up(k, v->at[0] + (size_t)k * WORDS, at);
		if (!at[COUNT]) {
			continue;
		}
		for (unsigned w = 0; w < SUMS; w++) {
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
