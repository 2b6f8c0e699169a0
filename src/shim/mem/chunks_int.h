/* Chunks of the virtual memory calls, for the files chunks.c and chunk_moves.c.
 *
 * In a vGPU with swap a chunk can leave the device as long as the program uses it in the usual way:
 * mapped once, for its own device, and not exported. The program has a handle of gBPF's then, and
 * the chunk a region (shim/mem/swap_region.h). At the first call for which that does not suffice it
 * settles: it becomes one chunk of the driver's, which the handle stands for. */
#ifndef GBPF_SHIM_MEM_CHUNKS_INT_H
#define GBPF_SHIM_MEM_CHUNKS_INT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/lock.h"
#include "cuabi/types.h"
#include "mem/region.h"
#include "shim/mem/sharing.h"

struct shim_chunk {
	uint64_t bytes; /* imported: as far as it was mapped, since its size is not known */
	int row;
	uint32_t refs; /* handles and mappings */
	bool imported;
	/* With a handle of gBPF's: */
	CUmemGenericAllocationHandle handle; /* 0: the driver's */
	CUmemAllocationProp prop;
	struct mem_swap_region *region;	   /* owned; NULL: it has settled */
	CUmemGenericAllocationHandle real; /* the driver's, which is held, once it has settled */
	/* imported: */
	struct shim_mem_identity id;
	uint32_t share; /* shim/mem/sharing.h: that of `bytes` */
};

extern struct lock shim_chunk_mutex;
/* By handle; owner: the chunk; count: references by it. */
extern struct mem_regions shim_chunk_handles GUARDED_BY(shim_chunk_mutex);
/* By address; owner: the chunk; bytes: length. */
extern struct mem_regions shim_chunk_mappings GUARDED_BY(shim_chunk_mutex);

static inline struct shim_chunk *shim_chunk_of(const struct mem_region *r)
{
	return (struct shim_chunk *)(uintptr_t)r->owner;
}

/* Adds a handle or mapping of a chunk. Returns 0 or -ENOMEM. */
int shim_chunk_refer(struct mem_regions *t, uint64_t key, uint64_t bytes, struct shim_chunk *c)
	REQUIRES(shim_chunk_mutex);
/* Drops a reference. */
void shim_chunk_unref(struct shim_chunk *c) REQUIRES(shim_chunk_mutex);
/* Notes a mapping that was made. Returns 0 or -ENOMEM. */
int shim_chunk_note_mapping(struct shim_chunk *c, CUdeviceptr address, size_t bytes, size_t offset)
	REQUIRES(shim_chunk_mutex);
/* Returns the mapping that an address is in, or NULL. */
struct mem_region *shim_chunk_at(CUdeviceptr address) REQUIRES(shim_chunk_mutex);
/* Unmaps a range of the driver's mappings. */
CUresult shim_chunk_unmap_plain(CUdeviceptr address, size_t bytes) REQUIRES(shim_chunk_mutex);

/* ---- chunk_moves.c: chunks that can leave the device ---- */

/* Makes one, if the call is for memory of the usual kind. Returns false if it is not, or if none
 * can be had. */
bool shim_chunk_create_movable(CUmemGenericAllocationHandle *ret, size_t bytes, int row,
			       const CUmemAllocationProp *p, unsigned long long flags);
/* Returns true for a handle of gBPF's that the program has released: the driver must not see it.
 * found: its entry. */
bool shim_chunk_is_stale(CUmemGenericAllocationHandle handle, const struct mem_region *found);
/* Settles the chunk of a handle, if it was made for these types of handles of other processes, and
 * stores the driver's handle of it, which is valid as long as the program's. Any other handle is
 * the driver's already. */
CUresult shim_chunk_settle_handle(CUmemGenericAllocationHandle *handle, unsigned types,
				  const char *call);
/* cuMemMap of a chunk with a handle of gBPF's, to which the caller has a reference. */
CUresult shim_chunk_map_movable(struct shim_chunk *c, CUdeviceptr address, size_t bytes,
				size_t offset, unsigned long long flags);
/* cuMemRetainAllocationHandle of such a chunk. Returns false if none is mapped at the address. */
bool shim_chunk_retain(CUmemGenericAllocationHandle *ret, void *address, CUresult *r);

/* What a range of addresses has of the mappings. */
struct shim_chunk_span {
	const struct mem_region *movable; /* one of memory that can leave the device, or NULL */
	bool exact;			  /* it consists of whole mappings */
};
struct shim_chunk_span shim_chunk_span(CUdeviceptr begin, size_t bytes) REQUIRES(shim_chunk_mutex);
/* Unmaps an exact range with memory that can leave the device, each mapping by itself. */
CUresult shim_chunk_unmap_each(CUdeviceptr address, size_t bytes) REQUIRES(shim_chunk_mutex);

void shim_chunk_install_moves(void);

#endif
