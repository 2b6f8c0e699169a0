/* Functions that the device provides to kernels: vprintf, __assertfail, malloc and free. Format and
 * arguments lie in memory that programs may write concurrently, so each byte is read once; every
 * text, width and count has a limit. */
#include <stdio.h>
#include <string.h>

#include "soft/server/exec/handlers.h"
#include "soft/server/exec/warp_run.h"

#define PRINT_TEXT_MAX 8192u /* bytes that one call prints */
#define PRINT_FORMAT_MAX 4096u
#define PRINT_STRING_MAX 4096u /* bytes of one %s */
#define PRINT_ARGS_MAX 32u     /* further conversions are printed unconverted */
#define PRINT_WIDTH_MAX 4096

struct exec_print {
	struct exec_warp *w;
	const struct exec_op *o;
	unsigned lane;
	uint64_t args; /* address of the next argument */
	unsigned n_args;
	bool fault;
	size_t n, n_read; /* bytes of output, and of strings read for it */
	char text[PRINT_TEXT_MAX];
};

static void put(struct exec_print *p, const char *s, size_t n)
{
	n = MIN(n, sizeof(p->text) - p->n);
	memcpy(p->text + p->n, s, n);
	p->n += n;
}

/* Reads a string of the program, up to room - 1 bytes. */
static size_t read_string(struct exec_print *p, uint64_t at, char *to, size_t room)
{
	size_t n = 0;

	while (n < room - 1) {
		const char *c =
			exec_lane_pointer(p->w, p->o, SP_GENERIC, p->lane, at + n, 1, false);

		if (!c) {
			p->fault = true;
			break;
		}
		to[n] = *(const volatile char *)c;
		if (to[n] == '\0') {
			break;
		}
		n++;
	}
	to[n] = '\0';
	p->n_read += n;
	return n;
}

/* Returns the next argument, 0 if there is none: a format may ask for more than the call passes,
 * and a call without arguments passes no address. Arguments are aligned to their size. */
static uint64_t next_arg(struct exec_print *p, unsigned bytes)
{
	uint64_t at = ROUND_UP(p->args, (uint64_t)bytes), v = 0;
	enum exec_status before = p->w->block->status;
	const void *from = exec_lane_pointer(p->w, p->o, SP_GENERIC, p->lane, at, bytes, false);

	if (from) {
		memcpy(&v, from, bytes);
	} else {
		p->w->block->status = before; /* no fault */
	}
	p->args = at + bytes;
	p->n_args++;
	return v;
}

struct exec_conversion {
	char flags[6];
	int width, precision; /* precision -1: none */
	unsigned bytes;	      /* size of an integer: 1, 2, 4, 8; narrow ones are passed as 4 */
	char letter;
};

static int number(struct exec_print *p, const char **s)
{
	int v = 0;

	if (**s == '*') {
		(*s)++;
		v = (int)(uint32_t)next_arg(p, 4);
		return MAX(-PRINT_WIDTH_MAX, MIN(v, PRINT_WIDTH_MAX));
	}
	while (**s >= '0' && **s <= '9') {
		v = MIN(v * 10 + (**s - '0'), PRINT_WIDTH_MAX);
		(*s)++;
	}
	return v;
}

/* Parses length modifiers: 1 or 2 for hh and h, 8 for l and longer, else 4. */
static unsigned length(const char **s)
{
	unsigned bytes = 4;

	while (**s && strchr("hljztL", **s)) {
		bytes = **s != 'h' ? 8 : bytes == 2 ? 1 : 2;
		(*s)++;
	}
	return bytes;
}

static uint64_t integer(struct exec_print *p, unsigned bytes, bool is_signed)
{
	uint64_t v = next_arg(p, MAX(bytes, 4u));

	switch (bytes) {
	case 1:
		return is_signed ? (uint64_t)(int8_t)v : (uint8_t)v;
	case 2:
		return is_signed ? (uint64_t)(int16_t)v : (uint16_t)v;
	case 4:
		return is_signed ? (uint64_t)(int32_t)v : v;
	default:
		return v;
	}
}

