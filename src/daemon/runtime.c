/* Directories, lock, readiness. The flock is authoritative for whether gbpfd runs, because the
 * kernel releases it with the process; socket files and the number in the lock file may be left by
 * a gbpfd that was killed. */
#include "daemon/runtime.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#ifdef HAVE_SYSTEMD
#include <systemd/sd-daemon.h>
#endif

#include "base/fd.h"
#include "base/log.h"
#include "base/paths.h"

int daemon_runtime_fail(struct daemon *d, int err, const char *fmt, ...)
{
	char text[1024];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	log_error("%s", text);
	if (d->opt.ready_fd >= 0) {
		if (write(d->opt.ready_fd, text, strlen(text)) < 0) {
			log_warn("cannot report readiness: the starter has closed its end");
		}
		d->opt.ready_fd = fd_close(d->opt.ready_fd);
	}
	return err;
}

void daemon_runtime_ready(struct daemon *d)
{
#ifdef HAVE_SYSTEMD
	sd_notify(0, "READY=1"); /* to systemd, if it started gbpfd */
#endif
	if (d->opt.ready_fd >= 0) {
		if (write(d->opt.ready_fd, "ready\n", 6) < 0) {
			log_warn("cannot report readiness: the starter has closed its end");
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
		return "a file that is not a directory has this name";
	default:
		return strerror(-err);
	}
}

static int make_dir(struct daemon *d, const char *what, const char *dir, unsigned mode)
{
	int err = dir[0] == '/' ? path_make_private(dir, mode) : -EINVAL;

	if (err == -EINVAL) {
		return daemon_runtime_fail(d, err, "the %s directory '%s' must be an absolute path",
					   what, dir);
	}
	return err ? daemon_runtime_fail(d, err, "cannot use the %s directory %s: %s", what, dir,
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

/* Opens and locks the lock file of a directory and writes this process's ID to it. Returns the
 * descriptor or -errno; -EWOULDBLOCK with the ID of the process that holds it. */
static int lock_dir(const char *dir, const char *leaf, long *ret_pid)
{
	char path[DAEMON_PATH + 16];
	int fd, err;

	snprintf(path, sizeof(path), "%s/%s", dir, leaf);
	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
	if (fd < 0) {
		return -errno;
	}
	err = flock(fd, LOCK_EX | LOCK_NB) < 0 ? -errno : 0;
	*ret_pid = err ? read_pid(fd) : 0;
	errno = 0;
	err = err ? err : write_pid(fd);
	if (err) {
		fd_close(fd);
		return err;
	}
	return fd;
}

static int open_runtime(struct daemon *d)
{
	long pid;
	int err = make_dir(d, "runtime", d->opt.runtime, path_runtime_mode());

	if (err) {
		return err;
	}
	d->locks.runtime_fd = lock_dir(d->opt.runtime, "gbpfd.lock", &pid);
	if (d->locks.runtime_fd == -EWOULDBLOCK) {
		return daemon_runtime_fail(d, -EEXIST,
					   "another gbpfd serves %s already (pid %ld): use it, or "
					   "stop it with `gbpf shutdown`",
					   d->opt.runtime, pid);
	}
	if (d->locks.runtime_fd < 0) {
		return daemon_runtime_fail(d, d->locks.runtime_fd,
					   "cannot write to the runtime directory %s: %s",
					   d->opt.runtime, advice(d->locks.runtime_fd));
	}
	return 0;
}

/* Locks the state directory. Two daemons with different runtime directories may have the same
 * default state directory: the second keeps its state in its runtime directory. */
static int open_state(struct daemon *d)
{
	char shared[DAEMON_PATH];
	long pid;
	int err = make_dir(d, "state", d->opt.state, 0700);

	if (err) {
		return err;
	}
	d->locks.state_fd = lock_dir(d->opt.state, "state.lock", &pid);
	if (d->locks.state_fd == -EWOULDBLOCK && !d->opt.state_given) {
		snprintf(shared, sizeof(shared), "%s", d->opt.state);
		if (snprintf(d->opt.state, sizeof(d->opt.state), "%s/state", d->opt.runtime) >=
		    (int)sizeof(d->opt.state)) {
			return daemon_runtime_fail(d, -ENAMETOOLONG,
						   "the runtime directory's path is too long");
		}
		log_warn("%s is in use by another gbpfd (pid %ld): policies and history are kept "
			 "in %s",
			 shared, pid, d->opt.state);
		err = make_dir(d, "state", d->opt.state, 0700);
		d->locks.state_fd = err ? err : lock_dir(d->opt.state, "state.lock", &pid);
	}
	if (d->locks.state_fd == -EWOULDBLOCK) {
		return daemon_runtime_fail(
			d, -EEXIST, "the state directory %s is in use by another gbpfd (pid %ld)",
			d->opt.state, pid);
	}
	if (!err && d->locks.state_fd < 0) {
		return daemon_runtime_fail(d, d->locks.state_fd,
					   "cannot write to the state directory %s: %s",
					   d->opt.state, advice(d->locks.state_fd));
	}
	return err;
}

int daemon_runtime_open(struct daemon *d)
{
	int err = open_runtime(d);

	return err ? err : open_state(d);
}

void daemon_runtime_close(struct daemon *d)
{
	static const char *const leaves[] = { "session.sock", "control.sock" };
	char path[DAEMON_PATH + 16];

	if (d->locks.runtime_fd < 0) {
		return;
	}
	for (size_t i = 0; i < ARRAY_SIZE(leaves); i++) {
		snprintf(path, sizeof(path), "%s/%s", d->opt.runtime, leaves[i]);
		unlink(path);
	}
	/* The lock files are not removed: that would race with the next gbpfd. */
	d->locks.state_fd = fd_close(d->locks.state_fd);
	d->locks.runtime_fd = fd_close(d->locks.runtime_fd);
}
