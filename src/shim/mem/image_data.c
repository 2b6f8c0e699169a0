/* Finds PTX and machine code in an image, and adds up their variables. */
#include "shim/mem/image_data.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/compiler.h"
#include "base/fd.h"
#include "cubin/cubin.h"
#include "ptx/data_bytes.h"
#include "ptx/fatbin.h"

#define ELF_MAGIC 0x464c457fu
#define IMAGE_MAX ((size_t)1 << 30) /* bytes of an image, and of an unpacked entry */
#define LINKED_MAX 65536u	    /* containers that are linked */
#define SMALL_MAX ((uint64_t)1 << 20)
#define UNIT ((uint64_t)2 << 20)

static uint64_t add_capped(uint64_t a, uint64_t b)
{
	return checked_add(a, b, &a) ? UINT64_MAX : a;
}

static void add_variable(void *arg, uint64_t bytes)
{
	uint64_t *sum = arg;

	if (bytes > SMALL_MAX) {
		bytes = bytes > UINT64_MAX - UNIT ? UINT64_MAX : ROUND_UP(bytes, UNIT);
	}
	*sum = add_capped(*sum, bytes);
}

static uint64_t of_text(const char *text, size_t bytes)
{
	uint64_t sum = 0;

	(void)ptx_data_bytes(text, bytes, add_variable, &sum); /* without memory: measured */
	return sum;
}

static uint64_t of_code(const void *image, size_t bytes)
{
	uint64_t sum = 0;

	(void)cubin_data_bytes(image, bytes, add_variable, &sum); /* as far as it can be read */
	return sum;
}

/* Returns the magic of an image, which may be a text of fewer bytes that ends with a zero. */
static uint32_t magic_of(const void *image, size_t bytes)
{
	const unsigned char *p = image;
	uint32_t magic = 0;

	for (unsigned i = 0; i < sizeof(magic) && (!bytes || i < bytes) && p[i]; i++) {
		magic |= (uint32_t)p[i] << (8 * i);
	}
	return magic;
}

/* ---- fat binaries ---- */

static uint64_t of_entry(const struct ptx_fatbin_entry *e)
{
	uint64_t sum = 0;
	size_t bytes;
	char *data;

	if (ptx_fatbin_unpack(e, IMAGE_MAX, &data, &bytes) == 0) {
		sum = e->kind == PTX_FATBIN_PTX ? of_text(data, bytes) : of_code(data, bytes);
		free(data);
	}
	return sum;
}

/* Returns the largest sum among the machine code of the highest architecture that runs on the
 * device; without any, among the PTX that may be compiled for it: a higher .target is refused. */
static uint64_t of_container(const void *image, size_t bytes, unsigned arch)
{
	uint16_t kind = 0;
	uint32_t best = 0;
	uint64_t most = 0;
	struct ptx_fatbin_walk w;
	struct ptx_fatbin_entry e;
	size_t length;

	if (ptx_fatbin_open(&w, image, bytes, &length) < 0) {
		return 0;
	}
	while (ptx_fatbin_next(&w, &e) == 1) {
		bool is_code = ptx_fatbin_is_code_for(&e, arch);

		if (is_code && (kind != PTX_FATBIN_CUBIN || e.arch > best)) {
			kind = PTX_FATBIN_CUBIN;
			best = e.arch;
		} else if (!kind && e.kind == PTX_FATBIN_PTX && e.arch <= arch) {
			kind = PTX_FATBIN_PTX;
		}
	}
	(void)ptx_fatbin_open(&w, image, bytes, &length);
	while (kind && ptx_fatbin_next(&w, &e) == 1) {
		if (kind == PTX_FATBIN_CUBIN ? ptx_fatbin_is_code_for(&e, arch) && e.arch == best
					     : e.kind == kind && e.arch <= arch) {
			most = MAX(most, of_entry(&e));
		}
	}
	return most;
}

/* A container whose length is stated in it. */
static uint64_t of_stated(const void *image, unsigned arch)
{
	uint64_t bytes;

	return magic_of(image, 0) == PTX_FATBIN_MAGIC && ptx_fatbin_bytes(image, &bytes) == 0 &&
			       bytes <= IMAGE_MAX
		       ? of_container(image, (size_t)bytes, arch)
		       : 0;
}

/* Containers one after the other, as in a file. */
static uint64_t of_containers(const uint8_t *image, size_t bytes, unsigned arch)
{
	uint64_t sum = 0, length;
	size_t at = 0;

	while (bytes - at >= PTX_FATBIN_HEADER_BYTES &&
	       ptx_fatbin_bytes(image + at, &length) == 0 && length <= bytes - at) {
		sum = add_capped(sum, of_container(image + at, (size_t)length, arch));
		at = MIN(ROUND_UP(at + (size_t)length, (size_t)8), bytes);
	}
	return sum;
}

static uint64_t of_wrapper(const struct ptx_fatbin_wrapper *w, unsigned arch)
{
	uint64_t sum = w->data ? of_stated(w->data, arch) : 0;
	const void *const *more = w->version == 2 ? w->more : NULL;

	for (uint32_t i = 0; more && i < LINKED_MAX && more[i]; i++) {
		sum = add_capped(sum, of_stated(more[i], arch));
	}
	return sum;
}

uint64_t shim_mem_image_bytes(const void *image, size_t bytes, unsigned arch)
{
	struct ptx_fatbin_wrapper wrapper;
	uint32_t magic;
	size_t length;

	if (!image) {
		return 0;
	}
	magic = magic_of(image, bytes);
	if (magic == ELF_MAGIC) {
		return cubin_bytes(image, bytes ? bytes : IMAGE_MAX, &length) == 0
			       ? of_code(image, length)
			       : 0;
	}
	if (magic == PTX_FATBIN_MAGIC) {
		return bytes ? of_containers(image, bytes, arch) : of_stated(image, arch);
	}
	if (magic == PTX_FATBIN_WRAPPER_MAGIC && !bytes) {
		memcpy(&wrapper, image, sizeof(wrapper));
		return of_wrapper(&wrapper, arch);
	}
	return of_text(image, bytes ? strnlen(image, bytes) : strlen(image));
}

uint64_t shim_mem_file_bytes(const char *path, unsigned arch)
{
	int fd = path ? open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK) : -1;
	uint64_t sum = 0;
	struct stat st;
	size_t n = 0;
	ssize_t got = 1;
	char *data = NULL;

	if (fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_size > 0 &&
	    (uint64_t)st.st_size <= IMAGE_MAX) {
		data = malloc((size_t)st.st_size);
	}
	while (data && n < (size_t)st.st_size && got > 0) {
		got = read(fd, data + n, (size_t)st.st_size - n);
		n += got > 0 ? (size_t)got : 0;
	}
	fd_close(fd);
	if (data && n) {
		sum = shim_mem_image_bytes(data, n, arch);
	}
	free(data);
	return sum;
}
