/* Waiting for a state that another thread or process reaches. Tests wait with this only, never for
 * a time. The limit, 6 s times GBPF_PATIENCE (20 where that is less or not set, since a test of a
 * timeout of the product sets 1), is reached only by a state that never comes, on a loaded machine
 * too. */
#ifndef GBPF_TESTS_EVENTUALLY_H
#define GBPF_TESTS_EVENTUALLY_H

#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

#define EVENTUALLY_POLL_NS 200000
#define EVENTUALLY_NS UINT64_C(6000000000) /* times the patience */
#define EVENTUALLY_PATIENCE_MIN 20u

/* Returns once the condition, which is evaluated again and again, is true; aborts at the limit. */
#define eventually(condition)                                                                      \
	do {                                                                                       \
		for (uint64_t eventually_n = 0; !(condition); eventually_n++) {                    \
			eventually_pause(eventually_n, #condition, __FILE__, __LINE__);            \
		}                                                                                  \
	} while (0)

static inline uint64_t eventually_limit_ns(void)
{
	const char *text = getenv("GBPF_PATIENCE");
	unsigned long patience = text ? strtoul(text, NULL, 10) : 0;

	return EVENTUALLY_NS *
	       (patience > EVENTUALLY_PATIENCE_MIN ? patience : EVENTUALLY_PATIENCE_MIN);
}

/* The limit for poll(2), and for alarm(2) in a process that a fault may make hang. */
#define EVENTUALLY_MS ((int)(eventually_limit_ns() / 1000000u))
#define EVENTUALLY_S ((unsigned)(eventually_limit_ns() / 1000000000u))

/* Counts pauses instead of reading the clock, and calls no function of base/clock.h: the test may
 * have replaced both. */
static inline void eventually_pause(uint64_t n, const char *condition, const char *file, int line)
{
	const struct timespec poll_time = { .tv_nsec = EVENTUALLY_POLL_NS };

	if (n >= eventually_limit_ns() / EVENTUALLY_POLL_NS) {
		fprintf(stderr, "%s:%d: timed out waiting for %s\n", file, line, condition);
		abort();
	}
	(void)nanosleep(&poll_time, NULL);
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
