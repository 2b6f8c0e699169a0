/* Starting gbpfd for the user: a lock file, so that of several callers one starts it; a detached
 * child; and a pipe on which it reports "ready" or an error. */
#include "lib/lib_int.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/paths.h"
#include "base/private_dir.h"
#include "base/private_file.h"
#include "base/runtime_choice.h"

#define START_TIMEOUT_MS 15000u /* allows for a loaded machine */
#define READY_TEXT 2048
#define KILLED_MOST 3u
#define OTHER_NS 200000000u
#define OTHER_LOOK_NS 10000000u
#define ROOTS_GAP_NS 1000000000u /* between two of root's gbpfds, if it restarts */

struct start {
	char program[LIB_CLIENT_PATH], log[LIB_CLIENT_PATH + 16], lock[LIB_CLIENT_PATH + 16];
	char ready[16], idle[16];
	const char *argv[24];
	unsigned argc;
};

static void add(struct start *s, const char *flag, const char *value)
{
	if (s->argc + 3 < ARRAY_SIZE(s->argv)) {
		s->argv[s->argc++] = flag;
		if (value) {
			s->argv[s->argc++] = value;
		}
	}
}

static int prepare(struct gbpf *g, struct start *s, const struct gbpf_start_options *o,
		   int ready_fd)
{
	if (o->program) {
		if (snprintf(s->program, sizeof(s->program), "%s", o->program) >=
		    (int)sizeof(s->program)) {
			return -ENAMETOOLONG;
		}
	} else if (path_program(s->program, sizeof(s->program), "gbpfd") < 0) {
		return -ENAMETOOLONG;
	}
	snprintf(s->log, sizeof(s->log), "%s/gbpfd.log", g->dir);
	snprintf(s->ready, sizeof(s->ready), "%d", ready_fd);
	snprintf(s->idle, sizeof(s->idle), "%u", o->idle_exit_s);
	s->argc = 0;
	add(s, s->program, NULL);
	add(s, "--foreground", NULL);
	add(s, "--runtime-dir", g->dir);
	add(s, "--ready-fd", s->ready);
	if (o->device) {
		add(s, "--device", o->device);
	}
	if (o->policy) {
		add(s, "--policy", o->policy);
	}
	if (o->state_dir) {
		add(s, "--state-dir", o->state_dir);
	}
	if (o->idle_exit_s) {
		add(s, "--idle-exit", s->idle);
	}
	s->argv[s->argc] = NULL;
	return 0;
}

static void say(int fd, const char *program, int err)
{
	char text[READY_TEXT];
	int n = snprintf(text, sizeof(text), "cannot run %s: %s", program, strerror(err));

	if (write(fd, text, (size_t)MIN(n, (int)sizeof(text) - 1)) < 0) {
		_exit(125);
	}
}

/* Runs in the grandchild: closes all of the caller's descriptors, since its pipes would never reach
 * end of file. */
static NORETURN void become_daemon(const struct start *s, int ready_fd)
{
	int null = open("/dev/null", O_RDWR);
	int log = private_file_open(s->log, O_WRONLY | O_CREAT | O_APPEND);
	sigset_t none;

	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	for (int sig = 1; sig < 32; sig++) {
		signal(sig, SIG_DFL);
	}
	dup2(null, STDIN_FILENO);
	dup2(log >= 0 ? log : null, STDOUT_FILENO);
	dup2(log >= 0 ? log : null, STDERR_FILENO);
	for (int fd = 3; fd < 4096; fd++) {
		if (fd != ready_fd) {
			close(fd);
		}
	}
	fcntl(ready_fd, F_SETFD, 0);
	unsetenv("LD_PRELOAD"); /* gbpfd must not load the shim */
	if (chdir("/") == 0) {
		execv(s->program, (char *const *)(uintptr_t)s->argv);
	}
	say(ready_fd, s->program, errno);
	_exit(127);
}

/* Forks twice, so that the daemon is reparented and leaves no zombie with the caller. */
static int spawn(const struct start *s, int ready_fd)
{
	pid_t pid = fork(), child;
	int status;

	if (pid < 0) {
		return -errno;
	}
	if (pid == 0) {
		setsid();
		child = fork();
		if (child == 0) {
			become_daemon(s, ready_fd);
		}
		_exit(child < 0 ? 1 : 0);
	}
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
	}
	return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : -EAGAIN;
}

/* Reads until "ready", or until the end of the error text. 0, -ETIMEDOUT, -EIO with the text,
 * -ECONNRESET without one. */
