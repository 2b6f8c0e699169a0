/* A small table of pending events, and the calls that ask about events. All of it is idle while
 * nothing is kept back. */
#include "shim/event.h"

#include <pthread.h>

#include "cuabi/api.h"
#include "shim/wait.h"

#define MAX_EVENTS 1024u

static pthread_mutex_t events_mutex = PTHREAD_MUTEX_INITIALIZER;
static struct {
	CUevent event; /* NULL: free */
	struct shim_queue *q;
	uint32_t records;
} events[MAX_EVENTS]; /* events_mutex; the first n_events may be in use */
static unsigned n_events;

static unsigned place_of(CUevent event)
{
	unsigned i = 0;

	while (i < n_events && events[i].event != event) {
		i++;
	}
	return i;
}

bool event_pend(CUevent event, struct shim_queue *q)
{
	unsigned i;

	pthread_mutex_lock(&events_mutex);
	i = place_of(event);
	if (i == n_events) {
		i = place_of(NULL);
	}
	if (i < MAX_EVENTS) {
		n_events = MAX(n_events, i + 1);
		events[i].event = event;
		events[i].q = q;
		events[i].records++;
	}
	pthread_mutex_unlock(&events_mutex);
	return i < MAX_EVENTS;
}

void event_issued(CUevent event)
{
	unsigned i;

	pthread_mutex_lock(&events_mutex);
	i = place_of(event);
	if (i < n_events && --events[i].records == 0) {
		events[i].event = NULL;
		while (n_events && !events[n_events - 1].event) {
			n_events--;
		}
	}
	pthread_mutex_unlock(&events_mutex);
}

struct shim_queue *event_pending(CUevent event)
{
	struct shim_queue *q = NULL;
	unsigned i;

	pthread_mutex_lock(&events_mutex);
	i = place_of(event);
	if (event && i < n_events) {
		q = events[i].q;
	}
	pthread_mutex_unlock(&events_mutex);
	return q;
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
		struct shim_queue *q = event_pending(event);

		if (q) {
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
