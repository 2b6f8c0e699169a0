/* Makes fat binaries as nvcc 13 does: headers of 80 bytes before PTX, of 64 before cubins, contents
 * padded to 8. */
#ifndef GBPF_TESTS_PTX_FATBIN_MAKE_H
#define GBPF_TESTS_PTX_FATBIN_MAKE_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <lz4.h>
#include <zstd.h>

#include "base/buf.h"
#include "base/compiler.h"
#include "ptx/fatbin.h"

static inline void make_put(struct buf *b, size_t at, const void *data, size_t n)
{
	memcpy(b->data + at, data, n);
}

/* Begins a container; returns its offset. */
static inline size_t make_begin(struct buf *b)
{
	static const uint8_t head[PTX_FATBIN_HEADER_BYTES] = {
		0x50, 0xed, 0x55, 0xba, 1, 0, 16, 0
	};
	size_t at = b->len;

	buf_add(b, head, sizeof(head));
	return at;
}

static inline void make_end(struct buf *b, size_t container)
{
	uint64_t bytes = b->len - container - PTX_FATBIN_HEADER_BYTES;

	make_put(b, container + 8, &bytes, sizeof(bytes));
}

/* how: 0, PTX_FATBIN_LZ4 or PTX_FATBIN_ZSTD. Returns the offset of the entry's header. */
static inline size_t make_entry(struct buf *b, uint16_t kind, uint32_t arch, const void *data,
				size_t n, uint64_t how)
{
	uint32_t header = kind == PTX_FATBIN_PTX ? 80 : 64, stored = 0, name = 64;
	uint64_t flags = 0x11 | how, padded, unpacked = how ? n : 0;
	uint8_t h[80] = { 0 };
	size_t cap = (size_t)LZ4_compressBound((int)n) + ZSTD_compressBound(n), at = b->len;
	char *out = malloc(cap);
	uint16_t version = 0x101, major = 8;
	static const char zeros[8];

	if (how == PTX_FATBIN_LZ4) {
		stored = (uint32_t)LZ4_compress_default(data, out, (int)n, (int)cap);
	} else if (how == PTX_FATBIN_ZSTD) {
		stored = (uint32_t)ZSTD_compress(out, cap, data, n, 3);
	}
	padded = ROUND_UP(how ? stored : n, (size_t)8);
	memcpy(h, &kind, 2);
	memcpy(h + 2, &version, 2);
	memcpy(h + 4, &header, 4);
	memcpy(h + 8, &padded, 8);
	memcpy(h + 16, &stored, 4);
	memcpy(h + 20, &name, 4);
	memcpy(h + 26, &major, 2);
	memcpy(h + 28, &arch, 4);
	memcpy(h + 40, &flags, 8);
	memcpy(h + 56, &unpacked, 8);
	buf_add(b, h, header);
	buf_add(b, how ? out : data, how ? stored : n);
	buf_add(b, zeros, padded - (how ? stored : n));
	free(out);
	return at;
}

#endif
