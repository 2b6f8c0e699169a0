/* Memory with a BTF type: prints it as JSON, writes it from text, and finds its members by name.
 * The types come from a policy's object, so no id, offset or length in them is trusted. */
#ifndef GBPF_BPF_LOAD_BTF_TYPED_H
#define GBPF_BPF_LOAD_BTF_TYPED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/report.h"

struct btf;

/* Appends one JSON value: an object for a struct, an array for an array, a string for a char array
 * with text, the name of an enum value if it has one, and a string of digits for integers above
 * 2^63-1. Appends {"hex": "0011..."} for type 0 (unknown), if the bytes are too few for the type,
 * or for values of more than 16384 parts. Returns 0 or -ENOMEM. */
int ebpf_typed_print(struct buf *out, const struct btf *btf, uint32_t type, const void *bytes,
		     size_t n);

/* Parses text and writes the value to the n bytes; members that the text does not name keep their
 * values. Accepts a number (7, -1, 0xff, 2ms, 4KiB), true, false, the name of an enum value,
 * "text", [1, 2], {a=1, b={c: 2}}, a=1,b=2, or hex:0011. type 0: a number of n bytes (1, 2, 4, 8),
 * or hex. Returns 0, or -EINVAL with r: the error, the text with a caret below it, and the type. */
int ebpf_typed_parse(const struct btf *btf, uint32_t type, const char *text, void *bytes, size_t n,
		     struct report *r);

/* Appends a description of the type: "u64", "struct flow {u32 tenant, u64 bytes}", "u64[1024]". */
void ebpf_typed_describe(struct buf *out, const struct btf *btf, uint32_t type);

/* A part of a value. bits 0: `bytes` whole bytes; otherwise a bit field of `bits` bits starting at
 * `bit`. */
struct ebpf_typed_part {
	uint32_t type;
	size_t offset, bytes;
	uint32_t bit, bits;
};

/* Follows a path (".tenant", "[3].bytes", "demand[3]" in a data section) from a whole value.
 * Returns 0, or -EINVAL with r. */
int ebpf_typed_find(const struct btf *btf, uint32_t type, size_t n, const char *path,
		    struct ebpf_typed_part *ret, struct report *r);

/* Reads an integer, enum or bool part of base as 64 bits, sign-extended if it is signed. Returns 0,
 * or -EINVAL for other types. */
int ebpf_typed_read(const struct btf *btf, const struct ebpf_typed_part *part, const void *base,
		    uint64_t *ret, bool *ret_signed);
/* Writes an integer part of base. Returns 0, -EINVAL (not an integer) or -ERANGE. */
int ebpf_typed_write(const struct btf *btf, const struct ebpf_typed_part *part, void *base,
		     uint64_t value);

/* Finds an enumerator of any enum in the types. Returns 0 or -ENOENT. */
int ebpf_typed_enum(const struct btf *btf, const char *name, int64_t *ret);

/* Parses a number with an optional sign, 0x prefix, and unit (ns, us, ms, s: in nanoseconds; KiB,
 * MiB, GiB: in bytes). Sets *end to the character after it. Returns 0 or -EINVAL. */
int ebpf_typed_number(const char *text, const char **end, uint64_t *ret);

#endif
