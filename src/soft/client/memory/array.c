/* Arrays: device memory with adjacent rows and slices. Copies address it by coordinates, kernels
 * through textures and surfaces. */
#include "soft/client/memory/array.h"

#include <string.h>

#include "cuabi/array_layout.h"
#include "soft/client/context/context.h"
#include "soft/client/graph/capture.h"
#include "soft/client/memory/memory.h"
#include "soft/client/process.h"
#include "soft/client/stream/stream.h"
#include "soft/client/strict.h"

#define WIDTH_MAX 131072u
#define HEIGHT_MAX 65536u
#define DEPTH_MAX 16384u
#define LAYERS_MAX 2048u

static CUresult check_shape(const CUDA_ARRAY3D_DESCRIPTOR *d)
{
	bool layered = d->Flags & CUDA_ARRAY3D_LAYERED, cube = d->Flags & CUDA_ARRAY3D_CUBEMAP;

	if (!d->Width || d->Width > WIDTH_MAX || d->Height > HEIGHT_MAX ||
	    d->Depth > (layered || cube ? LAYERS_MAX : DEPTH_MAX)) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	if (d->Depth && !d->Height && !layered) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	if (layered && !d->Depth) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	if (cube &&
	    (d->Width != d->Height || !d->Depth || d->Depth % 6 || (!layered && d->Depth != 6))) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	return CUDA_SUCCESS;
}

CUresult soft_array_check(const CUDA_ARRAY3D_DESCRIPTOR *d, unsigned *ret_element)
{
	unsigned channels, bytes = cuabi_channel_bytes(d->Format, &channels);

	if (!bytes) { /* planar, packed and compressed formats */
		return d->Format == CU_AD_FORMAT_NV12 ? CUDA_ERROR_NOT_SUPPORTED
						      : CUDA_ERROR_INVALID_VALUE;
	}
	if ((d->NumChannels != 1 && d->NumChannels != 2 && d->NumChannels != 4) ||
	    (channels && channels != d->NumChannels)) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	if (d->Flags & (CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING)) {
		return CUDA_ERROR_NOT_SUPPORTED;
	}
	if (d->Flags & ~(unsigned)CUDA_ARRAY3D_FLAGS) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	*ret_element = bytes * d->NumChannels;
	return check_shape(d);
}

uint64_t soft_array_bytes(const CUDA_ARRAY3D_DESCRIPTOR *d, unsigned element)
{
	return d->Width * element * MAX(d->Height, (size_t)1) * MAX(d->Depth, (size_t)1);
}

