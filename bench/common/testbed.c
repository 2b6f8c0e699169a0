/* Folder, daemons and processes of a bench; see testbed.h. */
#include "bench/common/testbed.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <jansson.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/fd.h"
#include "bench/common/program.h"
#include "gbpf/gbpf.h"

#define START_NS 20000000000ull
#define REAP_NS 10000000000ull
#define APART_POLL_NS 20000000u
#define APART_FAILED 255 /* exit status */

static const int ending[] = { SIGINT, SIGQUIT, SIGTERM, SIGHUP };
static volatile sig_atomic_t interrupted;

static void on_signal(int sig)
{
	interrupted = sig;
}

bool bench_testbed_interrupted(void)
{
	return interrupted != 0;
}

int bench_testbed_fail(struct bench_testbed *w, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(w->error, sizeof(w->error), fmt, ap);
	va_end(ap);
	return -1;
}

void bench_testbed_progress(struct bench_testbed *w, const char *fmt, ...)
{
	char text[160];
	va_list ap;

	if (!w->progress && !isatty(2)) {
		return;
	}
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	if (strcmp(text, w->last_progress) != 0) {
		memcpy(w->last_progress, text, sizeof(text));
		fprintf(stderr, isatty(2) ? "\r\033[K%s" : "%s\n", text);
		fflush(stderr);
	}
}

static void erase_progress(struct bench_testbed *w)
{
	if (w->last_progress[0] && isatty(2)) {
		fputs("\r\033[K", stderr);
	}
	w->last_progress[0] = 0;
}

int bench_testbed_record(struct bench_testbed *w, const char *name, json_t *body)
{
	erase_progress(w);
	return bench_program_record(name, body) < 0 ? bench_testbed_fail(w, "cannot write a record")
						    : 0;
}

int bench_testbed_exit(struct bench_testbed *w, int err, bool failed)
{
	erase_progress(w);
	if (err) {
		bench_program_fail("%s", w->error);
	}
	bench_testbed_finish(w);
	return err ? 1 : bench_program_end(failed);
}

/* ---- commands ---- */

void bench_command_init(struct bench_testbed_command *k)
{
	memset(k, 0, sizeof(*k));
}

void bench_command_finish(struct bench_testbed_command *k)
{
	for (unsigned i = 0; i < k->n; i++) {
		free(k->argv[i]);
	}
	for (unsigned i = 0; i < k->n_env; i++) {
		free(k->env[i]);
	}
	bench_command_init(k);
}

static void append(struct bench_testbed_command *k, char **to, unsigned *n, unsigned max,
		   const char *fmt, va_list ap)
{
	if (*n + 1 >= max || vasprintf(&to[*n], fmt, ap) < 0) {
		k->failed = -ENOMEM;
		return;
	}
	(*n)++;
}

void bench_command_add(struct bench_testbed_command *k, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	append(k, k->argv, &k->n, TESTBED_ARGS, fmt, ap);
	va_end(ap);
}

void bench_command_option(struct bench_testbed_command *k, const char *name, const char *fmt, ...)
{
	va_list ap;

	bench_command_add(k, "%s", name);
	va_start(ap, fmt);
	append(k, k->argv, &k->n, TESTBED_ARGS, fmt, ap);
	va_end(ap);
}

void bench_command_env(struct bench_testbed_command *k, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	append(k, k->env, &k->n_env, ARRAY_SIZE(k->env), fmt, ap);
	va_end(ap);
}

/* ---- processes ---- */

static void become(const struct bench_testbed_command *k, int out, int keep)
{
	int in = open("/dev/null", O_RDONLY | O_CLOEXEC);

	setpgid(0, 0); /* a group that is killed together; the terminal's ^C reaches this process,
			  which then ends it */
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	dup2(in, 0);
	dup2(out, 1);
	dup2(out, 2);
	if (keep >= 0) {
		fcntl(keep, F_SETFD, 0);
	}
	signal(SIGPIPE, SIG_DFL);
	for (size_t i = 0; i < ARRAY_SIZE(ending); i++) {
		signal(ending[i], SIG_DFL);
	}
	for (unsigned i = 0; i < k->n_env; i++) {
		char *eq = strchr(k->env[i], '=');

		if (eq) {
			*eq = 0;
			setenv(k->env[i], eq + 1, 1);
		} else {
			unsetenv(k->env[i]);
		}
	}
	execvp(k->argv[0], k->argv);
	fprintf(stderr, "%s: %s\n", k->argv[0], strerror(errno));
	_exit(127);
}

