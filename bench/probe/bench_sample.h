/* Known kernels as workloads of `gbpf bench probe`: the twelve of samples/, and two of them with
 * more to compute. Each is set up once, in its full size and as a single block, and then run again
 * and again from the same state, so that its results are the same to the bit. */
#ifndef GBPF_BENCH_PROBE_BENCH_SAMPLE_H
#define GBPF_BENCH_PROBE_BENCH_SAMPLE_H

#include "bench/probe/bench_probe.h"

#define BENCH_SAMPLE_BUFFERS 6u
#define BENCH_SAMPLE_KERNELS 2u
#define BENCH_SAMPLE_PARAMS 8u

enum bench_sample_size { BENCH_SAMPLE_FULL, BENCH_SAMPLE_BLOCK, BENCH_SAMPLE_SIZES };

struct bench_sample_buffer {
	CUdeviceptr at,
		first; /* owned; first: its contents before a run, 0: kernels only read it */
	size_t bytes;
};

struct bench_sample_launch {
	CUfunction f;
	unsigned grid[2], block[2];
	void *params[BENCH_SAMPLE_PARAMS]; /* of the sample's buffers and numbers */
};

struct bench_sample;

/* How a sample is set up and checked. n: its size, as the kind defines it. */
struct bench_sample_kind {
	const char *name, *pattern; /* of its kernels */
	const char *ptx, *kernels[BENCH_SAMPLE_KERNELS];
	unsigned n[BENCH_SAMPLE_SIZES], n_soft;
	/* Makes the buffers and launches. Returns 0; -1 with the testbed's error. */
	int (*set_up)(struct bench_probe *p, struct bench_sample *s);
	/* Returns whether the buffer `result` is right after one run; reads all or some of it. */
	bool (*is_right)(const struct bench_sample *s, const void *result);
	bool is_sample; /* of the twelve; else a larger one of the same kernel */
	/* By a thread, of one run; 0: not constant, or not known before it has been counted. */
	unsigned accesses;
	bool is_racy; /* accesses are not the same in all runs */
};

/* All zero before set_up. */
struct bench_sample {
	const struct bench_sample_kind *kind;
	enum bench_sample_size size;
	unsigned n;
	int number[4]; /* parameters that are numbers */
	float factor;
	struct bench_sample_buffer buffer[BENCH_SAMPLE_BUFFERS];
	unsigned n_buffers, result; /* the buffer that is compared */
	struct bench_sample_launch launch[BENCH_SAMPLE_KERNELS];
	unsigned n_launches; /* of a run */
	uint64_t hash;	     /* of the result after a measurement by the driver's library */
	struct bench_probe_work work; /* of one run */
};

/* ---- for kinds ---- */

/* Returns number i of a sequence: in [-0.5, 0.5); below a bound. */
float bench_sample_float(unsigned seed, uint64_t i);
uint32_t bench_sample_number(unsigned seed, uint64_t i, uint32_t below);
/* Adds a buffer. fresh: kernels write it, so it is filled again before each measurement. data NULL:
 * zeros. */
int bench_sample_add(struct bench_probe *p, struct bench_sample *s, const void *data, size_t bytes,
		     bool fresh);
/* Adds one of floats, bench_sample_float(seed, i) each. */
int bench_sample_add_floats(struct bench_probe *p, struct bench_sample *s, unsigned seed, size_t n,
			    bool fresh);
/* Adds a launch of the next kernel, with the parameters' addresses behind it, up to NULL. */
void bench_sample_launch(struct bench_sample *s, unsigned blocks_x, unsigned blocks_y,
			 unsigned threads_x, unsigned threads_y, ...) __attribute__((sentinel));
bool bench_sample_close(double got, double want, double relative);

extern const struct bench_sample_kind bench_sample_vectors[], bench_sample_sums[],
	bench_sample_dense[], bench_sample_sparse[]; /* an entry without a name at the end */

/* ---- bench_sample.c ---- */

/* Sets the sample up, checks what one run computes, and measures it by the driver's library. */
int bench_sample_open(struct bench_probe *p, struct bench_sample *s,
		      const struct bench_sample_kind *kind, enum bench_sample_size size,
		      const CUfunction *kernels);
/* Runs it once from its first state and waits for it. Adds its work to what is done. */
int bench_sample_run(struct bench_probe *p, struct bench_sample *s, struct bench_probe_work *done);
/* Times runs, and compares the result with that of the first measurement. */
int bench_sample_measure(struct bench_probe *p, struct bench_sample *s, enum bench_probe_by by,
			 struct bench_probe_work *done, struct bench_probe_time *ret);

#endif
