/* Whether a kernel that was found hung waits for blocks of higher index, or was merely long. */
#ifndef GBPF_GPU_CUDA_GPU_RUN_STRIKE_INT_H
#define GBPF_GPU_CUDA_GPU_RUN_STRIKE_INT_H

#include "gpu/cuda/gpu_run_pace_int.h"
#include "gpu/cuda/gpu_run_submit_int.h"

/* Time for which a stream is watched before its launch counts as hung; gpu_run_strike_watch_ns()
 * varies it by what is known of the kernel. */
#define GPU_RUN_WATCH_MIN_NS 100000000u

struct gpu_run_strike {
	uint64_t id;	      /* of the kernel below */
	CUfunction clone;     /* the kernel that hung last, */
	int32_t score;	      /* hangs that it was to blame for, less those that say otherwise, */
	uint64_t patience_ns; /* and how long its stream is watched at least */
	/* The bypass launch that is on the device. */
	bool open;	     /* there is one, and its effect is observed */
	uint32_t beat;	     /* number of the last kernel of our own that shows progress */
	uint64_t taken_ns;   /* time at which the counter had been taken, */
	uint64_t watched_ns; /* time from there to the bypass launch, */
	uint64_t learned_ns; /* learned duration of a block; 0: unknown, */
	uint32_t waves;	     /* of the missing blocks; 0: unknown */
	/* Begin of the bypass, and when the stream and the bypass stream became idle; to 0: not
	 * yet. */
	struct gpu_run_interval begin, stream, bypass;
};

/* All of these: the run's lock is held. */

/* Returns how long the stream is watched before the missing blocks of the launch are launched. */
uint64_t gpu_run_strike_watch_ns(const struct gpu_run *run, const struct gpu_run_entry *l);
/* Observes a bypass launch of `missing` blocks of the launch, which is made now. Blocks of it have
 * begun. */
void gpu_run_strike_open(struct gpu_run *run, const struct gpu_run_entry *l, uint32_t missing,
			 uint64_t now);
/* Both streams were queried after the time `now`. */
void gpu_run_strike_see(struct gpu_run *run, bool stream_idle, bool bypass_idle, uint64_t now);
/* Both streams are idle: judges the kernel. */
void gpu_run_strike_close(struct gpu_run *run);
/* The stream became idle without a bypass launch, although blocks of the launch are missing. */
void gpu_run_strike_ended(struct gpu_run *run, const struct gpu_run_entry *l, uint64_t now);

#endif
