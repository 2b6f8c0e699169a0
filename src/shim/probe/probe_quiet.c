/* Quiet moments of a context. Loading or unloading a module waits for all work that was submitted
 * in the context, and no thread can launch there meanwhile. So it is done while the context is
 * idle: first the present work is watched, which delays no thread; if it is short, launches are
 * paused, for a bounded time, until what has come since is done as well. Only where this keeps
 * failing are launches paused first (probe_busy.c). */
#include "shim/probe/shim_probe_int.h"

#include "base/clock.h"
#include "shim/capture_state.h"

/* Longest pause of a launch. In most of it kernels of 3 ms end, of which a stream has two at its
 * beginning; the rest is for the driver's calls. */
#define PAUSE_NS 7500000u
#define WAIT_NS 7000000u
/* A pause lasts at least this long after a call of the driver has begun: a launch that came in
 * meanwhile would make the call wait for its kernel, and all other launches with it. */
#define CALL_NS 20000000u
#define POLL_NS 10000u

uint64_t shim_probe_paused_until;
static uint64_t steps_until GUARDED_BY(shim_probe_build_mutex); /* calls begin until then */

void shim_probe_wait_paused(void)
{
	uint64_t until;

	while ((until = load_acquire(&shim_probe_paused_until)) != 0 && clock_now_ns() < until) {
		clock_sleep_ns(POLL_NS);
	}
}

bool shim_probe_quiet_step(void)
{
	uint64_t now = clock_now_ns();

	if (now >= steps_until) {
		return false;
	}
	store_release(&shim_probe_paused_until, now + CALL_NS);
	return true;
}

/* Returns whether an error is the context's, for good. The work in it has ended. */
static bool has_failed(CUresult r)
{
	switch (r) {
	case CUDA_ERROR_DEINITIALIZED:
	case CUDA_ERROR_INVALID_CONTEXT:
	case CUDA_ERROR_ECC_UNCORRECTABLE:
	case CUDA_ERROR_NVLINK_UNCORRECTABLE:
	case CUDA_ERROR_ILLEGAL_ADDRESS:
	case CUDA_ERROR_LAUNCH_TIMEOUT:
	case CUDA_ERROR_CONTEXT_IS_DESTROYED:
	case CUDA_ERROR_ASSERT:
	case CUDA_ERROR_HARDWARE_STACK_ERROR:
	case CUDA_ERROR_ILLEGAL_INSTRUCTION:
	case CUDA_ERROR_MISALIGNED_ADDRESS:
	case CUDA_ERROR_INVALID_ADDRESS_SPACE:
	case CUDA_ERROR_INVALID_PC:
	case CUDA_ERROR_LAUNCH_FAILED:
		return true;
	default:
		return false;
	}
}

static enum shim_probe_quiet quiet_of(CUresult r)
{
	return r == CUDA_SUCCESS ? SHIM_PROBE_QUIET
	       : has_failed(r)	 ? SHIM_PROBE_FAILED
				 : SHIM_PROBE_BUSY;
}

/* Records the event behind all work that is submitted in the current context. While a stream
 * captures the driver would count the question as an error of the program. A driver before 12.5
 * cannot, and returns CUDA_ERROR_NOT_FOUND. */
static CUresult try_record(CUevent e)
{
	CUcontext ctx = NULL;
	CUresult r = shim_driver.cuCtxGetCurrent(&ctx);

	shim_capture_lock();
	if (r == CUDA_SUCCESS) {
		r = shim_capture_any() ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED
				       : shim_driver.cuCtxRecordEvent(ctx, e);
	}
	shim_capture_unlock();
	return r;
}

/* The same; a driver that cannot waits for the work instead. */
static CUresult record(CUevent e)
{
	CUresult r = try_record(e);

	return r == CUDA_ERROR_NOT_FOUND ? shim_driver.cuCtxSynchronize() : r;
}

