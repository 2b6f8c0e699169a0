/* The protocol between client and server of the soft GPU: limits, the shared page, ring records,
 * requests. The server does not trust shared memory: it reads each word once and checks it. */
#ifndef GBPF_SOFT_PROTOCOL_H
#define GBPF_SOFT_PROTOCOL_H

#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"

#define SOFT_MAGIC 0x74667347u
#define SOFT_VERSION 10u

#define SOFT_MAX_CLIENTS 1024u
#define SOFT_MAX_CONTEXTS 16u /* per client */
#define SOFT_MAX_STREAMS 1024u
#define SOFT_MAX_EVENTS 16384u
#define SOFT_MAX_MODULES 4096u
#define SOFT_MAX_FUNCTIONS 65536u
#define SOFT_MAX_ALLOCS 65536u	   /* per client and GPU */
#define SOFT_MAX_PINNED 8192u	   /* allocations per client; each is a mapping in the server */
#define SOFT_MAX_PINNED_ALL 49152u /* in total; Linux allows 65530 mappings */
#define SOFT_MAX_QUEUED 8192u	   /* operations taken from the ring, per client */
#define SOFT_MAX_PARTS 256u	   /* sets of SMs, per client */
#define SOFT_PART_RANGES 12u
#define SOFT_MAX_PARAM_BYTES 32764u /* as since CUDA 12.1 */
#define SOFT_MAX_PTX_BYTES (64u << 20)
#define SOFT_ARCH 86u			 /* compute capability 8.6 */
#define SOFT_MAX_CODE_BYTES (128u << 20) /* PTX of one client */
#define SOFT_MAX_CODE_ALL (256u << 20)	 /* PTX of all clients */
#define SOFT_CODE_DECODED 16u /* bytes of decoded kernels that count as one byte of PTX */
#define SOFT_BLOCK_BYTES_MAX (256ull << 20) /* local memory of the threads of one block */
#define SOFT_PRIORITY_GREATEST (-5)	    /* the lowest is 0 */

#define SOFT_PAGE 4096u
#define SOFT_RING_BYTES (1u << 20)
#define SOFT_RECORD_MAX 36864u
#define SOFT_STAGING_BYTES (4u << 20)
#define SOFT_PRINT_BYTES (1u << 20) /* printf output buffered for the client */
/* A record in the print ring: a word with the length and this flag (for standard error), then the
 * text. */
#define SOFT_PRINT_ERROR 0x80000000u
#define SOFT_PRINT_RECORD_MAX 16384u
#define SOFT_MAX_GPUS 8u
#define SOFT_MAX_QUEUED_BYTES (8u << 20) /* of launches, per client */
#define SOFT_MAX_CONNECTIONS 1280u	 /* clients and connections for queries */
#define SOFT_MAX_FLAG_BYTES (64u << 10)
#define SOFT_MAX_FLAGS 64u   /* flag pages per context */
#define SOFT_MAX_NAMES 1024u /* entry points of the driver API */
#define SOFT_SLICE_MAX_US 1000000u
#define SOFT_MAX_HEAP_BYTES (512u << 20) /* per context */

/* Windows of device addresses: all contexts of a client on GPU i share the one that begins at
 * FIRST + i * STRIDE. Neither
 * programs nor libraries (nor AddressSanitizer's shadow) are mapped there, so a device address is
 * never a host address by accident. Pinned host memory is mapped at its device address. */
#ifndef SOFT_WINDOW_FIRST /* ThreadSanitizer needs others (meson.build) */
#define SOFT_WINDOW_FIRST 0x200000000000ull
#define SOFT_WINDOW_STRIDE 0x010000000000ull /* 1 TiB */
#endif
#define SOFT_GRANULARITY (2ull << 20) /* of cuMemCreate, cuMemMap and reserved addresses */
#define SOFT_MAX_HANDLES 16384u	      /* of cuMemCreate and imports, per client */
#define SOFT_ON_HOST UINT32_MAX	      /* instead of a GPU: memory of the host */

