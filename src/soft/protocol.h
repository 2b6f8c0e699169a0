/* What client and server of the soft GPU say to each other: limits, the shared page, ring records,
 * requests. The server believes nothing that lies in shared memory: it reads each word once and
 * checks it. */
#ifndef GBPF_SOFT_PROTOCOL_H
#define GBPF_SOFT_PROTOCOL_H

#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"

#define SOFT_MAGIC 0x74667347u
#define SOFT_VERSION 5u

#define SOFT_MAX_CLIENTS 64u
#define SOFT_MAX_CONTEXTS 16u /* of one client */
#define SOFT_MAX_STREAMS 1024u
#define SOFT_MAX_EVENTS 16384u
#define SOFT_MAX_MODULES 4096u
#define SOFT_MAX_FUNCTIONS 65536u
#define SOFT_MAX_ALLOCS 65536u	   /* of one context */
#define SOFT_MAX_PINNED 8192u	   /* allocations of one client; each is a mapping of the server */
#define SOFT_MAX_PINNED_ALL 49152u /* of all clients; the kernel allows 65530 mappings */
#define SOFT_MAX_QUEUED 8192u	   /* operations of one client, taken from the ring */
#define SOFT_MAX_PARTS 256u	   /* sets of SMs of one client */
#define SOFT_PART_RANGES 12u
#define SOFT_MAX_PARAM_BYTES 4096u
#define SOFT_MAX_PTX_BYTES (64u << 20)
#define SOFT_ARCH 86u			 /* compute capability 8.6 */
#define SOFT_MAX_CODE_BYTES (128u << 20) /* PTX of one client */
#define SOFT_MAX_CODE_ALL (256u << 20)	 /* of all */
#define SOFT_CODE_DECODED 16u		 /* bytes of decoded kernels that count as one of those */
#define SOFT_BLOCK_BYTES_MAX (256ull << 20) /* local memory of one block's threads */
#define SOFT_PRIORITY_GREATEST (-5)	    /* 0 is the least */

#define SOFT_PAGE 4096u
#define SOFT_RING_BYTES (1u << 20)
#define SOFT_RECORD_MAX 8192u
#define SOFT_STAGING_BYTES (4u << 20)
#define SOFT_PRINT_BYTES (1u << 20) /* of printf output that waits for the client */
/* A record in the print ring: a word with the length and this flag (standard error); the text. */
#define SOFT_PRINT_ERROR 0x80000000u
#define SOFT_PRINT_RECORD_MAX 16384u
#define SOFT_MAX_GPUS 8u
#define SOFT_MAX_QUEUED_BYTES (8u << 20) /* of launches of one client */
#define SOFT_MAX_CONNECTIONS 128u	 /* clients, and who only asks */
#define SOFT_MAX_FLAG_BYTES (64u << 10)
#define SOFT_MAX_FLAGS 64u   /* flag pages of one context */
#define SOFT_MAX_NAMES 1024u /* entry points of the driver API */
#define SOFT_SLICE_MAX_US 1000000u
#define SOFT_MAX_HEAP_BYTES (512u << 20) /* of one context */

/* Windows of device addresses: context slot i begins at FIRST + i * STRIDE. Chosen where neither
 * programs nor libraries are mapped (AddressSanitizer and its shadow included), so that a device
 * address is never a host address by accident; pinned host memory is mapped at its device address.
 */
#ifndef SOFT_WINDOW_FIRST /* ThreadSanitizer wants it where programs may be (meson.build) */
#define SOFT_WINDOW_FIRST 0x200000000000ull
#endif
#define SOFT_WINDOW_STRIDE 0x010000000000ull /* 1 TiB */
#define SOFT_GRANULARITY (2ull << 20)	     /* of cuMemCreate, cuMemMap and reserved addresses */
#define SOFT_MAX_HANDLES 16384u		     /* of cuMemCreate and imports, of one client */

/* The page that a client and the server share. */
struct soft_stream_word {
	uint32_t done;	  /* server: operations of the stream that have ended, modulo 2^32 */
	uint32_t waiters; /* client: threads that wait for it by futex */
};

/* Only the time: that a record has been reached is seen in its stream's word, since an event may be
 * recorded again, in another stream, before. */
struct soft_event_word {
	uint64_t
		when_ns; /* server: its clock when the newest record that was reached was reached */
};

struct soft_shared {
	uint32_t magic, version;
	ALIGNED(64) uint32_t head; /* client: bytes put into the ring, modulo 2^32 */
	uint32_t room_waiters;	   /* client: threads that wait for room */
	ALIGNED(64) uint32_t tail; /* server: bytes taken */
	ALIGNED(64)
	uint32_t asleep; /* server: 1, ring the doorbell; the client that rings sets 0 */
	ALIGNED(64) uint32_t context_error[SOFT_MAX_CONTEXTS]; /* server: sticky CUresult */
	ALIGNED(64) uint32_t print_head; /* server: bytes that kernels have printed, modulo 2^32 */
	uint32_t print_lost;		 /* server: texts that did not fit */
	ALIGNED(64) uint32_t print_tail; /* client: bytes written to standard output */
	uint8_t print[SOFT_PRINT_BYTES];
	uint32_t names;			      /* client: CUABI_COUNT of its build */
	uint32_t unsupported[SOFT_MAX_NAMES]; /* client: calls in vain, by index of cuabi_names */
	struct soft_stream_word streams[SOFT_MAX_STREAMS];
	struct soft_event_word events[SOFT_MAX_EVENTS];
	ALIGNED(4096) uint8_t ring[SOFT_RING_BYTES];
};

