/* Memory of the host for chunks, each for one of its size, that none of them has: made ahead by a
 * thread of the shim while device memory gets scarce, since a movement that has to make it first
 * runs at a tenth of its rate; and kept from chunks that have returned. Once memory was ordered to
 * leave, or may be soon, and no work is under way, the thread copies the chunks there that would
 * leave first: one that no work may have used since need not be copied when it leaves. Its bytes
 * are charged like those of chunks on the host. A forked child has no pool. */
#ifndef GBPF_SHIM_MEM_SWAP_POOL_H
#define GBPF_SHIM_MEM_SWAP_POOL_H

#include <stdbool.h>
#include <stdint.h>

#include "cuabi/types.h"
#include "shim/mem/swap_int.h"

#define SHIM_SWAP_POOL_IDLE_NS UINT64_C(10000000000) /* after its last use it is given back */

/* Memory that can leave was allocated on the row's device: has the thread make memory for it, if
 * the limit leaves little. */
void shim_swap_pool_want(int row) REQUIRES(shim_swap_mutex);
/* Memory has left the row's device for another vGPU, or may have to soon: has the thread make
 * memory for it, whatever the limit leaves. */
void shim_swap_pool_ordered(int row) REQUIRES(shim_swap_mutex);
/* Waits until the thread is in no call of the driver, for at most the time of one chunk, without
 * the mutex. The pool has what is charged for it then. */
void shim_swap_pool_settle(void) REQUIRES(shim_swap_mutex);
/* Takes memory for a chunk that has none out of the pool, mapped for the chunk's device, and what
 * it was copied to if that is there: c->copied is the interval of that then (swap_int.h). Returns
 * false if there is none of its size. */
bool shim_swap_pool_take(struct mem_swap_chunk *c) REQUIRES(shim_swap_mutex);
/* Gives memory that is mapped for the device to the pool. If it is full, it frees what it has had
 * for longest. */
void shim_swap_pool_put(uint64_t handle, uint64_t address, uint64_t bytes, CUdevice device)
	REQUIRES(shim_swap_mutex);
/* Frees what the pool has had for longest. Returns false if it is empty. */
bool shim_swap_pool_free_oldest(void) REQUIRES(shim_swap_mutex);
/* Frees what the pool has, and has the thread make none for that time. */
void shim_swap_pool_drop(uint64_t pause_ns) REQUIRES(shim_swap_mutex);
/* Returns what the pool has, for any thread. */
uint64_t shim_swap_pool_bytes(void);
/* Before the driver ends: from here on the thread does not call it. The caller holds no lock. */
void shim_swap_pool_stop(void);

/* Makes or frees memory for one chunk, or copies one, whichever is due at that time. Returns false
 * if none is.
 * The thread calls it, and tests. */
bool shim_swap_pool_step(uint64_t now_ns);

#endif
