/* Texture and surface objects: the runtime's descriptions in the driver's form. */
#include <string.h>

#include "cudart/rt_api.h"
#include "cudart/rt_array.h"
#include "cudart/rt_int.h"

/* Flags of the driver's texture description. */
enum {
	READ_AS_INTEGER = 0x01,
	NORMALIZED_COORDINATES = 0x02,
	SRGB = 0x10,
	NO_TRILINEAR_OPTIMIZATION = 0x20,
	SEAMLESS_CUBEMAP = 0x40,
};

static cudaError_t resource(CUDA_RESOURCE_DESC *ret, const struct cudaResourceDesc *p)
{
	if (!p) {
		return cudaErrorInvalidValue;
	}
	memset(ret, 0, sizeof(*ret));
	ret->resType = (CUresourcetype)p->resType;
	switch (p->resType) {
	case cudaResourceTypeArray:
		ret->res.array.hArray = p->res.array.array;
		return cudaSuccess;
	case cudaResourceTypeMipmappedArray:
		ret->res.mipmap.hMipmappedArray = p->res.mipmap.mipmap;
		return cudaSuccess;
	case cudaResourceTypeLinear:
		ret->res.linear.devPtr = (CUdeviceptr)p->res.linear.devPtr;
		ret->res.linear.sizeInBytes = p->res.linear.sizeInBytes;
		return cudart_format(&p->res.linear.desc, &ret->res.linear.format,
				     &ret->res.linear.numChannels);
	case cudaResourceTypePitch2D:
		ret->res.pitch2D.devPtr = (CUdeviceptr)p->res.pitch2D.devPtr;
		ret->res.pitch2D.width = p->res.pitch2D.width;
		ret->res.pitch2D.height = p->res.pitch2D.height;
		ret->res.pitch2D.pitchInBytes = p->res.pitch2D.pitchInBytes;
		return cudart_format(&p->res.pitch2D.desc, &ret->res.pitch2D.format,
				     &ret->res.pitch2D.numChannels);
	default:
		return cudaErrorInvalidValue;
	}
}

static cudaError_t read_resource(struct cudaResourceDesc *ret, const CUDA_RESOURCE_DESC *d)
{
	if (!ret) {
		return cudaErrorInvalidValue;
	}
	memset(ret, 0, sizeof(*ret));
	ret->resType = (enum cudaResourceType)d->resType;
	switch (ret->resType) {
	case cudaResourceTypeArray:
		ret->res.array.array = d->res.array.hArray;
		return cudaSuccess;
	case cudaResourceTypeMipmappedArray:
		ret->res.mipmap.mipmap = d->res.mipmap.hMipmappedArray;
		return cudaSuccess;
	case cudaResourceTypeLinear:
		ret->res.linear.devPtr = (void *)d->res.linear.devPtr;
		ret->res.linear.sizeInBytes = d->res.linear.sizeInBytes;
		ret->res.linear.desc =
			cudart_channel_desc(d->res.linear.format, d->res.linear.numChannels);
		return cudaSuccess;
	case cudaResourceTypePitch2D:
		ret->res.pitch2D.devPtr = (void *)d->res.pitch2D.devPtr;
		ret->res.pitch2D.width = d->res.pitch2D.width;
		ret->res.pitch2D.height = d->res.pitch2D.height;
		ret->res.pitch2D.pitchInBytes = d->res.pitch2D.pitchInBytes;
		ret->res.pitch2D.desc =
			cudart_channel_desc(d->res.pitch2D.format, d->res.pitch2D.numChannels);
		return cudaSuccess;
	default:
		return cudaErrorInvalidValue;
	}
}

static void texture(CUDA_TEXTURE_DESC *ret, const struct cudaTextureDesc *p)
{
	memset(ret, 0, sizeof(*ret));
	for (int i = 0; i < 3; i++) {
		ret->addressMode[i] = p->addressMode[i];
	}
	for (int i = 0; i < 4; i++) {
		ret->borderColor[i] = p->borderColor[i];
	}
	ret->filterMode = p->filterMode;
	ret->flags = (p->readMode == cudaReadModeElementType ? READ_AS_INTEGER : 0u) |
		     (p->normalizedCoords ? NORMALIZED_COORDINATES : 0u) | (p->sRGB ? SRGB : 0u) |
		     (p->disableTrilinearOptimization ? NO_TRILINEAR_OPTIMIZATION : 0u) |
		     (p->seamlessCubemap ? SEAMLESS_CUBEMAP : 0u);
	ret->maxAnisotropy = p->maxAnisotropy;
	ret->mipmapFilterMode = p->mipmapFilterMode;
	ret->mipmapLevelBias = p->mipmapLevelBias;
	ret->minMipmapLevelClamp = p->minMipmapLevelClamp;
	ret->maxMipmapLevelClamp = p->maxMipmapLevelClamp;
}

