/* What the files about memory share: ranges beyond plain allocations. */
#ifndef GBPF_SOFT_CLIENT_MEMORY_MEMORY_H
#define GBPF_SOFT_CLIENT_MEMORY_MEMORY_H

#include "soft/client/process.h"

/* The context whose window the address lies in, or NULL. */
CUcontext memory_context(uint64_t address);
/* All of it is memory with these rights: 1 read, 2 write. */
bool memory_allows(uint64_t address, uint64_t bytes, uint8_t rights);
/* The context of memory that is asked for without one: the current one, else the first there is. */
CUresult memory_any_context(CUcontext *ret);
/* Calls each range that begins in [address, address + bytes); the lock of the ranges is held. */
void memory_each(CUcontext ctx, uint64_t address, uint64_t bytes,
		 void (*each)(struct range *, void *), void *arg);
/* A request about one context whose reply is only its result. */
CUresult memory_ask(uint32_t op, CUcontext ctx, uint64_t value, uint64_t more0, uint32_t object);
bool memory_check_location(const CUmemLocation *where); /* a GPU that is there */

/* An allocation in the current context, as the calls for it do it; ret NULL is an error. */
CUresult memory_allocate(uint64_t *ret, size_t bytes, const struct range *like);
/* The GPU of a context, and one of the server's, as the program counts them. */
static inline int memory_gpu(const struct CUcontext_st *ctx)
{
	return ctx->device;
}
int memory_ordinal(uint32_t gpu); /* 0 when the program does not see it */

/* pool.c */
/* cuMemFree of stream-ordered memory; its context is idle. */
void pool_free_now(CUcontext ctx, const struct range *r);
/* Somebody has waited for work: what pools keep beyond their threshold goes back. */
void pool_idle(void);

/* ipc.c */
/* Only descriptors travel; the other types that CUDA knows are CUDA_ERROR_NOT_SUPPORTED. */
CUresult ipc_handle_type(CUmemAllocationHandleType type, unsigned long long flags);
/* Asks the server what another process's descriptor stands for; ret is where the program wants it,
 * or NULL by mistake. */
CUresult ipc_import(uint32_t op, void *os, CUmemAllocationHandleType type, unsigned long long flags,
		    const void *ret, struct soft_reply *r);

/* vmm.c */
CUmemAllocationHandleType vmm_handle_types(const struct range *r);
CUmemAllocationHandleType pool_handle_types(const struct range *r);
CUmemoryPool pool_of(const struct range *r);

/* register.c: where kernels reach registered host memory; 0: not all of it is registered. */
uint64_t register_device(uint64_t host, uint64_t bytes);
bool register_range(uint64_t host, uint64_t *ret_begin, uint64_t *ret_bytes); /* as registered */

#endif
