/* Messages of the session socket (SOCK_SEQPACKET, <runtime>/session.sock): fixed structs with
 * descriptors beside them. The only place that packs or checks messages. (The control socket speaks
 * JSON lines: docs/PROTOCOL.md.)
 *
 * Order: client HELLO; daemon WELCOME or REFUSED; client BOARD_MAPPED, after which the daemon seals
 * board and statistics and serves PREPARE / BOARD_ADD ... Every PREPARE is answered by PREPARED.
 * After an early HELLO and its WELCOME the client starts the driver and sends DEVICES, which is
 * answered by DEVICES_ARE (QUEUED may come before, or REFUSED instead), and then BOARD_MAPPED.
 * Either side closes by closing. */
#ifndef GBPF_PROTO_WIRE_H
#define GBPF_PROTO_WIRE_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define WIRE_MAGIC 0x53706267u
/* Of the protocol: a new number with each change of a message's form and each new message that
 * gbpfd sends. A peer of another version is refused with both numbers in the text. */
#define WIRE_VERSION 3u
#define WIRE_NAME 64
#define WIRE_TEXT 256
#define WIRE_GPUS 16

enum wire_type {
	WIRE_HELLO = 1, /* c>d; when reattaching, descriptors: board, statistics, [tenant region of
			   policy_version] */
	WIRE_WELCOME, /* d>c; descriptors: directory, board, statistics (reattached: directory only)
		       */
	WIRE_REFUSED, /* d>c */
	WIRE_BOARD_MAPPED, /* c>d */
	WIRE_PREPARE,	/* d>c; descriptors: image [, global region][, tenant region] by the bits of
			   regions */
	WIRE_PREPARED,	/* c>d */
	WIRE_DROP,	/* d>c: the version is no longer wanted */
	WIRE_BOARD_ADD, /* d>c; descriptor: board */
	WIRE_BOARD_REMOVE, /* d>c */
	WIRE_SET,	   /* d>c: class, weight, limits */
	WIRE_NOTE,	   /* c>d: for the history; d>c: for the program's standard error */
	WIRE_QUEUED,	   /* d>c: admit said wait; WELCOME or REFUSED follows */
	WIRE_DEVICES,	   /* c>d: after an early hello (WIRE_EARLY), the devices, once CUDA runs */
	WIRE_DEVICES_ARE,  /* d>c: their numbers */
	WIRE_CONTROL,	   /* c>d; descriptor: what controls the process's work on a GPU */
	WIRE_FLAG,	   /* c>d; descriptor: a flag page that this process's kernels read */
	WIRE_FLAG_ADD,	   /* d>c; descriptor: a flag page on which to raise leases */
	WIRE_FLAG_REMOVE,  /* d>c */
	WIRE_REQUEST,	   /* c>d: a request has opened or ended; only while SET asks for it */
};

struct wire_head {
	uint32_t magic, version;
	uint32_t type, bytes; /* of the whole message */
};

/* WIRE_EARLY: before the driver was started, so that the lane can be chosen; gpus is 0. The devices
 * follow with WIRE_DEVICES. */
enum { WIRE_REATTACH = 1, WIRE_STRICT = 2, WIRE_EARLY = 4 };

struct wire_hello {
	struct wire_head head;
	uint32_t flags, class_id, weight, gpus;
	uint8_t uuid[WIRE_GPUS][16]; /* of the devices that the process sees, by ordinal */
	uint64_t policy_version;     /* reattach: the version in use, 0 none */
	uint32_t tenant;	     /* reattach: the number it had */
	uint32_t regions;	     /* reattach: 1 when the tenant region is attached */
	uint32_t lane;		     /* GBPF_LANE_* asked for; reattach: the one it has */
	uint32_t lanes;		     /* a bit for each that the process can take; 0: any (early), or
					only the one it asks for */
	char name[WIRE_NAME], command[WIRE_TEXT];
};

