/* Patched images of earlier runs, on disk: found by the program's bytes, so that an image is
 * unpacked, patched and checked once, and its memory is a file's instead of each process's own;
 * likewise the machine code that the driver makes of gBPF's PTX. All
 * of it is optional: without a folder, or on any error, images are patched as if there were no
 * cache. */
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/stat.h>

#include "base/disk_cache.h"
#include "base/fd.h"
#include "shim/code/cache_file.h"
#include "shim/code/shim_code_int.h"

/* Smaller images are patched in about the time that finding a file takes, and writing it would take
 * that of ten starts or more (docs/BENCHMARKS.md). */
#define MIN_KB_DEFAULT 8u

static struct {
	bool on;
	size_t min_bytes;
	struct disk_cache disk;
} cache; /* set once */

static size_t read_min_bytes(void)
{
	const char *v = getenv("GBPF_CACHE_MIN_KB");
	unsigned long kb = v && v[0] >= '0' && v[0] <= '9' ? strtoul(v, NULL, 10) : MIN_KB_DEFAULT;

	return (size_t)kb << 10;
}

/* A program that has more rights than its caller must not take files from where the caller says. */
static void set_up(void)
{
	cache.min_bytes = read_min_bytes();
	cache.on = !getauxval(AT_SECURE) && disk_cache_settings(&cache.disk) == 0 &&
		   disk_cache_make(&cache.disk, NULL) == 0;
}

static bool usable(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, set_up);
	return cache.on;
}

/* ---- patched images ---- */

static bool wanted(const struct shim_code_elf *elf)
{
	return usable() && elf->given_bytes >= cache.min_bytes;
}

struct cubin_patched *shim_code_cached(const struct shim_code_elf *elf, unsigned arch,
				       const struct cubin_stub *s)
{
	struct cubin_patched *p = NULL;
	struct shim_cache_key key;
	char name[SHIM_CACHE_NAME];
	int fd;

	if (!wanted(elf)) {
		return NULL;
	}
	key = shim_cache_key_of(elf->given, elf->given_bytes, arch, s);
	shim_cache_name(&key, name);
	fd = disk_cache_get(&cache.disk, name);
	if (fd >= 0 && shim_cache_file_read(fd, &key, &p) < 0) {
		p = NULL; /* it is replaced */
	}
	fd_close(fd);
	disk_cache_count(&cache.disk, p != NULL);
	return p;
}

void shim_code_cache(const struct shim_code_elf *elf, unsigned arch, const struct cubin_stub *s,
		     struct cubin_patched *p)
{
	struct shim_cache_key key;
	char name[SHIM_CACHE_NAME];
	const void *image;
	struct buf table;
	size_t bytes;
	int fd;

	if (!wanted(elf)) {
		return;
	}
	key = shim_cache_key_of(elf->given, elf->given_bytes, arch, s);
	shim_cache_name(&key, name);
	image = cubin_patched_image(p, &bytes);
	buf_init(&table);
	if (cubin_table_write(p, &table) == 0) {
		fd = shim_cache_file_put(&cache.disk, name, &key, image, bytes, &table);
		if (fd >= 0) {
			(void)shim_cache_file_place(fd, bytes, p);
		}
		fd_close(fd);
	}
	buf_finish(&table);
}

/* ---- compiled PTX ---- */

#define CODE_PREFIX "ptx-"
#define CODE_NAME (sizeof(CODE_PREFIX) + SHIM_CACHE_NAME)

/* What tells one installed driver from another. */
struct driver {
	uint64_t version, device, file, bytes, s, ns;
};

static bool identify(struct driver *d)
{
	Dl_info info;
	struct stat st;
	int version = 0;

	if (shim_driver.cuDriverGetVersion(&version) != CUDA_SUCCESS ||
	    !dladdr(__extension__(void *) shim_driver.cuLinkComplete, &info) || !info.dli_fname ||
	    stat(info.dli_fname, &st) < 0) {
		return false;
	}
	*d = (struct driver){ .version = (uint64_t)version,
			      .device = st.st_dev,
			      .file = st.st_ino,
			      .bytes = (uint64_t)st.st_size,
			      .s = (uint64_t)st.st_mtim.tv_sec,
			      .ns = (uint64_t)st.st_mtim.tv_nsec };
	return true;
}

/* Returns false if nothing is to be read or stored. */
static bool key_of(const char *ptx, size_t bytes, unsigned arch, struct shim_cache_key *ret,
		   char name[CODE_NAME])
{
	struct driver d;

	if (!usable() || !identify(&d)) {
		return false;
	}
	*ret = shim_cache_key_of_ptx(ptx, bytes, arch, &d, sizeof(d));
	memcpy(name, CODE_PREFIX, sizeof(CODE_PREFIX));
	shim_cache_name(ret, name + sizeof(CODE_PREFIX) - 1);
	return true;
}

int shim_code_cached_ptx(const char *ptx, size_t bytes, unsigned arch, void **ret,
			 size_t *ret_bytes)
{
	struct shim_cache_key key;
	char name[CODE_NAME];
	int fd, err;

	if (!key_of(ptx, bytes, arch, &key, name)) {
		return -ENOENT;
	}
	fd = disk_cache_get(&cache.disk, name);
	err = fd < 0 ? fd : shim_cache_file_read_code(fd, &key, ret, ret_bytes);
	fd_close(fd);
	return err ? -ENOENT : 0;
}

void shim_code_cache_ptx(const char *ptx, size_t bytes, unsigned arch, const void *code,
			 size_t code_bytes)
{
	struct shim_cache_key key;
	char name[CODE_NAME];
	struct buf none;

	if (!key_of(ptx, bytes, arch, &key, name)) {
		return;
	}
	buf_init(&none);
	fd_close(shim_cache_file_put(&cache.disk, name, &key, code, code_bytes, &none));
	buf_finish(&none);
}
