/* Launches, and the placement of their blocks on SMs. Guarded by the machine's lock. */
#ifndef GBPF_SOFT_SERVER_RUN_KERNEL_LAUNCH_H
#define GBPF_SOFT_SERVER_RUN_KERNEL_LAUNCH_H

#include <stdbool.h>
#include <stdint.h>

#include "soft/server/exec/exec.h"
#include "soft/server/list.h"
#include "soft/server/machine.h"

struct softd_client;
struct softd_op;

/* A set of SMs; n 0: all that the client may use. */
struct softd_sm_set {
	bool gone;     /* freed, but launches in the ring may name it */
	uint32_t head; /* ring position where they end */
	uint32_t n;
	uint64_t sms[SOFTD_DEVICE_SM_WORDS];
};

struct softd_resident_block {
	struct softd_list in_group; /* group.resident while waiting, or launch.spare */
	struct softd_launch *launch;
	struct exec_block *block;
	uint32_t sm;
	uint64_t warps; /* its slots there, as bits */
	unsigned turns; /* budgets used since it started */
};

struct softd_launch {
	struct softd_list in_group; /* group.launches while blocks are to be started */
	struct softd_op *op;
	struct exec_module *module; /* a reference */
	struct exec_launch exec;
	uint64_t total, next, ended; /* blocks; next: index of the next to start */
	unsigned resident;	     /* blocks started and not ended */
	unsigned running;	     /* held by workers */
	struct softd_list spare;     /* of struct softd_resident_block, for reuse */
	uint32_t shared_bytes;	     /* static and dynamic */
	uint32_t threads;
	uint64_t host_bytes; /* estimate per block */
	uint64_t charged;    /* host memory of its blocks, spare ones included */
	struct softd_sm_set part;
	bool aborted;
	bool cooperative;
	bool submitted; /* counts in lane.launches */
	int priority;
	bool own_priority; /* overrides the stream's */
	unsigned level;
	uint32_t *gang;	       /* owned; SM of each block once a cooperative launch is placed */
	uint64_t workspace;    /* device address of a cooperative launch's grid barrier */
	uint64_t ns_per_kinsn; /* 0: not measured yet */
	uint8_t *params;       /* in the same allocation */
	struct softd_client *client;
	uint64_t queued_bytes; /* size of this allocation */
};

/* Returns NULL if the record names no loaded function or does not fit it. */
struct softd_launch *softd_launch_create(struct softd_client *c, struct softd_group *g,
					 const struct soft_record_launch *r) REQUIRES(softd_lock);
void softd_launch_free(struct softd_launch *l) REQUIRES(softd_lock);
/* Makes the blocks available to workers, or fails the group. */
void softd_launch_submit(struct softd_launch *l, int priority) REQUIRES(softd_lock);
/* Retires the launch if all blocks have ended, or it was aborted and no worker holds one. */
void softd_launch_try_retire(struct softd_launch *l) REQUIRES(softd_lock);

/* The block, copy and budget of a worker's turn. */
struct softd_work {
	struct softd_group *group;
	struct softd_launch *launch;
	struct softd_resident_block *block;
	struct softd_op *copy;
	uint64_t index; /* of a block that starts now */
	uint64_t budget;
	uint64_t begin_ns;
	bool fresh; /* the block starts now */
};

/* Returns true if a block of the group could run. */
bool softd_place_ready(const struct softd_group *g) REQUIRES(softd_lock);
/* Takes a block of the lane. Returns false if none can run. */
bool softd_place_choose(struct softd_lane *lane, struct softd_work *w) REQUIRES(softd_lock);
/* Removes the block from its SM; keep: its memory may serve another block of the launch. */
void softd_place_remove(struct softd_resident_block *b, bool keep) REQUIRES(softd_lock);
/* Removes all blocks that no worker holds. */
void softd_place_remove_all(struct softd_launch *l) REQUIRES(softd_lock);
/* Returns how many blocks of the launch can be resident at once on the SMs it may use. */
uint64_t softd_place_capacity(const struct softd_launch *l) REQUIRES(softd_lock);

#endif