static int open_output(const char *log, int *ret_out, int fd[2])
{
	if (ret_out) {
		return pipe2(fd, O_CLOEXEC | O_NONBLOCK) < 0 ? -errno : 0;
	}
	fd[0] = -1;
	fd[1] = open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
	return fd[1] < 0 ? -errno : 0;
}

pid_t bench_testbed_spawn(struct bench_testbed *w, const struct bench_testbed_command *k,
			  const char *log, int keep, int *ret_out)
{
	unsigned slot = 0;
	int fd[2];
	pid_t pid;

	while (slot < TESTBED_CHILDREN && w->children[slot]) {
		slot++;
	}
	if (k->failed || !k->n || slot == TESTBED_CHILDREN || open_output(log, ret_out, fd) < 0) {
		return bench_testbed_fail(
			w, "cannot start a process: too many processes or arguments");
	}
	fflush(stdout);
	pid = fork();
	if (pid == 0) {
		if (ret_out) {
			fcntl(fd[1], F_SETFL, 0); /* the child's own writes may block */
		}
		become(k, fd[1], keep);
	}
	fd_close(fd[1]);
	if (pid < 0) {
		fd_close(fd[0]);
		return bench_testbed_fail(w, "fork: %s", strerror(errno));
	}
	setpgid(pid, pid); /* parent and child both set it, whichever runs first */
	w->children[slot] = pid;
	if (ret_out) {
		*ret_out = fd[0];
	}
	return pid;
}

static void forget(struct bench_testbed *w, pid_t pid)
{
	for (unsigned i = 0; i < TESTBED_CHILDREN; i++) {
		if (w->children[i] == pid) {
			w->children[i] = 0;
		}
	}
}

bool bench_testbed_lives(struct bench_testbed *w, pid_t pid)
{
	siginfo_t info = { 0 };

	/* not reaped, so that the group's id is not reused */
	return pid > 0 && waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
	       info.si_pid == 0;
}

/* Reaps a killed process. One that hangs in the driver is abandoned. */
static void reap(pid_t pid)
{
	uint64_t deadline = clock_now_ns() + clock_patience(REAP_NS);

	while (waitpid(pid, NULL, WNOHANG) == 0 && clock_now_ns() < deadline) {
		clock_sleep_ns(500000);
	}
}

void bench_testbed_end(struct bench_testbed *w, pid_t pid, unsigned grace_ms)
{
	uint64_t deadline = clock_now_ns() + (uint64_t)grace_ms * 1000000;

	if (pid <= 0) {
		return;
	}
	if (grace_ms && bench_testbed_lives(w, pid)) {
		kill(pid, SIGTERM);
		while (bench_testbed_lives(w, pid) && clock_now_ns() < deadline) {
			clock_sleep_ns(1000000);
		}
	}
	kill(-pid, SIGKILL); /* also processes that outlived their leader */
	reap(pid);
	forget(w, pid);
}

int bench_testbed_apart(struct bench_testbed *w, int (*run)(void *arg), void *arg)
{
	char *error = mmap(NULL, sizeof(w->error), PROT_READ | PROT_WRITE,
			   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pid_t pid, parent = getpid();
	int status = 0;

	fflush(stdout);
	pid = error == MAP_FAILED ? -1 : fork();
	if (pid < 0) {
		return bench_testbed_fail(w, "no process to measure in: %s", strerror(errno));
	}
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() != parent) {
			_exit(APART_FAILED);
		}
		status = run(arg);
		memcpy(error, w->error, sizeof(w->error));
		_exit(status < 0 ? APART_FAILED : status);
	}
	while (!interrupted && waitpid(pid, &status, WNOHANG) == 0) {
		clock_sleep_ns(APART_POLL_NS);
	}
	w->last_progress[0] = '?'; /* the child may have left a line of progress */
	if (interrupted) {
		kill(pid, SIGKILL);
		reap(pid);
	}
	memcpy(w->error, error, sizeof(w->error));
	munmap(error, sizeof(w->error));
	if (!interrupted && !WIFEXITED(status)) {
		putchar('\n'); /* it may have been ended within a record */
	}
	if (interrupted || !WIFEXITED(status)) {
		return bench_testbed_fail(
			w, "%s", interrupted ? "interrupted" : strsignal(WTERMSIG(status)));
	}
	return WEXITSTATUS(status) == APART_FAILED ? -1 : WEXITSTATUS(status);
}

