/* An account and a driver for tests of memory that can leave the device. Copies wait until they are
 * waited for. The driver notes what it is used wrongly for instead of asserting it: an assertion
 * that fails in a movement would leave it with the mutex held, signals blocked and work sections
 * closed, and the next test would wait for ever. */
#ifndef GBPF_TESTS_SWAP_RIG_H
#define GBPF_TESTS_SWAP_RIG_H

#include <stdbool.h>
#include <stdint.h>

#include "cuabi/types.h"
#include "mem/swap_map.h"
#include "proto/account.h"
#include "ptx/probe_pointers.h"

#define MIB ((uint64_t)1 << 20)
#define CHUNK (16 * MIB)
#define SECOND UINT64_C(1000000000)

extern struct swap_rig {
	struct proto_account page;
	uint64_t now;	       /* ns; each look at the clock takes 0.1 ms, a sleep its time */
	uint32_t verdict;      /* of the policy; GBPF_MEM_FETCH at first */
	uint64_t in_place_ns;  /* that it was given the last time */
	float launch_ms;       /* that a launch takes which is timed; 1 at first */
	uint32_t asked_gpu;    /* whose instance of the policy was asked last */
	unsigned calls;	       /* of the driver that can fail, since rig_arm() */
	unsigned fail[2];      /* numbers of calls that fail; 0: none */
	unsigned copies;       /* begun since rig_arm() */
	unsigned fail_copy;    /* number of the one that fails; 0: none */
	uint64_t work_until;   /* work of the program goes on until then, ns */
	uint64_t busy;	       /* streams with work that goes on, by bits: rig_stream() */
	unsigned device;       /* of the current context */
	unsigned busy_ctxs;    /* with work that goes on, by bits */
	unsigned captured;     /* contexts, by bits: in which a blocking stream captures */
	unsigned invalidated;  /* calls that have invalidated the capture of such a stream */
	unsigned streams;      /* made and not destroyed */
	unsigned peers;	       /* accesses that the driver has enabled */
	bool agent;	       /* the agent calls */
	unsigned asks;	       /* questions to gbpfd */
	uint64_t grants;       /* bytes of a row, all that gbpfd allows; 0: there is no gbpfd */
	bool ask_ends_work;    /* of streams: while gbpfd is asked for memory */
	CUresult work;	       /* a query's answer about it afterwards */
	bool goes_on;	       /* work goes on that has begun then: later events are not reached */
	bool may_be_unmapped;  /* a chunk may have lost its mapping, or its content */
	unsigned created[2];   /* memory since rig_arm(): of the device, of the host */
	unsigned exchanges;    /* of capture modes since rig_arm() */
	uint64_t moved[2];     /* as reported since rig_arm(): back, out */
	unsigned threads;      /* of the pool that were to begin */
	size_t param_bytes[4]; /* of a kernel; 0: there is none */
	const struct ptx_pointers *words; /* of a closed kernel; NULL: it is not closed */
	bool of_library;		  /* kernels are those of libraries */
	unsigned busy_looks;		  /* at kernels, which another thread holds meanwhile */
	CUdeviceptr other;		  /* memory of 2 MiB that never moves; 0: none */
	void (*on_moved)(void);		  /* called after a movement, before the next pause */
	void (*on_look)(void);		  /* called at each look at the clock */
	uint64_t exported[8];		  /* memory, in order; the test clears the number */
	unsigned n_exported;
	uint64_t ipc_bytes; /* of memory that another process gives, one chunk; 0: none does */
	/* Since rig_arm(): "oa": the first chunk begins to be copied out; "ba": back; "ha", "da":
	 * it is mapped to memory of the host, of the device; "w": a stream is waited for. The
	 * letter is by the order of allocation. */
	char trace[256];
} rig;

/* For a group of tests, and for each test. */
int rig_join(void **state);
int rig_join_two(void **state); /* a process with two devices */
int rig_set_up(void **state);
int rig_tear_down(void **state);

/* Returns the context of a device, and for 2 another one of the second device. */
CUcontext rig_context(unsigned i);
/* Returns what using the legacy stream of the current context results in. */
CUresult rig_use_legacy(void);
/* Returns the devices, by bits, that have access to what is mapped at an address. */
uint32_t rig_access(CUdeviceptr at);
/* Begins to count. fail, again: numbers of calls that fail; 0: none. */
void rig_arm(unsigned fail, unsigned again);
/* Sets the limit of the device, bytes. */
void rig_limit(uint64_t bytes);
/* Allocates, and writes to each chunk. */
CUdeviceptr rig_alloc(uint64_t bytes);
/* Writes to each chunk of an allocation. */
void rig_write(CUdeviceptr at);
/* Returns a stream of the program, of 64. */
CUstream rig_stream(unsigned i);
void rig_free(CUdeviceptr at);
/* Reserves addresses as the program does, and frees them. */
CUdeviceptr rig_reserve(uint64_t bytes);
void rig_unreserve(CUdeviceptr at, uint64_t bytes);
/* The same where a call of the driver may fail. Returns 0 or false then. */
CUdeviceptr rig_try_alloc(uint64_t bytes);
bool rig_try_free(CUdeviceptr at);
struct mem_swap_chunk *rig_chunk(CUdeviceptr at, unsigned i);
bool rig_on_device(CUdeviceptr at, unsigned i);
/* Moves chunks out until that many bytes are free of charge. */
void rig_out(uint64_t free);
/* Aborts if the mutex is held or work sections are closed: whatever follows would wait for ever.
 * Called after each movement. */
void rig_end_if_left(void);
/* Asserts that each chunk has its content, at the place that is noted, that all memory belongs to a
 * chunk or to the pool and is charged, and that no movement is under way. */
void rig_check(void);

#endif
