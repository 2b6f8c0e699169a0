/* Processes as /proc shows them. */
#include "base/procfs.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"

bool procfs_runs(long pid, const char *command, uid_t *ret_owner)
{
	char text[128] = "", start[64];
	struct stat st;
	size_t n;
	int fd;

	if (pid <= 0) {
		return false;
	}
	snprintf(text, sizeof(text), "/proc/%ld/stat", pid);
	fd = open(text, O_RDONLY | O_CLOEXEC);
	memset(text, 0, sizeof(text));
	if (fd < 0 || fstat(fd, &st) < 0 || read(fd, text, sizeof(text) - 1) <= 0) {
		fd_close(fd);
		return false;
	}
	fd_close(fd);
	if (ret_owner) {
		*ret_owner = st.st_uid;
	}
	/* proc(5): the ID, the command in parentheses, the state. */
	n = (size_t)snprintf(start, sizeof(start), "%ld (%s) ", pid, command);
	return n < sizeof(start) && strncmp(text, start, n) == 0 && text[n] != 'Z' &&
	       text[n] != 'X';
}
