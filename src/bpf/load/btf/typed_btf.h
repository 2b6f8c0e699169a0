/* What printing, parsing and finding share: looking types up with care. */
#ifndef GBPF_BPF_LOAD_BTF_TYPED_BTF_H
#define GBPF_BPF_LOAD_BTF_TYPED_BTF_H

#include <bpf/btf.h>

#include "bpf/load/btf/typed.h"

#define TYPED_DEPTH 16

/* Behind typedefs, qualifiers and variables; NULL for void and what is broken. */
const struct btf_type *ebpf_typed_resolve(const struct btf *btf, uint32_t id);
const char *ebpf_typed_name(const struct btf *btf, uint32_t off);
/* Size in bytes, 0 when it has none. */
size_t ebpf_typed_size(const struct btf *btf, uint32_t id);
bool ebpf_typed_is_scalar(const struct btf_type *t); /* integer, enum, bool */
bool ebpf_typed_is_signed(const struct btf_type *t);
bool ebpf_typed_is_bool(const struct btf_type *t);
bool ebpf_typed_is_char(const struct btf *btf, uint32_t id);

/* Member i of a struct, union or data section as a part of it. 0 or -EINVAL: it lies outside of n
 * bytes. */
int ebpf_typed_member(const struct btf *btf, const struct btf_type *t, uint32_t i, size_t n,
		      struct ebpf_typed_part *ret, const char **ret_name);
/* Members of the types of a stranger may be many, and contain themselves: how many more of them may
 * be looked at. */
#define TYPED_LOOKS (1u << 20)
/* Member by name, also of anonymous structs in it. Looks at *looks members at most. */
int ebpf_typed_member_named(const struct btf *btf, const struct btf_type *t, size_t n,
			    const char *name, size_t len, int depth, uint32_t *looks,
			    struct ebpf_typed_part *ret);

/* Name of an enum's value, or NULL. */
const char *ebpf_typed_enum_name(const struct btf *btf, const struct btf_type *t, uint64_t value);
/* Value of an enum's name: 0 or -ENOENT. */
int ebpf_typed_enum_value(const struct btf *btf, const struct btf_type *t, const char *name,
			  size_t len, int64_t *ret);

#endif
