/* Settings of a cache's folder; opening and writing its files. */
#include "base/disk_cache.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/compiler.h"
#include "base/fd.h"
#include "base/paths.h"

#define TRIM_SHARE 16u /* of the limit: bytes that are written between two looks at the folder */

/* ---- settings ---- */

static bool is_off(void)
{
	const char *v = getenv("GBPF_CACHE");

	return v && (strcmp(v, "off") == 0 || strcmp(v, "0") == 0);
}

/* Reads GBPF_CACHE_MB. 0 or -EINVAL. */
static int read_limit(uint64_t *ret_bytes)
{
	const char *v = getenv("GBPF_CACHE_MB");
	unsigned long long n = DISK_CACHE_DEFAULT_MB;
	char *end;

	if (v && v[0]) {
		errno = 0;
		n = strtoull(v, &end, 10);
		if (*end || v[0] < '0' || v[0] > '9' || errno || n > UINT64_MAX >> 20) {
			return -EINVAL;
		}
	}
	*ret_bytes = (uint64_t)n << 20;
	return 0;
}

int disk_cache_settings(struct disk_cache *ret)
{
	int err = path_cache(ret->dir, sizeof(ret->dir), NULL);

	if (is_off()) {
		return -ENOTSUP;
	}
	err = err ? err : read_limit(&ret->max_bytes);
	return err ? err : ret->max_bytes ? 0 : -ENOTSUP;
}

/* Creates the directory above the default folder, if what is above it is this user's. */
static void make_parent(const char *dir)
{
	char up[DISK_CACHE_DIR], parent[DISK_CACHE_DIR];
	struct stat st;
	char *slash;

	snprintf(parent, sizeof(parent), "%s", dir);
	slash = strrchr(parent, '/');
	if (!slash || slash == parent) {
		return;
	}
	*slash = 0;
	snprintf(up, sizeof(up), "%s", parent);
	slash = strrchr(up, '/');
	if (!slash || slash == up) {
		return;
	}
	*slash = 0;
	if (stat(up, &st) == 0 && st.st_uid == geteuid()) {
		(void)mkdir(parent, 0700);
	}
}

int disk_cache_make(const struct disk_cache *c, char why[PRIVATE_DIR_WHY])
{
	if (path_cache_is_default()) {
		make_parent(c->dir);
	}
	return private_dir_make(c->dir, 0700, false, why);
}

/* ---- files ---- */

static int path_of(const struct disk_cache *c, char out[PATH_MAX], const char *name)
{
	int n = snprintf(out, PATH_MAX, "%s/%s%s", c->dir, name, DISK_CACHE_SUFFIX);

	return n < 0 || n >= PATH_MAX ? -ENAMETOOLONG : 0;
}

int disk_cache_get(const struct disk_cache *c, const char *name)
{
	char path[PATH_MAX];
	struct stat st;
	int fd, err = path_of(c, path, name);

	if (err < 0) {
		return err;
	}
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	if (fd < 0) {
		return errno == ELOOP ? -EPERM : -errno;
	}
	err = fstat(fd, &st) < 0 ? -errno : 0;
	if (!err && (!S_ISREG(st.st_mode) || st.st_uid != geteuid() ||
		     (st.st_mode & (S_IWGRP | S_IWOTH)))) {
		err = -EPERM;
	}
	if (err) {
		fd_close(fd);
		return err;
	}
	(void)futimens(fd, NULL);
	return fd;
}

/* Creates a temporary and takes its flock, which states that it has a writer. */
static int create_temporary(const char *path, char out[PATH_MAX])
{
	uint64_t random = 0;
	int fd, n;

	(void)!getrandom(&random, sizeof(random), GRND_NONBLOCK);
	n = snprintf(out, PATH_MAX, "%s.%d.%016llx%s", path, (int)getpid(),
		     (unsigned long long)random, DISK_CACHE_TEMPORARY);
	if (n < 0 || n >= PATH_MAX) {
		return -ENAMETOOLONG;
	}
	fd = open(out, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0) {
		return -errno;
	}
	(void)flock(fd, LOCK_EX | LOCK_NB);
	return fd;
}

bool disk_cache_may_write(uint64_t bytes)
{
	struct rlimit r;

	return getrlimit(RLIMIT_FSIZE, &r) == 0 &&
	       (r.rlim_cur == RLIM_INFINITY || bytes <= r.rlim_cur);
}

/* Looks at the folder on the process's first file, and each time a share of the limit is written.
 */
static void trim_sometimes(const struct disk_cache *c, uint64_t bytes)
{
	static uint64_t written; /* [atomic] since the last look; 0: never */
	uint64_t before = add_relaxed(&written, bytes + 1);

	if (!before || before + bytes + 1 > c->max_bytes / TRIM_SHARE) {
		store_relaxed(&written, (uint64_t)1);
		(void)disk_cache_trim(c);
	}
}

int disk_cache_put(const struct disk_cache *c, const char *name, uint64_t bytes,
		   int (*write)(int fd, void *arg), void *arg)
{
	char path[PATH_MAX], temporary[PATH_MAX];
	int fd, err = path_of(c, path, name);

	if (err < 0) {
		return err;
	}
	if (bytes > c->max_bytes || !disk_cache_may_write(bytes)) {
		return -EFBIG;
	}
	fd = create_temporary(path, temporary);
	if (fd < 0) {
		return fd;
	}
	err = write(fd, arg);
	if (!err && rename(temporary, path) < 0) {
		err = -errno;
	}
	if (err) {
		(void)unlink(temporary);
		fd_close(fd);
		return err;
	}
	trim_sometimes(c, bytes);
	return fd;
}
