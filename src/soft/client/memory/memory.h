/* Ranges of memory: allocation, lookup by address, and classification of pointers. */
#ifndef GBPF_SOFT_CLIENT_MEMORY_MEMORY_H
#define GBPF_SOFT_CLIENT_MEMORY_MEMORY_H

#include "soft/client/process.h"

/* The context whose window the address lies in, or NULL. */
CUcontext soft_memory_context(uint64_t address);
/* Returns whether all of it is memory with these rights (bit 0 read, bit 1 write). */
bool soft_memory_allows(uint64_t address, uint64_t bytes, uint8_t rights);
/* Returns the context for calls that may lack one: the current one, else the first that exists. */
CUresult soft_memory_any_context(CUcontext *ret);
/* Calls each() for the ranges that begin in [address, address + bytes), with the lock of the ranges
 * held. */
void soft_memory_each(CUcontext ctx, uint64_t address, uint64_t bytes,
		      void (*each)(struct soft_range *, void *), void *arg);
/* Sends a request about one context whose reply is only its result. */
CUresult soft_memory_request(uint32_t op, CUcontext ctx, uint64_t value, uint64_t more0,
			     uint32_t object);
bool soft_memory_check_location(const CUmemLocation *where); /* whether it names an existing GPU */

/* Allocates in the current context, as the entry points do; fails if ret is NULL. */
CUresult soft_memory_allocate(uint64_t *ret, size_t bytes, const struct soft_range *like);
/* Return the program's number for the GPU of a context, or for a GPU of the server. */
static inline int soft_memory_gpu(const struct CUcontext_st *ctx)
{
	return ctx->device;
}
int soft_memory_ordinal(uint32_t gpu); /* 0 if the program may not see it */

/* pool.c */
/* Frees stream-ordered memory for cuMemFree. Its context is idle. */
void soft_pool_free_now(CUcontext ctx, const struct soft_range *r);
/* After a synchronization: frees what pools hold beyond their threshold. */
void soft_pool_trim_idle(void);

/* memory_ipc.c */
/* Only descriptors are supported; fails with CUDA_ERROR_NOT_SUPPORTED for CUDA's other handle
 * types. */
CUresult soft_ipc_check_handle_type(CUmemAllocationHandleType type, unsigned long long flags);
/* Asks the server what another process's descriptor refers to. ret: the caller's output pointer,
 * checked for NULL. */
CUresult soft_ipc_import(uint32_t op, void *os, CUmemAllocationHandleType type,
			 unsigned long long flags, const void *ret, struct soft_reply *r);

/* vmm.c */
CUmemAllocationHandleType soft_vmm_handle_types(const struct soft_range *r);
CUmemAllocationHandleType soft_pool_handle_types(const struct soft_range *r);
CUmemoryPool soft_pool_of(const struct soft_range *r);

/* host_register.c: returns the device address of registered host memory, or 0 unless all of it is
 * registered. */
uint64_t soft_register_device_address(uint64_t host, uint64_t bytes);
bool soft_register_range(uint64_t host, uint64_t *ret_begin,
			 uint64_t *ret_bytes); /* the range as registered */

#endif