/* ---- the soft GPU ---- */

/* Waits for a byte on the pipe, which reports that clients can connect. */
static int await_soft(struct bench_testbed *w, int ready)
{
	struct pollfd p = { .fd = ready, .events = POLLIN };
	uint64_t deadline = clock_now_ns() + clock_patience(START_NS);
	char byte;

	while (clock_now_ns() < deadline && !interrupted) {
		if (poll(&p, 1, 100) == 1) {
			return read(ready, &byte, 1) == 1
				       ? 0
				       : bench_testbed_fail(w,
							    "cannot start the soft GPU's server %s",
							    w->server);
		}
	}
	return bench_testbed_fail(w, interrupted ? "interrupted"
						 : "the soft GPU's server is not ready in time");
}

static int start_soft(struct bench_testbed *w)
{
	struct bench_testbed_command k;
	char log[160];
	int ready[2], err;

	if (pipe2(ready, O_CLOEXEC) < 0) {
		return bench_testbed_fail(w, "pipe: %s", strerror(errno));
	}
	snprintf(w->soft_socket, sizeof(w->soft_socket), "%s/softgpu.sock", w->dir);
	snprintf(log, sizeof(log), "%s/softgpu.log", w->dir);
	bench_command_init(&k);
	bench_command_add(&k, "%s", w->server);
	bench_command_add(&k, "--foreground");
	bench_command_option(&k, "--socket", "%s", w->soft_socket);
	bench_command_option(&k, "--ready-fd", "%d", ready[1]);
	if (w->link_bandwidth) {
		bench_command_option(&k, "--link-bandwidth", "%s", w->link_bandwidth);
	}
	w->server_pid = bench_testbed_spawn(w, &k, log, ready[1], NULL);
	bench_command_finish(&k);
	fd_close(ready[1]);
	err = w->server_pid < 0 ? -1 : await_soft(w, ready[0]);
	w->server_pid = MAX(w->server_pid, 0);
	fd_close(ready[0]);
	setenv("GBPF_SOFTGPU_SOCKET", w->soft_socket, 1);
	return err;
}

/* ---- gbpfd ---- */

json_t *bench_testbed_tenants(const struct bench_testbed_daemon *d)
{
	char *text = NULL;
	json_t *doc = gbpf_ps(d->g, &text) < 0 ? NULL : json_loads(text, 0, NULL);
	json_t *tenants = json_incref(json_object_get(doc, "tenants"));

	json_decref(doc);
	free(text);
	return tenants;
}

json_t *bench_testbed_own_tenant(const struct bench_testbed_daemon *d)
{
	json_t *list = bench_testbed_tenants(d), *t, *own = NULL;
	size_t i;

	json_array_foreach(list, i, t)
	{
		if (json_integer_value(json_object_get(t, "pid")) == (json_int_t)getpid()) {
			own = json_incref(t);
		}
	}
	json_decref(list);
	return own;
}

int bench_testbed_enter(struct bench_testbed *w, const struct bench_testbed_daemon *d,
			const char *class_name)
{
	char cache[128];

	snprintf(cache, sizeof(cache), "%s/cache", w->dir);
	unsetenv("GBPF_CACHE");
	return (!d && setenv("GBPF_OFF", "1", 1)) || setenv("GBPF_CACHE_DIR", cache, 1) ||
			       setenv("GBPF_RUNTIME_DIR", d ? d->dir : w->dir, 1) ||
			       setenv("GBPF_REAL_CUDA", w->libcuda, 1) ||
			       setenv("GBPF_CLASS", class_name, 1) ||
			       setenv("GBPF_NAME", program_invocation_short_name, 1)
		       ? bench_testbed_fail(w, "out of memory")
		       : 0;
}

json_t *bench_testbed_coverage(const struct bench_testbed_daemon *d, const char *name)
{
	char params[96], *text = NULL;
	json_t *doc, *tenants;

	snprintf(params, sizeof(params), "{\"to\":\"%.64s\"}", name);
	doc = gbpf_call(d->g, "probe.coverage", params, -1, &text) < 0 ? NULL
								       : json_loads(text, 0, NULL);
	tenants = json_incref(json_object_get(doc, "tenants"));
	json_decref(doc);
	free(text);
	return tenants;
}

