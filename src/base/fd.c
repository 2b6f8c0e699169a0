/* Descriptors, futexes, unix sockets. See unix(7), futex(2), cmsg(3). */
#include "base/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/compiler.h"
#include "base/lock.h"
#include "base/shm.h"
#include "base/thread.h"

int fd_close(int fd)
{
	int saved = errno;

	if (fd >= 0) {
		close(fd);
	}
	errno = saved;
	return -1;
}

#define MAX_CLOSERS 16u
#define MAX_TO_CLOSE (1u << 20)	 /* the default of fs.nr_open; descriptors from it on stay open */
#define AT_ONCE_BYTES (1u << 20) /* freeing a larger memfd is left to a thread */
#define SCM_MAX_FDS 253u	 /* the kernel's limit for one message */

/* Descriptors that detached threads close. All closers block in close() only if a peer makes them,
 * on purpose; then further descriptors wait here. A set by number has room for all of them: on a
 * busy machine thousands may come before a closer runs. */
static struct {
	struct lock lock;
	unsigned threads, n;
	uint32_t first; /* no word before this one has a bit */
	uint64_t waiting[MAX_TO_CLOSE / 64];
} closing = { .lock = LOCK_INITIALIZER(CLOSING) };

static void put_descriptor(int fd) REQUIRES(closing.lock)
{
	uint32_t word = (uint32_t)fd / 64;
	uint64_t bit = UINT64_C(1) << fd % 64;

	if (!(closing.waiting[word] & bit)) {
		closing.waiting[word] |= bit;
		closing.first = closing.n ? MIN(closing.first, word) : word;
		closing.n++;
	}
}

/* There must be one. */
static int take_descriptor(void) REQUIRES(closing.lock)
{
	unsigned bit;

	while (!closing.waiting[closing.first]) {
		closing.first++;
	}
	bit = (unsigned)__builtin_ctzll(closing.waiting[closing.first]);
	closing.waiting[closing.first] &= closing.waiting[closing.first] - 1;
	closing.n--;
	return (int)(closing.first * 64 + bit);
}

static void *closer(void *arg)
{
	(void)arg;
	lock_take(&closing.lock);
	while (closing.n) {
		int fd = take_descriptor();

		lock_release(&closing.lock);
		close(fd);
		lock_take(&closing.lock);
	}
	closing.threads--;
	lock_release(&closing.lock);
	return NULL;
}

static void start_closer(void) REQUIRES(closing.lock)
{
	if (thread_start_detached(closer, NULL, 0) == 0) {
		closing.threads++;
	} /* otherwise the next closer that starts takes them all */
}

int fd_close_foreign(int fd)
{
	static const struct linger no_linger;
	int saved = errno;

	if (fd < 0 || shm_checked_size(fd, AT_ONCE_BYTES) >=
			      0) { /* a sealed page, whose close does not block */
		errno = saved;
		return fd_close(fd);
	}
	setsockopt(fd, SOL_SOCKET, SO_LINGER, &no_linger, sizeof(no_linger));
	lock_take(&closing.lock);
	if ((unsigned)fd < MAX_TO_CLOSE) {
		put_descriptor(fd);
	}
	if (closing.threads < MAX_CLOSERS) {
		start_closer();
	}
	lock_release(&closing.lock);
	errno = saved;
	return -1;
}

int futex_wait_shared(const uint32_t *word, uint32_t expected, uint64_t timeout_ns)
{
	struct timespec t = clock_timespec(timeout_ns);

	if (syscall(SYS_futex, word, FUTEX_WAIT, expected, &t, NULL, 0) == 0 || errno == EAGAIN) {
		return 0;
	}
	return -errno;
}

int futex_wake_shared(uint32_t *word, int waiters)
{
	int saved = errno;
	long n = syscall(SYS_futex, word, FUTEX_WAKE, waiters, NULL, NULL, 0);

	errno = saved;
	return n > 0 ? (int)n : 0;
}

int msg_send(int sock, const void *data, size_t len, const int *fds, unsigned nfds)
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(sizeof(int) * FD_PASS_MAX)];
	} ctl;
	struct iovec iov = { .iov_base = (void *)(uintptr_t)data, .iov_len = len };
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1 };
	ssize_t n;

	if (nfds > FD_PASS_MAX) {
		return -EINVAL;
	}
	if (nfds) {
		struct cmsghdr *c;

		memset(&ctl, 0, sizeof(ctl));
		m.msg_control = ctl.bytes;
		m.msg_controllen = CMSG_SPACE(sizeof(int) * nfds);
		c = CMSG_FIRSTHDR(&m);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(sizeof(int) * nfds);
		memcpy(CMSG_DATA(c), fds, sizeof(int) * nfds);
	}
	do {
		n = sendmsg(sock, &m, MSG_NOSIGNAL);
	} while (n < 0 && errno == EINTR);
	return n < 0 ? -errno : 0;
}

/* Takes all received descriptors, because the kernel would close the rest, and block on that. */
static unsigned take_fds(struct msghdr *m, int fds[FD_PASS_MAX], int *overflow)
{
	unsigned n = 0;

	for (struct cmsghdr *c = CMSG_FIRSTHDR(m); c; c = CMSG_NXTHDR(m, c)) {
		size_t count;

		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) {
			continue;
		}
		count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		for (size_t i = 0; i < count; i++) {
			int fd;

			memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof(int));
			if (n < FD_PASS_MAX) {
				fds[n++] = fd;
			} else {
				fd_close_foreign(fd);
				*overflow = 1;
			}
		}
	}
	return n;
}

