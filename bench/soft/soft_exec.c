/* Execution speed of kernels: a loop of multiplications and additions, and the sample programs. The
 * server counts lane instructions and the time in blocks; the fastest of several rounds counts,
 * since other programs can only slow them down. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/compiler.h"
#include "bench/soft/bench_soft.h"

#define FMA_BLOCK 256u
#define FMA_GOAL 1.0 /* G lane instructions per second and core */
#define SAMPLES_GOAL 0.3

struct fma {
	uint32_t blocks, loops;
	uint64_t cpu_ns, lanes; /* of the server; of the launch */
};

static void run_fma(struct bench_soft *b, void *arg)
{
	struct fma *m = arg;
	struct soft_stats before, after;
	CUdeviceptr out = 0;
	CUfunction f;

	bench_soft_client_open(b);
	f = bench_soft_function("fma");
	CU(cuMemAlloc_v2(&out, (size_t)m->blocks * FMA_BLOCK * 4));
	if (bench_soft_server_stats(b, &before) < 0) {
		_exit(1);
	}
	m->cpu_ns = bench_soft_server_cpu_ns(b);
	bench_soft_launch(f, m->blocks, FMA_BLOCK, NULL, (void *[]){ &out, &m->loops });
	CU(cuCtxSynchronize());
	m->cpu_ns = bench_soft_server_cpu_ns(b) - m->cpu_ns;
	if (bench_soft_server_stats(b, &after) < 0) {
		_exit(1);
	}
	m->lanes = after.lane_instructions - before.lane_instructions;
}

/* The same loop for one lane after the other, as compiled C. */
static NOINLINE float plain_loop(uint32_t loops, float seed)
{
	float f1 = seed, f2 = 1, f3 = 2, f4 = 3;

	for (uint32_t i = 0; i < loops; i++) {
		for (unsigned k = 0; k < 2; k++) {
			f1 = f1 * 0.999756f + 0.25f;
			f2 = f2 * 0.999756f + 0.25f;
			f3 = f3 * 0.999756f + 0.25f;
			f4 = f4 * 0.999756f + 0.25f;
		}
		__asm__ volatile("" : "+x"(f1), "+x"(f2), "+x"(f3), "+x"(f4));
	}
	return f1 + f2 + f3 + f4;
}

/* Returns the rate of the C loop, with 11 instructions per round as in the kernel. */
static double plain_rate(void)
{
	const uint32_t loops = 2000000;
	double best = 0;
	volatile float sink = 0;

	for (unsigned i = 0; i < 5; i++) {
		uint64_t begin = clock_cpu_ns();

		sink = plain_loop(loops, (float)i + sink * 0);
		best = MAX(best, loops * 11.0 / (double)(clock_cpu_ns() - begin));
	}
	return best;
}

void bench_soft_fma(struct bench_soft *b)
{
	struct fma *m = bench_soft_shared(sizeof(*m));
	double best = 0, control = plain_rate();

	if (!m) {
		bench_soft_broken(b, "fma", "no memory");
		return;
	}
	m->blocks = 8 * b->hello.workers;
	m->loops = b->ms * 20 + 100;
	for (unsigned i = 0; i < b->rounds; i++) {
		if (!bench_soft_run(b, run_fma, m) || m->cpu_ns == 0) {
			bench_soft_broken(b, "fma", "the launch failed");
			return;
		}
		best = MAX(best, (double)m->lanes / (double)m->cpu_ns);
	}
	bench_soft_report(b, "fma",
			  &(struct bench_soft_figure){ .what = "lane instructions a core",
						       .unit = "G/s",
						       .value = best,
						       .control = "plain C loop",
						       .control_value = control,
						       .goal = GOAL_AT_LEAST,
						       .target = FMA_GOAL });
}

static const char *const samples[] = { "vecadd",    "saxpy",	 "reduction", "scan",
				       "histogram", "transpose", "matmul",    "hotspot",
				       "bfs",	    "nbody",	 "softmax",   "spmv" };

static void run_sample(struct bench_soft *b, void *arg)
{
	char library[512], *slash;
	int null = open("/dev/null", O_WRONLY | O_CLOEXEC);

	snprintf(library, sizeof(library), "%s", b->libcuda);
	slash = strrchr(library, '/');
	if (!slash || null < 0) {
		_exit(127);
	}
	*slash = '\0';
	setenv("LD_LIBRARY_PATH", library, 1);
	dup2(null, STDOUT_FILENO);
	execl(b->samples, b->samples, "--size", b->ms >= 500 ? "131072" : "8192", (char *)arg,
	      (char *)NULL);
	_exit(127);
}

/* Returns lane instructions and ns in blocks of the fastest round. */
static bool best_of_sample(struct bench_soft *b, const char *name, double *lanes, double *ns)
{
	*ns = 0;
	for (unsigned i = 0; i < b->rounds; i++) {
		struct soft_stats before, after;
		double took;

		if (bench_soft_server_stats(b, &before) < 0 ||
		    !bench_soft_run(b, run_sample, (void *)(uintptr_t)name) ||
		    bench_soft_server_stats(b, &after) < 0) {
			return false;
		}
		took = (double)(after.run_ns - before.run_ns);
		if (*ns == 0 || took < *ns) {
			*ns = took;
			*lanes = (double)(after.lane_instructions - before.lane_instructions);
		}
	}
	return *ns > 0;
}

void bench_soft_samples(struct bench_soft *b)
{
	double all_lanes = 0, all_ns = 0, lanes, ns;
	char what[64];

	for (size_t i = 0; i < ARRAY_SIZE(samples); i++) {
		if (!best_of_sample(b, samples[i], &lanes, &ns)) {
			bench_soft_broken(b, "samples", samples[i]);
			return;
		}
		all_lanes += lanes;
		all_ns += ns;
		snprintf(what, sizeof(what), "%s, %.1f M lane instructions", samples[i],
			 lanes * 1e-6);
		bench_soft_report(b, "samples",
				  &(struct bench_soft_figure){
					  .what = what, .unit = "G/s", .value = lanes / ns });
	}
	bench_soft_report(
		b, "samples",
		&(struct bench_soft_figure){ .what = "all twelve, lane instructions a core",
					     .unit = "G/s",
					     .value = all_lanes / all_ns,
					     .goal = GOAL_AT_LEAST,
					     .target = SAMPLES_GOAL });
}
