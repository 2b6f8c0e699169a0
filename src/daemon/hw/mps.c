/* Starting, watching, adopting and stopping nvidia-cuda-mps-control. It is a child in the
 * foreground (-f), in a session of its own so that it outlives gbpfd; a file next to the sockets
 * records its process ID and start time, because IDs are reused. For its environment see NVIDIA's
 * "Multi-Process Service" manual. The GPUs' compute mode is never changed. */
#include "daemon/hw/mps.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/private_dir.h"
#include "base/procfs.h"
#include "daemon/hw/sharing_mode.h"
#include "daemon/timer.h"

#define PROGRAM "nvidia-cuda-mps-control"
#define LOOK_USEC 5000u
#define START_NS 5000000000u
#define STEADY_NS                                                                                  \
	60000000000u /* a process that ran for this time did start, so the back-off is reset */
#define BACKOFF_NS 200000000u /* doubled with each failure */
#define MAX_FAILURES 8u
#define END_TIMEOUT_MS 2000

extern char **environ;

enum mps_state { MPS_IDLE, MPS_STARTING, MPS_RUNNING };

struct daemon_mps {
	struct daemon *d;
	enum mps_state state;
	char program[512]; /* path; empty: not found */
	char why[160];
	pid_t pid;
	int pidfd;
	sd_event_source *death, *timer;
	uint64_t started_ns, retry_ns;
	unsigned failures;
};

static void end_of(struct daemon_mps *m, const char *what);

/* ---- files ---- */

static void place(const struct daemon_mps *m, const char *leaf, char out[DAEMON_PATH])
{
	if (snprintf(out, DAEMON_PATH, "%s/%s", m->d->opt.runtime, leaf) >= DAEMON_PATH) {
		out[0] = 0; /* too long: opening it will fail */
	}
}

static bool is_there(const struct daemon_mps *m)
{
	char path[DAEMON_PATH];
	struct stat st;

	place(m, "mps/control", path);
	/* A socket since CUDA 13, a pipe before. */
	return lstat(path, &st) == 0 && (S_ISFIFO(st.st_mode) || S_ISSOCK(st.st_mode));
}

static bool find_in(struct daemon_mps *m, const char *dir, size_t len)
{
	return len && dir[0] == '/' &&
	       snprintf(m->program, sizeof(m->program), "%.*s/" PROGRAM, (int)len, dir) <
		       (int)sizeof(m->program) &&
	       access(m->program, X_OK) == 0;
}

static void find_program(struct daemon_mps *m)
{
	static const char *const others[] = { "/usr/bin", "/usr/local/nvidia/bin" };
	const char *path = getenv("PATH");

	for (const char *p = path; p && *p; p += strcspn(p, ":"), p += *p == ':') {
		if (find_in(m, p, strcspn(p, ":"))) {
			return;
		}
	}
	for (size_t i = 0; i < ARRAY_SIZE(others); i++) {
		if (find_in(m, others[i], strlen(others[i]))) {
			return;
		}
	}
	m->program[0] = 0;
}

/* ---- the process ---- */

static void remember(const struct daemon_mps *m)
{
	char path[DAEMON_PATH];
	long long since = 0;
	FILE *f;

	place(m, "mps.pid", path);
	unlink(path);
	if (m->pid && procfs_stat_field(m->pid, PROCFS_START, &since, NULL) == 0) {
		f = fopen(path, "wex");
		if (f) {
			fprintf(f, "%d %lld\n", (int)m->pid, since);
			fclose(f);
		}
	}
}

static int on_death(sd_event_source *src, int fd, uint32_t revents, void *arg)
{
	(void)src;
	(void)fd;
	(void)revents;
	end_of(arg, "ended");
	return 0;
}

static int watch(struct daemon_mps *m)
{
	int err;

	m->pidfd = (int)syscall(SYS_pidfd_open, m->pid, 0);
	if (m->pidfd < 0) {
		return -errno;
	}
	fcntl(m->pidfd, F_SETFD, FD_CLOEXEC);
	err = sd_event_add_io(m->d->loop, &m->death, m->pidfd, EPOLLIN, on_death, m);
	return err < 0 ? err : 0;
}

