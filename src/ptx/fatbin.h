/* Fat binaries: containers of images for several devices, as nvcc embeds them in programs and
 * writes them to files. NVIDIA does not document the format; this follows what public tools have
 * found. Read only: calls no CUDA function. ptx/choose.h decides which PTX a device executes. */
#ifndef GBPF_PTX_FATBIN_H
#define GBPF_PTX_FATBIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PTX_FATBIN_MAGIC 0xba55ed50u
#define PTX_FATBIN_WRAPPER_MAGIC 0x466243b1u
#define PTX_FATBIN_HEADER_BYTES 16u

enum ptx_fatbin_kind { PTX_FATBIN_PTX = 1, PTX_FATBIN_CUBIN = 2 }; /* others are skipped */

#define PTX_FATBIN_LZ4 UINT64_C(0x2000)
#define PTX_FATBIN_ZSTD UINT64_C(0x8000)
#define PTX_FATBIN_ARCH_SPECIFIC UINT64_C(0x100000)   /* sm_90a, which only sm_90 itself runs */
#define PTX_FATBIN_FAMILY_SPECIFIC UINT64_C(0x200000) /* sm_100f: with its family's features */

/* A program's registration code and some callers pass this instead of the container. Version 2
 * belongs to programs linked with relocatable device code: `more` lists the containers that were
 * linked, ended by NULL. */
struct ptx_fatbin_wrapper {
	uint32_t magic, version;
	const void *data; /* the container */
	const void *more; /* version 1: a file name, unused */
};

struct ptx_fatbin_entry {
	uint16_t kind;
	uint16_t major, minor; /* of the code; for PTX its .version */
	uint32_t arch;	       /* 75: sm_75 */
	uint64_t flags;
	const uint8_t *data; /* borrowed from the image */
	size_t bytes;	     /* as stored */
	uint64_t unpacked;   /* decompressed size as stated; 0: not stated */
};

struct ptx_fatbin_walk {
	const uint8_t *at, *end;
};

/* Reads a container's size from its first PTX_FATBIN_HEADER_BYTES. Returns 0, or -EINVAL if it is
 * not a container. */
int ptx_fatbin_bytes(const void *header, uint64_t *ret_bytes);
/* Begins with the container at image. Returns 0; -EINVAL if it is not a container or is longer than
 * len. */
int ptx_fatbin_open(struct ptx_fatbin_walk *w, const void *image, size_t len, size_t *ret_bytes);
/* Returns 1 and the next entry, 0 at the end, -EINVAL if an entry exceeds its container. */
int ptx_fatbin_next(struct ptx_fatbin_walk *w, struct ptx_fatbin_entry *ret);

/* Decompresses an entry: at most max bytes, followed by a zero byte. Caller frees. Returns 0;
 * -EINVAL if the data is corrupt; -EFBIG beyond max; -ENOMEM. */
int ptx_fatbin_unpack(const struct ptx_fatbin_entry *e, size_t max, char **ret, size_t *ret_bytes);

/* Returns true for machine code that a GPU of that architecture runs: of its major architecture,
 * from its minor one on. */
bool ptx_fatbin_is_code_for(const struct ptx_fatbin_entry *e, unsigned arch);
/* Returns true if a suits a device of that architecture better than b: the highest that is not
 * above it, otherwise the nearest above. */
bool ptx_fatbin_better(const struct ptx_fatbin_entry *a, const struct ptx_fatbin_entry *b,
		       unsigned arch);

#endif
