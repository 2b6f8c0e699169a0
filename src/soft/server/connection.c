/* The thread of one client connection: answers requests and reads the client's replies to notices.
 * When the client exits (its socket is closed, its process has ended, or the server dropped it for
 * a protocol violation), the thread frees everything that the client owned. Does not interpret ring
 * records. */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/shm.h"
#include "soft/server/connection.h"
#include "soft/server/doorbell.h"
#include "soft/server/machine.h"
#include "soft/server/request/client_request.h"
#include "soft/server/request/ipc_event.h"
#include "soft/server/request/record_check.h"
#include "soft/server/run/context_group.h"
#include "soft/server/run/op_stream.h"
#include "soft/server/memory/device_memory.h"

#define LEAVE_TIMEOUT_NS 500000000u /* how long a new client waits for exited processes */
#define ASK_MS 5000		    /* idle timeout before HELLO */

/* Returns true if the process of some client has ended and its thread has not released its
 * resources yet. */
static bool exit_pending(const struct softd_machine *machine) REQUIRES(softd_lock)
{
	struct epoll_event e;

	return epoll_wait(machine->exits, &e, 1, 0) > 0;
}

/* Waits until exited processes have released their resources, at most LEAVE_TIMEOUT_NS: a program
 * started after another one has ended finds that one's memory free, as on hardware. */
static void wait_for_exits(struct softd_machine *machine) REQUIRES(softd_lock)
{
	struct timespec ts = clock_timespec(clock_now_ns() + clock_patience(LEAVE_TIMEOUT_NS));
	int err = 0;

	while (err == 0 && exit_pending(machine)) {
		err = softd_machine_wait_until(machine, &machine->quiescent, &ts);
	}
}

int softd_client_attach(struct softd_client *c)
{
	struct softd_machine *machine = c->machine;
	struct epoll_event e = { .events = EPOLLIN };
	int err;

	softd_machine_lock(machine);
	wait_for_exits(machine);
	err = softd_doorbell_open(c);
	if (!err) {
		if (c->pidfd >= 0) {
			epoll_ctl(machine->exits, EPOLL_CTL_ADD, c->pidfd, &e);
		}
		c->attached = true;
		machine->n_attached++;
		softd_list_append(&machine->clients, &c->in_machine);
	}
	softd_machine_unlock(machine);
	return err;
}

struct softd_memory *softd_client_window(struct softd_client *c, struct softd_gpu *gpu)
{
	struct softd_memory **at = &c->windows[gpu->index];
	struct softd_memory *m = *at ? NULL : calloc(1, sizeof(*m));

	if (m && softd_memory_init(m, gpu) < 0) {
		free(m);
		m = NULL;
	}
	*at = m ? m : *at;
	return *at;
}

/* Frees the windows. Releases the lock meanwhile: the client must not be reachable any more. */
static void free_windows(struct softd_client *c) REQUIRES(softd_lock)
{
	for (unsigned i = 0; i < SOFT_MAX_GPUS; i++) {
		if (c->windows[i]) {
			softd_memory_finish(c->windows[i], c->machine);
			free(c->windows[i]);
			c->windows[i] = NULL;
		}
	}
}

void softd_client_drop(struct softd_client *c, const char *why)
{
	if (!c->dead) {
		log_warn("process %d dropped: %s", c->pid, why);
		store_relaxed(&c->dead, true);
		c->machine->refused++;
		shutdown(c->control, SHUT_RDWR); /* wakes the client's thread */
	}
}

void softd_client_notice(struct softd_client *c, const struct soft_notice *n, size_t bytes)
{
	int err = msg_send(c->event, n, bytes, NULL, 0);

	if (err && n->op == SOFT_NOTICE_HOST && err != -EPIPE && err != -ECONNRESET) {
		softd_client_drop(c, "it does not read its notices");
	}
}

static void take_notice(struct softd_client *c)
{
	struct soft_notice n;
	int fds[FD_PASS_MAX];
	unsigned nfds;
	ssize_t len = msg_recv(c->event, &n, sizeof(n), fds, &nfds);

	while (nfds) {
		fd_close_foreign(fds[--nfds]);
	}
	if (len == -EAGAIN) {
		return;
	}
	softd_machine_lock(c->machine);
	if (len < (ssize_t)offsetof(struct soft_notice, text) || n.op != SOFT_NOTICE_HOST_DONE) {
		softd_client_drop(c, "a malformed notice");
	} else {
		softd_stream_host_done(c, n.stream);
	}
	softd_machine_unlock(c->machine);
	softd_machine_kick(c->machine);
}

/* Why a connection ends. */
struct ending {
	const char *why; /* NULL: it does not; or the client ends it; or softd_client_drop has
			    logged it */
	int err;	 /* -Exxx, or 0 */
};

/* Logs why the server ends a connection. Every program's connection ends: where it is the client
 * that ends it, or is killed, a line would be noise in the terminal from which the server was
 * started. */
static void log_ending(const struct softd_client *c, const struct ending *end)
{
	if (end->why && end->err != -EPIPE && end->err != -ECONNRESET) {
		log_info("process %d: connection ended: %s%s%s", c->pid, end->why,
			 end->err ? ": " : "", end->err ? strerror(-end->err) : "");
	}
}

/* Receives and answers one request. Returns false if the connection must be closed. */
static bool take_request(struct softd_client *c, struct soft_request *q, struct softd_answer *a,
			 struct ending *end)
{
	int fds[FD_PASS_MAX], err;
	unsigned nfds;
	ssize_t len = msg_recv(c->control, q, sizeof(*q), fds, &nfds);

