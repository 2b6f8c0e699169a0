/* gbpfd: opens everything in order, serves, and closes everything in reverse order. */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/paths.h"
#include "base/private_file.h"
#include "daemon/audit.h"
#include "daemon/budget.h"
#include "daemon/control_socket.h"
#include "daemon/exits/exit_record.h"
#include "daemon/hw/hw_control.h"
#include "daemon/hw/mps.h"
#include "daemon/idle/idle_boards.h"
#include "daemon/hw/sharing_mode.h"
#include "daemon/main/options.h"
#include "daemon/policy/daemon_hooks.h"
#include "daemon/policy/policies.h"
#include "daemon/policy/policy_prints.h"
#include "daemon/probe/probes.h"
#include "daemon/runtime.h"
#include "daemon/session/tenant_session.h"
#include "daemon/vgpu/vgpu.h"
#include "daemon/watch/watch.h"

#define PROC_NVIDIA "/proc/driver/nvidia/gpus"
#define NODE_NVIDIA "/dev/nvidiactl"
#define BACKGROUND_MS 10000

/* Raises the limit of open files: each tenant needs about six, and there may be a thousand tenants.
 */
static void raise_limits(void)
{
	struct rlimit l;

	if (getrlimit(RLIMIT_NOFILE, &l) == 0) {
		l.rlim_cur = MIN(l.rlim_max, (rlim_t)65536);
		setrlimit(RLIMIT_NOFILE, &l);
	}
}

static int open_directory(struct daemon *d)
{
	struct proto_directory *dir;
	int err = daemon_page_create(&d->directory, "gbpf-directory", PROTO_PAGE_BYTES);

	if (err) {
		return err;
	}
	dir = d->directory.map;
	dir->magic = PROTO_DIRECTORY_MAGIC;
	dir->abi = PROTO_ABI;
	while (d->generation ==
	       0) { /* differs from that of earlier gbpfd processes; 0 means not serving */
		if (getrandom(&d->generation, sizeof(d->generation), 0) < 0) {
			d->generation = (uint32_t)clock_now_ns() | 1u;
		}
	}
	err = daemon_page_seal(&d->directory);
	return err == -EINVAL
		       ? daemon_runtime_fail(
				 d, err,
				 "this kernel cannot seal shared pages (F_SEAL_FUTURE_WRITE): "
				 "Linux 5.1 or later is needed")
		       : err;
}

static int open_parts(struct daemon *d)
{
	struct group *group = getgrnam("gbpf");
	int err = sd_event_new(&d->loop);

	d->access.group = group ? group->gr_gid : (gid_t)-1;
	if (err >= 0) {
		err = open_directory(d);
	}
	if (err >= 0) {
		err = daemon_job_thread_start(&d->worker, d->loop, 1);
	}
	if (err >= 0) {
		err = daemon_job_thread_start(&d->verifiers, d->loop, DAEMON_JOB_THREADS);
	}
	if (err >= 0) {
		err = daemon_job_thread_start(&d->tool_builder, d->loop, 1);
	}
	return err < 0 ? daemon_runtime_fail(d, err, "cannot start: %s", strerror(-err)) : 0;
}

static int open_devices(struct daemon *d)
{
	int err = daemon_gpus_open(&d->devices, d->opt.device, PROC_NVIDIA, NODE_NVIDIA);

	return err ? daemon_runtime_fail(d, err,
					 "no NVIDIA GPU or driver found (neither %s nor %s): "
					 "install the driver, or use --device soft",
					 PROC_NVIDIA, NODE_NVIDIA)
		   : 0;
}

static int open_store(struct daemon *d)
{
	int err = daemon_history_open(&d->history, d->opt.state, "events");

	if (!err) {
		err = daemon_history_open(&d->audit, d->opt.state, "audit");
	}
	if (!err) {
		err = daemon_policies_open(d);
	}
	if (!err) {
		err = daemon_probes_open(d);
	}
	if (!err) {
		err = daemon_ticker_open(d);
	}
	if (!err) {
		err = daemon_idle_open(d);
	}
	if (!err) {
		daemon_vgpus_open(d);
		err = daemon_mps_open(d);
	}
	if (!err) {
		err = daemon_hw_open(d);
	}
	return err ? daemon_runtime_fail(d, err, "cannot use the state directory %s: %s",
					 d->opt.state, strerror(-err))
		   : 0;
}

