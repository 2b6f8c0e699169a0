/* The driver's calls for texture and surface objects. */
#include "soft/client/context/context.h"
#include "soft/client/memory/array.h"
#include "soft/client/texture/texture_table.h"

CUresult cuTexObjectCreate(CUtexObject *ret, const CUDA_RESOURCE_DESC *resource,
			   const CUDA_TEXTURE_DESC *texture, const CUDA_RESOURCE_VIEW_DESC *view)
{
	struct soft_texture_record record = { .has_view = view != NULL };
	struct soft_texture t;
	uint64_t handle;
	CUcontext ctx;
	CUresult e = soft_context_current(&ctx);

	if (e) {
		return e;
	}
	if (!ret || !resource || !texture) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	e = soft_texture_resource(resource, ctx, &t);
	e = e || !view ? e : soft_texture_view(resource, view, &t);
	e = e ? e : soft_texture_sampling(texture, &t);
	if (e) {
		return e;
	}
	t.kind = SOFT_TEXTURE_SAMPLED;
	record.resource = *resource;
	record.texture = *texture;
	if (view) {
		record.view = *view;
	}
	e = soft_texture_add(ctx, &t, &record, &handle);
	if (!e) {
		*ret = handle;
	}
	return e;
}

/* Like NVIDIA's driver, accepts a handle that names nothing. */
static CUresult destroy(uint64_t handle, enum soft_texture_kind kind)
{
	CUcontext ctx;
	CUresult e = soft_context_current(&ctx);

	if (!e) {
		soft_texture_remove(handle, kind);
	}
	return e;
}

CUresult cuTexObjectDestroy(CUtexObject handle)
{
	return destroy(handle, SOFT_TEXTURE_SAMPLED);
}

static CUresult get(const void *ret, uint64_t handle, enum soft_texture_kind kind,
		    struct soft_texture_record *record)
{
	CUcontext ctx;
	CUresult e = soft_context_current(&ctx);

	if (e || !ret) {
		return e ? e : CUDA_ERROR_INVALID_VALUE;
	}
	return soft_texture_find(handle, kind, record);
}

CUresult cuTexObjectGetResourceDesc(CUDA_RESOURCE_DESC *ret, CUtexObject handle)
{
	struct soft_texture_record r;
	CUresult e = get(ret, handle, SOFT_TEXTURE_SAMPLED, &r);

	if (!e) {
		*ret = r.resource;
	}
	return e;
}

CUresult cuTexObjectGetTextureDesc(CUDA_TEXTURE_DESC *ret, CUtexObject handle)
{
	struct soft_texture_record r;
	CUresult e = get(ret, handle, SOFT_TEXTURE_SAMPLED, &r);

	if (!e) {
		*ret = r.texture;
	}
	return e;
}

CUresult cuTexObjectGetResourceViewDesc(CUDA_RESOURCE_VIEW_DESC *ret, CUtexObject handle)
{
	struct soft_texture_record r;
	CUresult e = get(ret, handle, SOFT_TEXTURE_SAMPLED, &r);

	if (!e && !r.has_view) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	if (!e) {
		*ret = r.view;
	}
	return e;
}

/* As in NVIDIA's driver any array will do, also one without CUDA_ARRAY3D_SURFACE_LDST. */
CUresult cuSurfObjectCreate(CUsurfObject *ret, const CUDA_RESOURCE_DESC *resource)
{
	struct soft_texture_record record = { 0 };
	struct soft_texture t;
	uint64_t handle;
	CUcontext ctx;
	CUresult e = soft_context_current(&ctx);

	if (e) {
		return e;
	}
	if (!ret || !resource || resource->resType != CU_RESOURCE_TYPE_ARRAY) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	e = soft_texture_resource(resource, ctx, &t);
	if (e) {
		return e;
	}
	t.kind = SOFT_TEXTURE_SURFACE;
	record.resource = *resource;
	e = soft_texture_add(ctx, &t, &record, &handle);
	if (!e) {
		*ret = handle;
	}
	return e;
}

CUresult cuSurfObjectDestroy(CUsurfObject handle)
{
	return destroy(handle, SOFT_TEXTURE_SURFACE);
}

CUresult cuSurfObjectGetResourceDesc(CUDA_RESOURCE_DESC *ret, CUsurfObject handle)
{
	struct soft_texture_record r;
	CUresult e = get(ret, handle, SOFT_TEXTURE_SURFACE, &r);

	if (!e) {
		*ret = r.resource;
	}
	return e;
}

CUresult cuDeviceGetTexture1DLinearMaxWidth(size_t *ret, CUarray_format format, unsigned channels,
					    CUdevice dev)
{
	bool fraction;
	CUresult e = soft_context_check_device(dev);

	if (e || !ret || soft_array_texel_format(format, &fraction) == SOFT_TEXEL_FORMATS ||
	    fraction || (channels != 1 && channels != 2 && channels != 4)) {
		return e ? e : CUDA_ERROR_INVALID_VALUE;
	}
	*ret = SOFT_TEXTURE_LINEAR_MAX;
	return CUDA_SUCCESS;
}
