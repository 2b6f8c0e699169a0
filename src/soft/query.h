/* Queries to a running soft GPU, from a process that is not its client. Never starts a server. */
#ifndef GBPF_SOFT_QUERY_H
#define GBPF_SOFT_QUERY_H

#include "soft/protocol.h"

struct soft_query {
	int sock;
};

/* Connects to the server of this environment ($GBPF_SOFTGPU_SOCKET, or softgpu.sock in the runtime
 * directory). Returns 0; -ENOENT or -ECONNREFUSED if none runs; -EPERM if it belongs neither to
 * this user nor to root; or -errno. */
int soft_query_open(struct soft_query *q);
void soft_query_close(struct soft_query *q);

/* Describes one GPU and its contexts from number `first` on. Returns 0; -ENODEV if there is no such
 * GPU; -EPROTO if the server has another version. */
int soft_query_gpu(struct soft_query *q, uint32_t gpu, uint32_t first, struct soft_gpu_info *ret);
/* Lists unsupported functions that programs called, from entry *from on, and advances *from (0: no
 * more). pid 0: all programs since the server started. Returns 0 or -errno. */
int soft_query_unsupported(struct soft_query *q, int pid, uint32_t *from,
			   struct soft_unsupported_info *ret);

#endif
