/* What programs are answered about memory that can leave the device: the same as of any memory of
 * cuMemAlloc, whatever the driver says of its chunks (H200, 580.159.04), except that it cannot be
 * exported: a chunk that others use cannot move. (IPC handles: swap_share.c.) */
#include <string.h>

#include "base/array_grow.h"
#include "shim/mem/charge.h"
#include "shim/mem/packs.h"
#include "shim/mem/sharing.h"
#include "shim/mem/swap_async.h"
#include "shim/mem/swap_chunk.h"
#include "shim/mem/swap_int.h"
#include "shim/mem/swap_managed.h"
#include "shim/mem/swap_region.h"
#include "shim/mem/swap_share.h"
#include "shim/shim.h"

/* Stores a value of that many bytes; little-endian. */
static CUresult give(void *out, uint64_t value, size_t bytes)
{
	memcpy(out, &value, bytes);
	return CUDA_SUCCESS;
}

/* ---- which memory an address is in ---- */

/* Narrows what is said of a pack to the allocation in it that an address is in. Returns false if
 * there is none. */
static bool look_into(const struct mem_swap_region *r, CUdeviceptr address,
		      struct shim_swap_view *v) REQUIRES(shim_swap_mutex)
{
	const struct mem_pack_part *part = shim_packs_live(r, address);

	if (part) {
		v->base = mem_pack_address(part);
		v->bytes = part->bytes;
		v->reserved = (uint64_t)part->grains * MEM_PACK_GRAIN;
		v->id = part->id;
	}
	return part != NULL;
}

bool shim_swap_look(CUdeviceptr address, struct shim_swap_view *ret)
{
	const struct mem_swap_region *r;
	bool found = false;

	if (!shim_swap_has_regions()) {
		return false;
	}
	lock_take(&shim_swap_mutex);
	r = mem_swap_find(&shim_swap_map, address);
	if (r && !r->freed) {
		*ret = (struct shim_swap_view){ .base = r->base,
						.bytes = r->bytes,
						.reserved = r->reserved,
						.id = r->id,
						.pool = shim_swap_async_pool(r),
						.owner = (CUcontext)(uintptr_t)r->owner,
						.copied_in =
							r->owner ? (CUcontext)(uintptr_t)r->owner
								 : shim_swap_context_on(r->device),
						.access = shim_swap_access(r),
						.device = r->device,
						.by_handle = r->by_handle,
						.imported = r->imported,
						.handle_types = r->handle_types };
		found = !r->pack || look_into(r, address, ret);
	}
	lock_release(&shim_swap_mutex);
	return found;
}

/* Returns the address that the driver is asked about, which has the whole of a pack as memory: 0,
 * which is none, for one in a pack that is in no allocation. */
static CUdeviceptr asked(CUdeviceptr address)
{
	const struct mem_swap_region *r;
	bool is_room;

	if (!shim_swap_has_regions()) {
		return address;
	}
	lock_take(&shim_swap_mutex);
	r = mem_swap_find(&shim_swap_map, address);
	is_room = r && r->pack && !shim_packs_live(r, address);
	lock_release(&shim_swap_mutex);
	return is_room ? 0 : address;
}

bool shim_swap_has_own(CUdeviceptr address, size_t bytes)
{
	uint64_t end = bytes > UINT64_MAX - address ? UINT64_MAX : address + bytes;
	const struct mem_swap_region *r;
	bool has = false;

	if (!shim_swap_has_regions()) {
		return false;
	}
	lock_take(&shim_swap_mutex);
	while (!has && address < end && (r = mem_swap_next(&shim_swap_map, address)) != NULL) {
		has = r->base < end && !r->by_handle && !r->freed;
		address = r->base + r->reserved;
	}
	lock_release(&shim_swap_mutex);
	return has;
}

bool shim_swap_has(CUdeviceptr address)
{
	const struct mem_swap_region *r;
	bool has;

	if (!shim_swap_has_regions()) {
		return false;
	}
	lock_take(&shim_swap_mutex);
	r = mem_swap_find(&shim_swap_map, address);
	has = r && !r->freed;
	lock_release(&shim_swap_mutex);
	return has;
}

/* ---- reserved addresses ---- */

