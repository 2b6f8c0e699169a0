/* Prints lines of the policy's source. */
#include "bpf/load/elf/source_line.h"

#include <string.h>

#define MAX_PATH 240u

void ebpf_source_line_clean(const char *text, size_t max, struct buf *out)
{
	for (size_t i = 0; text[i] && i < max; i++) {
		char c = text[i] == '\t' ? ' ' : text[i];

		buf_printf(out, "%c", (unsigned char)c < ' ' || (unsigned char)c >= 127 ? '?' : c);
	}
}

void ebpf_source_line_place(const struct ebpf_source_line *l, struct buf *out)
{
	size_t n = strlen(l->file);

	/* The end of a long path says more than its beginning. */
	ebpf_source_line_clean(n > MAX_PATH ? l->file + n - MAX_PATH : l->file, MAX_PATH, out);
	buf_printf(out, ":%u", l->line);
}

void ebpf_source_line_show(const struct ebpf_source_line *l, struct buf *out)
{
	size_t lead = strspn(l->text, " \t");

	if (!l->text[lead]) {
		return;
	}
	buf_printf(out, "  %5u | ", l->line);
	ebpf_source_line_clean(l->text + lead, EBPF_SOURCE_LINE_TEXT, out);
	if (l->column > lead && l->column <= lead + EBPF_SOURCE_LINE_TEXT) {
		buf_printf(out, "\n        | %*s^", (int)(l->column - 1 - lead), "");
	}
}
