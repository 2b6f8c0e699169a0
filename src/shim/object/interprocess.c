/* The set of events that are shared with other processes (CU_EVENT_INTERPROCESS,
 * cuIpcOpenEventHandle). Another process queries the driver, not this shim: a deferred record, or
 * one that may be repeated by a resumable run, would appear complete there, and a deferred wait
 * would refer to a later record. Calls with such events are therefore never deferred and never join
 * a run; the caller waits until they can be submitted. */
#include "shim/object/interprocess.h"

#include "cuabi/api.h"
#include "shim/object/handle_set.h"

static struct shim_handle_set events = SHIM_HANDLE_SET_INIT;

bool shim_interprocess_event(CUevent event)
{
	return shim_handle_set_has(&events, event);
}

void shim_interprocess_destroyed(CUevent event)
{
	shim_handle_set_remove(&events, event);
}

static void child(void)
{
	shim_handle_set_after_fork(&events);
}

const struct shim_part shim_interprocess_part = { .child = child };

CUresult cuEventCreate(CUevent *ret, unsigned flags)
{
	CUresult r = shim_real.cuEventCreate(ret, flags);

	if (unlikely(flags & CU_EVENT_INTERPROCESS) && r == CUDA_SUCCESS) {
		shim_handle_set_add(&events, *ret);
	}
	return r;
}

CUresult cuIpcOpenEventHandle(CUevent *ret, CUipcEventHandle handle)
{
	CUresult r = shim_real.cuIpcOpenEventHandle(ret, handle);

	if (r == CUDA_SUCCESS) {
		shim_handle_set_add(&events, *ret);
	}
	return r;
}
