/* Table of the events that deferred calls record or await, and of events recorded in a resumable
 * run, which a stopped run records again; and the entry points that query events. No entry point
 * takes the lock while nothing is deferred. */
#include "shim/object/event_uses.h"

#include "base/clock.h"
#include "base/lock.h"
#include "cuabi/api.h"
#include "gpu/gpu_run.h"
#include "shim/object/driver_device.h"
#include "shim/object/interprocess.h"
#include "shim/object/queue_drain.h"

#define MAX_EVENTS 1024u
#define SWEEP_FIRST 64u
#define POLL_NS 20000u
#define MAX_DEFERRED_DESTROYS 256u

static struct lock events_mutex = LOCK_INITIALIZER(EVENTS);
static struct event_entry {
	CUevent event; /* NULL: free */
	struct shim_queue *q;
	uint32_t records, awaits; /* deferred calls of queue q that record or await it */
	uint64_t joined; /* launches of the queue's run that must be done before the event's record
			    is final; 0: none */
	uint64_t order;	 /* sequence number of the call that joined the run */
} events[MAX_EVENTS] GUARDED_BY(events_mutex); /* entries from n_events on are free */
static unsigned n_events GUARDED_BY(events_mutex);
static unsigned sweep_at GUARDED_BY(events_mutex) = SWEEP_FIRST;
/* Deferred ones, by sequence number. */
static struct shim_event_call *calls GUARDED_BY(events_mutex);
static struct shim_event_call **last_call GUARDED_BY(events_mutex) = &calls;
static struct deferred_destroy {
	CUevent event;
	bool graph; /* the handle is a CUgraphExec */
} deferred_destroys[MAX_DEFERRED_DESTROYS] GUARDED_BY(events_mutex);
static unsigned n_deferred_destroys; /* [atomic] changed under events_mutex */

static unsigned find_entry(CUevent event, const struct shim_queue *q) REQUIRES(events_mutex)
{
	unsigned i = 0;

	while (i < n_events && (events[i].event != event || (q && events[i].q != q))) {
		i++;
	}
	return i;
}

static void drop_if_unused(struct event_entry *u) REQUIRES(events_mutex)
{
	if (!u->records && !u->awaits && !u->joined) {
		*u = (struct event_entry){ .event = NULL };
	}
	while (n_events && !events[n_events - 1].event) {
		n_events--;
	}
}

/* Clears the entry's joined mark once the run has progressed beyond it. */
static void update_joined(struct event_entry *u) REQUIRES(events_mutex)
{
	struct sched_run_progress c;
	int err;

	if (!u->joined) {
		return;
	}
	err = gpu_run_look(shim_device_gpu(), &u->q->dev, &c);
	if (err) { /* returned once */
		shim_error_note((CUresult)err);
	}
	if (!u->q->dev.run || c.done >= u->joined) {
		u->joined = 0;
	}
}

/* Frees the entries whose records are final. */
static void sweep(void) REQUIRES(events_mutex)
{
	unsigned used = 0;

	for (unsigned i = n_events; i > 0; i--) {
		if (events[i - 1].event) {
			update_joined(&events[i - 1]);
			used += events[i - 1].records || events[i - 1].awaits ||
				events[i - 1].joined;
			drop_if_unused(&events[i - 1]);
		}
	}
	sweep_at = MAX(SWEEP_FIRST, 2 * used);
}

/* Returns the entry of the event in the queue, creating it if necessary; NULL: the table is full.
 */
static struct event_entry *obtain(CUevent event, struct shim_queue *q) REQUIRES(events_mutex)
{
	unsigned i = find_entry(event, q);

	if (i == n_events && n_events >= sweep_at) {
		sweep();
		i = n_events;
	}
	if (i == n_events) {
		i = find_entry(NULL, NULL);
	}
	if (i == MAX_EVENTS) {
		return NULL;
	}
	n_events = MAX(n_events, i + 1);
	events[i].event = event;
	events[i].q = q;
	return &events[i];
}

