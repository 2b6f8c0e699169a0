/* Timers of launches. A launch takes a free timer, records its first event, launches, records the
 * second and leaves the timer pending; the probe thread reads the pending ones. A timer belongs to
 * its taker while it is TAKEN and to the probe thread while it is PENDING, so the events are used
 * without the lock. */
#include "shim/probe/probe_timer.h"

#include <string.h>

#include "base/clock.h"
#include "shim/capture_state.h"
#include "shim/fork_lock.h"
#include "shim/probe/probe_mix.h"
#include "shim/probe/probe_rate.h"

#define PER_CONTEXT 16u
#define TIMERS (PER_CONTEXT * SHIM_PROBE_CONTEXTS_MAX)

struct lock shim_probe_timer_mutex = LOCK_INITIALIZER(PROBE_TIMER);
static struct shim_probe_timer
	timers[TIMERS] GUARDED_BY(shim_probe_timer_mutex); /* state and ctx */
/* Timers that are pending, or about to be. */
static unsigned n_pending GUARDED_BY(shim_probe_timer_mutex);
static bool looks_again GUARDED_BY(shim_probe_timer_mutex); /* the probe thread does, soon */

void shim_probe_timer_lock(void)
{
	lock_take(&shim_probe_timer_mutex);
}

bool shim_probe_timer_trylock(void)
{
	return lock_try(&shim_probe_timer_mutex);
}

void shim_probe_timer_unlock(void)
{
	lock_release(&shim_probe_timer_mutex);
}

static void destroy(CUevent event[2])
{
	for (unsigned i = 0; i < 2; i++) {
		if (event[i]) {
			(void)shim_driver.cuEventDestroy_v2(event[i]);
			event[i] = NULL;
		}
	}
}

/* Creates the events of a timer that the caller has taken. */
static bool create(CUevent event[2], CUcontext ctx)
{
	CUcontext popped;
	bool good;

	event[0] = event[1] = NULL;
	if (shim_driver.cuCtxPushCurrent_v2(ctx) != CUDA_SUCCESS) {
		return false;
	}
	good = shim_driver.cuEventCreate(&event[0], CU_EVENT_DEFAULT) == CUDA_SUCCESS &&
	       shim_driver.cuEventCreate(&event[1], CU_EVENT_DEFAULT) == CUDA_SUCCESS;
	if (!good) {
		destroy(event);
	}
	(void)shim_driver.cuCtxPopCurrent_v2(&popped);
	return good;
}

/* Returns a free timer with events of the context or, up to a number for each, without any. */
static struct shim_probe_timer *find_free(CUcontext ctx)
{
	struct shim_probe_timer *without = NULL;
	unsigned n = 0;

	for (unsigned i = 0; i < TIMERS; i++) {
		struct shim_probe_timer *t = &timers[i];

		if (t->state == SHIM_TIMER_FREE && t->ctx == ctx) {
			return t;
		}
		n += t->ctx == ctx;
		without = t->state == SHIM_TIMER_FREE && !t->ctx ? t : without;
	}
	return n < PER_CONTEXT ? without : NULL;
}

struct shim_probe_timer *shim_probe_timer_take(CUcontext ctx)
{
	struct shim_probe_timer *t;
	bool fresh;

	if (!ctx || !shim_probe_timer_trylock()) {
		return NULL;
	}
	t = find_free(ctx);
	fresh = t && !t->ctx;
	if (t) {
		t->state = SHIM_TIMER_TAKEN;
		t->ctx = ctx;
	}
	shim_probe_timer_unlock();
	if (!fresh || create(t->event, ctx)) {
		return t;
	}
	shim_probe_timer_lock();
	t->state = SHIM_TIMER_FREE;
	t->ctx = NULL;
	shim_probe_timer_unlock();
	return NULL;
}

void shim_probe_timer_begin(struct shim_probe_timer *t, CUstream stream, uint64_t start_ns)
{
	t->stream = stream;
	(void)shim_driver.cuEventRecord(t->event[0], stream);
	t->spent_ns = clock_fast_ns() - start_ns;
}