static void unwatch(struct daemon_mps *m)
{
	m->death = sd_event_source_disable_unref(m->death);
	m->pidfd = fd_close(m->pidfd);
}

/* Removes the shim from the environment: the control daemon starts servers, which load the driver.
 */
static char **make_environment(const struct daemon_mps *m, char *buf, size_t cap)
{
	static const char *const drop[] = { "CUDA_MPS_",
					    "CUDA_VISIBLE_DEVICES=", "LD_PRELOAD=", "GBPF_OFF=" };
	size_t n = 0, k = 0;
	char **env, *p = buf;

	while (environ[n]) {
		n++;
	}
	env = calloc(n + 4, sizeof(*env));
	if (!env) {
		return NULL;
	}
	for (size_t i = 0; i < n; i++) {
		bool keep = true;

		for (size_t j = 0; j < ARRAY_SIZE(drop); j++) {
			keep &= strncmp(environ[i], drop[j], strlen(drop[j])) != 0;
		}
		if (keep) {
			env[k++] = environ[i];
		}
	}
	snprintf(p, cap / 2, "CUDA_MPS_PIPE_DIRECTORY=%s/mps", m->d->opt.runtime);
	snprintf(p + cap / 2, cap / 2, "CUDA_MPS_LOG_DIRECTORY=%s/mps-log", m->d->opt.runtime);
	env[k++] = p;
	env[k++] = p + cap / 2;
	env[k] = (char *)(uintptr_t) "GBPF_OFF=1";
	return env;
}

/* Starts a program; in is its standard input, borrowed. */
static int spawn(const struct daemon_mps *m, char *const argv[], int in, pid_t *ret)
{
	char buf[2 * DAEMON_PATH + 128], log[DAEMON_PATH];
	posix_spawn_file_actions_t files;
	posix_spawnattr_t attr;
	sigset_t none, all;
	char **env = make_environment(m, buf, sizeof(buf));
	int err;

	if (!env) {
		return -ENOMEM;
	}
	place(m, "mps-log/control.out", log);
	sigemptyset(&none);
	sigfillset(&all);
	posix_spawn_file_actions_init(&files);
	posix_spawnattr_init(&attr);
	posix_spawn_file_actions_adddup2(&files, in, 0);
	posix_spawn_file_actions_addopen(&files, 1, log, O_WRONLY | O_CREAT | O_APPEND, 0600);
	posix_spawn_file_actions_adddup2(&files, 1, 2);
	posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK |
						POSIX_SPAWN_SETSIGDEF);
	posix_spawnattr_setsigmask(&attr, &none);
	posix_spawnattr_setsigdefault(&attr, &all);
	err = posix_spawn(ret, m->program, &files, &attr, argv, env);
	posix_spawnattr_destroy(&attr);
	posix_spawn_file_actions_destroy(&files);
	free(env);
	return -err;
}

static int make_places(const struct daemon_mps *m)
{
	static const char *const stale[] = { "mps/control", "mps/control_privileged", "mps/log",
					     "mps/control_lock", "mps/" PROGRAM ".pid" };
	char path[DAEMON_PATH];
	int err;

	place(m, "mps", path);
	err = private_dir_make(path, 0700, false, NULL);
	if (!err) {
		place(m, "mps-log", path);
		err = private_dir_make(path, 0700, false, NULL);
	}
	for (size_t i = 0; !err && i < ARRAY_SIZE(stale); i++) {
		place(m, stale[i], path);
		unlink(path);
	}
	return err;
}

static int start_process(struct daemon_mps *m)
{
	char *const argv[] = { m->program, (char *)(uintptr_t) "-f", NULL };
	int null = open("/dev/null", O_RDONLY | O_CLOEXEC), err = make_places(m);

	if (!err) {
		err = spawn(m, argv, null, &m->pid);
	}
	fd_close(null);
	if (err) {
		m->pid = 0;
		return err;
	}
	err = watch(m);
	remember(m);
	return err;
}

