/* Which descriptors this process has open. */
#ifndef GBPF_TESTS_BASE_OPEN_FDS_H
#define GBPF_TESTS_BASE_OPEN_FDS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <fcntl.h>
#include <stdbool.h>

static inline unsigned open_fds(void)
{
	DIR *d = opendir("/proc/self/fd");
	unsigned n = 0;

	while (readdir(d)) {
		n++;
	}
	closedir(d);
	return n;
}

static inline bool is_open(int fd)
{
	return fcntl(fd, F_GETFD) >= 0;
}

#endif
