/* Several processes on one soft GPU: accuracy of time slices, correct results under concurrent
 * load, and resources that killed clients leave in the server. */
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "base/compiler.h"
#include "base/fd.h"
#include "bench/soft/bench_soft.h"

#define QUEUE 64u
#define TENANT_LOOPS 1000u /* kernels much shorter than slices */
#define MANY 16u
#define MANY_BLOCKS 8u
#define MANY_THREADS 128u

struct tenant {
	uint32_t ready, go, stop; /* atomic */
	uint32_t slice_us;
	uint32_t blocks, loops;
	struct cuabi_soft_counters begin, end;
	uint64_t begin_ns, end_ns;
};

/* Keeps QUEUE launches queued, so that the device always has work. */
static void run_tenant(struct bench_soft *b, void *arg)
{
	struct tenant *t = arg;
	CUevent done[QUEUE];
	CUdeviceptr out = 0;
	CUfunction f;
	bool counted = false;

	bench_soft_client_open(b);
	f = bench_soft_function("fma");
	CU(cuMemAlloc_v2(&out, (size_t)t->blocks * 256 * 4));
	CU(soft->timeslice_set(soft_cuda.ctx, t->slice_us));
	for (unsigned i = 0; i < QUEUE; i++) {
		CU(cuEventCreate(&done[i], 2 /* no timing */));
	}
	for (unsigned i = 0; !load_acquire(&t->stop); i++) {
		if (i >= QUEUE) {
			CU(cuEventSynchronize(done[i % QUEUE]));
		}
		bench_soft_launch(f, t->blocks, 256, NULL, (void *[]){ &out, &t->loops });
		CU(cuEventRecord(done[i % QUEUE], NULL));
		if (i == QUEUE) {
			store_release(&t->ready, 1);
		}
		if (!counted && load_acquire(&t->go)) {
			counted = true;
			CU(soft->counters(soft_cuda.ctx, &t->begin));
			t->begin_ns = clock_now_ns();
		}
	}
	CU(soft->counters(soft_cuda.ctx, &t->end));
	t->end_ns = clock_now_ns();
	CU(cuCtxSynchronize());
}

static double run_ms(const struct tenant *t)
{
	return (double)(t->end.run_ns - t->begin.run_ns) * 1e-6;
}

/* Returns blocks per second. */
static double speed(const struct tenant *t)
{
	double s = (double)(t->end_ns - t->begin_ns) * 1e-9;

	return s > 0 ? (double)(t->end.blocks_done - t->begin.blocks_done) / s : 0;
}

static bool run_tenants(struct bench_soft *b, struct tenant *t, unsigned n, unsigned ms)
{
	pid_t pid[2];
	bool ok = true;

	for (unsigned i = 0; i < n; i++) {
		t[i] = (struct tenant){ .slice_us = t[i].slice_us,
					.blocks = 2 * b->hello.workers,
					.loops = TENANT_LOOPS };
		pid[i] = bench_soft_spawn(b, run_tenant, &t[i]);
	}
	for (unsigned i = 0; i < n; i++) {
		while (!load_acquire(&t[i].ready) && waitpid(pid[i], NULL, WNOHANG) == 0) {
			clock_sleep_ns(200000);
		}
	}
	for (unsigned i = 0; i < n; i++) {
		store_release(&t[i].go, 1);
	}
	clock_sleep_ns((uint64_t)ms * 1000000);
	for (unsigned i = 0; i < n; i++) {
		store_release(&t[i].stop, 1);
	}
	for (unsigned i = 0; i < n; i++) {
		ok = bench_soft_wait(pid[i]) && ok;
	}
	return ok;
}

/* alone: blocks per second of one tenant without another. */
static void one_pair(struct bench_soft *b, struct tenant *t, uint32_t first_us, uint32_t second_us,
		     double alone)
{
	t[0].slice_us = first_us;
	t[1].slice_us = second_us;
	if (!run_tenants(b, t, 2, 2 * b->ms)) {
		bench_soft_broken(b, "slices", "a tenant failed");
		return;
	}
	bench_program_record("slices", json_pack("{s:[i,i], s:[f,f], s:[f,f], s:f}", "slices_us",
						 (int)first_us, (int)second_us, "run_ms",
						 run_ms(&t[0]), run_ms(&t[1]), "blocks_per_s",
						 speed(&t[0]), speed(&t[1]), "alone", alone));
}

void bench_soft_slices(struct bench_soft *b)
{
	struct tenant *t = bench_soft_shared(2 * sizeof(*t));

	if (t) {
		t[0].slice_us = 2000;
	}
	if (!t || !run_tenants(b, t, 1, b->ms)) {
		bench_soft_broken(b, "slices", "a tenant failed");
		return;
	}
	one_pair(b, t, 2000, 2000, speed(&t[0]));
	if (!run_tenants(b, t, 1, b->ms)) {
		bench_soft_broken(b, "slices", "a tenant failed");
		return;
	}
	one_pair(b, t, 20000, 2000, speed(&t[0]));
}

struct many {
	uint32_t number, loops;
	uint32_t right; /* results */
};

static float expected(float f1, uint32_t loops)
{
	const float a = 0x1.ffep-1f, c = 0.25f;
	float f2 = 1, f3 = 2, f4 = 3;

	for (uint32_t i = 0; i < 2 * loops; i++) {
		f1 = fmaf(f1, a, c);
		f2 = fmaf(f2, a, c);
		f3 = fmaf(f3, a, c);
		f4 = fmaf(f4, a, c);
	}
	return (f1 + f2) + (f3 + f4);
}