static int open_sockets(struct daemon *d)
{
	char path[DAEMON_PATH + 16], admin[DAEMON_PATH + 16];
	int err;

	snprintf(path, sizeof(path), "%s/control.sock", d->opt.runtime);
	snprintf(admin, sizeof(admin), "%s/admin.sock", d->opt.runtime);
	err = daemon_control_open(d, path, admin);
	if (!err) {
		snprintf(path, sizeof(path), "%s/session.sock", d->opt.runtime);
		err = daemon_sessions_open(d, path);
	}
	if (err == -ENAMETOOLONG) {
		return daemon_runtime_fail(
			d, err,
			"the path of the runtime directory %s is too long for a socket (108 bytes)",
			d->opt.runtime);
	}
	return err < 0 ? daemon_runtime_fail(d, err, "cannot listen in %s: %s", d->opt.runtime,
					     strerror(-err))
		       : 0;
}

/* Loads the first policy and the tools before serving, so that they are there when the first
 * process reconnects. */
static int load_first(struct daemon *d)
{
	const char *failed;
	int err = daemon_policies_begin(d);

	while (!err && daemon_policies_busy(d)) {
		int r = sd_event_run(d->loop, UINT64_MAX);

		err = r < 0 ? r : 0;
	}
	if (err && path_policy_is_example(d->opt.policy)) {
		return daemon_runtime_fail(
			d, err, "no policy '%s' is installed; it is an example: examples/%s",
			d->opt.policy, d->opt.policy);
	}
	if (err) {
		return daemon_runtime_fail(d, err, "policy '%s' cannot be read: %s", d->opt.policy,
					   strerror(-err));
	}
	failed = daemon_policies_first_failed(d);
	if (!failed) {
		daemon_watches_resume(d);
		daemon_probes_restore(d);
	}
	return failed ? daemon_runtime_fail(d, -EINVAL, "policy '%s' cannot be loaded: %s",
					    d->opt.policy, failed)
		      : 0;
}

static int watch_signals(struct daemon *d)
{
	sigset_t set;
	int err;

	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigprocmask(SIG_BLOCK, &set, NULL);
	signal(SIGPIPE, SIG_IGN);
	signal(SIGHUP, SIG_IGN);
	signal(SIGXFSZ, SIG_IGN);
	err = sd_event_add_signal(d->loop, NULL, SIGTERM, NULL, NULL);
	if (err >= 0) {
		err = sd_event_add_signal(d->loop, NULL, SIGINT, NULL, NULL);
	}
	return err < 0 ? daemon_runtime_fail(d, err, "cannot watch signals: %s", strerror(-err))
		       : 0;
}

static int open_all(struct daemon *d)
{
	int (*const steps[])(struct daemon * d) = { daemon_runtime_open, open_parts, watch_signals,
						    open_devices,	 open_store, load_first,
						    open_sockets };

	for (size_t i = 0; i < ARRAY_SIZE(steps); i++) {
		int err = steps[i](d);

		if (err) {
			return err;
		}
	}
	return 0;
}

static void close_all(struct daemon *d)
{
	bool tenants_left;

	d->ending = true;
	daemon_runtime_state(d, RUNTIME_STOPS);
	if (d->directory.map) {
		store_seqcst(&daemon_directory(d)->generation, 0u);
	}
	if (d->control) {
		daemon_history_add(&d->history, "stop", -1,
				   "gbpfd exits; programs continue with the last policy");
	}
	daemon_job_thread_stop(&d->verifiers);
	daemon_job_thread_stop(&d->tool_builder);
	daemon_job_thread_stop(&d->worker);
	daemon_control_close(d);
	tenants_left = daemon_lane_tenants(d) > 0;
	daemon_hw_close(d);
	daemon_sessions_close(d);
	daemon_exit_records_close(d);
	daemon_mps_close(d, tenants_left);
	daemon_budget_close(d);
	daemon_ticker_close(d);
	daemon_vgpus_close(d);
	daemon_idle_close(d);
	daemon_watches_close(d);
	daemon_probes_close(d);
	daemon_policies_close(d);
	daemon_prints_close(d);
	daemon_history_close(&d->history);
	daemon_history_close(&d->audit);
	daemon_page_destroy(&d->directory);
	daemon_runtime_close(d);
	sd_event_unref(d->loop);
	fd_close(d->access.spare_fd);
}

