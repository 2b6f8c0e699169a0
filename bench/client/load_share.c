/* A tenant of `gbpf bench dev vgpu`: it keeps the device saturated with kernels of one length,
 * several groups of them queued, and counts in the page those that have finished, which is its
 * progress by its own measure. Results are checked at the end, when nothing is measured any more.
 */
#include "base/atomic.h"
#include "bench/client/load_client.h"

#define GROUPS_MAX 64u

struct groups {
	CUevent done[GROUPS_MAX]; /* in turn */
	uint64_t launched, ended; /* groups */
};

static void launch_group(struct bench_client *c, struct bench_block_work *w, struct groups *g)
{
	for (unsigned i = 0; i < c->kernels; i++) {
		bench_block_work_launch(w);
	}
	CU(cuEventRecord(g->done[g->launched++ % c->depth], w->stream));
}

static void await_group(struct bench_client *c, struct groups *g)
{
	CU(cuEventSynchronize(g->done[g->ended++ % c->depth]));
	store_release(&c->page->finished, load_relaxed(&c->page->finished) + c->kernels);
}

static void saturate(struct bench_client *c, struct bench_block_work *w, struct groups *g)
{
	while (!bench_client_has_next(c)) {
		while (g->launched - g->ended < c->depth) {
			launch_group(c, w, g);
		}
		await_group(c, g);
	}
	while (g->ended < g->launched) {
		await_group(c, g);
	}
}

void bench_client_share(struct bench_client *c)
{
	struct groups g = { .launched = 0 };
	struct bench_block_work w;

	if (c->depth > GROUPS_MAX) {
		bench_client_fail("at most %u groups", GROUPS_MAX);
	}
	bench_block_work_init(&w, c, c->grid, c->threads, c->iterations);
	for (unsigned i = 0; i < c->depth; i++) {
		CU(cuEventCreate(&g.done[i], CU_EVENT_DISABLE_TIMING | CU_EVENT_BLOCKING_SYNC));
	}
	for (unsigned i = 0; i < 4; i++) { /* gBPF learns the duration */
		bench_block_work_launch(&w);
		CU(cuStreamSynchronize(w.stream));
	}
	bench_block_work_check(&w);
	bench_client_ready(c);
	while (bench_client_next(c) == PAGE_WORK) {
		bench_client_answer(c);
		saturate(c, &w, &g);
		bench_block_work_check(&w);
	}
	bench_client_answer(c);
}