int bench_testbed_counters(struct bench_testbed *w, const struct bench_testbed_daemon *d,
			   const uint32_t *pid, unsigned n, const char *name, uint64_t *v)
{
	json_t *list = bench_testbed_tenants(d), *j;
	unsigned found = 0;
	size_t k;

	json_array_foreach(list, k, j)
	{
		json_int_t id = json_integer_value(json_object_get(j, "pid"));
		json_t *counter = json_object_get(json_object_get(j, "stats"), name);

		for (unsigned i = 0; i < n; i++) {
			if (id == (json_int_t)pid[i]) {
				v[i] = (uint64_t)json_integer_value(counter);
				found++;
			}
		}
	}
	json_decref(list);
	return found == n ? 0 : bench_testbed_fail(w, "gbpfd lists %u of %u programs", found, n);
}

static int append_event(void *arg, const char *event)
{
	return json_array_append_new(arg, json_loads(event, 0, NULL)) < 0 ? -ENOMEM : 0;
}

json_t *bench_testbed_events(const struct bench_testbed_daemon *d, uint64_t since)
{
	json_t *events = json_array();

	if (events) {
		(void)gbpf_events(d->g, since, 0, 0, append_event, events);
	}
	return events;
}

int bench_testbed_vgpu(struct bench_testbed *w, const struct bench_testbed_daemon *d,
		       const char *name, uint64_t mem, uint64_t swap, uint64_t reserve,
		       unsigned prio)
{
	struct gbpf_vgpu v = { .size = sizeof(v),
			       .given = GBPF_GIVEN_MEM | GBPF_GIVEN_SWAP | GBPF_GIVEN_RESERVE |
					GBPF_GIVEN_PRIO,
			       .mem = mem,
			       .swap = swap,
			       .reserve = reserve,
			       .prio = prio };
	int err = gbpf_vgpu_create(d->g, name, &v, NULL);

	err = err == -EEXIST ? gbpf_vgpu_set(d->g, name, &v, NULL) : err;
	return err ? bench_testbed_fail(w, "virtual GPU %s: %s", name,
					gbpf_last_error(d->g)->message)
		   : 0;
}

static int start_gbpfd(struct bench_testbed *w, struct bench_testbed_daemon *d)
{
	char state[160];
	struct gbpf_start_options o = { .size = sizeof(o),
					.program = w->gbpfd,
					.device = w->soft ? "soft" : "nvidia",
					.state_dir = state,
					.idle_exit_s = 60 };

	snprintf(state, sizeof(state), "%s/state", d->dir);
	if (gbpf_open(&d->g, d->dir, GBPF_OPEN_NO_CONNECT) < 0 || gbpf_start_daemon(d->g, &o) < 0) {
		return bench_testbed_fail(w, "cannot start gbpfd: %s",
					  gbpf_last_error(d->g)->message);
	}
	return 0;
}

struct bench_testbed_daemon *bench_testbed_gbpfd(struct bench_testbed *w, const char *policy)
{
	struct bench_testbed_daemon *d = &w->daemon[w->daemons];
	int err;

	if (w->daemons == TESTBED_DAEMONS) {
		bench_testbed_fail(w, "too many gbpfds");
		return NULL;
	}
	snprintf(d->dir, sizeof(d->dir), "%s/gbpfd%u", w->dir, w->daemons);
	w->daemons++;
	if (mkdir(d->dir, 0700) < 0) {
		bench_testbed_fail(w, "%s: %s", d->dir, strerror(errno));
		return NULL;
	}
	if (start_gbpfd(w, d) < 0) {
		return NULL;
	}
	err = policy ? gbpf_policy_load(d->g, policy, NULL, GBPF_LOAD_SWAP, NULL)
		     : gbpf_policy_unload(d->g, NULL);
	if (err < 0 && (policy || err != -ENOENT)) {
		bench_testbed_fail(w, "%s", gbpf_last_error(d->g)->message);
		return NULL;
	}
	return d;
}

struct bench_testbed_daemon *bench_testbed_gbpfd_with(struct bench_testbed *w, const char *folder,
						      const char *policy)
{
	char path[4200];

	snprintf(path, sizeof(path), "%.4000s/%.60s.bpf.o", folder,
		 strcmp(policy, "none") == 0 ? "fifo" : policy);
	return bench_testbed_gbpfd(w, path);
}

