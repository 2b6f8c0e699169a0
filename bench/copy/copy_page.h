/* The page of shared memory between the coordinator of `gbpf bench dev copy` and one of its
 * clients. */
#ifndef GBPF_BENCH_COPY_COPY_PAGE_H
#define GBPF_BENCH_COPY_COPY_PAGE_H

#include <stdint.h>

#include "bench/copy/intervals.h"

#define COPY_MAGIC 0x59504f43u
#define COPY_CALLS_MAX 256u
#define COPY_BYTES_MAX ((uint64_t)1 << 32)
#define COPY_LOG 16384u

enum bench_copy_state { COPY_STARTING, COPY_READY, COPY_FAILED };
enum bench_copy_way { COPY_UP, COPY_DOWN, COPY_BOTH, COPY_WAYS };
enum bench_copy_by { COPY_BY_DRIVER, COPY_BY_SHIM, COPY_BYS };

enum bench_copy_queue { COPY_QUEUE_COPY, COPY_QUEUE_COMPUTE, COPY_QUEUES };

/* What a command asks for. COPY_STREAM: copies by gBPF one after another until `stop`.
 * COPY_LATENCY: `calls` copies up by gBPF with a pause before each. COPY_CALIBRATE: finds the
 * `iterations` with which the kernel takes as long as an image's copies. COPY_IMAGES: upload,
 * kernel and download of one image after another until `stop`. */
enum bench_copy_job { COPY_COMPARE, COPY_STREAM, COPY_LATENCY, COPY_CALIBRATE, COPY_IMAGES };
#define COPY_JOBS (COPY_IMAGES + 1)

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
	uint32_t iterations;	/* COPY_IMAGES: the command; COPY_CALIBRATE: the answer; odd */
	uint64_t bytes;		/* the command */
	uint32_t cores;		/* that the client may use */
	char device[64], error[256];
	uint64_t ns[COPY_BYS][COPY_CALLS_MAX]; /* the answer */
	uint64_t copies_ns, kernel_ns;	       /* the answer of COPY_CALIBRATE: for one image */
	uint64_t images;		       /* atomic, client: processed by COPY_IMAGES */
	/* When each copy and each kernel of COPY_IMAGES was in flight: operation i of a queue is
	 * entry i % COPY_LOG. Both times are atomic; end_ns 0: it has not ended. */
	struct {
		uint64_t begun; /* atomic, client; releases begin_ns */
		struct bench_copy_interval entry[COPY_LOG];
	} log[COPY_QUEUES];
};

#endif
