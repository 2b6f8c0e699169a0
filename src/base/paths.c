/* Environment variables come first, so that tests and containers can use one folder for everything.
 */
#include "base/paths.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int join(char *out, size_t cap, const char *dir, const char *mid, const char *leaf)
{
	int n = snprintf(out, cap, "%s%s%s%s", dir, mid, leaf ? "/" : "", leaf ? leaf : "");

	return n < 0 || (size_t)n >= cap ? -ENAMETOOLONG : 0;
}

static const char *env_dir(const char *name)
{
	const char *v = getenv(name);

	return v && v[0] == '/'
		       ? v
		       : NULL; /* relative values are ignored, as the XDG specification requires */
}

int path_runtime(char *out, size_t cap, const char *leaf)
{
	const char *dir = env_dir("GBPF_RUNTIME_DIR");
	char fallback[64];

	if (dir) {
		return join(out, cap, dir, "", leaf);
	}
	if (geteuid() == 0) {
		return join(out, cap, "/run/gbpf", "", leaf);
	}
	dir = env_dir("XDG_RUNTIME_DIR");
	if (dir) {
		return join(out, cap, dir, "/gbpf", leaf);
	}
	snprintf(fallback, sizeof(fallback), "/tmp/gbpf-%u", (unsigned)geteuid());
	return join(out, cap, fallback, "", leaf);
}

unsigned path_runtime_mode(void)
{
	return geteuid() == 0 ? 0755 : 0700;
}

int path_state(char *out, size_t cap, const char *leaf)
{
	const char *dir = env_dir("GBPF_STATE_DIR");

	if (dir) {
		return join(out, cap, dir, "", leaf);
	}
	if (geteuid() == 0) {
		return join(out, cap, "/var/lib/gbpf", "", leaf);
	}
	dir = env_dir("XDG_STATE_HOME");
	if (dir) {
		return join(out, cap, dir, "/gbpf", leaf);
	}
	dir = env_dir("HOME");
	return join(out, cap, dir ? dir : "/tmp", "/.local/state/gbpf", leaf);
}

static int own_dir(char *out, size_t cap)
{
	ssize_t n = readlink("/proc/self/exe", out, cap - 1);
	char *slash;

	if (n < 0) {
		return -errno;
	}
	out[n] = 0;
	slash = strrchr(out, '/');
	if (!slash) {
		return -ENOENT;
	}
	*slash = 0;
	return 0;
}

int path_lib(char *out, size_t cap, const char *leaf)
{
	const char *dir = env_dir("GBPF_LIBDIR");
	char own[4096];
	int err;

	if (dir) {
		return join(out, cap, dir, "", leaf);
	}
	err = own_dir(own, sizeof(own));
	return err ? err : join(out, cap, own, "/../lib/gbpf", leaf);
}

int path_program(char *out, size_t cap, const char *name)
{
	const char *dir = env_dir("GBPF_BINDIR");
	char own[4096];
	int err;

	if (dir) {
		return join(out, cap, dir, "", name);
	}
	err = own_dir(own, sizeof(own));
	return err ? err : join(out, cap, own, "", name);
}

static int check_private(const char *dir)
{
	struct stat st;

	if (lstat(dir, &st) < 0) {
		return -errno;
	}
	if (!S_ISDIR(st.st_mode)) {
		return -ENOTDIR;
	}
	if ((st.st_uid != geteuid() && st.st_uid != 0) || (st.st_mode & S_IWOTH)) {
		return -EPERM;
	}
	return 0;
}

int path_make_private(const char *dir, unsigned mode)
{
	char part[4096];

	if (strlen(dir) >= sizeof(part)) {
		return -ENAMETOOLONG;
	}
	for (size_t i = 1; dir[i]; i++) {
		if (dir[i] == '/') {
			memcpy(part, dir, i);
			part[i] = 0;
			if (mkdir(part, 0755) < 0 && errno != EEXIST) {
				return -errno;
			}
		}
	}
	if (mkdir(dir, mode) < 0 && errno != EEXIST) {
		return -errno;
	}
	return check_private(dir);
}