int bench_testbed_kill_gbpfd(struct bench_testbed *w, struct bench_testbed_daemon *d)
{
	const struct gbpf_hello *h = d->g ? gbpf_hello(d->g) : NULL;
	int fd = h && h->pid > 0 ? (int)syscall(SYS_pidfd_open, h->pid, 0) : -1;
	struct pollfd p = { .fd = fd, .events = POLLIN };
	bool exited = fd >= 0 && syscall(SYS_pidfd_send_signal, fd, SIGKILL, NULL, 0) == 0 &&
		      poll(&p, 1, (int)clock_patience(10000)) > 0;

	fd_close(fd);
	gbpf_close(d->g);
	d->g = NULL;
	return exited ? 0 : bench_testbed_fail(w, "gbpfd cannot be killed");
}

int bench_testbed_restart_gbpfd(struct bench_testbed *w, struct bench_testbed_daemon *d)
{
	return start_gbpfd(w, d);
}

/* gbpfd is detached, so it cannot be waited for: its pidfd reports its exit. */
static void stop_gbpfd(struct bench_testbed_daemon *d)
{
	const struct gbpf_hello *h = d->g ? gbpf_hello(d->g) : NULL;
	pid_t pid = h ? h->pid : 0;
	int fd = pid > 0 ? (int)syscall(SYS_pidfd_open, pid, 0) : -1;
	struct pollfd p = { .fd = fd, .events = POLLIN };

	if (d->g) {
		gbpf_set_timeout(d->g, (unsigned)clock_patience(3000));
		gbpf_shutdown(d->g);
	}
	if (fd >= 0 && poll(&p, 1, (int)clock_patience(5000)) == 0) {
		syscall(SYS_pidfd_send_signal, fd, SIGKILL, NULL, 0);
		poll(&p, 1, (int)clock_patience(5000));
	}
	fd_close(fd);
	gbpf_close(d->g);
	d->g = NULL;
}

bool bench_testbed_run_offers(struct bench_testbed *w, const char *option)
{
	uint64_t deadline = clock_now_ns() + clock_patience(START_NS);
	struct bench_testbed_command k;
	struct buf text;
	char log[160];
	bool found;
	pid_t pid;

	snprintf(log, sizeof(log), "%s/run-help.log", w->dir);
	bench_command_init(&k);
	bench_command_add(&k, "%s", w->gbpf);
	bench_command_add(&k, "run");
	bench_command_add(&k, "--help");
	unlink(log);
	pid = bench_testbed_spawn(w, &k, log, -1, NULL);
	bench_command_finish(&k);
	while (pid > 0 && bench_testbed_lives(w, pid) && clock_now_ns() < deadline) {
		clock_sleep_ns(1000000);
	}
	bench_testbed_end(w, pid, 0);
	buf_init(&text);
	found = buf_read_file(&text, log, 1 << 20) == 0 && strstr(buf_text(&text), option);
	buf_finish(&text);
	return found;
}

/* ---- MPS ---- */

/* The soft GPU needs no MPS daemon: clients that name the same folder share a lane. */
int bench_testbed_mps(struct bench_testbed *w)
{
	uint64_t deadline = clock_now_ns() + clock_patience(START_NS);
	struct bench_testbed_command k;
	char path[192], log[160];

	if (w->mps_dir[0]) {
		return 0;
	}
	snprintf(w->mps_dir, sizeof(w->mps_dir), "%s/mps", w->dir);
	if (mkdir(w->mps_dir, 0700) < 0) {
		return bench_testbed_fail(w, "%s: %s", w->mps_dir, strerror(errno));
	}
	if (w->soft) {
		return 0;
	}
	snprintf(log, sizeof(log), "%s/mps.log", w->dir);
	bench_command_init(&k);
	bench_command_env(&k, "CUDA_MPS_PIPE_DIRECTORY=%s", w->mps_dir);
	bench_command_env(&k, "CUDA_MPS_LOG_DIRECTORY=%s", w->mps_dir);
	bench_command_add(&k, "nvidia-cuda-mps-control");
	bench_command_add(&k, "-f");
	w->mps_pid = bench_testbed_spawn(w, &k, log, -1, NULL);
	bench_command_finish(&k);
	snprintf(path, sizeof(path), "%s/control", w->mps_dir);
	while (w->mps_pid > 0 && access(path, F_OK) < 0) {
		if (!bench_testbed_lives(w, w->mps_pid) || clock_now_ns() > deadline) {
			bench_testbed_end(w, w->mps_pid, 1000);
			w->mps_pid = 0;
			break;
		}
		clock_sleep_ns(10000000);
	}
	if (w->mps_pid <= 0) {
		w->mps_dir[0] = 0;
		return bench_testbed_fail(w, "cannot start nvidia-cuda-mps-control");
	}
	return 0;
}

