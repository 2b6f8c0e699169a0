/* machine_files.so: has a program read the figures of a machine of the test: files about memory in
 * /proc and /sys/fs/cgroup are opened below the folder that MACHINE_FILES names. For LD_PRELOAD. */
#include <fcntl.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/compiler.h"

static bool is_of_machine(const char *path)
{
	static const char *const all[] = { "/proc/meminfo", "/proc/pressure/", "/proc/self/cgroup",
					   "/sys/fs/cgroup/" };

	for (size_t i = 0; i < ARRAY_SIZE(all); i++) {
		if (strncmp(path, all[i], strlen(all[i])) == 0) {
			return true;
		}
	}
	return false;
}

EXPORT int open(const char *path, int flags, ...)
{
	const char *root = getenv("MACHINE_FILES");
	char other[4096];
	mode_t mode = 0;
	va_list args;

	if (flags & (O_CREAT | O_TMPFILE)) {
		va_start(args, flags);
		mode = va_arg(args, mode_t);
		va_end(args);
	}
	if (root && is_of_machine(path)) {
		snprintf(other, sizeof(other), "%s%s", root, path);
		path = other;
	}
	return (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}
