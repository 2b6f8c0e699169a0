/* gbpf-softgpu: the soft GPUs of one user. Listens, starts a thread for each client, and exits when
 * idle for --idle-exit seconds. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/private_file.h"
#include "soft/server/connection.h"
#include "soft/server/finding.h"
#include "soft/server/machine.h"
#include "soft/server/run/kernel_launch.h"
#include "soft/server/run/worker_thread.h"
#include "soft/server/softgpu_options.h"
#include "soft/socket.h"

struct softd_server {
	struct softd_machine machine;
	char path[SOFT_SOCKET_PATH_MAX]; /* fits sockaddr_un */
	int listener;
	int lock_fd; /* flock held while this server runs: one server per socket path */
	struct softd_options o;
};

static volatile sig_atomic_t stop_requested;

static void on_signal(int sig)
{
	(void)sig;
	stop_requested = 1;
}

static int copy_path(struct softd_server *s, const char *path)
{
	size_t len = strlen(path);

	if (len >= sizeof(s->path)) {
		return -ENAMETOOLONG;
	}
	memcpy(s->path, path, len + 1);
	return 0;
}

static int find_socket(struct softd_server *s)
{
	return s->o.socket ? copy_path(s, s->o.socket)
			   : soft_socket_path(s->path, sizeof(s->path), true);
}

static int open_sibling(const struct softd_server *s, const char *suffix)
{
	char path[sizeof(s->path) + 16];

	snprintf(path, sizeof(path), "%s%s", s->path, suffix);
	return private_file_open(path, O_RDWR | O_CREAT);
}

static int take_lock(struct softd_server *s)
{
	s->lock_fd = open_sibling(s, ".lock");
	if (s->lock_fd < 0) {
		return s->lock_fd;
	}
	for (int tries = 0; flock(s->lock_fd, LOCK_EX | LOCK_NB) < 0; tries++) {
		if (errno != EWOULDBLOCK || tries == 200) {
			return -EBUSY;
		}
		clock_sleep_ns(10000000); /* a server that is exiting may hold it for a moment */
	}
	return 0;
}

static int start_listening(struct softd_server *s)
{
	s->listener = unix_listen(s->path, SOCK_SEQPACKET, 0600);
	return s->listener < 0 ? s->listener : 0;
}

static void accept_one(struct softd_server *s)
{
	int fd = accept4(s->listener, NULL, NULL, SOCK_CLOEXEC);
	struct peer p;
	int err;

	if (fd < 0) {
		if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED) {
			log_warn("cannot accept a program: %s; raise the limit of open files "
				 "(ulimit -n)",
				 strerror(errno));
			clock_sleep_ns(10000000); /* probably out of descriptors: do not spin */
		}
		return;
	}
	if (fd_peer(fd, &p) < 0 || (p.uid != geteuid() && p.uid != 0)) {
		fd_close_peer(fd);
		return;
	}
	err = softd_client_start(&s->machine, fd, p.pid);
	if (err) {
		log_warn("process %d refused: %s", p.pid,
			 err == -ENOSPC ? "too many connections" : strerror(-err));
	}
}

/* Returns true if the server may exit: no client has connected or can connect any more. Clients
 * start servers while holding the .start lock, so holding it here excludes a client that expects
 * this server to be running. */
static bool may_exit(struct softd_server *s)
{
	struct pollfd p = { .fd = s->listener, .events = POLLIN };
	int start = open_sibling(s, ".start");

	if (start == -ENOENT) {
		return true; /* the folder has been removed: no client can connect */
	}
	if (start < 0 || flock(start, LOCK_EX | LOCK_NB) < 0) {
		fd_close(start);
		return false;
	}
	if (poll(&p, 1, 0) == 0) {
		unlink(s->path);
		if (poll(&p, 1, 0) == 0) {
			return true; /* the .start lock is released by the exit of this process */
		}
		/* A client connected between poll and unlink: accept it and continue on a new
		 * socket of the same name. */
		accept_one(s);
		close(s->listener);
		if (start_listening(s) < 0) {
			log_error("%s: cannot listen again", s->path);
		}
	}
	close(start);
	return false;
}

