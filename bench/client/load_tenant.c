/* A tenant of `gbpf bench dev tenants`: each of its streams has a thread that launches its kernels
 * one after the other and waits for each. It records for each kernel the duration of the launch
 * call, when the kernel began and when its end was known. */
#include <pthread.h>
#include <stdlib.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "bench/client/load_client.h"
#include "bench/common/statistics.h"

#define MAX_STREAMS 16u

struct stream {
	struct bench_client *c;
	struct bench_block_work work;
	volatile uint64_t *when; /* pinned: the GPU's clock when the kernel began */
	unsigned number;
	uint64_t seed;
	pthread_t thread;
	uint64_t *began; /* GPU's clock, one per kernel */
	uint64_t *before;
};

struct tenant {
	struct bench_client *c;
	struct stream stream[MAX_STREAMS];
	int64_t clock_ns; /* host's clock - GPU's */
};

static void *run_stream(void *arg)
{
	struct stream *s = arg;
	struct bench_client *c = s->c;
	struct bench_page *p = c->page;
	unsigned base = s->number * c->kernels;

	CU(cuCtxSetCurrent(c->ctx));
	for (unsigned i = 0; i < c->kernels; i++) {
		uint64_t begin, called;

		if (c->rate >
		    0) { /* rate pauses per second, half to one and a half of the mean length */
			clock_sleep_ns(
				(uint64_t)(1e9 / c->rate *
					   (0.5 + (double)(bench_stats_random(&s->seed) >> 40) /
							  16777216.0)));
		}
		begin = clock_now_ns();
		bench_block_work_launch(&s->work);
		called = clock_now_ns();
		CU(cuStreamSynchronize(s->work.stream));
		p->us[0][base + i] = (float)(called - begin) * 1e-3f;
		p->us[2][base + i] = (float)(clock_now_ns() - begin) * 1e-3f;
		s->before[i] = begin;
		s->began[i] = load_relaxed(s->when);
		add_relaxed(&p->finished, 1);
		if (load_relaxed(&p->command) != c->told) {
			break; /* the coordinator has given up */
		}
	}
	return NULL;
}

/* Converts start times of kernels to the host's clock; the clocks drift apart, so they are compared
 * before and after. */
static void place_starts(struct tenant *t, uint64_t from, uint64_t to, int64_t after)
{
	struct bench_client *c = t->c;

	for (unsigned s = 0; s < c->streams; s++) {
		for (unsigned i = 0; i < c->kernels; i++) {
			struct stream *of = &t->stream[s];
			double part = to > from
					      ? (double)(of->before[i] - from) / (double)(to - from)
					      : 0;
			double clock = (double)t->clock_ns + part * (double)(after - t->clock_ns);
			double us =
				((double)((int64_t)of->began[i] - (int64_t)of->before[i]) + clock) *
				1e-3;

			c->page->us[1][s * c->kernels + i] = (float)MAX(us, 0);
		}
	}
}

static void run(struct tenant *t)
{
	struct bench_client *c = t->c;
	struct bench_page *p = c->page;
	int64_t after;

	t->clock_ns = bench_block_work_clock(&t->stream[0].work, t->stream[0].when);
	while (clock_now_ns() < p->epoch_ns && !bench_client_has_next(c)) {
		cpu_relax();
	}
	p->begin_ns = clock_now_ns();
	for (unsigned s = 0; s < c->streams; s++) {
		t->stream[s].seed = p->seed * 1000 + s + 1;
		if (pthread_create(&t->stream[s].thread, NULL, run_stream, &t->stream[s])) {
			bench_client_fail("cannot create a thread for a stream");
		}
	}
	for (unsigned s = 0; s < c->streams; s++) {
		pthread_join(t->stream[s].thread, NULL);
	}
	p->end_ns = clock_now_ns();
	after = bench_block_work_clock(&t->stream[0].work, t->stream[0].when);
	place_starts(t, p->begin_ns, p->end_ns, after);
	for (unsigned k = 0; k < PAGE_CLASSES; k++) {
		p->samples[k] = c->streams * c->kernels;
	}
	for (unsigned s = 0; s < c->streams; s++) {
		bench_block_work_check(&t->stream[s].work);
	}
}

void bench_client_tenant(struct bench_client *c)
{
	struct tenant *t = calloc(1, sizeof(*t));

	if (!t || c->streams > MAX_STREAMS || c->streams * c->kernels > PAGE_SAMPLES) {
		bench_client_fail("too many streams or kernels");
	}
	t->c = c;
	for (unsigned s = 0; s < c->streams; s++) {
		struct stream *of = &t->stream[s];
		void *pinned = NULL;

		*of = (struct stream){ .c = c, .number = s };
		bench_block_work_init(&of->work, c, c->grid, c->threads, c->iterations);
		CU(cuMemAllocHost_v2(&pinned, 64));
		of->when = pinned;
		of->work.when = (CUdeviceptr)(uintptr_t)pinned;
		of->began = calloc(c->kernels, sizeof(uint64_t));
		of->before = calloc(c->kernels, sizeof(uint64_t));
		if (!of->began || !of->before) {
			bench_client_fail("no memory");
		}
		bench_block_work_launch(&of->work);
		CU(cuStreamSynchronize(of->work.stream));
		bench_block_work_check(&of->work);
	}
	bench_client_ready(c);
	for (enum bench_page_op op = bench_client_next(c); op != PAGE_EXIT;
	     op = bench_client_next(c)) {
		if (op == PAGE_REQUESTS) {
			run(t);
		}
		bench_client_answer(c);
	}
	free(t);
}
