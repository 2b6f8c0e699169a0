/* A driver's side of the resource manager, and a driver table on it, for tests. */
#ifndef GBPF_TESTS_GPU_FAKE_RM_H
#define GBPF_TESTS_GPU_FAKE_RM_H

#include <stdbool.h>
#include <stdint.h>

#include "cuabi/table.h"

#define FAKE_GPUS 3u
#define FAKE_OBJECTS 512u

struct fake_object {
	uint32_t root, parent, object, class_id, gpu;
	uint64_t slice_us;
	uint32_t level, on, saves;
	int control; /* whose client: the control descriptor */
	int memory;  /* descriptor of what a memory object is; shared by duplicates */
};

struct fake_rm {
	struct fake_object o[FAKE_OBJECTS];
	uint32_t n, next;
	/* What is refused: by class (allocations), by command (controls), by number; a status. */
	uint32_t refuse_class, refuse_command, refuse_number, refuse_status;
	bool stores_are_lost; /* what is mapped is not what the device reads */
	uint32_t calls;
	uint32_t disabled_calls, group_schedules, preempts, preempt_wait_us;
};
extern struct fake_rm fake;

/* Nothing there; rm_os asks the fake from now on. */
void fake_reset(void);
/* The library whose imported ioctl leads here; path by its environment variable. */
void *fake_library(const char *variable);
/* Its entries: calls as libcuda would make them. */
extern int (*fake_call)(int fd, unsigned long request, void *argument);

/* What a driver does for a context of a GPU: a device, a subdevice, two groups with two channels
 * each, of a client of control's. Number of the client. */
uint32_t fake_context(int control, uint32_t client, uint32_t gpu);
int fake_control(void); /* a control descriptor */
struct fake_object *fake_find(uint32_t root, uint32_t object);
struct fake_object *fake_nth(uint32_t class_id, uint32_t n);

/* A driver table with what flag pages and the learner call; the context's GPU is the given one. */
void fake_table(struct cuabi_table *t, uint32_t gpu, int control, uint32_t client);

#endif