/* Ring records. Each counts as one operation of its stream, except PAD. */
enum soft_op {
	SOFT_OP_PAD, /* the rest of the ring up to its end */
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
	SOFT_OP_SHARED_RECORD, /* an event of several processes */
	SOFT_OP_SHARED_WAIT,
	SOFT_OP_COUNT
};

#define SOFT_STREAM_NON_BLOCKING 1u
#define SOFT_STREAM_LEGACY 2u /* the context's default stream */

struct soft_record {
	uint32_t bytes; /* of the whole record, a multiple of 16 */
	uint16_t op;
	uint16_t context;
	uint32_t stream;
	uint32_t reserved;
};

struct soft_record_stream {
	struct soft_record r;
	int32_t priority;
	uint32_t flags;
	uint64_t part; /* streams of one number have their own default stream; 0: the context's */
};

#define SOFT_LAUNCH_COOPERATIVE 1u /* all blocks must be resident together; gets a grid barrier */
#define SOFT_LAUNCH_PRIORITY 2u

struct soft_record_launch { /* parameters follow */
	struct soft_record r;
	uint32_t function;
	uint32_t grid[3];
	uint32_t block[3];
	uint32_t shared_bytes;
	uint32_t param_bytes;
	uint32_t flags;	  /* SOFT_LAUNCH_* */
	int32_t priority; /* with SOFT_LAUNCH_PRIORITY instead of the stream's */
	uint32_t part;	  /* 1 + number of the set of SMs that its blocks may be on; 0: all */
};

/* Addresses lie in the windows of the two contexts; pitches count only when height > 1. */
struct soft_record_copy {
	struct soft_record r;
	uint32_t dst_context, src_context;
	uint64_t dst, src;
	uint64_t dst_pitch, src_pitch;
	uint64_t width, height; /* bytes, rows */
	uint32_t bulk;		/* part of a copy of more than caches hold */
	uint32_t pad;
};

struct soft_record_set {
	struct soft_record r;
	uint64_t dst, pitch;
	uint64_t width, height; /* elements, rows */
	uint32_t value;
	uint32_t unit; /* bytes of an element: 1, 2, 4 */
	uint64_t pad;
};

struct soft_record_event {
	struct soft_record r;
	uint32_t event;
	uint32_t count; /* of records of the event */
	uint64_t pad;
};

