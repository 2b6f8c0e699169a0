/* blocktime: how long blocks run, and which of them run longest. */
#include "cli/trace.h"

enum { LOST, LATE, SUM_NS, FIGURES };

/* tracers/blocktime.bpf.c */
#define PLACES 256u
#define BLOCK_BITS 28
#define BLOCK_MAX ((UINT64_C(1) << BLOCK_BITS) - 1)

#define SHOWN 5u

static const struct cli_trace_map durations = { "durations", CLI_FINE_BUCKETS, NULL };
static const struct cli_trace_map totals = { "figures", FIGURES, NULL };
static const struct cli_trace_map longest = { "longest", PLACES, NULL, .kind = CLI_TRACE_MAXIMA,
					      .lasting = 1 };

/* Returns the highest value below `below`, 0: none. */
static uint64_t highest(const uint64_t *at, uint64_t below)
{
	uint64_t high = 0;

	for (unsigned i = 0; i < PLACES; i++) {
		high = at[i] < below ? MAX(high, at[i]) : high;
	}
	return high;
}

static json_t *blocks_json(const uint64_t *at)
{
	uint64_t v = UINT64_MAX;
	json_t *list = json_array();

	for (unsigned i = 0; i < SHOWN && (v = highest(at, v)); i++) {
		json_array_append_new(list,
				      json_pack("{s:I, s:I}", "block", (json_int_t)(v & BLOCK_MAX),
						"ns", (json_int_t)(v >> BLOCK_BITS)));
	}
	return list;
}

static json_t *figures(const struct cli_trace_values *v)
{
	json_t *blocks = cli_trace_durations(v->at[0], highest(v->at[2], UINT64_MAX) >> BLOCK_BITS);
	uint64_t count = cli_u64(blocks, "count");

	return json_pack("{s:o, s:o, s:I, s:I, s:I}", "blocks", blocks, "longest",
			 blocks_json(v->at[2]), "mean_ns",
			 (json_int_t)(count ? v->at[1][SUM_NS] / count : 0), "late",
			 (json_int_t)v->at[1][LATE], "lost", (json_int_t)v->at[1][LOST]);
}

static void print_longest(const json_t *list)
{
	const json_t *b;
	char text[24];
	size_t i;

	json_array_foreach(list, i, b)
	{
		uint64_t block = cli_u64(b, "block");

		printf("%s block %llu%s %s", i ? "," : "longest:", (unsigned long long)block,
		       block == BLOCK_MAX ? " or higher:" : ":",
		       cli_duration(text, cli_u64(b, "ns")));
	}
	fputs(json_array_size(list) ? "\n" : "", stdout);
}

static void print(const struct cli *c, const json_t *f)
{
	uint64_t late = cli_u64(f, "late"), lost = cli_u64(f, "lost");

	cli_trace_print_durations(c, json_object_get(f, "blocks"), "block");
	print_longest(json_object_get(f, "longest"));
	if (late) {
		printf("%llu of them are upper bounds: the next block, or the end of the launch, "
		       "reported the end\n",
		       (unsigned long long)late);
	}
	if (lost) {
		printf("%llu more block%s not measured: the GPU's clock was set back\n",
		       (unsigned long long)lost, lost == 1 ? " was" : "s were");
	}
}

const struct cli_trace_tool cli_trace_blocktime = {
	.name = "blocktime",
	.doc = "how long blocks run: histogram, percentiles and the longest blocks",
	.forms = "PTX, machine code (bounds)",
	.maps = { &durations, &totals, &longest },
	.figures = figures,
	.print = print,
};