/* The memory that a client and the server share. The comments name the writer of each word. */
struct soft_stream_word {
	uint32_t done;	  /* server: operations of the stream that have ended, modulo 2^32 */
	uint32_t waiters; /* client: threads that wait for `done` by futex */
};

/* Holds only the time. Whether a record is complete is seen in the word of its stream, since the
 * event may have been recorded again in another stream. */
struct soft_event_word {
	uint64_t when_ns; /* server: time of the newest complete record, by its clock */
};

struct soft_shared {
	uint32_t magic, version;
	ALIGNED(64) uint32_t head; /* client: bytes put into the ring, modulo 2^32 */
	uint32_t room_waiters;	   /* client: threads that wait for room in the ring */
	ALIGNED(64) uint32_t tail; /* server: bytes taken from the ring */
	ALIGNED(64)
	uint32_t asleep; /* server: 1: ring the doorbell; the client that rings stores 0 */
	ALIGNED(64) uint32_t context_error[SOFT_MAX_CONTEXTS]; /* server: sticky CUresult */
	ALIGNED(64) uint32_t print_head; /* server: bytes printed by kernels, modulo 2^32 */
	uint32_t print_lost;		 /* server: texts that did not fit */
	ALIGNED(64) uint32_t print_tail; /* client: bytes written to standard output */
	uint8_t print[SOFT_PRINT_BYTES];
	uint32_t names;			      /* client: CUABI_COUNT of its build */
	uint32_t unsupported[SOFT_MAX_NAMES]; /* client: calls of unsupported functions, by index of
						 cuabi_names */
	struct soft_stream_word streams[SOFT_MAX_STREAMS];
	struct soft_event_word events[SOFT_MAX_EVENTS];
	ALIGNED(4096) uint8_t ring[SOFT_RING_BYTES];
};

/* Ring records. Each except PAD counts as one operation of its stream. */
enum soft_op {
	SOFT_OP_PAD, /* fills the ring up to its end */
	SOFT_OP_STREAM_CREATE,
	SOFT_OP_STREAM_DESTROY,
	SOFT_OP_LAUNCH,
	SOFT_OP_COPY,
	SOFT_OP_SET,
	SOFT_OP_RECORD,
	SOFT_OP_WAIT,
	SOFT_OP_HOST,
	SOFT_OP_FREE,
	SOFT_OP_VALUE,
	SOFT_OP_SHARED_RECORD, /* record of an interprocess event */
	SOFT_OP_SHARED_WAIT,
	SOFT_OP_COUNT
};

#define SOFT_STREAM_NON_BLOCKING 1u
#define SOFT_STREAM_LEGACY 2u /* the context's default stream */

struct soft_record {
	uint32_t bytes; /* of the whole record; a multiple of 16 */
	uint16_t op;
	uint16_t context;
	uint32_t stream;
	uint32_t reserved;
};

struct soft_record_stream {
	struct soft_record r;
	int32_t priority;
	uint32_t flags;
	uint64_t part; /* streams with the same number share a default stream; 0: that of the
			  context */
};

#define SOFT_LAUNCH_COOPERATIVE 1u /* all blocks resident together, with a grid barrier */
#define SOFT_LAUNCH_PRIORITY 2u

struct soft_record_launch { /* followed by the parameters */
	struct soft_record r;
	uint32_t function;
	uint32_t grid[3];
	uint32_t block[3];
	uint32_t shared_bytes;
	uint32_t param_bytes;
	uint32_t flags;	  /* SOFT_LAUNCH_* */
	int32_t priority; /* if SOFT_LAUNCH_PRIORITY: replaces that of the stream */
	uint32_t part;	  /* 1 + number of the set of SMs that its blocks may use; 0: all SMs */
};

/* The addresses lie in the windows of the two contexts. Pitches matter only if height > 1. */
struct soft_record_copy {
	struct soft_record r;
	uint64_t dst, src;
	uint64_t dst_pitch, src_pitch;
	uint64_t width, height; /* in bytes and rows */
	uint32_t bulk;		/* part of a copy larger than the caches */
	uint32_t pad[3];
};

struct soft_record_set {
	struct soft_record r;
	uint64_t dst, pitch;
	uint64_t width, height; /* in elements and rows */
	uint32_t value;
	uint32_t unit; /* bytes of an element: 1, 2 or 4 */
	uint64_t pad;
};

