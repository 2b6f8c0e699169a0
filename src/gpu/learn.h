/* Objects that this process's driver library has created at the resource manager, observed through
 * the hook in its import slot of ioctl. */
#ifndef GBPF_GPU_LEARN_H
#define GBPF_GPU_LEARN_H

#include <stdbool.h>
#include <stdint.h>

#include "cuabi/table.h"

#define GPU_LEARN_OBJECTS_MAX 8192u
#define GPU_LEARN_NO_ID UINT32_MAX

struct gpu_learn_object {
	uint32_t root, parent, object, class_id;
	int fd;		   /* of the call that created it */
	uint32_t id;	   /* device: its number in the driver; GPU_LEARN_NO_ID: unknown */
	uint32_t slice_us; /* group: its slice before we set one; 0: unknown */
};

/* Records one ioctl call, after it has returned. Any thread. */
void gpu_learn_call(int fd, unsigned long request, const void *argument, int result);

/* Between begin and end, objects of class_id that this thread's calls create are recorded in the
 * watch as well. */
struct gpu_learn_watch {
	uint32_t class_id; /* in: the class */
	uint32_t n;	   /* number of objects created */
	struct gpu_learn_object last;
	uint32_t device_id; /* of the device that `last` belongs to */
};
void gpu_learn_watch_begin(struct gpu_learn_watch *w);
void gpu_learn_watch_end(void);

/* Copies at most max objects of the class; returns how many there are. */
uint32_t gpu_learn_find(uint32_t class_id, struct gpu_learn_object *ret, uint32_t max);
/* Finds the device that an object belongs to. */
bool gpu_learn_device_of(const struct gpu_learn_object *o, struct gpu_learn_object *ret);
/* Stores a group's slice, read before we set one. */
void gpu_learn_slice(uint32_t root, uint32_t object, uint32_t slice_us);
#define GPU_LEARN_CHANNELS 0u /* as class_id of gpu_learn_find: every GPFIFO channel */

/* Returns N of the GPU's /dev/nvidiaN, or as gpu_rm_errno. fd: a control descriptor. */
int gpu_learn_minor(const struct cuabi_table *real, CUdevice d, int fd);

/* Finds the card that a device object stands for, without the driver library. Returns 0 or as
 * gpu_rm_errno. */
struct gpu_rm_card;
int gpu_learn_card(const struct gpu_learn_object *device, struct gpu_rm_card *ret);

void gpu_learn_forget_all(void);

#endif
