/* A driver in memory that runs what is launched: streams are lists, blocks of twins really look at
 * leases, draw tickets and store numbers. Which stream's block begins or ends next is random. Every
 * block of every launch is checked to run once, and nothing else of a stream to run in between. */
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

/* What the program sees of a stream: its operations, one after the other. */
struct track {
	struct work *now; /* begun and not finished */
	uint32_t last;	  /* ordinal of the last that finished */
	bool ordered;	  /* one thread submits: ordinals must follow each other */
};

/* One operation of the program: a kernel of some blocks, or (blocks 1) anything else. */
struct work {
	struct track *track;
	uint32_t ordinal, blocks, begun, ended;
	bool barrier;	    /* a block ends only when all have begun */
	struct work *after; /* of another stream; NULL: nothing */
	struct work *next;  /* the test's */
	uint8_t ran[];	    /* blocks */
};

#define DRV_CTX ((CUcontext)(uintptr_t)0x1000)
#define DRV_CLONE ((CUfunction)(uintptr_t)0x2000) /* f$gbpf: its parameter is a struct work * */
#define DRV_PLAIN ((CUfunction)(uintptr_t)0x3000) /* f */

extern struct cuabi_table drv;
struct drv_options {
	uint64_t seed;
	bool one_connection; /* what is submitted later does not begin before what is earlier */
	uint32_t deep;	     /* operations that a stream takes, then the caller waits; 0: any */
	uint32_t resident;   /* blocks at once; 0: 16 */
};
void drv_init(const struct drv_options *o);
void drv_finish(void);
/* Lets the device do up to n things; how many it did. */
unsigned drv_run(unsigned n);
/* A thread that does. */
void drv_start(void);
void drv_stop(void);
CUstream drv_stream(void);
/* The next launch answers that; the device is lost: every call does. */
void drv_refuse(CUresult e, uint32_t after);
void drv_lose(CUresult e);
/* No blocks begin on that stream: the device has other things to do. */
void drv_freeze(CUstream s, bool on);
extern uint32_t drv_leases[64];		/* [atomic] not 0: in force */
extern uint64_t drv_launches, drv_left; /* [atomic] launches of twins, blocks that left */
bool drv_idle(void);
struct work *drv_work(struct track *t, uint32_t ordinal, uint32_t blocks); /* caller frees */
bool drv_done(const struct work *w);
CUresult drv_plain(CUstream s, struct work *w);
/* One line for work at block level; its parameter must live until the call returns. */
struct gpu_block_launch drv_clone(struct work *const *w, uint32_t piece);
uint64_t drv_random(uint64_t *state);

#endif