static int await_ready(int fd, uint64_t deadline, char *text, size_t cap)
{
	size_t len = 0;

	text[0] = 0;
	for (;;) {
		uint64_t now = clock_now_ns();
		struct pollfd p = { .fd = fd, .events = POLLIN };
		ssize_t n;

		if (now >= deadline) {
			return -ETIMEDOUT;
		}
		if (poll(&p, 1, (int)((deadline - now) / 1000000u) + 1) <= 0) {
			continue;
		}
		n = read(fd, text + len, cap - 1 - len);
		if (n < 0 && errno == EINTR) {
			continue;
		}
		if (n > 0) {
			len += (size_t)n;
			text[len] = 0;
		}
		if (strncmp(text, "ready\n", 6) == 0) {
			return 0;
		}
		if (n <= 0 || len == cap - 1) {
			return len ? -EIO : -ECONNRESET;
		}
	}
}

static int launch(struct gbpf *g, const struct gbpf_start_options *o, uint64_t deadline)
{
	char text[READY_TEXT];
	struct start s;
	int p[2], err;

	if (pipe2(p, O_CLOEXEC) < 0) {
		return lib_fail(g, -errno, GBPF_CODE_FAILED, "start", NULL,
				"cannot make a pipe: %s", strerror(errno));
	}
	err = prepare(g, &s, o, p[1]);
	if (!err && access(s.program, X_OK) < 0) {
		err = lib_fail(g, -errno, GBPF_CODE_NOT_FOUND, "start",
			       "Set GBPF_BINDIR to the folder of gbpfd", "cannot run %s: %s",
			       s.program, strerror(errno));
	} else if (err) {
		lib_fail(g, err, GBPF_CODE_FAILED, "start", NULL, "the path of gbpfd is too long");
	}
	if (!err) {
		err = spawn(&s, p[1]);
		if (err) {
			lib_fail(g, err, GBPF_CODE_FAILED, "start", NULL,
				 "cannot start a process: %s", strerror(-err));
		}
	}
	p[1] = fd_close(p[1]);
	if (!err) {
		err = await_ready(p[0], deadline, text, sizeof(text));
		text[strcspn(text, "\n")] = 0;
		if (err == -ETIMEDOUT) {
			lib_fail(g, err, GBPF_CODE_TIMEOUT, "start",
				 "See gbpfd.log in the runtime directory",
				 "gbpfd was started and did not get ready in time (%s)", g->dir);
		} else if (err) {
			lib_fail(g, err, GBPF_CODE_FAILED, "start",
				 text[0] ? NULL : "See gbpfd.log in the runtime directory",
				 "gbpfd did not start: %s",
				 text[0] ? text : "it exited without an error message");
			err = strncmp(text, "another gbpfd", 13) == 0 ? -EEXIST : err;
		}
	}
	fd_close(p[0]);
	return err;
}

static int make_dir(struct gbpf *g)
{
	bool fits = strlen(g->socket) < sizeof(((struct sockaddr_un *)0)->sun_path);
	char why[PRIVATE_DIR_WHY] = "the path is too long";
	int err = fits ? private_dir_make(g->dir, path_runtime_mode(), false, why) : -ENAMETOOLONG;

	return err ? lib_fail(g, err, GBPF_CODE_FAILED, "start",
			      err == -ENAMETOOLONG ? "Set GBPF_RUNTIME_DIR to a shorter path"
			      : err == -ENOENT	   ? "Create it, or correct the path"
						   : "Set GBPF_RUNTIME_DIR to a directory of "
						     "your own, or run as root",
			      "cannot use %s as runtime directory: %s", g->dir, why)
		   : 0;
}

static int take_lock(struct gbpf *g, uint64_t deadline)
{
	char path[LIB_CLIENT_PATH + 16];
	int fd, err = 0;

	snprintf(path, sizeof(path), "%s/start.lock", g->dir);
	fd = private_file_open(path, O_RDWR | O_CREAT);
	if (fd < 0) {
		err = fd;
		return lib_fail(
			g, err, err == -EACCES ? GBPF_CODE_PERMISSION : GBPF_CODE_FAILED, "start",
			err == -ENOSPC ? "Free space there, or set GBPF_RUNTIME_DIR"
				       : "Set GBPF_RUNTIME_DIR to a directory of your own",
			"cannot write to the runtime directory %s: %s", g->dir, strerror(-err));
	}
	while (flock(fd, LOCK_EX | LOCK_NB) < 0) {
		if (errno != EWOULDBLOCK && errno != EINTR) {
			err = -errno;
		} else if (clock_now_ns() >= deadline) {
			err = -ETIMEDOUT;
		}
		if (err) {
			fd_close(fd);
			return lib_fail(
				g, err, GBPF_CODE_TIMEOUT, "start", NULL,
				"another process is starting gbpfd in %s and does not finish",
				g->dir);
		}
		clock_sleep_ns(5000000);
	}
	return fd;
}