/* Parses a conversion; *s points past the %. */
static void parse_conversion(struct exec_print *p, const char **s, struct exec_conversion *c)
{
	size_t n = 0;

	*c = (struct exec_conversion){ .precision = -1 };
	while (**s && strchr("-+ #0", **s)) {
		if (!strchr(c->flags, **s)) {
			c->flags[n++] = **s;
		}
		(*s)++;
	}
	c->width = number(p, s);
	if (**s == '.') {
		(*s)++;
		c->precision = number(p, s);
		c->precision = MAX(c->precision, -1); /* negative: as if there were none */
	}
	c->bytes = length(s);
	c->letter = **s;
	*s += **s != '\0';
}

/* The host's printf formats; its format string consists of checked flags and one checked letter. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
static void put_conversion(struct exec_print *p, const struct exec_conversion *c)
{
	char format[24], out[PRINT_WIDTH_MAX + 512], string[PRINT_STRING_MAX];
	double real;
	uint64_t v;
	int n = 0;

	switch (c->letter) {
	case 'd':
	case 'i':
	case 'o':
	case 'u':
	case 'x':
	case 'X':
		snprintf(format, sizeof(format), "%%%s*.*ll%c", c->flags, c->letter);
		v = integer(p, c->bytes, c->letter == 'd' || c->letter == 'i');
		n = snprintf(out, sizeof(out), format, c->width, c->precision, (long long)v);
		break;
	case 'e':
	case 'E':
	case 'f':
	case 'F':
	case 'g':
	case 'G':
	case 'a':
	case 'A':
		snprintf(format, sizeof(format), "%%%s*.*%c", c->flags, c->letter);
		v = next_arg(p, 8);
		memcpy(&real, &v, sizeof(real));
		n = snprintf(out, sizeof(out), format, c->width, c->precision, real);
		break;
	case 'c':
		snprintf(format, sizeof(format), "%%%s*c", c->flags);
		n = snprintf(out, sizeof(out), format, c->width, (int)next_arg(p, 4));
		break;
	case 'p':
		snprintf(format, sizeof(format), "%%%s*p", c->flags);
		n = snprintf(out, sizeof(out), format, c->width, (void *)(uintptr_t)next_arg(p, 8));
		break;
	case 's':
		v = next_arg(p, 8);
		if (p->fault) {
			break;
		}
		if (v == 0) {
			memcpy(string, "(null)", sizeof("(null)"));
		} else {
			size_t room = c->precision < 0 ? sizeof(string) : (size_t)c->precision + 1;

			read_string(p, v, string, MIN(room, sizeof(string)));
		}
		if (c->width == 0 && c->precision < 0) {
			put(p, string, strlen(string));
			break;
		}
		snprintf(format, sizeof(format), "%%%s*.*s", c->flags);
		n = snprintf(out, sizeof(out), format, c->width, c->precision, string);
		break;
	default:
		break;
	}
	if (n > 0 && !p->fault) {
		put(p, out, MIN((size_t)n, sizeof(out) - 1));
	}
}
#pragma GCC diagnostic pop

static bool is_conversion(char c)
{
	return c != '\0' && strchr("diouxXeEfFgGaAcps", c) != NULL;
}

/* Formats the text of one lane. */
static void format_text(struct exec_print *p, const char *s)
{
	while (*s && !p->fault && p->n < sizeof(p->text)) {
		size_t plain = strcspn(s, "%");
		const char *start = s + plain;
		struct exec_conversion c;

		put(p, s, plain);
		s = start;
		if (*s == '\0') {
			break;
		}
		if (s[1] == '%') {
			put(p, "%", 1);
			s += 2;
			continue;
		}
		s++;
		if (p->n_args >= PRINT_ARGS_MAX) {
			put(p, "%", 1);
			continue;
		}
		parse_conversion(p, &s, &c);
		if (p->fault) {
			break;
		}
		if (is_conversion(c.letter)) {
			put_conversion(p, &c);
		} else {
			put(p, start, (size_t)(s - start));
		}
	}
}

