/* Directories, lock, readiness. The lock (flock) tells the truth about who runs, since the kernel
 * drops it with the process; socket files and the number in the lock file may be left over from a
 * gbpfd that was killed. */
#include "daemon/runtime.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/log.h"
#include "base/paths.h"

int runtime_fail(struct daemon *d, int err, const char *fmt, ...)
{
	char text[1024];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	log_error("%s", text);
	if (d->opt.ready_fd >= 0) {
		if (write(d->opt.ready_fd, text, strlen(text)) < 0) {
			log_warn("nobody waits for this start any more");
		}
		d->opt.ready_fd = fd_close(d->opt.ready_fd);
	}
	return err;
}

void runtime_ready(struct daemon *d)
{
	sd_notify(0, "READY=1"); /* to systemd, where it started us */
	if (d->opt.ready_fd >= 0) {
		if (write(d->opt.ready_fd, "ready\n", 6) < 0) {
			log_warn("nobody waits for this start any more");
		}
		d->opt.ready_fd = fd_close(d->opt.ready_fd);
	}
}

static const char *advice(int err)
{
	switch (err) {
	case -ENOSPC:
	case -EDQUOT:
		return "the file system is full: free some space there, or set GBPF_RUNTIME_DIR "
		       "and GBPF_STATE_DIR";
	case -EROFS:
	case -EACCES:
	case -EPERM:
		return "it must belong to this user and be writable: set GBPF_RUNTIME_DIR or "
		       "GBPF_STATE_DIR, or run as root";
	case -ENOTDIR:
	case -EEXIST:
		return "something that is no directory is in the way";
	default:
		return strerror(-err);
	}
}

static int make_dir(struct daemon *d, const char *what, const char *dir, unsigned mode)
{
	int err = dir[0] == '/' ? path_make_private(dir, mode) : -EINVAL;

	if (err == -EINVAL) {
		return runtime_fail(d, err, "the %s directory '%s' must be an absolute path", what,
				    dir);
	}
	return err ? runtime_fail(d, err, "cannot use the %s directory %s: %s", what, dir,
				  advice(err))
		   : 0;
}

static long read_pid(int fd)
{
	char text[32] = { 0 };

	return pread(fd, text, sizeof(text) - 1, 0) > 0 ? strtol(text, NULL, 10) : 0;
}

static int write_pid(int fd)
{
	char text[32];
	int n = snprintf(text, sizeof(text), "%d\n", (int)getpid());

	if (ftruncate(fd, 0) < 0) {
		return -errno;
	}
	return pwrite(fd, text, (size_t)n, 0) == n ? 0 : -(errno ? errno : ENOSPC);
}

static int take_lock(struct daemon *d)
{
	char path[DAEMON_PATH + 16];
	int err = 0;

	snprintf(path, sizeof(path), "%s/gbpfd.lock", d->opt.runtime);
	d->lock_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
	if (d->lock_fd < 0) {
		err = -errno;
		return runtime_fail(d, err, "cannot write to the runtime directory %s: %s",
				    d->opt.runtime, advice(err));
	}
	if (flock(d->lock_fd, LOCK_EX | LOCK_NB) < 0) {
		long pid;

		err = -errno;
		pid = read_pid(d->lock_fd);
		d->lock_fd = fd_close(d->lock_fd); /* what lies in the directory is not ours */
		return err == -EWOULDBLOCK
			       ? runtime_fail(d, -EEXIST,
					      "another gbpfd serves %s already (pid %ld)",
					      d->opt.runtime, pid)
			       : runtime_fail(d, err, "cannot lock %s: %s", path, strerror(-err));
	}
	errno = 0;
	err = write_pid(d->lock_fd);
	if (err) {
		return runtime_fail(d, err, "cannot write to the runtime directory %s: %s",
				    d->opt.runtime, advice(err));
	}
	return 0;
}

int runtime_open(struct daemon *d)
{
	int err = make_dir(d, "runtime", d->opt.runtime, d->uid == 0 ? 0755 : 0700);

	if (!err) {
		err = take_lock(d);
	}
	if (!err) {
		err = make_dir(d, "state", d->opt.state, 0700);
	}
	return err;
}

void runtime_close(struct daemon *d)
{
	static const char *const leaves[] = { "session.sock", "control.sock" };
	char path[DAEMON_PATH + 16];

	if (d->lock_fd < 0) {
		return;
	}
	for (size_t i = 0; i < ARRAY_SIZE(leaves); i++) {
		snprintf(path, sizeof(path), "%s/%s", d->opt.runtime, leaves[i]);
		unlink(path);
	}
	d->lock_fd = fd_close(
		d->lock_fd); /* the file stays: removing it would race with the next gbpfd */
}
