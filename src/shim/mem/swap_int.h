/* Memory that can leave the device, for the files swap_region.c and swap_move.c. */
#ifndef GBPF_SHIM_MEM_SWAP_INT_H
#define GBPF_SHIM_MEM_SWAP_INT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/lock.h"
#include "cuabi/types.h"
#include "mem/swap_map.h"

/* Also held over the driver's calls that make, move and free chunks. */
extern struct lock shim_swap_mutex;
extern struct mem_swap_map shim_swap_map GUARDED_BY(shim_swap_mutex);

/* Notes a context. made: just now; if it is known, and ending, the handle is that of another one.
 */
void shim_swap_see(CUcontext ctx, CUdevice device, bool made) REQUIRES(shim_swap_mutex);
/* Returns true if a context is about to end, or has ended. */
bool shim_swap_is_ending(CUcontext ctx) REQUIRES(shim_swap_mutex);
void shim_swap_set_ending(CUcontext ctx, bool ending) REQUIRES(shim_swap_mutex);
/* Forgets a context that has ended, unless it was seen after the epoch. Returns whether another one
 * is left. */
bool shim_swap_forget(CUcontext ctx, uint64_t epoch) REQUIRES(shim_swap_mutex);
/* Records an event behind all work of a context. Returns CUDA_ERROR_NOT_READY while a stream of the
 * process captures, or begins to, which that would invalidate. */
CUresult shim_swap_record(CUcontext ctx, CUevent event);
/* Moves chunks back to the device while the limit has room, as many as fit into one pause. */
void shim_swap_back(int row) REQUIRES(shim_swap_mutex);
/* Has gbpfd grant pinned memory that the limit has. The caller does not hold the mutex. */
void shim_swap_ask_for_host(uint64_t bytes);

#endif
