/* Descriptors: closing, futexes, and messages with descriptors over unix sockets. */
#ifndef GBPF_BASE_FD_H
#define GBPF_BASE_FD_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define FD_PASS_MAX 8

/* Closes when >= 0; returns -1 so that `fd = fd_close(fd)` reads well. Keeps errno. */
int fd_close(int fd);

/* For a descriptor that a stranger has passed: returns at once, whatever it is. close() itself may
 * wait for as long as he likes, for a socket that lingers, a file system that he runs or gigabytes
 * to free. What is no sealed page (base/shm.h) of at most 1 MiB a thread closes. Always returns -1.
 */
int fd_close_foreign(int fd);
/* For the socket of a stranger: so that descriptors which wait in it unread are not closed by the
 * kernel, which would wait for them. Always returns -1. */
int fd_close_peer(int sock);

/* Waits while *word == expected, at most timeout_ns; word may lie in memory that others share and
 * that this process may only read. 0 woken or changed, -ETIMEDOUT, -EINTR. */
int futex_wait_shared(const uint32_t *word, uint32_t expected, uint64_t timeout_ns);
/* How many it woke. */
int futex_wake_shared(uint32_t *word, int waiters);

/* One message of a SOCK_SEQPACKET socket. Sends all or nothing, never raises SIGPIPE: 0, -EAGAIN
 * (full), -EPIPE, ... */
int msg_send(int sock, const void *data, size_t len, const int *fds, unsigned nfds);
/* Returns the length (0: peer closed), -EAGAIN, -EMSGSIZE when the message is longer than cap or
 * carries more than FD_PASS_MAX descriptors (all are closed then, as strangers'). Received
 * descriptors are close-on-exec and the caller's. */
ssize_t msg_recv(int sock, void *data, size_t cap, int fds[FD_PASS_MAX], unsigned *nfds);

struct peer {
	pid_t pid;
	uid_t uid;
	gid_t gid;
};

/* SO_PEERCRED of a connected unix socket. 0 or -errno. */
int fd_peer(int sock, struct peer *ret_peer);

/* Connects to (listens on) a unix socket; type is SOCK_STREAM or SOCK_SEQPACKET; close-on-exec.
 * Descriptor or -errno; -ENAMETOOLONG when the path does not fit sockaddr_un. Listening replaces a
 * stale socket file. */
int unix_connect(const char *path, int type);
int unix_listen(const char *path, int type, unsigned mode);

#endif
