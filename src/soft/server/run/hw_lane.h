/* Lanes, the entries of the run list. Guarded by the machine's lock. */
#ifndef GBPF_SOFT_SERVER_RUN_HW_LANE_H
#define GBPF_SOFT_SERVER_RUN_HW_LANE_H

#include <stdbool.h>
#include <stdint.h>

#include "soft/server/list.h"
#include "soft/server/machine_lock.h"

struct softd_gpu;
struct softd_group;

/* Resources of one SM taken by the blocks of one lane. */
struct softd_sm {
	uint32_t threads, shared, blocks;
	uint64_t warps; /* slots that have one, as bits */
};

/* A participant in time slicing: one context, or all contexts of the processes that named the same
 * folder in CUDA_MPS_PIPE_DIRECTORY. The blocks of its members run concurrently, by priority. */
struct softd_lane {
	struct softd_list in_gpu; /* gpu.lanes */
	struct softd_list in_runlist;
	uint64_t position; /* in the run list; kept while it is not there */
	unsigned launches; /* of its members, begun and not ended: it is in the run list */
	struct softd_gpu *gpu;
	struct softd_list members; /* of struct softd_group; the last to supply a block is last */
	unsigned n_members;
	uint64_t key;		 /* of a shared lane; 0: private to one context */
	struct softd_sm *sms;	 /* owned; use of each SM */
	uint32_t next_sm;	 /* where placement starts to search */
	uint64_t turns;		 /* block turns; every sixteenth ignores priority */
	unsigned running_blocks; /* held by workers */
	uint64_t departures;	 /* number of times that it has left the GPU */
	uint64_t slice_ns;
	uint64_t debt_ns; /* time used beyond its slices */
};

/* Adds the group to the shared lane that its client requested, created on demand, or to a lane of
 * its own. Returns 0 or -ENOMEM. */
int softd_lane_join(struct softd_group *g) REQUIRES(softd_lock);
/* Removes the group; the last member frees the lane. */
void softd_lane_leave(struct softd_group *g) REQUIRES(softd_lock);
/* Returns true if a block of a member could run. */
bool softd_lane_runnable(const struct softd_lane *lane) REQUIRES(softd_lock);

/* A launch of the lane begins to want blocks, or has gone. */
void softd_runlist_launched(struct softd_lane *lane) REQUIRES(softd_lock);
void softd_runlist_ended(struct softd_lane *lane) REQUIRES(softd_lock);
/* Returns the lane whose blocks may run now, switching lanes if it is time to; NULL: none. */
struct softd_lane *softd_runlist_choose(struct softd_gpu *gpu, uint64_t now) REQUIRES(softd_lock);
/* A worker takes a block of the group. */
void softd_runlist_enter(struct softd_group *g, uint64_t now) REQUIRES(softd_lock);
/* The worker has finished the block's turn. */
void softd_runlist_leave(struct softd_group *g, uint64_t now) REQUIRES(softd_lock);
/* Ends the lane's slice as soon as its running blocks stop. */
void softd_runlist_preempt(struct softd_lane *lane) REQUIRES(softd_lock);
void softd_runlist_remove(struct softd_lane *lane) REQUIRES(softd_lock);
/* Brings held_ns of the members up to date. */
void softd_runlist_account(struct softd_lane *lane, uint64_t now) REQUIRES(softd_lock);

#endif
