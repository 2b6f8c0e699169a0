/* The soft GPU's machine code. The first byte selects what the rest is: a file; changes of a file,
 * patched by hand or not (a kind and a place each, in 8 bytes); or PTX, which is assembled and must
 * be read back unchanged. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "../unit/soft/code_patcher.h"
#include "base/compiler.h"
#include "soft/code/code.h"

#define CHANGE_BYTES 8u

static const char kernels[] =
	".version 7.8\n.target sm_75\n.address_size 64\n"
	".visible .global .align 4 .u32 words[3] = {1, 2, 3};\n.global .u64 pointer = words;\n"
	".visible .entry run(.param .u64 out, .param .u32 v)\n.maxntid 64, 1, 1\n{\n"
	"	.reg .b32 %r<2>;\n	.reg .b64 %rd<2>;\n	ld.param.u64 %rd1, [out];\n"
	"	ld.param.u32 %r1, [v];\n	st.global.u32 [%rd1], %r1;\n	ret;\n}\n"
	".visible .entry none()\n{\n	bar.sync 0;\n	ret;\n}\n";
static const char stub[] =
	".version 7.8\n.target sm_75\n.address_size 64\n"
	".visible .entry stub(.param .align 8 .b8 pad[64], .param .align 8 .b8 arg[64])\n{\n"
	"	.reg .b32 %r<3>;\n	.reg .b64 %rd<2>;\n	.reg .pred %p<2>;\n"
	"	ld.param.u64 %rd1, [arg+8];\n	setp.eq.u64 %p1, %rd1, 0;\n	@%p1 bra $L1;\n"
	"	{\n	.reg .b32 %a;\n	mov.u32 %a, %ctaid.x;\n	setp.eq.u32 %p1, %a, 3;\n	}\n"
	"	@%p1 exit;\n$L1:\n	pmevent 13;\n	ret;\n}\n";

static struct buf images[2]; /* without and with a patch */

static void assemble(struct buf *ret, const char *text)
{
	struct report r;

	report_init(&r);
	if (soft_code_assemble(ret, text, strlen(text), "fuzz", &r) != 0) {
		abort();
	}
	report_finish(&r);
}

static void make_images(void)
{
	struct buf code = { 0 };

	if (images[0].data) {
		return;
	}
	assemble(&images[0], kernels);
	assemble(&code, stub);
	patch_kernel(&images[1], images[0].data, images[0].len, "run", code.data, "stub", 64, 64,
		     PATCH_RIGHT);
	buf_finish(&code);
}

/* Returns whether the image was accepted; then *ret is its PTX. */
static bool read_image(struct buf *ret, const uint8_t *image, size_t bytes)
{
	struct strmap registers;
	struct report r;
	int err;

	report_init(&r);
	strmap_init(&registers);
	err = soft_code_read(ret, &registers, image, bytes, "fuzz", &r);
	strmap_finish(&registers);
	if (err && !r.message.len) {
		abort(); /* a refusal must have a message */
	}
	report_finish(&r);
	return err == 0;
}

/* An exact copy, so that each access beyond its end is found. */
static void read_exact(const uint8_t *data, size_t size)
{
	struct buf text = { 0 };
	uint8_t *image = malloc(size + 1);

	if (image) {
		memcpy(image, data, size);
		read_image(&text, image, size);
		soft_code_is_own(image, size);
	}
	buf_finish(&text);
	free(image);
}

/* A change: u32 place, u8 kind, three bytes of value. */
static void change(struct buf *b, const uint8_t *c)
{
	uint32_t at;
	size_t n;

	memcpy(&at, c, sizeof(at));
	at %= (uint32_t)b->len;
	n = b->len - at;
	switch (c[4] % 4) {
	case 0:
		b->data[at] = (char)(b->data[at] ^ c[5]);
		break;
	case 1: /* what tables and instructions consist of */
		at &= ~7u;
		memset(b->data + at, c[5] & 1 ? 0xff : 0, MIN(n, (size_t)(1u << (c[6] & 3))));
		break;
	case 2:
		b->data[at] = (char)(b->data[at] + c[5] - 128);
		break;
	default: /* move one instruction or header field over another */
		memmove(b->data + (at & ~15u),
			b->data + (c[5] | c[6] << 8) % (b->len - 15) / 16 * 16,
			MIN(b->len - (at & ~15u), (size_t)16));
	}
}

static void read_changed(const uint8_t *data, size_t size)
{
	struct buf b = { 0 };

	make_images();
	if (!size) {
		return;
	}
	buf_add(&b, images[*data & 1].data, images[*data & 1].len);
	for (size_t at = 1; size - at >= CHANGE_BYTES; at += CHANGE_BYTES) {
		change(&b, data + at);
	}
	if (*data & 2) {
		b.len -= *data >> 2;
	}
	read_exact((const uint8_t *)b.data, b.len);
	buf_finish(&b);
}

static void assemble_and_read(const uint8_t *data, size_t size)
{
	struct buf code = { 0 }, text = { 0 };
	struct report r;

	report_init(&r);
	if (!memchr(data, 0, size) &&
	    soft_code_assemble(&code, (const char *)data, size, "fuzz", &r) == 0) {
		if (soft_code_bytes(code.data) != code.len ||
		    !read_image(&text, (const uint8_t *)code.data, code.len) || text.len != size ||
		    memcmp(text.data, data, size) != 0) {
			abort();
		}
	}
	report_finish(&r);
	buf_finish(&code);
	buf_finish(&text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (!size) {
		return 0;
	}
	switch (*data % 3) {
	case 0:
		read_exact(data + 1, size - 1);
		break;
	case 1:
		read_changed(data + 1, size - 1);
		break;
	default:
		assemble_and_read(data + 1, size - 1);
	}
	return 0;
}
