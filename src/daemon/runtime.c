/* Directories, lock, readiness. The flock is authoritative for whether gbpfd runs, because the
 * kernel releases it with the process; socket files and the number in the lock file may be left by
 * a gbpfd that was killed. */
#include "daemon/runtime.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>
#ifdef HAVE_SYSTEMD
#include <systemd/sd-daemon.h>
#endif

#include "base/fd.h"
#include "base/log.h"
#include "base/paths.h"
#include "base/private_dir.h"
#include "base/private_file.h"
#include "base/procfs.h"

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
		return "; the file system is full: free some space there, or set GBPF_RUNTIME_DIR "
		       "and GBPF_STATE_DIR";
	case -EROFS:
	case -EACCES:
	case -EPERM:
		return "; it must belong to this user and only this user may write it: set "
		       "GBPF_RUNTIME_DIR or GBPF_STATE_DIR, or run as root";
	case -ENOENT:
		return "; create it, or correct the path";
	default:
		return "";
	}
}

static int make_dir(struct daemon *d, const char *what, const char *dir, unsigned mode,
		    bool parents)
{
	char why[PRIVATE_DIR_WHY];
	int err;

	if (dir[0] != '/') {
		return daemon_runtime_fail(d, -EINVAL,
					   "invalid %s directory '%s': expected an absolute path",
					   what, dir);
	}
	err = private_dir_make(dir, mode, parents, why);
	return err ? daemon_runtime_fail(d, err, "cannot use the %s directory %s: %s%s", what, dir,
					 why, advice(err))
		   : 0;
}

static int write_pid(int fd)
{
	char text[32];
	int n = snprintf(text, sizeof(text), "%d\n", (int)getpid());

	errno = 0;
	return pwrite(fd, text, (size_t)n, 0) == n && ftruncate(fd, n) == 0
		       ? 0
		       : -(errno ? errno : ENOSPC);
}

/* A lock file in a directory, while it is being opened. */
struct lock_file {
	const char *dir;
	char path[DAEMON_PATH + 16];
	char text[32]; /* of the process that holds it: its ID */
};

/* Returns true if a process of this user listens on the directory's control socket. */
static bool is_served(const char *dir)
{
	char path[DAEMON_PATH + 16];
	struct peer peer;
	int sock;
	bool served;

	snprintf(path, sizeof(path), "%s/control.sock", dir);
	sock = unix_connect(path, SOCK_STREAM | SOCK_NONBLOCK);
	served = sock == -EAGAIN ||
		 (sock >= 0 && fd_peer(sock, &peer) == 0 && peer.uid == geteuid());
	fd_close(sock);
	return served;
}

/* Returns true if the process that wrote its ID into the lock file is a running gbpfd of this user.
 */
static bool is_gbpfd(long pid)
{
	uid_t owner;

	return procfs_runs(pid, "gbpfd", &owner) && owner == geteuid();
}

static bool holder_is_gbpfd(void *arg)
{
	const struct lock_file *l = arg;
	bool yes = is_served(l->dir) || is_gbpfd(strtol(l->text, NULL, 10));

	if (!yes) {
		log_warn("%s: replaced: other users could open it, and a process that is not "
			 "gbpfd holds its lock",
			 l->path);
	}
	return yes;
}

/* Opens and locks the lock file of a directory and writes this process's ID to it. Returns the
 * descriptor or -errno; -EWOULDBLOCK with the ID of the process that holds it. */
static int lock_dir(struct daemon *d, const char *dir, const char *leaf, long *ret_pid)
{
	struct lock_file l = { .dir = dir };
	struct stat st;
	int fd, err;

	snprintf(l.path, sizeof(l.path), "%s/%s", dir, leaf);
	fd = private_file_lock(l.path, holder_is_gbpfd, &l, l.text);
	*ret_pid = strtol(l.text, NULL, 10);
	if (fd == -EPERM && lstat(l.path, &st) == 0 && st.st_uid != geteuid()) {
		return daemon_runtime_fail(d, fd,
					   "cannot lock %s: %s belongs to user %u; remove it", dir,
					   l.path, (unsigned)st.st_uid);
	}
	if (fd == -EPERM || fd == -ELOOP) {
		return daemon_runtime_fail(
			d, fd,
			"cannot lock %s: %s is not a regular file with one name; "
			"remove it",
			dir, l.path);
	}
	if (fd < 0) {
		return fd;
	}
	err = write_pid(fd);
	if (err) {
		fd_close(fd);
		return err;
	}
	return fd;
}

