/* The error of a handle's last call; no other file fills struct gbpf_error. */
#include "lib/lib_int.h"

#include <errno.h>
#include <string.h>

static const struct gbpf_error no_memory = { -ENOMEM,  GBPF_CODE_FAILED,
					     "memory", "out of memory",
					     "",       "" };

static void publish(struct gbpf *g, int err, int exit_code)
{
	g->error = (struct gbpf_error){ err,
					exit_code,
					buf_text(&g->code),
					buf_text(&g->message),
					buf_text(&g->hint),
					buf_text(&g->detail) };
}

static void clear(struct gbpf *g)
{
	buf_clear(&g->code);
	buf_clear(&g->message);
	buf_clear(&g->hint);
	buf_clear(&g->detail);
}

void lib_ok(struct gbpf *g)
{
	clear(g);
	publish(g, 0, GBPF_CODE_OK);
}

int lib_fail(struct gbpf *g, int err, int exit_code, const char *code, const char *hint,
	     const char *fmt, ...)
{
	va_list ap;

	clear(g);
	buf_puts(&g->code, code);
	buf_puts(&g->hint, hint ? hint : "");
	va_start(ap, fmt);
	buf_vprintf(&g->message, fmt, ap);
	va_end(ap);
	publish(g, err, exit_code);
	return err;
}

int lib_no_memory(struct gbpf *g)
{
	clear(g);
	g->error = no_memory;
	return -ENOMEM;
}

static int errno_of(int exit_code, const char *code)
{
	static const struct {
		const char *code;
		int err;
	} by_code[] = { { "elf", -EINVAL },
			{ "active", -EEXIST },
			{ "busy", -EBUSY },
			{ "exists", -EEXIST },
			{ "ambiguous", -ENOTUNIQ },
			{ "not-stored", -ENOSPC },
			{ "version", -EPROTONOSUPPORT } };
	static const int by_exit[] = {
		[GBPF_CODE_USAGE] = -EINVAL,	 [GBPF_CODE_REFUSED] = -EACCES,
		[GBPF_CODE_NOT_FOUND] = -ENOENT, [GBPF_CODE_PERMISSION] = -EPERM,
		[GBPF_CODE_LIMIT] = -E2BIG,	 [GBPF_CODE_TIMEOUT] = -ETIMEDOUT
	};

	for (size_t i = 0; i < ARRAY_SIZE(by_code); i++) {
		if (strcmp(code, by_code[i].code) == 0) {
			return by_code[i].err;
		}
	}
	if (exit_code > 0 && (size_t)exit_code < ARRAY_SIZE(by_exit) && by_exit[exit_code]) {
		return by_exit[exit_code];
	}
	return -EIO;
}

static void add_text(struct buf *b, const json_t *error, const char *key)
{
	const char *s = json_string_value(json_object_get(error, key));

	buf_puts(b, s ? s : "");
}

int lib_fail_json(struct gbpf *g, const json_t *error)
{
	json_int_t code = json_integer_value(json_object_get(error, "exit"));
	int exit_code = code > 0 && code < 126 ? (int)code : GBPF_CODE_FAILED;

	clear(g);
	add_text(&g->code, error, "code");
	add_text(&g->message, error, "message");
	add_text(&g->hint, error, "hint");
	add_text(&g->detail, error, "detail");
	if (!g->message.len) {
		buf_puts(&g->message, "gbpfd gave no reason");
	}
	publish(g, errno_of(exit_code, buf_text(&g->code)), exit_code);
	return g->error.err;
}

EXPORT const struct gbpf_error *gbpf_last_error(const struct gbpf *g)
{
	return g ? &g->error : &no_memory;
}
