/* The file that stores a patched image, or machine code that the driver has compiled: a head of one
 * page, the ELF image, the kernels' table (empty). It calls no CUDA. Reading trusts nothing: a file
 * with another key, another length, a wrong checksum or a table that no patcher writes is refused.
 */
#ifndef GBPF_SHIM_CODE_CACHE_FILE_H
#define GBPF_SHIM_CODE_CACHE_FILE_H

#include <stddef.h>
#include <stdint.h>

#include "base/disk_cache.h"
#include "cubin/cubin.h"

/* From what the image was patched, and how. */
struct shim_cache_key {
	uint64_t original[2];	/* hash of the program's bytes, as it gives them to the driver */
	uint64_t bytes;		/* their count */
	uint64_t stub, version; /* cubin_stub_hash, cubin_version */
	uint64_t arch;
};
/* data: the entry of the fat binary, compressed or not, or the ELF. */
struct shim_cache_key shim_cache_key_of(const void *data, size_t bytes, unsigned arch,
					const struct cubin_stub *s);

/* What the driver makes of a text: stub has the driver's identity, version is 0. */
struct shim_cache_key shim_cache_key_of_ptx(const char *text, size_t bytes, unsigned arch,
					    const void *driver, size_t driver_bytes);

#define SHIM_CACHE_NAME 33
/* Writes the file's name. Different keys may share it: the file has the key. */
void shim_cache_name(const struct shim_cache_key *k, char out[SHIM_CACHE_NAME]);

#define SHIM_CACHE_HEAD_BYTES 4096u /* the image begins at a page */
#define SHIM_CACHE_FORMAT 1u

struct shim_cache_head {
	char magic[8];
	uint32_t format, head_bytes;
	struct shim_cache_key key;
	uint64_t image_bytes, table_bytes;
	uint64_t content_sum[2]; /* of image and table */
	uint64_t head_sum[2];	 /* of all fields above */
};

/* Returns the size of the file for a patched image and its table. */
uint64_t shim_cache_file_bytes(size_t image_bytes, size_t table_bytes);
/* Writes a file. 0 or -errno. */
int shim_cache_file_write(int fd, const struct shim_cache_key *k, const void *image,
			  size_t image_bytes, const struct buf *table);

/* Writes a file into a folder under that name. As disk_cache_put(). */
int shim_cache_file_put(const struct disk_cache *c, const char *name,
			const struct shim_cache_key *k, const void *image, size_t image_bytes,
			const struct buf *table);

/* Reads a file's table, and places its image in memory: as a read-only mapping of the file if its
 * file system is a local one, else as a copy, because on another one a file that another machine
 * removes ends processes that have it mapped. 0 and *ret; -EBADMSG: not a valid file of this key;
 * -ENOMEM; -errno. Does not keep fd. */
int shim_cache_file_read(int fd, const struct shim_cache_key *k, struct cubin_patched **ret);
/* Reads a file without a table. 0 and *ret, which the caller frees; or as above. */
int shim_cache_file_read_code(int fd, const struct shim_cache_key *k, void **ret,
			      size_t *ret_bytes);
/* Places the image of a file that this process has just written. 0; -errno: p is unchanged. */
int shim_cache_file_place(int fd, size_t image_bytes, struct cubin_patched *p);

#endif
