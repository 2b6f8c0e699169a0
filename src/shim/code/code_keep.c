/* Keeps machine code for later copies. Loading must not become slower, so what lies in a file that
 * the dynamic linker has mapped is not read: its path, place and the file's identity are noted,
 * with a hash of its first bytes. Such a file that was changed meanwhile is refused. */
#include "shim/code/shim_code_probe.h"

#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <lz4.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/fd.h"
#include "base/strmap.h"
#include "shim/code/shim_code_int.h"

#define HASHED_BYTES 4096u
#define ELF_BYTES_MAX ((size_t)256 << 20)

/* Equal as long as a file is not changed or replaced. */
struct identity {
	dev_t device;
	ino_t inode;
	off_t bytes;
	struct timespec modified, changed;
};

struct shim_code_kept {
	uint32_t refs;		       /* [atomic] */
	struct ptx_fatbin_entry entry; /* kind 0: an ELF image; its data is not set */
	size_t given_bytes;	       /* as the program has it, maybe compressed */
	char *path;		       /* owned; NULL: in data */
	uint64_t offset;	       /* in the file */
	struct identity file;
	uint64_t hash;	     /* of the first bytes */
	size_t stored_bytes; /* of data */
	bool lz4;	     /* data is compressed */
	char data[];
};

/* ---- where it lies ---- */

struct place {
	uintptr_t at;
	size_t bytes;
	char *path; /* owned; NULL: not found */
	uint64_t offset;
};

/* The program itself has no name here. */
static char *path_of(const char *name)
{
	return realpath(name && *name ? name : "/proc/self/exe", NULL);
}

static int look(struct dl_phdr_info *info, size_t size, void *data)
{
	struct place *p = data;

	for (unsigned i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *h = &info->dlpi_phdr[i];
		uintptr_t from = info->dlpi_addr + h->p_vaddr;

		if (h->p_type == PT_LOAD && p->at >= from && p->at - from < h->p_filesz &&
		    p->bytes <= h->p_filesz - (p->at - from)) {
			p->path = path_of(info->dlpi_name);
			p->offset = h->p_offset + (p->at - from);
			return 1;
		}
	}
	return 0;
}

static int identify(int fd, struct identity *ret)
{
	struct stat st;

	if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode)) {
		return -ENOENT;
	}
	memset(ret, 0, sizeof(*ret));
	ret->device = st.st_dev;
	ret->inode = st.st_ino;
	ret->bytes = st.st_size;
	ret->modified = st.st_mtim;
	ret->changed = st.st_ctim;
	return 0;
}

/* Reads exactly that part of a file. 0 or -EIO. */
static int read_part(int fd, uint64_t offset, void *to, size_t bytes)
{
	char *at = to;

	while (bytes) {
		ssize_t n = pread(fd, at, bytes, (off_t)offset);

		if (n <= 0) {
			return -EIO;
		}
		at += n;
		offset += (uint64_t)n;
		bytes -= (size_t)n;
	}
	return 0;
}

/* ---- keeping ---- */

static struct shim_code_kept *new_kept(const struct shim_code_elf *elf, size_t room)
{
	struct shim_code_kept *k = calloc(1, sizeof(*k) + room);

	if (k) {
		k->refs = 1;
		k->entry = elf->entry;
		k->entry.data = NULL;
		k->given_bytes = elf->given_bytes;
	}
	return k;
}

/* The file must hold what memory does: it may have been replaced since it was mapped. */
static bool is_in_file(struct shim_code_kept *k, const struct shim_code_elf *elf)
{
	size_t n = MIN(k->given_bytes, (size_t)HASHED_BYTES);
	int fd = open(k->path, O_RDONLY | O_CLOEXEC);
	char first[HASHED_BYTES];
	bool ok = fd >= 0 && identify(fd, &k->file) == 0 &&
		  read_part(fd, k->offset, first, n) == 0 && memcmp(first, elf->given, n) == 0;

	k->hash = hash_bytes(elf->given, n);
	fd_close(fd);
	return ok;
}

static struct shim_code_kept *keep_place(const struct shim_code_elf *elf)
{
	struct place p = { .at = (uintptr_t)elf->given, .bytes = elf->given_bytes };
	struct shim_code_kept *k;

	if (dl_iterate_phdr(look, &p) == 0 || !p.path) {
		return NULL;
	}
	k = new_kept(elf, 0);
	if (!k) {
		free(p.path);
		return NULL;
	}
	k->path = p.path;
	k->offset = p.offset;
	if (!is_in_file(k, elf)) {
		(void)shim_code_kept_unref(k);
		return NULL;
	}
	return k;
}

