/* The last values of a program that exits. gbpfd forgets a program's values with its session, and a
 * process that holds a tool asks for them again and again. So the exit waits until the holder has
 * read a copy that was begun after the program's last work. docs/DEVICE-RUNTIME.md, Exit, states
 * why that ends and blocks nothing. */
#include "shim/probe/shim_probe_int.h"

#include "base/clock.h"
#include "shim/session/session_agent.h"

#define EXIT_NS 1000000000u /* a holder that reads 4 times a second takes two of its readings */

static pthread_cond_t changed = PTHREAD_COND_INITIALIZER; /* with shim_probe_mutex */
static bool exiting GUARDED_BY(shim_probe_mutex);

/* Without gbpfd, and for a tool that is being detached, there is nothing to wait for. */
static bool is_awaited(const struct shim_probe_tool *t)
{
	return t && t->held && t->announced && !t->ending && !t->last_read;
}

static bool any_is_awaited(void) REQUIRES(shim_probe_mutex)
{
	unsigned i = 0;

	while (i < SHIM_PROBE_TOOLS_MAX && !is_awaited(shim_probe_tools[i])) {
		i++;
	}
	return i < SHIM_PROBE_TOOLS_MAX;
}

void shim_probe_exit_await(void)
{
	struct timespec at = clock_timespec(clock_now_ns() + clock_patience(EXIT_NS));
	int err = 0;

	if (shim_agent_is_current()) {
		return; /* no thread would receive the orders */
	}
	lock_take(&shim_probe_mutex);
	exiting = true;
	while (!err && any_is_awaited()) {
		err = lock_wait_clock(&shim_probe_mutex, &changed, CLOCK_MONOTONIC, &at);
	}
	lock_release(&shim_probe_mutex);
}

void shim_probe_exit_note_drain(struct shim_probe_tool *t, uint64_t number)
{
	if (exiting && !t->last_drain) {
		t->last_drain = number;
	}
}

void shim_probe_exit_note_read(struct shim_probe_tool *t, uint64_t number)
{
	if (t->last_drain && number >= t->last_drain && !t->last_read) {
		t->last_read = true;
		pthread_cond_signal(&changed);
	}
}

void shim_probe_exit_changed(void)
{
	pthread_cond_signal(&changed);
}

void shim_probe_exit_forget(void)
{
	pthread_cond_init(&changed, NULL);
	exiting = false;
}
