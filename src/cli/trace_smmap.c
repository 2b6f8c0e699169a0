/* smmap: blocks, warps and lanes by multiprocessor, and the time that blocks ran there. */
#include "cli/trace.h"

#include <string.h>

#define SMS 1024u

/* tracers/smmap.bpf.c */
enum { BLOCKS, WARPS, LANES, ENDED, BUSY_NS, LOST, OPEN, WORDS };

static const char *const fields[] = { "blocks",	 "warps", "lanes", "ended",
				      "busy_ns", "lost",  "open",  NULL };
static const struct cli_trace_map sms = { "sms", SMS, fields, .lasting = 1u << OPEN,
					  .living = 1u << OPEN };

/* Sums of all multiprocessors, and the extremes. */
struct sums {
	uint64_t of[WORDS];
	uint64_t used, fewest, most; /* multiprocessors with blocks; blocks of one */
	uint64_t timed, longest_ns;  /* those where blocks have ended; block time of one */
};

static void add(struct sums *t, const uint64_t *at)
{
	for (unsigned w = 0; w < WORDS; w++) {
		t->of[w] += at[w];
	}
	if (at[BLOCKS]) {
		t->fewest = t->used++ ? MIN(t->fewest, at[BLOCKS]) : at[BLOCKS];
		t->most = MAX(t->most, at[BLOCKS]);
	}
	if (at[ENDED]) {
		t->timed++;
		t->longest_ns = MAX(t->longest_ns, at[BUSY_NS]);
	}
}

static double over_mean(uint64_t max, uint64_t sum, uint64_t n)
{
	return sum ? (double)max * (double)n / (double)sum : 0.0;
}

static json_t *sm_json(unsigned sm, const uint64_t *at)
{
	return json_pack("{s:i, s:I, s:I, s:I, s:I, s:I}", "sm", (int)sm, "blocks",
			 (json_int_t)at[BLOCKS], "warps", (json_int_t)at[WARPS], "lanes",
			 (json_int_t)at[LANES], "ended", (json_int_t)at[ENDED], "busy_ns",
			 (json_int_t)at[BUSY_NS]);
}

/* Weighs multiprocessors by the time of their blocks or, where no block has a time, by number. */
static void put_weight(json_t *to, const struct sums *t)
{
	bool time = t->of[BUSY_NS] > 0;

	json_object_set_new(to, "weighed_by", json_string(time ? "time" : "blocks"));
	json_object_set_new(to, "imbalance",
			    json_real(time ? over_mean(t->longest_ns, t->of[BUSY_NS], t->timed)
					   : over_mean(t->most, t->of[BLOCKS], t->used)));
}

/* Returns the blocks that have not ended or, with kernels whose ends are not seen, those of the
 * interval. A program may write its maps itself, so more blocks may have ended than began. */
static uint64_t without_end(const struct sums *t, bool unseen)
{
	uint64_t ended = t->of[ENDED] + t->of[LOST], open = t->of[OPEN];

	if (unseen) {
		open = t->of[BLOCKS] - ended;
	}
	return open <= INT64_MAX ? open : 0;
}

static json_t *figures(const struct cli_trace_values *v)
{
	json_t *list = json_array(), *f;
	struct sums t = { .used = 0 };

	for (unsigned i = 0; i < SMS; i++) {
		const uint64_t *at = v->at[0] + (size_t)i * WORDS;

		add(&t, at);
		if (at[BLOCKS] || at[ENDED]) {
			json_array_append_new(list, sm_json(i, at));
		}
	}
	f = json_pack(
		"{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:o, s:o}", "used",
		(json_int_t)t.used, "blocks", (json_int_t)t.of[BLOCKS], "warps",
		(json_int_t)t.of[WARPS], "lanes", (json_int_t)t.of[LANES], "fewest",
		(json_int_t)t.fewest, "most", (json_int_t)t.most, "ended", (json_int_t)t.of[ENDED],
		"busy_ns", (json_int_t)t.of[BUSY_NS], "lost", (json_int_t)t.of[LOST], "without_end",
		(json_int_t)without_end(&t, v->in_part > 0), "in_part", (json_int_t)v->in_part,
		"why_in_part", cli_json_text(v->why_in_part ? v->why_in_part : ""), "sms", list);
	put_weight(f, &t);
	return f;
}