struct wire_welcome {
	struct wire_head head;
	uint32_t tenant, class_id, weight, min_share_ppm;
	uint64_t hold_limit_ns;
	uint32_t gpu_index[WIRE_GPUS]; /* ordinal in the process > gbpfd's number */
	uint32_t lane, sm_percent;
	uint32_t slice_us;	  /* what admit said; gbpfd sets it, once it has the handles */
	int32_t priority;	  /* shared lane: of the default stream, 0 or 1 */
	uint32_t rhythm, lead_us; /* what admit said of announcements */
	char mps_pipe[WIRE_TEXT]; /* shared lane: folder of the MPS control daemon's pipes */
};

struct wire_devices { /* DEVICES (uuid), DEVICES_ARE (gpu_index) */
	struct wire_head head;
	uint32_t gpus, reserved;
	uint8_t uuid[WIRE_GPUS][16];
	uint32_t gpu_index[WIRE_GPUS];
};

#define WIRE_HANDLES 512
struct wire_control { /* handles: struct gpu_handles of gpu/control.h, to be checked */
	struct wire_head head;
	uint32_t gpu, bytes; /* device ordinal; bytes of handles that are used, 0: taken back */
	uint8_t handles[WIRE_HANDLES];
};

struct wire_flag { /* FLAG (gpu: device ordinal), FLAG_ADD, FLAG_REMOVE */
	struct wire_head head;
	uint32_t gpu;	 /* FLAG_ADD: gbpfd's number of it */
	uint32_t number; /* FLAG_ADD, FLAG_REMOVE: which page, 0..WIRE_FLAGS-1; FLAG: 0 here it is
			    (with its descriptor), 1 it is taken back (without) */
	uint32_t slot;	 /* FLAG_ADD: the receiver's word in it */
	uint32_t tenant; /* FLAG_ADD: whose */
};
#define WIRE_FLAGS 256u /* pages that one process raises leases on */

/* The same in every version: who speaks another one is told so in his own, and reads it in any. */
struct wire_refused {
	struct wire_head head; /* set before sending: the version of who is refused, 0: ours */
	int32_t error;	       /* errno */
	char text[WIRE_TEXT];
};

struct wire_plain { /* BOARD_MAPPED, QUEUED, REQUEST */
	struct wire_head head;
};

enum { WIRE_REGION_GLOBAL = 1, WIRE_REGION_TENANT = 2 };

struct wire_version { /* PREPARE (regions), PREPARED (status: 0 or -errno), DROP */
	struct wire_head head;
	uint64_t version;
	int32_t status;
	uint32_t regions;
};

struct wire_board { /* BOARD_ADD, BOARD_REMOVE */
	struct wire_head head;
	uint32_t slot, tenant;
};

struct wire_set {
	struct wire_head head;
	uint32_t class_id, weight, min_share_ppm;
	uint32_t tell_requests; /* 1: with REQUEST */
	uint64_t hold_limit_ns;
};

struct wire_note {
	struct wire_head head;
	char what[32], text[WIRE_TEXT];
};

union wire_message {
	struct wire_head head;
	struct wire_hello hello;
	struct wire_welcome welcome;
	struct wire_refused refused;
	struct wire_plain plain;
	struct wire_version version;
	struct wire_board board;
	struct wire_set set;
	struct wire_note note;
	struct wire_devices devices;
	struct wire_control control;
	struct wire_flag flag;
};

/* Fills the head for its type (REFUSED: see there) and sends. 0, -EAGAIN (peer's buffer is full),
 * -EPIPE, -errno. */
int wire_send(int sock, union wire_message *m, enum wire_type type, const int *fds, unsigned nfds);

/* Receives one message and checks magic, version, type and exact size, terminates every text, and
 * closes descriptors that the type does not allow. 1: received; 0: peer closed; -EAGAIN; -EPROTO
 * (garbage); -EPROTONOSUPPORT (other version, and not REFUSED: m->head.version says which).
 * Descriptors are the caller's. */
int wire_recv(int sock, union wire_message *m, int fds[8], unsigned *nfds);

#endif
