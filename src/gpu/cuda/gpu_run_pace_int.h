/* What is learned about the duration of a resumable run's blocks. */
#ifndef GBPF_GPU_CUDA_GPU_RUN_PACE_INT_H
#define GBPF_GPU_CUDA_GPU_RUN_PACE_INT_H

#include "gpu/gpu_run.h"

struct gpu_run_entry;

/* The time of something that was noticed between two observations. */
struct gpu_run_interval {
	uint64_t from, to;
};

struct gpu_run_pace {
	uint64_t clone_id;	       /* the clone that ran last, */
	uint64_t block_ps;	       /* and the device time of one of its blocks, ps */
	struct gpu_run_interval front; /* pieces.front_ns lies in it */
	struct gpu_run_interval
		mark;	      /* begin of the measured stretch without a pause; to 0: none */
	uint64_t mark_blocks; /* blocks since the mark, of clone_id */
	uint64_t looked_ns;   /* time of the last observation */
};

/* All of these: the run's lock is held. Pieces up to `upto` have finished. */

/* Device time of one block of the entry, ps, as known now; 0: unknown. */
uint64_t gpu_run_pace_of(const struct gpu_run *run, const struct gpu_run_entry *l);
/* Estimates when the last of these pieces finished. end: when that was noticed. */
uint64_t gpu_run_estimate_end(const struct gpu_run *run, uint32_t upto,
			      const struct gpu_run_interval *end);
/* Learns from these pieces, `blocks` in all, which finished at about end_ns. */
void gpu_run_learn(struct gpu_run *run, uint32_t upto, uint32_t blocks, uint64_t end_ns,
		   const struct gpu_run_interval *end);
/* Learns from an interruption: the stream ran empty with the counter at that value. To be called
 * before gpu_run_rewind. */
void gpu_run_learn_stopped(struct gpu_run *run, uint32_t counter);
/* Stores the duration of a finished launch for gpu_run_took. */
void gpu_run_store_duration(struct gpu_run *run, const struct gpu_run_entry *l);

/* The estimated time of what was not visible at `before` and is visible now. */
static inline uint64_t gpu_run_midpoint(uint64_t before, uint64_t now)
{
	return now > before ? now - (now - before) / 2 : now;
}

#endif
