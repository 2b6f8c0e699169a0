/* smmap: blocks, warps and lanes by multiprocessor. */
#include "cli/trace.h"

#define SMS 256u

enum { BLOCKS, WARPS, LANES, WORDS };

static const char *const fields[] = { "blocks", "warps", "lanes", NULL };
static const struct cli_trace_map sms = { "sms", SMS, fields };

static json_t *figures(const struct cli_trace_values *v)
{
	uint64_t sum[WORDS] = { 0 }, max = 0, min = UINT64_MAX, used = 0;
	json_t *list = json_array();

	for (unsigned i = 0; i < SMS; i++) {
		const uint64_t *at = v->at[0] + (size_t)i * WORDS;

		if (!at[BLOCKS]) {
			continue;
		}
		used++;
		max = MAX(max, at[BLOCKS]);
		min = MIN(min, at[BLOCKS]);
		for (unsigned w = 0; w < WORDS; w++) {
			sum[w] += at[w];
		}
		json_array_append_new(list, json_pack("{s:i, s:I, s:I, s:I}", "sm", (int)i,
						      "blocks", (json_int_t)at[BLOCKS], "warps",
						      (json_int_t)at[WARPS], "lanes",
						      (json_int_t)at[LANES]));
	}
	return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:o}", "used", (json_int_t)used,
			 "blocks", (json_int_t)sum[BLOCKS], "warps", (json_int_t)sum[WARPS],
			 "lanes", (json_int_t)sum[LANES], "fewest", (json_int_t)(used ? min : 0),
			 "most", (json_int_t)max, "imbalance",
			 sum[BLOCKS] ? (double)max * (double)used / (double)sum[BLOCKS] : 0.0,
			 "sms", list);
}

static void add_row(struct cli_table *t, uint64_t sm, const json_t *s, uint64_t most)
{
	cli_table_cell(t, "%llu", (unsigned long long)sm);
	cli_table_cell(t, "%llu", (unsigned long long)cli_u64(s, "blocks"));
	cli_table_cell(t, "%llu", (unsigned long long)cli_u64(s, "warps"));
	cli_table_cell(t, "%llu", (unsigned long long)cli_u64(s, "lanes"));
	cli_trace_bar(t, cli_u64(s, "blocks"), most);
}

static void print(const struct cli *c, const json_t *f)
{
	static const char *const heads[] = { "SM", "BLOCKS", "WARPS", "LANES" };
	uint64_t next = 0, most = cli_u64(f, "most"), used = cli_u64(f, "used");
	struct cli_table t;
	const json_t *s;
	size_t i;

	if (!used) {
		puts("no blocks");
		return;
	}
	cli_table_init(&t);
	for (i = 0; i < ARRAY_SIZE(heads); i++) {
		cli_table_column(&t, heads[i], true);
	}
	cli_table_column(&t, "SHARE", false);
	json_array_foreach(json_object_get(f, "sms"), i, s)
	{
		for (; next < cli_u64(s, "sm"); next++) {
			add_row(&t, next, NULL, most);
		}
		add_row(&t, next++, s, most);
	}
	cli_table_print(&t, stdout, c->color_out);
	cli_table_finish(&t);
	printf("%llu block%s on %llu SM%s, %llu to %llu each; imbalance %.2f (most / mean)\n",
	       (unsigned long long)cli_u64(f, "blocks"), PLURAL(cli_u64(f, "blocks")),
	       (unsigned long long)used, PLURAL(used), (unsigned long long)cli_u64(f, "fewest"),
	       (unsigned long long)most, json_real_value(json_object_get(f, "imbalance")));
}

const struct cli_trace_tool cli_trace_smmap = {
	.name = "smmap",
	.doc = "where blocks, warps and lanes run: a bar for each SM, and imbalance",
	.forms = "PTX, machine code",
	.maps = { &sms },
	.figures = figures,
	.print = print,
};
