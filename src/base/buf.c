/* Growing byte buffer. */
#include "base/buf.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void buf_init(struct buf *b)
{
	memset(b, 0, sizeof(*b));
}

void buf_finish(struct buf *b)
{
	free(b->data);
	buf_init(b);
}

void buf_clear(struct buf *b)
{
	b->len = 0;
	b->failed = 0;
	if (b->data) {
		b->data[0] = 0;
	}
}

static int reserve(struct buf *b, size_t more)
{
	size_t need, cap = b->cap ? b->cap : 64;
	char *data;

	if (b->failed) {
		return b->failed;
	}
	if (checked_add(b->len, more, &need) || checked_add(need, 1u, &need)) {
		return b->failed = -ENOMEM;
	}
	if (need <= b->cap) {
		return 0;
	}
	while (cap < need) {
		cap = cap > SIZE_MAX / 2 ? need : cap * 2;
	}
	data = realloc(b->data, cap);
	if (!data) {
		return b->failed = -ENOMEM;
	}
	b->data = data;
	b->cap = cap;
	return 0;
}

int buf_add(struct buf *b, const void *data, size_t len)
{
	int err = reserve(b, len);

	if (err) {
		return err;
	}
	if (len) {
		memcpy(b->data + b->len, data, len);
	}
	b->len += len;
	b->data[b->len] = 0;
	return 0;
}

int buf_puts(struct buf *b, const char *text)
{
	return buf_add(b, text, strlen(text));
}

int buf_vprintf(struct buf *b, const char *fmt, va_list ap)
{
	va_list again;
	int n, err;

	va_copy(again, ap);
	n = vsnprintf(NULL, 0, fmt, ap);
	err = n < 0 ? -EINVAL : reserve(b, (size_t)n);
	if (!err) {
		vsnprintf(b->data + b->len, (size_t)n + 1, fmt, again);
		b->len += (size_t)n;
	}
	va_end(again);
	return err;
}

int buf_printf(struct buf *b, const char *fmt, ...)
{
	va_list ap;
	int err;

	va_start(ap, fmt);
	err = buf_vprintf(b, fmt, ap);
	va_end(ap);
	return err;
}

void buf_drop(struct buf *b, size_t n)
{
	if (!n) {
		return;
	}
	memmove(b->data, b->data + n, b->len - n + 1);
	b->len -= n;
}

const char *buf_text(const struct buf *b)
{
	return b->data ? b->data : "";
}

char *buf_steal(struct buf *b)
{
	char *data = b->failed ? NULL : b->data;

	if (!data) {
		free(b->data);
	}
	buf_init(b);
	return data;
}

int buf_read_fd(struct buf *b, int fd, size_t max)
{
	char chunk[16384];
	ssize_t n;
	int err;

	for (;;) {
		n = read(fd, chunk, sizeof(chunk));
		if (n < 0 && errno == EINTR) {
			continue;
		}
		if (n <= 0) {
			return n < 0 ? -errno : 0;
		}
		if (b->len + (size_t)n > max) {
			return -EFBIG;
		}
		err = buf_add(b, chunk, (size_t)n);
		if (err) {
			return err;
		}
	}
}

int buf_read_file(struct buf *b, const char *path, size_t max)
{
	int err, fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0) {
		return -errno;
	}
	err = buf_read_fd(b, fd, max);
	close(fd);
	return err;
}
