/* Messages of the session socket (SOCK_SEQPACKET, <runtime>/session.sock): fixed structs, with
 * descriptors in ancillary data. Only this room packs and checks messages. (The control socket uses
 * JSON lines: docs/PROTOCOL.md.)
 *
 * Order: client HELLO; daemon WELCOME or REFUSED; client BOARD_MAPPED, after which the daemon seals
 * board and statistics and sends PREPARE, BOARD_ADD, PROBE ... and then PROBE_END of version 0, for
 * which the client waits before the program's first launch. Every PREPARE is answered by PREPARED.
 * After an early HELLO and its WELCOME the client starts the driver and sends DEVICES, which is
 * answered by DEVICES_ARE (QUEUED may precede it, or REFUSED replace it), then BOARD_MAPPED. Either
 * side ends the session by closing. A connection that opens memory of another process says no
 * HELLO: it sends IPC_OPEN, which is answered by IPC_OPENED, as often as it needs. */
#ifndef GBPF_PROTO_WIRE_H
#define GBPF_PROTO_WIRE_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "proto/pages.h"
#include "proto/vgpu_text.h"

#define PROTO_MAGIC 0x53706267u
/* Protocol version: incremented with each change of a message's layout and each new message that
 * gbpfd sends. A peer of another version is refused with both numbers in the text. */
#define PROTO_VERSION 26u
#define PROTO_NAME 64
#define PROTO_TEXT 256

enum proto_type {
	PROTO_HELLO = 1, /* c>d; when reattaching, descriptors: board, statistics, [tenant region of
			   policy_version], [account] */
	PROTO_WELCOME,	 /* d>c; descriptors: directory, board, statistics (reattached: directory
			  * only), [account] */
	PROTO_REFUSED,	 /* d>c */
	PROTO_BOARD_MAPPED, /* c>d */
	PROTO_PREPARE,	/* d>c; descriptors: image [, global region][, tenant region] by the bits of
			   regions */
	PROTO_PREPARED, /* c>d */
	PROTO_DROP,	/* d>c: the version is no longer needed */
	PROTO_BOARD_ADD,    /* d>c; descriptor: board */
	PROTO_BOARD_REMOVE, /* d>c */
	PROTO_SET,	    /* d>c: class, weight, limits */
	PROTO_NOTE,	    /* c>d: for the history; d>c: for the program's standard error */
	PROTO_QUEUED,	    /* d>c: admit answered QUEUE; WELCOME or REFUSED follows */
	PROTO_DEVICES,	    /* c>d: after an early hello (PROTO_EARLY), the devices, once CUDA is
			       initialized */
	PROTO_DEVICES_ARE,  /* d>c: gbpfd's numbers of them */
	PROTO_CONTROL,	    /* c>d; descriptor: controls the process's work on a GPU */
	PROTO_FLAG,	    /* c>d; descriptor: a flag page that this process's kernels read */
	PROTO_FLAG_ADD,	    /* d>c; descriptor: a flag page for the receiver's leases */
	PROTO_FLAG_REMOVE,  /* d>c */
	PROTO_REQUEST,	    /* c>d: a request opened or ended; sent only while SET asks for it */
	PROTO_MEM_ASK,	    /* c>d: a charge was refused; the answer is in the account's line */
	PROTO_ACCOUNT,	    /* d>c: answer to a hello that looks; descriptor: [account] */
	PROTO_PROBE,	    /* d>c: attach a tool; descriptors as of PREPARE */
	PROTO_PROBE_STATE,  /* c>d: answers PROBE; then whenever kernels gain or lose its programs
			     */
	PROTO_PROBE_END,    /* d>c: detach it; version 0, once in a session: all tools that the
			       process is to have at its start were sent, and those of an
			       earlier gbpfd that were not end */
	PROTO_PROBE_ENDED,  /* c>d: answers PROBE_END: no launch of it is unfinished, and its region
			       has its last values */
	PROTO_PROBE_DRAIN,  /* d>c: copy its maps in memory of the GPU to its region */
	PROTO_PROBE_DRAINED, /* c>d: answers PROBE_DRAIN */
	PROTO_COVERAGE,	     /* d>c: say in the statistics which kernels can be probed */
	PROTO_COVERED,	     /* c>d: answers COVERAGE */
	PROTO_PROBE_SET,     /* d>c: which blocks of which kernels run its programs, also in
				running kernels; its budget */
	PROTO_COMMUNICATES,  /* c>d: it has kernels that communicate with other GPUs */
	PROTO_PEER_ADD,	     /* d>c; descriptor: board of a process of the receiver's group */
	PROTO_PEER_REMOVE,   /* d>c */
	PROTO_MEM_RELEASE,   /* d>c: move device memory to the host, which another vGPU needs */
	PROTO_MEM_RELEASED,  /* c>d: answers MEM_RELEASE */
	PROTO_IPC_OPEN,	     /* c>d: asks for memory that another process has shared; on a
				connection that says no hello. Repeated once it is answered */
	PROTO_IPC_WANTED,    /* d>c: the same, to the process that has shared it */
	PROTO_IPC_GIVEN,     /* c>d: answers IPC_WANTED; descriptors: chunks */
	PROTO_IPC_OPENED,    /* d>c: answers IPC_OPEN; descriptors: chunks */
	PROTO_TYPES,	     /* one more than the last type */
};

