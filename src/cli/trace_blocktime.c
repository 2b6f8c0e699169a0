/* blocktime: how long blocks run. */
#include "cli/trace.h"

enum { LOST, LATE, SUM_NS, MAX_NS, FIGURES };

static const struct cli_trace_map durations = { "durations", CLI_FINE_BUCKETS, NULL };
static const struct cli_trace_map totals = { "figures", FIGURES, NULL };

static json_t *figures(const struct cli_trace_values *v)
{
	json_t *blocks = cli_trace_durations(v->at[0], v->at[1][MAX_NS]);
	uint64_t count = cli_u64(blocks, "count");

	return json_pack("{s:o, s:I, s:I, s:I}", "blocks", blocks, "mean_ns",
			 (json_int_t)(count ? v->at[1][SUM_NS] / count : 0), "late",
			 (json_int_t)v->at[1][LATE], "lost", (json_int_t)v->at[1][LOST]);
}

static void print(const struct cli *c, const json_t *f)
{
	uint64_t late = cli_u64(f, "late"), lost = cli_u64(f, "lost");

	cli_trace_print_durations(c, json_object_get(f, "blocks"), "block");
	if (late) {
		printf("%llu of them are upper bounds: the next block, or the end of the launch, "
		       "reported the end\n",
		       (unsigned long long)late);
	}
	if (lost) {
		printf("%llu more block%s not measured: launches of one kernel at the same time, "
		       "or begun before the tool\n",
		       (unsigned long long)lost, lost == 1 ? " was" : "s were");
	}
}

const struct cli_trace_tool cli_trace_blocktime = {
	.name = "blocktime",
	.doc = "how long blocks run: histogram and percentiles",
	.forms = "PTX, machine code (bounds)",
	.maps = { &durations, &totals },
	.figures = figures,
	.print = print,
};
