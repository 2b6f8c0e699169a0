/* Controls of the hardware scheduler: time slices, preemption, disabling channels. On NVIDIA's
 * stock driver they are resource-manager calls on handles that libcuda made; the shim learns the
 * handles by hooking libcuda's import slot of ioctl. On the soft GPU they are its private table. In
 * both cases a process with a copy of the descriptor can apply them from outside; so gbpfd can act
 * on a tenant that does not respond. A control that a driver or a permission refuses is reported as
 * a missing capability, never as a failure. Numbers and structures: NVIDIA's open kernel modules
 * (ctrla06c*.h, ctrl2080fifo.h, ctrl2080gr.h, nvos.h), checked on an H200 with driver 580. */
#ifndef GBPF_GPU_CONTROL_H
#define GBPF_GPU_CONTROL_H

#include <stdbool.h>
#include <stdint.h>

#include "cuabi/table.h"

enum gpu_control {
	GPU_CONTROL_SLICE_SET, /* value: us; 0: the device's default */
	GPU_CONTROL_SLICE_GET, /* *ret: us */
	GPU_CONTROL_PREEMPT,   /* value 1: wait until the context has left the GPU, at most 10 ms */
	GPU_CONTROL_SCHEDULE,  /* value 0: nothing of the context runs until value 1 */
	GPU_CONTROL_PREEMPTION_MODE, /* value 0 wait, 1 block, 2 instruction: compute preemption */
	GPU_CONTROL_INTERLEAVE,	     /* value 0-2; needs privileges */
	GPU_CONTROL_COUNTERS,	     /* *ret: number of context saves */
	GPU_CONTROL_FLAG,	     /* capability only: the owner could make a flag page */
	GPU_CONTROL_GREEN,	     /* capability only: green contexts are available */
	GPU_CONTROLS
};
const char *gpu_control_name(enum gpu_control c); /* "time slice" ... */

#define GPU_MAX_GROUPS 32u
#define GPU_MAX_CHANNELS 64u
enum gpu_control_kind { GPU_KIND_NONE, GPU_KIND_NVIDIA, GPU_KIND_SOFT };

/* Handles for controls on the work of one context (or process) on one GPU. Sent over the session
 * socket together with one descriptor; the receiver calls gpu_handles_check first. */
struct gpu_handles {
	uint32_t kind; /* enum gpu_control_kind */
	uint32_t client, subdevice, n_groups, n_channels;
	uint32_t capable; /* bit for each gpu_control that passed the owner's self-test */
	uint32_t more;	  /* bits of enum gpu_handles_more */
	uint32_t group[GPU_MAX_GROUPS];
	uint32_t channel[GPU_MAX_CHANNELS];
	uint16_t
		slice_us[GPU_MAX_GROUPS]; /* each group's slice before we set one, us; 0: unknown */
};
enum gpu_handles_more {
	GPU_MORE_GROUPS =
		1, /* more groups than there is room for: slices do not reach all of them */
	GPU_MORE_CHANNELS =
		2, /* more channels than there is room for: whole groups are disabled instead */
};
int gpu_handles_check(const struct gpu_handles *h); /* Returns 0 or -EPROTO. */

/* Applies a control through the descriptor (borrowed). Returns 0; -ENOTSUP; -EPERM (refused);
 * -ETIMEDOUT; -ENODEV (the context has ended); -EIO. May take some ms. Any thread and process. On
 * NVIDIA no driver library is opened; on the soft GPU gpu_control_soft_library must have been
 * called. */
int gpu_control(const struct gpu_handles *h, int fd, enum gpu_control what, uint64_t value,
		uint64_t *ret);
void gpu_control_soft_library(
	const char *path); /* Sets the path of the soft GPU's libcuda, for gbpfd. */

/* Counts the context switches away from the work, by where they happened: at the end of work, of
 * blocks, within instructions. Errors as gpu_control. */
struct gpu_switches {
	uint64_t saves, restores, idle, block, instruction;
};
int gpu_control_switches(const struct gpu_handles *h, int fd, struct gpu_switches *ret);

/* ---- the owner's side (shim) ---- */

/* Hooks the import slot of ioctl in the library that handle (of dlopen) names. Returns 0; -ENOENT:
 * the library does not import ioctl (the soft GPU). To be called before its cuInit. */
int gpu_learn_install(void *handle);
/* Finds the handles of this process's work on a GPU (device ordinal), and the descriptor (borrowed;
 * -1: none). Returns 0; -EAGAIN: no context there yet; -ENOTSUP. */
int gpu_learn(const struct cuabi_table *real, uint32_t gpu, CUcontext ctx, struct gpu_handles *ret,
	      int *ret_fd);
/* Returns a counter that is incremented when contexts are created or end, and when the driver
 * library sets slices. Then learn again, send what changed, and set the slice again. One load. */
uint32_t gpu_learn_generation(void);
/* Tries each control without effect on the work, and fills h->capable. */
void gpu_self_test(struct gpu_handles *h, int fd);

#endif
