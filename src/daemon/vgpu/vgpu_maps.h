/* The standard maps about vGPUs of a policy version: VSLICE_SET, MEMPOOL, IO_BUDGETS, PLACEMENT. */
#ifndef GBPF_DAEMON_VGPU_VGPU_MAPS_H
#define GBPF_DAEMON_VGPU_VGPU_MAPS_H

#include "daemon/policy/version.h"

/* Writes gbpfd's fields of those that the version declares and publishes them as one epoch, unless
 * nothing has changed. The policy's own fields stay, except at a place whose vGPU is new. */
void daemon_vgpu_maps_write(struct daemon_version *l);
/* The same for MEMPOOL alone, whose figures change without notice. */
void daemon_vgpu_maps_refresh(struct daemon_version *l);
/* Writes an event for each share, of the time or of the copy bandwidth of a GPU, that the session's
 * vGPU was given and the GPU's policy does not read, unless the default is about to be replaced by
 * one that reads shares. */
void daemon_vgpu_maps_check(struct daemon_session *s);

#endif
