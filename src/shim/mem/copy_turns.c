/* Asking the policy about a copy: which copies it is asked about, and waiting for its turn. */
#include "base/clock.h"
#include "shim/capture_state.h"
#include "shim/mem/copies.h"
#include "shim/object/stream_queue.h"
#include "shim/shim.h"

#define SPIN_NS 200000u /* a piece takes less: a sleep would leave the link idle */
#define SLEEP_NS 50000u

bool shim_copy_is_decided(const struct shim_copy_request *r, struct sched_copy *ret)
{
	struct shim_thread *t;
	struct shim_queue *q;

	if (!sched_copies_decided(shim.sched) || !r->bytes || shim_capture_any()) {
		return false;
	}
	t = shim_thread_self();
	if (!t || t->host_function || t->deferred) {
		return false;
	}
	q = shim_queue_of(t, r->queue.stream, r->queue.per_thread);
	if (!q) {
		return false;
	}
	*ret = (struct sched_copy){ .q = q->sched,
				    .bytes = r->bytes,
				    .left = r->bytes,
				    .up = r->way == MEM_COPY_UP,
				    .piece_bytes = (uint32_t)mem_copy_piece_bytes(r->bytes) };
	return ret->q != NULL;
}

void shim_copy_pause(uint64_t since_ns)
{
	if (clock_now_ns() - since_ns < SPIN_NS) {
		cpu_relax();
	} else {
		clock_sleep_ns(SLEEP_NS);
	}
}

void shim_copy_await_turn(struct sched_copy *c)
{
	uint64_t since_ns = clock_now_ns();

	c->cut = false;
	while (!sched_copy_may_go(c)) {
		shim_copy_pause(since_ns);
	}
}
