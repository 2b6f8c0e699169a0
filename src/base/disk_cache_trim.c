/* The size of a cache's folder: counting, and removing what was not used for longest. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/array_grow.h"
#include "base/atomic.h"
#include "base/compiler.h"
#include "base/disk_cache.h"
#include "base/fd.h"
#include "base/private_file.h"

#define MAX_FILES ((size_t)1 << 20)
#define KEPT_SHARE 8u /* an eighth of the limit is freed, so that not every file removes others */

struct file {
	char name[NAME_MAX + 1];
	uint64_t bytes;
	int64_t used_ns;
};

struct files {
	struct file *list; /* owned */
	size_t n, cap;
	uint64_t bytes;
};

static bool ends_with(const char *text, const char *end)
{
	size_t n = strlen(text), m = strlen(end);

	return n > m && strcmp(text + n - m, end) == 0;
}

static void add_file(struct files *f, const char *name, const struct stat *st)
{
	struct file *more = array_grow(f->list, f->n, &f->cap, sizeof(*more), 64, MAX_FILES);

	if (!more) {
		return;
	}
	f->list = more;
	snprintf(f->list[f->n].name, sizeof(f->list[f->n].name), "%s", name);
	f->list[f->n].bytes = (uint64_t)st->st_size;
	f->list[f->n].used_ns = st->st_mtim.tv_sec * INT64_C(1000000000) + st->st_mtim.tv_nsec;
	f->n++;
}

/* Removes a temporary whose writer has exited: it is old, and its flock is free. A writer takes the
 * flock at once, so that an old one without it has none. */
static void remove_temporary(int dir, const char *name, const struct stat *st)
{
	int fd;

	if (time(NULL) - st->st_mtim.tv_sec < (time_t)DISK_CACHE_TEMPORARY_S) {
		return;
	}
	fd = openat(dir, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0) {
		(void)unlinkat(dir, name, 0);
	}
	fd_close(fd);
}

/* Lists the files. clean: also removes temporaries without a writer. Other names are not ours. */
static int scan(const struct disk_cache *c, struct files *f, bool clean)
{
	DIR *d = opendir(c->dir);
	const struct dirent *e;
	struct stat st;

	if (!d) {
		return -errno;
	}
	while ((e = readdir(d)) != NULL) {
		bool ours = ends_with(e->d_name, DISK_CACHE_SUFFIX);
		bool temporary = ends_with(e->d_name, DISK_CACHE_TEMPORARY);

		if ((!ours && !temporary) ||
		    fstatat(dirfd(d), e->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
		    !S_ISREG(st.st_mode)) {
			continue;
		}
		f->bytes += (uint64_t)st.st_size;
		if (ours) {
			add_file(f, e->d_name, &st);
		} else if (clean) {
			remove_temporary(dirfd(d), e->d_name, &st);
		}
	}
	closedir(d);
	return 0;
}

static int by_use(const void *a, const void *b)
{
	const struct file *x = a, *y = b;

	return (x->used_ns > y->used_ns) - (x->used_ns < y->used_ns);
}

static void remove_oldest(const struct disk_cache *c, struct files *f)
{
	uint64_t target = c->max_bytes - c->max_bytes / KEPT_SHARE;
	char path[PATH_MAX];

	qsort(f->list, f->n, sizeof(f->list[0]), by_use);
	/* The last one may be the one that was just written. */
	for (size_t i = 0; i + 1 < f->n && f->bytes > target; i++) {
		int n = snprintf(path, sizeof(path), "%s/%s", c->dir, f->list[i].name);

		if (n > 0 && n < (int)sizeof(path) && unlink(path) == 0) {
			f->bytes -= f->list[i].bytes;
		}
	}
}

/* Opens the lock file and takes its flock. Returns the descriptor or -errno; never waits. */
static int take_lock(const struct disk_cache *c)
{
	char path[PATH_MAX];
	int fd, err, n = snprintf(path, sizeof(path), "%s/%s", c->dir, DISK_CACHE_LOCK);

	if (n < 0 || n >= (int)sizeof(path)) {
		return -ENAMETOOLONG;
	}
	fd = private_file_open(path, O_RDWR | O_CREAT);
	if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) < 0) {
		err = -errno;
		fd_close(fd);
		return err;
	}
	return fd;
}

/* Also if a child process that was forked meanwhile still has the descriptor. */
static void drop_lock(int fd)
{
	(void)flock(fd, LOCK_UN);
	fd_close(fd);
}

int disk_cache_trim(const struct disk_cache *c)
{
	struct files f = { 0 };
	int err, lock = take_lock(c);

	if (lock < 0) {
		return lock;
	}
	err = scan(c, &f, true);
	if (!err && f.bytes > c->max_bytes) {
		remove_oldest(c, &f);
	}
	free(f.list);
	drop_lock(lock);
	return err;
}

/* ---- counts ---- */

static void read_counts(int fd, uint64_t *hits, uint64_t *misses)
{
	char text[64] = { 0 };

	*hits = *misses = 0;
	if (pread(fd, text, sizeof(text) - 1, 0) <= 0 ||
	    sscanf(text, "%20" SCNu64 " hits, %20" SCNu64 " misses", hits, misses) != 2) {
		*hits = *misses = 0;
	}
}

void disk_cache_count(const struct disk_cache *c, bool hit)
{
	static uint64_t pending[2]; /* [atomic] hits, misses */
	uint64_t hits, misses;
	char text[64];
	int fd, n;

	add_relaxed(&pending[!hit], (uint64_t)1);
	fd = disk_cache_may_write(sizeof(text)) ? take_lock(c) : -EFBIG;
	if (fd < 0) {
		return;
	}
	read_counts(fd, &hits, &misses);
	hits += xchg_acqrel(&pending[0], (uint64_t)0);
	misses += xchg_acqrel(&pending[1], (uint64_t)0);
	/* What a longer text has left behind the last word is not read. */
	n = snprintf(text, sizeof(text), "%" PRIu64 " hits, %" PRIu64 " misses\n", hits, misses);
	(void)!pwrite(fd, text, (size_t)n, 0);
	drop_lock(fd);
}

int disk_cache_summary(const struct disk_cache *c, struct disk_cache_summary *ret)
{
	struct files f = { 0 };
	char path[PATH_MAX];
	int fd, n, err = scan(c, &f, false);

	*ret = (struct disk_cache_summary){ .files = f.n, .bytes = f.bytes };
	free(f.list);
	n = snprintf(path, sizeof(path), "%s/%s", c->dir, DISK_CACHE_LOCK);
	if (!err && n > 0 && n < (int)sizeof(path)) {
		fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
		if (fd >= 0) {
			read_counts(fd, &ret->hits, &ret->misses);
			fd_close(fd);
		}
	}
	return err;
}