/* Returns true if no gbpfd listens, or if it exited during the hello, which has the same effect
 * shortly after. */
static bool is_gone(int err)
{
	return err == -ECONNREFUSED || lib_is_lost(err);
}

/* Connects within the timeout of a call and that of the start. */
static int connect_by(struct gbpf *g, uint64_t deadline)
{
	return lib_connect(g, MIN(deadline, lib_deadline(g->timeout_ms)));
}

/* Waits for a gbpfd that was started by other means (systemd, a terminal) and is not ready yet, or
 * that still holds the lock and is about to exit. */
static int await_other(struct gbpf *g, uint64_t deadline)
{
	uint64_t until = MIN(deadline, clock_now_ns() + OTHER_NS);
	int err;

	do {
		clock_sleep_ns(OTHER_LOOK_NS);
		err = connect_by(g, deadline);
	} while (is_gone(err) && clock_now_ns() < until);
	return err;
}

/* Connects or launches, with the start lock held. A gbpfd that is killed while it starts, or before
 * it has answered, is started again. */
static int connect_or_launch(struct gbpf *g, const struct gbpf_start_options *o, uint64_t deadline)
{
	unsigned killed = 0;
	int err = connect_by(g, deadline); /* another caller may have started it */

	while (is_gone(err) && killed < KILLED_MOST && clock_now_ns() < deadline) {
		err = launch(g, o, deadline);
		if (err == -EEXIST) {
			err = await_other(g, deadline);
			continue;
		}
		err = err ? err : connect_by(g, deadline);
		killed += is_gone(err);
	}
	return err;
}

/* Returns true once root's gbpfd, by which the directory was chosen, has ended for a while without
 * another one that starts. *ended_ns: since when; 0: it has not. */
static bool has_ended(const struct gbpf *g, int err, uint64_t *ended_ns)
{
	uint64_t now = clock_now_ns();

	if (!g->is_roots || !is_gone(err) || runtime_root_serves()) {
		*ended_ns = 0;
		return false;
	}
	*ended_ns = *ended_ns ? *ended_ns : now;
	return now - *ended_ns >= clock_patience(ROOTS_GAP_NS);
}

/* Waits for root's gbpfd, which this user cannot start. Between two of them no file says that the
 * next one will start: that wait is completed also if the deadline is over. Returns 1 if there is
 * none any more, and the user's own is to be used. */
static int await_roots(struct gbpf *g, uint64_t deadline)
{
	uint64_t ended_ns = 0, until = deadline;
	int err;

	do {
		clock_sleep_ns(OTHER_LOOK_NS);
		err = connect_by(g, until);
		if (has_ended(g, err, &ended_ns)) {
			return 1;
		}
		until = ended_ns ? MAX(deadline, ended_ns + clock_patience(ROOTS_GAP_NS))
				 : deadline;
	} while (is_gone(err) && (ended_ns || clock_now_ns() < deadline));
	if (is_gone(err)) {
		err = lib_fail(g, -ECONNREFUSED, GBPF_CODE_UNREACHABLE, "unreachable",
			       "Let root start it (`systemctl start gbpfd`), or set "
			       "GBPF_RUNTIME_DIR to a directory of your own",
			       "root's gbpfd does not serve %s", g->socket);
	} else if (!err) {
		lib_ok(g);
	}
	return err;
}

static uint64_t start_deadline(const struct gbpf_start_options *o)
{
	return lib_deadline(o->timeout_ms ? o->timeout_ms
					  : (unsigned)clock_patience(START_TIMEOUT_MS));
}

EXPORT int gbpf_start_daemon(struct gbpf *g, const struct gbpf_start_options *o)
{
	struct gbpf_start_options all = { .size = sizeof(all) };
	uint64_t deadline;
	int lock, err;

	if (o) {
		memcpy(&all, o, MIN(o->size, sizeof(all)));
	}
	deadline = start_deadline(&all);
	if (g->fd >= 0) {
		lib_disconnect(g);
	}
	err = connect_by(g, deadline); /* it runs, perhaps as another user, and this one may only
					  read its folder */
	if (!is_gone(err)) {
		return err;
	}
	if (geteuid() != 0 && strcmp(g->dir, RUNTIME_OF_ROOT) == 0) {
		err = await_roots(g, deadline);
		if (err <= 0) {
			return err;
		}
		err = lib_leave_roots(g);
		if (err) {
			return err;
		}
		deadline = start_deadline(&all);
	}
	err = make_dir(g);
	if (err) {
		return err;
	}
	lock = take_lock(g, deadline);
	if (lock < 0) {
		return lock;
	}
	err = connect_or_launch(g, &all, deadline);
	fd_close(lock);
	if (!err) {
		lib_ok(g);
	}
	return err;
}
