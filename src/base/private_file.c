/* Opening and locking files of one user. */
#include "base/private_file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"

#define MAX_ROUNDS 100u /* each is a file that was replaced meanwhile */

/* Opens the file and stores its status. Does not reduce its mode. */
static int open_own(const char *path, int flags, struct stat *ret)
{
	int err, fd = open(path, flags | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);

	if (fd < 0) {
		return -errno;
	}
	err = fstat(fd, ret) < 0 ? -errno : 0;
	if (!err && (!S_ISREG(ret->st_mode) || ret->st_uid != geteuid() || ret->st_nlink > 1)) {
		err = -EPERM;
	}
	if (err) {
		fd_close(fd);
		return err;
	}
	return fd;
}

static bool is_exposed(const struct stat *st)
{
	return st->st_mode & (S_IRWXG | S_IRWXO);
}

int private_file_open(const char *path, int flags)
{
	struct stat st;
	int fd = open_own(path, flags, &st), err;

	if (fd >= 0 && is_exposed(&st) && fchmod(fd, st.st_mode & S_IRWXU) < 0) {
		err = -errno;
		fd_close(fd);
		return err;
	}
	return fd;
}

/* Returns true if the path still names this file. */
static bool is_current(const char *path, const struct stat *st)
{
	struct stat now;

	return lstat(path, &now) == 0 && now.st_ino == st->st_ino && now.st_dev == st->st_dev;
}

static void read_text(int fd, char text[32])
{
	ssize_t n = pread(fd, text, 31, 0);

	text[n > 0 ? n : 0] = 0;
}

/* One attempt. -ESTALE: the file was replaced, by this process or another one. */
static int lock_once(const char *path, bool (*in_use)(void *arg), void *arg, char ret_text[32])
{
	struct stat st;
	int err = 0, fd = open_own(path, O_RDWR | O_CREAT, &st);

	if (fd < 0) {
		return fd;
	}
	if (flock(fd, LOCK_EX | LOCK_NB) < 0) {
		err = errno == EWOULDBLOCK ? -EWOULDBLOCK : -errno;
		read_text(fd, ret_text);
	}
	if (err == -EWOULDBLOCK && is_exposed(&st) && in_use && !in_use(arg)) {
		err = 0;
	}
	if (!err && !is_current(path, &st)) {
		err = -ESTALE;
	} else if (!err && is_exposed(&st)) {
		err = unlink(path) < 0 ? -errno : -ESTALE;
	}
	if (err) {
		fd_close(fd);
		return err;
	}
	return fd;
}

int private_file_lock(const char *path, bool (*in_use)(void *arg), void *arg, char ret_text[32])
{
	int fd = -ESTALE;

	memset(ret_text, 0, 32);
	for (unsigned i = 0; fd == -ESTALE && i < MAX_ROUNDS; i++) {
		fd = lock_once(path, in_use, arg, ret_text);
	}
	return fd == -ESTALE ? -EBUSY : fd;
}
