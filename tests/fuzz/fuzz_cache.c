/* Reads files of patched images: as they are, and with key and checksums made right, so that
 * lengths and tables are reached. Whatever the input, nothing outside of it is read; a table that
 * is accepted is written again with the same bytes. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "shim/code/cache_file.h"

#define MAX_BYTES ((size_t)1 << 20)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct shim_cache_key key = { .original = { 1, 2 }, .bytes = 3, .arch = 90 };

static void use(const struct cubin_patched *p, const void *table, size_t bytes)
{
	struct buf again;

	for (size_t i = 0; i < cubin_patched_kernels(p); i++) {
		const struct cubin_kernel *k = cubin_patched_kernel(p, i);

		for (uint32_t n = 0; k->why == CUBIN_OK && n < k->n_params; n++) {
			if (k->params[n].offset + k->params[n].bytes > k->arg_offset) {
				abort();
			}
		}
		if (cubin_patched_find(p, k->name) != k || !k->name[0]) {
			abort();
		}
	}
	buf_init(&again);
	if (table && (cubin_table_write(p, &again) < 0 || again.len != bytes ||
		      memcmp(again.data, table, bytes) != 0)) {
		abort();
	}
	buf_finish(&again);
}

/* Reads a file that begins with this head. table NULL: not known. */
static void read_file(const struct shim_cache_head *h, size_t head_bytes, const uint8_t *content,
		      size_t bytes, const void *table, size_t table_bytes)
{
	int fd = memfd_create("fuzz", MFD_CLOEXEC);
	struct cubin_patched *p = NULL;
	size_t image_bytes;

	if (fd < 0 || pwrite(fd, h, head_bytes, 0) != (ssize_t)head_bytes ||
	    pwrite(fd, content, bytes, SHIM_CACHE_HEAD_BYTES) != (ssize_t)bytes) {
		abort();
	}
	if (shim_cache_file_read(fd, &key, &p) == 0) {
		const uint8_t *image = cubin_patched_image(p, &image_bytes);

		if (!image || image_bytes > bytes || memcmp(image, content, image_bytes) != 0) {
			abort();
		}
		use(p, table, table_bytes);
	}
	cubin_patched_close(p);
	close(fd);
}

static void sign(struct shim_cache_head *h, const uint8_t *content, size_t bytes)
{
	XXH128_hash_t sum = XXH3_128bits(content, bytes);

	h->content_sum[0] = sum.low64;
	h->content_sum[1] = sum.high64;
	sum = XXH3_128bits(h, offsetof(struct shim_cache_head, head_sum));
	h->head_sum[0] = sum.low64;
	h->head_sum[1] = sum.high64;
}

/* The first bytes are lengths, the rest is image and table. */
static void with_right_sums(const uint8_t *data, size_t size)
{
	struct shim_cache_head h = {
		.magic = "gBPFcod", .format = SHIM_CACHE_FORMAT, .head_bytes = sizeof(h), .key = key
	};
	int16_t image, more;

	if (size < 5) {
		return;
	}
	h.magic[7] = 'e';
	memcpy(&image, data, 2);
	memcpy(&more, data + 2, 2);
	data += 4;
	size -= 4;
	h.image_bytes = (uint64_t)image;
	h.table_bytes = size - h.image_bytes + (uint64_t)more;
	sign(&h, data, size);
	if (h.image_bytes < size && !more) {
		read_file(&h, sizeof(h), data, size, data + h.image_bytes, h.table_bytes);
	} else {
		read_file(&h, sizeof(h), data, size, NULL, 0);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct cubin_patched *p = NULL;
	struct shim_cache_head h;

	if (size > MAX_BYTES) {
		return 0;
	}
	if (size >= sizeof(h)) {
		memcpy(&h, data, sizeof(h));
		read_file(&h, sizeof(h), data + sizeof(h), size - sizeof(h), NULL, 0);
		h.key = key;
		sign(&h, data + sizeof(h), size - sizeof(h));
		read_file(&h, sizeof(h), data + sizeof(h), size - sizeof(h), NULL, 0);
	}
	with_right_sums(data, size);
	if (cubin_table_read(&p, data, size) == 0) {
		use(p, data, size);
	}
	cubin_patched_close(p);
	return 0;
}
