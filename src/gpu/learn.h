/* What the driver library of this process has made at the resource manager: seen by standing in its
 * import slot of ioctl. For the files of this room. */
#ifndef GBPF_GPU_LEARN_H
#define GBPF_GPU_LEARN_H

#include <stdbool.h>
#include <stdint.h>

#define GPU_LEARN_OBJECTS_MAX 8192u
#define GPU_LEARN_NO_ID UINT32_MAX

struct gpu_learn_object {
	uint32_t root, parent, object, class_id;
	int fd;		   /* of the call that made it */
	uint32_t id;	   /* device: its number at the driver; LEARN_NO_ID: not known */
	uint32_t slice_us; /* group: its slice before any of ours; 0: not known */
};

/* One call, after it returned with that result. Any thread. */
void gpu_learn_call(int fd, unsigned long request, const void *argument, int result);

/* While it stands, what this thread's calls make is noted here as well. */
struct gpu_learn_watch {
	uint32_t class_id; /* looked for */
	uint32_t n;	   /* how many were made */
	struct gpu_learn_object last;
	uint32_t device_id; /* of the device under which the last was made */
};
void gpu_learn_watch_begin(struct gpu_learn_watch *w);
void gpu_learn_watch_end(void);

/* Copies of the objects of that class, at most max; how many there are. */
uint32_t gpu_learn_find(uint32_t class_id, struct gpu_learn_object *ret, uint32_t max);
/* The device under which an object lies. */
bool gpu_learn_device_of(const struct gpu_learn_object *o, struct gpu_learn_object *ret);
/* A group's slice was read before we set one. */
void gpu_learn_slice(uint32_t root, uint32_t object, uint32_t slice_us);
/* Grows with each group or channel that comes or goes, and with each slice that the driver library
 * sets itself. */
uint32_t learn_generation(void);
#define GPU_LEARN_CHANNELS 0u /* class_id of learn_find: every GPFIFO channel */

void gpu_learn_forget_all(void);

#endif
