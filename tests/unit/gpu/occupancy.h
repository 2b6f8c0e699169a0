/* A GPU that runs kernels of equal blocks in whole waves, on the test's clock. It has one stream,
 * clones that read one lease, and a count of the time without work. Calls take about as long as on
 * an H200's host. */
#ifndef GBPF_TESTS_GPU_OCCUPANCY_H
#define GBPF_TESTS_GPU_OCCUPANCY_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdbool.h>

#include "cuabi/table.h"

#define WAVES_CTX ((CUcontext)(uintptr_t)0x1000)
#define WAVES_STREAM ((CUstream)(uintptr_t)0x2000)
#define OCCUPANCY_CLONE ((CUfunction)(uintptr_t)0x3000)
#define OCCUPANCY_SLOW ((CUfunction)(uintptr_t)0x3040) /* its blocks take three times as long */

struct waves {
	uint64_t now_ns;
	uint64_t block_ns;	  /* of blocks that begin from now on */
	uint32_t uneven;	  /* per mille by which a kernel's blocks may take longer */
	uint32_t resident;	  /* blocks at once: a multiple of 132 */
	uint32_t gap_ns;	  /* time between two kernels */
	uint64_t free_ns;	  /* begin of the stream's idle time */
	uint64_t busy_ns, dry_ns; /* time in which blocks ran, and time without work */
	uint64_t blocks;	  /* number of blocks that ended */
	uint64_t launches, queries;
	uint64_t called_ns; /* time spent in calls */
	uint32_t lease[4];
};

extern struct waves waves;
extern struct cuabi_table occupancy_table;

/* Advances the clock, and the device with it; returns the time. */
uint64_t occupancy_clock(void);
void occupancy_until(uint64_t ns);
void occupancy_init(uint32_t resident, uint64_t block_ns);
void occupancy_finish(void);
bool occupancy_idle(void);
/* Raises or clears the lease: while it is up, no block of a clone begins. */
void occupancy_lease(bool on);

#endif
