/* The GPUs that gbpfd knows: numbers for what processes see by ordinal and uuid. */
#ifndef GBPF_DAEMON_HW_GPU_LIST_H
#define GBPF_DAEMON_HW_GPU_LIST_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "proto/pages.h"

struct daemon_gpu {
	uint8_t uuid[16];
	char name[96];
	bool used;   /* the slot has a number's meaning */
	bool pinned; /* found at start; others are forgotten when no tenant sees them any more */
	unsigned tenants;
	bool tried;	  /* a process has tried its controls: */
	uint32_t capable; /* bits of enum gpu_control */
	uid_t named_by;	  /* whose process was the first to name it, where it is not pinned */
};

struct daemon_gpus {
	struct daemon_gpu d[PROTO_MAX_GPUS];
	char kind[8]; /* "soft", "nvidia" or "none" */
};

/* want: "soft", "nvidia" or "auto". proc is /proc/driver/nvidia/gpus and node /dev/nvidiactl (a
 * test gives its own): in a container the node may be all there is. 0, -ENODEV: nvidia was wanted
 * and no driver is there; -EINVAL: unknown word. */
int daemon_gpus_open(struct daemon_gpus *t, const char *want, const char *proc, const char *node);
/* Number of the device with that uuid, learned when new; -ENOSPC, also when processes of that user
 * have named may_name of them already. Counts a tenant. */
int daemon_gpus_acquire(struct daemon_gpus *t, const uint8_t uuid[16], uid_t uid,
			unsigned may_name);
/* The lowest number in use; 0 when none is known yet. */
unsigned daemon_gpus_first(const struct daemon_gpus *t);
void daemon_gpus_release(struct daemon_gpus *t, unsigned gpu);
/* What a process has found can be done there. */
void daemon_gpus_set_capable(struct daemon_gpus *t, unsigned gpu, uint32_t capable);
/* "GPU-xxxxxxxx-xxxx-..." */
void daemon_gpu_uuid_text(const uint8_t uuid[16], char out[48]);

#endif
