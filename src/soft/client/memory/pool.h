/* Pools of stream-ordered memory. A pool stores freed memory as blocks and reuses a block when no
 * work can still access it. soft_pool_lock guards everything. */
#ifndef GBPF_SOFT_CLIENT_MEMORY_POOL_H
#define GBPF_SOFT_CLIENT_MEMORY_POOL_H

#include "soft/client/memory/memory.h"

struct soft_pool_block {
	struct soft_pool_block *next; /* in the pool's list */
	CUmemoryPool pool;
	CUcontext ctx;
	uint64_t ctx_id;
	uint64_t address, bytes; /* in whole pages */
	uint64_t used;		 /* requested bytes */
	bool live;
	bool exported;	       /* other processes may have it mapped: never reused */
	uint32_t slot, target; /* where it was freed: all uses precede this count of the stream */
};

struct CUmemoryPool_st {
	struct soft_object object;
	CUmemPoolProps props;
	bool is_default, imported, destroyed;
	uint64_t number; /* set once it has been exported, or imported */
	uint64_t threshold;
	int reuse[3]; /* follow event dependencies, opportunistic, internal dependencies */
	uint64_t used, used_high, reserved, reserved_high;
	struct soft_pool_block *blocks;
	uint8_t access[SOFT_MAX_GPUS]; /* rights of other GPUs */
};

extern pthread_mutex_t soft_pool_lock;

/* Calls each() for every pool. */
void soft_pool_each(void (*each)(CUmemoryPool p, void *arg), void *arg);
CUmemoryPool soft_pool_current(int gpu);
/* Frees unused blocks until at most `keep` bytes remain. */
void soft_pool_trim(CUmemoryPool p, uint64_t keep);
void soft_pool_prune(CUmemoryPool p); /* drops blocks whose context has been destroyed */
/* Drops the unused blocks of a context that is about to be destroyed: none is trimmed afterwards,
 * when its address may be that of another allocation. */
void soft_pool_leave(CUcontext ctx);
void soft_pool_destroy(CUmemoryPool p); /* it has no blocks */

#endif