/* What the program has reserved: the range of memory that it maps there. */
struct range {
	CUdeviceptr base;
	uint64_t bytes;
	bool ending; /* the driver may have freed the addresses */
};
static struct range *reserved GUARDED_BY(shim_swap_mutex); /* owned */
static size_t n_reserved GUARDED_BY(shim_swap_mutex), reserved_room GUARDED_BY(shim_swap_mutex);
static bool others_reserved GUARDED_BY(shim_swap_mutex); /* that are not in the list */

static CUresult reserve(CUdeviceptr *ret, size_t bytes, size_t alignment, CUdeviceptr at,
			unsigned long long flags)
{
	CUresult r = shim_driver.cuMemAddressReserve(ret, bytes, alignment, at, flags);
	struct range *grown;

	if (r != CUDA_SUCCESS || !shim_swap_is_on()) {
		return r;
	}
	lock_take(&shim_swap_mutex);
	grown = array_grow(reserved, n_reserved, &reserved_room, sizeof(*grown), 16, SIZE_MAX);
	if (grown) {
		reserved = grown;
		reserved[n_reserved++] = (struct range){ .base = *ret, .bytes = bytes };
	} else {
		others_reserved = true;
	}
	lock_release(&shim_swap_mutex);
	return r;
}

/* Another thread may get the addresses as soon as the driver has freed them. */
static CUresult free_address(CUdeviceptr address, size_t bytes)
{
	bool found = false;
	CUresult result;

	if (!shim_swap_is_on()) {
		return shim_driver.cuMemAddressFree(address, bytes);
	}
	if (shim_swap_has_own(address, bytes)) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	lock_take(&shim_swap_mutex);
	for (size_t i = 0; i < n_reserved && !found; i++) {
		found = reserved[i].base == address && !reserved[i].ending;
		reserved[i].ending |= found;
	}
	lock_release(&shim_swap_mutex);
	result = shim_driver.cuMemAddressFree(address, bytes);
	lock_take(&shim_swap_mutex);
	for (size_t i = 0; i < n_reserved && found; i++) {
		if (reserved[i].base == address && reserved[i].ending) {
			found = reserved[i].ending = false;
			reserved[i] = reserved[result == CUDA_SUCCESS ? --n_reserved : i];
		}
	}
	lock_release(&shim_swap_mutex);
	return result;
}

bool shim_swap_is_reserved(CUdeviceptr address)
{
	CUdeviceptr begin = address - MIN(address, MEM_SWAP_UNIT);
	bool is = others_reserved;

	for (size_t i = 0; i < n_reserved && !is; i++) {
		is = begin < reserved[i].base + reserved[i].bytes &&
		     reserved[i].base <= address + MIN(UINT64_MAX - address, MEM_SWAP_UNIT);
	}
	return is;
}

/* Returns the range that an address of memory belongs to: an allocation, or what the program has
 * reserved for it. */
static struct range range_of(CUdeviceptr address, const struct shim_swap_view *v)
{
	struct range found = { .base = v->base, .bytes = v->bytes };

	if (!v->by_handle) {
		return found;
	}
	lock_take(&shim_swap_mutex);
	for (size_t i = 0; i < n_reserved; i++) {
		if (!reserved[i].ending && address - reserved[i].base < reserved[i].bytes) {
			found = reserved[i];
		}
	}
	lock_release(&shim_swap_mutex);
	return found;
}

/* Returns true for memory of cuMemAlloc, if the driver can share such chunks: a part of a pack as
 * well, whose neighbours are shared with it, as those in a block of the driver's are. */
static bool can_share(const struct shim_swap_view *v)
{
	return !v->by_handle && !v->imported && !v->pool && shim_swap_can_share();
}

/* ---- questions ---- */

