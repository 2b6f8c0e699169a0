/* Builds an image from an object in one call: opens the object, verifies and compiles every
 * program, and writes the image. */
#ifndef GBPF_BPF_LOAD_POLICY_H
#define GBPF_BPF_LOAD_POLICY_H

#include "bpf/load/elf/object.h"
#include "bpf/load/verify/verify.h"
#include "bpf/run/policy_image.h"

struct ebpf_built {
	int image_fd; /* owned */
	struct ebpf_object object;
	struct ebpf_verify_stats stats[EBPF_MAX_PROGS]; /* by index in object.progs */
	uint32_t n_devices;				/* programs inside kernels */
	size_t region_bytes[EBPF_REGIONS];
	uint32_t code_bytes;
	uint64_t verify_ns, jit_ns;
};

/* Returns 0, -EINVAL (unusable object), -EACCES or -E2BIG (refused), or -ENOMEM; r has the reason.
 * flags: EBPF_VERIFY_*, EBPF_BUILD_*. */
enum {
	EBPF_BUILD_NO_JIT = 0x100,
	EBPF_BUILD_CONTROL = 0x200, /* programs inside kernels can be set while they run */
};
int ebpf_policy_build(struct ebpf_built *b, const void *elf, size_t bytes, const char *name,
		      uint64_t version, unsigned flags, struct report *r);
/* As ebpf_policy_build(), for an object that this verifier has accepted before, with these
 * statistics of its n programs: they are not verified again, except for those inside kernels that
 * print. -EINVAL also if it has another number of them. */
int ebpf_policy_build_known(struct ebpf_built *b, const void *elf, size_t bytes, const char *name,
			    uint64_t version, unsigned flags, const struct ebpf_verify_stats *stats,
			    uint32_t n, struct report *r);
void ebpf_built_finish(struct ebpf_built *b);
/* Returns the statistics of the program of a host hook, or NULL if the policy does not use it. */
const struct ebpf_verify_stats *ebpf_built_stats(const struct ebpf_built *b, int hook);

/* Writes the initial contents of the data maps of a region to its mapping. */
void ebpf_built_init_region(const struct ebpf_built *b, enum ebpf_region region, void *base);

#endif
