/* Stopping gbpfd, and waiting until its process has exited. */
#include "lib/lib_int.h"

#include <errno.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/procfs.h"

#define LOOK_NS 5000000u

/* Waits until the descriptor of a process shows its exit. */
static bool await_pidfd(int pidfd, uint64_t deadline)
{
	struct pollfd p = { .fd = pidfd, .events = POLLIN };

	for (;;) {
		uint64_t now = clock_now_ns();
		uint64_t left = deadline > now ? (deadline - now + 999999u) / 1000000u : 0;
		int n = poll(&p, 1, deadline == UINT64_MAX ? -1 : (int)MIN(left, INT32_MAX));

		if (n > 0 || (n == 0 && !left)) {
			return n > 0;
		}
	}
}

/* Waits without a descriptor, which a sandbox may refuse. */
static bool await_process(int pid, uint64_t deadline)
{
	while (procfs_runs(pid, "gbpfd", NULL)) {
		if (clock_now_ns() >= deadline) {
			return false;
		}
		clock_sleep_ns(LOOK_NS);
	}
	return true;
}

/* Waits until that gbpfd has exited; another one may run by then. The descriptor stays that of its
 * process, so it is opened before the process is compared: its number may be another's already. */
static int await_exit(struct gbpf *g, int pid, uint64_t deadline)
{
	int pidfd = (int)syscall(SYS_pidfd_open, pid, 0), err = pidfd < 0 ? -errno : 0;
	long long parent;
	bool seen = err || procfs_stat_field(pid, 4, &parent, NULL) == 0; /* /proc may hide it */
	bool exited = err == -ESRCH || (seen && !procfs_runs(pid, "gbpfd", NULL));

	if (!exited) {
		exited = err ? await_process(pid, deadline) : await_pidfd(pidfd, deadline);
	}
	fd_close(pidfd);
	return exited ? 0
		      : lib_fail(
				g, -ETIMEDOUT, GBPF_CODE_TIMEOUT, "timeout",
				"See gbpfd.log in its runtime directory, or wait longer: --timeout",
				"gbpfd (pid %d) is still stopping", pid);
}

/* Returns true if a request failed because the gbpfd of peer_pid is stopping already. */
static bool stops_already(const struct gbpf *g, int err)
{
	struct runtime_state h = runtime_state_read(g->dir);

	return g->peer_pid > 0 &&
	       (err == -ECONNREFUSED || (lib_is_lost(err) && (h.phase == RUNTIME_STOPS ||
							      (h.pid && h.pid != g->peer_pid))));
}

EXPORT int gbpf_shutdown(struct gbpf *g)
{
	uint64_t deadline = lib_deadline(g->timeout_ms);
	enum lib_wait wait = g->wait;
	int err;

	g->wait = wait == LIB_WAIT ? LIB_WAIT_START : wait; /* not for the next gbpfd */
	err = lib_text(g, "shutdown", json_object(), -1, NULL);
	g->wait = wait;
	if (err && !stops_already(g, err)) {
		return err;
	}
	lib_disconnect(g);
	lib_ok(g);
	return g->peer_pid > 0 ? await_exit(g, g->peer_pid, deadline) : 0;
}
