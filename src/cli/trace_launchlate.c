/* launchlate: the time from the submission of launches to the begin of their block 0. The object
 * keeps the last launches of each kernel, so of many launches between two readings some are not
 * measured. */
#include "cli/trace.h"

#define KERNELS 32u
#define LAUNCHES 128u /* tracers/launchlate.bpf.c */

enum { NUMBER, TIME_NS, STAMP_WORDS };
enum { BEGUN, BEGINS, SUBMITTED, SUBMITS, LAST, DELAYS, FIGURES }; /* maps */
enum { LAUNCHED, MEASURED, NO_CLOCK, SHIFTED, FIGURES_WORDS };

static const char *const stamp_fields[] = { "number", "time_ns", NULL };
/* Begins are read first, so that of each of them the submission is seen. */
static const struct cli_trace_map begun = { "begun", KERNELS, NULL, CLI_TRACE_RAW, 0 };
static const struct cli_trace_map begins = { "begins", KERNELS *LAUNCHES, stamp_fields,
					     CLI_TRACE_RAW, 0 };
static const struct cli_trace_map submitted = { "submitted", KERNELS, NULL, CLI_TRACE_RAW, 0 };
static const struct cli_trace_map submits = { "submits", KERNELS *LAUNCHES, stamp_fields,
					      CLI_TRACE_RAW, 0 };
/* By place of a begin: the number that was measured last. */
static const struct cli_trace_map last = { "", KERNELS *LAUNCHES, NULL, CLI_TRACE_MADE, 0 };
static const struct cli_trace_map delays = { "", CLI_FINE_BUCKETS, NULL, CLI_TRACE_MADE, 0 };
static const struct cli_trace_map totals = { "", FIGURES_WORDS, NULL, CLI_TRACE_MADE, 0 };

static void measure(struct cli_trace_values *v, size_t i)
{
	const uint64_t *b = v->at[BEGINS] + i * STAMP_WORDS, *s = v->at[SUBMITS] + i * STAMP_WORDS;

	if (!b[NUMBER] || b[NUMBER] != s[NUMBER] || v->at[LAST][i] == b[NUMBER]) {
		return;
	}
	v->at[LAST][i] = b[NUMBER];
	if (!s[TIME_NS]) {
		v->at[FIGURES][NO_CLOCK]++;
		return;
	}
	/* The clocks are compared to some microseconds, so a begin may seem to come first. */
	v->at[DELAYS][cli_fine_bucket(
		(int64_t)(b[TIME_NS] - s[TIME_NS]) > 0 ? b[TIME_NS] - s[TIME_NS] : 0)]++;
	v->at[FIGURES][MEASURED]++;
}

/* A kernel that began more often than it was submitted was launched by a graph, too: its numbers
 * do not belong together any more. */
static void pair(struct cli_trace_values *v)
{
	v->at[FIGURES][LAUNCHED] = v->at[FIGURES][SHIFTED] = 0;
	for (uint32_t k = 0; k < KERNELS; k++) {
		bool shifted = v->at[BEGUN][k] > v->at[SUBMITTED][k];

		v->at[FIGURES][LAUNCHED] += v->at[BEGUN][k];
		v->at[FIGURES][SHIFTED] += shifted ? v->at[BEGUN][k] : 0;
		for (uint32_t i = 0; !shifted && i < LAUNCHES; i++) {
			measure(v, (size_t)k * LAUNCHES + i);
		}
	}
}

static json_t *figures(const struct cli_trace_values *v)
{
	const uint64_t *f = v->at[FIGURES];

	/* The longest is not counted, so the histogram's bound stands for it. */
	return json_pack("{s:o, s:I, s:I, s:I}", "delays",
			 cli_trace_durations(v->at[DELAYS], UINT64_MAX), "launches",
			 (json_int_t)f[LAUNCHED], "no_clock", (json_int_t)f[NO_CLOCK],
			 "by_graphs_too", (json_int_t)f[SHIFTED]);
}

static void print(const struct cli *c, const json_t *f)
{
	uint64_t launches = cli_u64(f, "launches");
	uint64_t measured = cli_u64(json_object_get(f, "delays"), "count");
	uint64_t shifted = cli_u64(f, "by_graphs_too"), no_clock = cli_u64(f, "no_clock");

	cli_trace_print_durations(c, json_object_get(f, "delays"), "launch delay");
	if (launches > measured) {
		printf("%llu of %llu launches were measured\n", (unsigned long long)measured,
		       (unsigned long long)launches);
	}
	if (no_clock) {
		printf("%llu not, since the clock of the GPU could not be compared\n",
		       (unsigned long long)no_clock);
	}
	if (shifted) {
		printf("%llu not, since graphs launch their kernels, too\n",
		       (unsigned long long)shifted);
	}
}

const struct cli_trace_tool cli_trace_launchlate = {
	.name = "launchlate",
	.doc = "how long launches wait until they begin on the GPU",
	.forms = "PTX, machine code",
	.maps = { &begun, &begins, &submitted, &submits, &last, &delays, &totals },
	.pair = pair,
	.figures = figures,
	.print = print,
};
