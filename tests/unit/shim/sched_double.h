/* A scheduler for the shim's tests: it decides as the test prescribes, keeps deferred calls until
 * the test releases them, and records the calls made to it. */
#ifndef GBPF_TESTS_SCHED_DOUBLE_H
#define GBPF_TESTS_SCHED_DOUBLE_H

#include "cuabi/types.h"
#include "sched/sched.h"

struct sched_queue {
	CUstream stream;
	CUcontext ctx;
	int32_t priority;
	uint32_t gpu;
	bool open, defer; /* defer: defer new launches that may be held */
	struct sched_call *first, **last;
	unsigned submits, submitted, failed, drained;
	unsigned queried;	    /* queries for deferred calls, and drains */
	struct sched_launch launch; /* the last launch submitted */
};

struct sched *double_scheduler(void);
/* Resets counts and drops deferred calls; queues stay open. */
void double_reset(void);
/* Returns the open queue of a stream handle (1 legacy, 2 per-thread); NULL: none. */
struct sched_queue *double_queue(CUstream stream);
struct sched_queue *double_queue_in(CUstream stream, CUcontext ctx);
/* Submits the deferred calls in order, as the agent would. */
void double_issue(void);
unsigned double_deferred(void);
/* Called with "submit" when a ticket begins, and with "submitted" at its end. */
extern void (*double_note)(const char *text);
/* Called once, by the next sched_defer, before the call is enqueued. */
extern void (*double_before_place)(void);
extern bool double_block_wanted;
extern char double_noted[160]; /* the last sched_note() */ /* the tenant's class is not latency */
extern uint8_t double_why; /* last reason passed to sched_kernel_set_block */

#endif
