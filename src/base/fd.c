/* Descriptors, futexes, unix sockets. See unix(7), futex(2), cmsg(3). */
#include "base/fd.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

int fd_close(int fd)
{
	int saved = errno;

	if (fd >= 0) {
		close(fd);
	}
	errno = saved;
	return -1;
}

int futex_wait_shared(const uint32_t *word, uint32_t expected, uint64_t timeout_ns)
{
	struct timespec t = { .tv_sec = (time_t)(timeout_ns / 1000000000u),
			      .tv_nsec = (long)(timeout_ns % 1000000000u) };

	if (syscall(SYS_futex, word, FUTEX_WAIT, expected, &t, NULL, 0) == 0 || errno == EAGAIN) {
		return 0;
	}
	return -errno;
}

void futex_wake_shared(uint32_t *word, int waiters)
{
	int saved = errno;

	syscall(SYS_futex, word, FUTEX_WAKE, waiters, NULL, NULL, 0);
	errno = saved;
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
				close(fd);
				*overflow = 1;
			}
		}
	}
	return n;
}

ssize_t msg_recv(int sock, void *data, size_t cap, int fds[FD_PASS_MAX], unsigned *nfds)
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(sizeof(int) * FD_PASS_MAX)];
	} ctl;
	struct iovec iov = { .iov_base = data, .iov_len = cap };
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = ctl.bytes,
			    .msg_controllen = sizeof(ctl.bytes) };
	int overflow = 0;
	ssize_t n;

	*nfds = 0;
	do {
		n = recvmsg(sock, &m, MSG_CMSG_CLOEXEC);
	} while (n < 0 && errno == EINTR);
	if (n < 0) {
		return -errno;
	}
	*nfds = take_fds(&m, fds, &overflow);
	if (overflow || (m.msg_flags & (MSG_TRUNC | MSG_CTRUNC))) {
		while (*nfds) {
			close(fds[--*nfds]);
		}
		return -EMSGSIZE;
	}
	return n;
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

int unix_connect(const char *path, int type)
{
	struct sockaddr_un a;
	int fd, err = fill_address(&a, path);

	if (err) {
		return err;
	}
	fd = socket(AF_UNIX, type | SOCK_CLOEXEC, 0);
	if (fd < 0) {
		return -errno;
	}
	if (connect(fd, (struct sockaddr *)&a, sizeof(a)) < 0) {
		err = -errno;
		close(fd);
		return err;
	}
	return fd;
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
	if (bind(fd, (struct sockaddr *)&a, sizeof(a)) < 0 || chmod(path, mode) < 0 || listen(fd, 128) < 0) {
		err = -errno;
		close(fd);
		return err;
	}
	return fd;
}
