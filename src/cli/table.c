/* Tables on a terminal: columns as wide as their widest cell, separated by two blanks. */
#include "cli/cli.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

void cli_table_init(struct cli_table *t)
{
	memset(t, 0, sizeof(*t));
}

void cli_table_finish(struct cli_table *t)
{
	for (size_t i = 0; i < t->n; i++) {
		free(t->cells[i]);
	}
	free(t->cells);
	memset(t, 0, sizeof(*t));
}

void cli_table_column(struct cli_table *t, const char *head, bool right)
{
	if (t->columns < CLI_COLUMNS) {
		t->head[t->columns] = head;
		t->right[t->columns++] = right;
	}
}

void cli_safe_text(struct buf *out, const char *text)
{
	for (const unsigned char *p = (const unsigned char *)text; *p; p++) {
		/* C1 control characters are c2 80 .. c2 9f in UTF-8. */
		if (p[0] == 0xc2 && p[1] >= 0x80 && p[1] <= 0x9f) {
			buf_add(out, "?", 1);
			p++;
		} else if ((*p < 0x20 && *p != '\n' && *p != '\t') || *p == 0x7f) {
			buf_add(out, "?", 1);
		} else {
			buf_add(out, p, 1);
		}
	}
}

static char *make_cell(const char *fmt, va_list ap)
{
	struct buf raw = { 0 }, safe = { 0 };

	buf_vprintf(&raw, fmt, ap);
	cli_safe_text(&safe, raw.len ? buf_text(&raw) : "-");
	for (size_t i = 0; i < safe.len; i++) {
		if (safe.data[i] == '\n' || safe.data[i] == '\t') {
			safe.data[i] = ' ';
		}
	}
	buf_finish(&raw);
	return buf_steal(&safe);
}

void cli_table_cell(struct cli_table *t, const char *fmt, ...)
{
	va_list ap;

	if (t->n == t->cap) {
		size_t cap = t->cap ? t->cap * 2 : 64;
		char **cells = realloc(t->cells, cap * sizeof(*cells));

		if (!cells) {
			return;
		}
		t->cells = cells;
		t->cap = cap;
	}
	va_start(ap, fmt);
	t->cells[t->n++] = make_cell(fmt, ap);
	va_end(ap);
}

/* Returns the width in characters, not bytes: units contain µ. */
static int width_of(const char *s)
{
	int n = 0;

	for (; *s; s++) {
		n += (*s & 0xc0) != 0x80;
	}
	return n;
}

static const char *cell_at(const struct cli_table *t, size_t i)
{
	return t->cells[i] ? t->cells[i] : "?";
}

static void print_cell(const struct cli_table *t, unsigned column, int width, const char *text,
		       FILE *to)
{
	int pad = width - width_of(text);
	bool last = column + 1 == t->columns;

	if (t->right[column]) {
		fprintf(to, "%*s%s%s", pad, "", text, last ? "" : "  ");
	} else if (last) {
		fputs(text, to);
	} else {
		fprintf(to, "%s%*s  ", text, pad, "");
	}
}

void cli_table_print(const struct cli_table *t, FILE *to, bool color)
{
	int width[CLI_COLUMNS] = { 0 };

	for (unsigned k = 0; k < t->columns; k++) {
		width[k] = width_of(t->head[k]);
		for (size_t i = k; i < t->n; i += t->columns) {
			width[k] = MAX(width[k], width_of(cell_at(t, i)));
		}
	}
	fputs(cli_style(color, CLI_BOLD), to);
	for (unsigned k = 0; k < t->columns; k++) {
		print_cell(t, k, width[k], t->head[k], to);
	}
	fprintf(to, "%s\n", cli_style(color, CLI_PLAIN));
	for (size_t i = 0; t->columns && i + t->columns <= t->n; i += t->columns) {
		for (unsigned k = 0; k < t->columns; k++) {
			print_cell(t, k, width[k], cell_at(t, i + k), to);
		}
		fputc('\n', to);
	}
}