static CUresult value_of(void *out, CUpointer_attribute what, CUdeviceptr address,
			 const struct shim_swap_view *v)
{
	switch ((unsigned)what) {
	case CU_POINTER_ATTRIBUTE_CONTEXT:
		return give(out, (uint64_t)(uintptr_t)v->owner, sizeof(void *));
	case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
		return give(out, CU_MEMORYTYPE_DEVICE, sizeof(unsigned));
	case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
		return give(out, address, sizeof(CUdeviceptr));
	case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
		return give(out, (uint64_t)v->device, sizeof(int));
	case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
		return give(out, range_of(address, v).base, sizeof(CUdeviceptr));
	case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
		return give(out, range_of(address, v).bytes, sizeof(size_t));
	case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
		return give(out, v->base, sizeof(CUdeviceptr));
	case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
		return give(out, v->reserved, sizeof(size_t));
	case CU_POINTER_ATTRIBUTE_BUFFER_ID:
	case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
		return give(out, v->id, sizeof(uint64_t));
	case CU_POINTER_ATTRIBUTE_MAPPED:
		return give(out, 1, sizeof(int));
	case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
		return give(out, CU_MEM_ACCESS_FLAGS_PROT_READWRITE, sizeof(unsigned));
	case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
	case CU_POINTER_ATTRIBUTE_IS_MANAGED:
	case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
	case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE:
		return give(out, 0, sizeof(int));
	case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
		return give(out, can_share(v), sizeof(int));
	case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
		return give(out, v->handle_types, sizeof(uint64_t));
	case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
		return give(out, (uint64_t)(uintptr_t)v->pool, sizeof(void *));
	default: /* the host's pointer, and what the driver has that is not known here */
		return CUDA_ERROR_INVALID_VALUE;
	}
}

static CUresult get(void *out, CUpointer_attribute what, CUdeviceptr address)
{
	struct shim_swap_view v;

	if (!out || !shim_swap_look(address, &v)) {
		return shim_driver.cuPointerGetAttribute(out, what, asked(address));
	}
	return value_of(out, what, address, &v);
}

/* The driver checks the list, and stores zeros for what it cannot answer. */
static CUresult get_many(unsigned n, CUpointer_attribute *what, void **out, CUdeviceptr address)
{
	CUresult r = shim_driver.cuPointerGetAttributes(n, what, out, asked(address));
	struct shim_swap_view v;

	if (r == CUDA_SUCCESS && shim_swap_look(address, &v)) {
		for (unsigned i = 0; i < n; i++) {
			if (what[i] == CU_POINTER_ATTRIBUTE_HOST_POINTER) {
				(void)give(out[i], 0, sizeof(void *));
			} else {
				(void)value_of(out[i], what[i], address, &v);
			}
		}
	}
	return r;
}

static CUresult set(const void *value, CUpointer_attribute what, CUdeviceptr address)
{
	if (value && what == CU_POINTER_ATTRIBUTE_SYNC_MEMOPS && shim_swap_has(address)) {
		return CUDA_ERROR_NOT_SUPPORTED; /* as of all mapped memory */
	}
	return shim_driver.cuPointerSetAttribute(value, what, address);
}

static CUresult get_range(CUdeviceptr *ret_base, size_t *ret_bytes, CUdeviceptr address)
{
	struct shim_swap_view v;

	if (!shim_swap_look(address, &v)) {
		return shim_driver.cuMemGetAddressRange_v2(ret_base, ret_bytes, asked(address));
	}
	if (ret_base) {
		*ret_base = v.base;
	}
	if (ret_bytes) {
		*ret_bytes = v.bytes;
	}
	return CUDA_SUCCESS;
}

static CUresult get_access(unsigned long long *ret, const CUmemLocation *location,
			   CUdeviceptr address)
{
	CUresult r = shim_driver.cuMemGetAccess(ret, location, address);

	if (r == CUDA_SUCCESS && shim_swap_has_own(address, 1)) {
		*ret = 0; /* as of memory that is not mapped by the program */
	}
	return r;
}

/* What was in the slots before. */
static CUresult (*next_get_ipc)(CUipcMemHandle *, CUdeviceptr);
static CUresult (*next_retain)(CUmemGenericAllocationHandle *, void *);
static CUresult (*next_unmap)(CUdeviceptr, size_t);
static CUresult (*next_set_access)(CUdeviceptr, size_t, const CUmemAccessDesc *, size_t);

static CUresult get_ipc(CUipcMemHandle *ret, CUdeviceptr address)
{
	struct shim_swap_view v;

	if (!ret || !shim_swap_look(address, &v)) {
		return next_get_ipc(ret, address);
	}
	if (v.by_handle || v.imported || v.pool) {
		return CUDA_ERROR_INVALID_VALUE; /* as the driver */
	}
	return can_share(&v) ? shim_swap_share(v.base, v.id, ret) : CUDA_ERROR_NOT_SUPPORTED;
}

