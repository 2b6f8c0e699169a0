/* Memory of the virtual memory calls: cuMemCreate, cuMemMap, cuMemUnmap, cuMemRelease,
 * cuMemRetainAllocationHandle. The driver keeps a chunk until its last handle is released and its
 * last mapping is removed, and so does the account. A chunk on the host is pinned memory; one that
 * was imported is charged to the process that created it. */
#include <stdlib.h>

#include "shim/mem/charge.h"
#include "shim/mem/chunks_int.h"
#include "shim/mem/sharing.h"
#include "shim/mem/swap_region.h"
#include "shim/shim.h"

struct lock shim_chunk_mutex = LOCK_INITIALIZER(MEM_CHUNKS);
struct mem_regions shim_chunk_handles, shim_chunk_mappings;
static uint64_t longest GUARDED_BY(shim_chunk_mutex); /* mapping so far, bytes */

void shim_chunk_unref(struct shim_chunk *c) REQUIRES(shim_chunk_mutex)
{
	if (--c->refs) {
		return;
	}
	if (c->imported) {
		shim_mem_unshare(c->row, c->bytes);
		shim_mem_unnote_share(c->share);
	} else if (c->region) {
		shim_swap_discard(c->region);
	} else {
		if (c->real) {
			(void)shim_driver.cuMemRelease(c->real);
		}
		shim_mem_kind_sub(c->row, PROTO_KIND_CREATED, c->bytes);
		shim_mem_release(c->row, c->bytes);
	}
	free(c);
}

int shim_chunk_refer(struct mem_regions *t, uint64_t key, uint64_t bytes, struct shim_chunk *c)
	REQUIRES(shim_chunk_mutex)
{
	struct mem_region r = {
		.key = key, .bytes = bytes, .owner = (uint64_t)(uintptr_t)c, .count = 1
	};
	int err = mem_regions_add(t, &r);

	c->refs += !err;
	return err;
}

/* Returns the row that pays for a chunk; negative: none. */
static int row_of(const CUmemAllocationProp *p)
{
	switch ((unsigned)p->location.type) {
	case CU_MEM_LOCATION_TYPE_DEVICE:
		return shim_mem_row(p->location.id);
	case CU_MEM_LOCATION_TYPE_HOST:
	case CU_MEM_LOCATION_TYPE_HOST_NUMA:
	case CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT:
		return shim_mem_row_host();
	default:
		return -1;
	}
}

/* Charges a chunk, makes it, and notes its first handle. */
static CUresult make(CUmemGenericAllocationHandle *ret, struct shim_chunk *c, size_t bytes,
		     const CUmemAllocationProp *p, unsigned long long flags,
		     struct shim_mem_attempt *a)
{
	CUresult r;
	int err;

