/* Parses text from a user into a value of a BTF type. The text bounds depth and length; errors show
 * a caret below the text. */
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "bpf/load/btf/typed_btf.h"

struct parser {
	const struct btf *btf;
	const char *text, *at;
	uint8_t *base;
	struct report *r;
	uint32_t looks; /* remaining number of members and enumerators to visit */
};

static const struct {
	const char *name;
	uint64_t factor;
} units[] = { { "ns", 1 },     { "us", 1000 },	   { "ms", 1000000 },	 { "s", 1000000000 },
	      { "KiB", 1024 }, { "MiB", 1048576 }, { "GiB", 1073741824 } };

static bool word_char(char c)
{
	return isalnum((unsigned char)c) || c == '_';
}

static int scale(const char *unit, size_t len, uint64_t *v, double fraction, bool has_fraction)
{
	for (size_t i = 0; i < ARRAY_SIZE(units); i++) {
		if (strlen(units[i].name) == len && memcmp(units[i].name, unit, len) == 0) {
			if (has_fraction) {
				*v = (uint64_t)(fraction * (double)units[i].factor + 0.5);
				return 0;
			}
			return __builtin_mul_overflow(*v, units[i].factor, v) ? -EINVAL : 0;
		}
	}
	return -EINVAL;
}

int ebpf_typed_number(const char *text, const char **end, uint64_t *ret)
{
	bool negative = *text == '-', has_fraction = false;
	const char *digits = text + (negative || *text == '+');
	double fraction = 0;
	uint64_t v;
	char *stop;
	size_t len = 0;

	if (!isdigit((unsigned char)*digits)) {
		return -EINVAL;
	}
	errno = 0;
	v = strtoull(digits, &stop, 0);
	if (errno) {
		return -EINVAL;
	}
	if (*stop == '.' && isdigit((unsigned char)stop[1])) {
		size_t n = strspn(digits, "0123456789.");
		char copy[40];

		if (n >= sizeof(copy)) {
			return -EINVAL;
		}
		memcpy(copy, digits, n);
		copy[n] = 0;
		fraction = strtod(copy, NULL);
		if (strchr(strchr(copy, '.') + 1, '.') || fraction > 1e9) {
			return -EINVAL;
		}
		has_fraction = true;
		stop = unqual(digits + n);
	}
	while (word_char(stop[len])) {
		len++;
	}
	if ((len || has_fraction) && scale(stop, len, &v, fraction, has_fraction) < 0) {
		return -EINVAL;
	}
	*end = stop + len;
	*ret = negative ? 0 - v : v;
	return 0;
}

static int PRINTF_LIKE(3, 4) wrong(struct parser *p, uint32_t type, const char *fmt, ...)
{
	struct buf text = { 0 }, kind = { 0 };
	va_list ap;
	int column = (int)MIN((size_t)(p->at - p->text), (size_t)200);

	va_start(ap, fmt);
	buf_vprintf(&text, fmt, ap);
	va_end(ap);
	if (type) {
		ebpf_typed_describe(&kind, p->btf, type);
		report_hint(p->r, "The type is %s", buf_text(&kind));
	}
	if (!p->r->detail.len) {
		buf_printf(&p->r->detail, "  %.240s\n  %*s^\n", p->text, column, "");
	}
	report_set(p->r, -EINVAL, "value", "%s", buf_text(&text));
	buf_finish(&text);
	buf_finish(&kind);
	return -EINVAL;
}

static void skip_blanks(struct parser *p)
{
	while (isspace((unsigned char)*p->at)) {
		p->at++;
	}
}

static bool take(struct parser *p, char c)
{
	skip_blanks(p);
	if (*p->at != c) {
		return false;
	}
	p->at++;
	return true;
}

static size_t word_length(const char *s)
{
	size_t n = 0;

	while (word_char(s[n])) {
		n++;
	}
	return n;
}

static bool may_look(struct parser *p, const struct btf_type *t)
{
	uint32_t n = btf_is_any_enum(t) ? btf_vlen(t) : 0;

	p->looks -= MIN(n, p->looks);
	return p->looks > 0;
}

