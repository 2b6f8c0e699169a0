/* Picks the PTX that the device executes (ptx/choose.h). Containers that were linked into one
 * program are merged, as by the driver's linker. */
#include "ptx/block/block_pick.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "ptx/fatbin.h"
#include "ptx/image.h"
#include "ptx/merge.h"

#define MAGIC_ELF 0x464c457fu
#define PARTS_MAX 256u
#define OWN_CODE_MAX ((size_t)256 << 20) /* longest machine code of the soft GPU */

struct picker {
	struct ptx_block_pick *ret;
	struct ptx_chooser choose;
	size_t max;
	const char *name;
	struct report *report;
	struct ptx_merge merge;
	char *first; /* owned: the only part's text, while there is one part */
	size_t first_bytes, bytes;
	unsigned n_parts, n_containers;
	bool own; /* the last container has machine code of the soft GPU */
};

static int fail(struct picker *p, int err, const char *what)
{
	report_place(p->report, "%s", p->name);
	return report_set(p->report, err, "image", "%s", what);
}

static int add_part(struct picker *p, char *text, size_t bytes)
{
	int err = 0;

	if (bytes > p->max - p->bytes) {
		free(text);
		return fail(p, -EFBIG, "its PTX is longer than what is rewritten");
	}
	p->bytes += bytes;
	if (p->n_parts++ == 0) {
		p->first = text;
		p->first_bytes = bytes;
		return 0;
	}
	if (p->n_parts == 2) {
		err = ptx_merge_add(&p->merge, p->first, p->first_bytes, p->name);
	}
	err = err ? err : ptx_merge_add(&p->merge, text, bytes, p->name);
	free(text);
	return err == -EINVAL ? -EBADMSG : err;
}

/* Looks for the soft GPU's machine code, as the soft GPU does. */
static int look_for_own(struct picker *p, struct ptx_fatbin_walk w)
{
	size_t bytes;
	char *code;
	int found = ptx_choose_soft_code(p->choose.device, w, OWN_CODE_MAX, &code, &bytes);

	if (found < 0) {
		return fail(p, found, "no memory to unpack the machine code");
	}
	p->own = found;
	if (found) {
		free(code);
	}
	return 0;
}

/* bytes: an upper limit of the container's size. */
static int pick_container(struct picker *p, const void *data, size_t bytes)
{
	struct ptx_fatbin_walk w;
	size_t own, text_bytes;
	char *text;
	int chosen;

	if (!data || ptx_fatbin_open(&w, data, bytes, &own) < 0) {
		return fail(p, -EINVAL, "the fat binary is longer than its data");
	}
	if (p->n_parts == PARTS_MAX) {
		return fail(p, -EFBIG, "too many fat binaries in one program");
	}
	p->n_containers++;
	if (look_for_own(p, w) < 0) {
		return -ENOMEM;
	}
	chosen = ptx_choose(&p->choose, w, &text, &text_bytes);
	p->ret->native |= p->choose.native.arch != 0;
	if (chosen < 0) {
		return fail(p, chosen, p->choose.error);
	}
	if (chosen) {
		return add_part(p, text, text_bytes);
	}
	/* The soft GPU links the other parts, a driver those with machine code, too. */
	return p->choose.device.rule == PTX_RULE_SOFT ? 0 : -ENOENT;
}

/* Picks from a container of which only the address is known. */
static int pick_pointer(struct picker *p, const void *data)
{
	uint64_t bytes;

	if (!data || ptx_fatbin_bytes(data, &bytes) < 0 || bytes > SIZE_MAX) {
		return fail(p, -EINVAL, "not a fat binary");
	}
	return pick_container(p, data, (size_t)bytes);
}

static int pick_wrapper(struct picker *p, const struct ptx_fatbin_wrapper *w)
{
	const void *const *list = w->version == 2 ? w->more : NULL;
	int err = 0;

	if (!list || !list[0]) {
		return pick_pointer(p, w->data);
	}
	for (unsigned i = 0; list[i] && err == 0; i++) {
		err = pick_pointer(p, list[i]);
	}
	return err;
}

