/* The container's headers, and decompression. Every size is checked against the bytes that exist;
 * each header is copied once before it is read. */
#include "ptx/fatbin.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <lz4.h>
#include <zstd.h>
#include <zstd_errors.h>

#include "base/compiler.h"

#define ENTRY_HEADER_MIN 64u
#define LZ4_RATIO_MAX                                                                              \
	255u /* output bytes per input byte: one byte of a match length encodes at most this */

struct raw_header {
	uint32_t magic;
	uint16_t version, header_bytes;
	uint64_t bytes; /* after the header */
};

struct raw_entry {
	uint16_t kind, version;
	uint32_t header_bytes;
	uint64_t padded; /* offset of the next entry */
	uint32_t stored; /* compressed size */
	uint32_t options;
	uint16_t minor, major;
	uint32_t arch;
	uint32_t name_at, name_bytes;
	uint64_t flags;
	uint64_t zero;
	uint64_t unpacked;
};

_Static_assert(sizeof(struct raw_header) == PTX_FATBIN_HEADER_BYTES, "as in files");
_Static_assert(sizeof(struct raw_entry) == ENTRY_HEADER_MIN, "as in files");

int ptx_fatbin_bytes(const void *header, uint64_t *ret_bytes)
{
	struct raw_header h;

	memcpy(&h, header, sizeof(h));
	if (h.magic != PTX_FATBIN_MAGIC || h.header_bytes < sizeof(h) ||
	    checked_add(h.bytes, (uint64_t)h.header_bytes, ret_bytes)) {
		return -EINVAL;
	}
	return 0;
}

int ptx_fatbin_open(struct ptx_fatbin_walk *w, const void *image, size_t len, size_t *ret_bytes)
{
	struct raw_header h;
	uint64_t bytes;

	if (len < sizeof(h)) {
		return -EINVAL;
	}
	memcpy(&h, image, sizeof(h));
	if (ptx_fatbin_bytes(&h, &bytes) < 0 || bytes > len) {
		return -EINVAL;
	}
	w->at = (const uint8_t *)image + h.header_bytes;
	w->end = (const uint8_t *)image + bytes;
	*ret_bytes = (size_t)bytes;
	return 0;
}

int ptx_fatbin_next(struct ptx_fatbin_walk *w, struct ptx_fatbin_entry *ret)
{
	size_t left = (size_t)(w->end - w->at);
	struct raw_entry h;

	if (left < sizeof(h)) {
		return 0; /* padding */
	}
	memcpy(&h, w->at, sizeof(h));
	if (h.header_bytes < sizeof(h) || h.header_bytes > left ||
	    h.padded > left - h.header_bytes || h.stored > h.padded) {
		return -EINVAL;
	}
	*ret = (struct ptx_fatbin_entry){ .kind = h.kind,
					  .major = h.major,
					  .minor = h.minor,
					  .arch = h.arch,
					  .flags = h.flags,
					  .data = w->at + h.header_bytes,
					  .bytes = (size_t)(h.stored ? h.stored : h.padded),
					  .unpacked = h.unpacked };
	w->at += h.header_bytes + h.padded;
	return 1;
}

static int unpack_lz4(const struct ptx_fatbin_entry *e, size_t cap, char *out, size_t *ret_bytes)
{
	int n;

	if (e->bytes > LZ4_MAX_INPUT_SIZE || cap > LZ4_MAX_INPUT_SIZE) {
		return -EFBIG;
	}
	n = LZ4_decompress_safe((const char *)e->data, out, (int)e->bytes, (int)cap);
	*ret_bytes = (size_t)MAX(n, 0);
	return n < 0 ? -EINVAL : 0;
}

/* Stored sizes may include padding behind the frame. */
static int unpack_zstd(const struct ptx_fatbin_entry *e, size_t cap, char *out, size_t *ret_bytes)
{
	size_t frame = ZSTD_findFrameCompressedSize(e->data, e->bytes);
	size_t n = ZSTD_isError(frame) ? frame : ZSTD_decompress(out, cap, e->data, frame);

	if (ZSTD_isError(n)) {
		return ZSTD_getErrorCode(n) == ZSTD_error_memory_allocation ? -ENOMEM : -EINVAL;
	}
	*ret_bytes = n;
	return 0;
}

/* Returns the output size: as stated; if nothing is stated, the maximum for the compression. */
static int unpacked_limit(const struct ptx_fatbin_entry *e, bool zstd, size_t max, size_t *ret)
{
	uint64_t limit = e->unpacked;

	if (limit == 0 && zstd) {
		unsigned long long n = ZSTD_getFrameContentSize(e->data, e->bytes);

		limit = n == ZSTD_CONTENTSIZE_UNKNOWN || n == ZSTD_CONTENTSIZE_ERROR ? max : n;
	} else if (limit == 0) {
		limit = MIN((uint64_t)max, (uint64_t)e->bytes * LZ4_RATIO_MAX);
	} else if (!zstd && limit / LZ4_RATIO_MAX > e->bytes) {
		return -EINVAL;
	}
	*ret = (size_t)limit;
	return limit > max ? -EFBIG : 0;
}

int ptx_fatbin_unpack(const struct ptx_fatbin_entry *e, size_t max, char **ret, size_t *ret_bytes)
{
	static const uint8_t zstd_magic[] = { 0x28, 0xb5, 0x2f, 0xfd };
	bool lz4 = e->flags & PTX_FATBIN_LZ4;
	bool zstd = !lz4 && ((e->flags & PTX_FATBIN_ZSTD) ||
			     (e->bytes >= sizeof(zstd_magic) &&
			      memcmp(e->data, zstd_magic, sizeof(zstd_magic)) == 0));
	size_t cap = e->bytes, n = e->bytes;
	int err = 0;
	char *out;

	if (lz4 || zstd) {
		err = unpacked_limit(e, zstd, max, &cap);
	} else if (cap > max) {
		err = -EFBIG;
	}
	if (err < 0) {
		return err;
	}
	out = malloc(cap + 1);
	if (!out) {
		return -ENOMEM;
	}
	if (lz4) {
		err = unpack_lz4(e, cap, out, &n);
	} else if (zstd) {
		err = unpack_zstd(e, cap, out, &n);
	} else {
		memcpy(out, e->data, n);
	}
	if (err < 0) {
		free(out);
		return err;
	}
	out[n] = 0;
	*ret = out;
	*ret_bytes = n;
	return 0;
}

bool ptx_fatbin_is_code_for(const struct ptx_fatbin_entry *e, unsigned arch)
{
	bool specific = e->flags & PTX_FATBIN_ARCH_SPECIFIC;

	return e->kind == PTX_FATBIN_CUBIN && e->arch / 10 == arch / 10 &&
	       (specific ? e->arch == arch : e->arch <= arch);
}

bool ptx_fatbin_better(const struct ptx_fatbin_entry *a, const struct ptx_fatbin_entry *b,
		       unsigned arch)
{
	bool a_fits = a->arch <= arch, b_fits = b->arch <= arch;

	if (a_fits != b_fits) {
		return a_fits;
	}
	if (a->arch != b->arch) {
		return a_fits ? a->arch > b->arch : a->arch < b->arch;
	}
	return a->major != b->major ? a->major > b->major : a->minor > b->minor;
}
