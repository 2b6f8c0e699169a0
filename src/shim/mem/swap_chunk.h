/* Chunks of memory that can leave the device: the driver's calls that make, map and move them. The
 * caller serializes. */
#ifndef GBPF_SHIM_MEM_SWAP_CHUNK_H
#define GBPF_SHIM_MEM_SWAP_CHUNK_H

#include <stdbool.h>

#include "cuabi/types.h"
#include "mem/swap_map.h"
#include "shim/mem/swap_int.h"

/* Maps memory at an address, for these devices (bits), to read and write. */
CUresult shim_swap_map_memory(CUdeviceptr at, uint64_t bytes, uint64_t handle, uint32_t devices);
/* Gives devices access to what is mapped at an address, in addition to those that have it. */
CUresult shim_swap_set_access(CUdeviceptr at, uint64_t bytes, uint32_t devices);
/* Called once, when memory of the process's devices can leave them from now on. */
void shim_swap_chunk_setup(uint32_t gpus);
/* Returns true if memory of the devices can be given to other processes. */
bool shim_swap_can_share(void);
/* Makes memory of the device for the chunk, which is charged already. */
CUresult shim_swap_chunk_create(struct mem_swap_chunk *c);
/* Maps what the chunk has, of the device or else of the host, at its address. */
CUresult shim_swap_chunk_map(const struct mem_swap_chunk *c) REQUIRES(shim_swap_mutex);
CUresult shim_swap_chunk_unmap(const struct mem_swap_chunk *c);
/* Frees memory of the device that is not mapped. */
void shim_swap_chunk_release(struct mem_swap_chunk *c);
/* Gives the chunk memory of the host, and charges it; it is mapped at host_address only. Returns
 * false if there is no room. */
bool shim_swap_chunk_back(struct mem_swap_chunk *c) REQUIRES(shim_swap_mutex);
/* Takes the chunk's memory of the host, which is not mapped at the chunk's address, from it; it is
 * kept for other chunks, or freed. */
void shim_swap_chunk_unback(struct mem_swap_chunk *c) REQUIRES(shim_swap_mutex);
/* Charges memory of the host to swap and, as the kernel cannot move it elsewhere, to pinned memory.
 * Returns false if one of them has no room. From any thread. */
bool shim_swap_charge_host(uint64_t bytes);
void shim_swap_uncharge_host(uint64_t bytes);
/* Makes memory of the host, charged and mapped, that no chunk has yet. Returns false if there is no
 * room. From any thread, also without a context. */
bool shim_swap_chunk_make_host(uint64_t bytes, CUdevice device, uint64_t *ret_handle,
			       uint64_t *ret_address);
/* Frees such memory, and its charge. From any thread. */
void shim_swap_chunk_free_host(uint64_t handle, uint64_t address, uint64_t bytes);
/* Says that a chunk could not be mapped again. */
void shim_swap_say_lost(const struct mem_swap_chunk *c);
/* Maps other memory at the chunk's address, which nothing on the device may use meanwhile. Returns
 * false if it is mapped as it was, or not at all. */
bool shim_swap_chunk_remap(const struct mem_swap_chunk *c, uint64_t from, uint64_t to)
	REQUIRES(shim_swap_mutex);

#endif
