/* Pools of stream-ordered memory. A pool takes chunks from its device, in steps of 32 MiB, and
 * divides them into blocks. It keeps freed blocks and reuses one when no work can still access it;
 * a chunk goes back to the device as a whole. Memory of pools that can be exported is shared by
 * allocation, so there a chunk has the size of the request and stays one block. soft_pool_lock
 * guards everything. */
#ifndef GBPF_SOFT_CLIENT_MEMORY_POOL_H
#define GBPF_SOFT_CLIENT_MEMORY_POOL_H

#include "base/lock.h"
#include "soft/client/memory/memory.h"

struct soft_pool_chunk {
	uint64_t address, bytes;
	uint32_t blocks; /* that it is divided into */
};

struct soft_pool_block {
	struct soft_pool_block *next;  /* in the pool's list, where a chunk's are in order */
	struct soft_pool_chunk *chunk; /* owned by its blocks together */
	CUmemoryPool pool;
	CUcontext ctx;
	uint64_t ctx_id;
	uint64_t address, bytes; /* in whole pages */
	uint64_t used;		 /* requested bytes */
	bool live;
	bool fresh;	       /* no work has ever used it */
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

extern struct lock soft_pool_lock;

/* Calls each() for every pool. */
void soft_pool_each(void (*each)(CUmemoryPool p, void *arg), void *arg) REQUIRES(soft_pool_lock);
CUmemoryPool soft_pool_current(int gpu);
/* Returns chunks without a block in use to the device until at most `keep` bytes remain. */
void soft_pool_trim(CUmemoryPool p, uint64_t keep) REQUIRES(soft_pool_lock);
void soft_pool_prune(CUmemoryPool p); /* drops blocks whose context has been destroyed */
/* Takes the unused blocks of a context that is about to be destroyed out of use: none is trimmed
 * afterwards, when its address may be that of another allocation. */
void soft_pool_leave(CUcontext ctx);
void soft_pool_destroy(CUmemoryPool p) REQUIRES(soft_pool_lock); /* it has no blocks */

#endif
