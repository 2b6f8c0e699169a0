/* Physical memory of GPUs and the host with handles, and reserved addresses to which it is mapped.
 * Access rights apply to kernels and copies of all contexts on the GPU in whose window the
 * addresses lie, and to the program's own loads and stores, which reach host memory only. Neither
 * belongs to a context: both outlive those they were made in. The answers are those of an H200. */
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/fd.h"
#include "soft/client/memory/memory.h"
#include "soft/client/server_link.h"

struct allocation {
	struct soft_object object;
	uint64_t handle; /* number at the server */
	uint64_t bytes;
	CUmemAllocationProp prop;
	unsigned refs; /* held by the program */
	unsigned maps;
};

/* Guards refs and maps of all allocations; the program's rights change only while it is held. */
static struct lock lock = LOCK_INITIALIZER(SOFT_VMM);

static bool names_host(const CUmemLocation *where)
{
	return where->type == CU_MEM_LOCATION_TYPE_HOST ||
	       where->type == CU_MEM_LOCATION_TYPE_HOST_NUMA;
}

static bool is_pinned(const CUmemAllocationProp *p)
{
	return p && p->type == CU_MEM_ALLOCATION_TYPE_PINNED;
}

/* The host has one node. HOST is any node, and its handles cannot be exported. */
static CUresult check_location(const CUmemAllocationProp *p)
{
	switch (p->location.type) {
	case CU_MEM_LOCATION_TYPE_DEVICE:
		return soft_memory_check_location(&p->location) ? CUDA_SUCCESS
								: CUDA_ERROR_INVALID_DEVICE;
	case CU_MEM_LOCATION_TYPE_HOST:
		return p->requestedHandleTypes ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
	case CU_MEM_LOCATION_TYPE_HOST_NUMA:
		return p->location.id ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}

static CUresult check_prop(const CUmemAllocationProp *p)
{
	CUresult e = is_pinned(p) ? check_location(p) : CUDA_ERROR_INVALID_VALUE;

	if (e) {
		return e;
	}
	if (p->requestedHandleTypes &
	    ~(unsigned)(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR | CU_MEM_HANDLE_TYPE_FABRIC)) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	return p->requestedHandleTypes & CU_MEM_HANDLE_TYPE_FABRIC ? CUDA_ERROR_NOT_SUPPORTED
								   : CUDA_SUCCESS;
}

static struct allocation *find(CUmemGenericAllocationHandle handle)
{
	struct allocation *a = (struct allocation *)(uintptr_t)handle;

	return soft_object_is(a, SOFT_OBJECT_ALLOCATION) && a->refs ? a : NULL;
}

static CUresult adopt(const struct soft_reply *r, const CUmemAllocationProp *prop,
		      CUmemGenericAllocationHandle *ret)
{
	struct allocation *a;

	lock_take(&soft.lock);
	a = soft_object_create(SOFT_OBJECT_ALLOCATION, sizeof(*a));
	lock_release(&soft.lock);
	if (!a) {
		soft_memory_request(SOFT_REQ_HANDLE_RELEASE, NULL, r->value, 0, 0);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	a->handle = r->value;
	a->bytes = r->bytes;
	a->prop = *prop;
	a->refs = 1;
	*ret = (CUmemGenericAllocationHandle)(uintptr_t)a;
	return CUDA_SUCCESS;
}

/* Releases the server's handle after the last use. */
static void drop_if_unused(struct allocation *a) REQUIRES(lock)
{
	if (!a->refs && !a->maps) {
		soft_memory_request(SOFT_REQ_HANDLE_RELEASE, NULL, a->handle, 0, 0);
		lock_take(&soft.lock);
		soft_object_destroy(a);
		lock_release(&soft.lock);
	}
}

CUresult cuMemCreate(CUmemGenericAllocationHandle *ret, size_t bytes,
		     const CUmemAllocationProp *prop, unsigned long long flags)
{
	struct soft_request q = { .op = SOFT_REQ_HANDLE_CREATE, .value = bytes };
	struct soft_reply r;
	CUresult e = soft_check();

	if (e) {
		return e;
	}
	if (!ret || !bytes || bytes % SOFT_GRANULARITY || flags) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	e = check_prop(prop);
	if (e) {
		return e;
	}
	q.object = names_host(&prop->location);
	q.index = soft.visible[q.object ? 0 : prop->location.id];
	e = soft_link_call(&q, -1, &r, sizeof(r), NULL);
	return e ? e : adopt(&r, prop, ret);
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle)
{
	struct allocation *a;
	CUresult e = soft_check();

	if (e) {
		return e;
	}
	lock_take(&lock);
	a = find(handle);
	if (a) {
		a->refs--;
		drop_if_unused(a);
	}
	lock_release(&lock);
	return a ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemGetAllocationGranularity(size_t *ret, const CUmemAllocationProp *prop,
				       CUmemAllocationGranularity_flags option)
{
	CUresult e = soft_check();

	if (e) {
		return e;
	}
	if (!ret || (unsigned)option > CU_MEM_ALLOC_GRANULARITY_RECOMMENDED || !is_pinned(prop)) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	*ret = SOFT_GRANULARITY; /* of every location, also of those that cuMemCreate refuses */
	return CUDA_SUCCESS;
}

CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *ret,
						CUmemGenericAllocationHandle handle)
{
	struct allocation *a;
	CUresult e = soft_check();

	if (e) {
		return e;
	}
	lock_take(&lock);
	a = find(handle);
	if (a && ret) {
		*ret = a->prop;
	}
	lock_release(&lock);
	return a && ret ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult retain(const struct soft_range *r, CUmemGenericAllocationHandle *ret)
{
	struct allocation *a = r->owner;

	lock_take(&lock);
	a->refs++;
	lock_release(&lock);
	*ret = (CUmemGenericAllocationHandle)(uintptr_t)a;
	return CUDA_SUCCESS;
}

bool soft_vmm_is_host(const struct soft_range *r)
{
	const struct allocation *a = r->owner;

	return names_host(&a->prop.location);
}

CUmemAllocationHandleType soft_vmm_handle_types(const struct soft_range *r)
{
	const struct allocation *a = r->owner;

	return a->prop.requestedHandleTypes;
}

CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *ret, void *p)
{
	struct soft_range r;
	CUcontext ctx;
	CUresult e = soft_check();

	if (e) {
		return e;
	}
	if (!ret || !soft_memory_find((uint64_t)(uintptr_t)p, &ctx, &r) ||
	    r.kind != SOFT_RANGE_MAPPED) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	return retain(&r, ret);
}

/* ---- sharing with other processes ---- */

CUresult cuMemExportToShareableHandle(void *ret, CUmemGenericAllocationHandle handle,
				      CUmemAllocationHandleType type, unsigned long long flags)
{
	struct soft_request q = { .op = SOFT_REQ_HANDLE_EXPORT };
	struct soft_reply r;
	struct allocation *a;
	int fd = -1;
	CUresult e = soft_check();

	if (e || flags) {
		return e ? e : CUDA_ERROR_INVALID_VALUE;
	}
	lock_take(&lock);
	a = find(handle);
	if (!ret || !a ||
	    !(a->prop.requestedHandleTypes & type)) { /* including FABRIC, which is never granted */
		e = CUDA_ERROR_INVALID_VALUE;
	} else {
		q.value = a->handle;
		e = soft_link_call(&q, -1, &r, sizeof(r), &fd);
	}
	lock_release(&lock);
	if (!e) {
		*(int *)ret = fd;
	}
	return e;
}

CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *ret, void *os,
					CUmemAllocationHandleType type)
{
	CUmemAllocationProp prop = {
		.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
		.location.type = CU_MEM_LOCATION_TYPE_DEVICE,
	};
	struct soft_reply r;
	CUresult e = soft_ipc_import(SOFT_REQ_HANDLE_IMPORT, os, type, 0, ret, &r);

	if (e) {
		return e;
	}
	if (r.value32 == SOFT_ON_HOST) {
		prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_NONE;
		prop.location = (CUmemLocation){ CU_MEM_LOCATION_TYPE_HOST_NUMA, 0 };
	} else {
		prop.location.id = soft_memory_ordinal(r.value32);
	}
	return adopt(&r, &prop, ret);
}

/* ---- addresses ---- */

/* Sends a request about a window's addresses. */
static CUresult ask(uint32_t op, const struct soft_window *w, uint64_t value, uint64_t more0,
		    uint32_t object)
{
	struct soft_request q = {
		.op = op, .index = w->gpu, .object = object, .value = value, .more = { more0 }
	};
	struct soft_reply r;

	return soft_link_call(&q, -1, &r, sizeof(r), NULL);
}

CUresult cuMemAddressReserve(CUdeviceptr *ret, size_t bytes, size_t align, CUdeviceptr wish,
			     unsigned long long flags)
{
	struct soft_request q = { .op = SOFT_REQ_RESERVE, .value = bytes, .more = { align, wish } };
	struct soft_window *w;
	struct soft_reply r;
	CUcontext ctx;
	CUresult e = soft_check();

	if (e) {
		return e;
	}
	if (!ret || !bytes || bytes % SOFT_GRANULARITY || (align & (align - 1)) || flags) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	/* No argument says for which GPU: the current context's, or the first one. */
	q.index = soft_context_current(&ctx) ? soft.visible[0] : ctx->gpu;
	e = soft_window_open(q.index, &w);
	e = e ? e : soft_link_call(&q, -1, &r, sizeof(r), NULL);
	if (!e) {
		*ret = r.value;
	}
	return e;
}

CUresult cuMemAddressFree(CUdeviceptr p, size_t bytes)
{
	const struct soft_window *w;
	CUresult e = soft_check();

	if (e) {
		return e;
	}
	w = soft_window_at(p);
	return w ? ask(SOFT_REQ_UNRESERVE, w, p, bytes, 0) : CUDA_ERROR_INVALID_VALUE;
}

static CUresult map(struct soft_window *w, CUdeviceptr p, size_t bytes, struct allocation *a)
	REQUIRES(lock)
{
	struct soft_request q = {
		.op = SOFT_REQ_MAP, .index = w->gpu, .value = p, .more = { bytes, 0, a->handle }
	};
	struct soft_range range = {
		.kind = SOFT_RANGE_MAPPED, .address = p, .bytes = bytes, .owner = a
	};
	struct soft_reply r;
	int fd = -1;
	CUresult e = soft_link_call(&q, -1, &r, sizeof(r), &fd);

	if (e) {
		return e;
	}
	range.reserved = r.value;
	range.reserved_bytes = r.bytes;
	if (soft_vmm_is_host(&range)) {
		range.flags = CU_MEMHOSTALLOC_PORTABLE;
		e = fd < 0 ? CUDA_ERROR_MAP_FAILED : soft_memory_map_host(p, bytes, fd, PROT_NONE);
	}
	fd_close(fd);
	e = e ? e : soft_memory_add(w, &range);
	if (e) {
		if (soft_vmm_is_host(&range)) {
			soft_memory_unmap_host(p, bytes);
		}
		ask(SOFT_REQ_UNMAP, w, p, bytes, 0);
	} else {
		a->maps++;
	}
	return e;
}

CUresult cuMemMap(CUdeviceptr p, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
		  unsigned long long flags)
{
	struct allocation *a;
	struct soft_window *w;
	CUresult e = soft_check();

	if (e) {
		return e;
	}
	w = soft_window_at(p);
	if (!w || !bytes || flags) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	lock_take(&lock);
	a = find(handle);
	if (!a) {
		e = CUDA_ERROR_INVALID_VALUE;
	} else if (offset || bytes != a->bytes) { /* the driver does not map parts either */
		e = CUDA_ERROR_NOT_SUPPORTED;
	} else {
		e = map(w, p, bytes, a);
	}
	lock_release(&lock);
	return e;
}

struct collected {
	uint64_t address;
	struct allocation *allocation;
};

static void take_first(struct soft_range *r, void *arg)
{
	struct collected *c = arg;

	if (!c->allocation && r->kind == SOFT_RANGE_MAPPED) {
		*c = (struct collected){ r->address, r->owner };
	}
}

CUresult cuMemUnmap(CUdeviceptr p, size_t bytes)
{
	struct soft_window *w;
	CUresult e = soft_check();

	if (e) {
		return e;
	}
	w = soft_window_at(p);
	e = w ? ask(SOFT_REQ_UNMAP, w, p, bytes, 0) : CUDA_ERROR_INVALID_VALUE;
	if (e) {
		return e;
	}
	lock_take(&lock);
	for (;;) {
		struct collected c = { 0 };
		struct soft_range gone;

		soft_memory_each(w, p, bytes, take_first, &c);
		if (!c.allocation) {
			break;
		}
		soft_memory_forget(w, c.address, &gone);
		if (soft_vmm_is_host(&gone)) {
			soft_memory_unmap_host(gone.address, gone.bytes);
		}
		c.allocation->maps--;
		drop_if_unused(c.allocation);
	}
	lock_release(&lock);
	return CUDA_SUCCESS;
}

static void set_rights(struct soft_range *r, void *arg)
{
	if (r->kind == SOFT_RANGE_MAPPED) {
		r->rights = *(const uint8_t *)arg;
	}
}

/* Mappings of a range: where the next one is expected, and whether one is of device memory. */
struct mappings {
	uint64_t next;
	bool device;
};

static void examine(struct soft_range *r, void *arg)
{
	struct mappings *s = arg;

	if (r->kind == SOFT_RANGE_MAPPED && r->address == s->next) {
		s->next += r->bytes;
		s->device |= !soft_vmm_is_host(r);
	}
}

static void set_cpu_rights(struct soft_range *r, void *arg)
{
	r->cpu_rights = *(const uint8_t *)arg;
}

/* Sets the rights of the program's own loads and stores to whole mappings of host memory. It has
 * none to device memory. */
static CUresult set_cpu_access(struct soft_window *w, uint64_t p, uint64_t bytes, uint8_t rights)
	REQUIRES(lock)
{
	int protection = (rights & 1 ? PROT_READ : 0) | (rights & 2 ? PROT_WRITE : 0);
	struct mappings s = { .next = p };

	soft_memory_each(w, p, bytes, examine, &s);
	if (s.next - p != bytes) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	if (s.device) {
		return rights ? CUDA_ERROR_NOT_SUPPORTED : CUDA_SUCCESS;
	}
	if (mprotect((void *)(uintptr_t)p, bytes, protection) < 0) {
		return CUDA_ERROR_OPERATING_SYSTEM;
	}
	soft_memory_each(w, p, bytes, set_cpu_rights, &rights);
	return CUDA_SUCCESS;
}

static CUresult check_access(const CUmemAccessDesc *d)
{
	if (!names_host(&d->location) && !soft_memory_check_location(&d->location)) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	return d->flags == CU_MEM_ACCESS_FLAGS_PROT_NONE ||
			       d->flags == CU_MEM_ACCESS_FLAGS_PROT_READ ||
			       d->flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE
		       ? CUDA_SUCCESS
		       : CUDA_ERROR_INVALID_VALUE;
}

/* Returns true if another GPU than that of the window is given access: copies of any GPU reach
 * memory of the host there; kernels, and memory of a GPU, are of the window's GPU only. */
static bool is_for_copies(struct soft_window *w, CUdeviceptr p, size_t bytes, uint8_t rights)
{
	struct mappings s = { .next = p };

	lock_take(&lock);
	soft_memory_each(w, p, bytes, examine, &s);
	lock_release(&lock);
	return rights && s.next - p == bytes && !s.device;
}

CUresult cuMemSetAccess(CUdeviceptr p, size_t bytes, const CUmemAccessDesc *desc, size_t count)
{
	struct soft_window *w;
	CUresult e = soft_check();

	if (e) {
		return e;
	}
	w = soft_window_at(p);
	if (!w || !desc || !count || !bytes) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	for (size_t i = 0; i < count && !e; i++) {
		e = check_access(&desc[i]);
	}
	for (size_t i = 0; i < count && !e; i++) {
		uint8_t rights = (uint8_t)desc[i].flags;

		if (names_host(&desc[i].location)) {
			lock_take(&lock);
			e = set_cpu_access(w, p, bytes, rights);
			lock_release(&lock);
			continue;
		}
		if (soft.visible[desc[i].location.id] != w->gpu &&
		    !is_for_copies(w, p, bytes, rights)) {
			continue;
		}
		e = ask(SOFT_REQ_ACCESS, w, p, bytes, rights);
		if (!e) {
			soft_memory_each(w, p, bytes, set_rights, &rights);
		}
	}
	return e;
}

CUresult cuMemGetAccess(unsigned long long *ret, const CUmemLocation *where, CUdeviceptr p)
{
	struct soft_range r;
	CUcontext ctx;
	CUresult e = soft_check();

	if (e) {
		return e;
	}
	if (!ret || !where || !soft_memory_find(p, &ctx, &r) || r.kind != SOFT_RANGE_MAPPED) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	if (names_host(where)) {
		/* The driver gives the GPU's rights where HOST has none. */
		*ret = r.cpu_rights || where->type == CU_MEM_LOCATION_TYPE_HOST_NUMA ? r.cpu_rights
										     : r.rights;
		return CUDA_SUCCESS;
	}
	if (!soft_memory_check_location(where)) {
		return CUDA_ERROR_INVALID_DEVICE;
	}
	*ret = soft.visible[where->id] == soft_window_at(p)->gpu ? r.rights
								 : CU_MEM_ACCESS_FLAGS_PROT_NONE;
	return CUDA_SUCCESS;
}