/* Reports why a lock file could not be written, unless lock_dir() has done so. */
static int fail_lock(struct daemon *d, const char *what, const char *dir, int err)
{
	return err == -EPERM || err == -ELOOP
		       ? err
		       : daemon_runtime_fail(d, err, "cannot write to the %s directory %s: %s%s",
					     what, dir, strerror(-err), advice(err));
}

static int open_runtime(struct daemon *d)
{
	long pid;
	int err = make_dir(d, "runtime", d->opt.runtime, path_runtime_mode(), false);

	if (err) {
		return err;
	}
	d->locks.runtime_fd = lock_dir(d, d->opt.runtime, "gbpfd.lock", &pid);
	if (d->locks.runtime_fd == -EWOULDBLOCK) {
		return daemon_runtime_fail(d, -EEXIST,
					   "another gbpfd serves %s already (pid %ld): use it, or "
					   "stop it with `gbpf shutdown`",
					   d->opt.runtime, pid);
	}
	if (d->locks.runtime_fd < 0) {
		return fail_lock(d, "runtime", d->opt.runtime, d->locks.runtime_fd);
	}
	d->locks.phase_fd = runtime_state_create(d->opt.runtime);
	return d->locks.phase_fd < 0 ? fail_lock(d, "runtime", d->opt.runtime, d->locks.phase_fd)
				     : 0;
}

/* Locks the state directory. Two daemons with different runtime directories may have the same
 * default state directory: the second keeps its state in its runtime directory. */
static int open_state(struct daemon *d)
{
	char shared[DAEMON_PATH];
	long pid;
	int err = make_dir(d, "state", d->opt.state, 0700,
			   !d->opt.state_given && path_state_is_default());

	if (err) {
		return err;
	}
	d->locks.state_fd = lock_dir(d, d->opt.state, "state.lock", &pid);
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
		err = make_dir(d, "state", d->opt.state, 0700, false);
		d->locks.state_fd = err ? err : lock_dir(d, d->opt.state, "state.lock", &pid);
	}
	if (d->locks.state_fd == -EWOULDBLOCK) {
		return daemon_runtime_fail(
			d, -EEXIST, "the state directory %s is in use by another gbpfd (pid %ld)",
			d->opt.state, pid);
	}
	if (!err && d->locks.state_fd < 0) {
		return fail_lock(d, "state", d->opt.state, d->locks.state_fd);
	}
	return err;
}

/* /proc tells what programs run, how they ended, and where gbpfd itself is installed. */
static int need_proc(struct daemon *d)
{
	struct statfs fs;

	if (statfs("/proc", &fs) == 0 && fs.f_type == PROC_SUPER_MAGIC) {
		return 0;
	}
	return daemon_runtime_fail(d, -ENOSYS,
				   "/proc is not mounted: gbpfd reads there what programs run and "
				   "how they ended; mount it, in a container too");
}

int daemon_runtime_open(struct daemon *d)
{
	int err = need_proc(d);

	err = err ? err : open_runtime(d);
	return err ? err : open_state(d);
}

void daemon_runtime_state(const struct daemon *d, enum runtime_phase phase)
{
	if (d->locks.phase_fd >= 0) {
		(void)runtime_state_write(d->locks.phase_fd, phase);
	}
}

void daemon_runtime_close(struct daemon *d)
{
	static const char *const leaves[] = { "session.sock", "control.sock", "admin.sock" };
	char path[DAEMON_PATH + 16];

	if (d->locks.runtime_fd < 0) {
		return;
	}
	for (size_t i = 0; i < ARRAY_SIZE(leaves); i++) {
		snprintf(path, sizeof(path), "%s/%s", d->opt.runtime, leaves[i]);
		unlink(path);
	}
	/* The lock files are not removed: that would race with the next gbpfd. */
	d->locks.phase_fd = fd_close(d->locks.phase_fd);
	d->locks.state_fd = fd_close(d->locks.state_fd);
	d->locks.runtime_fd = fd_close(d->locks.runtime_fd);
}
