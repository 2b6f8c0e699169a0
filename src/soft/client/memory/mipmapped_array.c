/* Mipmapped arrays: one piece of memory, with an array for each level. */
#include "cuabi/array_layout.h"
#include "soft/client/context/context.h"
#include "soft/client/memory/array.h"
#include "soft/client/memory/memory.h"
#include "soft/client/stream/stream.h"
#include "soft/client/strict.h"

static void shrink(CUDA_ARRAY3D_DESCRIPTOR *d)
{
	d->Width = MAX(d->Width / 2, 1u);
	d->Height = d->Height ? MAX(d->Height / 2, 1u) : 0;
	if (!(d->Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP))) {
		d->Depth = d->Depth ? MAX(d->Depth / 2, 1u) : 0;
	}
}

static unsigned levels_of(const CUDA_ARRAY3D_DESCRIPTOR *d)
{
	CUDA_ARRAY3D_DESCRIPTOR now = *d;
	unsigned n = 1;
	size_t depth = 0;

	while (now.Width > 1 || now.Height > 1 || (depth != now.Depth && now.Depth > 1)) {
		depth = now.Depth;
		shrink(&now);
		n++;
	}
	return MIN(n, SOFT_TEXTURE_LEVELS_MAX);
}

static void drop_levels(CUmipmappedArray m, CUcontext ctx)
{
	for (unsigned i = 0; i < m->levels; i++) {
		soft_array_drop(m->level[i]);
	}
	if (m->address) {
		soft_memory_delete(ctx, m->address, true);
	}
	lock_take(&soft.lock);
	soft_object_destroy(m);
	lock_release(&soft.lock);
}

static CUresult make_levels(CUmipmappedArray m, CUcontext ctx, const CUDA_ARRAY3D_DESCRIPTOR *d,
			    unsigned element, unsigned levels)
{
	struct soft_range hidden = { .hidden = 1 };
	CUDA_ARRAY3D_DESCRIPTOR now = *d;
	uint64_t at;
	CUresult e;

	e = soft_memory_create(ctx, cuabi_array_bytes(d, element, levels), &hidden, &m->address,
			       NULL);
	at = m->address;
	for (unsigned i = 0; i < levels && !e; i++) {
		e = soft_array_make(ctx, &now, element, at, &m->level[i]);
		m->levels += e ? 0 : 1;
		at += soft_array_bytes(&now, element);
		shrink(&now);
	}
	return e;
}

CUresult cuMipmappedArrayCreate(CUmipmappedArray *ret, const CUDA_ARRAY3D_DESCRIPTOR *d,
				unsigned int levels)
{
	CUmipmappedArray m;
	unsigned element;
	CUcontext ctx;
	CUresult e = soft_context_current(&ctx);

	if (e) {
		return e;
	}
	if (!ret || !d || !levels) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	e = soft_array_check(d, &element);
	if (e) {
		return e;
	}
	lock_take(&soft.lock);
	m = soft_object_create(SOFT_OBJECT_MIPMAPPED, sizeof(*m));
	lock_release(&soft.lock);
	if (!m) {
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	/* too many levels are clamped, not refused */
	e = make_levels(m, ctx, d, element, MIN(levels, levels_of(d)));
	if (e) {
		drop_levels(m, ctx);
		return e;
	}
	*ret = m;
	return CUDA_SUCCESS;
}

CUresult soft_mipmapped_check_handle(CUmipmappedArray m)
{
	CUresult e = soft_check();

	if (e) {
		return e;
	}
	return soft_object_is(m, SOFT_OBJECT_MIPMAPPED) ? soft_array_check_handle(m->level[0])
							: CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuMipmappedArrayGetLevel(CUarray *ret, CUmipmappedArray m, unsigned int level)
{
	CUresult e = soft_mipmapped_check_handle(m);

	if (e) {
		return e;
	}
	if (!ret || level >= m->levels) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	*ret = m->level[level];
	return CUDA_SUCCESS;
}

CUresult cuMipmappedArrayDestroy(CUmipmappedArray m)
{
	CUresult e = soft_mipmapped_check_handle(m);

	if (e) {
		return e;
	}
	e = soft_context_drain(m->level[0]->context);
	if (e != SOFT_DEAD) {
		drop_levels(m, m->level[0]->context);
	}
	return e;
}

CUresult cuMipmappedArrayGetMemoryRequirements(CUDA_ARRAY_MEMORY_REQUIREMENTS *ret,
					       CUmipmappedArray m, CUdevice dev)
{
	CUresult e = soft_mipmapped_check_handle(m);

	(void)ret;
	e = e ? e : soft_context_check_device(dev);
	return e ? e : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMipmappedArrayGetSparseProperties(CUDA_ARRAY_SPARSE_PROPERTIES *ret, CUmipmappedArray m)
{
	CUresult e = soft_mipmapped_check_handle(m);

	(void)ret;
	return e ? e : CUDA_ERROR_INVALID_VALUE;
}
