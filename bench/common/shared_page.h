/* The page of shared memory between a bench's coordinator and one of its clients: the coordinator
 * creates it and the client inherits it. The coordinator writes a command and its number, the
 * client the number of the command that it has carried out. Both processes belong to the bench: a
 * damaged page spoils a measurement and nothing else. */
#ifndef GBPF_BENCH_COMMON_SHARED_PAGE_H
#define GBPF_BENCH_COMMON_SHARED_PAGE_H

#include <stdint.h>

#define PAGE_MAGIC 0x48434e42u
#define PAGE_SAMPLES 65536u
#define PAGE_CLASSES 3u	    /* classes of samples: most clients have one */
#define PAGE_SPANS 32768u   /* of a steady client */
#define PAGE_RECORDS 65536u /* of a task of DISB */
#define PAGE_STEPS 512u	    /* kernels of its requests whose start times are recorded */
#define PAGE_TEXT 256

enum bench_page_state { PAGE_STARTING, PAGE_READY, PAGE_FAILED };

enum bench_page_op {
	PAGE_NONE,
	PAGE_REQUESTS, /* latency client: n requests of a kind, or until the limit */
	PAGE_WORK,     /* batch client: done when the first kernel has ended; work continues */
	PAGE_PAUSE,    /* batch client: drain and check */
	PAGE_EXIT,
};

enum bench_page_kind { KIND_ONE, KIND_QUEUED, KIND_SYNCED, KIND_HOSTBOUND, PAGE_KINDS };

/* A request, or a wait for batch work. While open, begin is set and end is 0. */
struct bench_page_span {
	uint64_t begin_ns, end_ns; /* atomic, CLOCK_MONOTONIC */
};

/* A request of a task of DISB. first, front: start times of its first kernel and of the
 * PAGE_FRONT-th after it on the device; -1: not measured. */
#define PAGE_FRONT 8u
struct bench_page_request {
	uint64_t due_ns; /* when it was due */
	float late_us;	 /* delay of its beginning, */
	float first_us;	 /* from which all others are counted */
	float front_us;
	float took_us;
};

struct bench_page {
	uint32_t magic;
	uint32_t state;	  /* atomic, client: enum bench_page_state */
	uint32_t command; /* atomic, coordinator: number of the newest command; futex */
	uint32_t done;	  /* atomic, client: number of the command carried out; futex */

	/* the command */
	uint32_t op, kind, n;
	uint32_t moving; /* atomic, client: 1 while its memory leaves the device or comes back */
	uint64_t seed, limit_ns;
	uint64_t epoch_ns, offset_ns; /* of a schedule */

	/* set by a client that is ready */
	uint32_t sms, threads_per_sm, mps;
	uint32_t pid;
	uint32_t unavailable; /* failed because the machine lacks a feature */
	char device[64];
	uint32_t iterations[2]; /* calibrated: of one block of the latency kernel, of batch */
	double block_us[2];	/* duration of these blocks */

	/* results */
	uint64_t finished;	   /* atomic: kernels of batch, spans of a steady client */
	uint64_t wrong, checked;   /* blocks or values with a wrong result; checked in total */
	uint64_t begin_ns, end_ns; /* of the requests */
	uint64_t dropped;	   /* periodic load: missed slots */
	uint32_t samples[PAGE_CLASSES];
	char error[PAGE_TEXT];
	union {
		float us[PAGE_CLASSES][PAGE_SAMPLES];
		struct bench_page_request request[PAGE_RECORDS];
		struct bench_page_span span[PAGE_SPANS]; /* number finished % PAGE_SPANS is open */
	};
	/* of a task of DISB: sums over requests, from each kernel's start to the next one's */
	double step_us[PAGE_STEPS];
	uint32_t steps; /* number of requests in the sums */
};

#endif
