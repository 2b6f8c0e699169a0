/* A GPU that runs kernels of blocks of one length in whole waves, on a clock of the test's: one
 * stream, twins that look at one lease, and how much of the time it had nothing to do. Calls take
 * the time that they take on an H200's host, about. */
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
#define OCCUPANCY_SLOW ((CUfunction)(uintptr_t)0x3040) /* blocks take three times as long */

struct waves {
	uint64_t now_ns;
	uint64_t block_ns;	  /* of the blocks that begin from now on */
	uint32_t uneven;	  /* per mille by which those of a kernel may take longer */
	uint32_t resident;	  /* blocks at once: a multiple of 132 */
	uint32_t gap_ns;	  /* from the end of one kernel to the next */
	uint64_t free_ns;	  /* since when the stream has been idle */
	uint64_t busy_ns, dry_ns; /* time in which blocks ran, and in which nothing was there */
	uint64_t blocks;	  /* that have ended or run */
	uint64_t launches, queries;
	uint64_t called_ns; /* spent inside calls */
	uint32_t lease[4];
};

extern struct waves waves;
extern struct cuabi_table occupancy_table;

/* The clock goes on, and the device with it. */
uint64_t occupancy_clock(void);
void occupancy_until(uint64_t ns);
void occupancy_init(uint32_t resident, uint64_t block_ns);
void occupancy_finish(void);
bool occupancy_idle(void);
/* No request of others is there any more, or one is: no twin's block begins. */
void occupancy_lease(bool on);

#endif
