/* A client that is observed while others are killed: it works from when it is ready until it is
 * commanded to exit, and records in the page when each request began and ended, and when each piece
 * of batch work ended. The observer reads the same clock, so observing adds nothing to the measured
 * times. All results are checked. */
#include <stddef.h>
#include <string.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "bench/client/load_client.h"
#include "bench/common/statistics.h"

#define GAP_MIN_NS 500000u
#define GAP_MAX_NS 3000000u
#define CHECK_EVERY 32u
#define MOVE_EVERY 4u
#define MAX_DEPTH 16u

/* A program in Python reads the page. */
_Static_assert(offsetof(struct bench_page, moving) == 28, "tests/gpu/kills");
_Static_assert(offsetof(struct bench_page, pid) == 76, "tests/gpu/kills");
_Static_assert(offsetof(struct bench_page, iterations) == 148, "tests/gpu/kills");
_Static_assert(offsetof(struct bench_page, finished) == 176, "tests/gpu/kills");
_Static_assert(offsetof(struct bench_page, error) == 236, "tests/gpu/kills");
_Static_assert(offsetof(struct bench_page, span) == 496, "tests/gpu/kills");
_Static_assert(sizeof(struct bench_page) <= 1 << 21, "tests/gpu/kills");

static struct bench_page_span *open_span(struct bench_page *p)
{
	return &p->span[load_relaxed(&p->finished) % PAGE_SPANS];
}

static void begin(struct bench_page *p)
{
	struct bench_page_span *s = open_span(p);

	store_release(&s->begin_ns, clock_now_ns());
	store_release(&s->end_ns, UINT64_C(0));
}

static void end(struct bench_page *p)
{
	store_release(&open_span(p)->end_ns, clock_now_ns());
	store_release(&p->finished, load_relaxed(&p->finished) + 1);
}

static void serve(struct bench_client *c, struct bench_block_work *w)
{
	uint64_t seed = 0x9e3779b97f4a7c15u ^ c->page->seed;

	while (!bench_client_has_next(c)) {
		clock_sleep_ns(GAP_MIN_NS + bench_stats_random(&seed) % (GAP_MAX_NS - GAP_MIN_NS));
		begin(c->page);
		for (unsigned i = 0; i < c->kernels; i++) {
			bench_block_work_launch(w);
		}
		CU(cuStreamSynchronize(w->stream));
		end(c->page);
		if (load_relaxed(&c->page->finished) % CHECK_EVERY == 0) {
			bench_block_work_check(w);
		}
	}
}

static void grind(struct bench_client *c, struct bench_block_work *w, struct bench_moving *m)
{
	CUevent done[MAX_DEPTH];
	uint64_t launched = 0, ended = 0;

	if (c->depth > MAX_DEPTH) {
		bench_client_fail("at most %u deep", MAX_DEPTH);
	}
	for (unsigned i = 0; i < c->depth; i++) {
		CU(cuEventCreate(&done[i], CU_EVENT_DISABLE_TIMING));
	}
	for (bool more = true; more || ended < launched;) {
		bool whole = launched && launched % (c->moving_mb ? MOVE_EVERY : CHECK_EVERY) == 0;

		more = more && !bench_client_has_next(c);
		if (more && !(whole && ended < launched) && launched - ended < c->depth) {
			bench_block_work_launch(w);
			CU(cuEventRecord(done[launched++ % c->depth], w->stream));
			continue;
		}
		if (ended < launched) {
			begin(c->page);
			CU(cuEventSynchronize(done[ended++ % c->depth]));
			end(c->page);
		}
		if (whole && ended == launched) {
			bench_block_work_check(w);
			bench_moving_step(m);
			launched = ended = 0;
		}
	}
}

void bench_client_steady(struct bench_client *c)
{
	bool latency = c->load && strcmp(c->load, "latency") == 0;
	struct bench_block_work w;
	struct bench_moving m;
	CUdeviceptr ballast;

	if (c->ballast_mb) {
		CU(cuMemAlloc_v2(&ballast, (size_t)c->ballast_mb << 20));
	}
	bench_block_work_init(&w, c, c->grid, c->threads, c->iterations);
	bench_block_work_launch(&w);
	CU(cuStreamSynchronize(w.stream));
	bench_block_work_check(&w);
	bench_moving_init(&m, c);
	bench_client_ready(c);
	if (latency) {
		serve(c, &w);
	} else {
		grind(c, &w, &m);
	}
	CU(cuStreamSynchronize(w.stream));
	bench_block_work_check(&w);
	bench_moving_check(&m);
	(void)bench_client_next(c);
	bench_client_answer(c);
}