	if (!shim_mem_charge(c->row, c->bytes, "cuMemCreate")) {
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	a->charged = c->row != shim_mem_row_host();
	r = shim_driver.cuMemCreate(ret, bytes, p, flags);
	if (r == CUDA_SUCCESS) {
		lock_take(&shim_chunk_mutex);
		err = shim_chunk_refer(&shim_chunk_handles, *ret, 0, c);
		if (!err) {
			shim_mem_kind_add(c->row, PROTO_KIND_CREATED, c->bytes);
		}
		lock_release(&shim_chunk_mutex);
		if (!err) {
			return r;
		}
		(void)shim_driver.cuMemRelease(*ret);
		r = CUDA_ERROR_OUT_OF_MEMORY;
		a->charged = false;
	}
	shim_mem_release(c->row, c->bytes);
	return r;
}

static CUresult create(CUmemGenericAllocationHandle *ret, size_t bytes,
		       const CUmemAllocationProp *p, unsigned long long flags)
{
	int row = p ? row_of(p) : -1;
	struct shim_mem_attempt a = { 0 };
	struct shim_chunk *c;
	CUresult r;

	if (row < 0 || !ret) {
		return shim_driver.cuMemCreate(ret, bytes, p, flags);
	}
	if (shim_chunk_create_movable(ret, bytes, row, p, flags)) {
		return CUDA_SUCCESS;
	}
	c = calloc(1, sizeof(*c));
	if (!c) {
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	*c = (struct shim_chunk){ .bytes = shim_mem_round(bytes), .row = row };
	do {
		shim_mem_move_begin();
		r = make(ret, c, bytes, p, flags, &a);
		shim_mem_move_end();
	} while (shim_mem_again(&a, row, c->bytes, r, "cuMemCreate"));
	if (r != CUDA_SUCCESS) {
		free(c);
	}
	return r;
}

/* Releases a reference by handle. The driver may give the same number to a new chunk as soon as it
 * has released this one, so the entry goes first and comes back if the driver refuses. */
static CUresult release(CUmemGenericAllocationHandle handle)
{
	struct mem_region m = { 0 }, *h;
	struct shim_chunk *c = NULL;
	CUresult r;
	bool stale;

	if (!shim_mem_joined()) {
		return shim_driver.cuMemRelease(handle);
	}
	shim_mem_move_begin();
	lock_take(&shim_chunk_mutex);
	h = mem_regions_find(&shim_chunk_handles, handle);
	stale = shim_chunk_is_stale(handle, h);
	if (h) {
		c = shim_chunk_of(h);
		if (h->count > 1) {
			h->count--;
		} else {
			(void)mem_regions_take(&shim_chunk_handles, handle, &m);
		}
	}
	lock_release(&shim_chunk_mutex);
	r = stale	     ? CUDA_ERROR_INVALID_VALUE
	    : c && c->handle ? CUDA_SUCCESS
			     : shim_driver.cuMemRelease(handle);
	lock_take(&shim_chunk_mutex);
	if (c && r == CUDA_SUCCESS) {
		shim_chunk_unref(c);
	} else if (c && (h = mem_regions_find(&shim_chunk_handles, handle))) {
		h->count++;
	} else if (c) {
		(void)mem_regions_add(&shim_chunk_handles, &m); /* else it stays charged */
	}
	lock_release(&shim_chunk_mutex);
	shim_mem_move_end();
	return r;
}

/* Notes that an imported chunk has at least so many bytes. */
static void note_size(struct shim_chunk *c, uint64_t bytes) REQUIRES(shim_chunk_mutex)
{
	uint32_t share = SHIM_MEM_NO_SHARE;

	if (!c->imported || bytes <= c->bytes) {
		return;
	}
	if (c->row != shim_mem_row_host()) {
		share = shim_mem_note_import(
			c->row, c->id.is_vague ? shim_mem_identity_of_size(c->row, bytes) : c->id,
			bytes);
		shim_mem_unnote_share(c->share);
	}
	c->share = share;
	shim_mem_share(c->row, bytes - c->bytes);
	c->bytes = bytes;
}

int shim_chunk_note_mapping(struct shim_chunk *c, CUdeviceptr address, size_t bytes, size_t offset)
	REQUIRES(shim_chunk_mutex)
{
	int err = shim_chunk_refer(&shim_chunk_mappings, address, bytes, c);

	note_size(c, offset + bytes);
	longest = MAX(longest, (uint64_t)bytes);
	return err;
}

static CUresult map(CUdeviceptr address, size_t bytes, size_t offset,
		    CUmemGenericAllocationHandle handle, unsigned long long flags)
{
	struct mem_region *h;
	struct shim_chunk *c = NULL;
	bool stale;
	CUresult r;
	int err = 0;

	if (!shim_mem_joined()) {
		return shim_driver.cuMemMap(address, bytes, offset, handle, flags);
	}
	lock_take(&shim_chunk_mutex); /* a reference of its own, so that the handle may go meanwhile
				       */
	h = mem_regions_find(&shim_chunk_handles, handle);
	stale = shim_chunk_is_stale(handle, h);
	if (h) {
		c = shim_chunk_of(h);
		c->refs++;
	}
	lock_release(&shim_chunk_mutex);
	if (c && c->handle) {
		r = shim_chunk_map_movable(c, address, bytes, offset, flags);
		lock_take(&shim_chunk_mutex);
		shim_chunk_unref(c);
		lock_release(&shim_chunk_mutex);
		return r;
	}
	if (stale) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	r = shim_driver.cuMemMap(address, bytes, offset, handle, flags);
	if (!c) {
		return r;
	}
	lock_take(&shim_chunk_mutex);
	if (r == CUDA_SUCCESS) {
		err = shim_chunk_note_mapping(c, address, bytes, offset);
	}
	shim_chunk_unref(c);
	lock_release(&shim_chunk_mutex);
	if (err) {
		(void)shim_driver.cuMemUnmap(address, bytes);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	return r;
}

/* A range of the driver's mappings, each of which begins where the one before ends. */
CUresult shim_chunk_unmap_plain(CUdeviceptr address, size_t bytes) REQUIRES(shim_chunk_mutex)
{
	CUresult r = shim_driver.cuMemUnmap(address, bytes);
	CUdeviceptr end = address + bytes;
	struct mem_region m;

	while (r == CUDA_SUCCESS && address < end) {
		if (mem_regions_take(&shim_chunk_mappings, address, &m)) {
			shim_chunk_unref(shim_chunk_of(&m));
			address += m.bytes;
		} else {
			address += SHIM_MEM_UNIT; /* of an imported chunk */
		}
	}
	return r;
}

static CUresult unmap(CUdeviceptr address, size_t bytes)
{
	struct shim_chunk_span s;
	CUresult r;

	if (!shim_mem_joined()) {
		return shim_driver.cuMemUnmap(address, bytes);
	}
	/* Under the mutex, so that no other thread maps the range again before its entries are
	 * removed. */
	shim_mem_move_begin();
	lock_take(&shim_chunk_mutex);
	s = shim_swap_is_on() ? shim_chunk_span(address, bytes) : (struct shim_chunk_span){ 0 };
	r = !s.movable ? shim_chunk_unmap_plain(address, bytes)
	    : s.exact  ? shim_chunk_unmap_each(address, bytes)
		       : CUDA_ERROR_INVALID_VALUE;
	lock_release(&shim_chunk_mutex);
	shim_mem_move_end();
	return r;
}

/* Returns the mapping that an address is in, or NULL. cuMemGetAddressRange does not say where it
 * begins before the device has access, nor for memory of the host. */
struct mem_region *shim_chunk_at(CUdeviceptr address) REQUIRES(shim_chunk_mutex)
{
	CUdeviceptr base = address - address % SHIM_MEM_UNIT;

	for (; address - base < longest; base -= SHIM_MEM_UNIT) {
		struct mem_region *m = mem_regions_find(&shim_chunk_mappings, base);

		if (m) {
			return address - base < m->bytes ? m : NULL;
		}
	}
	return NULL;
}

static CUresult retain(CUmemGenericAllocationHandle *ret, void *address)
{
	struct mem_region *h, *m;
	CUresult r;

	if (ret && shim_mem_joined() && shim_swap_is_on() && shim_chunk_retain(ret, address, &r)) {
		return r;
	}
	r = shim_driver.cuMemRetainAllocationHandle(ret, address);
	if (r != CUDA_SUCCESS || !shim_mem_joined()) {
		return r;
	}
	lock_take(&shim_chunk_mutex);
	h = mem_regions_find(&shim_chunk_handles, *ret);
	m = shim_chunk_at((CUdeviceptr)(uintptr_t)address);
	if (h) {
		h->count++;
		shim_chunk_of(h)->refs++;
	} else if (m && shim_chunk_refer(&shim_chunk_handles, *ret, 0, shim_chunk_of(m)) < 0) {
		r = CUDA_ERROR_OUT_OF_MEMORY;
	}
	lock_release(&shim_chunk_mutex);
	if (r != CUDA_SUCCESS) {
		(void)shim_driver.cuMemRelease(*ret);
	}
	return r;
}

/* Adds a reference that is never dropped: a descriptor or a multicast object keeps the chunk, also
 * where this process does not see it. It stays charged until the process ends. id: of what was
 * exported, NULL: nothing was. */
static void keep(CUmemGenericAllocationHandle handle, const struct shim_mem_identity *id)
{
	struct mem_region *h;
	struct shim_chunk *c;

	if (!shim_mem_joined()) {
		return;
	}
	lock_take(&shim_chunk_mutex);
	h = mem_regions_find(&shim_chunk_handles, handle);
	c = h ? shim_chunk_of(h) : NULL;
	if (c) {
		c->refs++;
	}
	if (c && id && !c->imported && c->row != shim_mem_row_host()) {
		(void)shim_mem_note_export(
			c->row, id->is_vague ? shim_mem_identity_of_size(c->row, c->bytes) : *id,
			c->bytes);
	}
	lock_release(&shim_chunk_mutex);
}

/* Notes an imported handle. If that cannot be done, the chunk is not shown as shared. */
static void note_import(CUmemGenericAllocationHandle handle, int row, struct shim_mem_identity id)
{
	struct shim_chunk *c = calloc(1, sizeof(*c));
	struct mem_region *h;

	if (c) {
		*c = (struct shim_chunk){ .row = row, .imported = true, .id = id };
	}
	lock_take(&shim_chunk_mutex);
	h = mem_regions_find(&shim_chunk_handles, handle);
	if (h) { /* one more reference to what this process has */
		h->count++;
		shim_chunk_of(h)->refs++;
	} else if (c && shim_chunk_refer(&shim_chunk_handles, handle, 0, c) == 0) {
		c = NULL;
	}
	lock_release(&shim_chunk_mutex);
	free(c);
}

static CUresult import(CUmemGenericAllocationHandle *ret, void *shareable,
		       CUmemAllocationHandleType type)
{
	CUresult r = shim_driver.cuMemImportFromShareableHandle(ret, shareable, type);
	CUmemAllocationProp p;
	int row;

	if (r != CUDA_SUCCESS || !shim_mem_joined() ||
	    shim_driver.cuMemGetAllocationPropertiesFromHandle(&p, *ret) != CUDA_SUCCESS) {
		return r;
	}
	row = row_of(&p);
	if (row >= 0) {
		note_import(*ret, row, shim_mem_identity_of_shareable(shareable, type));
	}
	return r;
}

static CUresult export(void *ret, CUmemGenericAllocationHandle handle,
		       CUmemAllocationHandleType type, unsigned long long flags)
{
	CUmemGenericAllocationHandle real = handle;
	struct shim_mem_identity id;
	CUresult r = CUDA_ERROR_INVALID_VALUE;

	if (ret && type && !flags) {
		r = shim_chunk_settle_handle(&real, type, "cuMemExportToShareableHandle");
	}
	if (r == CUDA_SUCCESS) {
		r = shim_driver.cuMemExportToShareableHandle(ret, real, type, flags);
	}
	if (r == CUDA_SUCCESS) {
		id = shim_mem_identity_of_shareable(
			type == CU_MEM_HANDLE_TYPE_FABRIC ? ret : (void *)(intptr_t) * (int *)ret,
			type);
		keep(handle, &id);
	}
	return r;
}

static CUresult bind(CUmemGenericAllocationHandle multicast, size_t offset,
		     CUmemGenericAllocationHandle handle, size_t memory_offset, size_t bytes,
		     unsigned long long flags)
{
	CUmemGenericAllocationHandle real = handle;
	CUresult r = shim_chunk_settle_handle(&real, 0, "cuMulticastBindMem");

	if (r == CUDA_SUCCESS) {
		r = shim_driver.cuMulticastBindMem(multicast, offset, real, memory_offset, bytes,
						   flags);
	}
	if (r == CUDA_SUCCESS) {
		keep(handle, NULL);
	}
	return r;
}

/* Sparse arrays, whose tiles would have to be counted. */
static CUresult map_array(CUarrayMapInfo *list, unsigned n, CUstream stream)
{
	(void)list;
	(void)n;
	(void)stream;
	return CUDA_ERROR_NOT_SUPPORTED;
}

void shim_mem_install_chunks(void)
{
	shim_real.cuMemExportToShareableHandle = export;
	shim_real.cuMemImportFromShareableHandle = import;
	shim_real.cuMulticastBindMem = bind;
	shim_real.cuMemMapArrayAsync = map_array;
	shim_real.cuMemMapArrayAsync_ptsz = map_array;
	shim_real.cuMemCreate = create;
	shim_real.cuMemRelease = release;
	shim_real.cuMemMap = map;
	shim_real.cuMemUnmap = unmap;
	shim_chunk_install_moves();
	shim_real.cuMemRetainAllocationHandle = retain;
}
