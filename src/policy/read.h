/* Pins: "this thread is looking at shared things now". Entering and leaving are plain stores to a
 * slot of the thread's own; whoever takes something away (a policy version, a board, a page)
 * unpublishes it and then waits until every thread that was inside has left once. A pin is held for
 * a bounded piece of code only: a scan of boards and one verified program; never over a wait, a
 * device call or a callback. Process-wide, since threads are.
 *
 * Signal handlers may come in between, enter and leave once more, and may even longjmp away and
 * never leave: where a pin was entered on the stack tells the two apart, and nobody waits for ever.
 */
#ifndef GBPF_POLICY_READ_H
#define GBPF_POLICY_READ_H

#include <stdbool.h>
#include <stdint.h>

#include "base/atomic.h"
#include "base/compiler.h"

#define POLICY_READERS 4096u

struct policy_reader {
	uint64_t seq;		/* odd: inside; its thread writes */
	uintptr_t sp;		/* where on its stack it entered */
	uint32_t used;		/* taken by a thread */
	uint32_t tid;		/* of that thread */
	uint64_t stuck;		/* a seq that did not change for too long; who waits writes */
	uintptr_t alt, alt_end; /* the thread's alternate signal stack, as of its first pin */
	const void *gate; /* queue to which its thread is just submitting; its thread writes */
} ALIGNED(64);

extern TLS_FAST struct policy_reader *policy_reader_self;
extern uint32_t
	policy_read_fenced; /* 1: no membarrier here, so entering needs a fence of its own */

/* Once a process before the first pin; more calls do nothing. */
void policy_read_setup(void);
/* First pin of a thread, and threads beyond the slots (NULL: counted in a word that they share). */
struct policy_reader *policy_read_enter_slow(uintptr_t sp);
void policy_read_leave_shared(void);
/* The thread is inside already: a signal handler has interrupted it there, or it has been torn away
 * from there. */
struct policy_reader *policy_read_reenter(struct policy_reader *p, uintptr_t sp);
/* Waits until every thread that was inside at the call has left, or has been torn away from there
 * (longjmp out of a signal handler) and sleeps; the caller is not inside. False: somebody was still
 * there after half a second; what they may be looking at must stay. */
bool policy_synchronize(void);
/* Whether no thread is at that gate any more, after patience_ns at most. Whoever comes to it later
 * sees what the caller has stored before. */
bool policy_gate_synchronize(const void *gate, uint64_t patience_ns);
/* fork: the other threads do not exist here. */
void policy_read_after_fork(void);

static inline struct policy_reader *policy_read_enter(void)
{
	uintptr_t sp = (uintptr_t)__builtin_frame_address(0);
	struct policy_reader *p = policy_reader_self;
	uint64_t seq;

	if (unlikely(!p)) {
		return policy_read_enter_slow(sp);
	}
	seq = load_relaxed(&p->seq);
	if (unlikely(seq & 1)) {
		return policy_read_reenter(p, sp);
	}
	store_relaxed(&p->sp, sp);
	compiler_barrier(); /* a handler that finds us inside finds where, too */
	store_relaxed(&p->seq, seq + 1);
	if (unlikely(load_relaxed(&policy_read_fenced))) {
		fence_seqcst();
	}
	compiler_barrier(); /* pin_wait_all's membarrier is the other half */
	return p;
}

static inline void policy_read_leave(struct policy_reader *p)
{
	if (unlikely(!p)) {
		policy_read_leave_shared();
		return;
	}
	store_release(&p->seq, load_relaxed(&p->seq) + 1);
}

/* The thread is at that gate until pin_gate_leave: what it reads in between, it reads after whoever
 * waits for the gate can see it. False: it has no slot, and cannot be seen. */
static inline bool policy_gate_enter(const void *gate)
{
	struct policy_reader *p = policy_reader_self;

	if (unlikely(!p)) {
		return false;
	}
	store_relaxed(&p->gate, gate);
	if (unlikely(load_relaxed(&policy_read_fenced))) {
		fence_seqcst();
	}
	compiler_barrier(); /* pin_gates_clear's membarrier is the other half */
	return true;
}

static inline void policy_gate_leave(void)
{
	struct policy_reader *p = policy_reader_self;

	if (likely(p)) {
		store_release(&p->gate, (const void *)NULL);
	}
}

#endif
