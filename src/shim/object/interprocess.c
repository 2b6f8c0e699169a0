/* The set of events that are shared with other processes (CU_EVENT_INTERPROCESS,
 * cuIpcOpenEventHandle). Another process queries the driver, not this shim: a deferred record, or
 * one that may be repeated by a resumable run, would appear complete there, and a deferred wait
 * would refer to a later record. Calls with such events are therefore never deferred and never join
 * a run; the caller waits until they can be submitted. */
#include "shim/object/interprocess.h"

#include <pthread.h>

#include "base/strmap.h"
#include "cuabi/api.h"
#include "shim/object/kernel_handle.h"

#define MAX_EVENTS 65536u

static pthread_mutex_t events_mutex = PTHREAD_MUTEX_INITIALIZER;
static struct strmap events; /* events_mutex; handle in hexadecimal > itself */
static uint32_t n_events;    /* atomic */
static uint32_t any;

bool shim_interprocess_event(CUevent event)
{
	bool found;

	if (likely(!load_acquire(&n_events))) {
		return false;
	}
	pthread_mutex_lock(&events_mutex);
	found = load_relaxed(&any) || strmap_get(&events, shim_handle_key(event).text);
	pthread_mutex_unlock(&events_mutex);
	return found;
}

static void shim_handle_set_add(CUevent event)
{
	pthread_mutex_lock(&events_mutex);
	if (events.live >= MAX_EVENTS ||
	    strmap_add(&events, shim_handle_key(event).text, (void *)event) < 0) {
		store_relaxed(&any, 1u);
	}
	store_release(&n_events, (uint32_t)events.live + load_relaxed(&any));
	pthread_mutex_unlock(&events_mutex);
}

void shim_interprocess_destroyed(CUevent event)
{
	if (likely(!load_acquire(&n_events))) {
		return;
	}
	pthread_mutex_lock(&events_mutex);
	(void)strmap_del(&events, shim_handle_key(event).text);
	store_release(&n_events, (uint32_t)events.live + load_relaxed(&any));
	pthread_mutex_unlock(&events_mutex);
}

void shim_interprocess_forget(void)
{
	pthread_mutex_init(&events_mutex, NULL);
}

CUresult cuEventCreate(CUevent *ret, unsigned flags)
{
	CUresult r = shim_real.cuEventCreate(ret, flags);

	if (unlikely(flags & CU_EVENT_INTERPROCESS) && r == CUDA_SUCCESS) {
		shim_handle_set_add(*ret);
	}
	return r;
}

CUresult cuIpcOpenEventHandle(CUevent *ret, CUipcEventHandle handle)
{
	CUresult r = shim_real.cuIpcOpenEventHandle(ret, handle);

	if (r == CUDA_SUCCESS) {
		shim_handle_set_add(*ret);
	}
	return r;
}
