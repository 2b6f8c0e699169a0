/* Our own death: the thread holds a robust futex (set_robust_list(2)) in the page that others read.
 * The kernel marks it at the beginning of the thread's end, before it tears down memory, files and
 * what the driver has behind them, which takes tens of milliseconds on a GPU. glibc's list of
 * robust mutexes is not used: its links would lie in that page. This thread takes no robust mutex,
 * so the list of its own that replaces glibc's is the whole of it; and it is never inside the
 * driver, from which a thread dies late.
 *
 * gbpfd's death: the agent sees it too and does the same; but the agent may be inside the driver,
 * issuing a launch to a queue that is full because gbpfd has switched this process off. Nobody
 * would switch it on again. */
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

#define STACK_BYTES (1u << 20) /* the program's thread-local variables lie here, too */
#define LONG_NS 1000000000000u

static uint32_t *held;	       /* borrowed; set before the thread is made; NULL: none */
static void (*on_death)(void); /* atomic; set before next_fd */
static int next_fd = -1;       /* atomic: pidfd that is to be watched, not taken yet */
static uint32_t bell;	       /* atomic, futex */
static pid_t watched;	       /* atomic: whose death is awaited; 0: nobody's */
static bool started;	       /* the agent's */

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
		while (poll(&p, 1, -1) <= 0) { /* interrupted: every signal is blocked, though */
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
		return; /* in another pid namespace: the agent has to do */
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
