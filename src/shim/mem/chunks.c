/* Memory of the virtual memory calls: cuMemCreate, cuMemMap, cuMemUnmap, cuMemRelease,
 * cuMemRetainAllocationHandle. The driver keeps a chunk until its last handle is released and its
 * last mapping is removed, and so does the account. A chunk on the host is pinned memory; one that
 * was imported is charged to the process that created it. */
#include <stdlib.h>

#include "mem/region.h"
#include "shim/mem/charge.h"
#include "shim/mem/sharing.h"
#include "shim/shim.h"

struct chunk {
	uint64_t bytes; /* imported: as far as it was mapped, since its size is not known */
	int row;
	uint32_t refs; /* handles and mappings */
	bool imported;
	/* imported: */
	struct shim_mem_identity id;
	uint32_t share; /* shim/mem/sharing.h: that of `bytes` */
};

static struct lock mutex = LOCK_INITIALIZER(MEM_CHUNKS);
/* By handle; owner: the chunk; count: references by it. */
static struct mem_regions handles GUARDED_BY(mutex);
/* By address; owner: the chunk; bytes: length. */
static struct mem_regions mappings GUARDED_BY(mutex);
static uint64_t longest GUARDED_BY(mutex); /* mapping so far, bytes */

static struct chunk *chunk_of(const struct mem_region *r)
{
	return (struct chunk *)(uintptr_t)r->owner;
}

/* Drops a reference. */
static void unref(struct chunk *c) REQUIRES(mutex)
{
	if (--c->refs == 0) {
		if (c->imported) {
			shim_mem_unshare(c->row, c->bytes);
			shim_mem_unnote_share(c->share);
		} else {
			shim_mem_kind_sub(c->row, PROTO_KIND_CREATED, c->bytes);
			shim_mem_release(c->row, c->bytes);
		}
		free(c);
	}
}

