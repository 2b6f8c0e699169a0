/* Kept PTX: one LZ4 block each. Loading a module waits for it, so speed counts more than size. */
#include "shim/kernel/kept_image.h"

#include <errno.h>
#include <lz4.h>
#include <stdint.h>
#include <stdlib.h>

#include "base/atomic.h"
#include "base/report.h"
#include "ptx/image.h"

#define TEXT_MAX ((size_t)16 << 20) /* as much as the preemption pass rewrites */

struct shim_kept_image {
	uint32_t refs; /* [atomic] */
	bool exact;
	size_t text_bytes, bytes;
	char data[];
};

static uint64_t kept_bytes; /* [atomic] of all images, compressed */

size_t shim_kept_room(void)
{
	uint64_t kept = load_relaxed(&kept_bytes);

	return kept < SHIM_KEPT_BYTES ? SHIM_KEPT_BYTES - (size_t)kept : 0;
}

void shim_kept_take(size_t bytes)
{
	(void)add_acqrel(&kept_bytes, (uint64_t)bytes);
}

void shim_kept_give(size_t bytes)
{
	(void)sub_acqrel(&kept_bytes, (uint64_t)bytes);
}

static struct shim_kept_image *compress(const struct ptx_image_text *t)
{
	int bound = LZ4_compressBound((int)t->bytes), n;
	struct shim_kept_image *k = malloc(sizeof(*k) + (size_t)bound), *smaller;

	n = k ? LZ4_compress_default(t->text, k->data, (int)t->bytes, bound) : 0;
	if (n <= 0) {
		free(k);
		return NULL;
	}
	smaller = realloc(k, sizeof(*k) + (size_t)n);
	k = smaller ? smaller : k;
	k->refs = 1;
	k->text_bytes = t->bytes;
	k->bytes = (size_t)n;
	return k;
}

/* Returns the reason for an error of ptx_image_pick(). */
static enum shim_kept_why why_of(int err, struct ptx_target other)
{
	if (err == -EFBIG || err == -ENOMEM) {
		return SHIM_KEPT_NO_ROOM;
	}
	return other.arch	    ? SHIM_KEPT_OTHER
	       : err == -EOPNOTSUPP ? SHIM_KEPT_TOO_NEW
				    : SHIM_KEPT_NO_PTX;
}

struct shim_kept_image *shim_kept_open(const void *image, size_t bytes, struct ptx_device device,
				       bool rewritten, struct shim_kept_reason *ret_why)
{
	struct shim_kept_image *k = NULL;
	struct ptx_image_text t;
	struct report r;
	struct ptx_image_rest rest;
	int err;

	report_init(&r);
	err = ptx_image_pick(&t, image, bytes, device, TEXT_MAX, "image", &rest, &r);
	report_finish(&r);
	*ret_why = (struct shim_kept_reason){ .why = why_of(err, rest.other),
					      .target = rest.other,
					      .arch = device.arch };
	if (err < 0) {
		return NULL;
	}
	if (rest.differs.code.arch && !rewritten) {
		ret_why->why = SHIM_KEPT_DIFFERS;
		ret_why->target = rest.differs.text;
		ret_why->code = rest.differs.code;
		ptx_image_close(&t);
		return NULL;
	}
	ret_why->why = SHIM_KEPT_NO_ROOM;
	if (load_relaxed(&kept_bytes) <= SHIM_KEPT_BYTES) {
		k = compress(&t);
	}
	if (k) {
		k->exact = rewritten || !rest.other_arch;
	}
	ptx_image_close(&t);
	if (k && add_acqrel(&kept_bytes, (uint64_t)k->bytes) + k->bytes > SHIM_KEPT_BYTES) {
		shim_kept_unref(k);
		k = NULL;
	}
	if (k) {
		ret_why->why = SHIM_KEPT;
	}
	return k;
}

bool shim_kept_is_exact(const struct shim_kept_image *k)
{
	return k->exact;
}

struct shim_kept_image *shim_kept_ref(struct shim_kept_image *k)
{
	if (k) {
		(void)add_acqrel(&k->refs, 1u);
	}
	return k;
}

void shim_kept_unref(struct shim_kept_image *k)
{
	if (k && sub_acqrel(&k->refs, 1u) == 1) {
		(void)sub_acqrel(&kept_bytes, (uint64_t)k->bytes);
		free(k);
	}
}

void shim_kept_why_print(const struct shim_kept_reason *why, struct buf *out)
{
	static const char *const texts[] = {
		[SHIM_KEPT] = "out of memory",
		[SHIM_KEPT_NO_PTX] = "it was loaded as machine code only",
		[SHIM_KEPT_NO_ROOM] = "its PTX was not kept: too long, or 64 MiB are kept already",
		[SHIM_KEPT_LINKED] = "it was linked by the driver",
		[SHIM_KEPT_TOO_NEW] = "its PTX is of a .version that is not read",
		[SHIM_KEPT_UNLIKE] = "it was loaded for devices of different architectures",
	};

	if (why->why == SHIM_KEPT_OTHER) {
		buf_printf(out, "its PTX is for sm_%u%.1s, the device is %u.%u", why->target.arch,
			   &why->target.suffix, why->arch / 10, why->arch % 10);
	} else if (why->why == SHIM_KEPT_DIFFERS) {
		buf_printf(out, "its machine code for sm_%u%.1s runs, and its PTX is for sm_%u%.1s",
			   why->code.arch, &why->code.suffix, why->target.arch,
			   &why->target.suffix);
	} else {
		buf_puts(out, texts[why->why]);
	}
}

char *shim_kept_text(const struct shim_kept_image *k, size_t *ret_bytes)
{
	char *text = malloc(k->text_bytes + 1);
	int n = text ? LZ4_decompress_safe(k->data, text, (int)k->bytes, (int)k->text_bytes) : -1;

	if (n < 0 || (size_t)n != k->text_bytes) {
		free(text);
		return NULL;
	}
	text[n] = 0;
	*ret_bytes = (size_t)n;
	return text;
}