/* ---- states ---- */

static void look_again(struct daemon_mps *m, uint64_t at_ns)
{
	daemon_timer_arm(m->timer, at_ns / 1000);
}

static void start(struct daemon_mps *m)
{
	int err;

	m->started_ns = clock_now_ns();
	m->state = MPS_STARTING;
	err = start_process(m);
	if (err) {
		end_of(m, strerror(-err));
		return;
	}
	look_again(m, m->started_ns + LOOK_USEC * 1000u);
}

/* Handles the exit or failed start of the control daemon. Tenants of the shared lane do not survive
 * it for long: each is marked, so that its user finds the reason. */
static void end_of(struct daemon_mps *m, const char *what)
{
	enum mps_state was = m->state;
	uint64_t now = clock_now_ns();
	siginfo_t info = { 0 };

	unwatch(m);
	if (m->pid) {
		kill(m->pid, SIGKILL); /* it did not become ready in time */
		(void)waitid(P_PID, (id_t)m->pid, &info, WEXITED | WNOHANG);
	}
	m->failures = was == MPS_RUNNING && now - m->started_ns > STEADY_NS ? 1 : m->failures + 1;
	m->retry_ns = now + ((uint64_t)BACKOFF_NS << MIN(m->failures, MAX_FAILURES));
	daemon_history_add(&m->d->history, "mps", (int)m->pid,
			   "the MPS control daemon %s%s (%s %d)", what,
			   was == MPS_STARTING ? " before it served" : "",
			   info.si_code == CLD_EXITED ? "exit code" : "signal", info.si_status);
	snprintf(m->why, sizeof(m->why), PROGRAM " %s: see %.60s/mps-log",
		 was == MPS_STARTING ? "does not start" : "exited and is restarted",
		 m->d->opt.runtime);
	m->state = MPS_IDLE;
	m->pid = 0;
	remember(m);
	if (was == MPS_RUNNING) {
		daemon_lane_broken(m->d);
	}
	daemon_lane_ready(m->d, false);
	if (m->failures < MAX_FAILURES && daemon_lane_tenants(m->d)) {
		look_again(m, m->retry_ns);
	}
}

static int on_timer(sd_event_source *src, uint64_t usec, void *arg)
{
	struct daemon_mps *m = arg;
	uint64_t now = clock_now_ns();

	(void)src;
	(void)usec;
	if (m->state == MPS_IDLE) {
		start(m);
	} else if (m->state == MPS_STARTING && is_there(m)) {
		m->state = MPS_RUNNING;
		m->why[0] = 0;
		daemon_history_add(&m->d->history, "mps", (int)m->pid,
				   "the MPS control daemon serves the shared lane");
		daemon_lane_ready(m->d, true);
	} else if (m->state == MPS_STARTING && now - m->started_ns > clock_patience(START_NS)) {
		end_of(m, "does not become ready");
	} else if (m->state == MPS_STARTING) {
		look_again(m, now + LOOK_USEC * 1000u);
	}
	return 0;
}

/* ---- open, close, start ---- */

static void adopt(struct daemon_mps *m)
{
	char path[DAEMON_PATH];
	long long since, is = 0;
	struct buf b;
	int pid;

	place(m, "mps.pid", path);
	buf_init(&b);
	if (buf_read_file(&b, path, 64) == 0 &&
	    sscanf(buf_text(&b), "%d %lld", &pid, &since) == 2 && pid > 1) {
		m->pid = pid;
		/* Opens the pidfd before checking the start time: this order excludes that the ID
		 * was reused in between. */
		if (watch(m) == 0 && procfs_stat_field(pid, PROCFS_START, &is, NULL) == 0 &&
		    is == since && is_there(m)) {
			m->state = MPS_RUNNING;
			m->started_ns = clock_now_ns();
			daemon_history_add(&m->d->history, "mps", pid,
					   "adopted the MPS control daemon of the previous gbpfd");
		} else {
			unwatch(m);
			m->pid = 0;
		}
	}
	buf_finish(&b);
}

