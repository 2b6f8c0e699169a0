/* Arrays: addresses of boxes and of ranges in them, for copies. */
#ifndef GBPF_SOFT_CLIENT_MEMORY_ARRAY_H
#define GBPF_SOFT_CLIENT_MEMORY_ARRAY_H

#include "soft/client/process.h"

struct soft_array_box {
	uint64_t address, pitch, slice; /* of the first byte of the copy */
};
/* Finds the box in the array; x and width in bytes. */
CUresult soft_array_locate(CUarray a, size_t x, size_t y, size_t z, size_t width, size_t height,
			   size_t depth, struct soft_array_box *ret);
CUresult soft_array_element_bytes(CUarray a, unsigned *ret_bytes);
CUresult soft_array_linear(CUarray a, size_t offset, size_t bytes,
			   uint64_t *ret_address); /* as an array of bytes */

#endif
