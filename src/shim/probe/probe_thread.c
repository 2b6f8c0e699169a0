/* The probe thread compiles, loads and copies, so that neither the program's threads nor the agent
 * wait for that. It sleeps while there is nothing to do. */
#include "shim/probe/shim_probe_int.h"

#include <stdbool.h>
#include <sys/prctl.h>

#include "base/clock.h"
#include "base/thread.h"
#include "shim/capture_state.h"

/* Until a busy context is looked at again: doubled while it stays busy. */
#define AGAIN_MIN_NS 10000000u
#define AGAIN_MAX_NS 160000000u
#define STACK_BYTES (8u << 20) /* the driver's compiler runs on it */

static struct lock wake_mutex = LOCK_INITIALIZER(PROBE_WAKE);
static pthread_cond_t wake_cond = PTHREAD_COND_INITIALIZER;
static bool woken GUARDED_BY(wake_mutex);
static bool started GUARDED_BY(wake_mutex);
static struct shim_session *session; /* wake_mutex to write; constant once the thread runs */

struct shim_session *shim_probe_session(void)
{
	return session;
}

/* Returns whether it was woken. ns 0: no timeout. */
static bool sleep_until_woken(uint64_t ns)
{
	struct timespec at = clock_timespec(clock_now_ns() + ns);
	int err = 0;
	bool r;

	lock_take(&wake_mutex);
	while (!woken && !err) {
		err = ns ? lock_wait_clock(&wake_mutex, &wake_cond, CLOCK_MONOTONIC, &at)
			 : lock_wait(&wake_mutex, &wake_cond);
	}
	r = woken;
	woken = false;
	lock_release(&wake_mutex);
	return r;
}

static void *run(void *arg)
{
	uint64_t again = 0, figures = 0;
	bool settled;

	(void)arg;
	prctl(PR_SET_NAME, "gbpf-probe");
	(void)shim_capture_exempt(); /* for good: what it loads is no part of a capture */
	for (;;) {
		if (sleep_until_woken(!again || (figures && figures < again) ? figures : again)) {
			again = 0;
		}
		settled = shim_probe_kernels_settle();
		settled = shim_probe_tools_settle(&figures) && settled;
		settled = shim_probe_cover_settle() && settled;
		again = settled ? 0 : again ? MIN(2 * again, AGAIN_MAX_NS) : AGAIN_MIN_NS;
	}
	return NULL;
}

int shim_probe_thread_start(struct shim_session *s)
{
	int err = 0;

	lock_take(&wake_mutex);
	session = s;
	if (!started) {
		err = thread_start_detached(run, NULL, STACK_BYTES);
		started = !err;
	}
	lock_release(&wake_mutex);
	return err;
}

void shim_probe_thread_wake(void)
{
	lock_take(&wake_mutex);
	woken = true;
	pthread_cond_signal(&wake_cond);
	lock_release(&wake_mutex);
}
