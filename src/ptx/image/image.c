/* Takes the parts of an image to use: of each container the PTX that the device executes. Of
 * machine code only its presence is noted. */
#include "ptx/image.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "ptx/choose.h"
#include "ptx/fatbin.h"
#include "ptx/lex.h"
#include "ptx/merge.h"
#include "ptx/module.h"

#define PARTS_MAX 256u /* containers one after the other */

struct opener {
	const uint8_t *image;
	size_t len, max;
	const char *name;
	struct report *report;
	struct ptx_image_text *parts; /* owned; one for each container with PTX */
	uint32_t n_parts, n_containers;
	size_t bytes; /* of all parts */
	struct ptx_chooser choose;
};

static int fail(struct opener *o, int err, const char *what)
{
	report_place(o->report, "%s", o->name);
	return report_set(o->report, err, "image", "%s", what);
}

unsigned ptx_text_arch(const char *text, size_t len)
{
	const char *t = memmem(text, MIN(len, (size_t)4096), ".target", 7);
	const char *end = text + len;
	unsigned arch = 0;

	while (t && t < end && *t != '\n' && (*t < '0' || *t > '9')) {
		t++;
	}
	for (; t && t < end && *t >= '0' && *t <= '9' && arch < 10000; t++) {
		arch = arch * 10 + (unsigned)(*t - '0');
	}
	return arch;
}

unsigned ptx_text_version(const char *text, size_t len)
{
	struct ptx_lexer x;
	struct ptx_token t;
	unsigned major = 0, minor = 0;

	ptx_lexer_init(&x, text, len);
	ptx_lexer_next(&x, &t);
	if (t.kind != PTX_TOK_DOT || t.len != 8 || memcmp(t.text, ".version", 8) != 0) {
		return 0;
	}
	while (x.pos < x.end && (*x.pos == ' ' || *x.pos == '\t')) {
		x.pos++;
	}
	for (; x.pos < x.end && *x.pos >= '0' && *x.pos <= '9' && major < 1000; x.pos++) {
		major = major * 10 + (unsigned)(*x.pos - '0');
	}
	if (x.pos + 1 < x.end && *x.pos == '.' && x.pos[1] >= '0' && x.pos[1] <= '9') {
		minor = (unsigned)(x.pos[1] - '0');
	}
	return major * 10 + minor;
}

static size_t trimmed(const char *text, size_t len)
{
	while (len && text[len - 1] == 0) {
		len--;
	}
	return len;
}

static int add_part(struct opener *o, char *text, size_t bytes)
{
	struct ptx_image_text *grown;

	if (bytes > o->max - o->bytes) {
		free(text);
		return fail(o, -EFBIG, "the PTX of all parts together is too long");
	}
	grown = realloc(o->parts, (o->n_parts + 1) * sizeof(*grown));
	if (!grown) {
		free(text);
		return fail(o, -ENOMEM, "no memory for the PTX");
	}
	o->parts = grown;
	o->parts[o->n_parts++] = (struct ptx_image_text){ text, bytes };
	o->bytes += bytes;
	return 0;
}

/* Takes the text of one container, if it has one for the device. */
static int add_container(struct opener *o, struct ptx_fatbin_walk w)
{
	size_t bytes;
	char *text;
	int chosen = ptx_choose(&o->choose, w, &text, &bytes);

	return chosen < 0 ? fail(o, chosen, o->choose.error)
	       : chosen	  ? add_part(o, text, bytes)
			  : 0;
}

static int open_containers(struct opener *o)
{
	size_t at = 0, bytes;

	while (o->len - at >= PTX_FATBIN_HEADER_BYTES) {
		struct ptx_fatbin_walk w;
		uint32_t magic;
		int err;

		memcpy(&magic, o->image + at, sizeof(magic));
		if (magic != PTX_FATBIN_MAGIC && at) {
			break; /* padding at the end of a file */
		}
		if (ptx_fatbin_open(&w, o->image + at, o->len - at, &bytes) < 0) {
			return fail(o, -EINVAL, "the fat binary is longer than its data");
		}
		if (++o->n_containers > PARTS_MAX) {
			return fail(o, -EFBIG, "too many fat binaries behind each other");
		}
		err = add_container(o, w);
		if (err < 0) {
			return err;
		}
		at = MIN(ROUND_UP(at + bytes, (size_t)8), o->len);
	}
	return o->len < PTX_FATBIN_HEADER_BYTES ? fail(o, -EINVAL, "the fat binary is cut off") : 0;
}