struct soft_record_event {
	struct soft_record r;
	uint32_t event;
	uint32_t count; /* number of this record among the event's */
	uint64_t pad;
};

struct soft_record_wait { /* waits until `stream` has completed `target` operations */
	struct soft_record r;
	uint32_t stream;
	uint32_t target;
	uint64_t pad;
};

struct soft_record_host {
	struct soft_record r;
	uint64_t cookie;
	uint64_t pad;
};

struct soft_record_free {
	struct soft_record r;
	uint64_t address;
	uint64_t pad;
};

struct soft_record_shared {
	struct soft_record r;
	uint64_t key;
	uint32_t index;
	uint32_t ticket; /* of the record; assigned before by SOFT_EVENT_ISSUE */
};

enum soft_value_mode {
	SOFT_VALUE_GEQ,
	SOFT_VALUE_EQ,
	SOFT_VALUE_AND,
	SOFT_VALUE_NOR,
	SOFT_VALUE_WRITE
};

struct soft_record_value {
	struct soft_record r;
	uint64_t address;
	uint64_t value;
	uint32_t unit; /* 4 or 8 */
	uint32_t mode; /* enum soft_value_mode */
	uint64_t pad;
};

/* Requests and replies on the control socket (SOCK_SEQPACKET). A reply begins with a CUresult. */
enum soft_request_op {
	SOFT_REQ_HELLO = 1, /* reply carries: shared memory, doorbell, event socket */
	SOFT_REQ_STATS,
	SOFT_REQ_CONTEXT_CREATE, /* index: GPU */
	SOFT_REQ_CONTEXT_DESTROY,
	SOFT_REQ_ALLOC, /* reply carries the memfd if the kind is pinned */
	SOFT_REQ_FREE,
	SOFT_REQ_MEMORY,      /* index: GPU */
	SOFT_REQ_MODULE_LOAD, /* carries a sealed memfd with the image; index: highest accepted
				 architecture of PTX, or 0. Reply: id in value32, .target in value;
				 if variables are managed, their address in bytes, and the memfd */
	SOFT_REQ_MODULE_UNLOAD,
	/* The name of a function or variable that is too long for a request is in a sealed memfd,
	 * with its terminating zero. */
	SOFT_REQ_FUNCTION,
	SOFT_REQ_FUNCTION_AT, /* value: where the part of the name begins that the reply has */
	SOFT_REQ_GLOBAL,
	SOFT_REQ_GROUP,
	/* Shared memory. Several numbers are passed in more[]. */
	SOFT_REQ_IPC_EXPORT, /* value: address. Reply: soft_ipc_handle */
	SOFT_REQ_IPC_OPEN, /* more: soft_ipc_handle; object: 1 if from a pool. Reply: address, bytes
			    */
	SOFT_REQ_IPC_CLOSE,	 /* value: address */
	SOFT_REQ_HANDLE_CREATE,	 /* index: GPU, value: bytes, object: 1 of host memory. Reply:
				    handle */
	SOFT_REQ_HANDLE_RELEASE, /* value: handle */
	SOFT_REQ_HANDLE_EXPORT,	 /* value: handle. Reply carries a descriptor */
	SOFT_REQ_HANDLE_IMPORT,	 /* carries the descriptor. Reply: handle, bytes; value32: index of
				    the GPU, or SOFT_ON_HOST */
	/* Addresses of the window of a GPU (index), which need no context. */
	SOFT_REQ_RESERVE,   /* value: bytes; more: alignment, requested address. Reply: address */
	SOFT_REQ_UNRESERVE, /* value: address; more: bytes */
	/* value: address; more: bytes, offset, handle. Reply: address and bytes of the reserved
	 * range; carries the memfd of host memory, mapped from the offset on. */
	SOFT_REQ_MAP,
	SOFT_REQ_UNMAP,	      /* value: address; more: bytes */
	SOFT_REQ_ACCESS,      /* value: address, object: rights; more: bytes */
	SOFT_REQ_POOL_EXPORT, /* index: GPU, value: 0 or the pool's number. Reply: number,
				 descriptor */
	SOFT_REQ_POOL_IMPORT, /* carries the descriptor. Reply: number, index of the GPU in value32
			       */
	/* Accepted without HELLO: */
	SOFT_REQ_GPUS,	      /* index: GPU, value: number of the first group to list */
	SOFT_REQ_UNSUPPORTED, /* index: first entry to list, value: pid of a client, or 0 for all
				 since the server started. Reply: value32 = next entry, 0: no more
			       */
	SOFT_REQ_CONTROL,     /* carries a control descriptor; object and value as in GROUP */
	/* Only after HELLO: */
	SOFT_REQ_CONTROL_OPEN, /* reply carries the context's control descriptor */
	SOFT_REQ_FLAG_NEW, /* value: bytes, object: 1 if kernels may write. Reply: address, bytes,
			      carries the memfd */
	SOFT_REQ_FLAG_MAP, /* carries the memfd of a flag page; object as in FLAG_NEW */
	/* An interprocess event; object: verb, index and value: the event and its key. */
	SOFT_REQ_EVENT,
	/* A set of SMs; object: verb. NEW: value ranges in more[], two in each, the first in the
	 * low half: first SM | count << 16. Reply: value32 = number. FREE: index: number. */
	SOFT_REQ_PART,
	/* index: GPU, value: address, more: bytes; whole pages of device memory. Reply carries the
	 * memfd that holds the client's device memory; value: where it begins there. */
	SOFT_REQ_WINDOW,
	SOFT_REQ_COUNT
};