/* Adds a handle or mapping of a chunk. Returns 0 or -ENOMEM. */
static int refer(struct mem_regions *t, uint64_t key, uint64_t bytes, struct chunk *c)
	REQUIRES(mutex)
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
static CUresult make(CUmemGenericAllocationHandle *ret, struct chunk *c, size_t bytes,
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
		lock_take(&mutex);
		err = refer(&handles, *ret, 0, c);
		if (!err) {
			shim_mem_kind_add(c->row, PROTO_KIND_CREATED, c->bytes);
		}
		lock_release(&mutex);
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
	struct chunk *c;
	CUresult r;

	if (row < 0 || !ret) {
		return shim_driver.cuMemCreate(ret, bytes, p, flags);
	}
	c = calloc(1, sizeof(*c));
	if (!c) {
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	*c = (struct chunk){ .bytes = shim_mem_round(bytes), .row = row };
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
	struct chunk *c = NULL;
	CUresult r;

	if (!shim_mem_joined()) {
		return shim_driver.cuMemRelease(handle);
	}
	shim_mem_move_begin();
	lock_take(&mutex);
	h = mem_regions_find(&handles, handle);
	if (h) {
		c = chunk_of(h);
		if (h->count > 1) {
			h->count--;
		} else {
			(void)mem_regions_take(&handles, handle, &m);
		}
	}
	lock_release(&mutex);
	r = shim_driver.cuMemRelease(handle);
	lock_take(&mutex);
	if (c && r == CUDA_SUCCESS) {
		unref(c);
	} else if (c && (h = mem_regions_find(&handles, handle))) {
		h->count++;
	} else if (c) {
		(void)mem_regions_add(&handles, &m); /* else it stays charged */
	}
	lock_release(&mutex);
	shim_mem_move_end();
	return r;
}

/* Notes that an imported chunk has at least so many bytes. */
static void note_size(struct chunk *c, uint64_t bytes) REQUIRES(mutex)
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

static CUresult map(CUdeviceptr address, size_t bytes, size_t offset,
		    CUmemGenericAllocationHandle handle, unsigned long long flags)
{
	struct mem_region *h;
	struct chunk *c = NULL;
	CUresult r;
	int err = 0;

	if (!shim_mem_joined()) {
		return shim_driver.cuMemMap(address, bytes, offset, handle, flags);
	}
	lock_take(&mutex); /* a reference of its own, so that the handle may go meanwhile */
	h = mem_regions_find(&handles, handle);
	if (h) {
		c = chunk_of(h);
		c->refs++;
	}
	lock_release(&mutex);
	r = shim_driver.cuMemMap(address, bytes, offset, handle, flags);
	if (!c) {
		return r;
	}
	lock_take(&mutex);
	if (r == CUDA_SUCCESS) {
		err = refer(&mappings, address, bytes, c);
		note_size(c, offset + bytes);
		longest = MAX(longest, (uint64_t)bytes);
	}
	unref(c);
	lock_release(&mutex);
	if (err) {
		(void)shim_driver.cuMemUnmap(address, bytes);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	return r;
}

/* A range may hold several mappings, each of which begins where the one before ends. */
static CUresult unmap(CUdeviceptr address, size_t bytes)
{
	CUdeviceptr end = address + bytes;
	struct mem_region m;
	CUresult r;

	if (!shim_mem_joined()) {
		return shim_driver.cuMemUnmap(address, bytes);
	}
	/* Under the mutex, so that no other thread maps the range again before its entries are
	 * removed. */
	shim_mem_move_begin();
	lock_take(&mutex);
	r = shim_driver.cuMemUnmap(address, bytes);
	while (r == CUDA_SUCCESS && address < end) {
		if (mem_regions_take(&mappings, address, &m)) {
			unref(chunk_of(&m));
			address += m.bytes;
		} else {
			address += SHIM_MEM_UNIT; /* of an imported chunk */
		}
	}
	lock_release(&mutex);
	shim_mem_move_end();
	return r;
}

/* Returns the mapping that an address is in, or NULL. cuMemGetAddressRange does not say where it
 * begins before the device has access, nor for memory of the host. */
static struct mem_region *mapping_at(CUdeviceptr address) REQUIRES(mutex)
{
	CUdeviceptr base = address - address % SHIM_MEM_UNIT;

	for (; address - base < longest; base -= SHIM_MEM_UNIT) {
		struct mem_region *m = mem_regions_find(&mappings, base);

		if (m) {
			return address - base < m->bytes ? m : NULL;
		}
	}
	return NULL;
}

static CUresult retain(CUmemGenericAllocationHandle *ret, void *address)
{
	CUresult r = shim_driver.cuMemRetainAllocationHandle(ret, address);
	struct mem_region *h, *m;

	if (r != CUDA_SUCCESS || !shim_mem_joined()) {
		return r;
	}
	lock_take(&mutex);
	h = mem_regions_find(&handles, *ret);
	m = mapping_at((CUdeviceptr)(uintptr_t)address);
	if (h) {
		h->count++;
		chunk_of(h)->refs++;
	} else if (m && refer(&handles, *ret, 0, chunk_of(m)) < 0) {
		r = CUDA_ERROR_OUT_OF_MEMORY;
	}
	lock_release(&mutex);
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
	struct chunk *c;

	if (!shim_mem_joined()) {
		return;
	}
	lock_take(&mutex);
	h = mem_regions_find(&handles, handle);
	c = h ? chunk_of(h) : NULL;
	if (c) {
		c->refs++;
	}
	if (c && id && !c->imported && c->row != shim_mem_row_host()) {
		(void)shim_mem_note_export(
			c->row, id->is_vague ? shim_mem_identity_of_size(c->row, c->bytes) : *id,
			c->bytes);
	}
	lock_release(&mutex);
}

/* Notes an imported handle. If that cannot be done, the chunk is not shown as shared. */
static void note_import(CUmemGenericAllocationHandle handle, int row, struct shim_mem_identity id)
{
	struct chunk *c = calloc(1, sizeof(*c));
	struct mem_region *h;

	if (c) {
		*c = (struct chunk){ .row = row, .imported = true, .id = id };
	}
	lock_take(&mutex);
	h = mem_regions_find(&handles, handle);
	if (h) { /* one more reference to what this process has */
		h->count++;
		chunk_of(h)->refs++;
	} else if (c && refer(&handles, handle, 0, c) == 0) {
		c = NULL;
	}
	lock_release(&mutex);
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
	CUresult r = shim_driver.cuMemExportToShareableHandle(ret, handle, type, flags);
	struct shim_mem_identity id;

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
	CUresult r = shim_driver.cuMulticastBindMem(multicast, offset, handle, memory_offset, bytes,
						    flags);

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
	shim_real.cuMemRetainAllocationHandle = retain;
}
