/* Waiting for a state that another thread or process reaches. Tests wait with these only, never for
 * a time: the limit of two minutes is reached only by a state that never comes, on a loaded machine
 * too. */
#ifndef GBPF_TESTS_AWAIT_H
#define GBPF_TESTS_AWAIT_H

#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/types.h>
#include <unistd.h>

#include "base/clock.h"

#define AWAIT_POLL_NS 200000u
#define AWAIT_TIMEOUT_NS UINT64_C(120000000000)

/* Waits until the condition, which is evaluated again and again, is true. */
#define AWAIT(condition)                                                                           \
	do {                                                                                       \
		for (uint64_t await_n = 0; !(condition); await_n++) {                              \
			await_pause(await_n, #condition, __FILE__, __LINE__);                      \
		}                                                                                  \
	} while (0)

/* Counts pauses instead of reading the clock, which the test may have replaced. */
static inline void await_pause(uint64_t n, const char *condition, const char *file, int line)
{
	if (n >= AWAIT_TIMEOUT_NS / AWAIT_POLL_NS) {
		fprintf(stderr, "%s:%d: timed out waiting for %s\n", file, line, condition);
		abort();
	}
	clock_sleep_ns(AWAIT_POLL_NS);
}

/* Returns whether a thread of this process is blocked in a system call. */
static inline bool thread_is_blocked(pid_t tid)
{
	char path[64], line[16];
	ssize_t n;
	int fd;

	snprintf(path, sizeof(path), "/proc/self/task/%d/syscall", (int)tid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	n = read(fd, line, sizeof(line));
	close(fd);
	return n > 0 && line[0] >= '0' && line[0] <= '9';
}

#endif
