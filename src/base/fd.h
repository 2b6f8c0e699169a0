/* Descriptors: closing, futexes, and messages with descriptors over unix sockets. */
#ifndef GBPF_BASE_FD_H
#define GBPF_BASE_FD_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define FD_PASS_MAX 8

/* Closes fd if it is >= 0. Returns -1, so that `fd = fd_close(fd)` is one statement. Keeps errno.
 */
int fd_close(int fd);

/* Closes a descriptor received from an untrusted process, without blocking whatever it is: its
 * close() may block for as long as the sender wants (a socket with SO_LINGER, a FUSE file,
 * gigabytes to free). A thread closes it unless it is a sealed page (base/shm.h) of at most 1 MiB.
 * Returns -1. */
int fd_close_foreign(int fd);
/* Closes the socket of an untrusted process. Descriptors queued in it are closed as above, because
 * the kernel would block on them. Returns -1. */
int fd_close_peer(int sock);

/* Waits while *word == expected, at most timeout_ns. word may be in shared memory that this process
 * may only read. 0: woken or changed; -ETIMEDOUT; -EINTR. */
int futex_wait_shared(const uint32_t *word, uint32_t expected, uint64_t timeout_ns);
/* Returns the number of waiters woken. */
int futex_wake_shared(uint32_t *word, int waiters);

/* Sends one message on a SOCK_SEQPACKET socket, all or nothing, without SIGPIPE. 0, -EAGAIN (full),
 * -EPIPE, ... */
int msg_send(int sock, const void *data, size_t len, const int *fds, unsigned nfds);
/* Returns the length (0: the peer has closed), -EAGAIN, or -EMSGSIZE if the message is longer than
 * cap or carries more than FD_PASS_MAX descriptors, which are then closed as by fd_close_foreign().
 * Received descriptors are close-on-exec and the caller's. */
ssize_t msg_recv(int sock, void *data, size_t cap, int fds[FD_PASS_MAX], unsigned *nfds);

struct peer {
	pid_t pid;
	uid_t uid;
	gid_t gid;
};

/* Returns SO_PEERCRED of a connected unix socket in *ret_peer. 0 or -errno. */
int fd_peer(int sock, struct peer *ret_peer);

/* Connects to or listens on a unix socket; type is SOCK_STREAM or SOCK_SEQPACKET; close-on-exec.
 * Returns the descriptor or -errno; -ENAMETOOLONG if the path does not fit sockaddr_un. Listening
 * replaces a stale socket file. */
int unix_connect(const char *path, int type);
/* The same, but waits at most timeout_ns if the server accepts no connections: -EAGAIN. Sending on
 * the socket waits no longer either. */
int unix_connect_within(const char *path, int type, uint64_t timeout_ns);
int unix_listen(const char *path, int type, unsigned mode);

#endif
