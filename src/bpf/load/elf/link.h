/* Several objects as one policy: what one declares extern another defines. */
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

/* Puts the bytes of one object into out (initialized, empty), to be opened by ebpf_object_open. The
 * work is done by libbpf's linker in a child process, so that no input can do harm; the call takes
 * at most 10 s, and milliseconds for what people write. 0, -EINVAL (r says why), -E2BIG (a limit),
 * -ETIME (the child took too long), -ENOMEM, -errno. */
int ebpf_link_objects(const struct ebpf_link_input *in, unsigned n, struct buf *out,
		      struct report *r);

#endif
