/* A small table of events that kept calls record or wait for, or that were recorded behind launches
 * which can be stopped and so may be recorded again; and the calls that ask about events. All of it
 * is idle while nothing is kept back. */
#include "shim/event.h"

#include <pthread.h>

#include "base/clock.h"
#include "cuabi/api.h"
#include "gpu/chain.h"
#include "shim/device.h"
#include "shim/wait.h"

#define MAX_EVENTS 1024u
#define SWEEP_FIRST 64u
#define POLL_NS 20000u

static pthread_mutex_t events_mutex = PTHREAD_MUTEX_INITIALIZER;
static struct use {
	CUevent event; /* NULL: free */
	struct shim_queue *q;
	uint32_t records, awaits; /* of it, kept in that queue */
	uint64_t joined; /* launches of the queue's chain that must be done before its record is the
			    last; 0: none */
} events[MAX_EVENTS];	 /* events_mutex; the first n_events may be in use */
static unsigned n_events, sweep_at = SWEEP_FIRST;

static unsigned place_of(CUevent event, const struct shim_queue *q)
{
	unsigned i = 0;

	while (i < n_events && (events[i].event != event || (q && events[i].q != q))) {
		i++;
	}
	return i;
}

static void drop_if_unused(struct use *u)
{
	if (!u->records && !u->awaits && !u->joined) {
		*u = (struct use){ .event = NULL };
	}
	while (n_events && !events[n_events - 1].event) {
		n_events--;
	}
}

/* Forgets that it joined, once the chain is that far. */
static void look(struct use *u)
{
	struct sched_chain c;
	int err;

	if (!u->joined) {
		return;
	}
	err = gpu_chain_look(device_gpu(), &u->q->dev, &c);
	if (err) { /* told once */
		wait_remember((CUresult)err);
	}
	if (!u->q->dev.chain || c.done >= u->joined) {
		u->joined = 0;
	}
}

/* Records that have long been in force leave their places. */
static void sweep(void)
{
	unsigned used = 0;

	for (unsigned i = n_events; i > 0; i--) {
		if (events[i - 1].event) {
			look(&events[i - 1]);
			used += events[i - 1].records || events[i - 1].awaits ||
				events[i - 1].joined;
			drop_if_unused(&events[i - 1]);
		}
	}
	sweep_at = MAX(SWEEP_FIRST, 2 * used);
}

/* Its entry, perhaps a new one; under events_mutex. NULL: too many. */
static struct use *obtain(CUevent event, struct shim_queue *q)
{
	unsigned i = place_of(event, q);

	if (i == n_events && n_events >= sweep_at) {
		sweep();
		i = n_events;
	}
	if (i == n_events) {
		i = place_of(NULL, NULL);
	}
	if (i == MAX_EVENTS) {
		return NULL;
	}
	n_events = MAX(n_events, i + 1);
	events[i].event = event;
	events[i].q = q;
	return &events[i];
}

bool event_keep(CUevent event, struct shim_queue *q, enum event_use use)
{
	struct use *u;

	pthread_mutex_lock(&events_mutex);
	u = obtain(event, q);
	if (u) {
		u->records += use == EVENT_RECORD;
		u->awaits += use == EVENT_AWAIT;
	}
	pthread_mutex_unlock(&events_mutex);
	return u != NULL;
}

void event_issued(CUevent event, struct shim_queue *q, enum event_use use)
{
	unsigned i;

	pthread_mutex_lock(&events_mutex);
	i = place_of(event, q);
	if (i < n_events) {
		events[i].records -= use == EVENT_RECORD;
		events[i].awaits -= use == EVENT_AWAIT;
		drop_if_unused(&events[i]);
	}
	pthread_mutex_unlock(&events_mutex);
}

CUresult event_record(CUevent event, struct shim_queue *q)
{
	uint64_t joined = 0;
	CUresult r = gpu_chain_record(device_gpu(), &q->dev, event, &joined);
	unsigned i;

	pthread_mutex_lock(&events_mutex);
	i = place_of(event, q);
	if (i < n_events) {
		events[i].records--;
		events[i].joined = r == CUDA_SUCCESS ? joined : events[i].joined;
		drop_if_unused(&events[i]);
	}
	pthread_mutex_unlock(&events_mutex);
	return r;
}

void event_forget_queue(const struct shim_queue *q)
{
	pthread_mutex_lock(&events_mutex);
	for (unsigned i = n_events; i > 0; i--) {
		if (events[i - 1].event && events[i - 1].q == q) {
			events[i - 1].records = events[i - 1].awaits = 0;
			events[i - 1].joined = 0;
			drop_if_unused(&events[i - 1]);
		}
	}
	pthread_mutex_unlock(&events_mutex);
}

/* A queue, but that one, where the event is used; *ret_kept: by a call that is kept there. NULL:
 * none. */
static struct shim_queue *used_in(CUevent event, enum event_use use, const struct shim_queue *but,
				  bool *ret_kept)
{
	struct shim_queue *q = NULL;

	pthread_mutex_lock(&events_mutex);
	for (unsigned i = 0; event && i < n_events && !q; i++) {
		struct use *u = &events[i];

		if (u->event != event || u->q == but) {
			continue;
		}
		look(u);
		*ret_kept = u->records || (use == EVENT_AWAIT && u->awaits);
		if (*ret_kept || u->joined) {
			q = u->q;
		}
	}
	pthread_mutex_unlock(&events_mutex);
	return q;
}

void event_settle(CUevent event, enum event_use use, const struct shim_queue *but)
{
	struct shim_queue *q;
	bool kept;

	while ((q = used_in(event, use, but, &kept)) != NULL) {
		if (kept) {
			wait_settle(q);
		} else { /* the agent looks after its chain */
			clock_sleep_ns(POLL_NS);
		}
	}
}

static bool event_pending(CUevent event)
{
	bool kept;

	return used_in(event, EVENT_RECORD, NULL, &kept) != NULL;
}

CUresult cuEventQuery(CUevent event)
{
	if (unlikely(shim_pending()) && event_pending(event)) {
		return CUDA_ERROR_NOT_READY;
	}
	return shim_real.cuEventQuery(event);
}

CUresult cuEventSynchronize(CUevent event)
{
	if (unlikely(shim_pending())) {
		event_settle(event, EVENT_RECORD, NULL);
		return wait_result(shim_real.cuEventSynchronize(event));
	}
	return shim_real.cuEventSynchronize(event);
}

CUresult cuEventElapsedTime(float *ms, CUevent from, CUevent to)
{
	if (unlikely(shim_pending()) && (event_pending(from) || event_pending(to))) {
		return CUDA_ERROR_NOT_READY;
	}
	return shim_real.cuEventElapsedTime(ms, from, to);
}

CUresult cuEventElapsedTime_v2(float *ms, CUevent from, CUevent to)
{
	if (unlikely(shim_pending()) && (event_pending(from) || event_pending(to))) {
		return CUDA_ERROR_NOT_READY;
	}
	return shim_real.cuEventElapsedTime_v2(ms, from, to);
}

/* Kept calls would find no event, or another one that has come to the same handle. */
static void destroying(CUevent event)
{
	if (unlikely(shim_pending())) {
		event_settle(event, EVENT_AWAIT, NULL);
	}
}

CUresult cuEventDestroy(CUevent event)
{
	destroying(event);
	return shim_real.cuEventDestroy(event);
}

CUresult cuEventDestroy_v2(CUevent event)
{
	destroying(event);
	return shim_real.cuEventDestroy_v2(event);
}
