/* The page of shared memory between the coordinator of `gbpf bench memory` and its clients. All of
 * them belong to the bench: a damaged page spoils a measurement and nothing else. */
#ifndef GBPF_BENCH_QUOTA_QUOTA_PAGE_H
#define GBPF_BENCH_QUOTA_QUOTA_PAGE_H

#include <stdint.h>

#define QUOTA_MAGIC 0x41544f51u
#define QUOTA_WORKERS 16u
#define QUOTA_THREADS 64u
#define QUOTA_PROBE QUOTA_WORKERS	  /* slot of the client outside the vGPU */
#define QUOTA_LATENCY (QUOTA_WORKERS + 1) /* first slot of the clients that time calls */
#define QUOTA_CONDITIONS 2u
#define QUOTA_MOVEMENT (QUOTA_LATENCY + QUOTA_CONDITIONS) /* slot of the client with swap */
#define QUOTA_LOADS (QUOTA_MOVEMENT + 1) /* first slot of the clients with a load */
#define QUOTA_LOADS_MAX 27u
#define QUOTA_SLOTS (QUOTA_LOADS + QUOTA_LOADS_MAX)
#define QUOTA_PAIRS 1024u
#define QUOTA_UNIT (2u << 20) /* sizes are multiples of this if they are whole */

/* Whose calls are timed: those of the libcuda that a program gets, or the driver's. */
enum bench_quota_by { QUOTA_BY_PROGRAM, QUOTA_BY_DRIVER, QUOTA_BYS };

enum bench_quota_state { QUOTA_STARTING, QUOTA_READY, QUOTA_FAILED };

/* What workers do, the low bits of a phase. */
enum bench_quota_activity {
	QUOTA_HOLD,    /* keep what they hold */
	QUOTA_RELEASE, /* free it */
	QUOTA_RACE,    /* allocate and free */
	QUOTA_EXIT,    /* end; of any client */
	QUOTA_ACTIVITIES
};

/* What a client with a load does on command. */
enum bench_quota_op {
	QUOTA_LOAD_FILL,    /* fill the memory of the host from which the next task is made */
	QUOTA_LOAD_TASK,    /* upload it, let kernels change it, and download it */
	QUOTA_LOAD_MAKE,    /* make the layers of cycles */
	QUOTA_LOAD_CYCLE,   /* let a kernel use one layer after the other, in each pass */
	QUOTA_LOAD_FREE,    /* ask the driver what is free */
	QUOTA_LOAD_PROGRAM, /* run a program of a pair from its allocations to its end */
};

/* The programs of a pair. */
enum bench_quota_program { QUOTA_STENCIL, QUOTA_PRODUCT, QUOTA_KMEANS, QUOTA_PROGRAMS };

/* The command to a client with a load, and its answer. */
struct bench_quota_load {
	uint32_t op;	 /* enum bench_quota_op */
	uint32_t passes; /* of kernels over all memory */
	uint64_t bytes;	 /* of a task, of a layer, or of all memory of a program */
	uint32_t layers;
	uint32_t by_hand;  /* layers lie on the host; the client itself copies them, by turns */
	uint32_t reads;	   /* of a layer by a kernel */
	uint32_t change;   /* kernels change the layers */
	uint32_t program;  /* enum bench_quota_program */
	uint32_t managed;  /* it uses managed memory */
	uint32_t seed;	   /* of its data */
	uint32_t partner;  /* slot of the program for whose `made` it waits before it computes */
	uint32_t made;	   /* atomic; 1: the program has its memory; the coordinator resets it */
	uint64_t stride;   /* of the words that kernels use: 1 on a device */
	uint64_t limit_ns; /* of a program's passes: none begins after it; 0: no limit */
	uint64_t begin_ns; /* the answer: CLOCK_MONOTONIC, and */
	uint64_t end_ns;
	uint64_t passes_ns;   /* the time of the passes of a program */
	uint32_t passes_done; /* atomic: its passes that have ended */
	uint64_t wrong;	 /* number of words with a wrong value, of those that were compared; and */
	uint64_t digest; /* of all results so far, or of those of a program */
	uint64_t free_bytes; /* of the device, by the driver */
	uint32_t refused;    /* 1: there was no memory for the task */
};

struct bench_quota_slot {
	uint32_t state;		  /* atomic, client: enum bench_quota_state */
	uint32_t pid;		  /* client */
	uint32_t wanted, started; /* atomic: number of starts that the coordinator wants, and that
				     the group has done */
	uint32_t quiet; /* atomic, client: threads that have done what the phase asks for; the
			   coordinator resets it before each phase */
	uint32_t command, done; /* atomic; of the clients that time calls or movements: number of
				   the newest command, and of the one carried out; futex */
	uint32_t pairs;		/* the command: calls to time, 0: only reach `live` */
	uint64_t live;		/* the command: allocations to hold; answer: those it holds */
	/* Bytes that a worker asked for and has not freed: [atomic] raised after an allocation has
	 * succeeded, and lowered before the memory is freed. */
	int64_t held;
	uint64_t allocations, refusals; /* atomic */
	uint64_t readings; /* atomic, probe: number of times that it asked the driver */
	uint64_t free_bytes, total_bytes, least_free; /* atomic, probe: the driver's answers */
	struct bench_quota_load load;
	char device[64], error[256];
	uint32_t ns[QUOTA_BYS][QUOTA_PAIRS];
};

/* A round in which memory left the device and came back. */
struct bench_quota_round {
	uint64_t buffer_bytes;	      /* of the buffer of which chunks moved */
	uint64_t out_bytes, out_ns;   /* those that left during an allocation, and its duration */
	uint64_t back_bytes, back_ns; /* those that came back during a free, and its duration */
	uint64_t pinned_bytes;	      /* of a copy of pinned memory */
	uint64_t up_ns, down_ns;      /* the shortest of these copies to and from the device */
};

struct bench_quota_page {
	uint32_t magic;
	uint32_t phase; /* atomic; QUOTA_ACTIVITIES * number + enum bench_quota_activity; futex */
	uint32_t whole; /* atomic: sizes are multiples of QUOTA_UNIT */
	uint32_t probe_restarts; /* atomic: incremented to restart least_free */
	uint64_t limit;		 /* of all workers together, bytes */
	uint64_t base_free;	 /* free on the device before workers allocate */
	/* Sum of `held`, and its maximum, which is exact: [atomic] each worker raises them at each
	 * allocation. While no worker is killed the sum never exceeds what the device has given. */
	int64_t total, peak;
	int64_t driver_peak; /* atomic: the most that the driver said was in use to a worker that
				checks before it allocates */
	uint64_t swap;	     /* what the client with swap may hold on the host, bytes */
	struct bench_quota_round movement; /* its newest round; valid when `done` says so */
	struct bench_quota_slot slot[QUOTA_SLOTS];
};

#endif
