/* Pins: "this thread is looking at shared things now". Entering and leaving are plain stores to a
 * slot of the thread's own; whoever takes something away (a policy version, a board, a page)
 * unpublishes it and then waits until every thread that was inside has left once. A pin is held for
 * a bounded piece of code only: a scan of boards and one verified program; never over a wait, a
 * device call or a callback. Process-wide, since threads are. */
#ifndef GBPF_SCHED_PIN_H
#define GBPF_SCHED_PIN_H

#include <stdint.h>

#include "base/atomic.h"
#include "base/compiler.h"

#define PIN_SLOTS 4096u

struct pin_slot {
	uint64_t seq;  /* odd: inside; its thread writes */
	uint32_t used; /* taken by a thread */
} ALIGNED(64);

extern TLS_FAST struct pin_slot *pin_mine;
extern uint32_t pin_fenced; /* 1: no membarrier here, so entering needs a fence of its own */

/* Once a process before the first pin; more calls do nothing. */
void pin_setup(void);
/* First pin of a thread, and threads beyond the slots (NULL: counted in a word that they share). */
struct pin_slot *pin_enter_slow(void);
void pin_leave_shared(void);
/* Waits until every thread that was inside at the call has left. The caller is not inside. */
void pin_wait_all(void);
/* fork: the other threads do not exist here. */
void pin_after_fork_child(void);

static inline struct pin_slot *pin_enter(void)
{
	struct pin_slot *p = pin_mine;

	if (unlikely(!p)) {
		return pin_enter_slow();
	}
	store_relaxed(&p->seq, load_relaxed(&p->seq) + 1);
	if (unlikely(load_relaxed(&pin_fenced))) {
		fence_seqcst();
	}
	compiler_barrier(); /* pin_wait_all's membarrier is the other half */
	return p;
}

static inline void pin_leave(struct pin_slot *p)
{
	if (unlikely(!p)) {
		pin_leave_shared();
		return;
	}
	store_release(&p->seq, load_relaxed(&p->seq) + 1);
}

#endif