/* The MPS server does not end with its daemon; `quit` ends both. */
static void stop_mps(struct bench_testbed *w)
{
	struct bench_testbed_command k;
	uint64_t deadline = clock_now_ns() + clock_patience(10000000000ull);
	char log[160];
	pid_t pid;

	if (w->mps_pid <= 0) {
		return;
	}
	snprintf(log, sizeof(log), "%s/mps.log", w->dir);
	bench_command_init(&k);
	bench_command_env(&k, "CUDA_MPS_PIPE_DIRECTORY=%s", w->mps_dir);
	bench_command_add(&k, "sh");
	bench_command_add(&k, "-c");
	bench_command_add(&k, "echo quit -t 2 | nvidia-cuda-mps-control");
	pid = bench_testbed_spawn(w, &k, log, -1, NULL);
	bench_command_finish(&k);
	while (pid > 0 && bench_testbed_lives(w, pid) && clock_now_ns() < deadline) {
		clock_sleep_ns(5000000);
	}
	bench_testbed_end(w, pid, 0);
	bench_testbed_end(w, w->mps_pid, 5000);
	w->mps_pid = 0;
}

/* ---- life ---- */

static int make_folder(struct bench_testbed *w)
{
	const char *tmp = getenv("TMPDIR");

	/* Contains sockets, whose paths are limited in length. */
	snprintf(w->dir, sizeof(w->dir), "%s/gbpf-bench-XXXXXX",
		 tmp && tmp[0] == '/' && strlen(tmp) < 48 ? tmp : "/tmp");
	if (!mkdtemp(w->dir)) {
		int err = errno;

		w->dir[0] = 0;
		return bench_testbed_fail(w, "cannot create a folder: %s", strerror(err));
	}
	return 0;
}

int bench_testbed_init(struct bench_testbed *w)
{
	static const char *const clean[] = { "LD_PRELOAD", "GBPF_REAL_CUDA",
					     "GBPF_OFF",   "GBPF_CLASS",
					     "GBPF_NAME",  "GBPF_STRICT",
					     "GBPF_HINT",  "CUDA_MPS_PIPE_DIRECTORY" };
	struct sigaction sa = { .sa_handler = on_signal }, was;

	for (size_t i = 0; i < ARRAY_SIZE(ending); i++) {
		if (sigaction(ending[i], NULL, &was) == 0 && was.sa_handler != SIG_IGN) {
			sigaction(ending[i], &sa, NULL);
		}
	}
	signal(SIGPIPE, SIG_IGN);
	w->policy_name = w->policy_name ? w->policy_name : "";
	signal(SIGCHLD, SIG_DFL); /* if it is ignored, ends of children are not seen */
	for (size_t i = 0; i < ARRAY_SIZE(clean); i++) {
		unsetenv(clean[i]);
	}
	/* adopt orphaned descendants, so that they can be ended */
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	if (make_folder(w) < 0) {
		return -1;
	}
	return w->soft ? start_soft(w) : 0;
}

static int remove_entry(const char *path, const struct stat *st, int kind, struct FTW *where)
{
	(void)st;
	(void)kind;
	(void)where;
	return remove(path);
}

/* Ends adopted descendants: a server of MPS, or processes that a user's command started. */
static void end_orphans(void)
{
	char path[64];
	int pid;
	FILE *f;

	while (waitpid(-1, NULL, WNOHANG) > 0) {
	}
	snprintf(path, sizeof(path), "/proc/self/task/%d/children", (int)getpid());
	f = fopen(path, "re");
	while (f && fscanf(f, "%d", &pid) == 1) {
		if (pid > 1) {
			kill(pid, SIGKILL);
			reap(pid);
		}
	}
	if (f) {
		fclose(f);
	}
}

void bench_testbed_finish(struct bench_testbed *w)
{
	for (unsigned i = 0; i < TESTBED_CHILDREN; i++) {
		if (w->children[i] && w->children[i] != w->server_pid &&
		    w->children[i] != w->mps_pid) {
			bench_testbed_end(w, w->children[i], 0);
		}
	}
	for (unsigned i = 0; i < w->daemons; i++) {
		stop_gbpfd(&w->daemon[i]);
	}
	stop_mps(w);
	bench_testbed_end(w, w->server_pid, 3000);
	w->server_pid = 0;
	end_orphans();
	if (w->dir[0]) {
		nftw(w->dir, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
	}
}