struct soft_record_wait { /* until that many operations of that stream have ended */
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
	uint32_t ticket; /* of the record, drawn before */
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

/* Requests and their replies on the control socket (SOCK_SEQPACKET). A reply begins with the
 * CUresult. */
enum soft_request_op {
	SOFT_REQ_HELLO = 1, /* reply carries: shared page, doorbell, event socket */
	SOFT_REQ_STATS,
	SOFT_REQ_CONTEXT_CREATE, /* index: GPU */
	SOFT_REQ_CONTEXT_DESTROY,
	SOFT_REQ_ALLOC, /* reply carries the memfd when the kind is pinned */
	SOFT_REQ_FREE,
	SOFT_REQ_MEMORY,      /* index: GPU */
	SOFT_REQ_MODULE_LOAD, /* carries a sealed memfd with the image; index: 0, or the highest
				 architecture of PTX to take. Reply: value32, .target in value;
				 with managed variables their address in bytes, and the memfd */
	SOFT_REQ_MODULE_UNLOAD,
	SOFT_REQ_FUNCTION,
	SOFT_REQ_FUNCTION_AT,
	SOFT_REQ_GLOBAL,
	SOFT_REQ_GROUP,
	/* Memory that is shared. Where several numbers are needed they are in more[]. */
	SOFT_REQ_IPC_EXPORT, /* value: address. Reply: soft_ipc_handle */
	SOFT_REQ_IPC_OPEN, /* more: soft_ipc_handle; object: 1 from a pool. Reply: address, bytes */
	SOFT_REQ_IPC_CLOSE,	 /* value: address */
	SOFT_REQ_HANDLE_CREATE,	 /* index: GPU, value: bytes. Reply: handle */
	SOFT_REQ_HANDLE_RELEASE, /* value: handle */
	SOFT_REQ_HANDLE_EXPORT,	 /* value: handle. Reply carries a descriptor */
	SOFT_REQ_HANDLE_IMPORT,	 /* carries it. Reply: handle, bytes, index of the GPU in value32 */
	SOFT_REQ_RESERVE,	 /* value: bytes; more: alignment, wished address. Reply: address */
	SOFT_REQ_UNRESERVE,	 /* value: address; more: bytes */
	SOFT_REQ_MAP,		 /* value: address; more: bytes, offset, handle */
	SOFT_REQ_UNMAP,		 /* value: address; more: bytes */
	SOFT_REQ_ACCESS,	 /* value: address, object: rights; more: bytes */
	SOFT_REQ_POOL_EXPORT,	 /* index: GPU, value: 0 or the pool's number. Reply: number,
				    descriptor */
	SOFT_REQ_POOL_IMPORT,	 /* carries it. Reply: number, index of the GPU in value32 */
	/* Answered without HELLO. */
	SOFT_REQ_GPUS,	      /* index: GPU, value: the first group to list */
	SOFT_REQ_UNSUPPORTED, /* index: where to begin, value: a client's pid or 0 for all since the
				 server started. Reply: value32 = where to go on, 0: that was all */
	SOFT_REQ_CONTROL,     /* carries a control descriptor; object and value as of GROUP */
	/* After HELLO. */
	SOFT_REQ_CONTROL_OPEN, /* reply carries the context's control descriptor */
	SOFT_REQ_FLAG_NEW,     /* value: bytes, object: 1 when kernels may write. Reply: address,
				  bytes, carries the memfd */
	SOFT_REQ_FLAG_MAP,     /* carries the memfd of a flag page; object as above */
	/* Events of several processes; object: verb, index and value: the event and its key. */
	SOFT_REQ_EVENT,
	/* A set of SMs; object: verb. NEW: value ranges in more[], two in each, the first in the
	 * low half: first SM | count << 16. Reply: value32 = number. FREE: index: number. */
	SOFT_REQ_PART,
	SOFT_REQ_COUNT
};

enum soft_event_verb {
	SOFT_EVENT_CREATE, /* reply: value32 = index, value = key */
	SOFT_EVENT_OPEN,
	SOFT_EVENT_CLOSE,
	SOFT_EVENT_ISSUE, /* reply: value32 = ticket of the record that comes in the ring */
	SOFT_EVENT_QUERY, /* reply: value32 = the newest ticket, value = the newest that is reached
			   */
};

enum soft_part_verb { SOFT_PART_NEW, SOFT_PART_FREE };

enum soft_memory_kind { SOFT_MEMORY_DEVICE, SOFT_MEMORY_PINNED };
enum soft_group_verb {
	SOFT_GROUP_SLICE_SET,
	SOFT_GROUP_SLICE_GET,
	SOFT_GROUP_PREEMPT,  /* value 1: answered when the group has left the GPU */
	SOFT_GROUP_SCHEDULE, /* value 0 is answered when nothing of the group runs */
	SOFT_GROUP_COUNTERS,
	SOFT_GROUP_HEAP /* value: bytes for malloc in kernels, before a kernel uses it */
};

#define SOFT_NAME_MAX 1024u
#define SOFT_TEXT_MAX 4096u
#define SOFT_PARAMS_MAX 1024u

struct soft_request {
	uint32_t op; /* enum soft_request_op */
	uint32_t context;
	uint32_t object; /* module, kind, verb */
	uint32_t index;
	uint64_t value; /* bytes, address */
	uint64_t more[6];
	char name[SOFT_NAME_MAX];
};
/* A request is sent with its name cut after the terminating zero. */
#define SOFT_REQUEST_MIN offsetof(struct soft_request, name)

/* What cuIpcGetMemHandle gives: useless without the secret. */
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
	uint32_t clock_khz; /* that the device attributes tell */
	uint32_t copy_engines;
};

struct soft_context_info {
	uint32_t slot;
	uint32_t pad;
	uint64_t window_base, window_bytes;
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

/* What the server holds; flat when nothing leaks. */
struct soft_stats {
	uint64_t clients, contexts, streams, modules, functions, allocations;
	uint64_t memory_used, memory_total, pinned_used;
	uint64_t operations, launches, blocks_resident;
	uint64_t descriptors; /* open in the server */
	uint64_t refused;     /* clients dropped for what they sent */
	uint64_t shares;      /* exported, created and imported memory, and descriptors for it */
	/* Of all blocks since the server started; a lane instruction is an instruction of one lane
	 * that stands at it. run_ns: time in blocks, summed over execution threads. */
	uint64_t warp_instructions, lane_instructions, run_ns;
};

struct soft_counters {
	uint64_t switches_in, preempted, run_ns, blocks_done, launches_done, bytes_copied;
	/* How the group was when the GPU went to another: with nothing to run, between blocks, with
	 * blocks inside kernels. */
	uint64_t left_idle, left_between, left_inside;
	uint64_t held_ns; /* wall time that the group had the GPU */
};

/* One context, in the list of a GPU. */
struct soft_group_info {
	int32_t pid;
	uint32_t context;
	uint64_t memory_bytes; /* device memory that it has allocated */
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
	/* now_ns, busy_ns: two answers give the utilization of the time between them. */
	uint64_t now_ns, busy_ns, bytes_copied, switches;
	uint32_t groups; /* that the GPU has */
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
		char text[SOFT_TEXT_MAX]; /* error text of MODULE_LOAD, name of FUNCTION_AT */
	};
};
/* Replies are cut after what they use. */
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
	int32_t result; /* of the context when the function runs */
	uint32_t pad;
	char text[256];
};

#endif
