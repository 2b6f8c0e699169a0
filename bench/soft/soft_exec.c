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
	json_t *rounds = json_array();
	double plain = plain_rate();

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
		json_array_append_new(
			rounds, json_pack("[I, I]", (json_int_t)m->lanes, (json_int_t)m->cpu_ns));
	}
	bench_program_record("fma", json_pack("{s:o, s:f}", "rounds", rounds, "plain", plain));
}

static const char *const samples[] = { "vecadd",    "saxpy",	 "reduction", "scan",
				       "histogram", "transpose", "matmul",    "hotspot",
				       "bfs",	    "nbody",	 "softmax",   "spmv" };

static void run_sample(struct bench_soft *b, void *arg)
{
	char library[512], *slash;
	int null = open("/dev/null", O_WRONLY | O_CLOEXEC);

	snprintf(library, sizeof(library), "%s", b->testbed.libcuda);
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

/* Returns lane instructions and ns in blocks of each round; NULL: a run failed. */
static json_t *rounds_of(struct bench_soft *b, const char *name)
{
	json_t *rounds = json_array();

	for (unsigned i = 0; i < b->rounds; i++) {
		struct soft_stats before, after;

		if (bench_soft_server_stats(b, &before) < 0 ||
		    !bench_soft_run(b, run_sample, (void *)(uintptr_t)name) ||
		    bench_soft_server_stats(b, &after) < 0 || after.run_ns == before.run_ns) {
			json_decref(rounds);
			return NULL;
		}
		json_array_append_new(
			rounds,
			json_pack("[I, I]",
				  (json_int_t)(after.lane_instructions - before.lane_instructions),
				  (json_int_t)(after.run_ns - before.run_ns)));
	}
	return rounds;
}

void bench_soft_samples(struct bench_soft *b)
{
	for (size_t i = 0; i < ARRAY_SIZE(samples); i++) {
		json_t *rounds = rounds_of(b, samples[i]);

		if (!rounds) {
			bench_soft_broken(b, "samples", samples[i]);
			return;
		}
		bench_program_record("sample",
				     json_pack("{s:s, s:o}", "name", samples[i], "rounds", rounds));
	}
	bench_program_record("samples", json_null());
}
