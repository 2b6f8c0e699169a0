/* Memory that can leave the device, in a process whose vGPU has swap: what cuMemAlloc gives from
 * SHIM_SWAP_MIN on. docs/MEMORY-INTERNALS.md ("Memory that leaves the device") says why a chunk can
 * move while the program runs. */
#ifndef GBPF_SHIM_MEM_SWAP_REGION_H
#define GBPF_SHIM_MEM_SWAP_REGION_H

#include <stdbool.h>
#include <stdint.h>

#include "cuabi/types.h"

#define SHIM_SWAP_MIN (UINT64_C(2) << 20)    /* smallest allocation that can leave, bytes */
#define SHIM_SWAP_CHUNK (UINT64_C(16) << 20) /* what leaves at a time, at most, bytes */

/* Returns true if the driver has what it needs: since CUDA 12.5 (R555). */
bool shim_swap_is_possible(void);
/* Called once, when the process has joined a vGPU with swap, before cuInit returns. */
void shim_swap_install(void);
/* Returns true in a process whose memory can leave the device. */
bool shim_swap_is_on(void);

/* Allocates bytes, of which as many as are charged to the row within the limit are on the device,
 * and the others on the host. Returns CUDA_ERROR_OUT_OF_MEMORY where neither has room, and
 * CUDA_ERROR_NOT_SUPPORTED if such memory cannot be had: nothing is allocated or charged. */
CUresult shim_swap_alloc(CUdeviceptr *ret, size_t bytes, int row);
/* Frees memory of shim_swap_alloc() as cuMemFree does. Returns false for any other address. */
bool shim_swap_free(CUdeviceptr address, CUresult *ret);
/* The same as cuMemFreeAsync. */
bool shim_swap_free_async(CUdeviceptr address, CUstream stream, bool per_thread, CUresult *ret);
/* Frees what cuMemFreeAsync has freed meanwhile. */
void shim_swap_settle(void);
/* Frees memory of the host that is kept for chunks. */
void shim_swap_give_back(void);

/* Moves chunks of the row's device to the host, the oldest first, until that many bytes are free of
 * charge; fewer, if the host has no room, or if work goes on for 5 ms. The caller is between
 * shim_mem_move_begin() and _end(). */
void shim_swap_out(int row, uint64_t bytes);

/* Moves chunks of the row's device to the host, those worth least, as far as they are at most that
 * many bytes and the vGPU retains `reserve`, whatever its limit leaves; fewer as for
 * shim_swap_out(). No chunk returns to that device for hold_ns. Returns the bytes that the device
 * has no more. */
uint64_t shim_swap_release(int row, uint64_t bytes, uint64_t reserve, uint64_t hold_ns);
/* Returns true while chunks on the host must not return to the row's device, since another vGPU
 * needs the memory. */
bool shim_swap_is_held(int row);

/* A context has been made; is about to end, or has not ended; has ended, with what was allocated in
 * it up to the epoch. */
void shim_swap_context_seen(CUcontext ctx, CUdevice device);
void shim_swap_context_ending(CUcontext ctx, bool ending);
void shim_swap_context_ended(CUcontext ctx, uint64_t epoch);

/* Returns true if an address is in memory of shim_swap_alloc(). */
bool shim_swap_has(CUdeviceptr address);

/* ---- for the files of swapped memory ---- */

/* What programs are answered about an allocation. */
struct shim_swap_view {
	CUdeviceptr base;
	uint64_t bytes, reserved, id;
	CUcontext owner;
	CUdevice device;
};
/* Returns false if the address is in no such allocation. */
bool shim_swap_look(CUdeviceptr address, struct shim_swap_view *ret);
void shim_swap_install_calls(void);

#endif
