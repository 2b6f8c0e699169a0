/* kernelretsnoop: when warps return, counted from the begin of their launch. */
#include "cli/trace.h"

enum { MISSING, LOST, FIGURES };

#define WARP 32u

static const struct cli_trace_map returns = { "returns", CLI_FINE_BUCKETS, NULL };
static const struct cli_trace_map totals = { "figures", FIGURES, NULL };

static json_t *figures(const struct cli_trace_values *v)
{
	/* The longest is not counted, so the histogram's bound stands for it. */
	json_t *returned = cli_trace_durations(v->at[0], UINT64_MAX);
	uint64_t lanes = cli_u64(returned, "count") * WARP, missing = v->at[1][MISSING];

	return json_pack("{s:o, s:I, s:I}", "returns", returned, "lanes",
			 (json_int_t)(lanes - MIN(lanes, missing)), "lost",
			 (json_int_t)v->at[1][LOST]);
}

static void print(const struct cli *c, const json_t *f)
{
	uint64_t lanes = cli_u64(f, "lanes"), lost = cli_u64(f, "lost");

	cli_trace_print_durations(c, json_object_get(f, "returns"), "return");
	if (lanes) {
		printf("%llu lane%s returned\n", (unsigned long long)lanes, PLURAL(lanes));
	}
	if (lost) {
		printf("%llu more return%s before the begin of a launch was seen\n",
		       (unsigned long long)lost, PLURAL(lost));
	}
}

const struct cli_trace_tool cli_trace_kernelretsnoop = {
	.name = "kernelretsnoop",
	.doc = "when warps return after the begin of their launch: the tail of a kernel",
	.forms = "PTX",
	.maps = { &returns, &totals },
	.figures = figures,
	.print = print,
};
