/* Memory of pools that can leave the device: what cuMemAllocAsync and cuMemAllocFromPoolAsync give
 * from SHIM_SWAP_MIN on, in a process whose memory can. It consists of regions as memory of
 * cuMemAlloc does. Regions that are freed are kept for allocations of the same size, and count as
 * the pool's, as what the driver keeps for it. docs/MEMORY-INTERNALS.md ("Memory that leaves the
 * device") says why a region can be given away before its work is done. */
#ifndef GBPF_SHIM_MEM_SWAP_ASYNC_H
#define GBPF_SHIM_MEM_SWAP_ASYNC_H

#include <stdbool.h>
#include <stdint.h>

#include "cuabi/types.h"
#include "mem/swap_map.h"
#include "shim/mem/swap_int.h"

/* An allocation as the program has asked for it. */
struct shim_swap_request {
	uint64_t bytes;
	int row; /* of the pool's device, which is the current context's */
	CUmemoryPool pool;
	CUstream stream;
	bool per_thread; /* the default stream is the per-thread one */
};

/* Allocates for a pool to whose memory no other process, context or device has access; no stream
 * captures. Returns as shim_swap_alloc(); from SHIM_SWAP_MIN bytes on. */
CUresult shim_swap_async_alloc(CUdeviceptr *ret, const struct shim_swap_request *a);
/* The program has trimmed a pool to that many bytes, and so has the driver what it has for it. */
void shim_swap_async_trim(CUmemoryPool pool, uint64_t bytes);
/* The program has destroyed a pool. Its allocations live until they are freed. */
void shim_swap_async_destroyed(CUmemoryPool pool);
/* After a synchronization: has pools keep no more than their thresholds say. shim_swap_settle()
 * frees what they do not keep. Costs two loads if they do not. */
void shim_swap_async_settle(void);
/* Has pools keep so much less that the row has room for that many bytes, as far as work is done
 * with it, or, with wait, is within 5 ms. Returns whether they keep less. */
bool shim_swap_async_make_room(int row, uint64_t bytes, bool wait);
/* Frees regions that are kept and done with, the oldest first, until the row's device has that many
 * bytes less; more by a part of the last one, since it frees whole ones, but no more than `most`.
 * It leaves out those without which the vGPU would have less than `reserve`. Returns the bytes that
 * the device has no more. */
uint64_t shim_swap_async_free(int row, uint64_t bytes, uint64_t most, uint64_t reserve);
void shim_swap_async_install(void);

/* ---- for swap_region.c ---- */

/* Keeps a region that was freed behind work of a stream. Returns false if its pool does not keep
 * it. */
bool shim_swap_async_keep(const struct shim_swap_leaving *l, CUstream stream, bool per_thread);
/* The program has freed a region, or the driver has refused that. */
void shim_swap_async_freed(const struct mem_swap_region *r, bool freed) REQUIRES(shim_swap_mutex);
/* A region that was freed is the pool's no more: a settlement will free it. */
void shim_swap_async_left(struct mem_swap_region *r) REQUIRES(shim_swap_mutex);
/* A region of the map is about to be removed. */
void shim_swap_async_dropped(const struct mem_swap_region *r) REQUIRES(shim_swap_mutex);
/* Has a settlement free what is kept on the host and done with. */
void shim_swap_async_leave_host(void) REQUIRES(shim_swap_mutex);
/* A context is about to end: nothing is kept that needs it. */
void shim_swap_async_end(CUcontext ctx) REQUIRES(shim_swap_mutex);
/* Returns the pool of a region; NULL: it is of none, or that has been destroyed. */
CUmemoryPool shim_swap_async_pool(const struct mem_swap_region *r) REQUIRES(shim_swap_mutex);

#endif
