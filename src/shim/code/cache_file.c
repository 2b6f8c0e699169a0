/* Writing, checking and mapping files of patched images. */
#include "shim/code/cache_file.h"

#include <errno.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/vfs.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#define PIECE_BYTES ((size_t)64 << 10) /* is read at a time */
#define MAX_IMAGE_BYTES ((uint64_t)1 << 31)
#define MAX_TABLE_BYTES ((uint64_t)1 << 28)
#define ZFS_MAGIC 0x2fc12fc1
#define BCACHEFS_MAGIC 0xca451a4e

static const char magic[8] = "gBPFcode";

/* ---- keys ---- */

struct shim_cache_key shim_cache_key_of(const void *data, size_t bytes, unsigned arch,
					const struct cubin_stub *s)
{
	XXH128_hash_t h = XXH3_128bits(data, bytes);

	return (struct shim_cache_key){ .original = { h.low64, h.high64 },
					.bytes = bytes,
					.stub = cubin_stub_hash(s),
					.version = cubin_version(),
					.arch = arch };
}

struct shim_cache_key shim_cache_key_of_ptx(const char *text, size_t bytes, unsigned arch,
					    const void *driver, size_t driver_bytes)
{
	XXH128_hash_t h = XXH3_128bits(text, bytes);

	return (struct shim_cache_key){ .original = { h.low64, h.high64 },
					.bytes = bytes,
					.stub = XXH3_64bits(driver, driver_bytes),
					.arch = arch };
}

void shim_cache_name(const struct shim_cache_key *k, char out[SHIM_CACHE_NAME])
{
	XXH128_hash_t h = XXH3_128bits(k, sizeof(*k));

	snprintf(out, SHIM_CACHE_NAME, "%016llx%016llx", (unsigned long long)h.high64,
		 (unsigned long long)h.low64);
}

/* ---- writing ---- */

uint64_t shim_cache_file_bytes(size_t image_bytes, size_t table_bytes)
{
	return (uint64_t)SHIM_CACHE_HEAD_BYTES + image_bytes + table_bytes;
}

static void sum_head(const struct shim_cache_head *h, uint64_t ret[2])
{
	XXH128_hash_t sum = XXH3_128bits(h, offsetof(struct shim_cache_head, head_sum));

	ret[0] = sum.low64;
	ret[1] = sum.high64;
}

static int write_all(int fd, const void *data, size_t bytes)
{
	const char *at = data;

	while (bytes) {
		ssize_t n = write(fd, at, bytes);

		if (n == 0 || (n < 0 && errno != EINTR)) {
			return n ? -errno : -EIO;
		}
		if (n > 0) {
			at += n;
			bytes -= (size_t)n;
		}
	}
	return 0;
}

/* Image and table, one after the other. */
static int sum_parts(const void *image, size_t image_bytes, const struct buf *table,
		     uint64_t ret[2])
{
	XXH3_state_t *s = XXH3_createState();
	XXH128_hash_t sum;

	if (!s) {
		return -ENOMEM;
	}
	XXH3_128bits_reset(s);
	XXH3_128bits_update(s, image, image_bytes);
	XXH3_128bits_update(s, table->data, table->len);
	sum = XXH3_128bits_digest(s);
	XXH3_freeState(s);
	ret[0] = sum.low64;
	ret[1] = sum.high64;
	return 0;
}

int shim_cache_file_write(int fd, const struct shim_cache_key *k, const void *image,
			  size_t image_bytes, const struct buf *table)
{
	union {
		struct shim_cache_head head;
		char bytes[SHIM_CACHE_HEAD_BYTES];
	} page = { .bytes = { 0 } };
	struct shim_cache_head *h = &page.head;
	int err;

	memcpy(h->magic, magic, sizeof(magic));
	h->format = SHIM_CACHE_FORMAT;
	h->head_bytes = sizeof(*h);
	h->key = *k;
	h->image_bytes = image_bytes;
	h->table_bytes = table->len;
	err = sum_parts(image, image_bytes, table, h->content_sum);
	sum_head(h, h->head_sum);
	err = err ? err : write_all(fd, &page, sizeof(page));
	err = err ? err : write_all(fd, image, image_bytes);
	return err ? err : write_all(fd, table->data, table->len);
}

struct job {
	const struct shim_cache_key *key;
	const void *image;
	size_t image_bytes;
	const struct buf *table;
};

static int write_job(int fd, void *arg)
{
	const struct job *j = arg;

	return shim_cache_file_write(fd, j->key, j->image, j->image_bytes, j->table);
}

int shim_cache_file_put(const struct disk_cache *c, const char *name,
			const struct shim_cache_key *k, const void *image, size_t image_bytes,
			const struct buf *table)
{
	struct job j = { k, image, image_bytes, table };

	return disk_cache_put(c, name, shim_cache_file_bytes(image_bytes, table->len), write_job,
			      &j);
}

/* ---- checking ---- */

static int read_all(int fd, void *to, size_t bytes, uint64_t at)
{
	char *p = to;

	while (bytes) {
		ssize_t n = pread(fd, p, bytes, (off_t)at);

		if (n < 0 && errno != EINTR) {
			return -errno;
		}
		if (n == 0) {
			return -EBADMSG; /* it has become shorter */
		}
		if (n > 0) {
			p += n;
			at += (uint64_t)n;
			bytes -= (size_t)n;
		}
	}
	return 0;
}

