/* A diagnosis for people: what failed, where, why, and what to do. The program prints it, once. */
#ifndef GBPF_BASE_REPORT_H
#define GBPF_BASE_REPORT_H

#include "base/buf.h"

struct report {
	char code[24];	    /* short stable word for --json: "verify", "elf", "usage" ... */
	struct buf place;   /* "submit insn 41 (src/edf.bpf.c:23)", or empty */
	struct buf message; /* what is wrong */
	struct buf hint;    /* what to do; may be empty */
	struct buf detail;  /* further lines: states, source with a caret; may be empty */
};

void report_init(struct report *r);
void report_finish(struct report *r);

/* Sets code and message unless they are set: the first message is the cause, later ones are
 * consequences. Returns err. */
int report_set(struct report *r, int err, const char *code, const char *fmt, ...) PRINTF_LIKE(4, 5);
void report_place(struct report *r, const char *fmt, ...) PRINTF_LIKE(2, 3);
void report_hint(struct report *r, const char *fmt, ...) PRINTF_LIKE(2, 3);

/* Formats one line: "place: message. hint", followed by the detail lines. Caller frees with
 * buf_finish. */
void report_text(const struct report *r, struct buf *out);

#endif
