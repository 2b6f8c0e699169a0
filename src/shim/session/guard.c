/* This process's death: the guard thread holds a robust futex (set_robust_list(2)) in a page that
 * other processes read. The kernel marks the futex when the thread starts to exit, before it tears
 * down memory, files and the driver's resources, which takes tens of milliseconds on a GPU. glibc's
 * list of robust mutexes is not used: its links would lie in that page. This thread takes no robust
 * mutex, so its own list, which replaces glibc's, is complete. It must never enter the driver, from
 * which a thread exits late.
 *
 * gbpfd's death: the agent detects it and does the same, but it may be inside the driver,
 * submitting a launch to a queue that is full because gbpfd has suspended this process. Nothing
 * would resume the process then. */
#include "shim/session/guard.h"

#include <linux/futex.h>
#include <poll.h>
#include <stdbool.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/fd.h"
#include "base/thread.h"

#define STACK_BYTES (1u << 20) /* the program's thread-local variables are on it, too */
#define LONG_NS 1000000000000u

static uint32_t *held;	       /* borrowed; set before the thread is created; NULL: none */
static void (*on_death)(void); /* [atomic] set before next_fd */
static int next_fd = -1;       /* [atomic] pidfd to be watched next, -1: none */
static uint32_t bell;	       /* [atomic] futex: incremented when next_fd is set */
static pid_t watched;	       /* [atomic] process that is watched; 0: none */
static bool started;	       /* agent thread only */

static struct {
	struct robust_list_head head;
	struct robust_list node;
} robust;

static void hold(uint32_t *word)
{
	robust.node.next = &robust.head.list;
	robust.head.list.next = &robust.node;
	robust.head.futex_offset = (char *)word - (char *)&robust.node;
	robust.head.list_op_pending = NULL;
	if (syscall(SYS_set_robust_list, &robust.head, sizeof(robust.head)) == 0) {
		store_release(word, (uint32_t)syscall(SYS_gettid));
	}
}

static void *guard(void *arg)
{
	prctl(PR_SET_NAME, "gbpf-guard");
	if (held) {
		hold(held);
	}
	for (;;) {
		uint32_t seen = load_acquire(&bell);
		struct pollfd p = { .fd = xchg_acqrel(&next_fd, -1), .events = POLLIN };

		if (p.fd < 0) {
			(void)futex_wait_shared(&bell, seen, LONG_NS);
			continue;
		}
		while (poll(&p, 1, -1) <=
		       0) { /* EINTR; cannot happen while all signals are blocked */
		}
		store_release(&watched, 0);
		load_acquire (&on_death)();
		fd_close(p.fd);
	}
	return arg;
}

static bool start(void)
{
	return thread_start_detached(guard, NULL, STACK_BYTES) == 0;
}

void shim_guard_hold(uint32_t *word)
{
	if (!started) {
		held = word;
		started = start();
	}
}

void shim_guard_watch(int sock, void (*release)(void))
{
	struct peer peer;
	int fd;

	if (fd_peer(sock, &peer) < 0 || peer.pid <= 0 || peer.pid == load_acquire(&watched)) {
		return; /* gbpfd is in another pid namespace, or watched already: the agent alone
			   detects its death */
	}
	fd = (int)syscall(SYS_pidfd_open, peer.pid, 0);
	if (fd < 0) {
		return;
	}
	store_release(&on_death, release);
	started = started || start();
	if (!started) {
		fd_close(fd);
		return;
	}
	store_release(&watched, peer.pid);
	fd_close(xchg_acqrel(&next_fd, fd));
	(void)add_acqrel(&bell, 1u);
	(void)futex_wake_shared(&bell, 1);
}

void shim_guard_abandon(void)
{
	next_fd = fd_close(next_fd);
	watched = 0;
	held = NULL;
	started = false;
}
