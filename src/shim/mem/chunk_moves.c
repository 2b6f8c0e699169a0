/* Chunks of the virtual memory calls that can leave the device (shim/mem/chunks_int.h). */
#include <stdlib.h>

#include "base/clock.h"
#include "shim/capture_state.h"
#include "shim/mem/charge.h"
#include "shim/mem/chunks_int.h"
#include "shim/mem/swap_region.h"
#include "shim/shim.h"

/* Handles of gBPF's; the driver's are addresses. */
#define HANDLE_TAG UINT64_C(0x6742)
#define HANDLE_SHIFT 48u

#define SETTLE_NS UINT64_C(1000000000) /* for work of the process to be done */
#define AGAIN_NS UINT64_C(1000000)

static CUmemGenericAllocationHandle next_handle GUARDED_BY(shim_chunk_mutex) = HANDLE_TAG
									       << HANDLE_SHIFT;

/* Returns true if a chunk may be made that can leave the device: the driver would make it, and it
 * is not said to be for other devices. */
static bool can_leave(size_t bytes, const CUmemAllocationProp *p, unsigned long long flags)
{
	return shim_swap_is_on() && p->location.type == CU_MEM_LOCATION_TYPE_DEVICE &&
	       p->type == CU_MEM_ALLOCATION_TYPE_PINNED && bytes && bytes % SHIM_MEM_UNIT == 0 &&
	       !flags &&
	       !(p->requestedHandleTypes & ~(unsigned)CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) &&
	       !p->win32HandleMetaData && !p->allocFlags.compressionType &&
	       !p->allocFlags.gpuDirectRDMACapable && !p->allocFlags.usage;
}

bool shim_chunk_create_movable(CUmemGenericAllocationHandle *ret, size_t bytes, int row,
			       const CUmemAllocationProp *p, unsigned long long flags)
{
	struct shim_chunk *c = can_leave(bytes, p, flags) ? calloc(1, sizeof(*c)) : NULL;
	int err;

	if (!c) {
		return false;
	}
	*c = (struct shim_chunk){ .bytes = bytes, .row = row, .prop = *p };
	if (shim_swap_create(&c->region, bytes, row, p) != CUDA_SUCCESS) {
		free(c);
		return false;
	}
	lock_take(&shim_chunk_mutex);
	c->handle = next_handle++;
	err = shim_chunk_refer(&shim_chunk_handles, c->handle, 0, c);
	*ret = c->handle;
	lock_release(&shim_chunk_mutex);
	if (err) {
		shim_swap_discard(c->region);
		free(c);
	}
	return !err;
}

/* Settles a chunk in a handle of the driver's, which is charged by itself, since both exist for a
 * moment. What the chunk has on the device without contents makes room for it within the limit. */
