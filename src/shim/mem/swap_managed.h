/* Managed memory (cuMemAllocManaged) that can leave the device, in a process whose vGPU has swap:
 * from SHIM_SWAP_MIN on, on devices with concurrent managed access. The driver keeps it right
 * wherever it is, so it moves while the program runs, by prefetches; what has left stays on the
 * host by advice. docs/MEMORY-INTERNALS.md ("Managed memory") says what that relies on. */
#ifndef GBPF_SHIM_MEM_SWAP_MANAGED_H
#define GBPF_SHIM_MEM_SWAP_MANAGED_H

#include <stdbool.h>
#include <stdint.h>

#include "cuabi/types.h"
#include "mem/advice.h"
#include "shim/mem/swap_int.h"

/* Allocates as cuMemAllocManaged. The part that is charged to the row within the limit is taken to
 * be on the device, the rest stays on the host. Returns CUDA_ERROR_NOT_SUPPORTED if such memory
 * cannot leave: nothing is allocated or charged. *ret_full becomes true if the device has less free
 * than is asked for, although the limit has room. */
CUresult shim_managed_alloc(CUdeviceptr *ret, size_t bytes, unsigned flags, int row,
			    bool *ret_full);
/* Frees memory of shim_managed_alloc() as cuMemFree does. Returns false for any other address. */
bool shim_managed_free(CUdeviceptr address, CUresult *ret);
/* A context has ended, with what was allocated in it up to the epoch. */
void shim_managed_context_ended(CUcontext ctx, uint64_t epoch);

/* Moves chunks of the row's device to the host until they have that many bytes, and no more than
 * `most`, and the vGPU retains `reserve`. Returns their bytes, which are free of charge. The caller
 * is between shim_mem_move_begin() and _end(), and does not hold the mutex. */
uint64_t shim_managed_out(int row, uint64_t bytes, uint64_t most, uint64_t reserve);

/* ---- launches: swap_fetch.c ---- */

/* What a launch names of managed memory. */
struct shim_managed_naming {
	struct mem_swap_need need;
	uint64_t use; /* its number */
	int row;
};
void shim_managed_begin_use(struct shim_managed_naming *n) REQUIRES(shim_swap_mutex);
/* As mem_swap_use(). */
uint64_t shim_managed_name(struct shim_managed_naming *n, struct mem_swap_region *r,
			   uint64_t address, uint64_t most, uint32_t cost)
	REQUIRES(shim_swap_mutex);
/* Brings back what a launch misses where the limit has room, or other managed memory is worth less;
 * move_ns_per_mib: of a movement. Returns whether all of it is there then. */
bool shim_managed_fetch(const struct shim_managed_naming *n, uint64_t move_ns_per_mib);

/* ---- calls about parts of it: managed_calls.c ---- */

/* What a range of the program's addresses is. */
struct shim_managed_range {
	struct mem_swap_region *region; /* NULL: not such memory, nor any of it */
	bool spans;			/* more than one allocation: it is refused */
	uint64_t begin, end;		/* offsets in the region, of whole pages */
};
struct shim_managed_range shim_managed_find(CUdeviceptr address, uint64_t bytes)
	REQUIRES(shim_swap_mutex);
/* Brings a part of the range to the device as far as the limit has room: from chunk *next on, which
 * is 0 at first, and as much as moves at a time. Other parts stay on the host, all of them if the
 * agent calls, which does not wait. Returns whether it is to be called again. */
bool shim_managed_bring(const struct shim_managed_range *g, uint32_t *next)
	REQUIRES(shim_swap_mutex);
/* Gives advice of the program's to the driver for the parts of a range that are on the device.
 * Returns the driver's error. */
CUresult shim_managed_advise(const struct shim_managed_range *g, CUmem_advise what,
			     CUmemLocation where) REQUIRES(shim_swap_mutex);
/* Returns true if there is any. */
bool shim_managed_any(void);

void shim_managed_install_calls(void);

#endif
