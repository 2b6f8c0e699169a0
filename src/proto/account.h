/* The account of a virtual GPU: how much memory each of its processes holds. One memfd for
 * each vGPU, sealed in size, mapped writable by gbpfd and by the processes in the vGPU. A process
 * that writes garbage corrupts only the figures of its own vGPU: gbpfd believes none beyond the
 * limits, which it keeps in memory of its own, and processes use its words as numbers only.
 *
 * A row belongs to a device, the last two to pinned host memory and to swap, the host memory that
 * device memory leaves for; a line belongs to a process.
 * src/mem/ledger.h has the rules by which a process charges its line, docs/MEMORY-INTERNALS.md the
 * reasons. */
#ifndef GBPF_PROTO_ACCOUNT_H
#define GBPF_PROTO_ACCOUNT_H

#include <stdint.h>

#include "proto/pages.h"

#define PROTO_ACCOUNT_MAGIC 0x33636167u
#define PROTO_ACCOUNT_HOST PROTO_MAX_GPUS	   /* row of pinned host memory */
#define PROTO_ACCOUNT_HOST_UUID "gbpf pinned host" /* its uuid; 16 bytes are not terminated */
/* Row of swap. It has a uuid and a limit only while the vGPU has swap; else both are zero, and the
 * limit of 0 is one: nothing may be charged. Swap is pinned host memory, and is charged to that row
 * as well. */
#define PROTO_ACCOUNT_SWAP (PROTO_MAX_GPUS + 1u)
#define PROTO_ACCOUNT_SWAP_UUID "gbpf device swap" /* its uuid; 16 bytes are not terminated */
#define PROTO_ACCOUNT_ROWS (PROTO_MAX_GPUS + 2u)
#define PROTO_ACCOUNT_LINES 256u   /* processes of a vGPU at a time */
#define PROTO_ACCOUNT_SHARES 4096u /* exports and imports of its processes at a time */
#define PROTO_ACCOUNT_BYTES 1007616u

/* What a process holds on a device, bytes: `charged` less `released`, which are never lowered. The
 * process adds; gbpfd clears the line once the process has exited, by releasing what it holds. A
 * cache line each, so that processes do not disturb each other. */
struct ALIGNED(64) proto_account_line {
	uint64_t charged;  /* all that was ever granted, overhead included */
	uint64_t released; /* all that was ever given back */
	uint64_t wanted;   /* of the charge that is being decided; 0: none */
	uint64_t overhead; /* contexts, modules, local memory: measured */
	uint64_t shared;   /* imported: charged to the process that made it */
	/* gbpfd: the answer to PROTO_MEM_ASK: its seq, and PROTO_ACCOUNT_RETRY or
	 * PROTO_ACCOUNT_REFUSED; gbpfd wakes the waiters on the first word. */
	uint32_t answer_seq, answer;
	uint32_t tried_seq; /* the process: the answer after which it has tried again */
	uint32_t turn;	    /* the process: of the charge that has met another one; 0: none */
	uint64_t gbpf;	    /* taken by gBPF in the process: not charged */
};

enum { PROTO_ACCOUNT_RETRY = 1, PROTO_ACCOUNT_REFUSED = 2 };

/* Imported memory whose creator is charged no more, and which the line's process is charged for
 * instead: `inherited` less `returned` and `disowned`, which are never lowered. The first two are
 * gbpfd's: units of PROTO_SHARE_UNIT in the lower 48 bits, and above them the number of changes, by
 * which a change that was interrupted is made once (mem/account_shares.h). */
struct proto_account_orphans {
	uint64_t inherited;
	uint64_t returned;
	uint64_t disowned; /* the process: bytes of what it has closed; gbpfd clears the line */
	/* The most that the line's process has held at a time, with what it has inherited: here,
	 * since the line has no room. */
	uint64_t peak;
};

/* Kinds of device memory that a process is charged for, as `gbpf mem ls` shows them. Overhead and
 * what it has inherited have words of their own; the rest of what it holds is of no kind that is
 * recorded. */
