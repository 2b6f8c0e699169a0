/* Processes as /proc shows them. */
#include "base/procfs.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"

#define STAT_BYTES 1200u /* 52 fields of at most 20 digits, but for the command's 64 bytes */

/* Reads /proc/<pid>/stat, and its owner unless that is NULL. Returns the end of the command, fields
 * 1 and 2 being "<pid> (<command>)", in which the command may contain any character. NULL: there is
 * no such process. */
static const char *read_stat(long pid, char text[STAT_BYTES], uid_t *ret_owner)
{
	char path[64];
	struct stat st;
	ssize_t n = 0;
	int fd;

	if (pid <= 0) {
		return NULL;
	}
	snprintf(path, sizeof(path), "/proc/%ld/stat", pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd >= 0 && fstat(fd, &st) == 0) {
		n = read(fd, text, STAT_BYTES - 1);
	}
	fd_close(fd);
	if (n <= 0) {
		return NULL;
	}
	text[n] = 0;
	if (ret_owner) {
		*ret_owner = st.st_uid;
	}
	return strrchr(text, ')');
}

bool procfs_runs(long pid, const char *command, uid_t *ret_owner)
{
	char text[STAT_BYTES], start[64];
	const char *end = read_stat(pid, text, ret_owner);
	int n = snprintf(start, sizeof(start), "%ld (%s)", pid, command);

	return end && n < (int)sizeof(start) && end + 1 - text == n &&
	       strncmp(text, start, (size_t)n) == 0 && end[1] == ' ' && end[2] != 'Z' &&
	       end[2] != 'X';
}

int procfs_stat_field(long pid, int field, long long *ret, char *ret_state)
{
	char text[STAT_BYTES], *rest;
	const char *p = read_stat(pid, text, NULL);

	if (p && ret_state) {
		*ret_state = p[1] == ' ' ? p[2] : 0;
	}
	for (int i = 2; p && i < field; i++) {
		p = strchr(p + 1, ' ');
	}
	if (!p) {
		return -1;
	}
	*ret = strtoll(p, &rest, 10);
	return rest == p ? -1 : 0;
}
