/* args: the arguments with which kernels are launched, by kernel and parameter. */
#include "cli/trace.h"

#include <stdlib.h>

#define ROWS 4u /* values of a parameter in the text */

enum { KERNEL, LAUNCHES };
enum { V_KERNEL, V_INDEX, V_BYTES, V_VALUE, V_COUNT, V_WORDS };

/* Twice as many entries as the tool has, so that what it has evicted stays. */
static const char *const launch_fields[] = { "kernel", "count", NULL };
static const struct cli_trace_map launches = { "launches", 2048, launch_fields, CLI_TRACE_KEYED,
					       LAUNCHES };
static const char *const value_fields[] = { "kernel", "index", "bytes", "value", "count", NULL };
static const struct cli_trace_map values = { "values", 16384, value_fields, CLI_TRACE_KEYED,
					     V_COUNT };

/* ---- figures ---- */

/* By kernel and parameter; the most frequent value first. */
static int by_param(const void *a, const void *b)
{
	const uint64_t *x = *(const uint64_t *const *)a, *y = *(const uint64_t *const *)b;

	for (unsigned i = V_KERNEL; i <= V_BYTES; i++) {
		if (x[i] != y[i]) {
			return x[i] < y[i] ? -1 : 1;
		}
	}
	if (x[V_COUNT] != y[V_COUNT]) {
		return x[V_COUNT] > y[V_COUNT] ? -1 : 1;
	}
	return (x[V_VALUE] > y[V_VALUE]) - (x[V_VALUE] < y[V_VALUE]);
}

static bool same_param(const uint64_t *a, const uint64_t *b)
{
	return a[V_KERNEL] == b[V_KERNEL] && a[V_INDEX] == b[V_INDEX] && a[V_BYTES] == b[V_BYTES];
}

/* A number that is none of JSON's integers is a text. */
static json_t *number_json(uint64_t v)
{
	return v <= INT64_MAX ? json_integer((json_int_t)v)
			      : json_sprintf("%llu", (unsigned long long)v);
}

/* Of the n values of a parameter. */
static json_t *param_json(const uint64_t *const *at, size_t n, uint64_t n_launches)
{
	json_t *list = json_array();
	uint64_t counted = 0;

	for (size_t i = 0; i < n; i++) {
		counted += at[i][V_COUNT];
		json_array_append_new(list,
				      json_pack("{s:o, s:I}", "value", number_json(at[i][V_VALUE]),
						"count", (json_int_t)at[i][V_COUNT]));
	}
	return json_pack("{s:I, s:I, s:I, s:o}", "index", (json_int_t)at[0][V_INDEX], "bytes",
			 (json_int_t)at[0][V_BYTES], "others",
			 (json_int_t)(n_launches - MIN(n_launches, counted)), "values", list);
}

static json_t *kernel_json(const struct cli_trace_values *v, const uint64_t *kernel,
			   const uint64_t *const *at, size_t n)
{
	json_t *params = json_array();
	char room[24];

	for (size_t i = 0, end; i < n; i = end) {
		for (end = i + 1; end < n && same_param(at[i], at[end]); end++) {
		}
		if (at[i][V_KERNEL] == kernel[KERNEL]) {
			json_array_append_new(params,
					      param_json(at + i, end - i, kernel[LAUNCHES]));
		}
	}
	return json_pack("{s:s, s:I, s:o}", "kernel",
			 cli_trace_name(v->names, kernel[KERNEL], room), "launches",
			 (json_int_t)kernel[LAUNCHES], "params", params);
}

/* Returns the values that were seen, in order. at: room for all. */
static size_t sorted(const uint64_t *words, const uint64_t **at)
{
	size_t n = 0;

	for (size_t i = 0; i < values.entries; i++, words += V_WORDS) {
		if (words[V_COUNT]) {
			at[n++] = words;
		}
	}
	qsort(at, n, sizeof(*at), by_param);
	return n;
}

static int more_launches_first(const void *a, const void *b)
{
	const uint64_t *x = *(const uint64_t *const *)a, *y = *(const uint64_t *const *)b;

	if (x[LAUNCHES] != y[LAUNCHES]) {
		return x[LAUNCHES] > y[LAUNCHES] ? -1 : 1;
	}
	return (x[KERNEL] > y[KERNEL]) - (x[KERNEL] < y[KERNEL]);
}

