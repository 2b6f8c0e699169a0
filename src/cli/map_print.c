/* Prints map entries: a table with a column for each member, bars for histograms. */
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "cli/map_print.h"

#define BAR_WIDTH 40
#define MAX_COLUMNS 10 /* per value; wider values are printed as one text */
#define CELL_MAX 60u
#define MIN_RUN 4 /* min number of equal elements that are abbreviated */

/* Returns the number of equal elements from i on. */
static size_t equal_run(const json_t *array, size_t i)
{
	size_t n = 1;

	while (i + n < json_array_size(array) &&
	       json_equal(json_array_get(array, i), json_array_get(array, i + n))) {
		n++;
	}
	return n;
}

static void add_text(struct buf *out, const json_t *v, size_t max)
{
	const char *key;
	json_t *in;
	size_t i;

	if (out->len > max) {
		return;
	}
	if (json_is_object(v)) {
		const char *sep = "";

		buf_puts(out, "{");
		json_object_foreach((json_t *)unqual(v), key, in)
		{
			buf_printf(out, "%s%s=", sep, key);
			add_text(out, in, max);
			sep = ", ";
		}
		buf_puts(out, "}");
	} else if (json_is_array(v)) {
		buf_puts(out, "[");
		for (i = 0; i < json_array_size(v) && out->len <= max; i++) {
			size_t n = equal_run(v, i);

			in = json_array_get(v, i);
			buf_puts(out, i ? ", " : "");
			add_text(out, in, max);
			if (n >= MIN_RUN) {
				buf_printf(out, " x %zu", n);
				i += n - 1;
			}
		}
		buf_puts(out, "]");
	} else if (json_is_string(v)) {
		buf_puts(out, json_string_value(v));
	} else if (json_is_integer(v)) {
		buf_printf(out, "%lld", (long long)json_integer_value(v));
	} else {
		buf_puts(out, json_is_true(v) ? "true" : json_is_false(v) ? "false" : "-");
	}
}

void cli_map_text(struct buf *out, const json_t *v, size_t max)
{
	struct buf raw = { 0 }, safe = { 0 };

	add_text(&raw, v, max);
	cli_safe_text(&safe, buf_text(&raw));
	if (safe.len > max) {
		buf_printf(out, "%.*s...", (int)max - 3, buf_text(&safe));
	} else {
		buf_puts(out, buf_text(&safe));
	}
	buf_finish(&raw);
	buf_finish(&safe);
}

/* ---- histograms ---- */

/* Formats a power of two: 64K. */
static const char *power_text(char out[24], uint64_t n)
{
	static const char units[] = "\0KMGTPE";
	unsigned k = 0;

	while (n >= 1024 && n % 1024 == 0 && k + 1 < sizeof(units) - 1) {
		n /= 1024;
		k++;
	}
	snprintf(out, 24, "%llu%.1s", (unsigned long long)n, &units[k]);
	return out;
}

/* The last bucket's bound is a string, since it exceeds JSON's integers. */
static uint64_t bound(const json_t *b, const char *key)
{
	const char *text = json_string_value(json_object_get(b, key));

	return text ? strtoull(text, NULL, 10) : cli_u64(b, key);
}

static void range_text(char out[64], uint64_t low, uint64_t high)
{
	char a[24], b[24];

	if (low == high) {
		snprintf(out, 64, "[%llu]", (unsigned long long)low);
	} else if (high == UINT64_MAX) {
		snprintf(out, 64, "[%s, ...)", power_text(a, low));
	} else {
		snprintf(out, 64, "[%s, %s)", power_text(a, low), power_text(b, high + 1));
	}
}

static void print_bar(const char *range, uint64_t count, uint64_t most)
{
	int n = most ? (int)((double)count / (double)most * BAR_WIDTH + 0.5) : 0;

	printf("  %-16s %10llu |", range, (unsigned long long)count);
	for (int i = 0; i < BAR_WIDTH; i++) {
		putchar(i < n ? '@' : ' ');
	}
	puts("|");
}

/* The reply omits empty buckets; those between two others are printed, too. */
static void print_buckets(const json_t *buckets)
{
	uint64_t most = 0, next = 0;
	char range[64];
	json_t *b;
	size_t i;

	json_array_foreach(buckets, i, b)
	{
		most = MAX(most, cli_u64(b, "count"));
	}
	json_array_foreach(buckets, i, b)
	{
		uint64_t low = bound(b, "low"), high = bound(b, "high");

		for (; i && next && next < low; next *= 2) {
			range_text(range, next, next * 2 - 1);
			print_bar(range, 0, most);
		}
		range_text(range, low, high);
		print_bar(range, cli_u64(b, "count"), most);
		next = high == UINT64_MAX ? 0 : high + 1;
	}
}

