/* The GPUs that gbpfd knows: its numbers for what processes see by ordinal and UUID. */
#ifndef GBPF_DAEMON_GPU_LIST_H
#define GBPF_DAEMON_GPU_LIST_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "proto/pages.h"

struct daemon_gpu {
	uint8_t uuid[16];
	char name[96];
	bool used;   /* the slot is in use */
	bool pinned; /* found at start; others are removed with the last tenant that sees them */
	unsigned tenants;
	bool tried;	  /* a process has tested its controls */
	uint32_t capable; /* result of the test: bits of enum gpu_control */
	uid_t named_by;	  /* user whose process named it first, if not pinned */
	uint64_t mem;	  /* bytes, as a process has reported it, or NVML; 0: unknown */
	bool mem_sure;	  /* by a process of root or gbpfd's user, or NVML */
	bool mem_asked;	  /* NVML is being asked for it */
	/* vgpu_full.c: what all accounts charge for it, when it was looked at last; how often that
	 * has become less, and when it did */
	uint64_t mem_charged, mem_freed, mem_freed_ns;
};

struct daemon_gpus {
	struct daemon_gpu d[PROTO_MAX_GPUS];
	char kind[8]; /* "soft", "nvidia" or "none" */
};

/* Fills the list. want: "soft", "nvidia" or "auto". proc is /proc/driver/nvidia/gpus and node
 * /dev/nvidiactl (parameters for tests); a container may have just the node. 0; -ENODEV: nvidia is
 * wanted but there is no driver; -EINVAL: unknown word. */
int daemon_gpus_open(struct daemon_gpus *t, const char *want, const char *proc, const char *node);
/* Returns the number of the device with that UUID, adding it if it is new, and counts a tenant on
 * it. -ENOSPC: the list is full, or processes of that user have added may_name devices already. */
int daemon_gpus_acquire(struct daemon_gpus *t, const uint8_t uuid[16], uid_t uid,
			unsigned may_name);
/* Returns the lowest number in use; 0 if there is none. */
unsigned daemon_gpus_first(const struct daemon_gpus *t);
void daemon_gpus_release(struct daemon_gpus *t, unsigned gpu);
/* Records which controls a process found to work there. */
void daemon_gpus_set_capable(struct daemon_gpus *t, unsigned gpu, uint32_t capable);
/* formats "GPU-xxxxxxxx-xxxx-..." */
void daemon_gpu_uuid_text(const uint8_t uuid[16], char out[48]);

#endif
