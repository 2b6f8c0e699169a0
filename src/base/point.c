/* Test builds alone: GBPF_POINT="name:kill[:n]" or "name:stop[:n]" makes the process kill or stop
 * itself at the n-th pass (1 unless told) of that point. GBPF_POINT_LOG names a file to which "name
 * pid" is appended just before, so that a test knows that the point was met. */
#include "base/point.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/atomic.h"

void point_reached(const char *name);

static pthread_once_t once = PTHREAD_ONCE_INIT;
static char chosen[64], log_path[256];
static int chosen_signal;
static unsigned left;

static void read_environment(void)
{
	const char *v = getenv("GBPF_POINT"), *log = getenv("GBPF_POINT_LOG"), *action, *count;
	size_t n = v ? strcspn(v, ":") : 0;

	if (!v || v[n] != ':' || n >= sizeof(chosen)) {
		return;
	}
	action = v + n + 1;
	count = strchr(action, ':');
	left = count ? (unsigned)strtoul(count + 1, NULL, 10) : 1;
	snprintf(log_path, sizeof(log_path), "%s", log ? log : "");
	memcpy(chosen, v, n);
	chosen_signal = strncmp(action, "kill", 4) == 0	  ? SIGKILL
			: strncmp(action, "stop", 4) == 0 ? SIGSTOP
							  : 0;
}

static void tell(const char *name)
{
	char line[128];
	int n = snprintf(line, sizeof(line), "%s %d\n", name, (int)getpid());
	int fd = log_path[0] ? open(log_path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600) : -1;

	if (fd >= 0) {
		(void)!write(fd, line, (size_t)n);
		close(fd);
	}
}

void point_reached(const char *name)
{
	int saved;

	(void)pthread_once(&once, read_environment);
	if (!chosen_signal || strcmp(name, chosen) != 0 ||
	    __atomic_sub_fetch(&left, 1u, __ATOMIC_ACQ_REL) != 0) {
		return;
	}
	saved = errno;
	tell(name);
	/* To this thread, which therefore does not go on; the signal stops or ends them all. */
	syscall(SYS_tgkill, getpid(), (pid_t)syscall(SYS_gettid), chosen_signal);
	errno = saved;
}