static int parse_scalar(struct parser *p, const struct ebpf_typed_part *part)
{
	const struct btf_type *t = ebpf_typed_resolve(p->btf, part->type);
	bool quoted = *p->at == '"'; /* the output quotes names and large integers */
	const char *word = p->at + quoted, *end = word;
	size_t len = word_length(word);
	uint64_t v;
	int64_t named;
	int err;

	if (ebpf_typed_number(word, &end, &v) == 0) {
	} else if (may_look(p, t) && ebpf_typed_enum_value(p->btf, t, word, len, &named) == 0) {
		v = (uint64_t)named;
		end = word + len;
	} else if (len == 4 && memcmp(word, "true", 4) == 0) {
		v = 1;
		end = word + len;
	} else if (len == 5 && memcmp(word, "false", 5) == 0) {
		v = 0;
		end = word + len;
	} else {
		end = NULL;
	}
	if (!end || (quoted && *end != '"')) {
		return wrong(p, part->type, "this is not a number%s",
			     btf_is_any_enum(t) ? " or a name of the enum" : "");
	}
	err = ebpf_typed_write(p->btf, part, p->base, v);
	if (err) {
		return wrong(p, part->type, "the number does not fit");
	}
	p->at = end + quoted;
	return 0;
}

static int parse_string(struct parser *p, const struct ebpf_typed_part *part)
{
	size_t n = 0;

	memset(p->base + part->offset, 0, part->bytes);
	for (p->at++; *p->at && *p->at != '"'; p->at++) {
		if (*p->at == '\\' && (p->at[1] == '"' || p->at[1] == '\\')) {
			p->at++;
		}
		if (n >= part->bytes) {
			return wrong(p, part->type, "the text is longer than %zu bytes",
				     part->bytes);
		}
		p->base[part->offset + n++] = (uint8_t)*p->at;
	}
	if (*p->at != '"') {
		return wrong(p, part->type, "the text does not end with a quotation mark");
	}
	p->at++;
	return 0;
}

