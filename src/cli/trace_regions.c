/* Figures by region of memory. A place of the table has sums only, so that the region that owns it
 * is a mean: known if it is the same in all contexts and programs, as the sum of squares shows. */
#include "cli/trace.h"

#include <stdlib.h>
#include <string.h>

#define ROWS 20u
#define STEP 40503u /* tracers/regions.h */
#define LINE_REGIONS 64u
#define LINES 24u

/* ---- figures ---- */

/* Stores the address of the region of place k. Returns false if the place has another one in
 * another context or program, or if the words were read during its first access. */
static bool address_of(const uint64_t *at, uint32_t k, uint64_t bytes, uint64_t *ret)
{
	uint64_t owner = at[CLI_REGION_OWNER], n = at[CLI_REGION_OWNERS];
	uint64_t tag = n ? owner / n - 1 : 0;

	*ret = (tag * CLI_TRACE_REGIONS + (k - (uint32_t)tag * STEP) % CLI_TRACE_REGIONS) * bytes;
	return n && owner && owner % n == 0 && at[CLI_REGION_SQUARES] * n == owner * owner;
}

struct region {
	uint64_t address;
	json_t *json;
};

static int by_address(const void *a, const void *b)
{
	const struct region *x = a, *y = b;

	return (x->address > y->address) - (x->address < y->address);
}

static void add_region(struct region *r, const uint64_t *at,
		       void (*add)(json_t *region, const uint64_t *words))
{
	char text[24];

	snprintf(text, sizeof(text), "0x%llx", (unsigned long long)r->address);
	r->json = json_pack("{s:s, s:I, s:I}", "address", text, "count",
			    (json_int_t)at[CLI_REGION_COUNT], "spread",
			    (json_int_t)at[CLI_REGION_SPREAD]);
	add(r->json, at);
}

json_t *cli_trace_regions(const uint64_t *at, unsigned words, uint64_t bytes,
			  void (*add)(json_t *region, const uint64_t *words), uint64_t *ret_mixed)
{
	struct region *all = calloc(CLI_TRACE_REGIONS, sizeof(*all));
	json_t *list = json_array();
	size_t n = 0;

	*ret_mixed = 0;
	for (uint32_t k = 0; all && k < CLI_TRACE_REGIONS; k++, at += words) {
		*ret_mixed += at[CLI_REGION_MIXED];
		if (!at[CLI_REGION_COUNT]) {
			continue;
		}
		if (!address_of(at, k, bytes, &all[n].address)) {
			*ret_mixed += at[CLI_REGION_COUNT];
			continue;
		}
		add_region(&all[n++], at, add);
	}
	if (all) {
		qsort(all, n, sizeof(*all), by_address);
	}
	for (size_t i = 0; i < n; i++) {
		json_array_append_new(list, all[i].json);
	}
	free(all);
	return list;
}

/* ---- the table ---- */

struct ranked {
	const json_t *region;
	uint64_t value;
	size_t place;
};

static int higher_first(const void *a, const void *b)
{
	const struct ranked *x = a, *y = b;

	return x->value != y->value ? (x->value < y->value ? 1 : -1)
				    : (x->place > y->place) - (x->place < y->place);
}

void cli_trace_print_regions(const struct cli *c, const json_t *regions, const char *member,
			     const char *const *heads,
			     void (*add)(struct cli_table *t, const json_t *region, uint64_t max))
{
	size_t n = json_array_size(regions);
	struct ranked *all = calloc(n + 1, sizeof(*all));
	struct cli_table t;

	for (size_t i = 0; all && i < n; i++) {
		all[i].region = json_array_get(regions, i);
		all[i].value = cli_u64(all[i].region, member);
		all[i].place = i;
	}
	if (all) {
		qsort(all, n, sizeof(*all), higher_first);
	}
	cli_table_init(&t);
	cli_table_column(&t, "ADDRESS", false);
	cli_table_column(&t, "COUNT", true);
	for (; *heads; heads++) {
		cli_table_column(&t, *heads, heads[1] != NULL); /* the last is a bar */
	}
	for (size_t i = 0; all && i < MIN(n, (size_t)ROWS); i++) {
		cli_table_cell(&t, "%s", cli_text(all[i].region, "address"));
		cli_table_cell(&t, "%llu", (unsigned long long)cli_u64(all[i].region, "count"));
		add(&t, all[i].region, all[0].value);
	}
	cli_table_print(&t, stdout, c->color_out);
	cli_table_finish(&t);
	free(all);
	if (n > ROWS) {
		printf("%zu more regions; --json shows all\n", n - ROWS);
	}
}

/* ---- the picture ---- */

static uint64_t number_of(const json_t *region, uint64_t bytes)
{
	return strtoull(cli_text(region, "address"), NULL, 16) / bytes;
}

static void draw_line(uint64_t first, uint64_t bytes, const char line[LINE_REGIONS + 1])
{
	printf("0x%012llx |%s|\n", (unsigned long long)(first * bytes), line);
}

void cli_trace_draw_regions(const json_t *regions, const char *member, uint64_t bytes)
{
	static const char shades[] = ".:-=+*#%@";
	const uint64_t n_shades = sizeof(shades) - 1;
	char line[LINE_REGIONS + 1] = "", size[24];
	uint64_t most = 1, first = 0, lines = 0;
	const json_t *r;
	size_t i;

	json_array_foreach(regions, i, r)
	{
		most = MAX(most, cli_u64(r, member));
	}
	json_array_foreach(regions, i, r)
	{
		uint64_t k = number_of(r, bytes);
		double share = cli_trace_ratio(cli_u64(r, member), most);

		if (!line[0] || k / LINE_REGIONS != first / LINE_REGIONS) {
			if (line[0]) {
				draw_line(first, bytes, line);
			}
			if (lines++ == LINES) {
				puts("...");
				return;
			}
			first = k / LINE_REGIONS * LINE_REGIONS;
			memset(line, ' ', LINE_REGIONS);
		}
		line[k % LINE_REGIONS] =
			shades[MIN((uint64_t)(share * (double)n_shades), n_shades - 1)];
	}
	if (line[0]) {
		draw_line(first, bytes, line);
		printf("Each character is %s; @ the hottest.\n", cli_bytes(size, bytes));
	}
}

void cli_trace_print_inexact(uint64_t spread, uint64_t mixed)
{
	if (spread) {
		printf("%llu access%s in several regions, counted in the lowest\n",
		       (unsigned long long)spread, spread == 1 ? " was" : "es were");
	}
	if (mixed) {
		printf("%llu access%s in other regions with the same places in the table: their "
		       "addresses are not known\n",
		       (unsigned long long)mixed, mixed == 1 ? " was" : "es were");
	}
}
