/* The decision about the runtime directory. It trusts the credentials of a listener, which the
 * kernel vouches for: only root can listen as root. Where no process listens it trusts root's file
 * about a process of root's that starts or stops. */
#include "base/runtime_choice.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/paths.h"
#include "base/runtime_state.h"

/* Returns true if no other user can have put the socket into the directory. */
static bool only_root_writes(const char *dir)
{
	struct stat st;

	return lstat(dir, &st) == 0 && S_ISDIR(st.st_mode) && st.st_uid == 0 &&
	       !(st.st_mode & (S_IWGRP | S_IWOTH));
}

bool runtime_root_serves(void)
{
	struct peer peer;
	int sock = unix_connect(RUNTIME_OF_ROOT "/control.sock", SOCK_STREAM | SOCK_NONBLOCK);
	bool serves;

	if (sock == -EAGAIN) {
		return only_root_writes(RUNTIME_OF_ROOT);
	}
	if (sock == -ENOENT || sock == -ECONNREFUSED) {
		return only_root_writes(RUNTIME_OF_ROOT) &&
		       runtime_state_is_passing(runtime_state_read(RUNTIME_OF_ROOT));
	}
	serves = sock >= 0 && fd_peer(sock, &peer) == 0 && peer.uid == 0;
	fd_close(sock);
	return serves;
}

bool runtime_is_roots(void)
{
	const char *named = getenv("GBPF_RUNTIME_DIR");

	return geteuid() != 0 && !(named && named[0]) && runtime_root_serves();
}

int runtime_path_of(bool roots, char *out, size_t cap, const char *leaf)
{
	int n;

	if (!roots) {
		return path_runtime(out, cap, leaf);
	}
	n = snprintf(out, cap, "%s%s%s", RUNTIME_OF_ROOT, leaf ? "/" : "", leaf ? leaf : "");
	return n < 0 || (size_t)n >= cap ? -ENAMETOOLONG : 0;
}

int runtime_path(char *out, size_t cap, const char *leaf)
{
	return runtime_path_of(runtime_is_roots(), out, cap, leaf);
}