static bool in_use(CUevent event) REQUIRES(events_mutex)
{
	for (unsigned i = 0; i < n_events; i++) {
		if (events[i].event == event) {
			update_joined(&events[i]);
			if (events[i].records || events[i].awaits || events[i].joined) {
				return true;
			}
		}
	}
	return false;
}

/* Destroys the events and graphs that the program has destroyed while deferred calls used them, as
 * far as no call uses them any more. */
static void destroy_deferred(void)
{
	while (unlikely(load_relaxed(&n_deferred_destroys))) {
		struct deferred_destroy d = { .event = NULL };

		lock_take(&events_mutex);
		for (unsigned i = 0; i < n_deferred_destroys && !d.event; i++) {
			if (!in_use(deferred_destroys[i].event)) {
				d = deferred_destroys[i];
				deferred_destroys[i] = deferred_destroys[n_deferred_destroys - 1];
				store_relaxed(&n_deferred_destroys, n_deferred_destroys - 1);
			}
		}
		lock_release(&events_mutex);
		if (!d.event) {
			return;
		}
		if (d.graph) {
			(void)shim_real.cuGraphExecDestroy((CUgraphExec)(void *)d.event);
		} else {
			(void)shim_real.cuEventDestroy_v2(d.event);
		}
	}
}

/* Postpones the destruction of an event or graph until no deferred call uses it, so that the driver
 * does not reuse its handle before. Returns false if nothing uses it or the table is full. */
static bool defer_destroy(CUevent event, bool graph)
{
	bool later = false;

	lock_take(&events_mutex);
	if (event && n_deferred_destroys < MAX_DEFERRED_DESTROYS && in_use(event)) {
		deferred_destroys[n_deferred_destroys] =
			(struct deferred_destroy){ .event = event, .graph = graph };
		store_relaxed(&n_deferred_destroys, n_deferred_destroys + 1);
		later = true;
	}
	lock_release(&events_mutex);
	return later;
}

bool shim_event_defer_graph_destroy(CUgraphExec exec)
{
	return defer_destroy((CUevent)(void *)exec, true);
}

bool shim_event_defer(struct shim_event_call *c, CUevent event, struct shim_queue *q,
		      enum shim_event_use use)
{
	struct event_entry *u;

	lock_take(&events_mutex);
	u = obtain(event, q);
	if (u) {
		u->records += use == SHIM_EVENT_RECORD;
		u->awaits += use == SHIM_EVENT_AWAIT;
		*c = (struct shim_event_call){ .event = event, .q = q, .use = use };
	}
	lock_release(&events_mutex);
	destroy_deferred();
	return u != NULL;
}

uint64_t shim_event_enqueued(struct shim_event_call *c)
{
	uint64_t order;

	lock_take(&events_mutex);
	order = c->order = sched_next_number(
		shim.sched); /* assigned under the lock, so that `calls` is sorted by number */
	c->at = last_call;
	*last_call = c;
	last_call = &c->next;
	lock_release(&events_mutex);
	return order;
}

bool shim_event_ready(const struct shim_event_call *c)
{
	bool ready = true;

	lock_take(&events_mutex);
	for (const struct shim_event_call *o = calls; o != c && o && ready; o = o->next) {
		ready = o->event != c->event || o->q == c->q ||
			(o->use == SHIM_EVENT_AWAIT && c->use == SHIM_EVENT_AWAIT);
	}
	for (unsigned i = 0; i < n_events && ready; i++) {
		struct event_entry *u = &events[i];

		if (u->event == c->event && u->q != c->q && u->order < c->order) {
			update_joined(u);
			ready = !u->joined;
		}
	}
	lock_release(&events_mutex);
	return ready;
}

/* Ends the deferred call's use. Returns the event's entry, NULL if the queue was closed. */
static struct event_entry *end_call(struct shim_event_call *c) REQUIRES(events_mutex)
{
	unsigned i = find_entry(c->event, c->q);

