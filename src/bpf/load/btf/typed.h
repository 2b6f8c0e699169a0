/* Memory by its BTF type: printed as JSON, written from what a person types, and its members found
 * by name. The types come from a policy's object, so no id, offset or length in them is trusted. */
#ifndef GBPF_BPF_LOAD_BTF_TYPED_H
#define GBPF_BPF_LOAD_BTF_TYPED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/report.h"

struct btf;

/* Appends one JSON value: a struct as an object, an array as an array, a char array that holds a
 * text as a string, an enum by its name where it has one, integers above 2^63-1 as strings of
 * digits. type 0 (unknown), bytes that are too few for the type, and values of more than 16384
 * parts: {"hex": "0011..."}. 0 or -ENOMEM. */
int ebpf_typed_print(struct buf *out, const struct btf *btf, uint32_t type, const void *bytes,
		     size_t n);

/* Writes what text says over the n bytes; what it leaves out keeps its value. A number (7, -1,
 * 0xff, 2ms, 4KiB), true, false, an enum's name, "text", [1, 2], {a=1, b={c: 2}}, a=1,b=2, or
 * hex:0011. type 0: a number of n bytes (1, 2, 4, 8), or hex. 0, or -EINVAL with r: what is wrong,
 * under it the text with a caret, and what the type looks like. */
int ebpf_typed_parse(const struct btf *btf, uint32_t type, const char *text, void *bytes, size_t n,
		     struct report *r);

/* "u64", "struct flow {u32 tenant, u64 bytes}", "u64[1024]". */
void ebpf_typed_describe(struct buf *out, const struct btf *btf, uint32_t type);

/* A part of a value. bits 0: bytes bytes; else a bit field: so many bits from bit on. */
struct ebpf_typed_part {
	uint32_t type;
	size_t offset, bytes;
	uint32_t bit, bits;
};

/* Follows path (".tenant", "[3].bytes", "demand[3]" in a data section) from a whole value. 0, or
 * -EINVAL with r. */
int ebpf_typed_find(const struct btf *btf, uint32_t type, size_t n, const char *path,
		    struct ebpf_typed_part *ret, struct report *r);

/* An integer, enum or bool part of base as 64 bits, sign-extended when it is signed. 0, or -EINVAL:
 * it is something else. */
int ebpf_typed_read(const struct btf *btf, const struct ebpf_typed_part *part, const void *base,
		    uint64_t *ret, bool *ret_signed);
/* 0, -EINVAL (no integer), -ERANGE. */
int ebpf_typed_write(const struct btf *btf, const struct ebpf_typed_part *part, void *base,
		     uint64_t value);

/* The value of an enumerator of any enum in the types; -ENOENT. */
int ebpf_typed_enum(const struct btf *btf, const char *name, int64_t *ret);

/* A number with an optional sign, 0x, and a unit (ns, us, ms, s: nanoseconds; KiB, MiB, GiB:
 * bytes). *end is the first character behind it. 0 or -EINVAL. */
int ebpf_typed_number(const char *text, const char **end, uint64_t *ret);

#endif
