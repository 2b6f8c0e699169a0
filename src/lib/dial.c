/* Connecting to the control socket of a runtime directory, and what is said of a gbpfd that does
 * not listen there. */
#include "lib/lib_int.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"

#define LOOK_NS 5000000u
#define QUEUE_LOOK_NS 2000000u
#define NO_LISTENER_NS 50000000u /* gbpfd writes its state shortly before or after it listens */

bool lib_may_await(const struct gbpf *g, struct runtime_state h, uint64_t deadline)
{
	return g->wait != LIB_NO_WAIT && !(g->wait == LIB_WAIT_START && h.phase == RUNTIME_STOPS) &&
	       clock_now_ns() < deadline;
}

int lib_fail_passing(struct gbpf *g, struct runtime_state h)
{
	bool starts = h.phase == RUNTIME_STARTS;

	g->peer_pid = starts ? 0 : h.pid;
	return lib_fail(g, -ECONNREFUSED, GBPF_CODE_UNREACHABLE, starts ? "starting" : "stopping",
			"Try again in a moment, or see gbpfd.log there",
			"gbpfd (pid %d) is %s, and does not serve %s", h.pid,
			starts ? "starting" : "stopping", g->socket);
}

static int fail_no_listener(struct gbpf *g, int pid)
{
	char hint[160];

	snprintf(hint, sizeof(hint),
		 "Its socket was removed: end it with `kill %d`; programs continue, and the next "
		 "one takes over",
		 pid);
	return lib_fail(g, -ECONNREFUSED, GBPF_CODE_UNREACHABLE, "no-listener", hint,
			"gbpfd (pid %d) runs, but does not listen on %s", pid, g->socket);
}

static int fail_connect(struct gbpf *g, int err)
{
	switch (err) {
	case -ENOENT:
	case -ECONNREFUSED:
		return lib_fail(g, -ECONNREFUSED, GBPF_CODE_UNREACHABLE, "unreachable",
				"Start it with `gbpfd`, or let `gbpf run` start one",
				"gbpfd is not running: no process listens on %s", g->socket);
	case -EACCES:
	case -EPERM:
		return lib_fail(
			g, err, GBPF_CODE_PERMISSION, "permission",
			"That gbpfd belongs to another user: run as that user, or with sudo",
			"not allowed to reach %s", g->socket);
	default:
		return lib_fail(g, err, GBPF_CODE_UNREACHABLE, "unreachable",
				err == -ENAMETOOLONG ? "Set GBPF_RUNTIME_DIR to a shorter path"
						     : "Set GBPF_RUNTIME_DIR to a folder",
				"cannot reach gbpfd on %s: %s", g->socket, strerror(-err));
	}
}

/* Returns true if the peer runs as root or as this user: the folder may be in /tmp, where any user
 * can create it. If the caller is root it trusts the peer, since root chooses the path. */
static bool is_trusted(int fd)
{
	uid_t own = geteuid();
	struct peer p;

	return own == 0 || (fd_peer(fd, &p) == 0 && (p.uid == own || p.uid == 0));
}

/* Connects to the socket for operators, in whose queue no other user's connections wait. Returns
 * the descriptor, or -errno if this user may not, gbpfd has none (0.1.0), or its queue is full. */
static int dial_admin(const struct gbpf *g)
{
	char path[LIB_CLIENT_PATH + 16];
	int fd;

	snprintf(path, sizeof(path), "%s/admin.sock", g->dir);
	fd = unix_connect(path, SOCK_STREAM | SOCK_NONBLOCK);
	if (fd >= 0 && !is_trusted(fd)) {
		fd_close(fd);
		return -EPERM;
	}
	return fd;
}

/* Connects without blocking. Returns the descriptor or -errno. */
static int dial_once(const struct gbpf *g)
{
	int fd = dial_admin(g);

	return fd >= 0 ? fd : unix_connect(g->socket, SOCK_STREAM | SOCK_NONBLOCK);
}

/* The holder at the previous try, and since when it is the same. */
struct seen {
	struct runtime_state is;
	uint64_t since_ns;
};

/* Called when no process listens. Returns 0 to try again, after a pause. gbpfd listens from before
 * it writes that it serves until after it writes that it stops: one that served before a try and
 * after it, for a while, has lost its socket. */
static int judge(struct gbpf *g, int err, struct seen *seen, uint64_t deadline)
{
	struct runtime_state h = runtime_state_read(g->dir);
	bool same = seen->is.pid == h.pid && seen->is.phase == h.phase;
	uint64_t now = clock_now_ns();

	if (!h.pid) {
		return fail_connect(g, err);
	}
	if (runtime_state_is_passing(h) && !lib_may_await(g, h, deadline)) {
		return lib_fail_passing(g, h);
	}
	if (!runtime_state_is_passing(h) && same &&
	    (now - seen->since_ns >= NO_LISTENER_NS || now >= deadline)) {
		return fail_no_listener(g, h.pid);
	}
	if (!same) {
		*seen = (struct seen){ h, now };
	}
	clock_sleep_ns(LOOK_NS);
	return 0;
}

int lib_dial(struct gbpf *g, uint64_t deadline)
{
	struct runtime_state now;
	struct seen seen = { 0 };
	struct peer peer;
	int fd, err = 0;

	g->peer_pid = 0;
	if (g->wait == LIB_NO_WAIT) {
		now = runtime_state_read(
			g->dir); /* while it stops it may listen, but does not answer */
		if (runtime_state_is_passing(now)) {
			return lib_fail_passing(g, now);
		}
	}
	while (!err) {
		fd = dial_once(g);
		if (fd >= 0 && !is_trusted(fd)) {
			fd_close(fd);
			return lib_fail(
				g, -EPERM, GBPF_CODE_PERMISSION, "permission",
				"Set GBPF_RUNTIME_DIR, and check which user created that folder",
				"the listener on %s belongs to another user", g->socket);
		}
		if (fd >= 0) {
			g->peer_pid = fd_peer(fd, &peer) == 0 ? (int)peer.pid : 0;
			return fd;
		}
		if (fd == -EAGAIN && clock_now_ns() >= deadline) {
			err = lib_fail(g, -ETIMEDOUT, GBPF_CODE_TIMEOUT, "timeout",
				       "Is gbpfd stopped?",
				       "gbpfd does not accept connections on %s", g->socket);
		} else if (fd == -EAGAIN) { /* the listener's queue is full */
			clock_sleep_ns(QUEUE_LOOK_NS);
		} else if (fd == -ENOENT || fd == -ECONNREFUSED) {
			err = judge(g, fd, &seen, deadline);
		} else {
			err = fail_connect(g, fd);
		}
	}
	return err;
}