/* Each process has its own number of rounds, so that its results differ from all others'. */
static void run_one_of_many(struct bench_soft *b, void *arg)
{
	struct many *m = arg;
	unsigned n = MANY_BLOCKS * MANY_THREADS, right = 0;
	float *got = calloc(n, sizeof(*got));
	CUdeviceptr out = 0;
	CUfunction f;

	if (!got) {
		_exit(1);
	}
	bench_soft_client_open(b);
	f = bench_soft_function("fma");
	CU(cuMemAlloc_v2(&out, n * sizeof(*got)));
	for (unsigned k = 0; k < 20; k++) {
		uint32_t loops = m->loops + k;

		bench_soft_launch(f, MANY_BLOCKS, MANY_THREADS, NULL, (void *[]){ &out, &loops });
		CU(cuMemcpyDtoH_v2(got, out, n * sizeof(*got)));
		for (unsigned i = 0; i < n; i += 37) {
			right += got[i] == expected((float)i, loops);
		}
	}
	m->right = right;
	free(got);
}

void bench_soft_many(struct bench_soft *b)
{
	struct many *m = bench_soft_shared(MANY * sizeof(*m));
	const unsigned each = 20 * ((MANY_BLOCKS * MANY_THREADS + 36) / 37);
	unsigned processes = 0;
	uint64_t begin = clock_now_ns();
	pid_t pid[MANY];

	if (!m) {
		bench_soft_broken(b, "many", "no memory");
		return;
	}
	for (unsigned i = 0; i < MANY; i++) {
		m[i].loops = 50 + i;
		pid[i] = bench_soft_spawn(b, run_one_of_many, &m[i]);
	}
	for (unsigned i = 0; i < MANY; i++) {
		processes += bench_soft_wait(pid[i]) && m[i].right == each;
	}
	bench_program_record("many", json_pack("{s:i, s:i, s:f}", "processes", (int)MANY, "right",
					       (int)processes, "ms",
					       (double)(clock_now_ns() - begin) * 1e-6));
}

/* Holds one of every kind of resource, and works until it is killed. */
static void run_victim(struct bench_soft *b, void *arg)
{
	uint32_t loops = 3000, blocks = 8;
	CUdeviceptr d = 0, e = 0;
	CUstream s = NULL;
	CUfunction f;
	void *pinned = NULL;

	bench_soft_client_open(b);
	f = bench_soft_function("fma");
	CU(cuStreamCreate(&s, 1));
	for (unsigned i = 0;; i++) {
		CU(cuMemAlloc_v2(&d, 1u << 20));
		CU(cuMemAlloc_v2(&e, 1u << 20));
		CU(cuMemAllocHost_v2(&pinned, 1u << 20));
		bench_soft_launch(f, blocks, 256, s, (void *[]){ &d, &loops });
		CU(cuMemcpyHtoDAsync_v2(e, pinned, 1u << 20, NULL));
		bench_soft_launch(f, blocks, 256, NULL, (void *[]){ &d, &loops });
		if (i % 3 == 2) {
			CU(cuCtxSynchronize());
			CU(cuMemFree_v2(d));
			CU(cuMemFreeHost(pinned));
		}
	}
}

static uint64_t next_random(uint64_t *x)
{
	*x ^= *x << 13;
	*x ^= *x >> 7;
	*x ^= *x << 17;
	return *x;
}

/* Kills n clients. Returns false if one ended by itself because a call failed. */
static bool kill_some(struct bench_soft *b, unsigned n, uint64_t *seed)
{
	for (unsigned i = 0; i < n; i++) {
		pid_t pid = bench_soft_spawn(b, run_victim, NULL);
		int status = 0;

		clock_sleep_ns(next_random(seed) % 30000000);
		if (pid > 0) {
			kill(pid, SIGKILL);
			waitpid(pid, &status, 0);
		}
		if (!WIFSIGNALED(status)) {
			return false;
		}
	}
	return true;
}

static json_t *resources(const struct soft_stats *s, uint64_t resident)
{
	return json_pack(
		"{s:I, s:I, s:I, s:I}", "descriptors", (json_int_t)s->descriptors, "objects",
		(json_int_t)(s->contexts + s->streams + s->modules + s->functions + s->allocations),
		"memory", (json_int_t)(s->memory_used + s->pinned_used), "resident",
		(json_int_t)resident);
}

/* The first kills grow the server's heap to its final size; later ones must not grow it. */
void bench_soft_kills(struct bench_soft *b)
{
	struct soft_stats before, after;
	uint64_t seed = 0x9e3779b97f4a7c15ull, memory;

	if (b->kills == 0) {
		return;
	}
	if (!kill_some(b, 20, &seed) || bench_soft_server_settled(b, &before) < 0) {
		bench_soft_broken(b, "kills", "a client failed, or remained after its death");
		return;
	}
	memory = bench_soft_server_memory(b);
	if (!kill_some(b, b->kills, &seed) || bench_soft_server_settled(b, &after) < 0) {
		bench_soft_broken(b, "kills", "a client failed, or remained after its death");
		return;
	}
	bench_program_record("kills", json_pack("{s:i, s:o, s:o}", "kills", (int)b->kills, "before",
						resources(&before, memory), "after",
						resources(&after, bench_soft_server_memory(b))));
}
