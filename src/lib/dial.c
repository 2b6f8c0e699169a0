/* Connecting to the control socket of a runtime directory, and what its lock file says of a gbpfd
 * that does not listen there. */
#include "lib/lib_int.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/procfs.h"

#define LOOK_NS 5000000u
#define QUEUE_LOOK_NS 2000000u
#define NO_LISTENER_NS 50000000u /* gbpfd writes its state shortly before or after it listens */

/* Returns true for the file of a user that may say what gbpfd does: root or this one. Root trusts
 * all, since it chooses the path. Sets *ret_owner to that user. */
static bool is_of_trusted(int fd, uid_t *ret_owner)
{
	struct stat st;

	if (fstat(fd, &st) < 0) {
		return false;
	}
	*ret_owner = st.st_uid;
	return geteuid() == 0 || st.st_uid == 0 || st.st_uid == geteuid();
}

struct lib_holder lib_holder(const struct gbpf *g)
{
	char path[LIB_CLIENT_PATH + 16], text[32] = "";
	struct lib_holder h = { 0 };
	uid_t owner = 0, runs_as;
	int fd;

	snprintf(path, sizeof(path), "%s/gbpfd.lock", g->dir);
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	if (fd < 0 || !is_of_trusted(fd, &owner) || read(fd, text, sizeof(text) - 1) <= 0) {
		text[0] = 0;
	}
	fd_close(fd);
	h.pid = (int)strtol(text, NULL, 10);
	/* a process of another user did not write the file: messages advise to end this one */
	h.pid = procfs_runs(h.pid, "gbpfd", &runs_as) && runs_as == owner ? h.pid : 0;
	h.phase = strstr(text, " starts")  ? LIB_STARTS
		  : strstr(text, " stops") ? LIB_STOPS
					   : LIB_SERVES;
	return h;
}

bool lib_is_passing(struct lib_holder h)
{
	return h.phase == LIB_STARTS || h.phase == LIB_STOPS;
}

bool lib_may_await(const struct gbpf *g, struct lib_holder h, uint64_t deadline)
{
	return g->wait != LIB_NO_WAIT && !(g->wait == LIB_WAIT_START && h.phase == LIB_STOPS) &&
	       clock_now_ns() < deadline;
}

int lib_fail_passing(struct gbpf *g, struct lib_holder h)
{
	bool starts = h.phase == LIB_STARTS;

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
	struct lib_holder is;
	uint64_t since_ns;
};

/* Called when no process listens. Returns 0 to try again, after a pause. gbpfd listens from before
 * it writes that it serves until after it writes that it stops: one that served before a try and
 * after it, for a while, has lost its socket. */
static int judge(struct gbpf *g, int err, struct seen *seen, uint64_t deadline)
{
	struct lib_holder h = lib_holder(g);
	bool same = seen->is.pid == h.pid && seen->is.phase == h.phase;
	uint64_t now = clock_now_ns();

	if (!h.pid) {
		return fail_connect(g, err);
	}
	if (lib_is_passing(h) && !lib_may_await(g, h, deadline)) {
		return lib_fail_passing(g, h);
	}
	if (!lib_is_passing(h) && same &&
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
	struct lib_holder now;
	struct seen seen = { 0 };
	struct peer peer;
	int fd, err = 0;

	g->peer_pid = 0;
	if (g->wait == LIB_NO_WAIT) {
		now = lib_holder(g); /* while it stops it may listen, but does not answer */
		if (now.pid && lib_is_passing(now)) {
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
