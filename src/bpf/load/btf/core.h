/* CO-RE: finds the types and members that an object was compiled against in the types of this gBPF.
 */
#ifndef GBPF_BPF_LOAD_BTF_CORE_H
#define GBPF_BPF_LOAD_BTF_CORE_H

#include <bpf/btf.h>

#include "base/buf.h"

#define CORE_MAX_PATH 64u
#define CORE_MAX_NAME 256u /* length of names of types and members, with the terminator */

/* Kinds of CO-RE records in .BTF.ext. */
enum ebpf_core_kind {
	CORE_FIELD_OFFSET,
	CORE_FIELD_SIZE,
	CORE_FIELD_EXISTS,
	CORE_FIELD_SIGNED,
	CORE_FIELD_LSHIFT,
	CORE_FIELD_RSHIFT,
	CORE_TYPE_ID_LOCAL,
	CORE_TYPE_ID_TARGET,
	CORE_TYPE_EXISTS,
	CORE_TYPE_SIZE,
	CORE_ENUMVAL_EXISTS,
	CORE_ENUMVAL_VALUE,
};

/* One step of a path: member idx of the struct or union `type`, or element idx of an array of
 * elements of `type` when name is NULL. */
struct ebpf_core_step {
	uint32_t type, idx;
	const char *name;
};

/* A path through types without anonymous members; one step for an enumerator. */
struct ebpf_core_path {
	const struct btf *btf;
	uint32_t root;
	struct ebpf_core_step steps[CORE_MAX_PATH];
	uint32_t n;
	uint64_t bits; /* offset of the target in bits */
};

/* Returns the type after typedefs and qualifiers and sets *ret_id to its id; NULL if the BTF is
 * broken. */
const struct btf_type *ebpf_core_resolve(const struct btf *btf, uint32_t id, uint32_t *ret_id);
const char *ebpf_core_name(const struct btf *btf, uint32_t off);
/* Returns the length of a name without its ___flavour. */
size_t ebpf_core_essential(const char *name);

/* Parses the access string of a record. Returns 0, or -EINVAL if it does not fit the type. */
int ebpf_core_parse(struct ebpf_core_path *path, const struct btf *btf, uint32_t type,
		    const char *access, uint32_t kind);

/* Follows the path from another root type. Returns 1 if it exists, 0 if a step is missing or of
 * another kind, -EINVAL if the types are broken. */
int ebpf_core_match(const struct ebpf_core_path *local, const struct btf *btf, uint32_t root,
		    uint32_t kind, struct ebpf_core_path *ret);

/* Appends the path in C notation: submit_ctx.est_ns. */
void ebpf_core_describe(const struct ebpf_core_path *path, struct buf *out);

#endif
