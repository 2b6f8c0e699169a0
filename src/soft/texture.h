/* Texture and surface objects as the client writes them and the engine reads them. They lie in
 * memory of their context that client and kernels share, and a handle is the address of one. The
 * engine trusts nothing in it: it copies an object before it uses it, and every texel that it names
 * is checked like any other access of the kernel. */
#ifndef GBPF_SOFT_TEXTURE_H
#define GBPF_SOFT_TEXTURE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A handle has the object's address in the low bits and the number of its use above, which is never
 * 0. A value without such a number is the address of a .texref or .surfref variable, which holds a
 * handle. */
#define SOFT_TEXTURE_USE_SHIFT 48
#define SOFT_TEXTURE_USE_MAX 0xffffu
#define SOFT_TEXTURE_ALIGN 256u

enum soft_texture_kind {
	SOFT_TEXTURE_FREE,
	SOFT_TEXTURE_SAMPLED = 0x7478,
	SOFT_TEXTURE_SURFACE,
};

enum soft_texel_format {
	SOFT_TEXEL_U8,
	SOFT_TEXEL_S8,
	SOFT_TEXEL_U16,
	SOFT_TEXEL_S16,
	SOFT_TEXEL_U32,
	SOFT_TEXEL_S32,
	SOFT_TEXEL_F16,
	SOFT_TEXEL_F32,
	SOFT_TEXEL_FORMATS
};

/* The numbers of CUaddress_mode. */
enum soft_address_mode { SOFT_WRAP, SOFT_CLAMP, SOFT_MIRROR, SOFT_BORDER };

enum {
	SOFT_TEXTURE_NORMALIZED = 1, /* coordinates */
	SOFT_TEXTURE_AS_FLOAT = 2,   /* 8 and 16 bits are fractions of 1 */
	SOFT_TEXTURE_SRGB = 4,
	SOFT_TEXTURE_LINEAR = 8, /* interpolates between texels */
	SOFT_TEXTURE_MIP_LINEAR = 16,
	SOFT_TEXTURE_LAYERED = 32, /* depth counts layers, or faces of cubes */
	SOFT_TEXTURE_CUBE = 64,
};

#define SOFT_TEXTURE_LEVELS_MAX 18u

/* Texels of a row are adjacent, rows are pitch bytes apart, slices follow each other, and so do the
 * levels of a mipmapped array. Level i is max(size >> i, 1) texels wide. */
struct soft_texture {
	uint64_t handle;     /* 0: free */
	uint64_t dead_after; /* the end of the ring when it was destroyed, UINT64_MAX before: later
				launches must not use it */
	uint64_t address;
	uint64_t pitch; /* of level 0 if it is the only one; 0: rows are adjacent */
	uint32_t kind;
	uint32_t format; /* enum soft_texel_format */
	uint32_t channels;
	uint32_t flags;
	uint32_t width, height, depth; /* of level 0; 0: the dimension does not exist */
	uint32_t levels;
	uint32_t first_level, last_level; /* those that the view shows */
	uint32_t first_layer, layers;
	uint32_t address_mode[3];
	float bias, min_level, max_level;
	float border[4];
};
_Static_assert(sizeof(struct soft_texture) <= SOFT_TEXTURE_ALIGN, "objects do not overlap");

static inline unsigned soft_texel_channel_bytes(uint32_t format)
{
	return format <= SOFT_TEXEL_S8				      ? 1
	       : format <= SOFT_TEXEL_S16 || format == SOFT_TEXEL_F16 ? 2
								      : 4;
}

#endif