static CUresult settle_once(struct shim_chunk *c, uint64_t kept, const char *call)
{
	CUmemGenericAllocationHandle real = 0;
	uint64_t charged = c->bytes;
	CUresult r;

	if (kept < c->bytes && !shim_mem_charge(c->row, c->bytes - kept, call)) {
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	shim_mem_force(c->row, kept);
	r = shim_driver.cuMemCreate(&real, c->bytes, &c->prop, 0);
	lock_take(&shim_chunk_mutex);
	if (r == CUDA_SUCCESS && c->region && kept == shim_swap_kept(c->region)) {
		r = shim_swap_settle_in(c->region, real);
		if (r == CUDA_SUCCESS) {
			c->region = NULL;
			c->real = real;
			shim_mem_kind_add(c->row, PROTO_KIND_CREATED, c->bytes);
			charged = real = 0;
		}
	} else if (r == CUDA_SUCCESS) { /* another thread has settled or mapped it */
		r = c->region ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
	}
	lock_release(&shim_chunk_mutex);
	if (real) {
		(void)shim_driver.cuMemRelease(real);
	}
	shim_mem_release(c->row, charged);
	return r;
}

/* Makes a chunk one of the driver's, if it is not yet. The caller has a reference to it. Waits for
 * work of the process, without a mutex. */
static CUresult settle(struct shim_chunk *c, const char *call)
{
	uint64_t until = clock_now_ns() + clock_patience(SETTLE_NS), kept = 0;
	CUstreamCaptureMode mode = shim_capture_exempt();
	CUresult r = CUDA_ERROR_NOT_READY;
	bool settled;

	for (;;) {
		lock_take(&shim_chunk_mutex);
		settled = !c->region;
		kept = settled ? 0 : shim_swap_kept(c->region);
		lock_release(&shim_chunk_mutex);
		if (settled) {
			r = CUDA_SUCCESS;
			break;
		}
		shim_mem_move_begin();
		r = settle_once(c, kept, call);
		shim_mem_move_end();
		if (r != CUDA_ERROR_NOT_READY || clock_now_ns() >= until) {
			break;
		}
		clock_sleep_ns(AGAIN_NS);
	}
	shim_capture_restore(mode);
	return r;
}

bool shim_chunk_is_stale(CUmemGenericAllocationHandle handle, const struct mem_region *found)
{
	return !found && handle >> HANDLE_SHIFT == HANDLE_TAG;
}

CUresult shim_chunk_settle_handle(CUmemGenericAllocationHandle *handle, unsigned types,
				  const char *call)
{
	const struct mem_region *h;
	struct shim_chunk *c;
	bool stale;
	CUresult r;

	if (!shim_mem_joined()) {
		return CUDA_SUCCESS;
	}
	lock_take(&shim_chunk_mutex);
	h = mem_regions_find(&shim_chunk_handles, *handle);
	stale = shim_chunk_is_stale(*handle, h);
	c = h && shim_chunk_of(h)->handle ? shim_chunk_of(h) : NULL;
	if (c) {
		c->refs++;
	}
	lock_release(&shim_chunk_mutex);
	if (!c) {
		return stale ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
	}
	r = ((unsigned)c->prop.requestedHandleTypes & types) == types ? settle(c, call)
								      : CUDA_ERROR_INVALID_VALUE;
	lock_take(&shim_chunk_mutex);
	if (r == CUDA_SUCCESS) {
		*handle = c->real;
	}
	shim_chunk_unref(c);
	lock_release(&shim_chunk_mutex);
	return r;
}

/* ---- mappings ---- */

/* Maps a chunk that has a handle of gBPF's: if it can leave, in the one way in which it still can
 * then. *ret_again: it must settle first. The driver's answers are those of an H200 (580.159.04).
 */
static CUresult map_own(const struct shim_chunk *c, CUdeviceptr address, size_t bytes,
			size_t offset, unsigned long long flags, bool *ret_again)
	REQUIRES(shim_chunk_mutex)
{
	if (!c->region) {
		return shim_driver.cuMemMap(address, bytes, offset, c->real, flags);
	}
	if (offset || bytes != c->bytes) {
		return CUDA_ERROR_NOT_SUPPORTED;
	}
	if (flags) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	*ret_again = shim_swap_is_mapped(c->region);
	return *ret_again ? CUDA_SUCCESS : shim_swap_map_at(c->region, address);
}

/* Drops a mapping that could not be noted. */
static void undo_map(const struct shim_chunk *c, CUdeviceptr address, size_t bytes)
	REQUIRES(shim_chunk_mutex)
{
	if (c->region) {
		(void)shim_swap_unmap(c->region);
	} else {
		(void)shim_driver.cuMemUnmap(address, bytes);
	}
}

/* The same for a chunk with a handle of gBPF's, of which the caller has a reference. */
CUresult shim_chunk_map_movable(struct shim_chunk *c, CUdeviceptr address, size_t bytes,
				size_t offset, unsigned long long flags)
{
	bool again = false;
	CUresult r;

	do {
		r = again ? settle(c, "cuMemMap") : CUDA_SUCCESS;
		lock_take(&shim_chunk_mutex);
		again = false;
		if (r == CUDA_SUCCESS) {
			r = map_own(c, address, bytes, offset, flags, &again);
		}
		if (r == CUDA_SUCCESS && !again &&
		    shim_chunk_note_mapping(c, address, bytes, offset) < 0) {
			undo_map(c, address, bytes);
			r = CUDA_ERROR_OUT_OF_MEMORY;
		}
		lock_release(&shim_chunk_mutex);
	} while (again);
	return r;
}

/* Looks at all mappings of the program. */
struct shim_chunk_span shim_chunk_span(CUdeviceptr begin, size_t bytes) REQUIRES(shim_chunk_mutex)
{
	uint64_t end = bytes > UINT64_MAX - begin ? UINT64_MAX : begin + bytes, covered = 0;
	struct shim_chunk_span s = { .exact = true };

	for (size_t i = 0; i < shim_chunk_mappings.size; i++) {
		const struct mem_region *m = &shim_chunk_mappings.slot[i];

		if (!m->count || m->key >= end || m->key + m->bytes <= begin) {
			continue;
		}
		s.movable = shim_chunk_of(m)->region ? m : s.movable;
		s.exact &= m->key >= begin && m->key + m->bytes <= end;
		covered += m->bytes;
	}
	s.exact &= covered == bytes;
	return s;
}

/* A range with memory that can leave the device: each mapping by itself. */
CUresult shim_chunk_unmap_each(CUdeviceptr address, size_t bytes) REQUIRES(shim_chunk_mutex)
{
	CUresult r = CUDA_SUCCESS;
	struct mem_region m;

	for (CUdeviceptr end = address + bytes; r == CUDA_SUCCESS && address < end;
	     address += m.bytes) {
		m = *mem_regions_find(&shim_chunk_mappings, address);
		if (shim_chunk_of(&m)->region) {
			r = shim_swap_unmap(shim_chunk_of(&m)->region);
			if (r == CUDA_SUCCESS) {
				(void)mem_regions_take(&shim_chunk_mappings, address, &m);
				shim_chunk_unref(shim_chunk_of(&m));
			}
		} else {
			r = shim_chunk_unmap_plain(address, m.bytes);
		}
	}
	return r;
}

/* Returns a reference to a chunk in a range that can leave the device, or NULL. */
static struct shim_chunk *ref_movable(CUdeviceptr address, size_t bytes)
{
	struct shim_chunk *c = NULL;
	struct shim_chunk_span s;

	lock_take(&shim_chunk_mutex);
	s = shim_chunk_span(address, bytes);
	if (s.movable) {
		c = shim_chunk_of(s.movable);
		c->refs++;
	}
	lock_release(&shim_chunk_mutex);
	return c;
}

CUresult shim_mem_settle_range(CUdeviceptr address, size_t bytes, const char *call)
{
	CUresult r = CUDA_SUCCESS;
	struct shim_chunk *c;

	while (r == CUDA_SUCCESS && shim_mem_joined() && shim_swap_is_on() &&
	       (c = ref_movable(address, bytes)) != NULL) {
		r = settle(c, call);
		lock_take(&shim_chunk_mutex);
		shim_chunk_unref(c);
		lock_release(&shim_chunk_mutex);
	}
	return r;
}

/* Memory that can leave is mapped for its device, to read and write, from the beginning.
 * *ret_other: such memory of another device is in the range. */
static CUresult set_usual_access(CUdeviceptr address, size_t bytes, const CUmemAccessDesc *access,
				 bool *ret_other) REQUIRES(shim_chunk_mutex)
{
	struct shim_chunk_span s = shim_chunk_span(address, bytes);
	CUresult r = CUDA_SUCCESS;

	if (!s.movable) {
		return shim_driver.cuMemSetAccess(address, bytes, access, 1);
	}
	if (!s.exact) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	for (CUdeviceptr end = address + bytes; r == CUDA_SUCCESS && address < end;) {
		const struct mem_region *m = mem_regions_find(&shim_chunk_mappings, address);
		const struct shim_chunk *c = shim_chunk_of(m);

		if (!c->region) {
			r = shim_driver.cuMemSetAccess(address, m->bytes, access, 1);
		} else if (c->prop.location.id != access->location.id) {
			*ret_other = true;
			break;
		}
		address += m->bytes;
	}
	return r;
}

static CUresult set_access(CUdeviceptr address, size_t bytes, const CUmemAccessDesc *access,
			   size_t n)
{
	bool other = false;
	CUresult r;

	if (!shim_mem_joined() || !shim_swap_is_on()) {
		return shim_driver.cuMemSetAccess(address, bytes, access, n);
	}
	if (access && n == 1 && access->location.type == CU_MEM_LOCATION_TYPE_DEVICE &&
	    access->flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE) {
		lock_take(&shim_chunk_mutex);
		r = set_usual_access(address, bytes, access, &other);
		lock_release(&shim_chunk_mutex);
		if (!other) {
			return r;
		}
		if (shim_mem_row(access->location.id) < 0) {
			return CUDA_ERROR_INVALID_DEVICE;
		}
	}
	r = access && n && bytes ? shim_mem_settle_range(address, bytes, "cuMemSetAccess")
				 : CUDA_SUCCESS;
	return r == CUDA_SUCCESS ? shim_driver.cuMemSetAccess(address, bytes, access, n) : r;
}

/* A chunk with a handle of gBPF's has no other one for the program. Returns false if there is none
 * at the address. */
bool shim_chunk_retain(CUmemGenericAllocationHandle *ret, void *address, CUresult *r)
{
	struct mem_region *h, *m;
	struct shim_chunk *c;

	lock_take(&shim_chunk_mutex);
	m = shim_chunk_at((CUdeviceptr)(uintptr_t)address);
	c = m && shim_chunk_of(m)->handle ? shim_chunk_of(m) : NULL;
	if (c) {
		h = mem_regions_find(&shim_chunk_handles, c->handle);
		*r = CUDA_SUCCESS;
		if (h) {
			h->count++;
			c->refs++;
		} else if (shim_chunk_refer(&shim_chunk_handles, c->handle, 0, c) < 0) {
			*r = CUDA_ERROR_OUT_OF_MEMORY;
		}
		*ret = c->handle;
	}
	lock_release(&shim_chunk_mutex);
	return c != NULL;
}

static CUresult properties(CUmemAllocationProp *ret, CUmemGenericAllocationHandle handle)
{
	const struct mem_region *h;
	bool known = false, stale = false;

	if (ret && shim_mem_joined()) {
		lock_take(&shim_chunk_mutex);
		h = mem_regions_find(&shim_chunk_handles, handle);
		known = h && shim_chunk_of(h)->handle;
		stale = shim_chunk_is_stale(handle, h);
		if (known) {
			*ret = shim_chunk_of(h)->prop;
		}
		lock_release(&shim_chunk_mutex);
	}
	if (known || stale) {
		return known ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
	}
	return shim_driver.cuMemGetAllocationPropertiesFromHandle(ret, handle);
}

void shim_chunk_install_moves(void)
{
	shim_real.cuMemSetAccess = set_access;
	shim_real.cuMemGetAllocationPropertiesFromHandle = properties;
}