enum proto_kind {
	PROTO_KIND_CHUNK,   /* can leave the device */
	PROTO_KIND_SMALL,   /* cuMemAlloc of less than SHIM_SWAP_MIN, without chunks */
	PROTO_KIND_LINEAR,  /* the same of more, without chunks */
	PROTO_KIND_PITCHED, /* cuMemAllocPitch */
	PROTO_KIND_MANAGED,
	PROTO_KIND_CREATED, /* the program's cuMemCreate */
	PROTO_KIND_ARRAY,
	PROTO_KIND_POOL,
	PROTO_KIND_GRAPH,
	PROTO_KIND_MODULE, /* variables of modules and libraries */
	PROTO_KIND_SHARED, /* cuMemAlloc in chunks that cuIpcGetMemHandle has shared */
	PROTO_KIND_PEER,   /* the same to which other devices have access, in the process */
	PROTO_KINDS
};

/* How what a line holds on a device is divided. The line's process writes it; it decides nothing.
 */
struct proto_account_kinds {
	uint64_t bytes[PROTO_KINDS]; /* each a part of what is charged */
	uint64_t away;	 /* of chunks of the device that are on the host: not charged to its row */
	uint64_t chunks; /* 1: cuMemAlloc gives the process chunks */
};

#define PROTO_SHARE_UNIT 4096u
#define PROTO_SHARE_COUNT_SHIFT 48u /* of the number of changes */
#define PROTO_SHARE_UNITS_MASK ((UINT64_C(1) << PROTO_SHARE_COUNT_SHIFT) - 1)

/* Memory of a process that it has exported, or imported. */
struct proto_account_share {
	uint64_t state; /* mem/account_shares.h: kind, row and line, by which it is guarded; 0: free
			 */
	uint64_t id;	/* of the memory, the same for its creator and all importers */
	uint64_t bytes; /* a multiple of PROTO_SHARE_UNIT */
};

struct proto_account {
	uint32_t magic, abi; /* gbpfd */
	uint32_t lines;	     /* gbpfd: one more than the highest line in use */
	uint32_t shares;     /* processes: one more than the highest share ever used */
	uint64_t wait_ns;    /* gbpfd: how long a charge may wait for memory; 0: not at all */
	uint8_t uuid[PROTO_ACCOUNT_ROWS][16]; /* gbpfd: the row's device; zero: none */
	uint64_t limit[PROTO_ACCOUNT_ROWS];   /* gbpfd: bytes, what programs see; 0: none, but of
						 swap: it takes nothing */
	/* gbpfd: what may be charged now, at most the limit; 0: the limit. Less than it where other
	 * vGPUs have reserved memory. */
	uint64_t allowed[PROTO_ACCOUNT_ROWS];
	/* The process that a line was given to (gbpfd), by which a restarted gbpfd recognizes lines
	 * of processes that have exited. */
	struct proto_account_owner {
		uint64_t start; /* field 22 of /proc/PID/stat */
		int32_t pid;	/* 0: free */
		uint32_t reserved;
	} owner[PROTO_ACCOUNT_LINES];
	struct proto_account_line line[PROTO_ACCOUNT_ROWS][PROTO_ACCOUNT_LINES];
	struct proto_account_orphans orphans[PROTO_ACCOUNT_ROWS][PROTO_ACCOUNT_LINES];
	struct proto_account_share share[PROTO_ACCOUNT_SHARES];
	uint64_t vgpu_owner; /* gbpfd: 1 + user id of the vGPU's owner */
	struct proto_account_kinds kinds[PROTO_MAX_GPUS][PROTO_ACCOUNT_LINES];
	/* gbpfd: 1: devices with a limit seem as large as that; 0: larger by swap. */
	uint32_t show_mem;
	uint32_t reserved;
};

_Static_assert(sizeof(struct proto_account) <= PROTO_ACCOUNT_BYTES, "the account fits its pages");

#endif
