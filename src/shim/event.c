/* A small table of events that kept calls record or wait for, and the calls that ask about events.
 * All of it is idle while nothing is kept back. */
#include "shim/event.h"

#include <pthread.h>

#include "cuabi/api.h"
#include "shim/wait.h"

#define MAX_EVENTS 1024u

static pthread_mutex_t events_mutex = PTHREAD_MUTEX_INITIALIZER;
static struct {
	CUevent event; /* NULL: free */
	struct shim_queue *q;
	uint32_t records, awaits; /* of it, kept in that queue */
} events[MAX_EVENTS];		  /* events_mutex; the first n_events may be in use */
static unsigned n_events;

static unsigned place_of(CUevent event, const struct shim_queue *q)
{
	unsigned i = 0;

	while (i < n_events && (events[i].event != event || (q && events[i].q != q))) {
		i++;
	}
	return i;
}

bool event_keep(CUevent event, struct shim_queue *q, enum event_use use)
{
	unsigned i;

	pthread_mutex_lock(&events_mutex);
	i = place_of(event, q);
	if (i == n_events) {
		i = place_of(NULL, NULL);
	}
	if (i < MAX_EVENTS) {
		n_events = MAX(n_events, i + 1);
		events[i].event = event;
		events[i].q = q;
		events[i].records += use == EVENT_RECORD;
		events[i].awaits += use == EVENT_AWAIT;
	}
	pthread_mutex_unlock(&events_mutex);
	return i < MAX_EVENTS;
}

void event_issued(CUevent event, struct shim_queue *q, enum event_use use)
{
	unsigned i;

	pthread_mutex_lock(&events_mutex);
	i = place_of(event, q);
	if (i < n_events) {
		events[i].records -= use == EVENT_RECORD;
		events[i].awaits -= use == EVENT_AWAIT;
		if (!events[i].records && !events[i].awaits) {
			events[i].event = NULL;
			events[i].q = NULL;
		}
		while (n_events && !events[n_events - 1].event) {
			n_events--;
		}
	}
	pthread_mutex_unlock(&events_mutex);
}

struct shim_queue *event_kept(CUevent event, enum event_use use, const struct shim_queue *but)
{
	struct shim_queue *q = NULL;

	pthread_mutex_lock(&events_mutex);
	for (unsigned i = 0; event && i < n_events && !q; i++) {
		if (events[i].event == event && events[i].q != but &&
		    (use == EVENT_RECORD ? events[i].records != 0 : true)) {
			q = events[i].q;
		}
	}
	pthread_mutex_unlock(&events_mutex);
	return q;
}

static bool event_pending(CUevent event)
{
	return event_kept(event, EVENT_RECORD, NULL) != NULL;
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
		struct shim_queue *q;

		while ((q = event_kept(event, EVENT_RECORD, NULL)) != NULL) {
			wait_settle(q);
		}
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
	struct shim_queue *q;

	while (unlikely(shim_pending()) && (q = event_kept(event, EVENT_AWAIT, NULL)) != NULL) {
		wait_settle(q);
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
