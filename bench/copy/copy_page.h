/* The page of shared memory between the coordinator of `gbpf bench copy` and one of its clients. */
#ifndef GBPF_BENCH_COPY_COPY_PAGE_H
#define GBPF_BENCH_COPY_COPY_PAGE_H

#include <stdint.h>

#define COPY_MAGIC 0x59504f43u
#define COPY_CALLS_MAX 256u
#define COPY_BYTES_MAX ((uint64_t)1 << 32)

enum bench_copy_state { COPY_STARTING, COPY_READY, COPY_FAILED };
enum bench_copy_way { COPY_UP, COPY_DOWN, COPY_BOTH, COPY_WAYS };
enum bench_copy_by { COPY_BY_DRIVER, COPY_BY_SHIM, COPY_BYS };

/* What a command asks for. COPY_STREAM: copies by gBPF one after another until `stop`.
 * COPY_LATENCY: `calls` copies up by gBPF with a pause before each. */
enum bench_copy_job { COPY_COMPARE, COPY_STREAM, COPY_LATENCY, COPY_JOBS };

struct bench_copy_page {
	uint32_t magic;
	uint32_t state;		/* atomic, client: enum bench_copy_state */
	uint32_t command, done; /* atomic; number of the newest command, and of the one carried
				   out; futex */
	uint32_t way, calls;	/* the command: enum bench_copy_way, copies by each library */
	uint32_t pid;		/* client */
	uint32_t job, stop;	/* the command: enum bench_copy_job; atomic */
	uint32_t looping;	/* atomic, client: the loop of the command has begun */
	uint32_t pinned;	/* the command: copies of page-locked memory, but COPY_COMPARE */
	uint32_t pause_us;	/* the command: COPY_LATENCY */
	uint32_t fresh;		/* the command: downwards, memory that was not touched */
	uint64_t bytes;		/* the command */
	uint32_t cores;		/* that the client may use */
	char device[64], error[256];
	uint64_t ns[COPY_BYS][COPY_CALLS_MAX]; /* the answer */
};

#endif
