/* Prints a value as JSON and a type in C's notation. Output is bounded, because a hostile type can
 * be much larger than its bytes. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/compiler.h"
#include "bpf/load/btf/typed_btf.h"

#define MAX_LEAVES 16384u
#define MAX_TEXT (1u << 20)
#define MAX_NAME 128u
#define MAX_DESCRIPTION 400u
#define MAX_DESCRIBED 512u /* maximum number of members in a description */

struct printer {
	struct buf *out;
	const struct btf *btf;
	size_t limit;
	uint32_t leaves;
	uint32_t looks; /* remaining budget: 1 per enumerator, 16 per member */
};

static bool may_look(struct printer *p, uint32_t n)
{
	p->looks -= MIN(n, p->looks);
	return p->looks > 0;
}

static void print_hex(struct buf *out, const uint8_t *bytes, size_t n)
{
	static const char digits[] = "0123456789abcdef";

	buf_puts(out, "{\"hex\":\"");
	for (size_t i = 0; i < n; i++) {
		buf_add(out, (const char[2]){ digits[bytes[i] >> 4], digits[bytes[i] & 15] }, 2);
	}
	buf_puts(out, "\"}");
}

static void print_string(struct buf *out, const char *text, size_t n)
{
	buf_puts(out, "\"");
	for (size_t i = 0, from = 0; i < n; i++) {
		bool plain = text[i] >= 0x20 && text[i] <= 0x7e;

		if (text[i] == '"' || text[i] == '\\' || !plain) {
			buf_add(out, text + from, i - from);
			buf_puts(out, plain ? "\\" : "?");
			from = i + !plain;
		}
		if (i == n - 1 && from < n) {
			buf_add(out, text + from, n - from);
		}
	}
	buf_puts(out, "\"");
}

static void print_scalar(struct printer *p, const struct btf_type *t, uint64_t v, bool is_signed)
{
	const char *name = ebpf_typed_enum_name(p->btf, t, v);

	if (name && name[0]) {
		print_string(p->out, name, strnlen(name, MAX_NAME));
	} else if (ebpf_typed_is_bool(t)) {
		buf_puts(p->out, v ? "true" : "false");
	} else if (is_signed) {
		buf_printf(p->out, "%" PRId64, (int64_t)v);
	} else if (v > INT64_MAX) { /* above the integer range of JSON parsers */
		buf_printf(p->out, "\"%" PRIu64 "\"", v);
	} else {
		buf_printf(p->out, "%" PRIu64, v);
	}
}

static int print_part(struct printer *p, const struct ebpf_typed_part *part, const uint8_t *base,
		      int depth);

static int print_members(struct printer *p, const struct btf_type *t,
			 const struct ebpf_typed_part *whole, const uint8_t *base, int depth)
{
	bool first = true;

	buf_puts(p->out, "{");
	for (uint32_t i = 0; i < btf_vlen(t); i++) {
		struct ebpf_typed_part part;
		const char *name;
		int err;

		if (!may_look(p, 16)) {
			return -E2BIG;
		}
		if (ebpf_typed_member(p->btf, t, i, whole->bytes, &part, &name) < 0) {
			continue;
		}
		buf_printf(p->out, "%s", first ? "" : ",");
		if (name[0]) {
			print_string(p->out, name, strnlen(name, MAX_NAME));
		} else {
			buf_printf(p->out, "\"(%u)\"", i);
		}
		buf_puts(p->out, ":");
		part.offset += whole->offset;
		err = print_part(p, &part, base, depth + 1);
		if (err) {
			return err;
		}
		first = false;
	}
	return buf_puts(p->out, "}");
}

/* Returns the length of the text in a char array (printable, then zero bytes to the end), or -1 if
 * it holds no text. */
static int text_length(const uint8_t *s, size_t n)
{
	size_t len = strnlen((const char *)s, n);

	for (size_t i = 0; i < n; i++) {
		if (i < len ? s[i] < 0x20 || s[i] > 0x7e : s[i] != 0) {
			return -1;
		}
	}
	return (int)len;
}

static int print_array(struct printer *p, const struct btf_type *t,
		       const struct ebpf_typed_part *whole, const uint8_t *base, int depth)
{
	uint32_t type = btf_array(t)->type;
	size_t each = ebpf_typed_size(p->btf, type), n = each ? whole->bytes / each : 0;
	int len = ebpf_typed_is_char(p->btf, type) ? text_length(base + whole->offset, whole->bytes)
						   : -1;

	if (len >= 0) {
		print_string(p->out, (const char *)base + whole->offset, (size_t)len);
		return 0;
	}
	buf_puts(p->out, "[");
	for (size_t i = 0; i < n && i < btf_array(t)->nelems; i++) {
		struct ebpf_typed_part part = { .type = type,
						.offset = whole->offset + i * each,
						.bytes = each };
		int err;

		buf_puts(p->out, i ? "," : "");
		err = print_part(p, &part, base, depth + 1);
		if (err) {
			return err;
		}
	}
	return buf_puts(p->out, "]");
}

