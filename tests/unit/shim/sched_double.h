/* A scheduler for the shim's tests: it decides what the test says, keeps deferred calls until told,
 * and remembers what it was asked. */
#ifndef GBPF_TESTS_SCHED_DOUBLE_H
#define GBPF_TESTS_SCHED_DOUBLE_H

#include "cuabi/types.h"
#include "sched/sched.h"

struct sched_queue {
	CUstream stream;
	CUcontext ctx;
	int32_t priority;
	uint32_t gpu;
	bool open, defer; /* defer: new launches that may be held */
	struct sched_call *first, **last;
	unsigned submits, submitted, failed, drained;
	unsigned queried;	    /* somebody asked whether it keeps calls back, or flushed it */
	struct sched_launch launch; /* the last */
};

struct sched *double_scheduler(void);
/* Forgets counts and what is kept; queues stay open. */
void double_reset(void);
/* The open queue of a stream handle (1 legacy, 2 the thread's own); NULL: none. */
struct sched_queue *double_queue(CUstream stream);
struct sched_queue *double_queue_in(CUstream stream, CUcontext ctx);
/* What the agent would do: issues everything in order. */
void double_issue(void);
unsigned double_deferred(void);
/* Called at sched_submit and sched_submitted. */
extern void (*double_note)(const char *text);
/* Once, by the next sched_defer before the call has its place. */
extern void (*double_before_place)(void);
extern bool double_block_wanted; /* the class is not latency */
extern uint8_t double_why;	 /* last that sched_kernel_set_block was told */

#endif