/* Detaches from the caller's terminal or pipe; the log goes to a file. */
static void leave_terminal(const struct daemon *d)
{
	char path[DAEMON_PATH + 16];
	int null, file;

	if (d->opt.foreground) {
		return;
	}
	snprintf(path, sizeof(path), "%s/gbpfd.log", d->opt.runtime);
	null = open("/dev/null", O_RDWR | O_CLOEXEC);
	file = private_file_open(path, O_WRONLY | O_CREAT | O_APPEND);
	dup2(null, STDIN_FILENO);
	dup2(file >= 0 ? file : null, STDOUT_FILENO);
	dup2(file >= 0 ? file : null, STDERR_FILENO);
	fd_close(null);
	fd_close(file);
}

static int serve(struct daemon_options *o)
{
	struct daemon *d = calloc(1, sizeof(*d));
	int r;

	if (!d) {
		return 1;
	}
	d->opt = *o;
	d->uid = geteuid();
	d->locks.runtime_fd = d->locks.state_fd = d->locks.phase_fd = d->sessions.fd = -1;
	d->directory = DAEMON_PAGE_NONE;
	d->started_ns = clock_now_ns();
	d->vgpus.pinnable = o->pinned_mib ? o->pinned_mib << 20
					  : (uint64_t)sysconf(_SC_PHYS_PAGES) *
						    (uint64_t)sysconf(_SC_PAGESIZE) / 2;
	d->access.spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	raise_limits();
	umask(022);
	r = open_all(d);
	if (!r) {
		daemon_history_add(&d->history, "serve", (int)getpid(),
				   "gbpfd %s serves %s (device %s, policy %s)", GBPF_VERSION_TEXT,
				   d->opt.runtime, d->devices.kind,
				   daemon_policy_first_active(d) ? daemon_policy_active_name(d, 0)
								 : "none");
		daemon_audit(d, NULL, "serve", 0, "gbpfd %s serves %s", GBPF_VERSION_TEXT,
			     d->opt.runtime);
		log_info("serving %s, device %s, policy %s", d->opt.runtime, d->devices.kind,
			 daemon_policy_first_active(d) ? daemon_policy_active_name(d, 0) : "none");
		store_seqcst(&daemon_directory(d)->generation, d->generation);
		daemon_runtime_state(d, RUNTIME_SERVES);
		daemon_runtime_ready(d);
		leave_terminal(d);
		r = sd_event_loop(d->loop);
	}
	close_all(d);
	free(d);
	return r == 0 ? 0 : 1;
}

/* Runs in the parent of a gbpfd that goes to the background: returns the exit code when the child
 * is ready or has failed. */
static int await(int fd)
{
	char text[1024];
	size_t len = 0;
	ssize_t n = 0;
	struct pollfd p = { .fd = fd, .events = POLLIN };

	while (len < sizeof(text) - 1 && poll(&p, 1, (int)clock_patience(BACKGROUND_MS)) > 0 &&
	       (n = read(fd, text + len, sizeof(text) - 1 - len)) > 0) {
		len += (size_t)n;
	}
	text[len] = 0;
	return strcmp(text, "ready\n") == 0 ? 0 : 1; /* the child has printed the error */
}

static int to_background(struct daemon_options *o)
{
	int p[2];
	pid_t pid;

	if (o->foreground) {
		return -1;
	}
	if (pipe2(p, O_CLOEXEC) < 0 || (pid = fork()) < 0) {
		log_error("cannot go to the background: %s", strerror(errno));
		return 1;
	}
	if (pid > 0) {
		close(p[1]);
		return await(p[0]);
	}
	close(p[0]);
	setsid();
	o->ready_fd = p[1];
	return -1;
}

int main(int argc, char **argv)
{
	static struct daemon_options o;
	int r;

	log_setup("gbpfd", LOG_LEVEL_INFO);
	unsetenv("GBPF_VGPU"); /* of its starter: NVML must show gbpfd whole devices */
	r = daemon_options_parse(&o, argc, argv);
	if (r <= 0) {
		return r < 0 ? 2 : fflush(stdout) == 0 ? 0 : 1;
	}
	if (o.ready_fd >= 0 && fcntl(o.ready_fd, F_SETFD, FD_CLOEXEC) < 0) {
		log_error("invalid descriptor %d for --ready-fd: %s", o.ready_fd, strerror(errno));
		return 2;
	}
	r = to_background(&o);
	return r >= 0 ? r : serve(&o);
}