static bool idle_timed_out(struct softd_server *s)
{
	uint64_t limit = s->machine.opt.idle_exit_s * 1000000000ull;
	bool idle;

	softd_machine_lock(&s->machine);
	idle = limit && s->machine.n_clients == 0 &&
	       clock_now_ns() - s->machine.last_busy_ns > limit;
	softd_machine_unlock(&s->machine);
	return idle;
}

/* Truncates a log file that exceeds --log-limit. */
static void limit_log(const struct softd_server *s)
{
	struct stat st;

	if (s->o.log_limit && fstat(STDERR_FILENO, &st) == 0 && S_ISREG(st.st_mode) &&
	    (uint64_t)st.st_size > s->o.log_limit && ftruncate(STDERR_FILENO, 0) == 0) {
		log_info("log truncated: longer than %llu bytes",
			 (unsigned long long)s->o.log_limit);
	}
}

static void serve(struct softd_server *s)
{
	while (!stop_requested) {
		struct pollfd p = { .fd = s->listener, .events = POLLIN };

		limit_log(s);
		if (poll(&p, 1, s->machine.opt.idle_exit_s ? 250 : 10000) > 0) {
			accept_one(s);
		} else if (idle_timed_out(s) && may_exit(s)) {
			return;
		}
	}
	unlink(s->path);
}

static int start_thread(void *(*fn)(void *), void *arg)
{
	pthread_t t;

	if (pthread_create(&t, NULL, fn, arg) != 0) {
		return -EAGAIN;
	}
	pthread_detach(t);
	return 0;
}

static int start_threads(struct softd_machine *machine)
{
	int err = 0;

	for (unsigned g = 0; g < machine->opt.gpus; g++) {
		for (unsigned i = 0; i < machine->opt.workers && !err; i++) {
			err = start_thread(softd_worker_main, &machine->gpus[g]);
		}
		for (unsigned i = 0; i < machine->opt.copy_engines && !err; i++) {
			err = start_thread(softd_engine_main, &machine->gpus[g]);
		}
	}
	return err;
}

static void set_up_process(const struct softd_machine_options *o)
{
	struct sigaction sa = { .sa_handler = on_signal };
	struct rlimit files;
	cpu_set_t cpus;

	signal(SIGPIPE, SIG_IGN);
	sigaction(SIGTERM, &sa, NULL);
	sigaction(SIGINT, &sa, NULL);
	if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
		files.rlim_cur = files.rlim_max;
		setrlimit(RLIMIT_NOFILE, &files);
	}
	if (o->cpu >= 0) {
		CPU_ZERO(&cpus);
		CPU_SET((unsigned)o->cpu, &cpus);
		if (sched_setaffinity(0, sizeof(cpus), &cpus) < 0) {
			log_warn("cannot run on processor %d alone: %s", o->cpu, strerror(errno));
		}
	}
}

int main(int argc, char **argv)
{
	static struct softd_server s = { .listener = -1, .lock_fd = -1 };
	int err = softd_options_parse(&s.o, argc, argv);

	if (err) {
		return fflush(stdout) == 0 ? err - 1 : 1;
	}
	log_setup("gbpf-softgpu", getenv("GBPF_DEBUG") ? LOG_LEVEL_DEBUG : LOG_LEVEL_INFO);
	set_up_process(&s.o.device);
	err = find_socket(&s);
	err = err ? err : take_lock(&s);
	if (err == -EBUSY) {
		log_error("another gbpf-softgpu serves %s; stop it first, or choose another socket "
			  "with --socket",
			  s.path);
		return 1;
	}
	err = err ? err : softd_machine_init(&s.machine, &s.o.device);
	err = err ? err : start_listening(&s);
	err = err ? err : start_threads(&s.machine);
	if (err) {
		log_error("%s: cannot start: %s", s.path[0] ? s.path : "runtime directory",
			  strerror(-err));
		return 1;
	}
	if (s.o.ready >= 0) {
		(void)!write(s.o.ready, "1", 1);
		close(s.o.ready);
	}
	serve(&s);
	if (exec_checking() && softd_finding_summary()) {
		_exit(1);
	}
	_exit(0); /* The kernel releases everything; workers may be in the middle of a block. */
}
