/* The path of the soft GPU's socket, by one rule for the server, its clients and queries. */
#ifndef GBPF_SOFT_SOCKET_H
#define GBPF_SOFT_SOCKET_H

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/paths.h"
#include "base/private_dir.h"

#define SOFT_SOCKET_PATH_MAX 108

/* Returns in out $GBPF_SOFTGPU_SOCKET, else softgpu.sock in the runtime directory. make: creates
 * that directory. Returns 0, -EINVAL for a relative path, or -errno. */
static inline int soft_socket_path(char *out, size_t cap, bool make)
{
	const char *given = getenv("GBPF_SOFTGPU_SOCKET");
	char dir[SOFT_SOCKET_PATH_MAX];
	int err = 0;

	if (given && given[0]) {
		if (given[0] != '/') {
			return -EINVAL;
		}
		return (size_t)snprintf(out, cap, "%s", given) < cap ? 0 : -ENAMETOOLONG;
	}
	if (make) {
		err = path_runtime(dir, sizeof(dir), NULL);
		err = err ? err : private_dir_make(dir, path_runtime_mode(), false, NULL);
	}
	return err ? err : path_runtime(out, cap, "softgpu.sock");
}

#endif
