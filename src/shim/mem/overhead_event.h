/* Calls during which the driver may take memory of its own accord, for the files of this folder:
 * each is measured (overhead.c). */
#ifndef GBPF_SHIM_MEM_OVERHEAD_EVENT_H
#define GBPF_SHIM_MEM_OVERHEAD_EVENT_H

#include <stdbool.h>
#include <stdint.h>

#include "cuabi/types.h"

struct shim_mem_event {
	CUdevice device;
	int row; /* negative: the call is not measured */
	uint32_t way;
	bool locked;	    /* `events` of overhead.c is held: it may be measured by differences */
	uint64_t use, held; /* before the call, if so */
	uint64_t known;	    /* charged for the call before the event began */
	CUcontext made;	    /* the context that the call has made, NULL: none */
};

/* Begins the measurement of a call on a device. May lock a mutex until _end(): the caller waits for
 * no memory meanwhile. */
void shim_mem_event_begin(struct shim_mem_event *e, CUdevice device);
/* On the device of the current context; without one the call is not measured. */
void shim_mem_event_begin_current(struct shim_mem_event *e);
/* Charges what the call has taken, whose result is r; most: upper bound of a difference. Returns
 * false if it exceeds the limit: the caller undoes the call. _finish() follows in any case. */
bool shim_mem_event_end(struct shim_mem_event *e, CUresult r, uint64_t most, const char *call);
/* The call is over, and undone if it had to be. */
void shim_mem_event_finish(const struct shim_mem_event *e);
/* A call was undone: its overhead may be lowered. Returns the program's error. */
CUresult shim_mem_undone(void);
/* The driver has given memory back: overhead may be lowered. measure: at once, not only by the
 * thread. */
void shim_mem_event_shrunk(bool measure);

#endif
