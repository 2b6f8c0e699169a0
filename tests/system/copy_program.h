/* What the programs of copies share: a context with a kernel that inverts bytes, threads that copy
 * on different kinds of streams, and a stream that is held back. */
#ifndef GBPF_TESTS_SYSTEM_COPY_PROGRAM_H
#define GBPF_TESTS_SYSTEM_COPY_PROGRAM_H

#include <stddef.h>
#include <stdint.h>

#include "../programs/program.h"
#include "check.h"

#define cuDevicePrimaryCtxReset cuDevicePrimaryCtxReset_v2

#define COPY_LANES 4u

extern CUdevice copy_device;
extern CUcontext copy_context;
extern CUfunction copy_invert; /* of (u64 at, u32 n): inverts n bytes, one in each thread */

/* Calls cuInit and opens the first device's primary context. */
void copy_begin(void);
/* Retains the primary context, makes it current and loads the kernel into it; again after a
 * reset. */
void copy_open_context(void);

/* Fills with bytes that are cheap to compute and depend on the place and the seed. */
void copy_fill(unsigned char *p, size_t bytes, uint64_t seed);

/* Maps host memory at the beginning of reserved addresses. */
unsigned char *copy_map_host(size_t reserved, size_t mapped);

enum copy_kind { COPY_LEGACY, COPY_PER_THREAD, COPY_BLOCKING, COPY_NON_BLOCKING };

/* A thread with device memory of its own and a model of what that holds. */
struct copy_lane {
	enum copy_kind kind;
	uint64_t seed;
	CUstream stream;      /* owned; NULL: a default stream */
	CUdeviceptr at;	      /* owned */
	unsigned char *model; /* owned */
	uint64_t sum;	      /* of what `run` has read, if it computes one */
};

/* Prints the seed and calls `run` in COPY_LANES threads, each with a lane of another kind and a
 * seed of its own. Returns when all have returned. */
void copy_run_lanes(struct copy_lane lanes[COPY_LANES], uint64_t seed, void *(*run)(void *lane));
/* Makes the context current for this thread; creates the stream, the memory and its model, which is
 * zeroed. */
void copy_lane_begin(struct copy_lane *l, size_t bytes);
void copy_lane_end(struct copy_lane *l);
/* Inverts n bytes of the lane's memory on its stream, and those of the model. */
void copy_lane_invert(struct copy_lane *l, size_t off, size_t n);

/* Keeps later work of the stream from running before copy_release(). One stream at a time. */
void copy_hold(CUstream stream);
void copy_release(void);

/* Counts what a thread does repeatedly. */
void copy_count_round(void);
/* Returns when n rounds more have been counted. */
void copy_await_rounds(unsigned n);

/* Prints the process number and flushes the output, for which scripts wait. */
void copy_show_pid(void);

struct copy_case {
	const char *name;
	int (*run)(void);
};
/* Returns the result of the case of that name; exits if there is none. */
int copy_run_case(const struct copy_case *cases, size_t n, const char *name);

#endif