struct proto_head {
	uint32_t magic, version;
	uint32_t type, bytes; /* size of the whole message */
};

/* PROTO_EARLY: sent before the driver was started, so that the lane can still be chosen; gpus is 0.
 * The devices follow with PROTO_DEVICES.
 * PROTO_LOOK: the process does not become a tenant. It names a vGPU of its user, and nothing else;
 * the answer is ACCOUNT, after which gbpfd ends the session. */
enum { PROTO_REATTACH = 1, PROTO_STRICT = 2, PROTO_EARLY = 4, PROTO_LOOK = 8 };

struct proto_hello {
	struct proto_head head;
	uint32_t flags, class_id;
	uint32_t weight; /* asked for by the program or the last SET; 0: the default */
	uint32_t gpus;
	uint8_t uuid[PROTO_MAX_GPUS][16]; /* of the process's devices, by ordinal */
	uint64_t policy_version;	  /* reattach: the version in use; 0: none */
	uint32_t tenant;		  /* reattach: its tenant number */
	/* Reattach: bits of the device ordinals for whose instance of that version the tenant
	 * region is attached, in this order; at most PROTO_REGIONS. */
	uint32_t regions;
	uint32_t lane;	/* requested GBPF_LANE_*; reattach: the current one */
	uint32_t lanes; /* bit mask of lanes that the process can use; 0: any (early), or only the
			   requested one */
	char name[PROTO_NAME], command[PROTO_TEXT];
	struct proto_vgpu vgpu; /* that the process belongs to */
	/* Reattach: accounts is 1 if the vGPU's account (proto/account.h) is attached, for this
	 * line. */
	uint32_t accounts, account_line;
	uint64_t mem_bytes[PROTO_MAX_GPUS]; /* sizes of the devices' memory, by ordinal; 0: unknown
					     */
	/* Processes of one user with the same text that communicate are a group; "": none. */
	char group[PROTO_NAME];
};

struct proto_welcome {
	struct proto_head head;
	uint32_t tenant, class_id, weight, min_share_ppm;
	uint64_t hold_limit_ns;
	uint32_t gpu_index[PROTO_MAX_GPUS]; /* gbpfd's number, by ordinal in the process */
	uint32_t lane, sm_percent;
	uint32_t slice_us;	   /* admit's answer; gbpfd applies it once it has the handles */
	int32_t priority;	   /* shared lane: of the default stream, 0 or 1 */
	uint32_t rhythm, lead_us;  /* admit's answer about announcements */
	uint32_t uid;		   /* of the process, as gbpfd sees it */
	int32_t pid;		   /* likewise; 0: unknown */
	uint32_t accounts;	   /* 1: it is in a vGPU, whose account is the last descriptor */
	uint32_t account_line;	   /* its line there */
	uint32_t vgpu_place;	   /* number of its vGPU; PROTO_VGPUS: it is in none */
	char mps_pipe[PROTO_TEXT]; /* shared lane: folder of the MPS control daemon's pipes */
};

