/* The two back ends of controls; for the files of this room. */
#ifndef GBPF_GPU_CONTROL_INT_H
#define GBPF_GPU_CONTROL_INT_H

#include <stdbool.h>

#include "cuabi/private.h"
#include "gpu/control.h"

int gpu_control_nvidia(const struct gpu_handles *h, int fd, enum gpu_control what, uint64_t value,
		       uint64_t *ret);
int gpu_control_nvidia_switches(const struct gpu_handles *h, int fd, struct gpu_switches *ret);
void gpu_control_nvidia_test(struct gpu_handles *h, int fd);
int gpu_control_nvidia_learn(const struct cuabi_table *real, uint32_t gpu, struct gpu_handles *ret,
			     int *ret_fd);

int gpu_control_soft(int fd, enum gpu_control what, uint64_t value, uint64_t *ret);
int gpu_control_soft_switches(int fd, struct gpu_switches *ret);
void gpu_control_soft_test(struct gpu_handles *h, int fd);
int gpu_control_soft_learn(const struct cuabi_soft_table *table, CUcontext ctx,
			   struct gpu_handles *ret, int *ret_fd);

/* Returns true if slot.c has hooked a slot. */
bool gpu_learn_installed(void);

#endif
