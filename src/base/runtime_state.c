/* The file in which a gbpfd states its phase. */
#include "base/runtime_state.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/compiler.h"
#include "base/fd.h"
#include "base/procfs.h"

#define PATH_MOST 4096
#define TEXT_MOST 32 /* a process ID and a phase */

static const char *const phases[] = {
	[RUNTIME_SERVES] = "serves",
	[RUNTIME_STARTS] = "starts",
	[RUNTIME_STOPS] = "stops",
};

/* All texts of one process have the same length, so that a reader has one or the other. */
int runtime_state_write(int fd, enum runtime_phase phase)
{
	char text[TEXT_MOST];
	int n = snprintf(text, sizeof(text), "%d %-6s\n", (int)getpid(), phases[phase]);

	errno = 0;
	return pwrite(fd, text, (size_t)n, 0) == n && ftruncate(fd, n) == 0
		       ? 0
		       : -(errno ? errno : ENOSPC);
}

int runtime_state_create(const char *dir)
{
	char path[PATH_MOST], next[PATH_MOST + 8];
	int fd, err;

	if (snprintf(path, sizeof(path), "%s/" RUNTIME_STATE_FILE, dir) >= (int)sizeof(path)) {
		return -ENAMETOOLONG;
	}
	snprintf(next, sizeof(next), "%s.next", path);
	if (unlink(next) < 0 && errno != ENOENT) {
		return -errno;
	}
	fd = open(next, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
	if (fd < 0) {
		return -errno;
	}
	err = fchmod(fd, 0644) < 0 ? -errno : runtime_state_write(fd, RUNTIME_STARTS);
	if (!err && rename(next, path) < 0) {
		err = -errno;
	}
	if (err) {
		unlink(next);
		fd_close(fd);
		return err;
	}
	return fd;
}

/* Returns true for the file of a user that may say what gbpfd does: root or this one. Root trusts
 * all, since it chooses the path. Sets *ret_owner to that user. */
static bool is_of_trusted(int fd, uid_t *ret_owner)
{
	struct stat st;

	if (fstat(fd, &st) < 0) {
		return false;
	}
	*ret_owner = st.st_uid;
	return geteuid() == 0 || st.st_uid == 0 || st.st_uid == geteuid();
}

static enum runtime_phase phase_of(const char *text)
{
	for (size_t i = 0; i < ARRAY_SIZE(phases); i++) {
		if (strstr(text, phases[i])) {
			return (enum runtime_phase)i;
		}
	}
	return RUNTIME_SERVES;
}

struct runtime_state runtime_state_read(const char *dir)
{
	struct runtime_state s = { 0 };
	char path[PATH_MOST], text[TEXT_MOST] = "";
	uid_t owner = 0, runs_as;
	int fd = -1;

	if (snprintf(path, sizeof(path), "%s/" RUNTIME_STATE_FILE, dir) < (int)sizeof(path)) {
		fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	}
	if (fd < 0 || !is_of_trusted(fd, &owner) || read(fd, text, sizeof(text) - 1) <= 0) {
		text[0] = 0;
	}
	fd_close(fd);
	s.pid = (int)strtol(text, NULL, 10);
	/* A process of another user did not write the file. Messages name this process as the one
	 * to end. */
	s.pid = procfs_runs(s.pid, "gbpfd", &runs_as) && runs_as == owner ? s.pid : 0;
	s.phase = phase_of(text);
	return s;
}

bool runtime_state_is_passing(struct runtime_state s)
{
	return s.pid && s.phase != RUNTIME_SERVES;
}