struct proto_devices { /* DEVICES (uuid), DEVICES_ARE (gpu_index) */
	struct proto_head head;
	uint32_t gpus, reserved;
	uint8_t uuid[PROTO_MAX_GPUS][16];
	uint32_t gpu_index[PROTO_MAX_GPUS];
	uint64_t mem_bytes[PROTO_MAX_GPUS];
};

enum {
	PROTO_MEM_FULL = 1, /* the charge would fit: the driver has refused the call */
	/* With FULL: it has tried after the last answer, and has its old place. */
	PROTO_MEM_AGAIN = 2,
	/* No question: an import of the account may have to be charged anew. */
	PROTO_MEM_SHARES = 4,
	/* Other vGPUs may be made to release memory for it: the answer may take
	 * PROTO_MEM_RECLAIM_MAX_NS longer. */
	PROTO_MEM_RECLAIM = 8,
};

struct proto_mem_ask {
	struct proto_head head;
	uint32_t row, seq; /* of the account; returned in the answer */
	uint64_t bytes;
	uint64_t wait_ns; /* how long it may wait, at most what the vGPU is given */
	uint32_t flags;	  /* PROTO_MEM_* */
	uint32_t reserved;
};

#define PROTO_MEM_RECLAIM_MAX_NS UINT64_C(5000000000)

struct proto_mem_release { /* MEM_RELEASE, MEM_RELEASED */
	struct proto_head head;
	uint32_t row, reserved; /* of the account */
	uint64_t number;	/* of the order; returned in the answer */
	uint64_t bytes;		/* needed; 0: none yet, but soon maybe; answer: released */
	uint64_t most;		/* not less: no more is released, as whole chunks may be larger */
	uint64_t reserve;	/* the vGPU retains that much */
	uint64_t hold_ns;	/* how long nothing returns to the device */
};

#define PROTO_IPC_CHUNKS 8u	   /* descriptors in one message */
#define PROTO_IPC_KEY UINT32_C(16) /* bytes */

struct proto_ipc { /* IPC_OPEN, IPC_WANTED, IPC_GIVEN, IPC_OPENED */
	struct proto_head head;
	uint64_t number;	    /* IPC_WANTED: gbpfd's; returned in IPC_GIVEN */
	uint8_t key[PROTO_IPC_KEY]; /* of the memory; only its owner and what it gives it know it */
	int32_t pid;		    /* IPC_OPEN: the process that has shared it, as gbpfd sees it */
	uint32_t first;		    /* number of the first chunk that is wanted, or given */
	/* Answers: 0; EAGAIN: ask again; ENOENT: there is no such memory, or it is another user's;
	 * or the errno of a call that has failed. Without an error: */
	int32_t error;
	uint32_t n;	/* descriptors */
	uint64_t bytes; /* of the whole memory, as it was allocated */
};

#define PROTO_HANDLES 512
struct proto_control { /* handles: struct gpu_handles of gpu/control.h, to be checked */
	struct proto_head head;
	uint32_t gpu, bytes; /* device ordinal; used bytes of handles, 0: withdrawn */
	uint8_t handles[PROTO_HANDLES];
};

struct proto_flag { /* FLAG (gpu: device ordinal), FLAG_ADD, FLAG_REMOVE */
	struct proto_head head;
	uint32_t gpu;	 /* FLAG_ADD: gbpfd's number of the GPU */
	uint32_t number; /* FLAG_ADD, FLAG_REMOVE: number of the page, 0..PROTO_FLAGS-1; FLAG: 0 the
			    page is attached, 1 it is withdrawn */
	uint32_t slot;	 /* FLAG_ADD: the receiver's word in it */
	uint32_t tenant; /* FLAG_ADD: owner of the page */
};
#define PROTO_FLAGS 256u /* max pages on which one process raises leases */

/* This message has the same layout in every protocol version: a peer of another version receives it
 * in its own version, and reads it in any. */
struct proto_refused {
	struct proto_head head; /* set before sending: version of the refused peer, 0: this one */
	int32_t error;		/* errno */
	char text[PROTO_TEXT];
};

