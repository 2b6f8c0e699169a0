/* Arrays as textures and surfaces see them. */
#include "soft/client/memory/array.h"

#define UNORM8_FIRST CU_AD_FORMAT_UNORM_INT8X1
#define FORMATS_PER_KIND 3 /* of 1, 2 and 4 channels */

enum soft_texel_format soft_array_texel_format(CUarray_format f, bool *ret_fraction)
{
	static const enum soft_texel_format fractions[] = { SOFT_TEXEL_U8, SOFT_TEXEL_U16,
							    SOFT_TEXEL_S8, SOFT_TEXEL_S16 };

	*ret_fraction = f >= UNORM8_FIRST && f <= CU_AD_FORMAT_SNORM_INT16X4;
	if (*ret_fraction) {
		return fractions[(f - UNORM8_FIRST) / FORMATS_PER_KIND];
	}
	switch (f) {
	case CU_AD_FORMAT_UNSIGNED_INT8:
		return SOFT_TEXEL_U8;
	case CU_AD_FORMAT_SIGNED_INT8:
		return SOFT_TEXEL_S8;
	case CU_AD_FORMAT_UNSIGNED_INT16:
		return SOFT_TEXEL_U16;
	case CU_AD_FORMAT_SIGNED_INT16:
		return SOFT_TEXEL_S16;
	case CU_AD_FORMAT_UNSIGNED_INT32:
		return SOFT_TEXEL_U32;
	case CU_AD_FORMAT_SIGNED_INT32:
		return SOFT_TEXEL_S32;
	case CU_AD_FORMAT_HALF:
		return SOFT_TEXEL_F16;
	case CU_AD_FORMAT_FLOAT:
		return SOFT_TEXEL_F32;
	default:
		return SOFT_TEXEL_FORMATS;
	}
}

void soft_array_texture(const struct CUarray_st *a, struct soft_texture *ret)
{
	bool layered = a->desc.Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP), fraction;

	ret->address = a->address;
	ret->format = (uint32_t)soft_array_texel_format(a->desc.Format, &fraction);
	ret->channels = a->desc.NumChannels;
	ret->flags |= fraction ? SOFT_TEXTURE_AS_FLOAT : 0u;
	ret->flags |= layered ? SOFT_TEXTURE_LAYERED : 0u;
	ret->flags |= a->desc.Flags & CUDA_ARRAY3D_CUBEMAP ? SOFT_TEXTURE_CUBE : 0u;
	ret->width = (uint32_t)a->desc.Width;
	ret->height = (uint32_t)a->desc.Height;
	ret->depth = (uint32_t)a->desc.Depth;
	ret->layers = layered ? ret->depth : 0;
	ret->levels = 1;
}

void soft_mipmapped_texture(const struct CUmipmappedArray_st *m, struct soft_texture *ret)
{
	soft_array_texture(m->level[0], ret);
	ret->levels = m->levels;
	ret->last_level = m->levels - 1;
}