static int hex_digit(char c)
{
	if (c >= '0' && c <= '9') {
		return c - '0';
	}
	c |= 0x20;
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static int parse_hex(struct parser *p, const struct ebpf_typed_part *part)
{
	size_t n = 0;

	for (p->at += 4; isxdigit((unsigned char)p->at[0]); p->at += 2) {
		int low = hex_digit(p->at[1]);

		if (low < 0 || n >= part->bytes) {
			return wrong(p, part->type, "not %zu bytes of two hex digits each",
				     part->bytes);
		}
		p->base[part->offset + n++] = (uint8_t)(hex_digit(p->at[0]) * 16 + low);
	}
	return n == part->bytes
		       ? 0
		       : wrong(p, part->type, "%zu hex bytes where it has %zu", n, part->bytes);
}

static int parse_part(struct parser *p, const struct ebpf_typed_part *part, int depth);

static int parse_array(struct parser *p, const struct ebpf_typed_part *part, int depth)
{
	const struct btf_type *t = ebpf_typed_resolve(p->btf, part->type);
	struct ebpf_typed_part in = { .type = btf_array(t)->type };
	int err;

	in.bytes = ebpf_typed_size(p->btf, in.type);
	if (!take(p, '[')) {
		return wrong(p, part->type, "an array is written [a, b, ...]%s",
			     ebpf_typed_is_char(p->btf, in.type) ? " or \"text\"" : "");
	}
	if (take(p, ']')) {
		return 0;
	}
	for (size_t i = 0;; i++) {
		if (!in.bytes || i >= part->bytes / in.bytes) {
			return wrong(p, part->type, "the array has %u elements",
				     btf_array(t)->nelems);
		}
		in.offset = part->offset + i * in.bytes;
		err = parse_part(p, &in, depth + 1);
		if (err) {
			return err;
		}
		if (take(p, ']')) {
			return 0;
		}
		if (!take(p, ',')) {
			return wrong(p, part->type, "here ',' or ']' is needed");
		}
	}
}

static int parse_field(struct parser *p, const struct ebpf_typed_part *part, int depth)
{
	const struct btf_type *t = ebpf_typed_resolve(p->btf, part->type);
	struct ebpf_typed_part in;
	bool quoted = take(p, '"');
	size_t len = word_length(p->at);

	if (!len) {
		return wrong(p, part->type, "here a member's name is needed");
	}
	if (ebpf_typed_member_named(p->btf, t, part->bytes, p->at, len, 0, &p->looks, &in) < 0) {
		if (!p->looks) {
			return wrong(p, 0, "this has too many members");
		}
		return wrong(p, part->type, "there is no member '%.*s'", (int)MIN(len, 60u), p->at);
	}
	p->at += len;
	p->at += quoted && *p->at == '"';
	if (!take(p, '=') && !take(p, ':')) {
		return wrong(p, part->type, "here '=' or ':' is needed");
	}
	in.offset += part->offset;
	return parse_part(p, &in, depth + 1);
}

static int parse_members(struct parser *p, const struct ebpf_typed_part *part, int depth)
{
	bool braces = take(p, '{');
	int err;

	skip_blanks(p);
	if (!braces && (depth > 0 || isdigit((unsigned char)*p->at))) {
		return wrong(p, part->type, "a struct is written {member=value, ...}");
	}
	if (braces && take(p, '}')) {
		return 0;
	}
	for (;;) {
		err = parse_field(p, part, depth);
		if (err) {
			return err;
		}
		if (braces && take(p, '}')) {
			return 0;
		}
		skip_blanks(p);
		if (!braces && !*p->at) {
			return 0;
		}
		if (!take(p, ',')) {
			return wrong(p, part->type, "here ',' or %s is needed",
				     braces ? "'}'" : "the end");
		}
	}
}

static int parse_part(struct parser *p, const struct ebpf_typed_part *part, int depth)
{
	const struct btf_type *t = ebpf_typed_resolve(p->btf, part->type);

	skip_blanks(p);
	if (depth > TYPED_DEPTH) {
		return wrong(p, 0, "too deep");
	}
	if (strncmp(p->at, "hex:", 4) == 0 && !part->bits) {
		return parse_hex(p, part);
	}
	if (ebpf_typed_is_scalar(t)) {
		return parse_scalar(p, part);
	}
	if (t && btf_is_array(t)) {
		return *p->at == '"' && ebpf_typed_is_char(p->btf, btf_array(t)->type)
			       ? parse_string(p, part)
			       : parse_array(p, part, depth);
	}
	if (t && (btf_is_composite(t) || btf_is_datasec(t))) {
		return parse_members(p, part, depth);
	}
	return wrong(p, part->type, "a value of this type is written hex:0011...");
}

/* Parses a value without type: a number of a natural size, or hex. */
static int parse_untyped(struct parser *p, size_t n)
{
	struct ebpf_typed_part part = { .bytes = n };
	const char *end;
	uint64_t v;

	skip_blanks(p);
	if (strncmp(p->at, "hex:", 4) == 0) {
		return parse_hex(p, &part);
	}
	if (n > 8 || (n & (n - 1)) || ebpf_typed_number(p->at, &end, &v) < 0) {
		return wrong(p, 0, "its type is not known: write hex: and %zu bytes", n);
	}
	if (n < 8 && v >> (8 * n) && ~v >> (8 * n - 1)) {
		return wrong(p, 0, "the number does not fit %zu bytes", n);
	}
	memcpy(p->base, &v, n);
	p->at = end;
	return 0;
}

int ebpf_typed_parse(const struct btf *btf, uint32_t type, const char *text, void *bytes, size_t n,
		     struct report *r)
{
	struct parser p = { btf, text, text, bytes, r, TYPED_LOOKS };
	struct ebpf_typed_part whole = { .type = type };
	int err;

	whole.bytes = ebpf_typed_size(btf, type);
	if (!whole.bytes || whole.bytes > n) {
		err = parse_untyped(&p, n);
	} else {
		err = parse_part(&p, &whole, 0);
	}
	skip_blanks(&p);
	if (!err && *p.at) {
		err = wrong(&p, type, "there is more than one value");
	}
	return err;
}
