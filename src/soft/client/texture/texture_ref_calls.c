/* The driver's calls for texture and surface references. A change has its effect with the next
 * launch of a kernel of the module. */
#include <string.h>

#include "soft/client/memory/array.h"
#include "soft/client/strict.h"
#include "soft/client/texture/texture_ref.h"

static CUresult check(CUtexref r, const void *ret)
{
	CUcontext ctx;
	CUresult e = soft_context_current(&ctx);

	if (e) {
		return e;
	}
	if (!r) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	if (!soft_handle_is(r, SOFT_OBJECT_TEXREF)) {
		return CUDA_ERROR_INVALID_HANDLE;
	}
	return ret ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* Returns the reference if it may be changed, and marks it as changed. */
static CUresult change(CUtexref r, bool ok)
{
	CUresult e = check(r, r);

	if (!e && ok) {
		r->dirty = true;
	}
	return e || ok ? e : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuTexRefCreate(CUtexref *ret)
{
	CUcontext ctx;
	CUresult e = soft_context_current(&ctx);

	if (e || !ret) {
		return e ? e : CUDA_ERROR_INVALID_VALUE;
	}
	lock_take(&soft.lock);
	*ret = soft_object_create(SOFT_OBJECT_TEXREF, sizeof(struct CUsurfref_st));
	if (*ret) {
		(*ret)->format = CU_AD_FORMAT_FLOAT;
		(*ret)->channels = 1;
	}
	lock_release(&soft.lock);
	return *ret ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuTexRefDestroy(CUtexref r)
{
	CUresult e = check(r, r);

	if (!e && r->module) { /* of a module, with which it is destroyed */
		return CUDA_ERROR_INVALID_VALUE;
	}
	if (!e) {
		lock_take(&soft.lock);
		soft_object_destroy(r);
		lock_release(&soft.lock);
	}
	return e;
}

/* ---- resources ---- */

CUresult cuTexRefSetArray(CUtexref r, CUarray a, unsigned int flags)
{
	CUresult e = change(r, a && flags == CU_TRSA_OVERRIDE_FORMAT);

	e = e ? e : soft_array_check_handle(a);
	if (!e) {
		r->resource = (CUDA_RESOURCE_DESC){ .resType = CU_RESOURCE_TYPE_ARRAY };
		r->resource.res.array.hArray = a;
		r->format = a->desc.Format;
		r->channels = (int)a->desc.NumChannels;
		r->bound = true;
	}
	return e;
}

CUresult cuTexRefSetMipmappedArray(CUtexref r, CUmipmappedArray m, unsigned int flags)
{
	CUresult e = change(r, m && flags == CU_TRSA_OVERRIDE_FORMAT);

	e = e ? e : soft_mipmapped_check_handle(m);
	if (!e) {
		r->resource = (CUDA_RESOURCE_DESC){ .resType = CU_RESOURCE_TYPE_MIPMAPPED_ARRAY };
		r->resource.res.mipmap.hMipmappedArray = m;
		r->format = m->level[0]->desc.Format;
		r->channels = (int)m->level[0]->desc.NumChannels;
		r->bound = true;
	}
	return e;
}

/* An address that is not aligned is rounded down, and the kernel has to add the rest: it is refused
 * if the program does not ask for it. */
CUresult cuTexRefSetAddress_v2(size_t *ret_offset, CUtexref r, CUdeviceptr p, size_t bytes)
{
	size_t offset = p % SOFT_PITCH;
	CUresult e = change(r, p && (ret_offset || !offset));

	if (e) {
		return e;
	}
	r->resource = (CUDA_RESOURCE_DESC){ .resType = CU_RESOURCE_TYPE_LINEAR };
	r->resource.res.linear.devPtr = p - offset;
	r->resource.res.linear.format = r->format;
	r->resource.res.linear.numChannels = (unsigned)r->channels;
	r->resource.res.linear.sizeInBytes = bytes + offset;
	r->bound = true;
	if (ret_offset) {
		*ret_offset = offset;
	}
	return CUDA_SUCCESS;
}

CUresult cuTexRefSetAddress(unsigned int *ret_offset, CUtexref r, CUdeviceptr_v1 p,
			    unsigned int bytes)
{
	size_t offset = 0;
	CUresult e = cuTexRefSetAddress_v2(ret_offset ? &offset : NULL, r, p, bytes);

	if (!e && ret_offset) {
		*ret_offset = (unsigned)offset;
	}
	return e;
}

CUresult cuTexRefSetAddress2D_v3(CUtexref r, const CUDA_ARRAY_DESCRIPTOR *d, CUdeviceptr p,
				 size_t pitch)
{
	CUresult e = change(r, d && p && p % SOFT_PITCH == 0);

	if (e) {
		return e;
	}
	r->resource = (CUDA_RESOURCE_DESC){ .resType = CU_RESOURCE_TYPE_PITCH2D };
	r->resource.res.pitch2D.devPtr = p;
	r->resource.res.pitch2D.format = d->Format;
	r->resource.res.pitch2D.numChannels = d->NumChannels;
	r->resource.res.pitch2D.width = d->Width;
	r->resource.res.pitch2D.height = d->Height;
	r->resource.res.pitch2D.pitchInBytes = pitch;
	r->format = d->Format;
	r->channels = (int)d->NumChannels;
	r->bound = true;
	return CUDA_SUCCESS;
}

CUresult cuTexRefSetAddress2D_v2(CUtexref r, const CUDA_ARRAY_DESCRIPTOR *d, CUdeviceptr p,
				 size_t pitch)
{
	return cuTexRefSetAddress2D_v3(r, d, p, pitch);
}

CUresult cuTexRefGetAddress_v2(CUdeviceptr *ret, CUtexref r)
{
	CUresult e = check(r, ret);

	if (e) {
		return e;
	}
	if (!r->bound || (r->resource.resType != CU_RESOURCE_TYPE_LINEAR &&
			  r->resource.resType != CU_RESOURCE_TYPE_PITCH2D)) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	*ret = r->resource.resType == CU_RESOURCE_TYPE_LINEAR ? r->resource.res.linear.devPtr
							      : r->resource.res.pitch2D.devPtr;
	return CUDA_SUCCESS;
}

static CUresult check_bound(CUtexref r, const void *ret, CUresourcetype type)
{
	CUresult e = check(r, ret);

	return e || (r->bound && r->resource.resType == type) ? e : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuTexRefGetArray(CUarray *ret, CUtexref r)
{
	CUresult e = check_bound(r, ret, CU_RESOURCE_TYPE_ARRAY);

	if (!e) {
		*ret = r->resource.res.array.hArray;
	}
	return e;
}

CUresult cuTexRefGetMipmappedArray(CUmipmappedArray *ret, CUtexref r)
{
	CUresult e = check_bound(r, ret, CU_RESOURCE_TYPE_MIPMAPPED_ARRAY);

	if (!e) {
		*ret = r->resource.res.mipmap.hMipmappedArray;
	}
	return e;
}

CUresult cuSurfRefSetArray(CUsurfref s, CUarray a, unsigned int flags)
{
	CUcontext ctx;
	CUresult e = soft_context_current(&ctx);

	if (e || !s || !a || flags) {
		return e ? e : CUDA_ERROR_INVALID_VALUE;
	}
	if (!soft_handle_is(s, SOFT_OBJECT_SURFREF)) {
		return CUDA_ERROR_INVALID_HANDLE;
	}
	e = soft_array_check_handle(a);
	if (!e) {
		s->ref.resource = (CUDA_RESOURCE_DESC){ .resType = CU_RESOURCE_TYPE_ARRAY };
		s->ref.resource.res.array.hArray = a;
		s->ref.bound = s->ref.dirty = true;
	}
	return e;
}

CUresult cuSurfRefGetArray(CUarray *ret, CUsurfref s)
{
	CUcontext ctx;
	CUresult e = soft_context_current(&ctx);

	if (e || !s || !ret) {
		return e ? e : CUDA_ERROR_INVALID_VALUE;
	}
	if (!soft_handle_is(s, SOFT_OBJECT_SURFREF)) {
		return CUDA_ERROR_INVALID_HANDLE;
	}
	if (!s->ref.bound) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	*ret = s->ref.resource.res.array.hArray;
	return CUDA_SUCCESS;
}

/* ---- sampling ---- */

CUresult cuTexRefSetFormat(CUtexref r, CUarray_format format, int channels)
{
	CUresult e = change(r, channels == 1 || channels == 2 || channels == 4);

	if (e) {
		return e;
	}
	r->format = format;
	r->channels = channels;
	if (r->bound && r->resource.resType == CU_RESOURCE_TYPE_LINEAR) {
		r->resource.res.linear.format = format;
		r->resource.res.linear.numChannels = (unsigned)channels;
	}
	return CUDA_SUCCESS;
}

CUresult cuTexRefGetFormat(CUarray_format *ret, int *ret_channels, CUtexref r)
{
	CUresult e = check(r, r);

	if (!e && ret) {
		*ret = r->format;
	}
	if (!e && ret_channels) {
		*ret_channels = r->channels;
	}
	return e;
}

CUresult cuTexRefSetAddressMode(CUtexref r, int dim, CUaddress_mode mode)
{
	CUresult e = change(r, dim >= 0 && dim < 3 && mode <= CU_TR_ADDRESS_MODE_BORDER);

	if (!e) {
		r->texture.addressMode[dim] = mode;
	}
	return e;
}

CUresult cuTexRefGetAddressMode(CUaddress_mode *ret, CUtexref r, int dim)
{
	CUresult e = check(r, ret);

	if (!e && (dim < 0 || dim >= 3)) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	if (!e) {
		*ret = r->texture.addressMode[dim];
	}
	return e;
}

CUresult cuTexRefSetMipmapLevelClamp(CUtexref r, float min, float max)
{
	CUresult e = change(r, true);

	if (!e) {
		r->texture.minMipmapLevelClamp = min;
		r->texture.maxMipmapLevelClamp = max;
	}
	return e;
}

CUresult cuTexRefGetMipmapLevelClamp(float *ret_min, float *ret_max, CUtexref r)
{
	CUresult e = check(r, ret_min && ret_max ? ret_min : NULL);

	if (!e) {
		*ret_min = r->texture.minMipmapLevelClamp;
		*ret_max = r->texture.maxMipmapLevelClamp;
	}
	return e;
}

CUresult cuTexRefSetBorderColor(CUtexref r, float *color)
{
	CUresult e = change(r, color != NULL);

	if (!e) {
		memcpy(r->texture.borderColor, color, sizeof(r->texture.borderColor));
	}
	return e;
}

CUresult cuTexRefGetBorderColor(float *ret, CUtexref r)
{
	CUresult e = check(r, ret);

	if (!e) {
		memcpy(ret, r->texture.borderColor, sizeof(r->texture.borderColor));
	}
	return e;
}

/* A setter and a getter of one member. */
#define MEMBER(name, type, get_type, member, valid)                                                \
	CUresult cuTexRefSet##name(CUtexref r, type v)                                             \
	{                                                                                          \
		CUresult e = change(r, valid);                                                     \
                                                                                                   \
		if (!e) {                                                                          \
			r->texture.member = v;                                                     \
		}                                                                                  \
		return e;                                                                          \
	}                                                                                          \
	CUresult cuTexRefGet##name(get_type *ret, CUtexref r)                                      \
	{                                                                                          \
		CUresult e = check(r, ret);                                                        \
                                                                                                   \
		if (!e) {                                                                          \
			*ret = (get_type)r->texture.member;                                        \
		}                                                                                  \
		return e;                                                                          \
	}
MEMBER(FilterMode, CUfilter_mode, CUfilter_mode, filterMode, v <= CU_TR_FILTER_MODE_LINEAR)
MEMBER(MipmapFilterMode, CUfilter_mode, CUfilter_mode, mipmapFilterMode,
       v <= CU_TR_FILTER_MODE_LINEAR)
MEMBER(MipmapLevelBias, float, float, mipmapLevelBias, true)
MEMBER(MaxAnisotropy, unsigned int, int, maxAnisotropy, true)
MEMBER(Flags, unsigned int, unsigned int, flags, !(v & ~(unsigned)CU_TRSF_FLAGS))

/* The texture is found by its name: the unit has no meaning. */
CUresult cuParamSetTexRef(CUfunction f, int unit, CUtexref r)
{
	CUresult e = check(r, r);

	(void)unit;
	return e					 ? e
	       : soft_handle_is(f, SOFT_OBJECT_FUNCTION) ? CUDA_SUCCESS
							 : CUDA_ERROR_INVALID_HANDLE;
}
