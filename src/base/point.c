/* Test builds only: a process kills or stops itself at the n-th pass of a point.
 * GBPF_POINT="name:kill[:n]" or "name:stop[:n]" arms a point from the start; with
 * GBPF_POINT_CONTROL, a file of one page, a test arms a point while the process runs, and sees when
 * it was met. GBPF_POINT_HOLD="name:path" holds the first thread that reaches a POINT_HOLD: it
 * makes that file and waits until the test has removed it. */
#include "base/point.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/compiler.h"

#define NAME_BYTES 64u
#define HOLD_POLL_NS 1000000

void point_reached(const char *name);
void point_held(const char *name);

/* Layout used by tools/point-test: name and left are written first, signal last. */
struct point_control {
	int32_t signal; /* 0: not armed */
	uint32_t left;	/* remaining passes */
	int32_t met;	/* process ID, once the point was met */
	char name[NAME_BYTES];
};

static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct point_control own, *control = &own;

static void map_control(const char *path)
{
	int fd = open(path, O_RDWR | O_CLOEXEC);
	void *p = fd < 0 ? MAP_FAILED
			 : mmap(NULL, sizeof(*control), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	if (fd >= 0) {
		close(fd);
	}
	control = p == MAP_FAILED ? &own : p;
}

static void read_environment(void)
{
	const char *path = getenv("GBPF_POINT_CONTROL"), *v = getenv("GBPF_POINT"), *action, *count;
	size_t n = v ? strcspn(v, ":") : 0;

	if (path) {
		map_control(path);
	}
	if (!v || v[n] != ':' || n >= NAME_BYTES) {
		return;
	}
	action = v + n + 1;
	count = strchr(action, ':');
	memset(control->name, 0, NAME_BYTES);
	memcpy(control->name, v, n);
	control->left = count ? (uint32_t)strtoul(count + 1, NULL, 10) : 1;
	store_release(&control->signal, strncmp(action, "stop", 4) == 0 ? SIGSTOP : SIGKILL);
}

void point_reached(const char *name)
{
	int saved, sig;

	(void)pthread_once(&once, read_environment);
	sig = load_acquire(&control->signal);
	if (likely(!sig) || strncmp(name, control->name, NAME_BYTES) != 0 ||
	    sub_acqrel(&control->left, 1u) != 1) {
		return;
	}
	saved = errno;
	store_relaxed(&control->signal, 0);
	store_release(&control->met, (int32_t)getpid());
	/* Directed at this thread, so that it does not continue; the signal stops or ends all
	 * threads. */
	syscall(SYS_tgkill, getpid(), (pid_t)syscall(SYS_gettid), sig);
	errno = saved;
}

void point_held(const char *name)
{
	static uint32_t held; /* [atomic] */
	const char *v = getenv("GBPF_POINT_HOLD");
	struct timespec t = { 0, HOLD_POLL_NS };
	size_t n = strlen(name);
	int saved = errno, fd;

	if (!v || strncmp(v, name, n) != 0 || v[n] != ':' || xchg_acqrel(&held, 1u)) {
		return;
	}
	fd = open(v + n + 1, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd >= 0) {
		close(fd);
		while (access(v + n + 1, F_OK) == 0) {
			nanosleep(&t, NULL);
		}
	}
	errno = saved;
}
