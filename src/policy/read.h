/* Read-side sections: RCU in user space, based on membarrier(2). Entering and leaving a section are
 * plain stores to a slot of the calling thread. To remove a shared object (a policy version, a
 * board, a page), unpublish it and call policy_synchronize, which waits until every thread that was
 * inside has left once. A section covers a bounded piece of code: a scan of boards and one verified
 * program; never a wait, a device call or a callback. Slots are process-wide, since threads are.
 *
 * A signal handler may interrupt a section, enter and leave one itself, or leave the outer one by
 * longjmp without policy_read_leave. The stack pointer stored on entry distinguishes these cases,
 * so that policy_synchronize never waits indefinitely.
 *
 * The slot also holds the gate at which its thread is (see sched/run_int.h), and whether the thread
 * is in a work section: a driver call that submits work. Such a section may last as long as the
 * driver pleases. While the sections are closed none begins: a thread that comes to one waits. */
#ifndef GBPF_POLICY_READ_H
#define GBPF_POLICY_READ_H

#include <stdbool.h>
#include <stdint.h>

#include "base/atomic.h"
#include "base/compiler.h"

#define POLICY_READERS 4096u

struct policy_reader {
	uint64_t seq;	/* odd: inside; written by the slot's thread */
	uintptr_t sp;	/* stack pointer at entry */
	uint32_t used;	/* taken by a thread */
	uint32_t tid;	/* id of that thread */
	uint64_t stuck; /* value of seq that did not change for too long; written by waiting threads
			 */
	uintptr_t alt,
		alt_end;  /* alternate signal stack of the thread, recorded at its first entry */
	const void *gate; /* queue whose gate the thread has entered; written by that thread */
	uint32_t working; /* work sections that it is in, nested in handlers; written by it */
} ALIGNED(64);

extern TLS_FAST struct policy_reader *policy_reader_self;
extern uint32_t policy_read_fenced; /* 1: membarrier is not available, so entering needs a fence */
extern uint32_t policy_work_closed; /* [atomic] 1: no work section may begin */

/* Prepares the process; before its first section. Further calls do nothing. */
void policy_read_setup(void);
/* First section of a thread. Threads without a free slot share a counter; they get NULL. */
struct policy_reader *policy_read_enter_slow(uintptr_t sp);
void policy_read_leave_shared(void);
/* The slot says that the thread is inside already: this is a signal handler that interrupted a
 * section, or the section was left by longjmp. */
struct policy_reader *policy_read_reenter(struct policy_reader *p, uintptr_t sp);
/* Waits until every thread that was inside when this was called has left, or has left by longjmp
 * and sleeps. The caller is not inside. Returns false if a thread is still inside after half a
 * second: the objects that it may read must stay. */
bool policy_synchronize(void);
/* Returns whether no other thread is at the gate, after waiting patience_ns at most. A thread that
 * enters the gate later sees all stores that the caller made before. */
bool policy_gate_synchronize(const void *gate, uint64_t patience_ns);
/* Closes the work sections, and waits patience_ns at most until no other thread is in one. Returns
 * false if that is not so, or if the caller is in one: they are open again. Otherwise, until
 * policy_work_open(), each call that submitted work has returned, and none is made. One thread at a
 * time; it makes no call that enters a section. */
bool policy_work_close(uint64_t patience_ns);
void policy_work_open(void);
/* For threads without a slot, and for sections that begin while they are closed. */
struct policy_reader *policy_work_enter_slow(void);
void policy_work_leave_shared(void);
void policy_work_wait(struct policy_reader *p);
/* fork: the other threads do not exist in the child. */
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
	compiler_barrier(); /* a handler that sees seq odd must see sp, too */
	store_relaxed(&p->seq, seq + 1);
	if (unlikely(load_relaxed(&policy_read_fenced))) {
		fence_seqcst();
	}
	compiler_barrier(); /* Orders the entry before the reads of the section. Pairs with the
			       membarrier in policy_synchronize. */
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

/* Enters a gate: until policy_gate_leave, the thread is visible there to policy_gate_synchronize
 * before it reads anything else. Returns false if the thread has no slot. */
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
	compiler_barrier(); /* Orders the store before later reads. Pairs with the membarrier in
			       policy_gate_synchronize. */
	return true;
}

static inline void policy_gate_leave(void)
{
	struct policy_reader *p = policy_reader_self;

	if (likely(p)) {
		store_release(&p->gate, (const void *)NULL);
	}
}

/* Enters a work section, which may be left by longjmp: then it is never closed any more. Returns
 * what policy_work_leave() takes. */
static inline struct policy_reader *policy_work_enter(void)
{
	struct policy_reader *p = policy_reader_self;

	if (unlikely(!p)) {
		return policy_work_enter_slow();
	}
	store_relaxed(&p->working, load_relaxed(&p->working) + 1);
	if (unlikely(load_relaxed(&policy_read_fenced))) {
		fence_seqcst();
	}
	compiler_barrier(); /* Orders the store before the load. Pairs with the membarrier in
			       policy_work_close(). */
	if (unlikely(load_acquire(&policy_work_closed))) {
		policy_work_wait(p);
	}
	return p;
}

static inline void policy_work_leave(struct policy_reader *p)
{
	if (unlikely(!p)) {
		policy_work_leave_shared();
		return;
	}
	store_release(&p->working, load_relaxed(&p->working) - 1);
}

#endif
