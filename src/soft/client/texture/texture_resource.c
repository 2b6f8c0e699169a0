/* What a texture or surface shows, and how it is sampled: checks the program's descriptions and
 * translates them. */
#include "soft/client/memory/array.h"
#include "soft/client/texture/texture_table.h"

#define PITCH_WIDTH_MAX 131072u
#define PITCH_HEIGHT_MAX 65000u
#define PITCH_BYTES_MAX 2097120u
#define PITCH_ALIGN 32u /* CU_DEVICE_ATTRIBUTE_TEXTURE_PITCH_ALIGNMENT */

/* As in NVIDIA's driver only the alignment of memory is checked: accesses outside valid memory are
 * faults of the kernel. */
static bool is_aligned(uint64_t address)
{
	return address && address % SOFT_PITCH == 0;
}

static CUresult format(CUarray_format f, unsigned channels, struct soft_texture *t)
{
	bool fraction;
	enum soft_texel_format texel = soft_array_texel_format(f, &fraction);

	if (texel == SOFT_TEXEL_FORMATS || fraction ||
	    (channels != 1 && channels != 2 && channels != 4)) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	t->format = (uint32_t)texel;
	t->channels = channels;
	t->levels = 1;
	return CUDA_SUCCESS;
}

static unsigned texel_bytes(const struct soft_texture *t)
{
	return soft_texel_channel_bytes(t->format) * t->channels;
}

static CUresult linear(const CUDA_RESOURCE_DESC *d, struct soft_texture *t)
{
	CUresult e = format(d->res.linear.format, d->res.linear.numChannels, t);
	size_t n;

	if (e) {
		return e;
	}
	if (!is_aligned(d->res.linear.devPtr)) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	n = d->res.linear.sizeInBytes / texel_bytes(t);
	t->address = d->res.linear.devPtr;
	t->width = (uint32_t)MIN(MAX(n, (size_t)1), (size_t)SOFT_TEXTURE_LINEAR_MAX);
	return CUDA_SUCCESS;
}

static CUresult pitched(const CUDA_RESOURCE_DESC *d, struct soft_texture *t)
{
	size_t width = d->res.pitch2D.width, height = d->res.pitch2D.height;
	size_t pitch = d->res.pitch2D.pitchInBytes;
	CUresult e = format(d->res.pitch2D.format, d->res.pitch2D.numChannels, t);

	if (e) {
		return e;
	}
	if (!is_aligned(d->res.pitch2D.devPtr) || width > PITCH_WIDTH_MAX ||
	    height > PITCH_HEIGHT_MAX || pitch > PITCH_BYTES_MAX || pitch % PITCH_ALIGN) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	t->address = d->res.pitch2D.devPtr;
	t->pitch = pitch;
	t->width = (uint32_t)MAX(width, (size_t)1);
	t->height = (uint32_t)height;
	return CUDA_SUCCESS;
}

