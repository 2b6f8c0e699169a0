/* bpf_printk: formatting, and the ring of lines. */
#include "bpf/run/printk.h"

#include <errno.h>
#include <string.h>

#include "base/atomic.h"
#include "base/compiler.h"
#include "bpf/run/helpers.h"

#define MAX_WIDTH 32u

/* ---- formatting ---- */

struct out {
	char text[EBPF_PRINT_TEXT];
	size_t n;
};

static void put(struct out *o, char c)
{
	if (o->n < sizeof(o->text) - 1) {
		o->text[o->n++] = (unsigned char)c < ' ' || (unsigned char)c >= 127 ? '?' : c;
	}
}

struct spec {
	bool left, zero;
	unsigned width, bits; /* bits of the argument: 8, 16, 32 or 64 */
	char conversion;
};

static void put_number(struct out *o, const struct spec *s, uint64_t v, unsigned base,
		       bool negative)
{
	static const char lower[] = "0123456789abcdef", upper[] = "0123456789ABCDEF";
	const char *digits = s->conversion == 'X' ? upper : lower;
	char text[24];
	size_t n = 0, all;

	do {
		text[n++] = digits[v % base];
		v /= base;
	} while (v);
	all = n + negative;
	for (size_t i = all; !s->left && !s->zero && i < s->width; i++) {
		put(o, ' ');
	}
	if (negative) {
		put(o, '-');
	}
	for (size_t i = all; !s->left && s->zero && i < s->width; i++) {
		put(o, '0');
	}
	while (n) {
		put(o, text[--n]);
	}
	for (size_t i = all; s->left && i < s->width; i++) {
		put(o, ' ');
	}
}

static uint64_t sign_extended(uint64_t v, unsigned bits)
{
	return (uint64_t)((int64_t)(v << (64 - bits)) >> (64 - bits));
}

static void put_argument(struct out *o, const struct spec *s, uint64_t v)
{
	bool negative;

	switch (s->conversion) {
	case 'd':
	case 'i':
		v = sign_extended(v, s->bits);
		negative = (int64_t)v < 0;
		put_number(o, s, negative ? 0 - v : v, 10, negative);
		break;
	case 'c':
		put(o, (char)v);
		break;
	case 'p':
		put(o, '0');
		put(o, 'x');
		put_number(o, s, v, 16, false);
		break;
	default:
		v &= UINT64_MAX >> (64 - s->bits);
		put_number(o, s, v,
			   s->conversion == 'u'	  ? 10
			   : s->conversion == 'o' ? 8
						  : 16,
			   false);
		break;
	}
}

/* Parses what follows a '%'. Returns the position behind it; an unknown conversion is 0. */
static const char *parse(const char *f, struct spec *s)
{
	*s = (struct spec){ .bits = 32 };
	for (; *f == '-' || *f == '0'; f++) {
		s->left |= *f == '-';
		s->zero |= *f == '0';
	}
	for (; *f >= '0' && *f <= '9'; f++) {
		s->width = MIN(s->width * 10 + (unsigned)(*f - '0'), MAX_WIDTH);
	}
	for (; *f == 'l' || *f == 'h' || *f == 'z'; f++) {
		s->bits = *f != 'h' ? 64 : s->bits == 16 ? 8 : 16;
	}
	s->conversion = *f && strchr("diuxXocp", *f) ? *f : 0;
	s->bits = s->conversion == 'p' ? 64 : s->bits;
	return *f ? f + 1 : f;
}

char ebpf_print_check(const void *fmt, size_t fmt_bytes, unsigned *ret_args)
{
	char copy[EBPF_PRINT_TEXT];
	size_t n = MIN(fmt_bytes, sizeof(copy) - 1);

	memcpy(copy, fmt, n);
	copy[n] = 0;
	*ret_args = 0;
	for (const char *f = copy; *f;) {
		struct spec s;

		if (*f != '%' || f[1] == '%') {
			f += *f == '%' ? 2 : 1;
			continue;
		}
		f = parse(f + 1, &s);
		if (!s.conversion) {
			return f[-1];
		}
		++*ret_args;
	}
	return 0;
}

