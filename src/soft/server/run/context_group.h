/* Groups: one for each CUDA context (a TSG on hardware). Guarded by the machine's lock. */
#ifndef GBPF_SOFT_SERVER_RUN_CONTEXT_GROUP_H
#define GBPF_SOFT_SERVER_RUN_CONTEXT_GROUP_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "cuabi/types.h"
#include "soft/server/exec/exec.h"
#include "soft/server/list.h"
#include "soft/server/machine.h"
#include "soft/server/memory/device_memory.h"
#include "soft/server/memory/heap.h"

struct softd_client;
struct softd_op;
struct softd_stream;

struct softd_group {
	struct softd_list in_gpu;  /* gpu.groups */
	struct softd_list in_lane; /* lane.members */
	struct softd_lane *lane;
	struct softd_list in_machine; /* machine.groups */
	struct softd_list in_dirty;   /* machine.dirty */
	struct softd_list in_copying; /* gpu.copiers */
	struct softd_gpu *gpu;
	struct softd_client *client;
	uint32_t slot;
	struct softd_memory *memory; /* borrowed: the client's window on the GPU */
	struct softd_list streams;
	struct softd_stream *legacy;
	uint64_t next_order;
	struct softd_list launches[SOFTD_DEVICE_LEVELS]; /* with blocks to start, oldest first */
	struct softd_list resident[SOFTD_DEVICE_LEVELS]; /* started blocks that no worker holds */
	bool passed[SOFTD_DEVICE_LEVELS]; /* the last turn started a block: a started one is next */
	struct softd_list copies;	  /* of struct softd_op, begun or not */
	uint64_t copy_stamp;  /* gpu.copy_stamp at its last part: the smallest is next */
	unsigned value_polls; /* operations that poll memory */
	uint32_t resident_blocks;
	unsigned running;	 /* running_blocks and copies in engines: keeps memory mapped */
	unsigned running_blocks; /* held by workers */
	CUresult error;		 /* sticky */
	bool found;		 /* --check has reported a finding */
	bool dead;
	bool enabled;
	bool dirty;  /* the head of a stream may be able to start; set by softd_group_touch */
	int control; /* owned; the descriptor that permits controlling the group; -1: none */
	dev_t control_disk;
	ino_t control_file;
	unsigned flags;	   /* flag pages made, ever */
	unsigned watchers; /* requests that wait until nothing of it runs */
	struct soft_counters counters;
	struct exec_host host;	/* services for its kernels */
	struct softd_heap heap; /* guarded by its own lock */
};

struct softd_group *softd_group_create(struct softd_client *c, struct softd_gpu *gpu, uint32_t slot)
	REQUIRES(softd_lock);
/* Drops all operations, waits until no worker holds a part of the group (releasing the lock), and
 * frees it. */
void softd_group_destroy(struct softd_group *g) REQUIRES(softd_lock);
/* Sets the sticky error and drops started work. text goes to the logs of server and client; NULL:
 * no message. */
void softd_group_fail(struct softd_group *g, CUresult error, const char *text) REQUIRES(softd_lock);
/* Returns true if a block of it could run. */
bool softd_group_runnable(const struct softd_group *g) REQUIRES(softd_lock);
/* Marks the group dirty: the next turn looks at the heads of its streams. */
void softd_group_touch(struct softd_group *g) REQUIRES(softd_lock);
/* Starts the operations at the heads of its streams that can start (op_stream.c). */
void softd_group_progress(struct softd_group *g) REQUIRES(softd_lock);
/* Returns a copy that an engine could continue, or NULL (machine.c). */
struct softd_op *softd_group_next_copy(const struct softd_group *g) REQUIRES(softd_lock);
/* Unloads a module; launches keep what they use (request_module.c). */
void softd_module_drop(struct softd_client *c, uint32_t slot) REQUIRES(softd_lock);

#endif
