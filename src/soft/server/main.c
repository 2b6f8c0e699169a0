/* gbpf-softgpu: the soft GPU of one user. Listens, starts a thread for each client, and leaves when
 * idle if asked to. */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/paths.h"
#include "soft/server/device.h"

#define SLICE_DEFAULT_US 2000u

struct server {
	struct device dev;
	char path[108]; /* of the socket; fits sockaddr_un */
	int listener;
	int life;  /* locked while this server lives, so that there is one for each socket */
	int ready; /* descriptor that is told when clients may connect; -1 */
};

static volatile sig_atomic_t stop_requested;

static void on_signal(int sig)
{
	(void)sig;
	stop_requested = 1;
}

static const char usage[] =
	"Usage: gbpf-softgpu [OPTION]...\n"
	"Serves a software GPU to this user's CUDA programs (through lib/gbpf/soft/libcuda.so.1).\n"
	"\n"
	"  --sms N           multiprocessors to show (default 4)\n"
	"  --mem BYTES       device memory, with suffix K, M or G (default 1G; committed when "
	"used)\n"
	"  --workers N       execution threads (default 1)\n"
	"  --timeslice-us N  default time slice of a context (default 2000)\n"
	"  --idle-exit N     exit after N seconds without clients (default 0: never)\n"
	"  --cpu N           run on this processor only\n"
	"  --socket PATH     socket (default $GBPF_SOFTGPU_SOCKET, else softgpu.sock in the "
	"runtime directory)\n"
	"  --ready-fd N      write a byte to this descriptor when clients may connect\n"
	"  --foreground      accepted for symmetry with gbpfd: this program never goes into the "
	"background\n"
	"  --help, --version\n";

static int parse_number(const char *text, uint64_t min, uint64_t max, uint64_t *ret)
{
	char *end;
	unsigned long long v;
	uint64_t unit = 1;

	errno = 0;
	v = strtoull(text, &end, 10);
	if (errno || end == text || text[0] == '-') {
		return -EINVAL;
	}
	if (*end) {
		const char *k = strchr("KMG", *end);

		if (!k || end[1]) {
			return -EINVAL;
		}
		unit = *end == 'K' ? 1u << 10 : *end == 'M' ? 1u << 20 : 1u << 30;
	}
	if (checked_mul((uint64_t)v, unit, ret) || *ret < min || *ret > max) {
		return -ERANGE;
	}
	return 0;
}

enum {
	OPT_SMS = 256,
	OPT_MEM,
	OPT_WORKERS,
	OPT_SLICE,
	OPT_IDLE,
	OPT_CPU,
	OPT_SOCKET,
	OPT_READY,
	OPT_FOREGROUND,
	OPT_HELP,
	OPT_VERSION
};

static const struct option options[] = {
	{ "sms", required_argument, NULL, OPT_SMS },
	{ "mem", required_argument, NULL, OPT_MEM },
	{ "workers", required_argument, NULL, OPT_WORKERS },
	{ "timeslice-us", required_argument, NULL, OPT_SLICE },
	{ "idle-exit", required_argument, NULL, OPT_IDLE },
	{ "cpu", required_argument, NULL, OPT_CPU },
	{ "socket", required_argument, NULL, OPT_SOCKET },
	{ "ready-fd", required_argument, NULL, OPT_READY },
	{ "foreground", no_argument, NULL, OPT_FOREGROUND },
	{ "help", no_argument, NULL, OPT_HELP },
	{ "version", no_argument, NULL, OPT_VERSION },
	{ 0 },
};

static int copy_path(struct server *s, const char *path)
{
	size_t len = strlen(path);

	if (len >= sizeof(s->path)) {
		return -ENAMETOOLONG;
	}
	memcpy(s->path, path, len + 1);
	return 0;
}

