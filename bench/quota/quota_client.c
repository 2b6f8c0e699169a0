/* bench-quota-client ROLE --page FD ...: see quota_client.h. The group starts workers, and starts
 * them again on command; it makes no call of CUDA itself, and they end with it. The probe reports
 * what the driver says of the device. */
#include "bench/quota/quota_client.h"

#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "base/fd.h"

#define PROBE_NS 1000000u

struct bench_quota_calls cuda;
static pid_t parent;

void bench_quota_fail(struct bench_quota_client *c, const char *fmt, ...)
{
	char text[sizeof(c->me->error)];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	fprintf(stderr, "bench-quota-client: %s\n", text);
	if (c->me) {
		memcpy(c->me->error, text, sizeof(text));
		store_release(&c->me->state, (uint32_t)QUOTA_FAILED);
	}
	_exit(1);
}

void bench_quota_check(struct bench_quota_client *c, CUresult r, const char *call)
{
	const char *name = NULL;

	if (r == CUDA_SUCCESS) {
		return;
	}
	cuda.cuGetErrorName(r, &name);
	bench_quota_fail(c, "%.120s: %s", call, name ? name : "unknown error");
}

enum bench_quota_activity bench_quota_activity(uint32_t phase)
{
	return (enum bench_quota_activity)(phase % QUOTA_ACTIVITIES);
}

uint32_t bench_quota_await_phase(struct bench_quota_client *c, uint32_t phase)
{
	while (load_acquire(&c->page->phase) == phase) {
		futex_wait_shared(&c->page->phase, phase, 500000000);
		if (getppid() != parent) {
			return QUOTA_EXIT;
		}
	}
	return load_acquire(&c->page->phase);
}

void bench_quota_ready(struct bench_quota_client *c)
{
	store_release(&c->me->state, (uint32_t)QUOTA_READY);
}

bool bench_quota_await_command(struct bench_quota_client *c)
{
	uint32_t done = load_relaxed(&c->me->done);

	while (load_acquire(&c->me->command) == done) {
		if (bench_quota_activity(load_acquire(&c->page->phase)) == QUOTA_EXIT) {
			return false;
		}
		futex_wait_shared(&c->me->command, done, 100000000);
	}
	return true;
}

void bench_quota_complete(struct bench_quota_client *c)
{
	store_release(&c->me->done, load_relaxed(&c->me->command));
	futex_wake_shared(&c->me->done, 1 << 30);
}

void *bench_quota_open_driver(struct bench_quota_client *c)
{
	void *lib = c->driver ? dlopen(c->driver, RTLD_NOW | RTLD_LOCAL) : NULL;

	if (!lib) {
		bench_quota_fail(c, "%s", c->driver ? dlerror() : "--driver is missing");
	}
	return lib;
}

void bench_quota_find(struct bench_quota_client *c, void *lib, const char *name, void *slot)
{
	void *p = dlsym(lib, name);

	if (!p) {
		bench_quota_fail(c, "the driver library lacks %s", name);
	}
	memcpy(slot, &p, sizeof(p));
}

static void open_device(struct bench_quota_client *c)
{
	void *lib = dlopen(c->libcuda, RTLD_NOW | RTLD_GLOBAL);

	if (!lib) {
		bench_quota_fail(c, "%s", dlerror());
	}
#define QUOTA_CALL(name) bench_quota_find(c, lib, #name, &cuda.name);
	QUOTA_CALLS(QUOTA_CALL)
#undef QUOTA_CALL
	CU(c, cuInit(0));
	CU(c, cuDeviceGet(&c->device, 0));
	CU(c, cuDeviceGetName(c->me->device, sizeof(c->me->device), c->device));
	CU(c, cuDevicePrimaryCtxRetain(&c->ctx, c->device));
	CU(c, cuCtxSetCurrent(c->ctx));
}

static void probe(struct bench_quota_client *c)
{
	uint64_t least = UINT64_MAX;
	uint32_t restarts = 0;

	open_device(c);
	while (bench_quota_activity(load_acquire(&c->page->phase)) != QUOTA_EXIT &&
	       getppid() == parent) {
		size_t available = 0, total = 0;

		if (restarts != load_acquire(&c->page->probe_restarts)) {
			restarts = load_acquire(&c->page->probe_restarts);
			least = UINT64_MAX;
		}
		CU(c, cuMemGetInfo_v2(&available, &total));
		least = MIN(least, available);
		store_relaxed(&c->me->free_bytes, (uint64_t)available);
		store_relaxed(&c->me->total_bytes, (uint64_t)total);
		store_relaxed(&c->me->least_free, least);
		store_release(&c->me->readings, c->me->readings + 1);
		bench_quota_ready(c);
		clock_sleep_ns(PROBE_NS);
	}
}