/* vprintf(a: format, b: arguments); d: number of arguments converted, -1 without a format. */
int exec_op_vprintf(struct exec_warp *w, const struct exec_op *o, uint32_t m)
{
	const struct exec_host *host = w->block->launch.host;
	char format[PRINT_FORMAT_MAX];
	size_t work = 0;

	exec_each_lane (m, lane) {
		uint64_t at = REF(const uint64_t, w, o->a)[lane];
		struct exec_print p;

		if (at == 0) {
			REF(uint32_t, w, o->d)[lane] = UINT32_MAX;
			continue;
		}
		p.w = w;
		p.o = o;
		p.lane = lane;
		p.args = REF(const uint64_t, w, o->b)[lane];
		p.n_args = 0;
		p.n = p.n_read = 0;
		p.fault = false;
		read_string(&p, at, format, sizeof(format));
		if (!p.fault) {
			format_text(&p, format);
		}
		if (p.fault) {
			return STEP_FAULT;
		}
		REF(uint32_t, w, o->d)[lane] = p.n_args;
		if (host && host->print && p.n) {
			host->print(host->arg, p.text, p.n);
		}
		work += p.n + p.n_read;
	}
	return work > EXEC_LONG_BYTES / 2 ? STEP_LONG : STEP_NEXT;
}

static uint32_t block_slot(const struct exec_warp *w, unsigned slot)
{
	return REF(const uint32_t, w, REF_SLOT32(slot, REF_BLOCK))[0];
}

/* __assertfail(a: expression, b: file, c: line, e: function): reports the first lane's message and
 * fails the context. */
int exec_op_assertfail(struct exec_warp *w, const struct exec_op *o, uint32_t m)
{
	const struct exec_host *host = w->block->launch.host;
	unsigned lane = (unsigned)__builtin_ctz(m);
	const uint32_t refs[3] = { o->a, o->b, o->e };
	char text[3][512], line[2048];
	struct exec_print p;
	int n;

	p.w = w;
	p.o = o;
	p.lane = lane;
	p.n_read = 0;
	p.fault = false;
	for (unsigned i = 0; i < 3; i++) {
		uint64_t at = REF(const uint64_t, w, refs[i])[lane];

		text[i][0] = '\0';
		if (at) {
			read_string(&p, at, text[i], sizeof(text[i]));
		}
		if (p.fault) {
			return STEP_FAULT;
		}
	}
	n = snprintf(line, sizeof(line),
		     "%s:%u: %s: block: [%u,%u,%u], thread: [%u,%u,%u] Assertion `%s` failed.\n",
		     text[1], REF(const uint32_t, w, o->c)[lane], text[2],
		     block_slot(w, BLOCK_CTAID_X), block_slot(w, BLOCK_CTAID_Y),
		     block_slot(w, BLOCK_CTAID_Z),
		     REF(const uint32_t, w, REF_SLOT32(WARP_TID_X, REF_WARP))[lane],
		     REF(const uint32_t, w, REF_SLOT32(WARP_TID_Y, REF_WARP))[lane],
		     REF(const uint32_t, w, REF_SLOT32(WARP_TID_Z, REF_WARP))[lane], text[0]);
	if (host && host->complain && n > 0) {
		host->complain(host->arg, line, MIN((size_t)n, sizeof(line) - 1));
	}
	return exec_fault_set(w, o, EXEC_FAULT_ASSERT, lane, 0, "a device-side assertion failed");
}

/* malloc(a) and free(a) of kernels: the host keeps the heap's bookkeeping. */
int exec_op_malloc(struct exec_warp *w, const struct exec_op *o, uint32_t m)
{
	const struct exec_host *host = w->block->launch.host;

	exec_each_lane (m, lane) {
		uint64_t bytes = REF(const uint64_t, w, o->a)[lane];

		REF(uint64_t, w, o->d)
		[lane] = host && host->allocate ? host->allocate(host->arg, bytes) : 0;
	}
	return STEP_NEXT;
}

int exec_op_heap_free(struct exec_warp *w, const struct exec_op *o, uint32_t m)
{
	const struct exec_host *host = w->block->launch.host;

	exec_each_lane (m, lane) {
		uint64_t at = REF(const uint64_t, w, o->a)[lane];

		if (at && (!host || !host->release || host->release(host->arg, at) < 0)) {
			return exec_fault_set(w, o, EXEC_FAULT_ADDRESS, lane, at,
					      "free of what malloc has not given");
		}
	}
	return STEP_NEXT;
}