struct proto_plain { /* BOARD_MAPPED, QUEUED, REQUEST, COMMUNICATES */
	struct proto_head head;
};

struct proto_account_message { /* ACCOUNT */
	struct proto_head head;
	int32_t error;	   /* errno; EAGAIN: a restarted gbpfd awaits the account; try again; EPERM:
			      the vGPU does not exist, or belongs to another user */
	uint32_t accounts; /* 1: the account is attached; 0: no process is in the vGPU */
	uint64_t limit[PROTO_MAX_GPUS]; /* of the vGPU, as in struct proto_vgpu_config */
	uint64_t swap;			/* by which devices with a limit seem larger, bytes */
};

enum { PROTO_REGION_GLOBAL = 1, PROTO_REGION_TENANT = 2 };

#define PROTO_REGIONS 5u	   /* descriptors of tenant regions in a hello */
#define PROTO_EVERY_GPU UINT32_MAX /* DROP: the instances for all GPUs */

/* An instance of a version. PREPARE (regions), PREPARED (status: 0 or -errno), DROP. */
struct proto_version {
	struct proto_head head;
	uint64_t version;
	int32_t status;
	uint32_t regions;
	uint32_t gpu; /* gbpfd's number */
	uint32_t reserved;
};

#define PROTO_PATTERN 256

#define PROTO_PROBE_SCOPES 16u
enum { PROTO_PROBE_AS_OTHERS, PROTO_PROBE_ON, PROTO_PROBE_OFF };

/* Kernels for which a tool is set. */
struct proto_probe_scope {
	uint32_t every;		    /* as of struct proto_probe_control; 0: it does not set that */
	uint32_t on_off;	    /* PROTO_PROBE_*; AS_OTHERS: likewise */
	char kernel[PROTO_PATTERN]; /* of their names */
};

/* Which blocks run a tool. For a kernel with whose name several scopes match the last one counts
 * that sets the interval, or on and off; each overrides the tool's own. */
struct proto_probe_control {
	uint32_t every; /* one block in so many runs its programs; 0: it cannot be set, and all do
			 */
	uint32_t off;	/* 1: none does */
	uint32_t n;	/* scopes, at most PROTO_PROBE_SCOPES */
	uint32_t reserved;
	struct proto_probe_scope scopes[PROTO_PROBE_SCOPES];
};

/* PROBE. A tool is a policy image with programs inside kernels. Its version is not one of a policy.
 */
struct proto_probe {
	struct proto_head head;
	uint64_t version;
	uint64_t replaces; /* version of the tool that it replaces in each kernel; 0: none */
	uint32_t regions;
	uint32_t budget_ppm; /* of the launches' time that it may take; 0: no limit */
	uint32_t partial; /* 1: kernels that lack places of some of its programs run the others */
	uint32_t verify;  /* 1: its forms are compared with the kernels themselves */
	uint32_t held;	  /* 1: a process holds it, which reads its values while it is attached */
	uint32_t reserved;
	char kernel[PROTO_PATTERN]; /* of kernels' names, besides the programs' own */
	struct proto_probe_control control;
};

/* A kernel that runs a tool, and in which some of its programs have no site. */
struct proto_probe_gap {
	uint32_t programs; /* as bits, by their order in the image */
	char kernel[PROTO_KERNEL_NAME];
};
#define PROTO_PROBE_GAPS 8u