static bool is_packed(const struct shim_code_elf *elf)
{
	return elf->entry.kind && (elf->entry.flags & (PTX_FATBIN_LZ4 | PTX_FATBIN_ZSTD));
}

static int keep_copy(struct shim_code_kept **ret, const struct shim_code_elf *elf, size_t room)
{
	bool packed = is_packed(elf);
	struct shim_code_kept *k, *smaller;
	int bound, n;

	if (elf->given_bytes > (packed ? room : ELF_BYTES_MAX)) {
		return -EFBIG;
	}
	bound = packed ? (int)elf->given_bytes : LZ4_compressBound((int)elf->given_bytes);
	k = new_kept(elf, (size_t)bound);
	if (!k) {
		return -ENOMEM;
	}
	if (packed) {
		memcpy(k->data, elf->given, elf->given_bytes);
		n = bound;
	} else {
		n = LZ4_compress_default(elf->given, k->data, (int)elf->given_bytes, bound);
		k->lz4 = true;
	}
	if (n <= 0 || (size_t)n > room) {
		(void)shim_code_kept_unref(k);
		return -EFBIG;
	}
	k->stored_bytes = (size_t)n;
	smaller = realloc(k, sizeof(*k) + (size_t)n);
	*ret = smaller ? smaller : k;
	return 0;
}

int shim_code_keep(struct shim_code_kept **ret, const void *image, size_t bytes, unsigned arch,
		   size_t room)
{
	struct shim_code_elf elf;
	int err = shim_code_find(&elf, image, bytes, arch);

	if (err) {
		return err;
	}
	*ret = keep_place(&elf);
	return *ret ? 0 : keep_copy(ret, &elf, room);
}

struct shim_code_kept *shim_code_kept_ref(struct shim_code_kept *k)
{
	if (k) {
		(void)add_acqrel(&k->refs, 1u);
	}
	return k;
}

bool shim_code_kept_unref(struct shim_code_kept *k)
{
	if (!k || sub_acqrel(&k->refs, 1u) != 1) {
		return false;
	}
	free(k->path);
	free(k);
	return true;
}

size_t shim_code_kept_bytes(const struct shim_code_kept *k)
{
	return sizeof(*k) + k->stored_bytes + (k->path ? strlen(k->path) + 1 : 0);
}

/* ---- giving it back ---- */

static int read_file(const struct shim_code_kept *k, char *to, struct report *r)
{
	int fd = open(k->path, O_RDONLY | O_CLOEXEC);
	struct identity now;
	int err = fd < 0 ? -ENOENT : identify(fd, &now);

	err = err ? err : read_part(fd, k->offset, to, k->given_bytes);
	fd_close(fd);
	if (err) {
		return report_set(r, -ENOENT, "code", "cannot read its machine code from %s",
				  k->path);
	}
	if (memcmp(&now, &k->file, sizeof(now)) != 0 ||
	    hash_bytes(to, MIN(k->given_bytes, (size_t)HASHED_BYTES)) != k->hash) {
		return report_set(r, -ENOENT, "code",
				  "%s was changed since its machine code was "
				  "loaded",
				  k->path);
	}
	return 0;
}

static int give(const struct shim_code_kept *k, char *to, struct report *r)
{
	if (k->path) {
		return read_file(k, to, r);
	}
	if (!k->lz4) {
		memcpy(to, k->data, k->stored_bytes);
		return 0;
	}
	return LZ4_decompress_safe(k->data, to, (int)k->stored_bytes, (int)k->given_bytes) ==
			       (int)k->given_bytes
		       ? 0
		       : report_set(r, -EINVAL, "code", "its machine code is damaged");
}

void *shim_code_kept_elf(const struct shim_code_kept *k, size_t *ret_bytes, struct report *r)
{
	struct ptx_fatbin_entry entry = k->entry;
	char *given = malloc(k->given_bytes + 1), *elf = NULL;
	int err = given ? give(k, given, r) : -ENOMEM;

	if (err) {
		free(given);
		(void)report_set(r, err, "code", "no memory for its machine code");
		return NULL;
	}
	*ret_bytes = k->given_bytes;
	if (!entry.kind) {
		return given;
	}
	entry.data = (const uint8_t *)given;
	err = ptx_fatbin_unpack(&entry, ELF_BYTES_MAX, &elf, ret_bytes);
	free(given);
	if (err) {
		(void)report_set(r, err, "code", "its machine code cannot be unpacked");
		return NULL;
	}
	return elf;
}
