/* Asking a soft GPU that runs what it is and does, without being one of its programs. Never starts
 * one. */
#ifndef GBPF_SOFT_QUERY_H
#define GBPF_SOFT_QUERY_H

#include "soft/protocol.h"

struct soft_query {
	int sock;
};

/* Connects to the server of this environment ($GBPF_SOFTGPU_SOCKET, or softgpu.sock in the runtime
 * directory), if it is this user's or root's. 0; -ENOENT or -ECONNREFUSED: none runs; -EPERM:
 * somebody else's; -errno. */
int soft_query_open(struct soft_query *q);
void soft_query_close(struct soft_query *q);

/* One GPU, with its contexts from number first on. 0; -ENODEV: there is no such GPU; -EPROTO: a
 * server of another version. */
int soft_query_gpu(struct soft_query *q, uint32_t gpu, uint32_t first, struct soft_gpu_info *ret);
/* Functions that programs called in vain, from entry *from on, which is moved on (0: that was all);
 * pid 0: of all programs since the server started. */
int soft_query_unsupported(struct soft_query *q, int pid, uint32_t *from,
			   struct soft_unsupported_info *ret);

#endif