struct proto_probe_state {
	struct proto_head head;
	uint64_t version;
	int32_t status;	     /* 0, or -errno: the tool as a whole cannot be attached, for the reason
				in why; it has ended */
	uint32_t kernels;    /* kernels that run its programs from their next launch on */
	uint32_t waiting;    /* kernels that are being compiled, or wait for an idle context */
	uint32_t refused;    /* kernels that match, and cannot have its programs */
	uint32_t falls_back; /* of the first: kernels some of whose launches the driver refuses with
				its programs, so that they run without */
	uint32_t cost_ppm;   /* of the time that the launches of its kernels take without any tool;
				PROTO_PROBE_COST_UNKNOWN */
	uint64_t launches;   /* with a budget: of kernels that have its programs, and those of them
				that ran the programs */
	uint64_t probed;
	uint32_t resident_before; /* blocks of one multiprocessor without and with its programs, */
	uint32_t resident_after;  /* where they differ most; 0: nowhere */
	/* Of `kernels`, by what runs in them; the others run the PTX with the programs. */
	uint32_t stubs;	   /* their machine code, with an entry stub */
	uint32_t brackets; /* their own code: the programs run before and behind the launch only */
	uint32_t parts;	   /* of `kernels`: without some of its programs */
	uint32_t unseen;   /* instructions of these kernels that access memory where its programs of
			      gdev_access do not run */
	/* Of a tool with `verify`: kernels with equal results with and without its programs, with
	 * other results, and those that cannot be compared. */
	uint32_t equal, differing, not_compared;
	uint32_t siteless;	   /* of `kernels`: in which a program of it has no site */
	uint32_t placed, unplaced; /* programs, as bits: with a site in one of `kernels`, and
				      without a site in one of them */
	struct proto_probe_gap gaps[PROTO_PROBE_GAPS]; /* of these kernels; programs 0: unused */
	char compared[PROTO_TEXT]; /* the last one of the others, and what differs, or why; "" */
	char why[PROTO_TEXT];	   /* the last one of these, and the reason; "" */
};

#define PROTO_PROBE_COST_UNKNOWN UINT32_MAX

struct proto_probe_set {
	struct proto_head head;
	uint64_t version;
	uint32_t budget_ppm; /* as in PROBE */
	uint32_t reserved;
	struct proto_probe_control control; /* likewise */
};

/* PROBE_END, PROBE_ENDED, PROBE_DRAIN, PROBE_DRAINED; COVERAGE and COVERED, of no tool: version 0
 */
struct proto_probe_order {
	struct proto_head head;
	uint64_t version;
	uint64_t number; /* of the order; returned in the answer */
	uint64_t read;	 /* PROBE_DRAIN: the last number whose values the tool's holder has read;
			  * 0: none */
	int32_t status;	 /* answers: 0 or -errno: the values are older */
	uint32_t reserved;
};

struct proto_board_message { /* BOARD_ADD, BOARD_REMOVE, PEER_ADD, PEER_REMOVE */
	struct proto_head head;
	uint32_t slot, tenant;
	uint32_t group; /* PEER_ADD: number of the group, > 0 */
	uint32_t reserved;
};

struct proto_set {
	struct proto_head head;
	uint32_t class_id, weight, min_share_ppm;
	uint32_t tell_requests; /* 1: report requests with REQUEST */
	uint64_t hold_limit_ns;
	uint32_t weight_asked; /* to be stated when reattaching: admit computes weight from it */
	uint32_t reserved;
};

struct proto_note {
	struct proto_head head;
	char what[32], text[PROTO_TEXT];
};

union proto_message {
	struct proto_head head;
	struct proto_hello hello;
	struct proto_welcome welcome;
	struct proto_refused refused;
	struct proto_plain plain;
	struct proto_version version;
	struct proto_board_message board;
	struct proto_set set;
	struct proto_note note;
	struct proto_devices devices;
	struct proto_control control;
	struct proto_flag flag;
	struct proto_mem_ask mem_ask;
	struct proto_mem_release mem_release;
	struct proto_ipc ipc;
	struct proto_account_message account;
	struct proto_probe probe;
	struct proto_probe_state probe_state;
	struct proto_probe_order probe_order;
	struct proto_probe_set probe_set;
};

/* Fills in the head for the type (REFUSED: see there) and sends. Returns 0, -EAGAIN (the peer's
 * buffer is full), -EPIPE or another -errno. */
int proto_send(int sock, union proto_message *m, enum proto_type type, const int *fds,
	       unsigned nfds);

/* Receives one message: checks magic, version, type and exact size, terminates every text, and
 * closes descriptors that the type does not allow. Returns 1: received; 0: the peer closed;
 * -EAGAIN; -EPROTO: malformed; -EPROTONOSUPPORT: another version and not REFUSED (m->head.version
 * is the peer's). The caller owns the descriptors. */
int proto_recv(int sock, union proto_message *m, int fds[8], unsigned *nfds);

#endif
