/* A resumable run. Its lock is held over driver calls; a thread that takes it has the queue to
 * itself already (the scheduler's issue lock) or is about to wait. */
#ifndef GBPF_GPU_CUDA_GPU_RUN_INT_H
#define GBPF_GPU_CUDA_GPU_RUN_INT_H

#include "base/atomic.h"
#include "base/lock.h"
#include "gpu/cuda/gpu_run_bypass_int.h"
#include "gpu/cuda/gpu_run_gate_int.h"
#include "gpu/cuda/gpu_run_memory_int.h"
#include "gpu/cuda/gpu_run_pace_int.h"
#include "gpu/cuda/gpu_run_strike_int.h"
#include "gpu/cuda/gpu_run_submit_int.h"
#include "gpu/cuda/gpu_run_take_int.h"

/* A run that makes no progress is forced after this time, where the scheduler does not do it. */
#define GPU_RUN_FORCE_NS 200000000u
#define GPU_RUN_RESERVE_NS 80000u /* time that the host gets to submit the next piece */

/* docs/STATES.md has the transitions. */
enum gpu_run_state {
	GPU_RUN_ACTIVE,	   /* pieces are submitted while there is room */
	GPU_RUN_READING,   /* interrupted; the counter is being read */
	GPU_RUN_HALTED,	   /* interrupted; what is missing is known */
	GPU_RUN_FORCED,	   /* one piece runs regardless of leases; the rest waits */
	GPU_RUN_TAKING,	   /* a hang is suspected; the counter is being taken */
	GPU_RUN_WATCHING,  /* counter taken: do the blocks that have begun end? */
	GPU_RUN_BYPASS,	   /* waits until the stream and the bypass stream are empty */
	GPU_RUN_RESTORING, /* the counter is being set for the launches behind */
};

/* Atomics that are read without the lock; written with the lock, unless stated. */
struct gpu_run_seen {
	uint32_t newest;    /* number of the last piece submitted */
	uint32_t n_pending; /* blocks of unfinished launches that are not submitted, and events */
	uint32_t failed;    /* the context's error: the run is given up */
	uint64_t launched, finished; /* entries */
	uint64_t end_ns;	     /* expected end of what is on the device */
	uint32_t interruptions;
	uint32_t futile;    /* interruptions that no block had got through before */
	uint32_t state;	    /* enum gpu_run_state */
	uint32_t error;	    /* of a launch that was refused later; the reader clears it */
	uint32_t n_tickets; /* of unfinished launches */
	/* Durations of the last finished launches, by number: ns << 16 | low bits of the number. */
	uint64_t took[GPU_RUN_DEPTH];
};

/* Interruption and resumption. */
struct gpu_run_halt {
	uint64_t query_ns;	/* time of the last stream query */
	uint64_t empty_ns;	/* estimated time at which the stream ran empty */
	uint64_t request_ns;	/* time at which a request was first seen; 0: none is open */
	uint64_t since_ns;	/* begin of GPU_RUN_HALTED */
	uint32_t counter;	/* its value at the last interruption, */
	uint32_t n_same;	/* the number of interruptions at which it had not changed, */
	uint64_t same_since_ns; /* and the time of the first of these */
	bool force_all;		/* all pieces are submitted regardless of leases */
};

struct gpu_run {
	struct gpu_device *device;    /* borrowed */
	struct gpu_run_context *home; /* borrowed, of the device */
	struct gpu_run_line line;
	struct gpu_run_seen seen;
	struct lock lock; /* everything below */
	struct gpu_run_list list;
	struct gpu_run_pieces pieces;
	struct gpu_run_halt halt;
	struct gpu_run_pace pace;
	struct gpu_run_hang hang;
	struct gpu_run_strike strike;
	struct gpu_run_gate gate;
};

static inline struct gpu_run *gpu_run_of(const struct gpu_queue *q)
{
	return load_acquire(&q->run);
}

static inline bool gpu_run_unfinished(const struct gpu_run *run)
{
	return run->list.head != run->list.tail;
}

/* The launch that a piece belongs to. */
static inline struct gpu_run_entry *gpu_run_entry_of(struct gpu_run *run, uint32_t piece)
{
	return &run->list
			.entry[run->pieces.piece[piece % GPU_RUN_PIECES_MAX].entry % GPU_RUN_DEPTH];
}

/* Submits entries as gpu_run_submit does, and stores refusals in seen.error. The context is
 * current. */
void gpu_run_submit_all(struct gpu_run *run, const struct gpu_queue *q, uint32_t max, bool forced)
	REQUIRES(run->lock);
uint64_t gpu_run_step_locked(struct gpu_run *run, const struct gpu_queue *q, bool may_run,
			     bool force) REQUIRES(run->lock);

#endif