static void start_worker(struct bench_quota_client *c, unsigned slot)
{
	pid_t group = getpid(), pid = fork();
	char number[16];

	if (pid < 0) {
		bench_quota_fail(c, "fork: %s", strerror(errno));
	}
	if (pid > 0) {
		store_release(&c->page->slot[slot].started, c->page->slot[slot].wanted);
		return;
	}
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != group) {
		_exit(1);
	}
	snprintf(number, sizeof(number), "%u", slot);
	c->argv[1] = unqual("worker");
	setenv("BENCH_QUOTA_SLOT", number, 1);
	execv("/proc/self/exe", c->argv);
	_exit(127);
}

/* Reaps workers. The coordinator kills them; one that ends otherwise has failed. */
static void reap_workers(struct bench_quota_client *c)
{
	int status;
	pid_t pid;

	while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
		for (unsigned i = 0; i < c->processes; i++) {
			struct bench_quota_slot *s = &c->page->slot[i];

			if (load_acquire(&s->pid) != (uint32_t)pid || s->state == QUOTA_FAILED ||
			    (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL)) {
				continue;
			}
			snprintf(s->error, sizeof(s->error), "worker ended with status %#x",
				 (unsigned)status);
			store_release(&s->state, (uint32_t)QUOTA_FAILED);
		}
	}
}

static void group(struct bench_quota_client *c)
{
	while (bench_quota_activity(load_acquire(&c->page->phase)) != QUOTA_EXIT &&
	       getppid() == parent) {
		for (unsigned i = 0; i < c->processes; i++) {
			struct bench_quota_slot *s = &c->page->slot[i];

			if (load_acquire(&s->wanted) != load_relaxed(&s->started)) {
				start_worker(c, i);
			}
		}
		reap_workers(c);
		clock_sleep_ns(PROBE_NS);
	}
}

static void work(struct bench_quota_client *c)
{
	open_device(c);
	bench_quota_work(c);
}

static void latency(struct bench_quota_client *c)
{
	open_device(c);
	bench_quota_time(c);
}

static void movement(struct bench_quota_client *c)
{
	open_device(c);
	bench_quota_move(c);
}

static void load(struct bench_quota_client *c)
{
	open_device(c);
	bench_quota_compute(c);
}

static void map_page(struct bench_quota_client *c, int fd)
{
	void *p = mmap(NULL, sizeof(struct bench_quota_page), PROT_READ | PROT_WRITE, MAP_SHARED,
		       fd, 0);

	if (p == MAP_FAILED || ((struct bench_quota_page *)p)->magic != QUOTA_MAGIC) {
		bench_quota_fail(c, "invalid --page %d: not a page of the bench", fd);
	}
	c->page = p;
	c->fd = fd;
}

static void parse(struct bench_quota_client *c, int argc, char **argv)
{
	const char *slot = getenv("BENCH_QUOTA_SLOT");

	c->role = argc > 1 ? argv[1] : "";
	c->argv = argv;
	for (int i = 2; i + 1 < argc; i += 2) {
		const char *value = argv[i + 1];

		if (strcmp(argv[i], "--page") == 0) {
			map_page(c, (int)strtol(value, NULL, 10));
		} else if (strcmp(argv[i], "--libcuda") == 0) {
			c->libcuda = value;
		} else if (strcmp(argv[i], "--driver") == 0) {
			c->driver = value;
		} else if (strcmp(argv[i], "--paths") == 0) {
			c->paths = value;
		} else if (strcmp(argv[i], "--slot") == 0) {
			c->slot = (unsigned)strtoul(value, NULL, 10);
		} else if (strcmp(argv[i], "--processes") == 0) {
			c->processes = (unsigned)strtoul(value, NULL, 10);
		} else if (strcmp(argv[i], "--threads") == 0) {
			c->threads = (unsigned)strtoul(value, NULL, 10);
		} else if (strcmp(argv[i], "--seed") == 0) {
			c->seed = strtoull(value, NULL, 10);
		} else if (strcmp(argv[i], "--check") == 0) {
			c->check = value[0] == '1';
		} else {
			bench_quota_fail(c, "unknown option %s", argv[i]);
		}
	}
	c->slot = slot ? (unsigned)strtoul(slot, NULL, 10) : c->slot;
	if (!c->page || c->slot >= QUOTA_SLOTS || c->threads < 1 || c->threads > QUOTA_THREADS ||
	    c->processes > QUOTA_WORKERS) {
		bench_quota_fail(c, "invalid combination of options");
	}
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*run)(struct bench_quota_client *c);
	} roles[] = {
		{ "group", group },	{ "worker", work },	  { "probe", probe },
		{ "latency", latency }, { "movement", movement }, { "load", load },
	};
	static struct bench_quota_client c = { .libcuda = "libcuda.so.1", .threads = 1 };

	parent = getppid();
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	signal(SIGINT, SIG_IGN); /* ignore the terminal's: the coordinator ends this process */
	parse(&c, argc, argv);
	for (size_t i = 0; i < ARRAY_SIZE(roles); i++) {
		if (strcmp(roles[i].name, c.role) == 0) {
			if (roles[i].run != group) {
				c.me = &c.page->slot[c.slot];
				store_release(&c.me->pid, (uint32_t)getpid());
			}
			roles[i].run(&c);
			return 0;
		}
	}
	bench_quota_fail(&c, "unknown role %s", c.role);
}
