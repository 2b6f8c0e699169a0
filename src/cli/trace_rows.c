/* The rows of tools by place: lines of kernels or, where no line is known, sites. Each program
 * numbers its places by itself, so equal ones of several programs share a row. Names come from the
 * programs. */
#include "cli/trace.h"

#include <stdlib.h>
#include <string.h>

struct row {
	uint64_t kernel; /* hash of its name */
	uint64_t hook, line, site;
	char *name, *file; /* owned; of the kernel; NULL: no memory */
	char source[CLI_TRACE_SOURCE_BYTES];
};

struct cli_trace_rows {
	struct cli_trace_sources *sources; /* owned; of the list that is being read; NULL: none */
	unsigned n;
	struct row at[CLI_TRACE_UNKNOWN];
};

uint64_t cli_trace_number(const json_t *v)
{
	const char *text = json_string_value(v);

	return text ? strtoull(text, NULL, 10)
		    : (uint64_t)(json_is_integer(v) ? json_integer_value(v) : 0);
}

struct cli_trace_rows *cli_trace_rows_new(void)
{
	return calloc(1, sizeof(struct cli_trace_rows));
}

void cli_trace_rows_free(struct cli_trace_rows *rows)
{
	for (unsigned i = 0; rows && i < rows->n; i++) {
		free(rows->at[i].name);
		free(rows->at[i].file);
	}
	cli_trace_rows_end_list(rows);
	free(rows);
}

void cli_trace_rows_end_list(struct cli_trace_rows *rows)
{
	if (rows) {
		cli_trace_sources_free(rows->sources);
		rows->sources = NULL;
	}
}

static const char *text_of(const char *text)
{
	return text ? text : "";
}

/* Without a line each site is a row. */
static bool is_row(const struct row *r, const struct row *wanted, const char *file)
{
	return r->kernel == wanted->kernel && r->line == wanted->line && r->hook == wanted->hook &&
	       (r->line || r->site == wanted->site) && strcmp(text_of(r->file), file) == 0;
}

unsigned cli_trace_row(struct cli_trace_rows *rows, const json_t *value)
{
	const char *file = cli_text(value, "file");
	struct row *r, wanted = { .kernel = cli_trace_number(json_object_get(value, "kernel")),
				  .hook = cli_u64(value, "hook"),
				  .line = cli_u64(value, "line"),
				  .site = cli_u64(value, "site") };
	unsigned i = 0;

	while (i < rows->n && !is_row(&rows->at[i], &wanted, file)) {
		i++;
	}
	if (i < rows->n) {
		return i;
	}
	if (i == ARRAY_SIZE(rows->at)) {
		return CLI_TRACE_OTHERS;
	}
	r = &rows->at[rows->n++];
	*r = wanted;
	r->name = strdup(cli_text(value, "name"));
	r->file = strdup(file);
	rows->sources = rows->sources ? rows->sources : cli_trace_sources_new();
	cli_trace_source(rows->sources, text_of(r->file), r->line, r->source);
	return i;
}

void cli_trace_row_json(json_t *to, const struct cli_trace_rows *rows, size_t row)
{
	static const struct row others;
	bool known = rows && row < rows->n;
	const struct row *r = known ? &rows->at[row] : &others;

	json_object_set_new(to, "kernel", cli_json_text(text_of(r->name)));
	json_object_set_new(to, "file", cli_json_text(text_of(r->file)));
	json_object_set_new(to, "line", json_integer((json_int_t)r->line));
	json_object_set_new(to, "site", json_integer((json_int_t)r->site));
	json_object_set_new(to, "source", cli_json_text(r->source));
	json_object_set_new(to, "others", json_boolean(!known && row != CLI_TRACE_UNKNOWN));
	json_object_set_new(to, "unknown", json_boolean(!known && row == CLI_TRACE_UNKNOWN));
}

/* ---- the table ---- */

bool cli_trace_any_source(const json_t *objects)
{
	const json_t *o;
	size_t i;

	json_array_foreach(objects, i, o)
	{
		if (cli_text(o, "source")[0]) {
			return true;
		}
	}
	return false;
}

void cli_trace_row_columns(struct cli_table *t, bool source)
{
	cli_table_column(t, "KERNEL", false);
	cli_table_column(t, "LINE", false);
	if (source) {
		cli_table_column(t, "SOURCE", false);
	}
}

/* Returns what the row is called that is none of a line; NULL: it is one. */
static const char *no_line(const json_t *o)
{
	return json_is_true(json_object_get(o, "others"))    ? "others"
	       : json_is_true(json_object_get(o, "unknown")) ? "unknown"
							     : NULL;
}

/* As filters of sites name them (gbpf-probe(1)). */
static void line_cell(struct cli_table *t, const json_t *o)
{
	const char *file = cli_text(o, "file"), *slash = strrchr(file, '/');
	unsigned long long line = cli_u64(o, "line");

	if (no_line(o)) {
		cli_table_cell(t, "-");
	} else if (!line) {
		cli_table_cell(t, "#%llu", (unsigned long long)cli_u64(o, "site"));
	} else if (!file[0]) {
		cli_table_cell(t, "line %llu", line);
	} else {
		cli_table_cell(t, "%s:%llu", slash ? slash + 1 : file, line);
	}
}

void cli_trace_row_cells(struct cli_table *t, const json_t *o, bool source)
{
	cli_table_cell(t, "%s", no_line(o) ? no_line(o) : cli_text(o, "kernel"));
	line_cell(t, o);
	if (source) {
		cli_table_cell(t, "%s", cli_text(o, "source"));
	}
}
