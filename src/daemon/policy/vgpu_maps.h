/* The standard maps about vGPUs of a policy version: VSLICE_SET, MEMPOOL, IO_BUDGETS, PLACEMENT. */
#ifndef GBPF_DAEMON_POLICY_VGPU_MAPS_H
#define GBPF_DAEMON_POLICY_VGPU_MAPS_H

#include "daemon/policy/version.h"

/* Writes gbpfd's fields of those that the version declares and publishes them as one epoch, unless
 * nothing has changed. The policy's own fields stay, except at a place whose vGPU is new. */
void daemon_vgpu_maps_write(struct daemon_version *l);
/* The same for MEMPOOL alone, whose figures change without notice. */
void daemon_vgpu_maps_refresh(struct daemon_version *l);
/* Writes those of all live versions. */
void daemon_vgpu_maps_write_all(struct daemon *d);
/* Writes, for a session that is ready, an event for each share, of the time or of the copy
 * bandwidth of a GPU, that its vGPU was given and the GPU's policy does not read, and a line for
 * each kind of share on the program's standard error; after the operations on policies that are
 * under way. */
extern const struct daemon_feature daemon_vgpu_shares_feature;
/* Does that for the sessions that have waited for these operations. */
void daemon_vgpu_maps_check_rest(struct daemon *d);

#endif