	if (len <= 0) {
		if (len == -EMSGSIZE) {
			softd_machine_lock(c->machine);
			softd_client_drop(c,
					  "a request that is too long or has too many descriptors");
			softd_machine_unlock(c->machine);
		} else if (len < 0) {
			*end = (struct ending){ "cannot receive a request", (int)len };
		}
		while (nfds) { /* an empty message may carry descriptors */
			fd_close_foreign(fds[--nfds]);
		}
		return false;
	}
	if (softd_request_check(q, (size_t)len) < 0) {
		softd_machine_lock(c->machine);
		softd_client_drop(c, "a malformed request");
		softd_machine_unlock(c->machine);
		err = -EPROTO;
	} else {
		softd_request_answer(c, q, nfds ? fds[0] : -1, a);
		err = msg_send(c->control, &a->reply, a->len, a->fds, a->n_fds);
		for (unsigned i = 0; a->close_fds && i < a->n_fds; i++) {
			close(a->fds[i]);
		}
		if (err) {
			*end = (struct ending){ "cannot send a reply", err };
		}
	}
	while (nfds) {
		fd_close_foreign(fds[--nfds]);
	}
	return err == 0;
}

/* Waits for a descriptor of the client. Returns false if the connection must be closed. */
static bool wait_for_client(struct softd_client *c, struct pollfd p[3], struct ending *end)
{
	int n = poll(p, 3, c->attached ? -1 : (int)clock_patience(ASK_MS));

	if (n < 0 && errno != EINTR) {
		*end = (struct ending){ "cannot wait for it", -errno };
		return false;
	}
	if (n == 0) {
		*end = (struct ending){ "no request within 5 s", 0 };
		return false;
	}
	/* The process has ended, or has closed its notices. */
	return !load_relaxed(&c->dead) && !p[1].revents && !(p[2].revents & (POLLHUP | POLLERR));
}

static void serve(struct softd_client *c, struct soft_request *q, struct softd_answer *a)
{
	struct ending end = { NULL, 0 };
	bool goes_on = true;

	while (goes_on) {
		struct pollfd p[3] = { { .fd = c->control, .events = POLLIN },
				       { .fd = c->pidfd, .events = POLLIN },
				       { .fd = c->event, .events = POLLIN } };

		goes_on = wait_for_client(c, p, &end);
		if (goes_on && p[2].revents) {
			take_notice(c);
		}
		if (goes_on && p[0].revents) {
			goes_on = take_request(c, q, a, &end);
		}
	}
	log_ending(c, &end);
}

/* Frees everything that the client owns. Waits until no worker holds any of it. */
static void release(struct softd_client *c)
{
	struct softd_machine *machine = c->machine;

	softd_machine_lock(machine);
	store_relaxed(&c->dead, true);
	c->leaving = true;
	for (unsigned i = 0; i < SOFT_MAX_CONTEXTS; i++) {
		/* fail all of them before destroying one: a copy may hold two groups */
		if (c->groups[i]) {
			softd_group_fail(c->groups[i], CUDA_ERROR_CONTEXT_IS_DESTROYED, NULL);
		}
	}
	for (unsigned i = 0; i < SOFT_MAX_CONTEXTS; i++) {
		if (c->groups[i]) {
			softd_group_destroy(c->groups[i]);
		}
	}
	free_windows(c);
	softd_share_client_exit(c);
	softd_ipc_event_client_exit(c);
	if (c->attached) {
		softd_request_save_unsupported(c);
		machine->n_attached--;
	}
	softd_list_remove(&c->in_machine);
	softd_doorbell_close(c);
	if (c->attached && c->pidfd >= 0) {
		epoll_ctl(machine->exits, EPOLL_CTL_DEL, c->pidfd, NULL);
	}
	softd_machine_unlock(machine);
	shm_unmap(c->shared, sizeof(*c->shared));
	fd_close(c->bell);
	fd_close_peer(c->event);
	fd_close_peer(c->control);
	fd_close(c->pidfd);
	free(c->modules);
	softd_sm_sets_free(c);
	free(c->functions);
	softd_machine_lock(machine);
	machine->n_clients--;
	machine->last_busy_ns = clock_now_ns();
	pthread_cond_broadcast(&machine->quiescent);
	softd_machine_unlock(machine);
	free(c);
}

static void *client_main(void *arg)
{
	struct softd_client *c = arg;
	struct soft_request *q = malloc(sizeof(*q));
	struct softd_answer *a = malloc(sizeof(*a));

	if (q && a) {
		serve(c, q, a);
	}
	free(q);
	free(a);
	release(c);
	return NULL;
}

int softd_client_start(struct softd_machine *machine, int control, int pid)
{
	struct softd_client *c = calloc(1, sizeof(*c));
	pthread_attr_t attr;
	pthread_t thread;
	int err = -ENOMEM;

	if (!c) {
		fd_close_peer(control);
		return err;
	}
	c->machine = machine;
	c->control = control;
	c->pid = pid;
	c->event = c->bell = -1;
	lock_init(&c->print.lock, LOCK_SOFTD_PRINT);
	c->pidfd =
		(int)syscall(SYS_pidfd_open, pid, 0); /* -1 on kernels without pidfd_open: then only
							 the closed socket reports the exit */
	softd_list_init(&c->in_machine);
	softd_list_init(&c->in_active);
	softd_machine_lock(machine);
	err = -ENOSPC;
	if (machine->n_clients < SOFT_MAX_CONNECTIONS) {
		machine->n_clients++;
		err = 0;
	}
	softd_machine_unlock(machine);
	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	if (err == 0 && pthread_create(&thread, &attr, client_main, c) != 0) {
		release(c);
		err = -EAGAIN;
	} else if (err) {
		fd_close(c->pidfd);
		fd_close_peer(control);
		free(c);
	}
	pthread_attr_destroy(&attr);
	return err;
}
