/* Addresses that the driver library has mapped for the GPU, observed as gpu/learn.h does: which
 * addresses are the device's, and which memory object of the resource manager lies behind them. */
#ifndef GBPF_GPU_RANGES_H
#define GBPF_GPU_RANGES_H

#include "gpu/learn.h"

/* An allocation in device memory: one object, mapped as a whole. */
struct gpu_range {
	uint64_t base, bytes;
	int fd; /* that made the object */
	uint32_t client, device, memory;
};

/* What is told about memory that goes, before the driver is asked to free it. Called by any thread
 * that calls the driver, which may hold locks of the driver library. */
struct gpu_ranges_watch {
	void (*gone)(uint64_t base, uint64_t bytes); /* no longer found */
	void (*freed)(uint32_t client, uint32_t object);
};

/* Begins to record; once, before there is a context. w stays valid. */
void gpu_ranges_begin(const struct gpu_ranges_watch *w);
/* Returns false if the address is in no allocation that is known as above. */
bool gpu_ranges_find(uint64_t address, struct gpu_range *ret);
/* Returns true if some of it is mapped for the GPU and may not be accessible to the CPU. */
bool gpu_ranges_touch(uint64_t address, uint64_t bytes);

/* ---- for learn.c and slot.c ---- */

/* An object that this thread has made at the resource manager. */
void gpu_ranges_made(const struct gpu_learn_object *o);
/* Before a call of the driver library's, and after it. */
void gpu_ranges_before(unsigned long request, const void *argument);
void gpu_ranges_after(unsigned long request, const void *argument, int result);
/* In a child after fork. */
void gpu_ranges_forget_all(void);

#endif
