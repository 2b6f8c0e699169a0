/* Arrays and mipmapped arrays: addresses of boxes and of ranges in them, for copies, and their
 * description for textures. */
#ifndef GBPF_SOFT_CLIENT_MEMORY_ARRAY_H
#define GBPF_SOFT_CLIENT_MEMORY_ARRAY_H

#include "soft/client/process.h"
#include "soft/texture.h"

struct CUarray_st {
	struct soft_object object;
	CUcontext context;
	uint64_t context_id;
	CUDA_ARRAY3D_DESCRIPTOR desc;
	unsigned element;
	uint64_t address, pitch, slice, bytes;
	bool level; /* of a mipmapped array, which owns the memory and with which it is destroyed */
};

/* The levels follow each other in memory. */
struct CUmipmappedArray_st {
	struct soft_object object;
	uint64_t address;
	unsigned levels;
	CUarray level[SOFT_TEXTURE_LEVELS_MAX];
};

struct soft_array_box {
	uint64_t address, pitch, slice; /* of the first byte of the copy */
};
/* Finds the box in the array; x and width in bytes. */
CUresult soft_array_locate(CUarray a, size_t x, size_t y, size_t z, size_t width, size_t height,
			   size_t depth, struct soft_array_box *ret);
CUresult soft_array_element_bytes(CUarray a, unsigned *ret_bytes);
CUresult soft_array_linear(CUarray a, size_t offset, size_t bytes,
			   uint64_t *ret_address); /* as an array of bytes */

/* Checks a description; *ret_element: bytes of an element. */
CUresult soft_array_check(const CUDA_ARRAY3D_DESCRIPTOR *d, unsigned *ret_element);
/* The size of the elements of a checked description, which does not overflow. The memory is that of
 * NVIDIA's layout, cuabi_array_bytes(), which is at least as much. */
uint64_t soft_array_bytes(const CUDA_ARRAY3D_DESCRIPTOR *d, unsigned element);
/* address 0: allocates memory; else the array is a level that lies there. */
CUresult soft_array_make(CUcontext ctx, const CUDA_ARRAY3D_DESCRIPTOR *d, unsigned element,
			 uint64_t address, CUarray *ret);
void soft_array_drop(CUarray a);
CUresult soft_array_check_handle(CUarray a);
/* mipmapped_array.c */
CUresult soft_mipmapped_check_handle(CUmipmappedArray m);

/* array_texture.c: fill in place, size and format. */
void soft_array_texture(const struct CUarray_st *a, struct soft_texture *ret);
void soft_mipmapped_texture(const struct CUmipmappedArray_st *m, struct soft_texture *ret);
/* Returns the format of texels, or SOFT_TEXEL_FORMATS for one that textures do not have;
 * *ret_fraction: whether its values are fractions of 1. */
enum soft_texel_format soft_array_texel_format(CUarray_format f, bool *ret_fraction);

#endif