static void format(struct out *o, const char *f, const uint8_t *args, size_t n_args)
{
	while (*f) {
		struct spec s;
		uint64_t v;

		if (*f != '%' || f[1] == '%') {
			f += *f == '%';
			put(o, *f++);
			continue;
		}
		f = parse(f + 1, &s);
		if (!s.conversion || !n_args) {
			put(o, '%');
			put(o, '?');
			continue;
		}
		memcpy(&v, args, sizeof(v));
		args += sizeof(v);
		n_args--;
		put_argument(o, &s, v);
	}
	o->text[o->n] = 0;
}

const char *ebpf_stack_text(const struct ebpf_stack_texts *t, uint32_t insn)
{
	for (uint32_t i = 0; i < t->n; i++) {
		if (t->at[i].insn == insn) {
			return t->at[i].text;
		}
	}
	return NULL;
}

/* ---- the ring ---- */

bool ebpf_prints_any(const struct ebpf_prints *p)
{
	uint64_t at = load_relaxed(&p->head);

	/* Pairs with the release in ebpf_print: the text is complete. */
	return load_acquire(&p->line[at % EBPF_PRINT_LINES].seq) == at + 1;
}

/* Takes a position at the tail. Returns NULL if the ring is full. */
static struct ebpf_print_line *reserve(struct ebpf_prints *p, uint64_t *ret_at)
{
	uint64_t at = load_relaxed(&p->tail);

	do {
		/* Pairs with the release in ebpf_prints_take: the reader has left the line. */
		if (at - load_acquire(&p->head) >= EBPF_PRINT_LINES) {
			return NULL;
		}
	} while (!cas_acqrel(&p->tail, &at, at + 1));
	*ret_at = at;
	return &p->line[at % EBPF_PRINT_LINES];
}

size_t ebpf_print_format(char *text, const void *fmt, size_t fmt_bytes, const void *args,
			 size_t args_bytes)
{
	struct out o = { .n = 0 };
	char copy[EBPF_PRINT_TEXT];
	size_t n = MIN(fmt_bytes, sizeof(copy) - 1);

	memcpy(copy, fmt, n);
	copy[n] = 0;
	n = strlen(copy);
	while (n && copy[n - 1] == '\n') { /* a line ends by itself */
		copy[--n] = 0;
	}
	format(&o, copy, args, args_bytes / sizeof(uint64_t));
	memcpy(text, o.text, o.n + 1);
	return o.n;
}

int ebpf_print(struct ebpf_prints *p, const void *fmt, size_t fmt_bytes, const void *args,
	       size_t args_bytes)
{
	struct ebpf_print_line *l;
	size_t n;
	uint64_t at;

	l = reserve(p, &at);
	if (!l) {
		(void)add_relaxed(&p->dropped, 1u);
		return -EAGAIN;
	}
	n = ebpf_print_format(l->text, fmt, fmt_bytes, args, args_bytes);
	store_release(&l->seq, at + 1);
	return (int)n;
}

bool ebpf_prints_take(struct ebpf_prints *p, char *text)
{
	uint64_t at = load_relaxed(&p->head);

	if (!ebpf_prints_any(p)) {
		return false;
	}
	memcpy(text, p->line[at % EBPF_PRINT_LINES].text, EBPF_PRINT_TEXT);
	store_release(&p->head, at + 1);
	return true;
}

bool ebpf_prints_take_limited(struct ebpf_prints *p, uint64_t now_ns, char *text,
			      uint64_t *ret_dropped)
{
	if (!ebpf_prints_any(p) || !rate_allow(&p->rate, EBPF_PRINTS_PER_SECOND, now_ns) ||
	    !ebpf_prints_take(p, text)) {
		return false;
	}
	*ret_dropped = xchg_acqrel(&p->dropped, UINT64_C(0));
	return true;
}

EBPF_HELPER(bpf_trace_printk)
{
	const uint64_t args[] = { a3, a4, a5 };

	return (uint64_t)(int64_t)ebpf_print(&env->prints, ebpf_helper_ptr(a1), (uint32_t)a2, args,
					     sizeof(args));
}

EBPF_HELPER(bpf_trace_vprintk)
{
	return (uint64_t)(int64_t)ebpf_print(&env->prints, ebpf_helper_ptr(a1), (uint32_t)a2,
					     ebpf_helper_ptr(a3), (uint32_t)a4);
}
