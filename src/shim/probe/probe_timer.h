/* Timers of launches: pairs of events, which the probe thread reads later. */
#ifndef GBPF_SHIM_PROBE_PROBE_TIMER_H
#define GBPF_SHIM_PROBE_PROBE_TIMER_H

#include "shim/probe/shim_probe_int.h"

struct shim_probe_timer {
	enum { SHIM_TIMER_FREE, SHIM_TIMER_TAKEN, SHIM_TIMER_PENDING } state;
	CUcontext ctx;	  /* of the events; NULL: there are none */
	CUevent event[2]; /* before and behind the launch */
	CUstream stream;
	/* Of the launch; shim_probe_mix_begin() sets them. */
	struct shim_probe_kernel *kernel; /* NULL: nothing is launched */
	uint64_t key, epoch;
	bool probed;
	uint64_t spent_ns; /* of the calls that time it */
};

/* The lock of timers and of what is measured. No call of the driver is made under it. */
void shim_probe_timer_lock(void) ACQUIRES(shim_probe_timer_mutex);
bool shim_probe_timer_trylock(void) ACQUIRES_IF(true, shim_probe_timer_mutex);
void shim_probe_timer_unlock(void) RELEASES(shim_probe_timer_mutex);

/* Returns a timer whose events belong to that context; NULL: none is free. */
struct shim_probe_timer *shim_probe_timer_take(CUcontext ctx);
/* start_ns: clock_fast_ns() when the timing of the launch began. */
void shim_probe_timer_begin(struct shim_probe_timer *t, CUstream stream, uint64_t start_ns);
/* Times two events with nothing between them; what they take is noted as the gap
 * (probe_rate.h). */
void shim_probe_timer_gap(CUcontext ctx, CUstream stream);
/* launched: the launch was accepted. */
void shim_probe_timer_end(struct shim_probe_timer *t, bool launched);
/* Reads what is done; on the probe thread. Returns whether it is to be called again soon: launches
 * do not wake the thread until then. */
bool shim_probe_timers_read(void) REQUIRES(shim_probe_build_mutex);
/* Destroys the events of a context that is about to end. */
void shim_probe_timers_leave(CUcontext ctx) REQUIRES(shim_probe_build_mutex);
/* In the child after fork. */
void shim_probe_timers_forget(void);

#endif
