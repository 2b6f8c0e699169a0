/* threadhist: launches, blocks, warps and threads by size of the block. */
#include "cli/trace.h"

#define THREADS 1024u
#define WARP 32u

enum { LAUNCHES, BLOCKS, WORDS };

static const char *const fields[] = { "launches", "blocks", NULL };
static const struct cli_trace_map sizes = { "sizes", THREADS + 1, fields };

static json_t *size_json(unsigned threads, const uint64_t *at, uint64_t warps)
{
	return json_pack("{s:i, s:I, s:I, s:I, s:I}", "block_threads", (int)threads, "launches",
			 (json_int_t)at[LAUNCHES], "blocks", (json_int_t)at[BLOCKS], "warps",
			 (json_int_t)warps, "threads", (json_int_t)(at[BLOCKS] * threads));
}

static json_t *figures(const struct cli_trace_values *v)
{
	uint64_t launches = 0, blocks = 0, warps = 0, threads = 0;
	json_t *list = json_array();

	for (unsigned n = 1; n <= THREADS; n++) {
		const uint64_t *at = v->at[0] + (size_t)n * WORDS;
		uint64_t w = at[BLOCKS] * ((n + WARP - 1) / WARP);

		if (!at[BLOCKS]) {
			continue;
		}
		launches += at[LAUNCHES];
		blocks += at[BLOCKS];
		warps += w;
		threads += at[BLOCKS] * n;
		json_array_append_new(list, size_json(n, at, w));
	}
	return json_pack("{s:I, s:I, s:I, s:I, s:o}", "launches", (json_int_t)launches, "blocks",
			 (json_int_t)blocks, "warps", (json_int_t)warps, "threads",
			 (json_int_t)threads, "sizes", list);
}

/* Returns the share of the lanes of all warps that have a thread, in percent. */
static double lanes_used(const json_t *o)
{
	uint64_t warps = cli_u64(o, "warps");

	return warps ? 100.0 * (double)cli_u64(o, "threads") / ((double)warps * WARP) : 0;
}

static void print(const struct cli *c, const json_t *f)
{
	static const char *const heads[] = { "BLOCK", "LAUNCHES", "BLOCKS",
					     "WARPS", "THREADS",  "LANES USED" };
	uint64_t most = 0, launches = cli_u64(f, "launches"), threads = cli_u64(f, "threads");
	struct cli_table t;
	const json_t *s;
	size_t i;

	if (!threads) {
		puts("no threads");
		return;
	}
	cli_table_init(&t);
	for (i = 0; i < ARRAY_SIZE(heads); i++) {
		cli_table_column(&t, heads[i], true);
	}
	cli_table_column(&t, "SHARE", false);
	json_array_foreach(json_object_get(f, "sizes"), i, s)
	{
		most = MAX(most, cli_u64(s, "threads"));
	}
	json_array_foreach(json_object_get(f, "sizes"), i, s)
	{
		cli_table_cell(&t, "%llu", (unsigned long long)cli_u64(s, "block_threads"));
		cli_table_cell(&t, "%llu", (unsigned long long)cli_u64(s, "launches"));
		cli_table_cell(&t, "%llu", (unsigned long long)cli_u64(s, "blocks"));
		cli_table_cell(&t, "%llu", (unsigned long long)cli_u64(s, "warps"));
		cli_table_cell(&t, "%llu", (unsigned long long)cli_u64(s, "threads"));
		cli_table_cell(&t, "%.0f %%", lanes_used(s));
		cli_trace_bar(&t, cli_u64(s, "threads"), most);
	}
	cli_table_print(&t, stdout, c->color_out);
	cli_table_finish(&t);
	printf("%llu thread%s in %llu launch%s; %.0f %% of the lanes used\n",
	       (unsigned long long)threads, PLURAL(threads), (unsigned long long)launches,
	       launches == 1 ? "" : "es", lanes_used(f));
}

const struct cli_trace_tool cli_trace_threadhist = {
	.name = "threadhist",
	.doc = "launches, blocks and threads by size of the block, and unused lanes",
	.forms = "PTX, machine code",
	.maps = { &sizes },
	.figures = figures,
	.print = print,
};