static int set_option(struct server *s, struct device_options *o, int opt, const char *value)
{
	uint64_t v = 0;
	int err = 0;

	switch (opt) {
	case OPT_SMS:
		err = parse_number(value, 1, 1024, &v);
		o->sms = (unsigned)v;
		break;
	case OPT_MEM:
		err = parse_number(value, 1u << 20, 32ull << 30, &v);
		o->memory_bytes = v;
		break;
	case OPT_WORKERS:
		err = parse_number(value, 1, DEVICE_MAX_WORKERS, &v);
		o->workers = (unsigned)v;
		break;
	case OPT_SLICE:
		err = parse_number(value, 1, 10000000, &v);
		o->slice_ns = v * 1000;
		break;
	case OPT_IDLE:
		err = parse_number(value, 0, 1000000, &v);
		o->idle_exit_s = (unsigned)v;
		break;
	case OPT_CPU:
		err = parse_number(value, 0, CPU_SETSIZE - 1, &v);
		o->cpu = (int)v;
		break;
	case OPT_READY:
		err = parse_number(value, 0, 1 << 20, &v);
		s->ready = (int)v;
		break;
	case OPT_SOCKET:
		err = copy_path(s, value);
		break;
	default:
		break;
	}
	return err;
}

/* 0: go on; otherwise the exit code plus one. */
static int parse_options(struct server *s, struct device_options *o, int argc, char **argv)
{
	int opt, index;

	while ((opt = getopt_long(argc, argv, "", options, &index)) >= 0) {
		if (opt == OPT_HELP || opt == OPT_VERSION) {
			fputs(opt == OPT_HELP ? usage : "gbpf-softgpu 0.1.0\n", stdout);
			return 1;
		}
		if (opt == '?') {
			return 3;
		}
		if (set_option(s, o, opt, optarg) < 0) {
			fprintf(stderr, "gbpf-softgpu: --%s: bad value \"%s\"; see --help\n",
				options[index].name, optarg);
			return 3;
		}
	}
	if (optind < argc) {
		fprintf(stderr, "gbpf-softgpu: unexpected argument \"%s\"; see --help\n",
			argv[optind]);
		return 3;
	}
	return 0;
}

static int find_socket(struct server *s)
{
	const char *given = getenv("GBPF_SOFTGPU_SOCKET");
	char dir[sizeof(s->path)];
	int err;

	if (s->path[0]) {
		return 0;
	}
	if (given && given[0] == '/') {
		return copy_path(s, given);
	}
	err = path_runtime(dir, sizeof(dir), NULL);
	err = err ? err : path_make_private(dir, path_runtime_mode());
	return err ? err : path_runtime(s->path, sizeof(s->path), "softgpu.sock");
}

static int open_beside(const struct server *s, const char *suffix)
{
	char path[sizeof(s->path) + 16];
	int fd;

	snprintf(path, sizeof(path), "%s%s", s->path, suffix);
	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	return fd < 0 ? -errno : fd;
}

static int take_life(struct server *s)
{
	s->life = open_beside(s, ".lock");
	if (s->life < 0) {
		return s->life;
	}
	for (int tries = 0; flock(s->life, LOCK_EX | LOCK_NB) < 0; tries++) {
		if (errno != EWOULDBLOCK || tries == 200) {
			return -EBUSY;
		}
		clock_sleep_ns(10000000); /* a server that is just leaving holds it for a moment */
	}
	return 0;
}

static int start_listening(struct server *s)
{
	s->listener = unix_listen(s->path, SOCK_SEQPACKET, 0600);
	return s->listener < 0 ? s->listener : 0;
}

static void accept_one(struct server *s)
{
	int fd = accept4(s->listener, NULL, NULL, SOCK_CLOEXEC);
	struct peer p;

	if (fd < 0) {
		if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED) {
			log_warn("accept: %s", strerror(errno));
			clock_sleep_ns(10000000); /* out of descriptors: do not spin */
		}
		return;
	}
	if (fd_peer(fd, &p) < 0 || (p.uid != geteuid() && p.uid != 0)) {
		close(fd);
		return;
	}
	if (client_start(&s->dev, fd, p.pid) < 0) {
		log_warn("process %d refused: too many clients", p.pid);
	}
}

