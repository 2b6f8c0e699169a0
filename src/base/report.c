/* Reports: the one form of refusals. Every function accepts a NULL report. */
#include "base/report.h"

#include <stdio.h>
#include <string.h>

void report_init(struct report *r)
{
	memset(r, 0, sizeof(*r));
}

void report_finish(struct report *r)
{
	buf_finish(&r->place);
	buf_finish(&r->message);
	buf_finish(&r->hint);
	buf_finish(&r->detail);
}

int report_set(struct report *r, int err, const char *code, const char *fmt, ...)
{
	va_list ap;

	if (!r || r->message.len) {
		return err;
	}
	snprintf(r->code, sizeof(r->code), "%s", code);
	va_start(ap, fmt);
	buf_vprintf(&r->message, fmt, ap);
	va_end(ap);
	return err;
}

void report_place(struct report *r, const char *fmt, ...)
{
	va_list ap;

	if (!r || r->place.len) {
		return;
	}
	va_start(ap, fmt);
	buf_vprintf(&r->place, fmt, ap);
	va_end(ap);
}

void report_hint(struct report *r, const char *fmt, ...)
{
	va_list ap;

	if (!r || r->hint.len) {
		return;
	}
	va_start(ap, fmt);
	buf_vprintf(&r->hint, fmt, ap);
	va_end(ap);
}

void report_text(const struct report *r, struct buf *out)
{
	if (r->place.len) {
		buf_printf(out, "%s: ", buf_text(&r->place));
	}
	buf_puts(out, buf_text(&r->message));
	if (r->hint.len) {
		buf_printf(out, ". %s", buf_text(&r->hint));
	}
	if (r->detail.len) {
		buf_printf(out, "\n%s", buf_text(&r->detail));
	}
}