static bool by_time(const json_t *f)
{
	return strcmp(cli_text(f, "weighed_by"), "time") == 0;
}

static void add_row(struct cli_table *t, uint64_t sm, const json_t *s, bool time, uint64_t most)
{
	char text[24];

	cli_table_cell(t, "%llu", (unsigned long long)sm);
	cli_table_cell(t, "%llu", (unsigned long long)cli_u64(s, "blocks"));
	cli_table_cell(t, "%llu", (unsigned long long)cli_u64(s, "warps"));
	cli_table_cell(t, "%llu", (unsigned long long)cli_u64(s, "lanes"));
	if (time) {
		cli_table_cell(t, "%s", cli_duration(text, cli_u64(s, "busy_ns")));
	}
	cli_trace_bar(t, cli_u64(s, time ? "busy_ns" : "blocks"), most);
}

static void print_table(const struct cli *c, const json_t *f, bool time)
{
	static const char *const heads[] = { "SM", "BLOCKS", "WARPS", "LANES" };
	const json_t *s, *list = json_object_get(f, "sms");
	uint64_t next = 0, most = 0;
	struct cli_table t;
	size_t i;

	cli_table_init(&t);
	for (i = 0; i < ARRAY_SIZE(heads); i++) {
		cli_table_column(&t, heads[i], true);
	}
	if (time) {
		cli_table_column(&t, "BLOCK TIME", true);
	}
	cli_table_column(&t, time ? "SHARE OF TIME" : "SHARE OF BLOCKS", false);
	json_array_foreach(list, i, s)
	{
		most = MAX(most, cli_u64(s, time ? "busy_ns" : "blocks"));
	}
	json_array_foreach(list, i, s)
	{
		for (; next < cli_u64(s, "sm"); next++) {
			add_row(&t, next, NULL, time, most);
		}
		add_row(&t, next++, s, time, most);
	}
	cli_table_print(&t, stdout, c->color_out);
	cli_table_finish(&t);
}

/* Prints why blocks are weighed by number, or which have no part in the times. */
static void print_untimed(const json_t *f, bool time)
{
	uint64_t open = cli_u64(f, "without_end"), lost = cli_u64(f, "lost");
	bool in_part = cli_u64(f, "in_part") > 0;
	const char *why = cli_text(f, "why_in_part");

	why = why[0] ? why : "some kernels run without block_exit";

	if (!time) {
		printf("weighed by number of blocks, not by time: %s\n",
		       in_part		     ? why
		       : cli_u64(f, "ended") ? "the GPU's clock shows none for these blocks"
					     : "no block has begun and ended under the tool");
	}
	if (open && time && in_part) {
		printf("%llu block%s not in the time: still running, or the end is not seen: %s\n",
		       (unsigned long long)open, open == 1 ? " is" : "s are", why);
	} else if (open && !in_part) {
		printf("%llu block%s not ended%s\n", (unsigned long long)open,
		       open == 1 ? " has" : "s have", time ? ": not in the time" : "");
	}
	if (lost) {
		printf("%llu more block%s no time: the GPU's clock was set back\n",
		       (unsigned long long)lost, lost == 1 ? " has" : "s have");
	}
}

static void print(const struct cli *c, const json_t *f)
{
	uint64_t used = cli_u64(f, "used"), blocks = cli_u64(f, "blocks");
	bool time = by_time(f);

	if (!json_array_size(json_object_get(f, "sms"))) {
		puts("no blocks");
		return;
	}
	print_table(c, f, time);
	printf("%llu block%s on %llu SM%s, %llu to %llu each; imbalance %.2f (%s / mean)\n",
	       (unsigned long long)blocks, PLURAL(blocks), (unsigned long long)used, PLURAL(used),
	       (unsigned long long)cli_u64(f, "fewest"), (unsigned long long)cli_u64(f, "most"),
	       json_real_value(json_object_get(f, "imbalance")),
	       time ? "longest block time" : "most blocks");
	print_untimed(f, time);
}

const struct cli_trace_tool cli_trace_smmap = {
	.name = "smmap",
	.doc = "where blocks, warps and lanes run and for how long, and imbalance of the SMs",
	.forms = "PTX, machine code (numbers)",
	.maps = { &sms },
	.partial = true,
	.figures = figures,
	.print = print,
};
