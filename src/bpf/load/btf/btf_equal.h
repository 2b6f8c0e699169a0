/* Compares types of two objects: equal types describe the same bytes in the same way, so that one
 * policy version can use map contents of another. Neither BTF is trusted. */
#ifndef GBPF_BPF_LOAD_BTF_BTF_EQUAL_H
#define GBPF_BPF_LOAD_BTF_BTF_EQUAL_H

#include <stddef.h>
#include <stdint.h>

struct btf;

/* Returns true if both types, after typedefs and qualifiers, have the same kind, size and
 * signedness, and structs and unions also the same member names, offsets and types. Names of types
 * and constants of enums are ignored. Type 0 equals type 0. */
int ebpf_types_equal(const struct btf *a, uint32_t type_a, const struct btf *b, uint32_t type_b);
/* Like ebpf_types_equal(), but subtracts the number of visited types from *visits and returns false
 * when it is used up. */
int ebpf_types_equal_within(const struct btf *a, uint32_t type_a, const struct btf *b,
			    uint32_t type_b, unsigned *visits);

/* A variable of a data section. */
struct ebpf_variable {
	const char *name; /* borrowed from the BTF */
	uint32_t type, offset, bytes;
};

/* Finds variable i of the section. Returns 0, -ENOENT after the last one, or -EINVAL if the BTF is
 * broken. The variable lies within section_bytes. */
int ebpf_variable_at(const struct btf *btf, uint32_t section, uint32_t section_bytes, uint32_t i,
		     struct ebpf_variable *ret);

#endif