enum shim_probe_quiet shim_probe_mark_passed(CUevent e, uint64_t until)
{
	CUresult r = shim_driver.cuEventQuery(e);

	while (r == CUDA_ERROR_NOT_READY && clock_now_ns() < until) {
		clock_sleep_ns(POLL_NS);
		r = shim_driver.cuEventQuery(e);
	}
	return quiet_of(r);
}

enum shim_probe_quiet shim_probe_mark(CUevent *ret)
{
	CUresult r = shim_driver.cuEventCreate(ret, CU_EVENT_DISABLE_TIMING);

	if (r == CUDA_SUCCESS) {
		r = record(*ret);
		if (r != CUDA_SUCCESS) {
			(void)shim_driver.cuEventDestroy_v2(*ret);
			*ret = NULL;
		}
	}
	return quiet_of(r);
}

/* Waits until the work of the current context that is submitted now is done, at most until a time.
 */
static enum shim_probe_quiet done_by(CUevent e, uint64_t until)
{
	CUresult r = record(e);

	return r == CUDA_SUCCESS ? shim_probe_mark_passed(e, until) : quiet_of(r);
}

/* Pauses launches at once, until all work is done or for that time; then for the calls, as below.
 * Not with a driver that would wait for the work without a limit. */
static enum shim_probe_quiet drains(CUevent e, uint64_t ns) REQUIRES(shim_probe_build_mutex)
{
	uint64_t begin = clock_now_ns(), until = begin + ns + PAUSE_NS;
	enum shim_probe_quiet now;
	CUresult r;

	store_release(&shim_probe_paused_until, until);
	r = try_record(e);
	now = r == CUDA_SUCCESS ? shim_probe_mark_passed(e, begin + ns) : quiet_of(r);
	steps_until = MIN(clock_now_ns() + PAUSE_NS, until);
	if (now == SHIM_PROBE_QUIET && clock_now_ns() >= until) {
		now = SHIM_PROBE_BUSY; /* launches have come in since */
	}
	if (now != SHIM_PROBE_QUIET) {
		shim_probe_quiet_end();
	}
	return now;
}

static enum shim_probe_quiet becomes_quiet(CUevent e, uint64_t backlog_ns)
	REQUIRES(shim_probe_build_mutex)
{
	enum shim_probe_quiet now = done_by(e, clock_now_ns() + backlog_ns);
	uint64_t begin;

	if (now != SHIM_PROBE_QUIET) {
		return now;
	}
	begin = clock_now_ns();
	steps_until = begin + PAUSE_NS;
	store_release(&shim_probe_paused_until, steps_until);
	now = done_by(e, begin + WAIT_NS);
	if (now != SHIM_PROBE_QUIET) {
		shim_probe_quiet_end();
	}
	return now;
}

static enum shim_probe_quiet with_event(enum shim_probe_quiet (*ask)(CUevent e, uint64_t ns),
					uint64_t ns)
{
	enum shim_probe_quiet now;
	CUevent e = NULL;
	CUresult r = shim_driver.cuEventCreate(&e, CU_EVENT_DISABLE_TIMING);

	if (r != CUDA_SUCCESS) {
		return quiet_of(r);
	}
	now = ask(e, ns);
	(void)shim_driver.cuEventDestroy_v2(e);
	return now;
}

enum shim_probe_quiet shim_probe_quiet_begin(uint64_t backlog_ns)
{
	return with_event(becomes_quiet, backlog_ns);
}

enum shim_probe_quiet shim_probe_quiet_force(uint64_t pause_ns)
{
	return with_event(drains, pause_ns);
}

static enum shim_probe_quiet is_done(CUevent e, uint64_t ns)
{
	return done_by(e, clock_now_ns() + ns);
}

enum shim_probe_quiet shim_probe_work_done(uint64_t ns)
{
	return with_event(is_done, ns);
}

void shim_probe_quiet_end(void)
{
	store_release(&shim_probe_paused_until, (uint64_t)0);
}