static CUresult retain(CUmemGenericAllocationHandle *ret, void *address)
{
	return shim_swap_has_own((CUdeviceptr)(uintptr_t)address, 1) ? CUDA_ERROR_INVALID_VALUE
								     : next_retain(ret, address);
}

static CUresult get_handle(void *ret, CUdeviceptr address, size_t bytes, CUmemRangeHandleType type,
			   unsigned long long flags)
{
	CUresult r =
		shim_swap_has_own(address, bytes)
			? CUDA_ERROR_NOT_SUPPORTED
			: shim_mem_settle_range(address, bytes, "cuMemGetHandleForAddressRange");

	return r != CUDA_SUCCESS ? r
				 : shim_driver.cuMemGetHandleForAddressRange(ret, address, bytes,
									     type, flags);
}

static CUresult bind(CUmemGenericAllocationHandle multicast, size_t offset, CUdeviceptr address,
		     size_t bytes, unsigned long long flags)
{
	CUresult r = shim_swap_has_own(address, bytes)
			     ? CUDA_ERROR_INVALID_VALUE
			     : shim_mem_settle_range(address, bytes, "cuMulticastBindAddr");

	return r != CUDA_SUCCESS
		       ? r
		       : shim_driver.cuMulticastBindAddr(multicast, offset, address, bytes, flags);
}

/* The program has not mapped the memory. */
static CUresult unmap(CUdeviceptr address, size_t bytes)
{
	return shim_swap_has_own(address, bytes) ? CUDA_ERROR_INVALID_VALUE
						 : next_unmap(address, bytes);
}

static CUresult set_access(CUdeviceptr address, size_t bytes, const CUmemAccessDesc *access,
			   size_t n)
{
	return shim_swap_has_own(address, bytes) ? CUDA_ERROR_INVALID_VALUE
						 : next_set_access(address, bytes, access, n);
}

/* Memory that moves cannot be registered with another device, which the driver does not show to
 * gBPF: programs that ask whether that is possible are answered that it is not. */
static CUresult get_attribute(int *ret, CUdevice_attribute what, CUdevice device)
{
	CUresult r = shim_driver.cuDeviceGetAttribute(ret, what, device);

	if (r == CUDA_SUCCESS &&
	    (what == CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED ||
	     what == CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED ||
	     what == CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED)) {
		*ret = 0;
	}
	return r;
}

/* The context would not be seen, so that its work could not be waited for. */
static CUresult refuse_context(void)
{
	return CUDA_ERROR_NOT_SUPPORTED;
}

/* A slot whose parameters are not known. */
static void refuse_contexts(unsigned index)
{
	void **slots = (void **)&shim_real;

	store_release(&slots[index], __extension__(void *) refuse_context);
}

void shim_swap_install_questions(void)
{
	shim_real.cuPointerGetAttribute = get;
	shim_real.cuPointerGetAttributes = get_many;
	shim_real.cuPointerSetAttribute = set;
	shim_real.cuMemGetAddressRange_v2 = get_range;
}

void shim_swap_install_calls(void)
{
	shim_managed_install_calls();
	next_get_ipc = shim_real.cuIpcGetMemHandle;
	next_unmap = shim_real.cuMemUnmap;
	next_set_access = shim_real.cuMemSetAccess;
	next_retain = shim_real.cuMemRetainAllocationHandle;
	shim_real.cuMemGetAccess = get_access;
	shim_real.cuIpcGetMemHandle = get_ipc;
	shim_real.cuMemRetainAllocationHandle = retain;
	shim_real.cuMemGetHandleForAddressRange = get_handle;
	shim_real.cuMulticastBindAddr = bind;
	shim_real.cuMemUnmap = unmap;
	shim_real.cuMemSetAccess = set_access;
	shim_real.cuMemAddressReserve = reserve;
	shim_real.cuMemAddressFree = free_address;
	shim_real.cuDeviceGetAttribute = get_attribute;
	refuse_contexts(CUABI_IDX_cuGLCtxCreate);
	refuse_contexts(CUABI_IDX_cuGLCtxCreate_v2);
	refuse_contexts(CUABI_IDX_cuVDPAUCtxCreate);
	refuse_contexts(CUABI_IDX_cuVDPAUCtxCreate_v2);
}
