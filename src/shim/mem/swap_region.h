/* Memory that can leave the device, in a process whose vGPU has swap: what cuMemAlloc gives from
 * SHIM_SWAP_MIN on, and of less in packs (shim/mem/packs.h), and what cuMemCreate gives if the
 * program maps it in the usual way. docs/MEMORY-INTERNALS.md ("Memory that leaves the device") says
 * why a chunk can move while the program runs. */
#ifndef GBPF_SHIM_MEM_SWAP_REGION_H
#define GBPF_SHIM_MEM_SWAP_REGION_H

#include <stdbool.h>
#include <stdint.h>

#include "cuabi/types.h"

/* Smallest allocation that can leave by itself, bytes; of other memory than cuMemAlloc's, at all.
 */
#define SHIM_SWAP_MIN (UINT64_C(2) << 20)
/* What leaves at a time, bytes: chunks of the greatest size leave at 88 % of the link's rate,
 * others at 70 and below (H200), but allocations that have less than four of them would be moved as
 * one piece or two. */
#define SHIM_SWAP_CHUNK (UINT64_C(16) << 20)
#define SHIM_SWAP_CHUNK_MAX (UINT64_C(64) << 20)
#define SHIM_SWAP_LARGE (4 * SHIM_SWAP_CHUNK_MAX)

/* Returns true if the driver has what it needs: since CUDA 12.5 (R555). */
bool shim_swap_is_possible(void);
/* Called once, when the process, which sees so many GPUs, has joined a vGPU with swap, before
 * cuInit returns. */
void shim_swap_install(uint32_t gpus);
/* Returns true in a process whose memory can leave the device. */
bool shim_swap_is_on(void);
/* Returns true in such a process, and in one that has opened such memory of another process. */
bool shim_swap_has_regions(void);

/* Allocates bytes, of which as many as are charged to the row within the limit are on the device,
 * and the others on the host. Returns CUDA_ERROR_OUT_OF_MEMORY where neither has room, and
 * CUDA_ERROR_NOT_SUPPORTED if such memory cannot be had: nothing is allocated or charged. */
CUresult shim_swap_alloc(CUdeviceptr *ret, size_t bytes, int row);
/* Allocates MEM_PACK_BYTES likewise, as a pack with one allocation of so many bytes, its address
 * (shim/mem/packs.h). */
CUresult shim_swap_alloc_pack(CUdeviceptr *ret, size_t bytes, int row);
/* ---- memory of cuMemCreate, by shim/mem/chunks.c, which serializes the calls for a region ---- */

struct mem_swap_region;
/* Allocates as shim_swap_alloc() does, for the device of a handle with these properties, but
 * nothing is mapped. The region is the caller's. */
CUresult shim_swap_create(struct mem_swap_region **ret, size_t bytes, int row,
			  const CUmemAllocationProp *prop);
/* Returns true if it is mapped. */
bool shim_swap_is_mapped(const struct mem_swap_region *r);
/* Maps all of it at one address, for its device, to read and write: from there on it can move.
 * Returns the driver's error. */
CUresult shim_swap_map_at(struct mem_swap_region *r, CUdeviceptr base);
CUresult shim_swap_unmap(struct mem_swap_region *r);
/* Frees what is not mapped. */
void shim_swap_discard(struct mem_swap_region *r);
/* Returns the bytes of a region on the device that are charged there and contain nothing yet; 0 if
 * it was ever mapped. */
uint64_t shim_swap_kept(const struct mem_swap_region *r);
/* Gives what it contains to memory of the device of the same size, which takes the place of a
 * mapping, and frees it; the charge of that memory is the caller's. Returns CUDA_ERROR_NOT_READY
 * while work of the process is under way. On errors nothing has changed. */
CUresult shim_swap_settle_in(struct mem_swap_region *r, CUmemGenericAllocationHandle handle);

/* ---- memory of cuMemAlloc ---- */

/* Frees memory of shim_swap_alloc() as cuMemFree does. Returns false for any other address. */
bool shim_swap_free(CUdeviceptr address, CUresult *ret);
/* The same as cuMemFreeAsync. */
bool shim_swap_free_async(CUdeviceptr address, CUstream stream, bool per_thread, CUresult *ret);
/* Closes memory of shim_swap_open() as cuIpcCloseMemHandle does. Returns false for any other
 * address. */
bool shim_swap_close(CUdeviceptr address, CUresult *ret);
/* Frees what cuMemFreeAsync has freed meanwhile. */
void shim_swap_settle(void);
/* Frees memory of the host that is kept for chunks. */
void shim_swap_give_back(void);

/* Moves chunks of the row's device to the host, the oldest first, until that many bytes are free of
 * charge; fewer, if the host has no room, or if work goes on for 5 ms. The caller is between
 * shim_mem_move_begin() and _end(). */
void shim_swap_out(int row, uint64_t bytes);

/* Frees what pools keep (shim_swap_async_free()), and then moves chunks of the row's device to the
 * host, those worth least, until the device has that many bytes less; more by a part of the last
 * one, but no more than `most`, and the vGPU retains `reserve`, whatever its limit leaves; fewer as
 * for shim_swap_out(). No chunk returns to that device for hold_ns. Returns the bytes that the
 * device has no more. 0 bytes: has memory of the host made for an order that may come. */
uint64_t shim_swap_release(int row, uint64_t bytes, uint64_t most, uint64_t reserve,
			   uint64_t hold_ns);
/* Returns true while chunks on the host must not return to the row's device, since another vGPU
 * needs the memory. */
bool shim_swap_is_held(int row);

/* A context has been made; is about to end, or has not ended; has ended, with what was allocated in
 * it up to the epoch. */
void shim_swap_context_seen(CUcontext ctx, CUdevice device);
void shim_swap_context_ending(CUcontext ctx, bool ending);
void shim_swap_context_ended(CUcontext ctx, uint64_t epoch);

/* Returns true if an address is in memory that can leave the device; also if it is in no allocation
 * of a pack. */
bool shim_swap_has(CUdeviceptr address);
/* Returns true if a part of a range belongs to memory of shim_swap_alloc(). */
bool shim_swap_has_own(CUdeviceptr address, size_t bytes);

/* ---- for the files of swapped memory ---- */

/* What programs are answered about an allocation. */
struct shim_swap_view {
	CUdeviceptr base;
	uint64_t bytes, reserved, id;
	CUmemoryPool pool; /* NULL: it is of none */
	CUcontext owner;
	CUcontext copied_in; /* one in which it can be copied; NULL: none is known */
	uint32_t access;     /* devices for which it is mapped, by bits */
	CUdevice device;
	bool by_handle; /* the program has mapped it; it has no owner */
	bool imported;	/* it is another process's */
	uint32_t handle_types;
};
/* Returns false if the address is in no such allocation. */
bool shim_swap_look(CUdeviceptr address, struct shim_swap_view *ret);
void shim_swap_install_calls(void);
/* The slots of calls that only ask, in each process that can open memory of others. */
void shim_swap_install_questions(void);

#endif