static int print_part(struct printer *p, const struct ebpf_typed_part *part, const uint8_t *base,
		      int depth)
{
	const struct btf_type *t = ebpf_typed_resolve(p->btf, part->type);
	bool is_signed;
	uint64_t v;

	if (p->out->len > p->limit || ++p->leaves > MAX_LEAVES ||
	    (t && btf_is_any_enum(t) && !may_look(p, btf_vlen(t)))) {
		return -E2BIG;
	}
	if (ebpf_typed_read(p->btf, part, base, &v, &is_signed) == 0) {
		print_scalar(p, t, v, is_signed);
	} else if (t && depth < TYPED_DEPTH && btf_is_array(t)) {
		return print_array(p, t, part, base, depth);
	} else if (t && depth < TYPED_DEPTH && (btf_is_composite(t) || btf_is_datasec(t))) {
		return print_members(p, t, part, base, depth);
	} else {
		print_hex(p->out, base + part->offset, part->bytes);
	}
	return 0;
}

int ebpf_typed_print(struct buf *out, const struct btf *btf, uint32_t type, const void *bytes,
		     size_t n)
{
	struct printer p = { out, btf, out->len + MAX_TEXT, 0, TYPED_LOOKS };
	size_t start = out->len;
	struct ebpf_typed_part whole = { .type = type };
	int err = 0;

	whole.bytes = ebpf_typed_size(btf, type);
	if (!whole.bytes || whole.bytes > n) {
		print_hex(out, bytes, n);
	} else {
		err = print_part(&p, &whole, bytes, 0);
	}
	if (err == -E2BIG) {
		out->len = start; /* buf restores the terminator at the next append */
		print_hex(out, bytes, n);
	}
	return out->failed;
}

static void describe(struct buf *out, const struct btf *btf, uint32_t id, int depth,
		     uint32_t *looks);

/* Returns the name in the source, which may be that of a typedef. */
static const char *written_name(const struct btf *btf, uint32_t id)
{
	for (int i = 0; i < 32 && id; i++) {
		const struct btf_type *t = btf__type_by_id(btf, id);

		if (!t || !(btf_is_mod(t) || btf_is_var(t))) {
			return t ? ebpf_typed_name(btf, t->name_off) : "";
		}
		id = t->type;
	}
	return "";
}

static void describe_members(struct buf *out, const struct btf *btf, const struct btf_type *t,
			     int depth, uint32_t *looks)
{
	const char *name = ebpf_typed_name(btf, t->name_off);

	buf_printf(out, "%s%s%.64s {",
		   btf_is_datasec(t) ? "section"
		   : btf_is_union(t) ? "union"
				     : "struct",
		   name[0] ? " " : "", name);
	for (uint32_t i = 0; i < btf_vlen(t); i++) {
		struct ebpf_typed_part part;
		const char *member;

		*looks -= *looks > 0;
		if (*looks && ebpf_typed_member(btf, t, i, SIZE_MAX, &part, &member) < 0) {
			continue;
		}
		buf_puts(out, i ? ", " : "");
		if (!*looks || depth >= 2 || out->len > MAX_DESCRIPTION) {
			buf_puts(out, "...");
			break;
		}
		describe(out, btf, part.type, depth + 1, looks);
		buf_printf(out, " %.64s", member);
		if (part.bits) {
			buf_printf(out, ":%u", part.bits);
		}
	}
	buf_puts(out, "}");
}

static void describe(struct buf *out, const struct btf *btf, uint32_t id, int depth,
		     uint32_t *looks)
{
	const struct btf_type *t = ebpf_typed_resolve(btf, id);

	if (!t || depth > 8) {
		buf_puts(out, "?");
	} else if (btf_is_array(t)) {
		describe(out, btf, btf_array(t)->type, depth + 1, looks);
		buf_printf(out, "[%u]", btf_array(t)->nelems);
	} else if (btf_is_composite(t) || btf_is_datasec(t)) {
		describe_members(out, btf, t, depth, looks);
	} else if (btf_is_any_enum(t)) {
		buf_printf(out, "enum %.64s", ebpf_typed_name(btf, t->name_off));
	} else if (btf_is_ptr(t)) {
		buf_puts(out, "pointer");
	} else {
		const char *name = written_name(btf, id);

		buf_printf(out, "%.64s", name[0] ? name : ebpf_typed_name(btf, t->name_off));
	}
}

void ebpf_typed_describe(struct buf *out, const struct btf *btf, uint32_t type)
{
	uint32_t looks = MAX_DESCRIBED;

	if (!btf || !type) {
		buf_puts(out, "unknown");
		return;
	}
	describe(out, btf, type, 0, &looks);
}
