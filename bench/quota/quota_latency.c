/* Times cuMemAlloc and cuMemFree of 2 MiB among many small allocations. */
#include <stdlib.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "base/fd.h"
#include "bench/quota/quota_client.h"

#define SMALL_BYTES 4096u
#define TIMED_BYTES (2u << 20)
#define LIVE_MAX 1000000u

/* Reaches a number of small allocations, or as many as there is room for. Keeps room for the one
 * that is timed. Returns the number. */
static uint64_t reach(struct bench_quota_client *c, CUdeviceptr *small, uint64_t live,
		      uint64_t want)
{
	CUdeviceptr spare = 0;
	CUresult r = CUDA_SUCCESS;

	CU(c, cuMemAlloc_v2(&spare, TIMED_BYTES));
	while (live < want && (r = cuda.cuMemAlloc_v2(&small[live], SMALL_BYTES)) == CUDA_SUCCESS) {
		live++;
	}
	if (r != CUDA_SUCCESS && r != CUDA_ERROR_OUT_OF_MEMORY) {
		CU(c, cuMemAlloc_v2(&small[live], SMALL_BYTES));
	}
	while (live > want) {
		CU(c, cuMemFree_v2(small[--live]));
	}
	CU(c, cuMemFree_v2(spare));
	return live;
}

static void measure(struct bench_quota_client *c, unsigned pairs)
{
	for (unsigned i = 0; i < pairs; i++) {
		uint64_t before = clock_now_ns();
		CUdeviceptr p;

		CU(c, cuMemAlloc_v2(&p, TIMED_BYTES));
		CU(c, cuMemFree_v2(p));
		c->me->ns[i] = (uint32_t)MIN(clock_now_ns() - before, UINT32_MAX);
	}
}

void bench_quota_time(struct bench_quota_client *c)
{
	CUdeviceptr *small = calloc(LIVE_MAX, sizeof(*small));
	uint64_t live = 0;
	uint32_t done = 0;

	if (!small) {
		bench_quota_fail(c, "out of memory");
	}
	bench_quota_ready(c);
	while (bench_quota_activity(load_acquire(&c->page->phase)) != QUOTA_EXIT) {
		uint32_t command = load_acquire(&c->me->command);

		if (command == done) {
			futex_wait_shared(&c->me->command, done, 100000000);
			continue;
		}
		live = reach(c, small, live, MIN(c->me->live, LIVE_MAX));
		c->me->live = live;
		measure(c, MIN(c->me->pairs, QUOTA_PAIRS));
		done = command;
		store_release(&c->me->done, done);
		futex_wake_shared(&c->me->done, 1 << 30);
	}
	free(small);
}
