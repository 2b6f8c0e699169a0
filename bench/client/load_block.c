/* Launches bench_block and checks its traces; determines how many iterations make a block of a
 * given length on this device. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "bench/client/load_client.h"

#define MUL 0.99999f
#define ADD 0.5f
#define OUT_BLOCKS 4096u
#define WARM_NS 100000000u
#define CLOCK_TRIES 200u
#define CHECK_THREADS 8u /* threads of a block whose result is recomputed */

static float expected(unsigned thread, int iterations)
{
	float v = (float)thread;

	for (int i = 0; i < iterations; i++) {
		v = fmaf(v, MUL, ADD);
	}
	return v;
}

static void clear(struct bench_block_work *w)
{
	CU(cuMemsetD32_v2(w->count, 0, w->grid));
	CU(cuCtxSynchronize());
	w->launched = 0;
}

void bench_block_work_init(struct bench_block_work *w, struct bench_client *c, unsigned grid,
			   unsigned threads, int iterations)
{
	*w = (struct bench_block_work){ .c = c, .grid = grid, .threads = threads };
	w->iterations = iterations;
	w->mask = 1;
	while (w->mask < OUT_BLOCKS * threads && w->mask < grid * threads) {
		w->mask *= 2;
	}
	CU(cuMemAlloc_v2(&w->out, (size_t)w->mask * 4));
	CU(cuMemAlloc_v2(&w->count, (size_t)grid * 4));
	w->mask--;
	w->stream = bench_client_stream(c);
	clear(w);
}

void bench_block_work_launch(struct bench_block_work *w)
{
	float a = MUL, b = ADD;
	void *params[] = { &w->out, &w->count, &a, &b, &w->iterations, &w->mask, &w->when };

	CU(cuLaunchKernel(w->when ? w->c->timed : w->c->block, w->grid, 1, 1, w->threads, 1, 1, 0,
			  w->stream, params, NULL));
	w->launched++;
}

/* The GPU's time lies between the launch and the return of the wait. */
int64_t bench_block_work_clock(struct bench_block_work *w, volatile uint64_t *when)
{
	CUdeviceptr at = (CUdeviceptr)(uintptr_t)when;
	void *params[] = { &at };
	uint64_t best = UINT64_MAX;
	int64_t ret = 0;

	for (unsigned i = 0; i < CLOCK_TRIES; i++) {
		uint64_t begin = clock_now_ns(), end;

		CU(cuLaunchKernel(w->c->stamp, 1, 1, 1, 1, 1, 1, 0, w->stream, params, NULL));
		CU(cuStreamSynchronize(w->stream));
		end = clock_now_ns();
		if (end - begin < best) {
			best = end - begin;
			ret = (int64_t)(begin + best / 2) - (int64_t)load_relaxed(when);
		}
	}
	return ret;
}

void bench_block_work_check(struct bench_block_work *w)
{
	struct bench_page *p = w->c->page;
	uint32_t *count = malloc((size_t)w->grid * 4);
	unsigned values = MIN(w->threads, w->mask + 1);
	float *out = malloc(values * sizeof(*out));

	if (!count || !out) {
		bench_client_fail("out of memory for results");
	}
	CU(cuMemcpyDtoH_v2(count, w->count, (size_t)w->grid * 4));
	CU(cuMemcpyDtoH_v2(out, w->out, values * sizeof(*out)));
	for (unsigned i = 0; i < w->grid; i++) {
		p->wrong += count[i] != w->launched;
	}
	p->checked += w->grid;
	for (unsigned i = 0; w->launched && i < CHECK_THREADS; i++) {
		unsigned t = i * values / CHECK_THREADS;
		float want = expected(t % w->threads, w->iterations);

		p->wrong += memcmp(&out[t], &want, sizeof(want)) != 0;
		p->checked++;
	}
	free(count);
	free(out);
	clear(w);
}

/* Returns the microseconds of a launch, the shortest of several. */
static double time_us(struct bench_block_work *w)
{
	double best = 1e12;

	for (int i = 0; i < 5; i++) {
		uint64_t begin = clock_now_ns();

		bench_block_work_launch(w);
		CU(cuStreamSynchronize(w->stream));
		best = MIN(best, (double)(clock_now_ns() - begin) * 1e-3);
	}
	return best;
}

/* Returns the microseconds of a block of iterations while the device holds the maximum number of
 * them: the difference of two launches of the same grid, one of which spins five times as long, so
 * that the cost of a launch cancels out. */
static double block_us(struct bench_client *c, unsigned at_once, int iterations)
{
	struct bench_block_work w;
	double less, more;

	bench_block_work_init(&w, c, at_once, c->threads, iterations);
	less = time_us(&w);
	w.iterations = 5 * iterations;
	more = time_us(&w);
	CU(cuMemFree_v2(w.out));
	CU(cuMemFree_v2(w.count));
	return MAX(more - less, 0.01) / 4;
}

/* Runs some launches, because a device that was idle runs slower at first. */
static void warm_up(struct bench_client *c, unsigned at_once)
{
	uint64_t end = clock_now_ns() + WARM_NS;
	struct bench_block_work w;

	bench_block_work_init(&w, c, at_once, c->threads, 2000);
	while (clock_now_ns() < end) {
		bench_block_work_launch(&w);
		CU(cuStreamSynchronize(w.stream));
	}
	CU(cuMemFree_v2(w.out));
	CU(cuMemFree_v2(w.count));
}

/* Returns the iterations for which a block takes about want_us. Neighbours can only lengthen a
 * measurement, so the closest of several tries counts. */
static int calibrate(struct bench_client *c, unsigned at_once, double want_us, double *ret_us)
{
	double n = 2000, best = 2000, best_us = 0;

	for (int i = 0; i < 12; i++) {
		double us = block_us(c, at_once, (int)n);

		if (!best_us || fabs(log(us / want_us)) < fabs(log(best_us / want_us))) {
			best = n;
			best_us = us;
		}
		if (us > want_us * 0.97 && us < want_us * 1.03) {
			break;
		}
		n = MAX(8, MIN(n * MAX(MIN(want_us / us, 8), 0.125), 1e7));
	}
	*ret_us = best_us;
	return (int)best;
}

/* The latency kernel has one block per multiprocessor, batch as many as fit. */
void bench_client_calibrate(struct bench_client *c)
{
	struct bench_page *p = c->page;
	unsigned fit = MAX(p->threads_per_sm / c->threads, 1);

	warm_up(c, c->at_once ? c->at_once : p->sms * fit);
	for (unsigned i = 0; i < 2; i++) {
		unsigned at_once = c->at_once ? c->at_once : p->sms * (i ? fit : 1);

		p->iterations[i] = (uint32_t)calibrate(c, at_once, c->block_us[i], &p->block_us[i]);
	}
	bench_client_ready(c);
	while (bench_client_next(c) != PAGE_EXIT) {
		bench_client_answer(c);
	}
}
