/* A folder of files that can be made again, shared by the processes of one user and bounded in
 * size. A file is complete or absent: it is written under another name, then renamed, and never
 * changed afterwards; removing it takes only its name, so what is mapped stays as it is. Folders
 * and files that another user owns, or may write, are not used: only a process of the same user can
 * shorten a file that is mapped, and could harm its other processes anyway. */
#ifndef GBPF_BASE_DISK_CACHE_H
#define GBPF_BASE_DISK_CACHE_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/private_dir.h"

#define DISK_CACHE_DIR 3840	     /* bytes of a folder's path */
#define DISK_CACHE_SUFFIX ".image"   /* names of files end with it */
#define DISK_CACHE_TEMPORARY ".tmp"  /* names of files that are being written */
#define DISK_CACHE_LOCK "lock"	     /* held while files are removed; contains the counts */
#define DISK_CACHE_TEMPORARY_S 3600u /* a temporary that is older has lost its writer */
#define DISK_CACHE_DEFAULT_MB 1024u

struct disk_cache {
	char dir[DISK_CACHE_DIR];
	uint64_t max_bytes;
};

/* Reads the settings: GBPF_CACHE=off, path_cache(), GBPF_CACHE_MB. 0; -ENOTSUP: switched off;
 * -ENOENT: no variable names a folder; -EINVAL: GBPF_CACHE_MB is no number, or the folder no
 * absolute path; -ENAMETOOLONG. Creates nothing. */
int disk_cache_settings(struct disk_cache *ret);

/* Creates the folder unless it exists, and checks it as private_dir_make does. Does not create it
 * in a home directory of another user. 0, -EPERM, -errno; why has the reason. */
int disk_cache_make(const struct disk_cache *c, char why[PRIVATE_DIR_WHY]);

/* Opens a file for reading and marks it as used now. Returns the descriptor; -ENOENT; -EPERM: it is
 * no regular file of this user's that only this user may write; -errno. */
int disk_cache_get(const struct disk_cache *c, const char *name);

/* Writes a file by calling `write`, which returns 0 or -errno, and gives it its name, which another
 * file may have had. Returns a descriptor of the file, which the caller closes once it has mapped
 * it; -EFBIG if `bytes`, its size, exceeds the limit, or that of the process; -errno. Then removes
 * the files that were not used for longest if the limit is exceeded, unless another process is
 * doing that. A process that is killed leaves a temporary, which a later call removes. */
int disk_cache_put(const struct disk_cache *c, const char *name, uint64_t bytes,
		   int (*write)(int fd, void *arg), void *arg);

/* Returns false if the process would get SIGXFSZ for a file of that size. */
bool disk_cache_may_write(uint64_t bytes);

/* Counts a file that was found, or was not. Never waits: what cannot be stored now is added by the
 * next call of this process. */
void disk_cache_count(const struct disk_cache *c, bool hit);

/* Removes files until the limit is kept, and temporaries without a writer. -EWOULDBLOCK: another
 * process is at it. */
int disk_cache_trim(const struct disk_cache *c);

struct disk_cache_summary {
	uint64_t files, bytes, hits, misses;
};
/* Reads without waiting. 0 or -errno. */
int disk_cache_summary(const struct disk_cache *c, struct disk_cache_summary *ret);

#endif
