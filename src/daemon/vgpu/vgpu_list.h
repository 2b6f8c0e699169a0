/* vGPUs as policies see them: by place, a number below PROTO_VGPUS that a vGPU keeps. */
#ifndef GBPF_DAEMON_VGPU_VGPU_LIST_H
#define GBPF_DAEMON_VGPU_VGPU_LIST_H

#include "daemon/session/tenant_session.h"

struct daemon_vgpu_entry {
	const struct proto_vgpu_config *config; /* borrowed */
	uint32_t tenants, gpus;			/* processes in it; bits of gbpfd's GPU numbers */
	uint32_t lanes;				/* bits of GBPF_LANE_* */
	uint64_t limit, used, overhead;		/* on the GPU asked for, bytes; limit 0: none */
};

/* Returns the place of a session's vGPU, PROTO_VGPUS if it is in none. */
uint32_t daemon_vgpu_place(const struct daemon_session *s);
/* Fills *ret for a GPU of gbpfd's number. Returns false if there is no vGPU at the place. */
bool daemon_vgpu_at(const struct daemon *d, uint32_t place, uint32_t gpu,
		    struct daemon_vgpu_entry *ret);

/* Returns whether any vGPU, also one without programs, has a share of GPU time. */
bool daemon_vgpus_have_share(const struct daemon *d);
/* Returns what no vGPU's processes are charged for of a GPU, whose size is *ret_size, bytes; both 0
 * if that is not known. */
uint64_t daemon_vgpu_free_memory(const struct daemon *d, uint32_t gpu, uint64_t *ret_size);

#endif