enum soft_event_verb {
	SOFT_EVENT_CREATE, /* reply: value32 = index, value = key */
	SOFT_EVENT_OPEN,
	SOFT_EVENT_CLOSE,
	SOFT_EVENT_ISSUE, /* reply: value32 = ticket for the record that follows in the ring */
	SOFT_EVENT_QUERY, /* reply: value32 = newest ticket, value = newest complete ticket */
};

/* What a variable of a module is: value32 of the reply to SOFT_REQ_GLOBAL. */
enum soft_variable_kind {
	SOFT_VARIABLE_PLAIN,
	SOFT_VARIABLE_MANAGED,
	SOFT_VARIABLE_TEXREF, /* holds the handle of a texture object */
	SOFT_VARIABLE_SURFREF,
};

enum soft_part_verb { SOFT_PART_NEW, SOFT_PART_FREE };

enum soft_memory_kind { SOFT_MEMORY_DEVICE, SOFT_MEMORY_PINNED };
enum soft_group_verb {
	SOFT_GROUP_SLICE_SET,
	SOFT_GROUP_SLICE_GET,
	SOFT_GROUP_PREEMPT,  /* value 1: reply after the group has left the GPU */
	SOFT_GROUP_SCHEDULE, /* value 0: reply when nothing of the group runs */
	SOFT_GROUP_COUNTERS,
	SOFT_GROUP_HEAP /* value: bytes of the heap of kernels; refused once a kernel has used it */
};

#define SOFT_NAME_MAX 1024u
#define SOFT_TEXT_MAX 4096u
#define SOFT_PARAMS_MAX 1024u

struct soft_request {
	uint32_t op; /* enum soft_request_op */
	uint32_t context;
	uint32_t object; /* module, kind or verb */
	uint32_t index;
	uint64_t value; /* bytes or address */
	uint64_t more[6];
	char name[SOFT_NAME_MAX];
};
/* A request is sent only up to the terminating zero of its name. */
#define SOFT_REQUEST_MIN offsetof(struct soft_request, name)

/* The contents of a CUipcMemHandle. The secret makes handles unforgeable. */
struct soft_ipc_handle {
	uint64_t server;
	uint32_t pid, context;
	uint64_t address;
	uint64_t secret[2];
};

struct soft_hello {
	uint32_t magic, version;
	uint32_t sms;
	uint32_t workers;
	uint64_t memory_bytes; /* of each GPU */
	int32_t pid;
	uint32_t gpus;
	uint32_t clock_khz; /* as reported in device attributes */
	uint32_t copy_engines;
	uint64_t window_bytes; /* of device addresses, on each GPU */
};

