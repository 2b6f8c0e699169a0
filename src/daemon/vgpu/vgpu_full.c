/* Processes that wait while a device itself is full: the limit of their vGPU has room, but the
 * driver has refused the call, because other vGPUs, programs in none, or contexts have the memory.
 *
 * gbpfd cannot know what the driver would give, only when something was freed: the sum that all
 * accounts charge for the device has become less. For what no account shows, programs in no vGPU
 * above all, it assumes so four times a second while processes wait. At such an event the waiters
 * of a device try again one after the other, in the order of arrival over all vGPUs. One that was
 * refused again has had its turn until the next event and keeps its place, so that a call which
 * needs much does not hold up those behind it. */
#include "daemon/vgpu/vgpu_int.h"

#include <stdlib.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "daemon/session/tenant_session.h"
#include "daemon/vgpu/vgpu_list.h"
#include "mem/ledger.h"

#define TRY_TIMEOUT_NS 200000000u     /* that others wait for one which is to try */
#define ASSUME_NS 250000000u	      /* between two events that no account shows */
#define SEEN_NONE UINT64_MAX	      /* in place of an event: the process tries at the next look */
#define WAITERS_MAX PROTO_MAX_TENANTS /* that a look considers */

/* Returns the device of which a session asks for memory, NULL if it is not known. */
static struct daemon_gpu *device_of(const struct daemon_session *s)
{
	return daemon_vgpu_device_of(s->vgpu.of, s->vgpu.ask.row);
}

/* Returns what all accounts charge for a device. A page cannot claim more than its limit. */
static uint64_t charged_for(const struct daemon *d, const struct daemon_gpu *g)
{
	uint64_t sum = 0;

	for (const struct daemon_vgpu *v = d->vgpus.first; v; v = v->next) {
		uint32_t row = daemon_vgpu_row_of(v, g->uuid);

		if (row < PROTO_ACCOUNT_ROWS) {
			sum += min_once(mem_account_used(daemon_vgpu_page(v), row),
					MIN(v->row[row].most, PROTO_VGPU_MEM_MAX));
		}
	}
	return sum;
}

uint64_t daemon_vgpu_free_memory(const struct daemon *d, uint32_t gpu, uint64_t *ret_size)
{
	const struct daemon_gpu *g = &d->devices.d[gpu];
	uint64_t charged;

	*ret_size = g->used ? g->mem : 0;
	charged = *ret_size ? charged_for(d, g) : 0;
	return charged < *ret_size ? *ret_size - charged : 0;
}

/* Counts an event if memory of the device was freed, or may have been. */
static void observe(const struct daemon *d, struct daemon_gpu *g, uint64_t now)
{
	uint64_t sum = charged_for(d, g);

	if (sum < g->mem_charged || now - g->mem_freed_ns >= ASSUME_NS) {
		g->mem_freed++;
		g->mem_freed_ns = now;
	}
	g->mem_charged = sum;
}

/* Returns true if the process waits for memory of a device, or tries just now. */
static bool is_concerned(const struct daemon_session *s, uint64_t now)
{
	return s->vgpu.of && s->vgpu.ask.full &&
	       (s->vgpu.ask.since || daemon_vgpu_is_promised(s, now));
}

/* Returns true if another process waits for memory of the device, or tries just now. */
static bool is_contended(const struct daemon_session *s, const struct daemon_gpu *g, uint64_t now)
{
	daemon_session_each(s->d, o)
	{
		if (o != s && is_concerned(o, now) && device_of(o) == g) {
			return true;
		}
	}
	return false;
}

/* Has a process try. Its next question sees what is freed from now on. */
static void let_try(struct daemon_session *s, const struct daemon_gpu *g)
{
	s->vgpu.ask.seen = g->mem_freed;
	daemon_vgpu_answer(s, PROTO_ACCOUNT_RETRY, clock_patience(TRY_TIMEOUT_NS));
}

/* Returns true if the process was answered: its time is over, or no memory can help it. */
static bool ends(struct daemon_session *s, uint64_t now)
{
	if (now < s->vgpu.ask.until_ns && !daemon_vgpu_is_hopeless(s) && device_of(s)) {
		return false;
	}
	daemon_vgpu_answer(s, PROTO_ACCOUNT_REFUSED, 0);
	return true;
}

