/* The GPUs that gbpfd knows: numbers for what processes see by ordinal and uuid. */
#ifndef GBPF_DAEMON_HW_GPU_LIST_H
#define GBPF_DAEMON_HW_GPU_LIST_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "proto/pages.h"

struct device {
	uint8_t uuid[16];
	char name[96];
	bool used;   /* the slot has a number's meaning */
	bool pinned; /* found at start; others are forgotten when no tenant sees them any more */
	unsigned tenants;
	bool tried;	  /* a process has tried its controls: */
	uint32_t capable; /* bits of enum gpu_control */
	uid_t named_by;	  /* whose process was the first to name it, where it is not pinned */
};

struct devices {
	struct device d[SCHED_MAX_GPUS];
	char kind[8]; /* "soft", "nvidia" or "none" */
};

/* want: "soft", "nvidia" or "auto". proc is /proc/driver/nvidia/gpus and node /dev/nvidiactl (a
 * test gives its own): in a container the node may be all there is. 0, -ENODEV: nvidia was wanted
 * and no driver is there; -EINVAL: unknown word. */
int devices_open(struct devices *t, const char *want, const char *proc, const char *node);
/* Number of the device with that uuid, learned when new; -ENOSPC, also when processes of that user
 * have named may_name of them already. Counts a tenant. */
int devices_get(struct devices *t, const uint8_t uuid[16], uid_t uid, unsigned may_name);
/* The lowest number in use; 0 when none is known yet. */
unsigned devices_first(const struct devices *t);
void devices_put(struct devices *t, unsigned gpu);
/* What a process has found can be done there. */
void devices_tried(struct devices *t, unsigned gpu, uint32_t capable);
/* "GPU-xxxxxxxx-xxxx-..." */
void device_uuid_text(const uint8_t uuid[16], char out[48]);

#endif
