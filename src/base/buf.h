/* A growing byte buffer, always terminated by a zero byte. */
#ifndef GBPF_BASE_BUF_H
#define GBPF_BASE_BUF_H

#include <stdarg.h>
#include <stddef.h>

#include "base/compiler.h"

struct buf {
	char *data; /* owned; NULL while empty; data[len] == 0 otherwise */
	size_t len;
	size_t cap;
	int failed; /* -ENOMEM once an append failed; later appends do nothing */
};

void buf_init(struct buf *b);
void buf_finish(struct buf *b);
void buf_clear(struct buf *b);

/* Appends. 0 or -ENOMEM, which is also stored in `failed`, so that a sequence of appends needs one
 * check. */
int buf_add(struct buf *b, const void *data, size_t len);
int buf_puts(struct buf *b, const char *text);
int buf_printf(struct buf *b, const char *fmt, ...) PRINTF_LIKE(2, 3);
int buf_vprintf(struct buf *b, const char *fmt, va_list ap);

/* Removes the first n bytes (n <= len). */
void buf_drop(struct buf *b, size_t n);

/* Returns the content as text, never NULL. Valid until the next append. */
const char *buf_text(const struct buf *b);

/* Passes the bytes to the caller, which frees them. NULL if empty or out of memory. */
char *buf_steal(struct buf *b);

/* Reads a whole file of at most max bytes. 0, -errno, or -EFBIG. */
int buf_read_file(struct buf *b, const char *path, size_t max);
int buf_read_fd(struct buf *b, int fd, size_t max);

#endif