void daemon_vgpu_full_ask(struct daemon_session *s, uint64_t wait_ns, bool again, bool at_once)
{
	struct daemon_gpu *g = device_of(s);
	uint64_t now = clock_now_ns();

	if (g && at_once && daemon_vgpu_has_room(s) && daemon_vgpu_reclaim_begin(s)) {
		return; /* its round answers it */
	}
	if (!wait_ns || !g || ends(s, now)) {
		if (s->vgpu.ask.since) {
			daemon_vgpu_answer(s, PROTO_ACCOUNT_REFUSED, 0);
		}
		return;
	}
	if (!again && !at_once) {
		s->vgpu.ask.seen = SEEN_NONE;
	} else if (!again) {
		observe(s->d, g, now);
		s->vgpu.ask.seen = g->mem_freed;
		if (!is_contended(s, g, now)) {
			/* What was freed between the driver's refusal and this question is not seen
			 * as an event, so the process tries once more. */
			let_try(s, g);
			return;
		}
	}
	daemon_vgpu_await_memory(s->d);
}

void daemon_vgpu_full_reclaimed(struct daemon_session *s, bool freed)
{
	struct daemon_gpu *g = device_of(s);

	if (g && freed && daemon_vgpu_has_room(s)) {
		let_try(s, g);
	} else if (!ends(s, clock_now_ns())) {
		s->vgpu.ask.seen = SEEN_NONE;
		daemon_vgpu_await_memory(s->d);
	}
}

/* A look: the waiters of all devices, in the order of arrival. */
struct look {
	struct daemon_session *waiter[WAITERS_MAX];
	unsigned n;
	uint32_t wanted; /* devices for whose memory a process waits, as bits */
	uint32_t trying; /* devices that a process tries just now */
	bool queued;	 /* a program in a vGPU waits to be admitted */
};

static int by_arrival(const void *a, const void *b)
{
	const struct daemon_session *const *x = a, *const *y = b;

	return (*x)->vgpu.ask.since < (*y)->vgpu.ask.since ? -1 : 1;
}

/* Finds the waiters, and answers those whose wait is over. */
static void find_waiters(struct daemon *d, struct look *l, uint64_t now)
{
	daemon_session_each(d, s)
	{
		const struct daemon_gpu *g;

		l->queued |= s->vgpu.of && s->state == DAEMON_SESSION_QUEUED;
		if (!is_concerned(s, now) || s->vgpu.ask.reclaims ||
		    (s->vgpu.ask.since && ends(s, now))) {
			continue;
		}
		g = device_of(s);
		if (!s->vgpu.ask.since) {
			l->trying |= g ? 1u << (g - d->devices.d) : 0;
		} else if (l->n < WAITERS_MAX) {
			l->wanted |= 1u << (g - d->devices.d); /* ends() has checked it */
			l->waiter[l->n++] = s;
		}
	}
	qsort(l->waiter, l->n, sizeof(l->waiter[0]), by_arrival);
}

/* Counts the events of devices. Returns true if there was one. */
static bool observe_all(struct daemon *d, const struct look *l, uint64_t now)
{
	bool freed = false;

	for (unsigned i = 0; i < PROTO_MAX_GPUS; i++) {
		struct daemon_gpu *g = &d->devices.d[i];
		uint64_t before = g->mem_freed;

		if (l->wanted & 1u << i || (l->queued && g->used)) {
			observe(d, g, now);
		}
		freed |= g->mem_freed != before;
	}
	return freed;
}

bool daemon_vgpu_full_look(struct daemon *d)
{
	uint64_t now = clock_now_ns();
	struct look l = { .n = 0 };
	bool freed;

	find_waiters(d, &l, now);
	freed = observe_all(d, &l, now);
	for (unsigned i = 0; i < l.n; i++) {
		struct daemon_session *s = l.waiter[i];
		struct daemon_gpu *g = device_of(s);
		uint32_t bit = 1u << (g - d->devices.d);

		if (l.trying & bit || s->vgpu.ask.seen == g->mem_freed) {
			continue;
		}
		if (daemon_vgpu_has_room(s)) {
			let_try(s, g);
			l.trying |= bit;
		} else { /* of its limit: the next one's turn */
			s->vgpu.ask.seen = g->mem_freed;
		}
	}
	if (l.queued && freed) { /* the policy may admit them now */
		sd_event_source_set_enabled(d->sessions.requeue, SD_EVENT_ONESHOT);
	}
	return l.n || l.queued;
}
