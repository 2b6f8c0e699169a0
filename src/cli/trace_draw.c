/* Bars, and durations from the histograms of tools. */
#include "cli/trace.h"

#include <string.h>

#define BAR_WIDTH 40
#define EXACT 16u /* values below it have a bucket each */

double cli_trace_ratio(uint64_t part, uint64_t whole)
{
	return whole ? (double)part / (double)whole : 0;
}

void cli_trace_bar(struct cli_table *t, uint64_t count, uint64_t max)
{
	char bar[BAR_WIDTH + 2] = "|";
	int n = max ? (int)((double)count / (double)max * BAR_WIDTH + 0.5) : 0;

	n = count && !n ? 1 : MIN(n, BAR_WIDTH); /* what there is is seen */
	memset(bar + 1, '@', (size_t)n);
	bar[n + 1] = 0;
	cli_table_cell(t, "%s", bar);
}

/* ---- buckets of tracers/fine.h ---- */

static uint64_t fine_low(unsigned b)
{
	return b < EXACT ? b : (uint64_t)(EXACT + b % EXACT) << (b / EXACT - 1);
}

unsigned cli_fine_bucket(uint64_t v)
{
	unsigned e = 63u - (unsigned)__builtin_clzll(v | 1);

	if (v < EXACT) {
		return (unsigned)v;
	}
	return v >> 48 ? CLI_FINE_BUCKETS - 1 : (e - 3) * EXACT + (unsigned)(v >> (e - 4)) % EXACT;
}

static uint64_t fine_high(unsigned b)
{
	return fine_low(b + 1) - 1;
}

/* Returns the upper bound of the bucket with the value that `permille` of all do not exceed. */
static uint64_t percentile(const uint64_t *fine, uint64_t count, unsigned permille)
{
	double rank = (double)count * permille / 1000;
	uint64_t below = 0;
	unsigned b = 0;

	while (b + 1 < CLI_FINE_BUCKETS && (double)(below + fine[b]) < rank) {
		below += fine[b++];
	}
	return fine_high(b);
}

/* Returns the bound that max is held to: [0] the highest bucket's lower, [1] its upper. */
static void highest_bucket(const uint64_t *fine, uint64_t bound[2])
{
	for (unsigned b = 0; b < CLI_FINE_BUCKETS; b++) {
		if (fine[b]) {
			bound[0] = fine_low(b);
			bound[1] = fine_high(b);
		}
	}
}

static void add_power(json_t *buckets, uint64_t low, uint64_t high, uint64_t count)
{
	if (count) {
		json_array_append_new(
			buckets, json_pack("{s:I, s:I, s:I}", "low_ns", (json_int_t)low, "high_ns",
					   (json_int_t)high, "count", (json_int_t)count));
	}
}

static json_t *powers(const uint64_t *fine)
{
	json_t *buckets = json_array();
	uint64_t count = 0, low = 0;

	for (unsigned b = 0; b < CLI_FINE_BUCKETS; b++) {
		count += fine[b];
		if ((fine_high(b) & (fine_high(b) + 1)) == 0) { /* the last below a power of two */
			add_power(buckets, low, fine_high(b), count);
			low = fine_high(b) + 1;
			count = 0;
		}
	}
	return buckets;
}

json_t *cli_trace_durations(const uint64_t *fine, uint64_t max)
{
	uint64_t count = 0, bound[2] = { 0 };

	for (unsigned b = 0; b < CLI_FINE_BUCKETS; b++) {
		count += fine[b];
	}
	highest_bucket(fine, bound);
	max = MIN(MAX(max, bound[0]), bound[1]);
	return json_pack("{s:I, s:I, s:I, s:I, s:I, s:o}", "count", (json_int_t)count, "p50_ns",
			 (json_int_t)MIN(percentile(fine, count, 500), max), "p90_ns",
			 (json_int_t)MIN(percentile(fine, count, 900), max), "p99_ns",
			 (json_int_t)MIN(percentile(fine, count, 990), max), "max_ns",
			 (json_int_t)max, "buckets", powers(fine));
}

static void add_row(struct cli_table *t, uint64_t low, uint64_t high, uint64_t count, uint64_t max)
{
	char from[24], to[24];

	cli_table_cell(t, "%s", cli_duration(from, low));
	cli_table_cell(t, "%s", cli_duration(to, high));
	cli_table_cell(t, "%llu", (unsigned long long)count);
	cli_trace_bar(t, count, max);
}

void cli_trace_print_durations(const struct cli *c, const json_t *durations, const char *what)
{
	static const char *const names[] = { "p50_ns", "p90_ns", "p99_ns", "max_ns" };
	const json_t *buckets = json_object_get(durations, "buckets"), *b;
	uint64_t most = 0, next = 0, count = cli_u64(durations, "count");
	char text[4][24];
	struct cli_table t;
	size_t i;

	if (!count) {
		printf("no %ss\n", what);
		return;
	}
	cli_table_init(&t);
	cli_table_column(&t, "FROM", true);
	cli_table_column(&t, "TO", true);
	cli_table_column(&t, "COUNT", true);
	cli_table_column(&t, "SHARE", false);
	json_array_foreach(buckets, i, b)
	{
		most = MAX(most, cli_u64(b, "count"));
	}
	json_array_foreach(buckets, i, b)
	{
		for (; i && next < cli_u64(b, "low_ns"); next *= 2) {
			add_row(&t, next, next * 2 - 1, 0, most);
		}
		add_row(&t, cli_u64(b, "low_ns"), cli_u64(b, "high_ns"), cli_u64(b, "count"), most);
		next = cli_u64(b, "high_ns") + 1;
	}
	cli_table_print(&t, stdout, c->color_out);
	cli_table_finish(&t);
	for (i = 0; i < ARRAY_SIZE(names); i++) {
		cli_duration(text[i], cli_u64(durations, names[i]));
	}
	printf("%llu %s%s: P50 %s, P90 %s, P99 %s, longest %s\n", (unsigned long long)count, what,
	       PLURAL(count), text[0], text[1], text[2], text[3]);
}