int daemon_mps_open(struct daemon *d)
{
	struct daemon_mps *m = calloc(1, sizeof(*m));
	int err;

	if (!m) {
		return -ENOMEM;
	}
	d->mps = m;
	m->d = d;
	m->pidfd = -1;
	find_program(m);
	if (!m->program[0]) {
		snprintf(m->why, sizeof(m->why), PROGRAM " not found");
	}
	err = sd_event_add_time(d->loop, &m->timer, CLOCK_MONOTONIC, UINT64_MAX, 1, on_timer, m);
	if (err >= 0) {
		err = sd_event_source_set_enabled(m->timer, SD_EVENT_OFF);
	}
	if (err >= 0) {
		adopt(m);
	}
	return err < 0 ? err : 0;
}

const char *daemon_mps_unavailable_reason(const struct daemon *d)
{
	const struct daemon_mps *m = d->mps;

	if (!m || m->state == MPS_RUNNING || m->state == MPS_STARTING) {
		return m ? NULL : "gbpfd does not serve it";
	}
	return !m->program[0] || clock_now_ns() < m->retry_ns ? m->why : NULL;
}

int daemon_mps_start(struct daemon *d)
{
	struct daemon_mps *m = d->mps;

	if (daemon_mps_unavailable_reason(d)) {
		return -ENOENT;
	}
	if (m->state == MPS_IDLE) {
		start(m);
	}
	return m->state == MPS_RUNNING ? 0 : m->state == MPS_STARTING ? -EINPROGRESS : -ENOENT;
}

int daemon_mps_pid(const struct daemon *d)
{
	return d->mps && d->mps->state == MPS_RUNNING ? (int)d->mps->pid : 0;
}

static bool has_ended(const struct daemon_mps *m, int timeout_ms)
{
	struct pollfd p = { .fd = m->pidfd, .events = POLLIN };

	return poll(&p, 1, timeout_ms) > 0;
}

/* Asks it to exit by `echo quit | nvidia-cuda-mps-control`, as its manual describes. */
static void ask_to_quit(const struct daemon_mps *m)
{
	char *const argv[] = { (char *)(uintptr_t)m->program, NULL };
	pid_t pid = 0;
	int p[2];

	if (!m->program[0] || pipe2(p, O_CLOEXEC) < 0) {
		return;
	}
	if (write(p[1], "quit\n", 5) == 5 && spawn(m, argv, p[0], &pid) < 0) {
		pid = 0;
	}
	fd_close(p[0]);
	fd_close(p[1]);
	(void)has_ended(m, (int)clock_patience(END_TIMEOUT_MS));
	if (pid) { /* that command may block on the pipe of a daemon that does not answer */
		kill(pid, SIGKILL);
		waitpid(pid, NULL, 0);
	}
}

static void stop(struct daemon_mps *m)
{
	ask_to_quit(m);
	if (!has_ended(m, 0)) {
		(void)syscall(SYS_pidfd_send_signal, m->pidfd, SIGTERM, NULL, 0);
	}
	if (!has_ended(m, (int)clock_patience(END_TIMEOUT_MS))) {
		(void)syscall(SYS_pidfd_send_signal, m->pidfd, SIGKILL, NULL, 0);
		(void)has_ended(m, (int)clock_patience(END_TIMEOUT_MS));
	}
	(void)waitpid(m->pid, NULL, WNOHANG);
	m->pid = 0;
	remember(m);
}

void daemon_mps_close(struct daemon *d, bool tenants_left)
{
	struct daemon_mps *m = d->mps;

	if (!m) {
		return;
	}
	if (m->pid && m->pidfd >= 0 && (!tenants_left || m->state != MPS_RUNNING)) {
		stop(m);
	}
	unwatch(m);
	m->timer = sd_event_source_disable_unref(m->timer);
	free(m);
	d->mps = NULL;
}
