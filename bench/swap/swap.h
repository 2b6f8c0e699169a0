/* `gbpf bench dev swap`: shared parts of its two halves: a process that starts gbpfd and swaps, and
 * callers that call the submit hook without pause and check each call for effects of a swap. */
#ifndef GBPF_BENCH_SWAP_SWAP_H
#define GBPF_BENCH_SWAP_SWAP_H

#include <sched.h>
#include <stdint.h>

#include "base/compiler.h"

#define SWAP_MAX_CALLERS 64u
#define SWAP_MAX_SWAPS 20000u
#define SWAP_SUB 32u		      /* buckets per power of two: 3 % wide */
#define SWAP_BUCKETS (36u * SWAP_SUB) /* up to a minute */

/* Number of consecutive calls that take about as long as the first call on a new version: the
 * control for the machine's own interruptions of that time. */
#define SWAP_RUN 16u

enum bench_swap_kind { SWAP_CONTROL, SWAP_SWAPS, SWAP_KINDS };

struct bench_swap_caller { /* written by its process */
	uint32_t state;	   /* [atomic] enum bench_swap_state */
	int32_t error;
	uint64_t calls[SWAP_KINDS], lost, mixed, changes;
	uint64_t hist[SWAP_KINDS][SWAP_BUCKETS]; /* of single calls, ns */
	/* By window: the longest call; and for a window with a swap the first call on the new
	 * version, 0: none. */
	uint32_t *longest[SWAP_KINDS], *first;
	uint32_t *run; /* by control window: SWAP_RUN consecutive calls */
} ALIGNED(64);

enum bench_swap_state { SWAP_STARTING, SWAP_CALLING, SWAP_DONE, SWAP_FAILED };

/* Memory that all processes have mapped. */
struct bench_swap_shared {
	uint32_t window; /* [atomic] 0: no recording; else 1 + 2 * n + enum bench_swap_kind */
	uint32_t stop;	 /* [atomic] */
	uint32_t cpus;	 /* usable CPUs of the machine; each caller has its own if they suffice */
	uint32_t pinned, callers;
	cpu_set_t all; /* those CPUs */
	char dir[128];
	struct bench_swap_caller caller[SWAP_MAX_CALLERS];
};

unsigned bench_swap_bucket(uint64_t ns);
uint64_t bench_swap_floor(unsigned bucket);

/* Binds the calling thread to the index-th CPU, or, with SWAP_REST, to those without a caller. */
#define SWAP_REST UINT32_MAX
void bench_swap_use_cpu(const struct bench_swap_shared *sh, unsigned index);

/* Runs a caller in a process of its own. Returns the exit code. */
int bench_swap_call(struct bench_swap_shared *sh, unsigned index);

#endif
