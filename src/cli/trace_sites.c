/* Figures by line of a kernel at which a hook runs. */
#include "cli/trace.h"

#include <stdlib.h>

#define ROWS 20u

json_t *cli_trace_sites(const struct cli_trace_rows *rows, const uint64_t *at, unsigned words,
			void (*add)(json_t *site, const uint64_t *words))
{
	json_t *list = json_array();

	for (size_t row = 0; row < CLI_TRACE_ROWS; row++, at += words) {
		uint64_t count = at[CLI_SITE_COUNT];
		json_t *s = count ? json_object() : NULL;

		if (s) {
			cli_trace_row_json(s, rows, row);
			json_object_set_new(s, "count", json_integer((json_int_t)count));
			add(s, at);
			json_array_append_new(list, s);
		}
	}
	return list;
}

/* ---- the table ---- */

struct ranked {
	const json_t *site;
	uint64_t value;
	size_t order;
};

static int higher_first(const void *a, const void *b)
{
	const struct ranked *x = a, *y = b;

	return x->value != y->value ? (x->value < y->value ? 1 : -1)
				    : (x->order > y->order) - (x->order < y->order);
}

static void begin_table(struct cli_table *t, const char *const *heads, bool source)
{
	cli_table_init(t);
	cli_trace_row_columns(t, source);
	cli_table_column(t, "COUNT", true);
	for (; *heads; heads++) {
		cli_table_column(t, *heads, heads[1] != NULL); /* the last is a bar */
	}
}

void cli_trace_print_sites(const struct cli *c, const json_t *sites, const char *member,
			   const char *const *heads,
			   void (*add)(struct cli_table *t, const json_t *site, uint64_t max))
{
	size_t n = json_array_size(sites);
	struct ranked *all = calloc(n + 1, sizeof(*all));
	bool source = cli_trace_any_source(sites);
	struct cli_table t;

	for (size_t i = 0; all && i < n; i++) {
		const json_t *s = json_array_get(sites, i);

		all[i] = (struct ranked){ s, cli_u64(s, member), i };
	}
	if (all) {
		qsort(all, n, sizeof(all[0]), higher_first);
	}
	begin_table(&t, heads, source);
	for (size_t i = 0; all && i < MIN(n, (size_t)ROWS); i++) {
		cli_trace_row_cells(&t, all[i].site, source);
		cli_table_cell(&t, "%llu", (unsigned long long)cli_u64(all[i].site, "count"));
		add(&t, all[i].site, all[0].value);
	}
	free(all);
	cli_table_print(&t, stdout, c->color_out);
	cli_table_finish(&t);
	if (n > ROWS) {
		printf("%zu more lines; --json shows all\n", n - ROWS);
	}
}