static int pick_text(struct picker *p, const char *text, size_t bytes)
{
	char *copy;

	bytes = strnlen(text, bytes ? bytes : p->max + 1);
	if (bytes > p->max) {
		return fail(p, -EFBIG, "its PTX is longer than what is rewritten");
	}
	if (!ptx_choose_text(&p->choose, text, bytes)) {
		return -ENOENT;
	}
	copy = malloc(bytes + 1);
	if (!copy) {
		return fail(p, -ENOMEM, "no memory for the PTX");
	}
	memcpy(copy, text, bytes);
	copy[bytes] = 0;
	return add_part(p, copy, bytes);
}

/* Picks from containers one after the other, at multiples of 8. */
static int pick_containers(struct picker *p, const uint8_t *image, size_t bytes)
{
	size_t at = 0;
	int err = 0;

	while (err == 0 && bytes - at >= PTX_FATBIN_HEADER_BYTES) {
		uint64_t own;

		if (ptx_fatbin_bytes(image + at, &own) < 0) {
			break; /* padding at the end of a file */
		}
		err = pick_container(p, image + at, bytes - at);
		at = own > bytes - at ? bytes : MIN(ROUND_UP(at + (size_t)own, (size_t)8), bytes);
	}
	return err;
}

static int pick(struct picker *p, const void *image, size_t bytes)
{
	uint32_t magic;

	if (strnlen(image, MIN(bytes ? bytes : sizeof(magic), sizeof(magic))) < sizeof(magic)) {
		return -ENOENT;
	}
	memcpy(&magic, image, sizeof(magic));
	if (magic == MAGIC_ELF) {
		p->ret->native = true;
		return -ENOENT;
	}
	if (magic == PTX_FATBIN_MAGIC) {
		return bytes ? pick_containers(p, image, bytes) : pick_pointer(p, image);
	}
	if (magic == PTX_FATBIN_WRAPPER_MAGIC) {
		return bytes ? fail(p, -EINVAL,
				    "a wrapper of a fat binary, which points into memory")
			     : pick_wrapper(p, image);
	}
	return pick_text(p, image, bytes);
}

static int finish(struct picker *p)
{
	struct buf out;
	int err;

	if (p->n_parts == 0) {
		return -ENOENT;
	}
	if (p->n_parts == 1) {
		p->ret->text = p->first;
		p->ret->bytes = p->first_bytes;
		p->first = NULL;
		return 0;
	}
	buf_init(&out);
	err = ptx_merge_finish(&p->merge, &out);
	if (err == 0) {
		p->ret->bytes = out.len;
		p->ret->text = buf_steal(&out);
	}
	buf_finish(&out);
	return err == 0 && !p->ret->text ? -ENOENT : err == -EINVAL ? -EBADMSG : err;
}

int ptx_block_pick(struct ptx_block_pick *ret, const void *image, size_t bytes,
		   struct ptx_device device, size_t max, const char *name, struct report *r)
{
	struct picker p = { .ret = ret,
			    .choose = { .device = device, .max = max },
			    .max = max,
			    .name = name,
			    .report = r };
	int err;

	*ret = (struct ptx_block_pick){ 0 };
	ptx_merge_init(&p.merge, r);
	err = pick(&p, image, bytes);
	if (err == 0 && p.own && p.n_containers == 1) { /* of several, the PTX is merged */
		ret->native = true;
		err = -ENOENT;
	}
	err = err ? err : finish(&p);
	ret->differs = p.choose.differs;
	ret->other_arch = p.choose.other_arch;
	ret->other = p.choose.other;
	ret->too_new = p.choose.too_new;
	ptx_merge_free(&p.merge);
	free(p.first);
	return err;
}

int ptx_image_pick(struct ptx_image_text *ret, const void *image, size_t bytes,
		   struct ptx_device device, size_t max, const char *name,
		   struct ptx_image_rest *ret_rest, struct report *r)
{
	struct ptx_block_pick pick;
	int err = ptx_block_pick(&pick, image, bytes, device, max, name, r);

	*ret = (struct ptx_image_text){ .text = pick.text, .bytes = pick.bytes };
	*ret_rest = (struct ptx_image_rest){ .native = pick.native,
					     .differs = pick.differs,
					     .other_arch = pick.other_arch };
	if (err == -ENOENT) {
		ret_rest->other = pick.other;
	}
	return err == -ENOENT && !pick.other.arch && pick.too_new ? -EOPNOTSUPP : err;
}
