/* Links several objects into one policy: declarations in one object refer to definitions in
 * another. */
#ifndef GBPF_BPF_LOAD_ELF_LINK_H
#define GBPF_BPF_LOAD_ELF_LINK_H

#include <stddef.h>

#include "base/report.h"

#define EBPF_MAX_LINKED 32u

struct ebpf_link_input {
	const char *name; /* for messages */
	const void *data;
	size_t bytes;
};

/* Links the objects and appends the result to out (initialized, empty), for ebpf_object_open(). The
 * linker of libbpf runs in a child process, so that malicious input cannot affect the caller. Takes
 * milliseconds for typical input and at most 10 s. Returns 0, -EINVAL (r has the reason), -E2BIG (a
 * limit), -ETIME (the child timed out), -ENOMEM, or another -errno. */
int ebpf_link_objects(const struct ebpf_link_input *in, unsigned n, struct buf *out,
		      struct report *r);

#endif
