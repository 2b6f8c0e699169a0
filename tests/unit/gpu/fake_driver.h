/* A driver in memory that runs what is launched. Streams are lists; blocks of clones read leases,
 * draw tickets and store numbers. The stream whose block begins or ends next is chosen at random.
 * The driver checks that each block of each launch runs once, with no other work of the stream in
 * between. Blocks of kernels with an entry stub follow the gate's rules, and begin a little out of
 * order. */
#ifndef GBPF_TESTS_GPU_FAKE_DRIVER_H
#define GBPF_TESTS_GPU_FAKE_DRIVER_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <pthread.h>
#include <stdbool.h>

#include "base/atomic.h"
#include "cuabi/table.h"
#include "gpu/gpu_run.h"

/* A stream as the program sees it: its operations in order. */
struct track {
	struct work *now; /* begun and not finished */
	uint32_t last;	  /* ordinal of the last operation that finished */
	bool ordered;	  /* one thread submits: ordinals must be consecutive */
};

/* One operation of the program: a kernel of several blocks, or (1 block) anything else. */
struct work {
	struct track *track;
	uint32_t ordinal, blocks, begun, ended;
	bool barrier;	    /* a block ends only when all have begun */
	bool held;	    /* no block ends: they take long */
	uint32_t cluster;   /* with an entry stub: blocks of a cluster, which divide blocks; 0: 1 */
	struct work *after; /* must finish before; NULL: nothing */
	struct work *next;  /* for the test's use */
	uint8_t ran[];	    /* number of times that each block ran */
};

#define DRV_CTX ((CUcontext)(uintptr_t)0x1000)
#define DRV_CLONE ((CUfunction)(uintptr_t)0x2000) /* f$gbpf: its parameter is a struct work * */
#define DRV_PLAIN ((CUfunction)(uintptr_t)0x3000) /* f */
#define DRV_GATE ((CUfunction)(uintptr_t)0x6000)  /* f with an entry stub; the same parameter */

extern struct cuabi_table drv;
struct drv_options {
	uint64_t seed;
	bool one_connection; /* what is submitted later does not begin before what was submitted
				earlier */
	uint32_t deep;	   /* operations that a stream holds before callers block; 0: any number */
	uint32_t resident; /* blocks at once; 0: 16 */
};
void drv_init(const struct drv_options *o);
void drv_finish(void);
/* Lets the device take up to n steps; returns the number taken. */
unsigned drv_run(unsigned n);
/* Starts a thread that does so. */
void drv_start(void);
void drv_stop(void);
CUstream drv_stream(void);
/* refuse: a later launch returns this status. lose: the device is lost, and every call fails. */
void drv_refuse(CUresult e, uint32_t after);
void drv_lose(CUresult e);
/* Keeps blocks on that stream from beginning: the device is busy otherwise. */
void drv_freeze(CUstream s, bool on);
extern uint32_t drv_leases[64];		/* [atomic] not 0: in force */
extern uint64_t drv_launches, drv_left; /* [atomic] launches of clones, blocks that left */
bool drv_idle(void);
struct work *drv_work(struct track *t, uint32_t ordinal, uint32_t blocks); /* caller frees */
bool drv_done(const struct work *w);
CUresult drv_plain(CUstream s, struct work *w);
/* Returns a launch at block level for the work; the parameter must live until the call returns. */
struct gpu_block_launch drv_clone(struct work *const *w, uint32_t piece);
struct gpu_block_launch drv_gate(struct work *const *w, uint32_t wave);
uint64_t drv_random(uint64_t *state);

#endif
