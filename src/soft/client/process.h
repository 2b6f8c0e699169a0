/* The soft GPU's client, a libcuda.so.1: the state of this process, the objects behind the driver's
 * handles and the calls that its files offer each other. Nothing here is visible to programs. */
#ifndef GBPF_SOFT_CLIENT_PROCESS_H
#define GBPF_SOFT_CLIENT_PROCESS_H

#include <stdbool.h>

#include "base/buf.h"
#include "base/lock.h"
#include "cuabi/names.h"
#include "cuabi/own.h"
#include "cuabi/types.h"
#include "soft/protocol.h"

/* The result of every call after the server has exited. A new process starts a new server. */
#define SOFT_DEAD CUDA_ERROR_SYSTEM_NOT_READY

#define SOFT_DEFAULT_SHARED_PER_BLOCK (48u << 10)
#define SOFT_SHARED_PER_BLOCK (99u << 10)
#define SOFT_SHARED_PER_SM (100u << 10)
#define SOFT_THREADS_PER_SM 1536u
#define SOFT_BLOCKS_PER_SM 16u
#define SOFT_SHARED_RESERVED 1024u /* bytes that each block takes in addition to its own */
#define SOFT_REGISTERS_PER_SM 65536u
#define SOFT_PITCH 512u

enum soft_object_kind {
	SOFT_OBJECT_FREE,
	SOFT_OBJECT_CONTEXT = 0x67430001,
	SOFT_OBJECT_STREAM,
	SOFT_OBJECT_EVENT,
	SOFT_OBJECT_MODULE,
	SOFT_OBJECT_FUNCTION,
	SOFT_OBJECT_LIBRARY,
	SOFT_OBJECT_KERNEL,
	SOFT_OBJECT_GRAPH,
	SOFT_OBJECT_NODE,
	SOFT_OBJECT_EXEC,
	SOFT_OBJECT_USER,
	SOFT_OBJECT_ARRAY,
	SOFT_OBJECT_MIPMAPPED,
	SOFT_OBJECT_POOL,
	SOFT_OBJECT_ALLOCATION, /* of cuMemCreate */
	SOFT_OBJECT_LINKER,
	SOFT_OBJECT_GREEN,
	SOFT_OBJECT_RESOURCES, /* of cuDevResourceGenerateDesc */
	SOFT_OBJECT_TEXREF,
	SOFT_OBJECT_SURFREF,
};

/* The first member of every object that a handle points to. Objects are recycled but never returned
 * to libc, so that a stale handle is recognized without reading freed memory. */
struct soft_object {
	uint32_t kind;
	struct soft_object *next_free;
};

struct soft_range;

/* The device addresses that all contexts on one GPU share, and what this process has there. */
struct soft_window {
	uint64_t base, bytes;	   /* base 0: not reserved yet */
	uint32_t gpu;		   /* in the server's numbering */
	struct lock lock;	   /* guards the ranges */
	struct soft_range *ranges; /* owned; sorted by address */
	uint32_t n_ranges, cap_ranges;
};

/* A piece of the staging buffer that an operation still uses. */
struct soft_staged {
	uint32_t begin, bytes;
	CUstream stream;
	uint32_t stream_slot, target;
	bool held; /* the data of a copy to the host has not been fetched yet */
};

#define SOFT_STAGED_MAX 256u

struct CUcontext_st {
	struct soft_object object;
	uint32_t slot;
	CUdevice device; /* in the program's numbering */
	uint32_t gpu;	 /* in the server's numbering */
	unsigned flags;
	unsigned refs; /* primary: cuDevicePrimaryCtxRetain; else cuCtxAttach */
	bool primary;
	uint64_t id;
	struct soft_window *window; /* borrowed: the GPU's */
	uint32_t seen_error; /* the sticky error that a call has already returned to the program */
	CUstream legacy;
	size_t limits[16];
	CUfunc_cache cache_config;
	CUsharedconfig shared_config;
	struct lock call_lock;		/* strict mode: held while waiting for room in a channel */
	struct soft_textures *textures; /* owned by texture_table.c, guarded by its lock */
	struct lock staging_lock;	/* guards the members below */
	uint64_t staging;		/* address on the host and on the device */
	uint32_t staging_head;
	uint32_t staged_first, staged_n;
	struct soft_staged staged[SOFT_STAGED_MAX];
};

struct CUstream_st {
	struct soft_object object;
	CUcontext context;
	uint32_t slot;
	uint32_t submitted; /* operations submitted; guarded by soft.ring_lock */
	uint32_t created;   /* submitted when it was created: nothing has been put into it */
	int priority;
	unsigned flags;
	bool legacy; /* the default stream of a context */
	uint64_t id;
	CUgreenCtx green; /* the green context that it was created in, or NULL */
	uint64_t green_id;
	unsigned sync_policy; /* CU_SYNC_POLICY_*; 0: that of the context */
	bool reprioritized;   /* the priority differs from the one that the server knows; launches
				 carry it */
	unsigned sync_domain, domain_map[2];
	CUaccessPolicyWindow window;
	struct soft_capturing
		*capturing; /* owned by capture.c; NULL: the stream has never captured */
};

struct CUevent_st {
	struct soft_object object;
	CUcontext context;
	uint32_t slot;
	uint64_t last; /* [atomic] the last record: 1 + stream slot in the high half, the count that
			  the stream has reached when the record is complete in the low half; 0: not
			  recorded */
	unsigned flags;
	uint64_t key; /* of an interprocess event: its key in the server */
	uint32_t index;
	bool shared;
	struct soft_captured
		*captured; /* owned by capture.c; NULL: no capture has recorded the event */
};

