/* The submission ring: puts records into it and waits for their completion. Makes no system call
 * while the server is awake, except to sleep. */
#include "soft/client/ring_submit.h"

#include <errno.h>
#include <sched.h>
#include <string.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "base/fd.h"
#include "soft/client/host_call.h"
#include "soft/client/printf_output.h"
#include "soft/client/process.h"
#include "soft/client/strict.h"
#include "soft/yield.h"

#define SPIN_NS 30000u
/* Upper bound of the time until a lost wake-up or a dead server is noticed. */
#define LOOK_NS 100000000u

static void ring(void)
{
	uint64_t one = 1;

	(void)!write(soft.bell, &one, sizeof(one));
}

static void ring_bell(void)
{
	/* Orders the store of head before the load of asleep. Pairs with the worker's store of
	 * asleep before it reads the rings (worker_thread.c): either this thread sees asleep, or
	 * the worker sees the records. The exchange lets one thread claim the doorbell. */
	fence_seqcst();
	if (load_relaxed(&soft.shared->asleep) && xchg_acqrel(&soft.shared->asleep, 0u)) {
		ring();
	}
}

/* Sleeps until *word changes from `seen`. Rings the doorbell again after a timeout: the thread that
 * claimed it may have been preempted, or stopped by a debugger, before ringing. */
static void wait_and_ring(const uint32_t *word, uint32_t seen)
{
	if (futex_wait_shared(word, seen, LOOK_NS) == -ETIMEDOUT) {
		ring();
	}
}

/* Waits until n bytes fit into the ring. */
static CUresult wait_room(uint32_t n) REQUIRES(soft.ring_lock)
{
	uint32_t tail;

	for (;;) {
		if (load_relaxed(&soft.dead)) {
			return SOFT_DEAD;
		}
		tail = load_acquire(&soft.shared->tail);
		if (soft.head + n - tail <= SOFT_RING_BYTES) {
			return CUDA_SUCCESS;
		}
		if (soft_in_host_function()) {
			return CUDA_ERROR_NOT_PERMITTED;
		}
		add_acqrel(&soft.shared->room_waiters, 1u);
		/* Orders room_waiters before the second load of tail. Pairs with the server's store
		 * of tail before it reads room_waiters (ring_reader.c): either this thread sees the
		 * room, or the server wakes it. */
		fence_seqcst();
		if (load_acquire(&soft.shared->tail) == tail) {
			wait_and_ring(&soft.shared->tail, tail);
		}
		sub_acqrel(&soft.shared->room_waiters, 1u);
	}
}

static void commit(uint32_t bytes) REQUIRES(soft.ring_lock)
{
	soft.head += bytes;
	store_release(&soft.written, soft.written + bytes);
	/* Pairs with the server's acquire of head: it reads complete records. */
	store_release(&soft.shared->head, soft.head);
}

static CUresult put_one(CUstream s, struct soft_record *r, size_t bytes, const void *more,
			size_t more_bytes) REQUIRES(soft.ring_lock)
{
	uint32_t n = (uint32_t)ROUND_UP(bytes + more_bytes, 16), at = soft.head % SOFT_RING_BYTES;
	uint32_t to_end = SOFT_RING_BYTES - at;
	uint8_t *ring = soft.shared->ring;
	CUresult e;

	if (to_end < n) { /* a record does not wrap around the end of the ring */
		struct soft_record pad = { .bytes = to_end, .op = SOFT_OP_PAD };

		e = wait_room(to_end);
		if (e) {
			return e;
		}
		memcpy(ring + at, &pad, sizeof(pad));
		commit(to_end);
		at = 0;
	}
	e = wait_room(n);
	if (e) {
		return e;
	}
	r->bytes = n;
	r->context = (uint16_t)s->context->slot;
	r->stream = s->slot;
	memcpy(ring + at, r, bytes);
	if (more_bytes) {
		memcpy(ring + at + bytes, more, more_bytes);
	}
	commit(n);
	store_release(&soft.stream_count[s->slot], soft.stream_count[s->slot] + 1);
	store_release(&s->submitted, soft.stream_count[s->slot]);
	return CUDA_SUCCESS;
}

/* Adds a record. In strict mode, streams that share a channel have the false dependencies of
 * hardware: an operation does not begin before the operation ahead of it in the channel may begin.
 */
static CUresult put(CUstream s, struct soft_record *r, size_t bytes, const void *more,
		    size_t more_bytes) REQUIRES(soft.ring_lock)
{
	struct soft_record_wait w = { .r.op = SOFT_OP_WAIT };
	CUresult e = CUDA_SUCCESS;

	if (soft_strict_on() && r->op != SOFT_OP_STREAM_CREATE &&
	    soft_strict_false_dependency(s, soft.stream_count[s->slot] + 1, &w.stream, &w.target)) {
		e = put_one(s, &w.r, sizeof(w), NULL, 0);
	}
	return e ? e : put_one(s, r, bytes, more, more_bytes);
}

/* Takes ring_lock. In a host function, only while its holder does not wait for room, which may come
 * only when the host function has returned, and if half of the ring is free for the caller. */
