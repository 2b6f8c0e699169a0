/* What the files about memory share: ranges beyond plain allocations. */
#ifndef GBPF_SOFT_CLIENT_MEMORY_MEMORY_H
#define GBPF_SOFT_CLIENT_MEMORY_MEMORY_H

#include "soft/client/process.h"

/* The context whose window the address lies in, or NULL. */
CUcontext soft_memory_context(uint64_t address);
/* All of it is memory with these rights: 1 read, 2 write. */
bool soft_memory_allows(uint64_t address, uint64_t bytes, uint8_t rights);
/* The context of memory that is asked for without one: the current one, else the first there is. */
CUresult soft_memory_any_context(CUcontext *ret);
/* Calls each range that begins in [address, address + bytes); the lock of the ranges is held. */
void soft_memory_each(CUcontext ctx, uint64_t address, uint64_t bytes,
		      void (*each)(struct soft_range *, void *), void *arg);
/* A request about one context whose reply is only its result. */
CUresult soft_memory_request(uint32_t op, CUcontext ctx, uint64_t value, uint64_t more0,
			     uint32_t object);
bool soft_memory_check_location(const CUmemLocation *where); /* a GPU that is there */

/* An allocation in the current context, as the calls for it do it; ret NULL is an error. */
CUresult soft_memory_allocate(uint64_t *ret, size_t bytes, const struct soft_range *like);
/* The GPU of a context, and one of the server's, as the program counts them. */
static inline int soft_memory_gpu(const struct CUcontext_st *ctx)
{
	return ctx->device;
}
int soft_memory_ordinal(uint32_t gpu); /* 0 when the program does not see it */

/* pool.c */
/* cuMemFree of stream-ordered memory; its context is idle. */
void soft_pool_free_now(CUcontext ctx, const struct soft_range *r);
/* Somebody has waited for work: what pools keep beyond their threshold goes back. */
void soft_pool_trim_idle(void);

/* ipc.c */
/* Only descriptors travel; the other types that CUDA knows are CUDA_ERROR_NOT_SUPPORTED. */
CUresult soft_ipc_check_handle_type(CUmemAllocationHandleType type, unsigned long long flags);
/* Asks the server what another process's descriptor stands for; ret is where the program wants it,
 * or NULL by mistake. */
CUresult soft_ipc_import(uint32_t op, void *os, CUmemAllocationHandleType type,
			 unsigned long long flags, const void *ret, struct soft_reply *r);

/* vmm.c */
CUmemAllocationHandleType soft_vmm_handle_types(const struct soft_range *r);
CUmemAllocationHandleType soft_pool_handle_types(const struct soft_range *r);
CUmemoryPool soft_pool_of(const struct soft_range *r);

/* register.c: where kernels reach registered host memory; 0: not all of it is registered. */
uint64_t soft_register_device_address(uint64_t host, uint64_t bytes);
bool soft_register_range(uint64_t host, uint64_t *ret_begin,
			 uint64_t *ret_bytes); /* as registered */

#endif
