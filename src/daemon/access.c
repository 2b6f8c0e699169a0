/* Access checks: accepting connections, and which peers may administer gbpfd. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd.h"
#include "daemon/daemon.h"

#ifndef SO_PEERGROUPS
#define SO_PEERGROUPS 59
#endif

#define MAX_GROUPS 65536u

int daemon_accept(struct daemon *d, int listen_fd)
{
	int fd = accept4(listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

	if (fd >= 0) {
		return fd;
	}
	if (errno != EMFILE && errno != ENFILE) {
		return -EAGAIN;
	}
	d->access.spare_fd = fd_close(d->access.spare_fd);
	fd = accept4(listen_fd, NULL, NULL, SOCK_CLOEXEC);
	fd_close_peer(fd);
	d->access.spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	return -EAGAIN;
}

static bool in_group(int sock, gid_t group)
{
	gid_t few[64], *groups = few;
	socklen_t len = sizeof(few);
	bool found = false;

	if (getsockopt(sock, SOL_SOCKET, SO_PEERGROUPS, groups, &len) < 0) {
		if (errno != ERANGE || len > MAX_GROUPS * sizeof(gid_t)) {
			return false;
		}
		groups = malloc(len);
		if (!groups || getsockopt(sock, SOL_SOCKET, SO_PEERGROUPS, groups, &len) < 0) {
			free(groups);
			return false;
		}
	}
	for (size_t i = 0; i < len / sizeof(gid_t); i++) {
		found |= groups[i] == group;
	}
	if (groups != few) {
		free(groups);
	}
	return found;
}

bool daemon_may_administer(const struct daemon *d, int sock)
{
	struct peer peer;

	if (fd_peer(sock, &peer) < 0) {
		return false;
	}
	if (peer.uid == 0 || peer.uid == d->uid) {
		return true;
	}
	return d->access.group != (gid_t)-1 &&
	       (peer.gid == d->access.group || in_group(sock, d->access.group));
}