static CUresult take_ring(void) ACQUIRES_IF(false, soft.ring_lock)
{
	if (!soft_in_host_function()) {
		lock_take(&soft.ring_lock);
		return CUDA_SUCCESS;
	}
	while (!lock_try(&soft.ring_lock)) {
		if (load_acquire(&soft.shared->room_waiters) || load_relaxed(&soft.dead)) {
			return CUDA_ERROR_NOT_PERMITTED;
		}
		sched_yield();
	}
	if (soft.head - load_acquire(&soft.shared->tail) > SOFT_RING_BYTES / 2) {
		lock_release(&soft.ring_lock);
		return CUDA_ERROR_NOT_PERMITTED;
	}
	return CUDA_SUCCESS;
}

CUresult soft_ring_submit(CUstream s, struct soft_record *r, size_t bytes, const void *more,
			  size_t more_bytes, uint32_t *ret_target)
{
	CUresult e;

	soft_strict_submit(s);
	e = take_ring();
	if (e) {
		return e;
	}
	e = put(s, r, bytes, more, more_bytes);
	if (ret_target) {
		*ret_target = s->submitted;
	}
	lock_release(&soft.ring_lock);
	if (!e) {
		ring_bell();
	}
	return e;
}

uint64_t soft_ring_written(void)
{
	return load_acquire(&soft.written);
}

CUresult soft_ring_begin(void)
{
	return take_ring();
}

void soft_ring_end(void)
{
	lock_release(&soft.ring_lock);
	ring_bell();
}

CUresult soft_ring_add(CUstream s, struct soft_record *r, size_t bytes)
{
	return put(s, r, bytes, NULL, 0);
}

CUresult soft_ring_add_record(CUstream s, CUevent ev)
{
	struct soft_record_event r = { .r.op = SOFT_OP_RECORD, .event = ev->slot };
	CUresult e;

	r.count = soft.event_count[ev->slot] + 1;
	e = put(s, &r.r, sizeof(r), NULL, 0);
	if (!e) {
		soft.event_count[ev->slot]++;
		store_release(&ev->last, (uint64_t)(s->slot + 1) << 32 | s->submitted);
	}
	return e;
}

CUresult soft_ring_add_wait(CUstream s, uint32_t stream_slot, uint32_t target)
{
	struct soft_record_wait r = { .r.op = SOFT_OP_WAIT,
				      .stream = stream_slot,
				      .target = target };

	return put(s, &r.r, sizeof(r), NULL, 0);
}

bool soft_word_reached(const uint32_t *done, uint32_t target)
{
	return (int32_t)(load_acquire(done) - target) >= 0;
}

/* Waits for at most SPIN_NS. Yields meanwhile: the server may have been woken on this very
 * processor, and migrating it to another takes longer than a small kernel. */
static bool spin(const uint32_t *done, uint32_t target)
{
	static uint64_t no_yield_ns;
	uint64_t end = clock_now_ns() + SPIN_NS;

	do {
		for (int i = 0; i < 32; i++) {
			if (soft_word_reached(done, target)) {
				return true;
			}
			cpu_relax();
		}
	} while (soft_yield(&no_yield_ns) && clock_now_ns() < end && !load_relaxed(&soft.dead));
	return false;
}

CUresult soft_word_wait(const uint32_t *done, uint32_t *waiters, uint32_t target, CUcontext ctx)
{
	return soft_word_wait_mode(done, waiters, target, ctx,
				   (ctx->flags & CU_CTX_SCHED_MASK) == CU_CTX_SCHED_BLOCKING_SYNC);
}

CUresult soft_word_wait_mode(const uint32_t *done, uint32_t *waiters, uint32_t target,
			     CUcontext ctx, bool blocking)
{
	if (soft_in_host_function() && !soft_word_reached(done, target)) {
		return CUDA_ERROR_NOT_PERMITTED;
	}
	if (!soft_word_reached(done, target) && (blocking || !spin(done, target))) {
		add_acqrel(waiters, 1u);
		/* Orders waiters before the loads of done and soft.dead. Pairs with the server's
		 * store of done (softd_stream_publish) and with link_lost, which read waiters after
		 * their store: no wake-up is lost. */
		fence_seqcst();
		for (;;) {
			uint32_t seen = load_acquire(done);

			if ((int32_t)(seen - target) >= 0 || soft_context_error(ctx)) {
				break;
			}
			wait_and_ring(done, seen);
			soft_output_drain();
		}
		sub_acqrel(waiters, 1u);
	}
	soft_strict_waited();
	soft_output_drain();
	return soft_context_error(ctx);
}

CUresult soft_stream_wait(CUstream s, uint32_t target)
{
	struct soft_stream_word *w = &soft.shared->streams[s->slot];

	return s->sync_policy > CU_SYNC_POLICY_AUTO
		       ? soft_word_wait_mode(&w->done, &w->waiters, target, s->context,
					     s->sync_policy == CU_SYNC_POLICY_BLOCKING_SYNC)
		       : soft_word_wait(&w->done, &w->waiters, target, s->context);
}

CUresult soft_stream_drain(CUstream s)
{
	return soft_stream_wait(s, load_acquire(&s->submitted));
}
