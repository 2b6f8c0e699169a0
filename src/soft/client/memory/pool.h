/* Pools of stream-ordered memory. A pool keeps what was freed as blocks of its own, and gives a
 * block out again when nobody can still be using it. Everything is guarded by pool_lock. */
#ifndef GBPF_SOFT_CLIENT_MEMORY_POOL_H
#define GBPF_SOFT_CLIENT_MEMORY_POOL_H

#include "soft/client/memory/memory.h"

struct soft_pool_block {
	struct soft_pool_block *next; /* of the pool */
	CUmemoryPool pool;
	CUcontext ctx;
	uint64_t ctx_id;
	uint64_t address, bytes; /* whole pages */
	uint64_t used;		 /* bytes that were asked for */
	bool live;
	bool exported;	       /* others may have it mapped: not given out again */
	uint32_t slot, target; /* where it was freed: what came before has ended when this has */
};

struct CUmemoryPool_st {
	struct soft_object object;
	CUmemPoolProps props;
	bool is_default, imported, destroyed;
	uint64_t number; /* once it was exported, or imported */
	uint64_t threshold;
	int reuse[3]; /* follow events, opportunistic, internal dependencies */
	uint64_t used, used_high, reserved, reserved_high;
	struct soft_pool_block *blocks;
	uint8_t access[SOFT_MAX_GPUS]; /* of other GPUs */
};

extern pthread_mutex_t soft_pool_lock;

/* Calls each pool there is. */
void soft_pool_each(void (*each)(CUmemoryPool p, void *arg), void *arg);
CUmemoryPool soft_pool_current(int gpu);
/* Gives unused blocks back until no more than so much is kept. */
void soft_pool_trim(CUmemoryPool p, uint64_t keep);
void soft_pool_prune(CUmemoryPool p);	/* blocks whose context has gone */
void soft_pool_destroy(CUmemoryPool p); /* no block is left */

#endif
