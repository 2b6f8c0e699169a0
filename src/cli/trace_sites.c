/* Figures by site, the places in a kernel at which a hook runs. */
#include "cli/trace.h"

#include <stdlib.h>

#define ROWS 20u

double cli_trace_ratio(uint64_t part, uint64_t whole)
{
	return whole ? (double)part / (double)whole : 0;
}

json_t *cli_trace_sites(const uint64_t *at, unsigned words,
			void (*add)(json_t *site, const uint64_t *words))
{
	json_t *list = json_array();

	for (unsigned i = 0; i < CLI_TRACE_SITES; i++, at += words) {
		uint64_t count = at[CLI_SITE_COUNT];
		json_t *s;

		if (!count) {
			continue;
		}
		s = json_pack("{s:i, s:b, s:I, s:I}", "site", (int)i, "others",
			      (int)(i == CLI_TRACE_SITES - 1), "line",
			      (json_int_t)(at[CLI_SITE_LINES] / count), "count", (json_int_t)count);
		add(s, at);
		json_array_append_new(list, s);
	}
	return list;
}

/* ---- the table ---- */

struct ranked {
	const json_t *site;
	uint64_t value;
};

static int higher_first(const void *a, const void *b)
{
	const struct ranked *x = a, *y = b;

	return x->value != y->value ? (x->value < y->value ? 1 : -1)
				    : (cli_u64(x->site, "site") > cli_u64(y->site, "site")) -
					      (cli_u64(x->site, "site") < cli_u64(y->site, "site"));
}

static void add_place(struct cli_table *t, const json_t *s)
{
	bool others = json_is_true(json_object_get(s, "others"));

	cli_table_cell(t, others ? "others" : "%llu", (unsigned long long)cli_u64(s, "site"));
	if (cli_u64(s, "line") && !others) {
		cli_table_cell(t, "%llu", (unsigned long long)cli_u64(s, "line"));
	} else {
		cli_table_cell(t, "-");
	}
	cli_table_cell(t, "%llu", (unsigned long long)cli_u64(s, "count"));
}

static void begin_table(struct cli_table *t, const char *const *heads)
{
	cli_table_init(t);
	cli_table_column(t, "SITE", true);
	cli_table_column(t, "LINE", true);
	cli_table_column(t, "COUNT", true);
	for (; *heads; heads++) {
		cli_table_column(t, *heads, heads[1] != NULL); /* the last is a bar */
	}
}

void cli_trace_print_sites(const struct cli *c, const json_t *sites, const char *member,
			   const char *const *heads,
			   void (*add)(struct cli_table *t, const json_t *site, uint64_t max))
{
	struct ranked all[CLI_TRACE_SITES];
	size_t n = MIN(json_array_size(sites), (size_t)CLI_TRACE_SITES);
	struct cli_table t;

	for (size_t i = 0; i < n; i++) {
		all[i].site = json_array_get(sites, i);
		all[i].value = cli_u64(all[i].site, member);
	}
	qsort(all, n, sizeof(all[0]), higher_first);
	begin_table(&t, heads);
	for (size_t i = 0; i < MIN(n, (size_t)ROWS); i++) {
		add_place(&t, all[i].site);
		add(&t, all[i].site, all[0].value);
	}
	cli_table_print(&t, stdout, c->color_out);
	cli_table_finish(&t);
	if (n > ROWS) {
		printf("%zu more sites; --json shows all\n", n - ROWS);
	}
}
