/* Load during attachments. One thread keeps kernels of 3 ms queued. Another one launches in turn
 * the probed kernel grow, of about 1 000 PTX instructions or as machine code, and the kernel other,
 * on a stream of its own, and times each launch. The number of launches of grow follows from its
 * results. */
#ifndef GBPF_BENCH_PROBE_BENCH_PROBE_LOAD_H
#define GBPF_BENCH_PROBE_BENCH_PROBE_LOAD_H

#include <pthread.h>

#include "bench/probe/bench_probe.h"

#define BENCH_PROBE_GROW_BLOCKS 4u
#define BENCH_PROBE_GROW_THREADS 128u
#define BENCH_PROBE_GROW_FACTOR 1664525u

/* Launches of both kernels that began while the window was open. */
struct bench_probe_window {
	uint64_t longest_ns; /* from call to end */
	uint64_t iterations; /* of both */
	uint64_t late;	     /* launches of over a millisecond */
};

/* A launch of grow: when it had ended, how long the call took, and call and kernel. */
struct bench_probe_launched {
	uint64_t ended_ns, call_ns, total_ns;
};

/* How a thread of the load failed. */
struct bench_probe_failure {
	uint32_t failed; /* [atomic] the fields below are set */
	CUresult result;
	const char *call;
};

struct bench_probe_load {
	struct bench_probe *p;
	pthread_t thread[2];
	unsigned threads; /* that have been started */
	bool code;	  /* grow is machine code */
	size_t code_bytes;
	void *image;	       /* owned; that grow was loaded from: text or machine code */
	CUmodule module, copy; /* of grow; of a copy that is launched past the shim, NULL: none */
	CUfunction grow;       /* or its copy; changed while the timed thread is parked */
	bool past;	       /* grow is launched past the shim; likewise */
	CUdeviceptr at;
	CUstream busy_stream, stream;
	CUevent busy[2];
	uint32_t stop, park, parked;	       /* [atomic] */
	uint64_t grown, iterations, busy_done; /* [atomic] launches that have ended; both of them */
	struct bench_probe_launched *launched; /* owned; of grow, in a ring */
	struct bench_probe_window *window;     /* [atomic] of main's; NULL: none is open */
	struct bench_probe_failure failure[2];
};

/* Starts the load. finish stops it and may be called after a failure, and twice. */
int bench_probe_load_start(struct bench_probe *p, struct bench_probe_load *l, bool code);
void bench_probe_load_finish(struct bench_probe_load *l);
/* Stops it, and checks that each launch of grow has run exactly once. */
int bench_probe_load_verify(struct bench_probe_load *l);

/* Opens a window, or (NULL) closes it and waits until the launch that it is open for has ended. */
int bench_probe_load_window(struct bench_probe_load *l, struct bench_probe_window *w);
/* Waits until both kernels have been launched n more times, one after the other. */
int bench_probe_load_proceed(struct bench_probe_load *l, uint64_t n);
/* Waits until the timed thread is between two launches, and holds it there; lets it continue. */
int bench_probe_load_park(struct bench_probe_load *l);
void bench_probe_load_unpark(struct bench_probe_load *l);
/* Waits until grow runs the tool; until there are no tools. */
int bench_probe_load_await(struct bench_probe_load *l, const struct bench_probe_tool *t);
int bench_probe_load_await_none(struct bench_probe_load *l);
/* Returns launch i of grow, counted from 0; NULL: not ended yet, or no longer known. */
const struct bench_probe_launched *bench_probe_load_launched(const struct bench_probe_load *l,
							     uint64_t i);

/* ---- bench_probe_flip.c ---- */

/* Times launches that are the first ones with a tool, and without it. */
int bench_probe_flip(struct bench_probe_load *l, const struct buf *object);

/* ---- bench_probe_grow.c ---- */

/* Loads the module and gets the kernel. */
int bench_probe_grow_load(struct bench_probe *p, struct bench_probe_load *l);
/* From now on the timed thread, which is parked, launches a copy of grow past the shim, which does
 * not know it and which was never launched; until the second call. */
int bench_probe_grow_copy(struct bench_probe *p, struct bench_probe_load *l);
int bench_probe_grow_return(struct bench_probe *p, struct bench_probe_load *l);
/* Returns what n launches make of a word. */
uint32_t bench_probe_grown(uint32_t x, uint64_t n);

#endif
