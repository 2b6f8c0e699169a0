/* A line of the policy's source, for messages. Its texts come from the object, which is not
 * trusted. */
#ifndef GBPF_BPF_LOAD_ELF_SOURCE_LINE_H
#define GBPF_BPF_LOAD_ELF_SOURCE_LINE_H

#include <stdint.h>

#include "base/buf.h"

struct ebpf_source_line {
	const char *file, *text; /* borrowed from the object; may be empty */
	uint32_t line, column;	 /* from 1; 0: unknown */
};

#define EBPF_SOURCE_LINE_TEXT 160u /* characters of a line that are shown */

/* Appends at most max characters of a text, unprintable ones and those beyond ASCII as '?'. */
void ebpf_source_line_clean(const char *text, size_t max, struct buf *out);
/* Appends "file:line" without unprintable characters. */
void ebpf_source_line_place(const struct ebpf_source_line *l, struct buf *out);
/* Appends the text of the line with a caret below its column, as two lines without a newline at the
 * end; nothing if the text is not known. */
void ebpf_source_line_show(const struct ebpf_source_line *l, struct buf *out);

#endif