static json_t *figures(const struct cli_trace_values *v)
{
	const uint64_t **at = calloc(values.entries, sizeof(*at));
	const uint64_t **kernels = calloc(launches.entries, sizeof(*kernels));
	size_t n = at ? sorted(v->at[1], at) : 0, n_kernels = 0;
	json_t *list = json_array();
	uint64_t sum = 0;

	for (size_t i = 0; kernels && i < launches.entries; i++) {
		if (v->at[0][2 * i + LAUNCHES]) {
			kernels[n_kernels++] = v->at[0] + 2 * i;
			sum += v->at[0][2 * i + LAUNCHES];
		}
	}
	if (kernels) {
		qsort(kernels, n_kernels, sizeof(*kernels), more_launches_first);
	}
	for (size_t i = 0; i < n_kernels; i++) {
		json_array_append_new(list, kernel_json(v, kernels[i], at, n));
	}
	free(at);
	free(kernels);
	return json_pack("{s:I, s:o}", "launches", (json_int_t)sum, "kernels", list);
}

/* ---- text ---- */

static void add_cells(struct cli_table *t, const json_t *kernel, const json_t *param,
		      uint64_t count)
{
	cli_table_cell(t, "%s", cli_text(kernel, "kernel"));
	cli_table_cell(t, "%llu", (unsigned long long)cli_u64(param, "index"));
	cli_table_cell(t, "%llu", (unsigned long long)cli_u64(param, "bytes"));
	cli_table_cell(t, "%llu", (unsigned long long)count);
}

/* Large numbers are addresses or bits of floating-point numbers. */
static void add_value(struct cli_table *t, const json_t *value)
{
	const char *text = json_string_value(value);
	uint64_t v = text ? strtoull(text, NULL, 10) : (uint64_t)json_integer_value(value);

	cli_table_cell(t, v < 1u << 24 ? "%llu" : "0x%llx", (unsigned long long)v);
}

static void add_rows(struct cli_table *t, const json_t *kernel, const json_t *param)
{
	const json_t *list = json_object_get(param, "values"), *v;
	uint64_t n = cli_u64(kernel, "launches"), others = cli_u64(param, "others");
	size_t i, more = 0;

	json_array_foreach(list, i, v)
	{
		if (i >= ROWS) {
			others += cli_u64(v, "count");
			more++;
			continue;
		}
		add_cells(t, kernel, param, cli_u64(v, "count"));
		add_value(t, json_object_get(v, "value"));
		cli_trace_bar(t, cli_u64(v, "count"), n);
	}
	if (others) {
		add_cells(t, kernel, param, others);
		cli_table_cell(t, more ? "%zu others" : "others", more);
		cli_trace_bar(t, others, n);
	}
}

static void print(const struct cli *c, const json_t *f)
{
	static const char *const heads[] = { "PARAM", "BYTES", "COUNT", "VALUE" };
	const json_t *list = json_object_get(f, "kernels"), *kernel, *param;
	uint64_t n = cli_u64(f, "launches");
	struct cli_table t;
	size_t i, k;

	if (!n) {
		puts("no launches");
		return;
	}
	cli_table_init(&t);
	cli_table_column(&t, "KERNEL", false);
	for (i = 0; i < ARRAY_SIZE(heads); i++) {
		cli_table_column(&t, heads[i], true);
	}
	cli_table_column(&t, "SHARE", false);
	json_array_foreach(list, i, kernel)
	{
		json_array_foreach(json_object_get(kernel, "params"), k, param)
		{
			add_rows(&t, kernel, param);
		}
	}
	cli_table_print(&t, stdout, c->color_out);
	cli_table_finish(&t);
	printf("%llu launch%s of %zu kernel%s\n", (unsigned long long)n, n == 1 ? "" : "es",
	       json_array_size(list), PLURAL(json_array_size(list)));
}

const struct cli_trace_tool cli_trace_args = {
	.name = "args",
	.doc = "values of the arguments with which kernels are launched",
	.forms = "PTX, machine code",
	.maps = { &launches, &values },
	.by_name = true,
	.figures = figures,
	.print = print,
};
