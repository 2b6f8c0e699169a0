/* Ranges of memory: allocation, lookup by address, and classification of pointers. */
#ifndef GBPF_SOFT_CLIENT_MEMORY_MEMORY_H
#define GBPF_SOFT_CLIENT_MEMORY_MEMORY_H

#include "soft/client/process.h"

enum soft_range_kind {
	SOFT_RANGE_DEVICE, /* from cuMemAlloc; also variables of modules, and arrays */
	SOFT_RANGE_HOST,   /* from cuMemHostAlloc; also registered memory */
	SOFT_RANGE_MANAGED,
	SOFT_RANGE_POOL,     /* stream-ordered memory */
	SOFT_RANGE_OPENED,   /* another process's memory, by an IPC handle */
	SOFT_RANGE_IMPORTED, /* another process's memory, from a pool */
	SOFT_RANGE_MAPPED,   /* from cuMemMap */
};

struct soft_range {
	uint64_t address, bytes;
	CUcontext ctx; /* that it belongs to; NULL: mapped memory belongs to the process */
	uint64_t id;   /* unique among all ranges of the process's lifetime */
	uint64_t host; /* address in the program, for registered memory */
	void *owner;   /* pool or allocation that the range belongs to */
	uint64_t reserved, reserved_bytes; /* the reserved range that mapped memory lies in */
	uint32_t flags;			   /* as given to cuMemHostAlloc or cuMemHostRegister */
	uint32_t opens;			   /* number of times that its IPC handle is open */
	enum soft_range_kind kind;
	uint8_t hidden, sync; /* sync: CU_POINTER_ATTRIBUTE_SYNC_MEMOPS */
	uint8_t rights;	      /* of kernels and copies to mapped memory: bit 0 read, bit 1 write */
	uint8_t cpu_rights;   /* the same, of the program's own loads and stores */
	uint8_t read_mostly;  /* this and the next three: advice for managed memory */
	uint16_t accessed_by; /* bit 0 the host, bit 1 + n GPU n */
	int preferred, prefetched;
	uint32_t module; /* 1 + id of the module that defines it as a variable, which cuMemFree
			    refuses; 0: none */
};

/* Allocates memory with the kind, flags and owner of `like`. Host kinds are mapped at their device
 * address. *ret_fd (if not NULL): the descriptor that backs the memory. */
CUresult soft_memory_create(CUcontext ctx, uint64_t bytes, const struct soft_range *like,
			    uint64_t *ret_address, int *ret_fd);
CUresult soft_memory_delete(CUcontext ctx, uint64_t address, bool notify_server);
/* Also finds hidden ranges. *ret_ctx: as ret->ctx. */
bool soft_memory_find(uint64_t address, CUcontext *ret_ctx, struct soft_range *ret);
/* Returns whether all bytes are memory that the server reaches; they may belong to several adjacent
 * ranges. */
bool soft_memory_valid(uint64_t address, uint64_t bytes);
bool soft_memory_in_window(
	uint64_t address); /* an address in the window of any GPU, allocated or not */
static inline bool soft_range_is_host(const struct soft_range *r)
{
	return r->kind == SOFT_RANGE_HOST || r->kind == SOFT_RANGE_MANAGED;
}
/* Returns whether the program's own loads and stores have these rights to all of an address range
 * of a window. */
bool soft_memory_cpu_allows(uint64_t address, uint64_t bytes, uint8_t rights);
/* Maps host memory that the server shares at its device address, with the protection of mmap(2), or
 * makes the addresses inaccessible again. */
CUresult soft_memory_map_host(uint64_t address, uint64_t bytes, int fd, int protection);
void soft_memory_unmap_host(uint64_t address, uint64_t bytes);
/* Returns whether a copy (src 0: a memset) blocks its caller. sync: the call is a synchronous one.
 */
bool soft_memory_blocks(uint64_t dst, uint64_t src, bool sync);
/* Changes the range that begins at the address, under the lock of the ranges. Returns false if none
 * begins there. */
bool soft_memory_change(uint64_t address, void (*change)(struct soft_range *, void *), void *arg);
/* Adds memory that soft_memory_create has not made. */
CUresult soft_memory_add(struct soft_window *w, const struct soft_range *r);
/* Removes the range that begins at the address. Returns false if none does. */
bool soft_memory_forget(struct soft_window *w, uint64_t address, struct soft_range *ret);
void soft_memory_drop_module(CUcontext ctx, uint32_t id);
void soft_memory_drop_context(CUcontext ctx);

/* Finds the window of a GPU of the server; reserves its addresses on first use. */
CUresult soft_window_open(uint32_t gpu, struct soft_window **ret);
/* Returns the open window in which the address lies, or NULL. */
struct soft_window *soft_window_at(uint64_t address);
/* Returns whether all of it is memory with these rights (bit 0 read, bit 1 write). */
bool soft_memory_allows(uint64_t address, uint64_t bytes, uint8_t rights);
/* Calls each() for the ranges that begin in [address, address + bytes), with the lock of the ranges
 * held. */
void soft_memory_each(struct soft_window *w, uint64_t address, uint64_t bytes,
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
/* Whether mapped memory lies in the host. */
bool soft_vmm_is_host(const struct soft_range *r);
/* Returns true for memory of the host that cuMemMap has mapped. */
static inline bool soft_range_is_mapped_host(const struct soft_range *r)
{
	return r->kind == SOFT_RANGE_MAPPED && soft_vmm_is_host(r);
}
CUmemAllocationHandleType soft_vmm_handle_types(const struct soft_range *r);
CUmemAllocationHandleType soft_pool_handle_types(const struct soft_range *r);
CUmemoryPool soft_pool_of(const struct soft_range *r);

/* host_register.c: returns the device address of registered host memory, or 0 unless all of it is
 * registered. */
uint64_t soft_register_device_address(uint64_t host, uint64_t bytes);
bool soft_register_range(uint64_t host, uint64_t *ret_begin,
			 uint64_t *ret_bytes); /* the range as registered */

#endif
