/* Small allocations of cuMemAlloc, of less than SHIM_SWAP_MIN bytes, in a process whose memory can
 * leave the device: in regions of MEM_PACK_BYTES that they share (mem/pack.h). A pack has the size
 * of the driver's blocks, so a process is charged no more than by the driver, a launch that names
 * an allocation names and brings back 2 MiB, and what is empty is freed soon. It belongs to a
 * context, with which it ends. To all other code it is one region. */
#ifndef GBPF_SHIM_MEM_PACKS_H
#define GBPF_SHIM_MEM_PACKS_H

#include <stdbool.h>
#include <stdint.h>

#include "cuabi/types.h"
#include "mem/pack.h"
#include "shim/mem/swap_int.h"

/* Allocates bytes for the current context, on whose device that row is. Returns as
 * shim_swap_alloc(); the memory is the driver's to give then. */
CUresult shim_packs_alloc(CUdeviceptr *ret, size_t bytes, int row);

/* ---- for the files of swapped memory ---- */

/* Makes a region of MEM_PACK_BYTES, which is in the map, a pack with an allocation of so many
 * bytes. Returns false without host memory. */
bool shim_packs_begin(struct mem_swap_region *r, size_t bytes, CUdeviceptr *ret)
	REQUIRES(shim_swap_mutex);
/* A region is about to be removed. */
void shim_packs_dropped(struct mem_swap_region *r) REQUIRES(shim_swap_mutex);
/* A context is about to end: nothing is allocated in the packs that it has now, which may end with
 * it. ending false: it has not ended, and allocates in them again, unless shim_packs_end() came. */
void shim_packs_ending(CUcontext ctx, bool ending) REQUIRES(shim_swap_mutex);
/* Another context may have had the handle: nothing is allocated any more in the packs from before.
 */
void shim_packs_end(CUcontext ctx) REQUIRES(shim_swap_mutex);
/* Returns the allocation of the program that an address in a region is in; NULL: none, or the
 * region is no pack. */
struct mem_pack_part *shim_packs_live(const struct mem_swap_region *r, CUdeviceptr address)
	REQUIRES(shim_swap_mutex);
/* Returns the region of what was allocated at an address under that number, freed or not; NULL: it
 * is no longer in the map. *ret_part becomes the allocation, or NULL: it is the region. */
struct mem_swap_region *shim_packs_find(CUdeviceptr base, uint64_t id,
					struct mem_pack_part **ret_part) REQUIRES(shim_swap_mutex);
/* Frees an allocation that no work uses any more. Returns true if the pack is empty: the caller
 * removes it. */
bool shim_packs_give(struct mem_pack_part *part) REQUIRES(shim_swap_mutex);

#endif