static void view_of(CUDA_RESOURCE_VIEW_DESC *ret, const struct cudaResourceViewDesc *p)
{
	memset(ret, 0, sizeof(*ret));
	ret->format = (CUresourceViewFormat)p->format;
	ret->width = p->width;
	ret->height = p->height;
	ret->depth = p->depth;
	ret->firstMipmapLevel = p->firstMipmapLevel;
	ret->lastMipmapLevel = p->lastMipmapLevel;
	ret->firstLayer = p->firstLayer;
	ret->lastLayer = p->lastLayer;
}

cudaError_t cudart_create_texture_object(CUtexObject *ret, const struct cudaResourceDesc *from,
					 const struct cudaTextureDesc *how,
					 const struct cudaResourceViewDesc *view)
{
	CUDA_RESOURCE_VIEW_DESC v;
	CUDA_RESOURCE_DESC r;
	CUDA_TEXTURE_DESC t;
	cudaError_t e = ret && how ? resource(&r, from) : cudaErrorInvalidValue;

	if (e) {
		return e;
	}
	texture(&t, how);
	if (view) {
		view_of(&v, view);
	}
	return cudart_from_driver(cudart_driver.cuTexObjectCreate(ret, &r, &t, view ? &v : NULL));
}

cudaError_t cudart_get_texture_object_resource_desc(struct cudaResourceDesc *ret,
						    CUtexObject object)
{
	CUDA_RESOURCE_DESC r;
	cudaError_t e = cudart_from_driver(cudart_driver.cuTexObjectGetResourceDesc(&r, object));

	return e ? e : read_resource(ret, &r);
}

cudaError_t cudart_get_texture_object_texture_desc(struct cudaTextureDesc *ret, CUtexObject object)
{
	CUDA_TEXTURE_DESC t;
	cudaError_t e = cudart_from_driver(cudart_driver.cuTexObjectGetTextureDesc(&t, object));

	if (e || !ret) {
		return e ? e : cudaErrorInvalidValue;
	}
	*ret = (struct cudaTextureDesc){
		.addressMode = { t.addressMode[0], t.addressMode[1], t.addressMode[2] },
		.filterMode = t.filterMode,
		.readMode = t.flags & READ_AS_INTEGER ? cudaReadModeElementType
						      : cudaReadModeNormalizedFloat,
		.sRGB = (t.flags & SRGB) != 0,
		.borderColor = { t.borderColor[0], t.borderColor[1], t.borderColor[2],
				 t.borderColor[3] },
		.normalizedCoords = (t.flags & NORMALIZED_COORDINATES) != 0,
		.maxAnisotropy = t.maxAnisotropy,
		.mipmapFilterMode = t.mipmapFilterMode,
		.mipmapLevelBias = t.mipmapLevelBias,
		.minMipmapLevelClamp = t.minMipmapLevelClamp,
		.maxMipmapLevelClamp = t.maxMipmapLevelClamp,
		.disableTrilinearOptimization = (t.flags & NO_TRILINEAR_OPTIMIZATION) != 0,
		.seamlessCubemap = (t.flags & SEAMLESS_CUBEMAP) != 0,
	};
	return cudaSuccess;
}

cudaError_t cudart_get_texture_object_resource_view_desc(struct cudaResourceViewDesc *ret,
							 CUtexObject object)
{
	CUDA_RESOURCE_VIEW_DESC v;
	cudaError_t e =
		cudart_from_driver(cudart_driver.cuTexObjectGetResourceViewDesc(&v, object));

	if (e || !ret) {
		return e ? e : cudaErrorInvalidValue;
	}
	memset(ret, 0, sizeof(*ret));
	ret->format = (unsigned)v.format;
	ret->width = v.width;
	ret->height = v.height;
	ret->depth = v.depth;
	ret->firstMipmapLevel = v.firstMipmapLevel;
	ret->lastMipmapLevel = v.lastMipmapLevel;
	ret->firstLayer = v.firstLayer;
	ret->lastLayer = v.lastLayer;
	return cudaSuccess;
}

cudaError_t cudart_create_surface_object(CUsurfObject *ret, const struct cudaResourceDesc *from)
{
	CUDA_RESOURCE_DESC r;
	cudaError_t e = ret ? resource(&r, from) : cudaErrorInvalidValue;

	return e ? e : cudart_from_driver(cudart_driver.cuSurfObjectCreate(ret, &r));
}

cudaError_t cudart_get_surface_object_resource_desc(struct cudaResourceDesc *ret,
						    CUsurfObject object)
{
	CUDA_RESOURCE_DESC r;
	cudaError_t e = cudart_from_driver(cudart_driver.cuSurfObjectGetResourceDesc(&r, object));

	return e ? e : read_resource(ret, &r);
}