struct soft_context_info {
	uint32_t slot;
};

struct soft_function_info {
	uint32_t id;
	uint32_t n_params;
	uint32_t param_bytes;
	uint32_t shared_bytes, local_bytes, const_bytes;
	uint32_t registers, max_threads;
	struct {
		uint32_t offset, bytes;
	} params[SOFT_PARAMS_MAX];
};

/* Resources that the server holds; constant over time unless something leaks. */
struct soft_stats {
	uint64_t clients, contexts, streams, modules, functions, allocations;
	uint64_t memory_used, memory_total, pinned_used;
	uint64_t operations, launches, blocks_resident;
	uint64_t descriptors; /* file descriptors open in the server */
	uint64_t refused;     /* clients disconnected for invalid messages */
	uint64_t shares;      /* exported, created and imported memory, and descriptors for it */
	/* Totals of all blocks since the server started. lane_instructions: warp instructions times
	 * their active lanes. run_ns: time spent in blocks, summed over execution threads. */
	uint64_t warp_instructions, lane_instructions, run_ns;
	/* Bytes that passed the links from the host to GPUs, and back; 0 unless modelled. */
	uint64_t link_up, link_down;
};

struct soft_counters {
	uint64_t switches_in, preempted, run_ns, blocks_done, launches_done, bytes_copied;
	/* Times that the GPU switched away from the group: without work, between blocks, with
	 * blocks inside kernels. */
	uint64_t left_idle, left_between, left_inside;
	uint64_t held_ns; /* wall time for which the group had the GPU */
};

/* One context in the list of a GPU. */
struct soft_group_info {
	int32_t pid;
	uint32_t context;
	uint64_t memory_bytes; /* allocated device memory */
	uint64_t slice_us;
	uint64_t run_ns, switches_in, launches_done, bytes_copied;
	int32_t error; /* sticky CUresult */
	uint32_t enabled;
	uint32_t blocks_resident;
	uint32_t pad;
};

#define SOFT_GPU_GROUPS 64u
struct soft_gpu_info {
	uint32_t gpus; /* of this server */
	uint32_t sms, workers, copy_engines, clock_khz;
	uint32_t pid; /* the server */
	uint64_t memory_bytes, memory_used;
	uint64_t copy_bytes_s, slice_us, switch_us;
	/* Two replies give the utilization in between: difference of busy_ns by difference of
	 * now_ns. */
	uint64_t now_ns, busy_ns, bytes_copied, switches;
	uint32_t groups; /* number of groups of the GPU */
	uint32_t n;	 /* in this answer */
	struct soft_group_info group[SOFT_GPU_GROUPS];
};

#define SOFT_UNSUPPORTED_NAMES 48u
struct soft_unsupported_info {
	uint32_t n, pad;
	struct {
		char name[64];
		uint64_t calls;
	} entry[SOFT_UNSUPPORTED_NAMES];
};

struct soft_reply {
	int32_t result;
	uint32_t value32;
	uint64_t value;
	uint64_t bytes;
	union {
		struct soft_hello hello;
		struct soft_stats stats;
		struct soft_context_info context;
		struct soft_function_info function;
		struct soft_counters counters;
		struct soft_ipc_handle ipc;
		struct soft_gpu_info gpu;
		struct soft_unsupported_info unsupported;
		char text[SOFT_TEXT_MAX]; /* error text for MODULE_LOAD, name for FUNCTION_AT */
	};
};
/* Replies are sent only as far as they are used. */
#define SOFT_REPLY_MIN offsetof(struct soft_reply, hello)

/* Messages on the event socket. */
enum soft_notice_op {
	SOFT_NOTICE_HOST = 1,  /* server to client: run the host function */
	SOFT_NOTICE_HOST_DONE, /* client to server */
	SOFT_NOTICE_FAULT,     /* server to client: text for the log */
};

struct soft_notice {
	uint32_t op;
	uint32_t stream;
	uint64_t cookie;
	int32_t result; /* state of the context when the function runs */
	uint32_t pad;
	char text[256];
};

#endif