/* True when nobody can be on the way in any more. Clients start servers under the .start lock. */
static bool may_leave(struct server *s)
{
	struct pollfd p = { .fd = s->listener, .events = POLLIN };
	int start = open_beside(s, ".start");

	if (start == -ENOENT) {
		return true; /* the folder has been removed: nobody can come any more */
	}
	if (start < 0 || flock(start, LOCK_EX | LOCK_NB) < 0) {
		fd_close(start);
		return false;
	}
	if (poll(&p, 1, 0) == 0) {
		unlink(s->path);
		if (poll(&p, 1, 0) == 0) {
			return true; /* start stays locked until this process has gone */
		}
		/* Somebody connected in between: serve on, at a new socket of the same name. */
		accept_one(s);
		close(s->listener);
		if (start_listening(s) < 0) {
			log_error("%s: cannot listen again", s->path);
		}
	}
	close(start);
	return false;
}

static bool idle_for_long(struct server *s)
{
	uint64_t limit = s->dev.opt.idle_exit_s * 1000000000ull;
	bool idle;

	pthread_mutex_lock(&s->dev.lock);
	idle = limit && s->dev.n_clients == 0 && clock_now_ns() - s->dev.last_busy_ns > limit;
	pthread_mutex_unlock(&s->dev.lock);
	return idle;
}

static void serve(struct server *s)
{
	while (!stop_requested) {
		struct pollfd p = { .fd = s->listener, .events = POLLIN };

		if (poll(&p, 1, s->dev.opt.idle_exit_s ? 250 : 10000) > 0) {
			accept_one(s);
		} else if (idle_for_long(s) && may_leave(s)) {
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

static int start_threads(struct device *dev)
{
	int err = 0;

	for (unsigned g = 0; g < dev->opt.gpus; g++) {
		for (unsigned i = 0; i < dev->opt.workers && !err; i++) {
			err = start_thread(worker_main, &dev->gpus[g]);
		}
		for (unsigned i = 0; i < dev->opt.copy_engines && !err; i++) {
			err = start_thread(engine_main, &dev->gpus[g]);
		}
	}
	return err;
}

static void set_up_process(const struct device_options *o)
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
	static struct server s = { .listener = -1, .life = -1, .ready = -1 };
	struct device_options o = { .gpus = 1,
				    .clock_khz = 1000000,
				    .copy_engines = 1,
				    .sms = 4,
				    .workers = 1,
				    .memory_bytes = 1ull << 30,
				    .slice_ns = SLICE_DEFAULT_US * 1000ull,
				    .cpu = -1 };
	int err = parse_options(&s, &o, argc, argv);

	if (err) {
		return err - 1;
	}
	log_setup("gbpf-softgpu", getenv("GBPF_DEBUG") ? LOG_LEVEL_DEBUG : LOG_LEVEL_INFO);
	set_up_process(&o);
	err = find_socket(&s);
	err = err ? err : take_life(&s);
	if (err == -EBUSY) {
		log_error("another gbpf-softgpu serves %s; stop it first, or choose another socket "
			  "with --socket",
			  s.path);
		return 1;
	}
	err = err ? err : device_init(&s.dev, &o);
	err = err ? err : start_listening(&s);
	err = err ? err : start_threads(&s.dev);
	if (err) {
		log_error("%s: cannot start: %s", s.path[0] ? s.path : "runtime directory",
			  strerror(-err));
		return 1;
	}
	if (s.ready >= 0) {
		(void)!write(s.ready, "1", 1);
		close(s.ready);
	}
	serve(&s);
	_exit(0); /* the kernel takes everything back; workers may be in the middle of a block */
}
