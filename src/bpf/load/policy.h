/* One call from the bytes of an object to an image that can be passed on: open, verify every
 * program, JIT, build. */
#ifndef GBPF_BPF_LOAD_POLICY_H
#define GBPF_BPF_LOAD_POLICY_H

#include "bpf/load/elf/object.h"
#include "bpf/load/verify/verify.h"
#include "bpf/run/policy_image.h"

struct ebpf_built {
	int image_fd; /* owned */
	struct ebpf_object object;
	struct ebpf_verify_stats stats[EBPF_MAX_HOOKS]; /* by hook id; cost 0: not filled */
	size_t region_bytes[EBPF_REGIONS];
	uint32_t code_bytes;
	uint64_t verify_ns, jit_ns;
};

/* 0, -EINVAL (unusable object), -EACCES or -E2BIG (refused), -ENOMEM; r says why. flags:
 * EBPF_VERIFY_*, EBPF_BUILD_*. */
enum { EBPF_BUILD_NO_JIT = 0x100 };
int ebpf_policy_build(struct ebpf_built *b, const void *elf, size_t bytes, const char *name,
		      uint64_t version, unsigned flags, struct report *r);
void ebpf_built_finish(struct ebpf_built *b);

/* Writes the initial contents of the data maps of a region to its mapping. */
void ebpf_built_init_region(const struct ebpf_built *b, enum ebpf_region region, void *base);

#endif