static ssize_t receive(int sock, void *data, size_t cap, int flags, int fds[FD_PASS_MAX],
		       unsigned *nfds, bool *ret_control)
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(sizeof(int) * SCM_MAX_FDS) +
			   CMSG_SPACE(sizeof(struct ucred))];
	} ctl;
	struct iovec iov = { .iov_base = data, .iov_len = cap };
	struct msghdr m = { .msg_iov = &iov,
			    .msg_iovlen = 1,
			    .msg_control = ctl.bytes,
			    .msg_controllen = sizeof(ctl.bytes) };
	int overflow = 0;
	ssize_t n;

	*nfds = 0;
	do {
		n = recvmsg(sock, &m, MSG_CMSG_CLOEXEC | flags);
	} while (n < 0 && errno == EINTR);
	if (n < 0) {
		return -errno;
	}
	*ret_control = m.msg_controllen > 0;
	*nfds = take_fds(&m, fds, &overflow);
	if (overflow || (m.msg_flags & (MSG_TRUNC | MSG_CTRUNC))) {
		while (*nfds) {
			fd_close_foreign(fds[--*nfds]);
		}
		return -EMSGSIZE;
	}
	return n;
}

ssize_t msg_recv(int sock, void *data, size_t cap, int fds[FD_PASS_MAX], unsigned *nfds)
{
	bool control;

	return receive(sock, data, cap, 0, fds, nfds, &control);
}

#define MAX_ROUNDS 65536u

/* Credentials are requested on sockets that may carry empty messages: they arrive with an empty
 * message, but not with the end of the queue. */
int fd_close_peer(int sock)
{
	int fds[FD_PASS_MAX], type = SOCK_STREAM, one = 1, saved = errno;
	socklen_t len = sizeof(type);
	bool more = true;

	if (sock < 0) {
		return -1;
	}
	shutdown(sock, SHUT_RDWR); /* nothing can arrive any more, so the queue is finite */
	getsockopt(sock, SOL_SOCKET, SO_TYPE, &type, &len);
	setsockopt(sock, SOL_SOCKET, SO_PASSCRED, &one, sizeof(one));
	/* bounded nevertheless, in case a kernel keeps returning messages */
	for (unsigned round = 0; more && round < MAX_ROUNDS; round++) {
		char junk[4096];
		unsigned n;
		ssize_t got = receive(sock, junk, sizeof(junk), MSG_DONTWAIT, fds, &n, &more);

		while (n) {
			fd_close_foreign(fds[--n]);
		}
		more = got > 0 || got == -EMSGSIZE || (got == 0 && more && type == SOCK_SEQPACKET);
	}
	errno = saved;
	return fd_close(sock);
}

int fd_peer(int sock, struct peer *ret_peer)
{
	struct ucred c;
	socklen_t len = sizeof(c);

	if (getsockopt(sock, SOL_SOCKET, SO_PEERCRED, &c, &len) < 0) {
		return -errno;
	}
	*ret_peer = (struct peer){ c.pid, c.uid, c.gid };
	return 0;
}

static int fill_address(struct sockaddr_un *a, const char *path)
{
	memset(a, 0, sizeof(*a));
	a->sun_family = AF_UNIX;
	if (strlen(path) >= sizeof(a->sun_path)) {
		return -ENAMETOOLONG;
	}
	memcpy(a->sun_path, path, strlen(path));
	return 0;
}

/* Lets calls that send or connect wait until a time; -EAGAIN if it has passed. */
static int limit_send(int fd, uint64_t until)
{
	uint64_t now = clock_now_ns(), left = now < until ? until - now : 0;
	struct timeval wait = { (time_t)(left / 1000000000u),
				(suseconds_t)(left % 1000000000u / 1000) };

	if (left < 1000) {
		return -EAGAIN; /* as connect() says */
	}
	return setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &wait, sizeof(wait)) < 0 ? -errno : 0;
}

int unix_connect_within(const char *path, int type, uint64_t timeout_ns)
{
	uint64_t until = clock_now_ns() + timeout_ns;
	struct sockaddr_un a;
	int fd, err = fill_address(&a, path);

	if (err) {
		return err;
	}
	fd = socket(AF_UNIX, type | SOCK_CLOEXEC, 0);
	if (fd < 0) {
		return -errno;
	}
	do { /* with a timeout a signal ends connect() whatever its handler's flags */
		err = timeout_ns ? limit_send(fd, until) : 0;
		if (!err && connect(fd, (struct sockaddr *)&a, sizeof(a)) < 0) {
			err = -errno;
		}
	} while (err == -EINTR && timeout_ns);
	if (err) {
		close(fd);
		return err;
	}
	return fd;
}

int unix_connect(const char *path, int type)
{
	return unix_connect_within(path, type, 0);
}

int unix_listen(const char *path, int type, unsigned mode)
{
	struct sockaddr_un a;
	int fd, err = fill_address(&a, path);

	if (err) {
		return err;
	}
	fd = socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0) {
		return -errno;
	}
	unlink(path);
	if (bind(fd, (struct sockaddr *)&a, sizeof(a)) < 0 || chmod(path, mode) < 0 ||
	    listen(fd, 128) < 0) {
		err = -errno;
		close(fd);
		return err;
	}
	return fd;
}
