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
#include "ptx/choose.h"
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

/* Returns the largest sum among the machine code of the highest architecture that runs on a GPU, or
 * the sum of the soft GPU's own code if the container is `alone`. *ret_has: there is such code. */
static uint64_t of_container_code(struct ptx_fatbin_walk w, struct ptx_device device, bool alone,
				  bool *ret_has)
{
	struct ptx_fatbin_entry e;
	uint32_t best = 0;
	uint64_t most = 0;
	size_t bytes;
	char *code;

	*ret_has = false;
	if (device.rule == PTX_RULE_SOFT) {
		if (alone && ptx_choose_soft_code(device, w, IMAGE_MAX, &code, &bytes) == 1) {
			*ret_has = true;
			most = of_code(code, bytes);
			free(code);
		}
		return most;
	}
	while (ptx_fatbin_next(&w, &e) == 1) {
		if (!ptx_device_executes(device, &e) || e.arch < best) {
			continue;
		}
		most = e.arch > best ? 0 : most;
		best = e.arch;
		most = MAX(most, of_entry(&e));
		*ret_has = true;
	}
	return most;
}

/* Returns the largest sum among the PTX up to an architecture. */
static uint64_t of_any_text(struct ptx_fatbin_walk w, unsigned arch)
{
	struct ptx_fatbin_entry e;
	uint64_t most = 0;

	while (ptx_fatbin_next(&w, &e) == 1) {
		if (e.kind == PTX_FATBIN_PTX && e.arch <= arch) {
			most = MAX(most, of_entry(&e));
		}
	}
	return most;
}

/* Without machine code for the device, the PTX counts that it executes. If that cannot be chosen,
 * the driver may still execute any of it. */
static uint64_t of_container(const void *image, size_t bytes, struct ptx_device device, bool alone)
{
	struct ptx_chooser choose = { .device = device, .max = IMAGE_MAX };
	struct ptx_fatbin_walk w;
	uint64_t sum;
	size_t length;
	bool has_code;
	char *text;
	int chosen;

	if (ptx_fatbin_open(&w, image, bytes, &length) < 0) {
		return 0;
	}
	sum = of_container_code(w, device, alone, &has_code);
	if (has_code) {
		return sum;
	}
	chosen = ptx_choose(&choose, w, &text, &length);
	if (chosen == 1) {
		sum = of_text(text, length);
		free(text);
	} else if (chosen < 0 || choose.too_new) {
		sum = of_any_text(w, ptx_device_target(device));
	}
	return sum;
}

/* A container whose length is stated in it. */
static uint64_t of_stated(const void *image, struct ptx_device device, bool alone)
{
	uint64_t bytes;

	return magic_of(image, 0) == PTX_FATBIN_MAGIC && ptx_fatbin_bytes(image, &bytes) == 0 &&
			       bytes <= IMAGE_MAX
		       ? of_container(image, (size_t)bytes, device, alone)
		       : 0;
}

/* Containers one after the other, as in a file. */
static uint64_t of_containers(const uint8_t *image, size_t bytes, struct ptx_device device)
{
	uint64_t sum = 0, length;
	size_t at = 0;

	while (bytes - at >= PTX_FATBIN_HEADER_BYTES &&
	       ptx_fatbin_bytes(image + at, &length) == 0 && length <= bytes - at) {
		bool alone = !at && bytes - length < PTX_FATBIN_HEADER_BYTES;

		sum = add_capped(sum, of_container(image + at, (size_t)length, device, alone));
		at = MIN(ROUND_UP(at + (size_t)length, (size_t)8), bytes);
	}
	return sum;
}

static uint64_t of_wrapper(const struct ptx_fatbin_wrapper *w, struct ptx_device device)
{
	const void *const *more = w->version == 2 ? w->more : NULL;
	uint64_t sum = w->data ? of_stated(w->data, device, !more || !more[0]) : 0;

	for (uint32_t i = 0; more && i < LINKED_MAX && more[i]; i++) {
		sum = add_capped(sum, of_stated(more[i], device, false));
	}
	return sum;
}

uint64_t shim_mem_image_bytes(const void *image, size_t bytes, struct ptx_device device)
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
		return bytes ? of_containers(image, bytes, device) : of_stated(image, device, true);
	}
	if (magic == PTX_FATBIN_WRAPPER_MAGIC && !bytes) {
		memcpy(&wrapper, image, sizeof(wrapper));
		return of_wrapper(&wrapper, device);
	}
	return of_text(image, bytes ? strnlen(image, bytes) : strlen(image));
}

uint64_t shim_mem_file_bytes(const char *path, struct ptx_device device)
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
		sum = shim_mem_image_bytes(data, n, device);
	}
	free(data);
	return sum;
}
