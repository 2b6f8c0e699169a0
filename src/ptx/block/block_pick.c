/* Picks the PTX that the driver would use: of each container the text for the highest architecture
 * that the device supports, text for exactly this device before text for all later ones. Containers
 * that were linked into one program are merged, as by the driver's linker. */
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
#define TRIES_MAX 16u /* texts of one container that are decompressed */

struct picker {
	struct ptx_block_pick *ret;
	unsigned arch;
	size_t max;
	const char *name;
	struct report *report;
	struct ptx_merge merge;
	char *first; /* owned: the only part's text, while there is one part */
	size_t first_bytes, bytes;
	unsigned n_parts;
};

static int fail(struct picker *p, int err, const char *what)
{
	report_place(p->report, "%s", p->name);
	return report_set(p->report, err, "image", "%s", what);
}

/* Returns the letter after the number of .target: 'a': one device only, 'f': its family; 0: none.
 */
static char suffix_of(const char *text, size_t bytes)
{
	const char *t = memmem(text, MIN(bytes, (size_t)4096), ".target", 7), *end = text + bytes;

	while (t && t < end && *t != '\n' && (*t < '0' || *t > '9')) {
		t++;
	}
	while (t && t < end && *t >= '0' && *t <= '9') {
		t++;
	}
	return t && t < end && (*t == 'a' || *t == 'f') ? *t : 0;
}

/* Returns how well a text suits the device: 0 not at all; more is better. */
static unsigned suits(const struct picker *p, const char *text, size_t bytes)
{
	unsigned arch = ptx_text_arch(text, bytes), version = ptx_text_version(text, bytes);
	char suffix = suffix_of(text, bytes);

	if (version == 0 || version / 10 > PTX_VERSION_MAX || arch == 0 || arch > p->arch ||
	    (suffix == 'a' && arch != p->arch) || (suffix == 'f' && arch / 10 != p->arch / 10)) {
		return 0;
	}
	return arch * 4 + (suffix == 'a' ? 2 : suffix == 'f' ? 1 : 0) + 1;
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

/* Takes an entry's text if it suits better than *score. */
static int try_entry(struct picker *p, const struct ptx_fatbin_entry *e, char **best,
		     size_t *best_bytes, unsigned *score)
{
	size_t bytes;
	unsigned s;
	char *text;
	int err = ptx_fatbin_unpack(e, p->max, &text, &bytes);

	if (err < 0) {
		return fail(p, err,
			    err == -EFBIG    ? "its PTX is longer than what is rewritten"
			    : err == -ENOMEM ? "no memory to unpack the PTX"
					     : "compressed PTX of the fat binary is broken");
	}
	while (bytes && text[bytes - 1] == 0) {
		bytes--;
	}
	s = suits(p, text, bytes);
	if (s > *score) {
		free(*best);
		*best = text;
		*best_bytes = bytes;
		*score = s;
	} else {
		free(text);
	}
	return 0;
}

/* Tries the entries from the highest architecture down until one suits. */
static int pick_part(struct picker *p, struct ptx_fatbin_walk start)
{
	unsigned below = p->arch + 1, tries = 0, score = 0;
	size_t bytes = 0;
	char *best = NULL;

	while (!best && below) {
		struct ptx_fatbin_walk w = start;
		struct ptx_fatbin_entry e;
		unsigned next = 0;

		for (struct ptx_fatbin_walk v = start; ptx_fatbin_next(&v, &e) == 1;) {
			next = e.kind == PTX_FATBIN_PTX && e.arch < below ? MAX(next, e.arch)
									  : next;
		}
		while (next && ptx_fatbin_next(&w, &e) == 1) {
			int err;

			if (e.kind != PTX_FATBIN_PTX || e.arch != next) {
				continue;
			}
			err = tries++ == TRIES_MAX
				      ? fail(p, -EFBIG, "too many PTX texts in a container")
				      : try_entry(p, &e, &best, &bytes, &score);
			if (err < 0) {
				free(best);
				return err;
			}
		}
		below = next;
	}
	return best ? add_part(p, best, bytes) : -ENOENT;
}

/* Notes whether machine code for the device is there: it runs on devices of the same major number
 * and the same or a higher minor one. */
static int look_at_code(struct picker *p, struct ptx_fatbin_walk w)
{
	struct ptx_fatbin_entry e;
	int more;

	while ((more = ptx_fatbin_next(&w, &e)) == 1) {
		if (e.kind == PTX_FATBIN_CUBIN && e.arch / 10 == p->arch / 10 &&
		    e.arch <= p->arch) {
			p->ret->native = true;
		}
	}
	return more < 0 ? fail(p, -EINVAL, "an entry of the fat binary does not fit into it") : 0;
}

/* bytes: an upper limit of the container's size. */
static int pick_container(struct picker *p, const void *data, size_t bytes)
{
	struct ptx_fatbin_walk w;
	size_t own;
	int err;

	if (!data || ptx_fatbin_open(&w, data, bytes, &own) < 0) {
		return fail(p, -EINVAL, "the fat binary is longer than its data");
	}
	if (p->n_parts == PARTS_MAX) {
		return fail(p, -EFBIG, "too many fat binaries in one program");
	}
	err = look_at_code(p, w);
	return err ? err : pick_part(p, w);
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
	if (!suits(p, text, bytes)) {
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
		return bytes && bytes < sizeof(struct ptx_fatbin_wrapper)
			       ? fail(p, -EINVAL, "a wrapper of a fat binary that is cut off")
			       : pick_wrapper(p, image);
	}
	return pick_text(p, image, bytes);
}

static int finish(struct picker *p)
{
	struct buf out;
	int err;

	if (p->n_parts <= 1) {
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

int ptx_block_pick(struct ptx_block_pick *ret, const void *image, size_t bytes, unsigned arch,
		   size_t max, const char *name, struct report *r)
{
	struct picker p = { .ret = ret, .arch = arch, .max = max, .name = name, .report = r };
	int err;

	*ret = (struct ptx_block_pick){ 0 };
	ptx_merge_init(&p.merge, r);
	err = pick(&p, image, bytes);
	err = err ? err : finish(&p);
	ptx_merge_free(&p.merge);
	free(p.first);
	return err;
}

int ptx_image_pick(struct ptx_image_text *ret, const void *image, size_t bytes, unsigned arch,
		   size_t max, const char *name, struct report *r)
{
	struct ptx_block_pick pick;
	int err = ptx_block_pick(&pick, image, bytes, arch, max, name, r);

	*ret = (struct ptx_image_text){ .text = pick.text, .bytes = pick.bytes };
	return err;
}