CUresult soft_array_make(CUcontext ctx, const CUDA_ARRAY3D_DESCRIPTOR *d, unsigned element,
			 uint64_t address, CUarray *ret)
{
	struct soft_range hidden = { .hidden = 1 };
	CUresult e = CUDA_SUCCESS;
	CUarray a;

	lock_take(&soft.lock);
	a = soft_object_create(SOFT_OBJECT_ARRAY, sizeof(*a));
	lock_release(&soft.lock);
	if (!a) {
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	a->context = ctx;
	a->context_id = ctx->id;
	a->desc = *d;
	a->element = element;
	a->pitch = d->Width * element;
	a->slice = a->pitch * MAX(d->Height, 1u);
	a->bytes = soft_array_bytes(d, element);
	a->address = address;
	a->level = address != 0;
	if (!address) {
		e = soft_memory_create(ctx, cuabi_array_bytes(d, element, 1), &hidden, &a->address,
				       NULL);
	}
	if (e) {
		lock_take(&soft.lock);
		soft_object_destroy(a);
		lock_release(&soft.lock);
		return e;
	}
	*ret = a;
	return CUDA_SUCCESS;
}

void soft_array_drop(CUarray a)
{
	if (!a->level) {
		soft_memory_delete(a->context, a->address, true);
	}
	lock_take(&soft.lock);
	soft_object_destroy(a);
	lock_release(&soft.lock);
}

CUresult soft_array_check_handle(CUarray a)
{
	CUresult e = soft_check();

	if (e) {
		return e;
	}
	if (!soft_handle_is(a, SOFT_OBJECT_ARRAY)) {
		return CUDA_ERROR_INVALID_HANDLE;
	}
	return a->context->id == a->context_id && soft_object_is(a->context, SOFT_OBJECT_CONTEXT)
		       ? CUDA_SUCCESS
		       : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

CUresult soft_array_element_bytes(CUarray a, unsigned *ret_bytes)
{
	CUresult e = soft_array_check_handle(a);

	if (!e) {
		*ret_bytes = a->element;
	}
	return e;
}

static bool inside(size_t at, size_t n, size_t all)
{
	return at <= all && n <= all - at;
}

CUresult soft_array_locate(CUarray a, size_t x, size_t y, size_t z, size_t width, size_t height,
			   size_t depth, struct soft_array_box *ret)
{
	CUresult e = a ? soft_array_check_handle(a) : CUDA_ERROR_INVALID_VALUE;

	if (e) {
		return e;
	}
	if (!inside(x, width, a->pitch) || !inside(y, height, MAX(a->desc.Height, 1u)) ||
	    !inside(z, depth, MAX(a->desc.Depth, 1u))) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	*ret = (struct soft_array_box){ a->address + x + y * a->pitch + z * a->slice, a->pitch,
					a->slice };
	return CUDA_SUCCESS;
}

CUresult soft_array_linear(CUarray a, size_t offset, size_t bytes, uint64_t *ret_address)
{
	CUresult e = a ? soft_array_check_handle(a) : CUDA_ERROR_INVALID_VALUE;

	if (e) {
		return e;
	}
	if (!inside(offset, bytes, a->bytes) || offset % a->pitch + bytes > a->pitch) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	*ret_address = a->address + offset;
	return CUDA_SUCCESS;
}

CUresult cuArray3DCreate_v2(CUarray *ret, const CUDA_ARRAY3D_DESCRIPTOR *d)
{
	unsigned element;
	CUcontext ctx;
	CUresult e = soft_context_current(&ctx);

	if (e) {
		return e;
	}
	if (!ret || !d) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	e = soft_capture_unsafe();
	e = e ? e : soft_array_check(d, &element);
	return e ? e : soft_array_make(ctx, d, element, 0, ret);
}

CUresult cuArrayCreate_v2(CUarray *ret, const CUDA_ARRAY_DESCRIPTOR *d)
{
	CUDA_ARRAY3D_DESCRIPTOR full = { 0 };

	if (d) {
		full.Width = d->Width;
		full.Height = d->Height;
		full.Format = d->Format;
		full.NumChannels = d->NumChannels;
	}
	return cuArray3DCreate_v2(ret, d ? &full : NULL);
}

CUresult cuArray3DCreate(CUarray *ret, const CUDA_ARRAY3D_DESCRIPTOR_v1 *d)
{
	CUDA_ARRAY3D_DESCRIPTOR full = { 0 };

	if (d) {
		full = (CUDA_ARRAY3D_DESCRIPTOR){ d->Width,  d->Height,	     d->Depth,
						  d->Format, d->NumChannels, d->Flags };
	}
	return cuArray3DCreate_v2(ret, d ? &full : NULL);
}

CUresult cuArrayCreate(CUarray *ret, const CUDA_ARRAY_DESCRIPTOR_v1 *d)
{
	CUDA_ARRAY3D_DESCRIPTOR full = { 0 };

	if (d) {
		full.Width = d->Width;
		full.Height = d->Height;
		full.Format = d->Format;
		full.NumChannels = d->NumChannels;
	}
	return cuArray3DCreate_v2(ret, d ? &full : NULL);
}

CUresult cuArrayDestroy(CUarray a)
{
	CUresult e = soft_array_check_handle(a);

	if (e) {
		return e;
	}
	if (a->level) {
		return CUDA_ERROR_INVALID_HANDLE;
	}
	e = soft_context_drain(a->context);
	if (e != SOFT_DEAD) {
		soft_array_drop(a);
	}
	return e;
}

CUresult cuArray3DGetDescriptor_v2(CUDA_ARRAY3D_DESCRIPTOR *ret, CUarray a)
{
	CUresult e = soft_array_check_handle(a);

	if (e) {
		return e;
	}
	if (!ret) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	*ret = a->desc;
	return CUDA_SUCCESS;
}

CUresult cuArrayGetDescriptor_v2(CUDA_ARRAY_DESCRIPTOR *ret, CUarray a)
{
	CUresult e = soft_array_check_handle(a);

	if (e) {
		return e;
	}
	if (!ret) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	*ret = (CUDA_ARRAY_DESCRIPTOR){ a->desc.Width, a->desc.Height, a->desc.Format,
					a->desc.NumChannels };
	return CUDA_SUCCESS;
}

CUresult cuArray3DGetDescriptor(CUDA_ARRAY3D_DESCRIPTOR_v1 *ret, CUarray a)
{
	CUresult e = soft_array_check_handle(a);

	if (e) {
		return e;
	}
	if (!ret) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	*ret = (CUDA_ARRAY3D_DESCRIPTOR_v1){ (unsigned)a->desc.Width, (unsigned)a->desc.Height,
					     (unsigned)a->desc.Depth, a->desc.Format,
					     a->desc.NumChannels,     a->desc.Flags };
	return CUDA_SUCCESS;
}

CUresult cuArrayGetDescriptor(CUDA_ARRAY_DESCRIPTOR_v1 *ret, CUarray a)
{
	CUresult e = soft_array_check_handle(a);

	if (e) {
		return e;
	}
	if (!ret) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	*ret = (CUDA_ARRAY_DESCRIPTOR_v1){ (unsigned)a->desc.Width, (unsigned)a->desc.Height,
					   a->desc.Format, a->desc.NumChannels };
	return CUDA_SUCCESS;
}

/* For arrays whose memory is mapped later, which are not supported. */
CUresult cuArrayGetMemoryRequirements(CUDA_ARRAY_MEMORY_REQUIREMENTS *ret, CUarray a, CUdevice dev)
{
	CUresult e = soft_array_check_handle(a);

	(void)ret;
	e = e ? e : soft_context_check_device(dev);
	return e ? e : CUDA_ERROR_INVALID_VALUE;
}

/* No array has planes or tiles. */

CUresult cuArrayGetPlane(CUarray *ret, CUarray a, unsigned int plane)
{
	CUresult e = soft_array_check_handle(a);

	(void)ret;
	(void)plane;
	return e ? e : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuArrayGetSparseProperties(CUDA_ARRAY_SPARSE_PROPERTIES *ret, CUarray a)
{
	CUresult e = soft_array_check_handle(a);

	(void)ret;
	return e ? e : CUDA_ERROR_INVALID_VALUE;
}
