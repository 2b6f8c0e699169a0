/* Controls of the hardware's own scheduler: time slices, preemption, switching channels off. On
 * NVIDIA's stock driver they are resource-manager calls on handles that libcuda made; the shim
 * learns the handles by standing in libcuda's import slot of ioctl. On the soft GPU they are its
 * private table. Either way whoever holds a copy of the descriptor can use them from outside: that
 * is how gbpfd acts on a tenant, also one that is stuck. What a driver or a permission refuses is a
 * capability that is not there, never a failure. Numbers and structures: NVIDIA's open kernel
 * modules (ctrla06c*.h, ctrl2080fifo.h, ctrl2080gr.h, nvos.h), checked on an H200 with driver 580.
 */
#ifndef GBPF_GPU_CONTROL_H
#define GBPF_GPU_CONTROL_H

#include <stdbool.h>
#include <stdint.h>

#include "cuabi/table.h"

enum gpu_control {
	GPU_CONTROL_SLICE_SET,	     /* value: microseconds, 0 the device's own */
	GPU_CONTROL_SLICE_GET,	     /* *ret: microseconds */
	GPU_CONTROL_PREEMPT,	     /* value 1: returns when it has left, at most 10 ms */
	GPU_CONTROL_SCHEDULE,	     /* value 0: nothing of it runs until 1 */
	GPU_CONTROL_PREEMPTION_MODE, /* value 0 wait, 1 block, 2 instruction: compute preemption */
	GPU_CONTROL_INTERLEAVE,	     /* value 0-2; needs rights */
	GPU_CONTROL_COUNTERS,	     /* *ret: context saves */
	GPU_CONTROL_FLAG,  /* not called; in capable, by who made one: flag pages can be had */
	GPU_CONTROL_GREEN, /* not called either: green contexts can be had */
	GPU_CONTROLS
};
const char *gpu_control_name(enum gpu_control c); /* "time slice" ... */

#define GPU_MAX_GROUPS 32u
#define GPU_MAX_CHANNELS 64u
enum gpu_control_kind { GPU_KIND_NONE, GPU_KIND_NVIDIA, GPU_KIND_SOFT };

/* What is needed to act on one context's (or process's) work on one GPU. Sent over the session
 * socket beside one descriptor: whoever receives it calls gpu_handles_check first. */
struct gpu_handles {
	uint32_t kind; /* enum gpu_control_kind */
	uint32_t client, subdevice, n_groups, n_channels;
	uint32_t capable; /* bit for each gpu_control that the owner's self-test found */
	uint32_t more;	  /* bits of enum gpu_handles_more */
	uint32_t group[GPU_MAX_GROUPS];
	uint32_t channel[GPU_MAX_CHANNELS];
	uint16_t slice_us[GPU_MAX_GROUPS]; /* each group's before any of ours; 0: not known */
};
enum gpu_handles_more {
	GPU_MORE_GROUPS = 1,   /* than there is room for: slices do not reach all of it */
	GPU_MORE_CHANNELS = 2, /* whole groups are switched off instead */
};
int gpu_handles_check(const struct gpu_handles *h); /* 0 or -EPROTO */

/* Does it with that descriptor (borrowed). 0; -ENOTSUP; -EPERM (refused); -ETIMEDOUT; -ENODEV (its
 * context is gone); -EIO. Takes up to some milliseconds. Any thread and process; opens no driver on
 * NVIDIA; on the soft GPU the client library's path must have been set. */
int gpu_control(const struct gpu_handles *h, int fd, enum gpu_control what, uint64_t value,
		uint64_t *ret);
void gpu_control_soft_library(const char *path); /* for gbpfd: which libcuda is the soft GPU's */

/* What the context switches away from it were: at the end of work, at the end of blocks, in the
 * middle of instructions. Errors as gpu_control. */
struct gpu_switches {
	uint64_t saves, restores, idle, block, instruction;
};
int gpu_control_switches(const struct gpu_handles *h, int fd, struct gpu_switches *ret);

/* ---- the owner's side (shim) ---- */

/* Stands in the import slot of ioctl of the library that handle (dlopen's) names. 0; -ENOENT: it
 * imports none (the soft GPU). Before its cuInit. */
int gpu_learn_install(void *handle);
/* The handles of what this process has on the GPU with that number (device ordinal), and the
 * descriptor (borrowed; -1: none). 0, -EAGAIN: no context there yet, -ENOTSUP. */
int gpu_learn(const struct cuabi_table *real, uint32_t gpu, CUcontext ctx, struct gpu_handles *ret,
	      int *ret_fd);
/* Grows when contexts come or go, and when the driver library sets slices of its own: then learn
 * again, send what changed, and set the slice again. A load. */
uint32_t gpu_learn_generation(void);
/* Tries each control harmlessly and fills h->capable. */
void gpu_self_test(struct gpu_handles *h, int fd);

#endif