CUresult soft_texture_resource(const CUDA_RESOURCE_DESC *d, CUcontext ctx, struct soft_texture *ret)
{
	CUresult e;

	*ret = (struct soft_texture){ 0 };
	if (d->flags) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	switch (d->resType) {
	case CU_RESOURCE_TYPE_ARRAY:
		if (!d->res.array.hArray) {
			return CUDA_ERROR_INVALID_VALUE;
		}
		e = soft_array_check_handle(d->res.array.hArray);
		if (!e) {
			soft_array_texture(d->res.array.hArray, ret);
		}
		return e;
	case CU_RESOURCE_TYPE_MIPMAPPED_ARRAY:
		if (!d->res.mipmap.hMipmappedArray) {
			return CUDA_ERROR_INVALID_VALUE;
		}
		e = soft_mipmapped_check_handle(d->res.mipmap.hMipmappedArray);
		if (!e) {
			soft_mipmapped_texture(d->res.mipmap.hMipmappedArray, ret);
		}
		return e;
	case CU_RESOURCE_TYPE_LINEAR:
		return linear(d, ret);
	case CU_RESOURCE_TYPE_PITCH2D:
		return pitched(d, ret);
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}

/* Replaces the format by another one with texels of the same size. */
static CUresult view_format(CUresourceViewFormat f, struct soft_texture *t)
{
	static const enum soft_texel_format kinds[] = {
		SOFT_TEXEL_U8,	SOFT_TEXEL_S8,	SOFT_TEXEL_U16, SOFT_TEXEL_S16,
		SOFT_TEXEL_U32, SOFT_TEXEL_S32, SOFT_TEXEL_F16, SOFT_TEXEL_F32,
	};
	unsigned before = texel_bytes(t), i = f - CU_RES_VIEW_FORMAT_UINT_1X8;

	if (f == CU_RES_VIEW_FORMAT_NONE) {
		return CUDA_SUCCESS;
	}
	if (f > CU_RES_VIEW_FORMAT_FLOAT_4X32) { /* block compression */
		return CUDA_ERROR_INVALID_VALUE;
	}
	t->format = (uint32_t)kinds[i / 3];
	t->channels = 1u << i % 3;
	t->flags &= ~(uint32_t)SOFT_TEXTURE_AS_FLOAT;
	return texel_bytes(t) == before ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult soft_texture_view(const CUDA_RESOURCE_DESC *d, const CUDA_RESOURCE_VIEW_DESC *view,
			   struct soft_texture *t)
{
	bool layered = t->flags & SOFT_TEXTURE_LAYERED;

	if (d->resType != CU_RESOURCE_TYPE_ARRAY &&
	    d->resType != CU_RESOURCE_TYPE_MIPMAPPED_ARRAY) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	if (view->width != t->width || view->height != t->height ||
	    (!layered && view->depth != t->depth) ||
	    view->firstMipmapLevel > view->lastMipmapLevel || view->lastMipmapLevel >= t->levels ||
	    view->firstLayer > view->lastLayer ||
	    (layered ? view->lastLayer >= t->depth : view->lastLayer != 0)) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	t->first_level = view->firstMipmapLevel;
	t->last_level = view->lastMipmapLevel;
	t->first_layer = view->firstLayer;
	t->layers = layered ? view->lastLayer - view->firstLayer + 1 : 0;
	return view_format(view->format, t);
}

CUresult soft_texture_sampling(const CUDA_TEXTURE_DESC *d, struct soft_texture *t)
{
	if (d->flags & ~(unsigned)CU_TRSF_FLAGS || d->filterMode > CU_TR_FILTER_MODE_LINEAR ||
	    d->mipmapFilterMode > CU_TR_FILTER_MODE_LINEAR) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	if (d->flags & CU_TRSF_SEAMLESS_CUBEMAP && t->flags & SOFT_TEXTURE_CUBE &&
	    d->filterMode == CU_TR_FILTER_MODE_LINEAR) {
		return CUDA_ERROR_NOT_SUPPORTED;
	}
	for (unsigned i = 0; i < 3; i++) {
		if (d->addressMode[i] > CU_TR_ADDRESS_MODE_BORDER) {
			return CUDA_ERROR_INVALID_VALUE;
		}
		t->address_mode[i] = (uint32_t)d->addressMode[i];
	}
	if (!(d->flags & CU_TRSF_READ_AS_INTEGER) && t->format <= SOFT_TEXEL_S16) {
		t->flags |= SOFT_TEXTURE_AS_FLOAT;
	}
	t->flags |= d->flags & CU_TRSF_NORMALIZED_COORDINATES ? SOFT_TEXTURE_NORMALIZED : 0u;
	t->flags |= d->flags & CU_TRSF_SRGB ? SOFT_TEXTURE_SRGB : 0u;
	t->flags |= d->filterMode == CU_TR_FILTER_MODE_LINEAR ? SOFT_TEXTURE_LINEAR : 0u;
	t->flags |= d->mipmapFilterMode == CU_TR_FILTER_MODE_LINEAR ? SOFT_TEXTURE_MIP_LINEAR : 0u;
	t->bias = d->mipmapLevelBias;
	t->min_level = d->minMipmapLevelClamp;
	t->max_level = d->maxMipmapLevelClamp;
	for (unsigned i = 0; i < 4; i++) {
		t->border[i] = d->borderColor[i];
	}
	return CUDA_SUCCESS;
}
