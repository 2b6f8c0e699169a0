/* Fat binaries: containers of images for several devices, as nvcc embeds them in programs and
 * writes them to files. The format is not documented by its maker; this reads what public tools
 * have found. Reads only: it knows no CUDA call and decides nothing but which PTX fits a device
 * best. */
#ifndef GBPF_PTX_FATBIN_H
#define GBPF_PTX_FATBIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PTX_FATBIN_MAGIC 0xba55ed50u
#define PTX_FATBIN_WRAPPER_MAGIC 0x466243b1u
#define PTX_FATBIN_HEADER_BYTES 16u

enum ptx_fatbin_kind { PTX_FATBIN_PTX = 1, PTX_FATBIN_CUBIN = 2 }; /* others are passed over */

#define PTX_FATBIN_LZ4 UINT64_C(0x2000)
#define PTX_FATBIN_ZSTD UINT64_C(0x8000)

/* What a program's registration code and some callers hand over instead of the container itself.
 * Version 2 is of programs linked with relocatable device code: more is a list of the containers
 * that were linked, ended by NULL. */
struct ptx_fatbin_wrapper {
	uint32_t magic, version;
	const void *data; /* the container */
	const void *more; /* of version 1: a file's name, not used */
};

struct ptx_fatbin_entry {
	uint16_t kind;
	uint16_t major, minor; /* of the code: of PTX its .version */
	uint32_t arch;	       /* 75: sm_75 */
	uint64_t flags;
	const uint8_t *data; /* borrowed from the image */
	size_t bytes;	     /* stored */
	uint64_t unpacked;   /* bytes once decompressed, as it claims; 0: it does not say */
};

struct ptx_fatbin_walk {
	const uint8_t *at, *end;
};

/* How long a container is, from its first FATBIN_HEADER_BYTES. 0, or -EINVAL when it is none. */
int ptx_fatbin_bytes(const void *header, uint64_t *ret_bytes);
/* Begins with the container at image. 0; -EINVAL when it is none or is longer than len. */
int ptx_fatbin_open(struct ptx_fatbin_walk *w, const void *image, size_t len, size_t *ret_bytes);
/* 1 and the next entry, 0 at the end, -EINVAL when an entry does not fit its container. */
int ptx_fatbin_next(struct ptx_fatbin_walk *w, struct ptx_fatbin_entry *ret);

/* An entry's contents, decompressed; at most max bytes, and a zero byte behind them. Caller frees.
 * 0; -EINVAL when the data is broken; -EFBIG beyond max; -ENOMEM. */
int ptx_fatbin_unpack(const struct ptx_fatbin_entry *e, size_t max, char **ret, size_t *ret_bytes);

/* Whether a device of that architecture rather takes a than b: the highest that is not above it,
 * otherwise the nearest above. */
bool ptx_fatbin_better(const struct ptx_fatbin_entry *a, const struct ptx_fatbin_entry *b,
		       unsigned arch);

#endif