void shim_probe_timer_gap(CUcontext ctx, CUstream stream)
{
	struct shim_probe_timer *t = shim_probe_timer_take(ctx);

	if (t) {
		t->kernel = NULL;
		shim_probe_timer_begin(t, stream, clock_fast_ns());
		shim_probe_timer_end(t, true);
	}
}

/* Counts a timer that will be pending. Returns whether the probe thread is to be woken. */
static bool add_pending(void)
{
	bool first;

	shim_probe_timer_lock();
	first = n_pending++ == 0 && !looks_again;
	shim_probe_timer_unlock();
	return first;
}

/* The thread is woken before the timer is pending, so that the time this takes counts. It looks
 * again until no timer is counted. */
void shim_probe_timer_end(struct shim_probe_timer *t, bool launched)
{
	uint64_t start = clock_fast_ns();

	launched = launched && shim_driver.cuEventRecord(t->event[1], t->stream) == CUDA_SUCCESS;
	if (launched && add_pending()) {
		shim_probe_thread_wake();
	}
	shim_probe_timer_lock();
	t->spent_ns += clock_fast_ns() - start;
	t->state = launched && t->ctx ? SHIM_TIMER_PENDING : SHIM_TIMER_FREE;
	n_pending -= launched && !t->ctx; /* the context has ended */
	shim_probe_timer_unlock();
}

/* Takes a result. */
static void note(const struct shim_probe_timer *t, uint32_t ns, uint64_t spent_ns)
	REQUIRES(shim_probe_timer_mutex)
{
	if (t->kernel) {
		shim_probe_rate_note_host((uint32_t)MIN(spent_ns, (uint64_t)UINT32_MAX));
		shim_probe_mix_note(t, ns);
	} else {
		shim_probe_rate_note_gap(ns);
	}
}

/* Reads one that is pending, if it is done; drops it on an error. */
static void read_timer(struct shim_probe_timer *t)
{
	uint64_t start = clock_fast_ns();
	CUresult r = shim_driver.cuEventQuery(t->event[1]);
	float ms = 0;

	if (r == CUDA_ERROR_NOT_READY) {
		return;
	}
	r = r ? r : shim_driver.cuEventElapsedTime(&ms, t->event[0], t->event[1]);
	shim_probe_timer_lock();
	if (r == CUDA_SUCCESS && ms >= 0 && ms < 4000) {
		note(t, (uint32_t)(ms * 1e6f), t->spent_ns + clock_fast_ns() - start);
	}
	t->state = SHIM_TIMER_FREE;
	n_pending--;
	shim_probe_timer_unlock();
}

bool shim_probe_timers_read(void)
{
	bool any = false;

	for (unsigned i = 0; i < TIMERS; i++) {
		bool pending;

		shim_probe_timer_lock();
		pending = timers[i].state == SHIM_TIMER_PENDING;
		shim_probe_timer_unlock();
		any = any || pending;
		if (pending && !shim_capture_any()) {
			read_timer(&timers[i]);
		}
	}
	shim_probe_timer_lock();
	looks_again = any || n_pending;
	any = looks_again;
	shim_probe_timer_unlock();
	return any;
}

void shim_probe_timers_leave(CUcontext ctx)
{
	for (unsigned i = 0; i < TIMERS; i++) {
		struct shim_probe_timer *t = &timers[i];
		CUevent event[2] = { NULL, NULL };

		shim_probe_timer_lock();
		if (t->ctx == ctx) {
			if (t->state != SHIM_TIMER_TAKEN) { /* else a launch uses them still */
				memcpy(event, t->event, sizeof(event));
			}
			if (t->state == SHIM_TIMER_PENDING) {
				t->state = SHIM_TIMER_FREE;
				n_pending--;
			}
			t->ctx = NULL;
		}
		shim_probe_timer_unlock();
		destroy(event);
	}
}

void shim_probe_timers_forget(void)
{
	shim_lock_after_fork(&shim_probe_timer_mutex, LOCK_PROBE_TIMER);
	memset(timers, 0, sizeof(timers));
	n_pending = 0;
	looks_again = false;
	shim_probe_rate_forget();
}
