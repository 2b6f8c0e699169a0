/* A driver's side of the resource manager, and a driver table on top of it, for tests. */
#ifndef GBPF_TESTS_GPU_FAKE_RM_H
#define GBPF_TESTS_GPU_FAKE_RM_H

#include <stdbool.h>
#include <stdint.h>

#include "cuabi/table.h"

#define FAKE_GPUS 3u
#define FAKE_OBJECTS 512u
#define FAKE_PARTS 64u
#define FAKE_MEMORY_BYTES (UINT64_C(8) << 20) /* of each memory object */

struct fake_object {
	uint32_t root, parent, object, class_id, gpu;
	uint64_t slice_us;
	uint32_t level, on, saves;
	int control; /* the client's control descriptor */
	int memory;  /* descriptor of a memory object's contents; shared by duplicates */
};

/* A part of a memory object that is mapped for the CPU. */
struct fake_part {
	uint32_t client, device, memory;
	uint64_t offset, bytes, cookie;
	int contents; /* descriptor (owned); the object's own for a part from offset 0 on */
};

struct fake_rm {
	struct fake_object o[FAKE_OBJECTS];
	struct fake_part part[FAKE_PARTS];
	uint32_t n_parts, parts_made, freed_with_parts;
	uint64_t shown_bytes; /* of each card's memory, to the CPU */
	uint32_t n, next;
	/* Refused with `status`: by class (allocations), by command (controls), by request number.
	 */
	uint32_t refuse_class, refuse_command, refuse_number, refuse_status;
	bool stores_are_lost; /* the device does not read what is mapped */
	bool mmap_fails;
	int errno_seen; /* as the latest call came in */
	/* Called before a call is carried out, and after. */
	void (*before)(int fd, unsigned long request, const void *argument);
	void (*after)(int fd, unsigned long request, const void *argument);
	uint32_t calls;
	uint32_t disabled_calls, group_schedules, preempts, preempt_wait_us;
};
extern struct fake_rm fake;

/* Removes all objects, and makes gpu_rm_os use the fake. */
void fake_reset(void);
/* Loads the library whose ioctl import leads here; an environment variable has its path. */
void *fake_library(const char *variable);
/* Its functions: calls as libcuda makes them. */
extern int (*fake_call)(int fd, unsigned long request, void *argument);

/* Makes what a driver makes for a context on a GPU: a device, a subdevice, and two groups with two
 * channels each, owned by a client of `control`. Returns the client's number. */
uint32_t fake_context(int control, uint32_t client, uint32_t gpu);
/* Makes one object by the library's call; gpu: of a device. Returns its handle. */
uint32_t fake_make(int control, uint32_t root, uint32_t parent, uint32_t class_id, uint32_t gpu);
int fake_control(void); /* a control descriptor */
int fake_uvm(void);	/* one of the unified memory driver, which grants all calls */
struct fake_object *fake_find(uint32_t root, uint32_t object);
struct fake_object *fake_nth(uint32_t class_id, uint32_t n);

/* Fills a driver table with the functions that flag pages and the learner call; the context is on
 * that GPU. */
void fake_table(struct cuabi_table *t, uint32_t gpu, int control, uint32_t client);

#endif