static void print_histogram(const struct cli_map *m, const json_t *result)
{
	json_t *e;
	size_t i;

	json_array_foreach(json_object_get(result, "entries"), i, e)
	{
		uint64_t pid = cli_map_pid(m, cli_u64(e, "tenant"));

		if (!cli_u64(e, "count")) {
			continue;
		}
		printf("%s[%llu]", cli_text(result, "map"), (unsigned long long)cli_u64(e, "key"));
		if (json_object_get(e, "tenant")) {
			printf(" of %s %llu", pid ? "process" : "tenant",
			       (unsigned long long)(pid ? pid : cli_u64(e, "tenant")));
		}
		printf(": %llu value%s\n", (unsigned long long)cli_u64(e, "count"),
		       PLURAL(cli_u64(e, "count")));
		print_buckets(json_object_get(e, "buckets"));
	}
}

/* ---- tables ---- */

static bool has_columns(const json_t *v)
{
	size_t n = json_object_size(v);

	return n && n <= MAX_COLUMNS && !json_object_get(v, "hex");
}

static void add_columns(struct cli_table *t, const json_t *v, const char *name, bool right)
{
	const char *key;
	json_t *in;

	if (!has_columns(v)) {
		cli_table_column(t, name, right && json_is_integer(v));
		return;
	}
	json_object_foreach((json_t *)unqual(v), key, in)
	{
		cli_table_column(t, key, json_is_integer(in));
	}
}

static void add_cell(struct cli_table *t, const json_t *v)
{
	struct buf text = { 0 };

	cli_map_text(&text, v, CELL_MAX);
	cli_table_cell(t, "%s", buf_text(&text));
	buf_finish(&text);
}

static void add_cells(struct cli_table *t, const json_t *like, const json_t *v)
{
	const char *key;
	json_t *in;

	if (!has_columns(like)) {
		add_cell(t, v);
		return;
	}
	json_object_foreach((json_t *)unqual(like), key, in)
	{
		add_cell(t, json_object_get(v, key));
	}
}

/* Returns the member of an entry's name or value, which differs with the type of the map. */
static const char *member(const json_t *first, const char *const names[])
{
	for (; *names; names++) {
		if (json_object_get(first, *names)) {
			return *names;
		}
	}
	return NULL;
}

static void print_table(struct cli *c, const struct cli_map *m, const json_t *entries)
{
	static const char *const keys[] = { "key", "index", NULL };
	static const char *const values[] = { "value", "map", "program", NULL };
	const json_t *first = json_array_get(entries, 0), *e;
	const char *key = member(first, keys), *value = member(first, values);
	const json_t *like_key = key ? json_object_get(first, key) : NULL;
	const json_t *like_value = value ? json_object_get(first, value) : NULL;
	bool of_tenant = json_object_get(first, "tenant");
	/* a typed key includes its length */
	bool bits = json_object_get(first, "prefix_bits") && !has_columns(like_key);
	struct cli_table t;
	size_t i;

	cli_table_init(&t);
	if (of_tenant) {
		cli_table_column(&t, "PID", true);
	}
	add_columns(&t, like_key, key && strcmp(key, "index") == 0 ? "INDEX" : "KEY", true);
	if (bits) {
		cli_table_column(&t, "BITS", true);
	}
	add_columns(&t, like_value, "VALUE", true);
	json_array_foreach(entries, i, e)
	{
		uint64_t tenant = cli_u64(e, "tenant"), pid = cli_map_pid(m, tenant);

		if (of_tenant) {
			cli_table_cell(&t, pid ? "%llu" : "tenant %llu",
				       (unsigned long long)(pid ? pid : tenant));
		}
		add_cells(&t, like_key, key ? json_object_get(e, key) : NULL);
		if (bits) {
			cli_table_cell(&t, "%llu", (unsigned long long)cli_u64(e, "prefix_bits"));
		}
		add_cells(&t, like_value, value ? json_object_get(e, value) : NULL);
	}
	cli_table_print(&t, stdout, c->color_out);
	cli_table_finish(&t);
}

/* Prints a global variable on one line. */
static void print_variable(const char *name, const json_t *v)
{
	struct buf text = { 0 };

	cli_map_text(&text, v, 300);
	printf("%-20s %s\n", name, buf_text(&text));
	buf_finish(&text);
}

static void print_variables(const struct cli_map *m, const json_t *entries)
{
	json_t *e, *v;
	const char *name;
	size_t i;

	json_array_foreach(entries, i, e)
	{
		json_t *value = json_object_get(e, "value");

		if (json_object_get(e, "tenant")) {
			printf("%sprocess %llu\n", i ? "\n" : "",
			       (unsigned long long)cli_map_pid(m, cli_u64(e, "tenant")));
		}
		if (m->variable) {
			print_variable(m->variable, value);
			continue;
		}
		json_object_foreach(value, name, v)
		{
			print_variable(name, v);
		}
	}
}

static bool is_variables(const json_t *result)
{
	const char *map = cli_text(result, "map");

	return map[0] == '.' || strstr(map, ".bss") || strstr(map, ".data") ||
	       strstr(map, ".rodata");
}

void cli_map_print(struct cli *c, const struct cli_map *m, const json_t *result)
{
	const json_t *entries = json_object_get(result, "entries");

	if (!json_array_size(entries)) {
		return;
	}
	if (strcmp(cli_text(result, "type"), "histogram") == 0) {
		print_histogram(m, result);
	} else if (is_variables(result)) {
		print_variables(m, entries);
	} else {
		print_table(c, m, entries);
	}
}