static int read_head(int fd, const struct shim_cache_key *k, struct shim_cache_head *h)
{
	uint64_t sum[2];
	struct stat st;
	int err = fstat(fd, &st) < 0 ? -errno : read_all(fd, h, sizeof(*h), 0);

	if (err) {
		return err;
	}
	sum_head(h, sum);
	if (memcmp(h->magic, magic, sizeof(magic)) != 0 || h->format != SHIM_CACHE_FORMAT ||
	    h->head_bytes != sizeof(*h) || memcmp(sum, h->head_sum, sizeof(sum)) != 0 ||
	    memcmp(&h->key, k, sizeof(*k)) != 0) {
		return -EBADMSG;
	}
	if (!h->image_bytes || h->image_bytes > MAX_IMAGE_BYTES ||
	    h->table_bytes > MAX_TABLE_BYTES || st.st_size < 0 ||
	    (uint64_t)st.st_size != shim_cache_file_bytes(h->image_bytes, h->table_bytes)) {
		return -EBADMSG;
	}
	return 0;
}

/* Adds a part of the file to the checksum. to NULL: reads it piece by piece, so that no more of it
 * is in memory than the kernel caches. */
static int sum_file(XXH3_state_t *s, int fd, uint64_t at, size_t bytes, char *to)
{
	char *piece = to ? to : malloc(MIN(bytes, PIECE_BYTES));
	int err = piece ? 0 : -ENOMEM;

	while (!err && bytes) {
		size_t n = MIN(bytes, PIECE_BYTES);

		err = read_all(fd, piece, n, at);
		if (!err) {
			XXH3_128bits_update(s, piece, n);
			piece += to ? n : 0;
			at += n;
			bytes -= n;
		}
	}
	if (!to) {
		free(piece);
	}
	return err;
}

/* Compares the checksum of image and table, and keeps the table. image NULL: it is not kept. */
static int check_content(int fd, const struct shim_cache_head *h, char *image, char *table)
{
	XXH3_state_t *s = XXH3_createState();
	XXH128_hash_t sum;
	int err = s ? 0 : -ENOMEM;

	if (!err) {
		XXH3_128bits_reset(s);
		err = sum_file(s, fd, SHIM_CACHE_HEAD_BYTES, h->image_bytes, image);
	}
	if (!err && h->table_bytes) {
		err = sum_file(s, fd, SHIM_CACHE_HEAD_BYTES + h->image_bytes, h->table_bytes,
			       table);
	}
	if (!err) {
		sum = XXH3_128bits_digest(s);
		err = sum.low64 == h->content_sum[0] && sum.high64 == h->content_sum[1] ? 0
											: -EBADMSG;
	}
	XXH3_freeState(s);
	return err;
}

/* ---- placing images in memory ---- */

/* Returns true if only this machine changes the file's system. */
static bool is_local(int fd)
{
	static const uint32_t types[] = { EXT4_SUPER_MAGIC, XFS_SUPER_MAGIC,  BTRFS_SUPER_MAGIC,
					  TMPFS_MAGIC,	    F2FS_SUPER_MAGIC, OVERLAYFS_SUPER_MAGIC,
					  ZFS_MAGIC,	    BCACHEFS_MAGIC };
	struct statfs fs;

	if (fstatfs(fd, &fs) < 0) {
		return false;
	}
	for (size_t i = 0; i < ARRAY_SIZE(types); i++) {
		if ((uint32_t)fs.f_type == types[i]) {
			return true;
		}
	}
	return false;
}

static void unmap(void *image, size_t bytes)
{
	munmap(image, bytes);
}

static void free_copy(void *image, size_t bytes)
{
	free(image);
}

int shim_cache_file_place(int fd, size_t image_bytes, struct cubin_patched *p)
{
	void *at;

	if (!is_local(fd)) {
		return -EOPNOTSUPP;
	}
	at = mmap(NULL, image_bytes, PROT_READ, MAP_PRIVATE, fd, SHIM_CACHE_HEAD_BYTES);
	if (at == MAP_FAILED) {
		return -errno;
	}
	cubin_patched_set_image(p, at, image_bytes, unmap);
	return 0;
}

/* Checks the content and fills p. copy: memory for the image, or NULL. */
static int read_content(int fd, const struct shim_cache_head *h, char *copy,
			struct cubin_patched **ret)
{
	char *table = malloc(h->table_bytes ? h->table_bytes : 1);
	int err = table ? check_content(fd, h, copy, table) : -ENOMEM;

	err = err ? err : cubin_table_read(ret, table, h->table_bytes);
	free(table);
	return err;
}

int shim_cache_file_read(int fd, const struct shim_cache_key *k, struct cubin_patched **ret)
{
	struct cubin_patched *p = NULL;
	struct shim_cache_head h;
	bool local = is_local(fd);
	char *copy = NULL;
	int err = read_head(fd, k, &h);

	if (!err && !local) {
		copy = malloc(h.image_bytes);
		err = copy ? 0 : -ENOMEM;
	}
	err = err ? err : read_content(fd, &h, copy, &p);
	if (!err && local) {
		err = shim_cache_file_place(fd, h.image_bytes, p);
	}
	if (!err && copy) {
		cubin_patched_set_image(p, copy, h.image_bytes, free_copy);
		copy = NULL;
	}
	free(copy);
	if (err) {
		cubin_patched_close(p);
		return err;
	}
	*ret = p;
	return 0;
}

int shim_cache_file_read_code(int fd, const struct shim_cache_key *k, void **ret, size_t *ret_bytes)
{
	struct shim_cache_head h;
	int err = read_head(fd, k, &h);
	char *code;

	if (err || h.table_bytes) {
		return err ? err : -EBADMSG;
	}
	code = malloc(h.image_bytes);
	err = code ? check_content(fd, &h, code, NULL) : -ENOMEM;
	if (err) {
		free(code);
		return err;
	}
	*ret = code;
	*ret_bytes = h.image_bytes;
	return 0;
}
