/* The standard maps about vGPUs of a policy version: VSLICE_SET, MEMPOOL, IO_BUDGETS, PLACEMENT. */
#ifndef GBPF_DAEMON_VGPU_VGPU_MAPS_H
#define GBPF_DAEMON_VGPU_VGPU_MAPS_H

#include <jansson.h>

#include "daemon/policy/version.h"
#include "proto/wire.h"

/* Writes gbpfd's fields of those that the version declares and publishes them as one epoch, unless
 * nothing has changed. The policy's own fields stay, except at a place whose vGPU is new. */
void daemon_vgpu_maps_write(struct daemon_version *l);
/* The same for MEMPOOL alone, whose figures change without notice. */
void daemon_vgpu_maps_refresh(struct daemon_version *l);
/* Writes, for a session that is ready, an event for each share, of the time or of the copy
 * bandwidth of a GPU, that its vGPU was given and the GPU's policy does not read, and a line for
 * each kind of share on the program's standard error; after the operations on policies that are
 * under way. */
extern const struct daemon_feature daemon_vgpu_shares_feature;
/* Does that for the sessions that have waited for these operations. */
void daemon_vgpu_maps_check_rest(struct daemon *d);
/* Returns an object that names, for each share of that configuration ("compute", "copy"), an active
 * policy that does not keep it, "" for gBPF without a policy. Shares may bring another default
 * policy. Empty while operations on policies are under way. Caller decrefs. */
json_t *daemon_vgpu_maps_ignored(struct daemon *d, const struct proto_vgpu_config *config);

#endif