	if (c->at) {
		*c->at = c->next;
		if (c->next) {
			c->next->at = c->at;
		} else {
			last_call = c->at;
		}
	}
	c->event = NULL;
	if (i == n_events) {
		return NULL;
	}
	events[i].records -= c->use == SHIM_EVENT_RECORD;
	events[i].awaits -= c->use == SHIM_EVENT_AWAIT;
	return &events[i];
}

void shim_event_submitted(struct shim_event_call *c)
{
	struct event_entry *u;

	lock_take(&events_mutex);
	u = end_call(c);
	if (u) {
		drop_if_unused(u);
	}
	lock_release(&events_mutex);
	destroy_deferred();
}

CUresult shim_event_record(struct shim_event_call *c)
{
	uint64_t joined = 0;
	CUresult r = gpu_run_record(shim_device_gpu(), &c->q->dev, c->event, &joined);
	struct event_entry *u;

	lock_take(&events_mutex);
	u = end_call(c);
	if (u && r == CUDA_SUCCESS) {
		u->joined = joined;
		u->order = c->order;
	}
	if (u) {
		drop_if_unused(u);
	}
	lock_release(&events_mutex);
	destroy_deferred();
	return r;
}

void shim_event_forget_queue(const struct shim_queue *q)
{
	lock_take(&events_mutex);
	for (unsigned i = n_events; i > 0; i--) {
		if (events[i - 1].event && events[i - 1].q == q) {
			events[i - 1].records = events[i - 1].awaits = 0;
			events[i - 1].joined = 0;
			drop_if_unused(&events[i - 1]);
		}
	}
	lock_release(&events_mutex);
	destroy_deferred();
}

/* Returns a queue other than `but` that has such a use of the event, NULL if none has.
 * *ret_deferred: a deferred call uses it, rather than a run that may record it again. */
static struct shim_queue *used_in(CUevent event, enum shim_event_use use,
				  const struct shim_queue *but, bool *ret_deferred)
{
	struct shim_queue *q = NULL;

	lock_take(&events_mutex);
	for (unsigned i = 0; event && i < n_events && !q; i++) {
		struct event_entry *u = &events[i];

		if (u->event != event || u->q == but) {
			continue;
		}
		update_joined(u);
		*ret_deferred = u->records || (use == SHIM_EVENT_AWAIT && u->awaits);
		if (*ret_deferred || u->joined) {
			q = u->q;
		}
	}
	lock_release(&events_mutex);
	return q;
}

void shim_event_drain(CUevent event, enum shim_event_use use, const struct shim_queue *but)
{
	struct shim_queue *q;
	bool deferred;

	while ((q = used_in(event, use, but, &deferred)) != NULL) {
		if (deferred) {
			shim_queue_drain(q);
		} else { /* the agent advances the queue's run */
			clock_sleep_ns(POLL_NS);
		}
	}
}

bool shim_event_used(CUevent event, enum shim_event_use use, const struct shim_queue *but)
{
	bool deferred;

	return used_in(event, use, but, &deferred) != NULL;
}

static bool event_pending(CUevent event)
{
	bool deferred;

	return used_in(event, SHIM_EVENT_RECORD, NULL, &deferred) != NULL;
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
		shim_event_drain(event, SHIM_EVENT_RECORD, NULL);
		return shim_error_take(shim_real.cuEventSynchronize(event));
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

/* Called before an event is destroyed, since deferred calls would find its handle invalid or
 * reused. Returns true if the destruction is postponed; else no deferred call uses the event. */
static bool destroying(CUevent event)
{
	shim_interprocess_destroyed(event);
	if (likely(!shim_pending())) {
		return false;
	}
	if (defer_destroy(event, false)) {
		return true;
	}
	shim_event_drain(event, SHIM_EVENT_AWAIT, NULL);
	return false;
}

CUresult cuEventDestroy(CUevent event)
{
	return destroying(event) ? CUDA_SUCCESS : shim_real.cuEventDestroy(event);
}

CUresult cuEventDestroy_v2(CUevent event)
{
	return destroying(event) ? CUDA_SUCCESS : shim_real.cuEventDestroy_v2(event);
}
