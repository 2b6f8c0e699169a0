/* Tables: columns as wide as their widest cell, separated by two blanks. On a terminal that is
 * narrower, columns of text are shortened, the widest first; then optional columns are left out,
 * and the others shortened further. */
#include "cli/cli.h"

#include <limits.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include <wchar.h>
#include <wctype.h>

#define GAP 2
#define SHORTENED 16	/* width to which columns of text are shortened at first */
#define MIN_SHORTENED 8 /* their least width, where no further column can be left out */
#define LEFT_OUT (-GAP) /* width of a column that takes no place */

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

void cli_table_optional(struct cli_table *t, unsigned rank)
{
	if (t->columns) {
		t->optional[t->columns - 1] = rank;
	}
}

/* Returns true for a control character or a byte that the terminal would not understand. */
static bool is_unsafe(wchar_t c, size_t n)
{
	return n == (size_t)-1 || n == (size_t)-2 || n == 0 ||
	       (c != '\n' && c != '\t' && !iswprint((wint_t)c));
}

void cli_safe_text(struct buf *out, const char *text)
{
	while (*text) {
		mbstate_t state = { 0 };
		wchar_t c = 0;
		size_t n = mbrtowc(&c, text, MB_CUR_MAX, &state);
		bool unsafe = is_unsafe(c, n);

		n = n > MB_LEN_MAX || !n ? 1 : n;
		buf_add(out, unsafe ? "?" : text, unsafe ? 1 : n);
		text += n;
	}
}

void cli_put_safe(FILE *to, const char *text)
{
	struct buf safe = { 0 };

	cli_safe_text(&safe, text);
	fputs(buf_text(&safe), to);
	buf_finish(&safe);
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

int cli_terminal_width(int fd)
{
	const char *columns = getenv("COLUMNS");
	int n = columns ? (int)strtol(columns, NULL, 10) : 0;
	struct winsize w;

	if (!isatty(fd)) {
		return 0;
	}
	return n > 0 ? n : ioctl(fd, TIOCGWINSZ, &w) == 0 ? w.ws_col : 0;
}

/* Reads one character. Returns its bytes, at least 1 unless s is empty, and its columns. */
static size_t next_char(const char *s, int *ret_columns)
{
	mbstate_t state = { 0 };
	wchar_t c = 0;
	size_t n = mbrtowc(&c, s, MB_CUR_MAX, &state);

	if (n == (size_t)-1 || n == (size_t)-2) {
		*ret_columns = 1;
		return 1;
	}
	*ret_columns = MAX(wcwidth(c), 0);
	return n;
}

/* Returns the columns that s takes on a terminal. */
static int width_of(const char *s)
{
	int all = 0, columns;

	while (*s) {
		s += next_char(s, &columns);
		all += columns;
	}
	return all;
}

/* Returns the bytes at the beginning of s that take at most width columns, and these columns. */
static size_t fitting(const char *s, int width, int *ret_columns)
{
	size_t bytes = 0;
	int columns;

	*ret_columns = 0;
	while (s[bytes]) {
		size_t n = next_char(s + bytes, &columns);

		if (*ret_columns + columns > width) {
			break;
		}
		bytes += n;
		*ret_columns += columns;
	}
	return bytes;
}

static const char *cell_at(const struct cli_table *t, size_t i)
{
	return t->cells[i] ? t->cells[i] : "?";
}

/* last: it is the last of its line. */
static void print_cell(const struct cli_table *t, unsigned column, int width, bool last,
		       const char *text, FILE *to)
{
	int columns = width_of(text);
	const char *mark = "";
	size_t bytes = strlen(text);

	if (columns > width) {
		mark = cli_sign("…", "~");
		bytes = fitting(text, width - 1, &columns);
		columns++;
	}
	if (t->right[column]) {
		fprintf(to, "%*s", width - columns, "");
	}
	fprintf(to, "%.*s%s", (int)bytes, text, mark);
	if (!last) {
		fprintf(to, "%*s", (t->right[column] ? 0 : width - columns) + GAP, "");
	}
}

/* Takes columns of text down to `least`, until the table is at most terminal columns wide. Returns
 * whether it is. */
static bool shorten(const struct cli_table *t, int width[CLI_COLUMNS], int terminal, int least)
{
	for (;;) {
		int all = -GAP;
		unsigned widest = CLI_COLUMNS;

		for (unsigned k = 0; k < t->columns; k++) {
			all += width[k] + GAP;
			if (!t->right[k] && width[k] > least &&
			    (widest == CLI_COLUMNS || width[k] > width[widest])) {
				widest = k;
			}
		}
		if (all <= terminal || widest == CLI_COLUMNS) {
			return all <= terminal;
		}
		width[widest]--;
	}
}

/* Leaves out the column that is wanted least. Returns false if there is none. */
static bool leave_out(const struct cli_table *t, int width[CLI_COLUMNS])
{
	unsigned least = CLI_COLUMNS;

	for (unsigned k = 0; k < t->columns; k++) {
		if (t->optional[k] && width[k] != LEFT_OUT &&
		    (least == CLI_COLUMNS || t->optional[k] > t->optional[least])) {
			least = k;
		}
	}
	if (least < CLI_COLUMNS) {
		width[least] = LEFT_OUT;
	}
	return least < CLI_COLUMNS;
}

/* Columns that are left out let the others be as wide as they can. */
static void fit(const struct cli_table *t, int width[CLI_COLUMNS], int terminal)
{
	int full[CLI_COLUMNS];

	memcpy(full, width, sizeof(full));
	while (!shorten(t, width, terminal, SHORTENED) && leave_out(t, full)) {
		memcpy(width, full, sizeof(full));
	}
	(void)shorten(t, width, terminal, MIN_SHORTENED);
}

static void measure(const struct cli_table *t, int width[CLI_COLUMNS])
{
	for (unsigned k = 0; k < t->columns; k++) {
		width[k] = width_of(t->head[k]);
		for (size_t i = k; i < t->n; i += t->columns) {
			width[k] = MAX(width[k], width_of(cell_at(t, i)));
		}
	}
}

static void print_line(const struct cli_table *t, const int width[CLI_COLUMNS],
		       const char *const *cells, FILE *to)
{
	unsigned last = t->columns;

	while (last && width[last - 1] == LEFT_OUT) {
		last--;
	}
	for (unsigned k = 0; k < last; k++) {
		if (width[k] != LEFT_OUT) {
			print_cell(t, k, width[k], k + 1 == last, cells[k] ? cells[k] : "?", to);
		}
	}
}

void cli_table_print(const struct cli_table *t, FILE *to, bool color)
{
	int width[CLI_COLUMNS] = { 0 }, terminal = cli_terminal_width(fileno(to));

	measure(t, width);
	if (terminal) {
		fit(t, width, terminal);
	}
	fputs(cli_style(color, CLI_BOLD), to);
	print_line(t, width, t->head, to);
	fprintf(to, "%s\n", cli_style(color, CLI_PLAIN));
	for (size_t i = 0; t->columns && i + t->columns <= t->n; i += t->columns) {
		print_line(t, width, (const char *const *)t->cells + i, to);
		fputc('\n', to);
	}
}
