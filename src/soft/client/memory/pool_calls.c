/* The API of pools: creation, destruction, attributes, access rights, sharing with other processes.
 */
#include <stdlib.h>
#include <string.h>

#include "soft/client/context/context.h"
#include "soft/client/graph/capture.h"
#include "soft/client/memory/memory.h"
#include "soft/client/memory/pool.h"
#include "soft/client/server_link.h"
#include "soft/client/strict.h"

#define POOLS_MAX 256u

/* The GPUs' default pools come first. */
static CUmemoryPool pools[POOLS_MAX] GUARDED_BY(soft_pool_lock);
static CUmemoryPool current[SOFT_MAX_GPUS] GUARDED_BY(soft_pool_lock);

void soft_pool_each(void (*each)(CUmemoryPool p, void *arg), void *arg)
{
	for (unsigned i = 0; i < POOLS_MAX; i++) {
		if (pools[i]) {
			each(pools[i], arg);
		}
	}
}

static CUmemoryPool make(unsigned from, const CUmemPoolProps *props) REQUIRES(soft_pool_lock)
{
	CUmemoryPool p = NULL;

	for (unsigned i = from; i < POOLS_MAX; i++) {
		if (pools[i]) {
			continue;
		}
		lock_take(&soft.lock);
		p = soft_object_create(SOFT_OBJECT_POOL, sizeof(*p));
		lock_release(&soft.lock);
		pools[i] = p;
		break;
	}
	if (p) {
		p->props = *props;
		p->reuse[0] = p->reuse[1] = p->reuse[2] = 1;
	}
	return p;
}

void soft_pool_destroy(CUmemoryPool p)
{
	for (unsigned i = 0; i < POOLS_MAX; i++) {
		pools[i] = pools[i] == p ? NULL : pools[i];
	}
	lock_take(&soft.lock);
	soft_object_destroy(p);
	lock_release(&soft.lock);
}

static CUmemoryPool default_locked(int gpu) REQUIRES(soft_pool_lock)
{
	const CUmemPoolProps props = { .allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
				       .location = { CU_MEM_LOCATION_TYPE_DEVICE, gpu } };

	if (!pools[gpu]) {
		CUmemoryPool p = make((unsigned)gpu, &props);

		if (p) {
			p->is_default = true;
		}
	}
	return pools[gpu];
}

static CUmemoryPool pool_default(int gpu)
{
	CUmemoryPool p;

	lock_take(&soft_pool_lock);
	p = default_locked(gpu);
	lock_release(&soft_pool_lock);
	return p;
}

CUmemoryPool soft_pool_current(int gpu)
{
	CUmemoryPool p;

	lock_take(&soft_pool_lock);
	p = current[gpu] ? current[gpu] : default_locked(gpu);
	lock_release(&soft_pool_lock);
	return p;
}