struct CUmodule_st {
	struct soft_object object;
	CUcontext context;
	uint32_t id;
	unsigned arch;	   /* target of its PTX: 75 for sm_75 */
	CUlibrary library; /* the library that the module belongs to, or NULL */
	uint64_t managed;  /* address of its variables if any of them is managed; 0: none is */
	size_t managed_bytes;
	CUfunction functions; /* head of the list of its functions */
	CUtexref references;  /* head of the list of its texture and surface references */
	struct soft_registers *registers; /* of machine code, else NULL; a reference */
};

struct CUfunction_st {
	struct soft_object object;
	CUfunction next;
	CUmodule module;
	uint32_t id, n_params, param_bytes;
	uint32_t shared_bytes, local_bytes, const_bytes, registers, max_threads;
	uint32_t max_dynamic_shared;
	int carveout; /* 1 + preferred percentage of shared memory; 0: not set */
	char *name;   /* owned */
	struct {
		uint32_t offset, bytes;
	} * params; /* owned */
	/* Set by the launch calls from before CUDA 4: cuFuncSetBlockShape, cuParamSet*. */
	unsigned old_block[3], old_shared;
	unsigned char *old_params; /* owned */
};

struct CUlibrary_st {
	struct soft_object object;
	void *image; /* owned */
	size_t bytes;
	struct soft_registers *registers; /* of machine code, else NULL; a reference */
	CUmodule modules[SOFT_MAX_CONTEXTS];
	uint64_t module_contexts[SOFT_MAX_CONTEXTS]; /* ids of the contexts, since a new context
							reuses the slot of a destroyed one */
	CUkernel kernels;
	char **names; /* owned; names of its kernels, filled when a call without a context asks for
			 them */
	uint32_t n_names;
};

struct CUkernel_st {
	struct soft_object object;
	CUkernel next;
	CUlibrary library;
	char *name; /* owned */
	int dynamic_shared,
		carveout; /* set for the kernel: 1 + bytes, 2 + percentage; 0: not set */
};

struct soft_process {
	struct lock lock; /* guards start and end, contexts, slots and objects */
	int state;	  /* 0: not initialized, 1: ready; read without the lock after cuInit */
	int dead;	  /* [atomic] the server has exited */
	int forked;	  /* this process is a fork of the one that called cuInit */
	int control, event, bell;
	struct lock control_lock;
	struct lock ring_lock;
	struct soft_shared *shared;
	uint32_t head;	  /* bytes ever written to the ring; guarded by ring_lock */
	uint64_t written; /* [atomic] the same, without wrapping around; read without the lock */
	bool shared_lane; /* the contexts share a group with those of other processes, as MPS
			     clients do */
	struct soft_hello hello;
	CUcontext contexts[SOFT_MAX_CONTEXTS];
	struct soft_window windows[SOFT_MAX_GPUS]; /* by the server's numbering */
	int gpus;				   /* number of GPUs that the program may see */
	uint32_t visible[SOFT_MAX_GPUS];
	CUcontext primary[SOFT_MAX_GPUS];
	unsigned primary_flags[SOFT_MAX_GPUS];
	uint64_t next_id;
	/* Stored under the lock, read without it [atomic]. */
	uint8_t stream_used[SOFT_MAX_STREAMS];	 /* 0: free, 1: in use, 2: destroyed, free after its
						    last operation */
	uint8_t stream_owner[SOFT_MAX_STREAMS];	 /* context slot */
	uint32_t stream_count[SOFT_MAX_STREAMS]; /* operations ever submitted in the slot */
	uint8_t event_used[SOFT_MAX_EVENTS];
	uint32_t event_count[SOFT_MAX_EVENTS];
	uint32_t next_event;
};

extern struct soft_process soft;

/* state.c */
CUresult soft_check(void); /* 0 if initialized, not forked, and the server runs */
CUresult soft_context_current(
	CUcontext *ret_ctx); /* also fails without a current context, or if it has a sticky error */
CUresult soft_context_error(CUcontext ctx);
/* Returns a zeroed object; NULL: out of memory. */
void *soft_object_create(enum soft_object_kind kind, size_t size) REQUIRES(soft.lock);
void soft_object_destroy(void *object) REQUIRES(soft.lock);
bool soft_object_is(const void *object, enum soft_object_kind kind);
/* Resolves a stream handle in the current context. pt: NULL is the per-thread default stream. */
CUresult soft_stream_resolve(CUstream h, int pt, CUstream *ret);
/* The thread's current context, the green context if the current handle is one (else NULL), and
 * that handle. push, pop and set_current take and return handles. */
CUcontext soft_thread_context(void);
CUgreenCtx soft_thread_green(void);
CUcontext soft_thread_handle(void);
CUresult soft_context_push(CUcontext h);
CUresult soft_context_pop(CUcontext *ret);
void soft_context_set_current(CUcontext h);

/* info.c: returns the GPU that an entry of CUDA_VISIBLE_DEVICES names, or -1. */
int soft_info_find_gpu(const char *text, size_t n);

/* private_table.c */
extern const struct cuabi_soft_table soft_private_table;

/* export.c: what the exported functions of cuabi/entries.c ask for. */
int cuabi_unsupported(unsigned index);
int cuabi_in_host_function(void); /* defined in host_call.c */
extern void *const cuabi_own[CUABI_COUNT];

/* Defines both variants of a stream-ordered entry point: impl(0, args) and impl(1, args); the first
 * argument is `pt` of soft_stream_resolve. */
#define SOFT_PAIR(name, suffix, impl, params, ...)                                                 \
	CUresult name params                                                                       \
	{                                                                                          \
		return impl(0, __VA_ARGS__);                                                       \
	}                                                                                          \
	CUresult name##suffix params                                                               \
	{                                                                                          \
		return impl(1, __VA_ARGS__);                                                       \
	}

#endif
