/* Whether two types of two objects describe the same bytes in the same way: so that what one policy
 * version left in a map can be used by another. Neither BTF is trusted. */
#ifndef GBPF_BPF_LOAD_BTF_BTF_EQUAL_H
#define GBPF_BPF_LOAD_BTF_BTF_EQUAL_H

#include <stddef.h>
#include <stdint.h>

struct btf;

/* True when both types, behind typedefs and qualifiers, have the same kind, size and signedness;
 * structs and unions also the same member names, offsets and types. Names of types and the
 * constants of enums do not matter. Type 0 equals type 0. */
int ebpf_types_equal(const struct btf *a, uint32_t type_a, const struct btf *b, uint32_t type_b);
/* The same; takes what it looked at from *visits, and when that is used up says no. */
int ebpf_types_equal_within(const struct btf *a, uint32_t type_a, const struct btf *b,
			    uint32_t type_b, unsigned *visits);

/* A variable of a data section. */
struct ebpf_variable {
	const char *name; /* borrowed from the BTF */
	uint32_t type, offset, bytes;
};

/* Variable i of the section, or -ENOENT behind the last, -EINVAL where the BTF is broken. The
 * variable lies within section_bytes. */
int ebpf_variable_at(const struct btf *btf, uint32_t section, uint32_t section_bytes, uint32_t i,
		     struct ebpf_variable *ret);

#endif
