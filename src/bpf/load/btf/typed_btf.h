/* Safe lookup of types, shared by printing, parsing and finding. */
#ifndef GBPF_BPF_LOAD_BTF_TYPED_BTF_H
#define GBPF_BPF_LOAD_BTF_TYPED_BTF_H

#include <bpf/btf.h>

#include "bpf/load/btf/typed.h"

#define TYPED_DEPTH 16

/* Returns the type after typedefs, qualifiers and variables; NULL for void and broken types. */
const struct btf_type *ebpf_typed_resolve(const struct btf *btf, uint32_t id);
const char *ebpf_typed_name(const struct btf *btf, uint32_t off);
/* Returns the size in bytes, or 0 if the type has none. */
size_t ebpf_typed_size(const struct btf *btf, uint32_t id);
bool ebpf_typed_is_scalar(const struct btf_type *t); /* integer, enum, bool */
bool ebpf_typed_is_signed(const struct btf_type *t);
bool ebpf_typed_is_bool(const struct btf_type *t);
bool ebpf_typed_is_char(const struct btf *btf, uint32_t id);

/* Sets the part that member i of a struct, union or data section occupies. Returns 0, or -EINVAL if
 * it exceeds n bytes. */
int ebpf_typed_member(const struct btf *btf, const struct btf_type *t, uint32_t i, size_t n,
		      struct ebpf_typed_part *ret, const char **ret_name);
/* Budget of member visits: untrusted types may have many members or contain themselves. */
#define TYPED_LOOKS (1u << 20)
/* Finds a member by name, also within anonymous structs. Visits at most *looks members. */
int ebpf_typed_member_named(const struct btf *btf, const struct btf_type *t, size_t n,
			    const char *name, size_t len, int depth, uint32_t *looks,
			    struct ebpf_typed_part *ret);

/* Returns the name of an enum value, or NULL. */
const char *ebpf_typed_enum_name(const struct btf *btf, const struct btf_type *t, uint64_t value);
/* Finds the value of an enumerator. Returns 0 or -ENOENT. */
int ebpf_typed_enum_value(const struct btf *btf, const struct btf_type *t, const char *name,
			  size_t len, int64_t *ret);

#endif