static CUresult give(CUmemoryPool *ret, CUmemoryPool p)
{
	if (!ret) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	*ret = p;
	return p ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuDeviceGetDefaultMemPool(CUmemoryPool *ret, CUdevice dev)
{
	CUresult e = soft_context_check_device(dev);

	return e ? e : give(ret, pool_default(dev));
}

CUresult cuDeviceGetMemPool(CUmemoryPool *ret, CUdevice dev)
{
	CUresult e = soft_context_check_device(dev);

	return e ? e : give(ret, soft_pool_current(dev));
}

static CUresult check_pool(CUmemoryPool p)
{
	CUresult e = soft_check();

	return e						      ? e
	       : soft_handle_is(p, SOFT_OBJECT_POOL) && !p->destroyed ? CUDA_SUCCESS
								      : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuDeviceSetMemPool(CUdevice dev, CUmemoryPool p)
{
	CUresult e = soft_context_check_device(dev);

	e = e ? e : check_pool(p);
	if (e) {
		return e;
	}
	if (p->imported || p->props.location.id != dev) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	lock_take(&soft_pool_lock);
	current[dev] = p;
	lock_release(&soft_pool_lock);
	return CUDA_SUCCESS;
}

/* The same calls by location, since CUDA 13. */

static CUresult check_location(const CUmemLocation *where, CUmemAllocationType type)
{
	CUresult e = soft_check();

	if (e) {
		return e;
	}
	if (!where ||
	    (type != CU_MEM_ALLOCATION_TYPE_PINNED && type != CU_MEM_ALLOCATION_TYPE_MANAGED)) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	if (where->type != CU_MEM_LOCATION_TYPE_DEVICE || type != CU_MEM_ALLOCATION_TYPE_PINNED) {
		return CUDA_ERROR_NOT_SUPPORTED; /* pools consist of device memory */
	}
	return soft_context_check_device(where->id);
}

CUresult cuMemGetDefaultMemPool(CUmemoryPool *ret, CUmemLocation *where, CUmemAllocationType type)
{
	CUresult e = check_location(where, type);

	return e ? e : cuDeviceGetDefaultMemPool(ret, where->id);
}

CUresult cuMemGetMemPool(CUmemoryPool *ret, CUmemLocation *where, CUmemAllocationType type)
{
	CUresult e = check_location(where, type);

	return e ? e : cuDeviceGetMemPool(ret, where->id);
}

CUresult cuMemSetMemPool(CUmemLocation *where, CUmemAllocationType type, CUmemoryPool p)
{
	CUresult e = check_location(where, type);

	return e ? e : cuDeviceSetMemPool(where->id, p);
}

CUresult cuMemPoolCreate(CUmemoryPool *ret, const CUmemPoolProps *props)
{
	CUmemoryPool p;
	CUresult e = soft_check();

	if (e) {
		return e;
	}
	if (!ret || !props || props->allocType != CU_MEM_ALLOCATION_TYPE_PINNED) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	if (props->location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
	    props->handleTypes & ~(unsigned)CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) {
		return props->location.type == CU_MEM_LOCATION_TYPE_INVALID
			       ? CUDA_ERROR_INVALID_VALUE
			       : CUDA_ERROR_NOT_SUPPORTED;
	}
	if (!soft_memory_check_location(&props->location)) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	lock_take(&soft_pool_lock);
	p = make(SOFT_MAX_GPUS, props);
	lock_release(&soft_pool_lock);
	return give(ret, p);
}

/* Allocations from the pool remain until they are freed. */
CUresult cuMemPoolDestroy(CUmemoryPool p)
{
	CUresult e = check_pool(p);

	if (e) {
		return e;
	}
	if (p->is_default) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	soft_strict_object_destroyed(p);
	lock_take(&soft_pool_lock);
	for (unsigned i = 0; i < SOFT_MAX_GPUS; i++) {
		current[i] = current[i] == p ? NULL : current[i];
	}
	p->destroyed = true;
	soft_pool_trim(p, 0);
	lock_release(&soft_pool_lock);
	return CUDA_SUCCESS;
}

/* As check_pool(); for the calls that a capture forbids. */
static CUresult check_pool_now(CUmemoryPool p)
{
	CUresult e = check_pool(p);

	return e ? e : soft_capture_unsafe();
}

CUresult cuMemPoolTrimTo(CUmemoryPool p, size_t keep)
{
	CUresult e = check_pool_now(p);

	if (!e) {
		lock_take(&soft_pool_lock);
		soft_pool_trim(p, keep);
		lock_release(&soft_pool_lock);
	}
	return e;
}

static CUresult get(CUmemoryPool p, CUmemPool_attribute what, void *value)
{
	switch (what) {
	case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
	case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
	case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
		*(int *)value = p->reuse[what - CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES];
		return CUDA_SUCCESS;
	case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
		*(uint64_t *)value = p->threshold;
		return CUDA_SUCCESS;
	case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
		*(uint64_t *)value = p->reserved;
		return CUDA_SUCCESS;
	case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
		*(uint64_t *)value = p->reserved_high;
		return CUDA_SUCCESS;
	case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
		*(uint64_t *)value = p->used;
		return CUDA_SUCCESS;
	case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
		*(uint64_t *)value = p->used_high;
		return CUDA_SUCCESS;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}

static CUresult set(CUmemoryPool p, CUmemPool_attribute what, const void *value)
{
	switch (what) {
	case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
	case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
	case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
		p->reuse[what - CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES] =
			*(const int *)value != 0;
		return CUDA_SUCCESS;
	case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
		p->threshold = *(const uint64_t *)value;
		return CUDA_SUCCESS;
	case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH: /* may only be reset to the present value */
	case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
		if (*(const uint64_t *)value) {
			return CUDA_ERROR_INVALID_VALUE;
		}
		if (what == CU_MEMPOOL_ATTR_USED_MEM_HIGH) {
			p->used_high = p->used;
		} else {
			p->reserved_high = p->reserved;
		}
		return CUDA_SUCCESS;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}

static CUresult attribute(CUmemoryPool p, CUmemPool_attribute what, void *value, bool write)
{
	CUresult e = check_pool_now(p);

	if (e || !value) {
		return e ? e : CUDA_ERROR_INVALID_VALUE;
	}
	lock_take(&soft_pool_lock);
	soft_pool_prune(p);
	e = write ? set(p, what, value) : get(p, what, value);
	lock_release(&soft_pool_lock);
	return e;
}

CUresult cuMemPoolGetAttribute(CUmemoryPool p, CUmemPool_attribute what, void *value)
{
	return attribute(p, what, value, false);
}

CUresult cuMemPoolSetAttribute(CUmemoryPool p, CUmemPool_attribute what, void *value)
{
	return attribute(p, what, value, true);
}

CUresult cuMemPoolSetAccess(CUmemoryPool p, const CUmemAccessDesc *desc, size_t count)
{
	CUresult e = check_pool(p);

	if (e || (count && !desc)) {
		return e ? e : CUDA_ERROR_INVALID_VALUE;
	}
	for (size_t i = 0; i < count; i++) {
		CUmemAccess_flags f = desc[i].flags;

		if (desc[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE) {
			return CUDA_ERROR_INVALID_VALUE;
		}
		if (f != CU_MEM_ACCESS_FLAGS_PROT_NONE && f != CU_MEM_ACCESS_FLAGS_PROT_READWRITE) {
			return CUDA_ERROR_NOT_SUPPORTED;
		}
		if (!soft_memory_check_location(&desc[i].location)) {
			return CUDA_ERROR_INVALID_DEVICE;
		}
		if (desc[i].location.id == p->props.location.id) {
			if (f != CU_MEM_ACCESS_FLAGS_PROT_READWRITE) {
				return CUDA_ERROR_INVALID_DEVICE; /* the pool's own GPU always has
								     access */
			}
		} else if (f != CU_MEM_ACCESS_FLAGS_PROT_NONE) {
			return CUDA_ERROR_NOT_SUPPORTED; /* GPUs do not reach each other's memory */
		}
	}
	return CUDA_SUCCESS;
}

CUresult cuMemPoolGetAccess(CUmemAccess_flags *ret, CUmemoryPool p, CUmemLocation *where)
{
	CUresult e = check_pool_now(p);

	if (e) {
		return e;
	}
	if (!ret || !where || !soft_memory_check_location(where)) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	*ret = where->id == p->props.location.id ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE
						 : CU_MEM_ACCESS_FLAGS_PROT_NONE;
	return CUDA_SUCCESS;
}

/* ---- sharing with other processes ---- */

CUresult cuMemPoolExportToShareableHandle(void *ret, CUmemoryPool p, CUmemAllocationHandleType type,
					  unsigned long long flags)
{
	struct soft_request q = { .op = SOFT_REQ_POOL_EXPORT };
	struct soft_reply r;
	int fd = -1;
	CUresult e = check_pool(p);

	if (e || flags) {
		return e ? e : CUDA_ERROR_INVALID_VALUE;
	}
	if (!ret || p->imported || !(p->props.handleTypes & type)) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	lock_take(&soft_pool_lock);
	q.index = soft.visible[p->props.location.id];
	q.value = p->number;
	e = soft_link_call(&q, -1, &r, sizeof(r), &fd);
	if (!e) {
		p->number = r.value;
		*(int *)ret = fd;
	}
	lock_release(&soft_pool_lock);
	return e;
}

CUresult cuMemPoolImportFromShareableHandle(CUmemoryPool *ret, void *os,
					    CUmemAllocationHandleType type,
					    unsigned long long flags)
{
	CUmemPoolProps props = { .allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
				 .handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
				 .location.type = CU_MEM_LOCATION_TYPE_DEVICE };
	struct soft_reply r;
	CUmemoryPool p;
	CUresult e = soft_ipc_import(SOFT_REQ_POOL_IMPORT, os, type, flags, ret, &r);

	if (e) {
		return e;
	}
	props.location.id = soft_memory_ordinal(r.value32);
	lock_take(&soft_pool_lock);
	p = make(SOFT_MAX_GPUS, &props);
	if (p) {
		p->imported = true;
		p->number = r.value;
	}
	lock_release(&soft_pool_lock);
	return give(ret, p);
}

struct export_data {
	uint64_t number; /* of the pool */
	struct soft_ipc_handle h;
};
_Static_assert(sizeof(struct export_data) <= sizeof(CUmemPoolPtrExportData), "it fits");

CUresult cuMemPoolExportPointer(CUmemPoolPtrExportData *ret, CUdeviceptr address)
{
	struct soft_request q = { .op = SOFT_REQ_IPC_EXPORT, .value = address };
	struct export_data d;
	struct soft_reply r;
	struct soft_range range;
	CUcontext ctx;
	CUresult e = soft_check();

	if (e) {
		return e;
	}
	if (!ret || !soft_memory_find(address, &ctx, &range) || range.kind != SOFT_RANGE_POOL ||
	    range.address != address || !soft_pool_handle_types(&range)) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	lock_take(&soft_pool_lock);
	((struct soft_pool_block *)range.owner)->exported = true;
	d.number = soft_pool_of(&range)->number;
	lock_release(&soft_pool_lock);
	if (!d.number) {
		return CUDA_ERROR_INVALID_VALUE; /* the pool itself must be exported first */
	}
	q.context = ctx->slot;
	e = soft_link_call(&q, -1, &r, sizeof(r), NULL);
	if (!e) {
		d.h = r.ipc;
		memset(ret, 0, sizeof(*ret));
		memcpy(ret, &d, sizeof(d));
	}
	return e;
}

CUresult cuMemPoolImportPointer(CUdeviceptr *ret, CUmemoryPool p, CUmemPoolPtrExportData *data)
{
	struct soft_request q = { .op = SOFT_REQ_IPC_OPEN, .object = 1 };
	struct soft_range range = { .kind = SOFT_RANGE_IMPORTED, .owner = p };
	struct export_data d;
	struct soft_reply r;
	CUcontext ctx;
	CUresult e = check_pool(p);

	e = e ? e : soft_context_current(&ctx);
	if (e) {
		return e;
	}
	if (!ret || !data || !p->imported) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	memcpy(&d, data, sizeof(d));
	if (d.number != p->number) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	q.context = ctx->slot;
	memcpy(q.more, &d.h, sizeof(d.h));
	e = soft_link_call(&q, -1, &r, sizeof(r), NULL);
	if (e) {
		return e;
	}
	range.address = r.value;
	range.bytes = r.bytes;
	range.ctx = ctx;
	e = soft_memory_add(ctx->window, &range);
	if (e) {
		soft_memory_request(SOFT_REQ_IPC_CLOSE, ctx, r.value, 0, 0);
		return e;
	}
	*ret = r.value;
	return CUDA_SUCCESS;
}
