/* Memory of other processes on the same soft GPU, by handles that processes exchange as bytes. */
#include <stdlib.h>
#include <string.h>

#include "soft/client/memory/memory.h"
#include "soft/client/server_link.h"
#include "soft/client/stream/stream.h"

#define MAGIC 0x306d656d74666f73ull

struct wire_handle {
	uint64_t magic;
	struct soft_ipc_handle h;
};
_Static_assert(sizeof(struct wire_handle) <= sizeof(CUipcMemHandle), "it fits the driver's handle");

/* An open handle: opening it again gives the same address. */
struct opened {
	struct opened *next;
	uint64_t context_id;
	struct soft_ipc_handle h;
	uint64_t address;
	unsigned opens;
};

static struct lock lock = LOCK_INITIALIZER(SOFT_IPC);
static struct opened *all GUARDED_BY(lock);

CUresult cuIpcGetMemHandle(CUipcMemHandle *ret, CUdeviceptr p)
{
	struct soft_request q = { .op = SOFT_REQ_IPC_EXPORT };
	struct wire_handle w = { .magic = MAGIC };
	struct soft_reply r;
	struct soft_range range;
	CUcontext ctx;
	CUresult e = soft_check();

	if (e) {
		return e;
	}
	if (!ret || !soft_memory_find(p, &ctx, &range) || range.kind != SOFT_RANGE_DEVICE ||
	    range.hidden || range.module) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	q.context = ctx->slot;
	q.value = range.address;
	e = soft_link_call(&q, -1, &r, sizeof(r), NULL);
	if (e) {
		return e;
	}
	w.h = r.ipc;
	memset(ret, 0, sizeof(*ret));
	memcpy(ret, &w, sizeof(w));
	return CUDA_SUCCESS;
}

static struct opened **find(CUcontext ctx, const struct soft_ipc_handle *h, uint64_t address)
{
	struct opened **o = &all;

	while (*o && ((*o)->context_id != ctx->id ||
		      (h ? memcmp(&(*o)->h, h, sizeof(*h)) != 0 : (*o)->address != address))) {
		o = &(*o)->next;
	}
	return *o ? o : NULL;
}

static CUresult open_new(CUcontext ctx, const struct soft_ipc_handle *h, CUdeviceptr *ret)
	REQUIRES(lock)
{
	struct soft_request q = { .op = SOFT_REQ_IPC_OPEN, .context = ctx->slot };
	struct soft_range range = { .kind = SOFT_RANGE_OPENED };
	struct opened *o = calloc(1, sizeof(*o));
	struct soft_reply r;
	CUresult e;

	if (!o) {
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	memcpy(q.more, h, sizeof(*h));
	e = soft_link_call(&q, -1, &r, sizeof(r), NULL);
	if (e) {
		free(o);
		return e;
	}
	range.address = r.value;
	range.bytes = r.bytes;
	range.ctx = ctx;
	e = soft_memory_add(ctx->window, &range);
	if (e) {
		soft_memory_request(SOFT_REQ_IPC_CLOSE, ctx, r.value, 0, 0);
		free(o);
		return e;
	}
	*o = (struct opened){ all, ctx->id, *h, r.value, 1 };
	all = o;
	*ret = r.value;
	return CUDA_SUCCESS;
}

CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *ret, CUipcMemHandle handle, unsigned int flags)
{
	struct opened **o;
	struct wire_handle w;
	CUcontext ctx;
	CUresult e = soft_context_current(&ctx);

	if (e) {
		return e;
	}
	memcpy(&w, &handle, sizeof(w));
	if (!ret || (flags & ~(unsigned)CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) || w.magic != MAGIC) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	lock_take(&lock);
	o = find(ctx, &w.h, 0);
	if (o) {
		(*o)->opens++;
		*ret = (*o)->address;
	} else {
		e = open_new(ctx, &w.h, ret);
	}
	lock_release(&lock);
	return e;
}

CUresult cuIpcOpenMemHandle(CUdeviceptr *ret, CUipcMemHandle handle, unsigned int flags)
{
	return cuIpcOpenMemHandle_v2(ret, handle, flags);
}

CUresult cuIpcCloseMemHandle(CUdeviceptr p)
{
	struct opened **at, *o;
	struct soft_range r;
	CUcontext ctx;
	CUresult e = soft_check();

	if (e) {
		return e;
	}
	if (!soft_memory_find(p, &ctx, &r) || r.kind != SOFT_RANGE_OPENED || r.address != p) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	lock_take(&lock);
	at = find(ctx, NULL, p);
	o = at ? *at : NULL;
	if (o && --o->opens == 0) {
		*at = o->next;
		free(o);
		soft_context_drain(ctx); /* kernels may still use it */
		soft_memory_delete(ctx, p, false);
		e = soft_memory_request(SOFT_REQ_IPC_CLOSE, ctx, p, 0, 0);
	}
	lock_release(&lock);
	return o ? e : CUDA_ERROR_INVALID_VALUE;
}

CUresult soft_ipc_check_handle_type(CUmemAllocationHandleType type, unsigned long long flags)
{
	if (type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR && !flags) {
		return CUDA_SUCCESS;
	}
	return type == CU_MEM_HANDLE_TYPE_FABRIC || type == CU_MEM_HANDLE_TYPE_WIN32 ||
			       type == CU_MEM_HANDLE_TYPE_WIN32_KMT
		       ? CUDA_ERROR_NOT_SUPPORTED
		       : CUDA_ERROR_INVALID_VALUE;
}

CUresult soft_ipc_import(uint32_t op, void *os, CUmemAllocationHandleType type,
			 unsigned long long flags, const void *ret, struct soft_reply *r)
{
	struct soft_request q = { .op = op };
	CUresult e = soft_check();

	e = e ? e : soft_ipc_check_handle_type(type, flags);
	if (e) {
		return e;
	}
	if (!ret || (int)(intptr_t)os < 0) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	return soft_link_call(&q, (int)(intptr_t)os, r, sizeof(*r), NULL);
}
