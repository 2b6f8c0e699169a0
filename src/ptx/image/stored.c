/* The variable is an array of 32-bit words, so that it can be written as a PTX initializer: a head,
 * then one zstd frame, padded with zeros. */
#include "ptx/stored.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <zstd.h>

#include "base/compiler.h"
#include "base/strmap.h"
#include "ptx/block_mark.h"

#define MAGIC 0x70746773u /* "sgtp" */
#define FORM 1u
#define LEVEL 3

enum { H_MAGIC, H_FORM, H_CHECK, H_TEXT_BYTES, H_PACKED_BYTES, HEAD };

static uint32_t check_of(const void *packed, size_t bytes)
{
	uint64_t h = hash_bytes(packed, bytes);

	return (uint32_t)(h ^ h >> 32);
}

static void print(struct buf *out, const uint32_t *words, size_t n, uint64_t id)
{
	buf_printf(out, "\n.visible .global .align 4 .u32 " PTX_STORED "%016llx[%zu] = {",
		   (unsigned long long)id, n);
	for (size_t i = 0; i < n; i++) {
		buf_printf(out, i == 0 ? "%u" : i % 16 ? ", %u" : ",\n%u", words[i]);
	}
	buf_puts(out, "};\n");
}

int ptx_stored_print(struct buf *out, const char *text, size_t bytes)
{
	size_t bound = ZSTD_compressBound(bytes), n;
	uint32_t *words;

	if (bytes > PTX_STORED_MAX) {
		return -EFBIG;
	}
	words = calloc(HEAD + bound / 4 + 1, sizeof(*words));
	if (!words) {
		return -ENOMEM;
	}
	n = ZSTD_compress(words + HEAD, bound, text, bytes, LEVEL);
	if (ZSTD_isError(n) || n > PTX_STORED_PACKED_MAX) {
		free(words);
		return ZSTD_isError(n) ? -ENOMEM : -EFBIG;
	}
	words[H_MAGIC] = MAGIC;
	words[H_FORM] = FORM;
	words[H_CHECK] = check_of(words + HEAD, n);
	words[H_TEXT_BYTES] = (uint32_t)bytes;
	words[H_PACKED_BYTES] = (uint32_t)n;
	print(out, words, HEAD + ROUND_UP(n, (size_t)4) / 4, hash_bytes(text, bytes));
	free(words);
	return out->failed;
}

static int unpack(const uint8_t *packed, const uint32_t head[HEAD], char **ret)
{
	char *text = malloc((size_t)head[H_TEXT_BYTES] + 1);
	size_t n;

	if (!text) {
		return -ENOMEM;
	}
	n = ZSTD_decompress(text, head[H_TEXT_BYTES], packed, head[H_PACKED_BYTES]);
	if (ZSTD_isError(n) || n != head[H_TEXT_BYTES]) {
		free(text);
		return -EINVAL;
	}
	text[n] = 0;
	*ret = text;
	return 0;
}

int ptx_stored_read(const void *image, size_t bytes, uint32_t i, char **ret, size_t *ret_bytes)
{
	uint32_t head[HEAD];
	const uint8_t *at;
	size_t size;
	int err = ptx_block_code_variable(image, bytes, PTX_STORED, i, &at, &size);

	if (err) {
		return err;
	}
	if (size < sizeof(head)) {
		return -EINVAL;
	}
	memcpy(head, at, sizeof(head));
	at += sizeof(head);
	if (head[H_MAGIC] != MAGIC || head[H_FORM] != FORM ||
	    head[H_PACKED_BYTES] > size - sizeof(head) || head[H_TEXT_BYTES] > PTX_STORED_MAX ||
	    head[H_CHECK] != check_of(at, head[H_PACKED_BYTES])) {
		return -EINVAL;
	}
	err = unpack(at, head, ret);
	*ret_bytes = err ? 0 : head[H_TEXT_BYTES];
	return err;
}