static int open_text(struct opener *o)
{
	size_t bytes = trimmed((const char *)o->image, o->len);
	char *text;

	if (bytes > o->max) {
		return fail(o, -EFBIG, "the PTX is too long");
	}
	if (!ptx_choose_text(&o->choose, (const char *)o->image, bytes)) {
		return 0;
	}
	text = malloc(bytes + 1);
	if (!text) {
		return fail(o, -ENOMEM, "no memory for the PTX");
	}
	memcpy(text, o->image, bytes);
	text[bytes] = 0;
	return add_part(o, text, bytes);
}

/* Recognizes ELF files of the machine CUDA; other ELF files are not images. */
static int open_elf(struct opener *o)
{
	uint16_t machine;

	if (o->len < 64 || o->image[4] != 2) {
		return fail(o, -EINVAL, "an ELF file that is no cubin");
	}
	memcpy(&machine, o->image + 18, sizeof(machine));
	if (machine != 190) {
		return fail(o, -EINVAL, "an ELF file that is no cubin");
	}
	o->choose.code = true;
	return 0;
}

static int merge_parts(struct opener *o, struct ptx_image_text *ret)
{
	struct ptx_merge m;
	struct buf out;
	int err = 0;

	ptx_merge_init(&m, o->report);
	buf_init(&out);
	for (uint32_t i = 0; i < o->n_parts && err == 0; i++) {
		err = ptx_merge_add(&m, o->parts[i].text, o->parts[i].bytes, o->name);
	}
	err = err ? err : ptx_merge_finish(&m, &out);
	ptx_merge_free(&m);
	if (err == 0 && out.len > o->max) {
		err = fail(o, -EFBIG, "the merged PTX is too long");
	}
	if (err == 0) {
		ret->bytes = out.len;
		ret->text = buf_steal(&out);
	}
	buf_finish(&out);
	return err == 0 || err == -ENOMEM || err == -EFBIG ? err : -EBADMSG;
}

static int finish(struct opener *o, struct ptx_image_text *ret)
{
	if (o->n_parts == 1) {
		*ret = o->parts[0];
		o->n_parts = 0;
		return 0;
	}
	if (o->n_parts > 1) {
		return merge_parts(o, ret);
	}
	if (o->choose.too_new) {
		return fail(o, -EOPNOTSUPP, "its PTX is of a .version newer than 9.x");
	}
	if (o->choose.other.arch) {
		return fail(o, -ENOENT, "its PTX is for other devices only");
	}
	return fail(o, -ENOENT,
		    o->choose.code
			    ? "the fat binary has machine code of other devices and no PTX; build "
			      "it with "
			      "-gencode arch=compute_75,code=compute_75"
			    : "the fat binary holds no image");
}

int ptx_image_open(struct ptx_image_text *ret, const void *image, size_t len,
		   struct ptx_device device, size_t max, const char *name, struct report *r)
{
	struct opener o = { .image = image,
			    .len = len,
			    .max = max,
			    .name = name,
			    .report = r,
			    .choose = { .device = device, .max = max } };
	uint32_t magic = 0;
	int err;

	*ret = (struct ptx_image_text){ 0 };
	memcpy(&magic, image, MIN(len, sizeof(magic)));
	if (magic == PTX_FATBIN_MAGIC) {
		err = open_containers(&o);
	} else if (magic == 0x464c457fu) {
		err = open_elf(&o);
	} else {
		err = open_text(&o);
	}
	err = err ? err : finish(&o, ret);
	while (o.n_parts) {
		free(o.parts[--o.n_parts].text);
	}
	free(o.parts);
	return err;
}

void ptx_image_close(struct ptx_image_text *t)
{
	free(t->text);
	*t = (struct ptx_image_text){ 0 };
}
