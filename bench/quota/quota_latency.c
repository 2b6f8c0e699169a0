/* Times cuMemAlloc and cuMemFree of 2 MiB among many small allocations, by the libcuda that the
 * program gets and by the driver's in turn. Both use one context, so that they see the same
 * machine. */
#include <stdlib.h>

#include "base/clock.h"
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

/* The two calls that are timed, of one library. */
struct calls {
	__typeof__(cuMemAlloc_v2) *take;
	__typeof__(cuMemFree_v2) *give;
};

static struct calls by[QUOTA_BYS];

static void open_driver(struct bench_quota_client *c)
{
	void *lib = bench_quota_open_driver(c);

	by[QUOTA_BY_PROGRAM] = (struct calls){ cuda.cuMemAlloc_v2, cuda.cuMemFree_v2 };
	bench_quota_find(c, lib, "cuMemAlloc_v2", &by[QUOTA_BY_DRIVER].take);
	bench_quota_find(c, lib, "cuMemFree_v2", &by[QUOTA_BY_DRIVER].give);
}

/* Times pairs of calls by both libraries; the one that goes first changes. */
static void measure(struct bench_quota_client *c, unsigned pairs)
{
	for (unsigned i = 0; i < QUOTA_BYS * pairs; i++) {
		unsigned k = (i + i / QUOTA_BYS) % QUOTA_BYS;
		uint64_t before = clock_now_ns();
		CUdeviceptr p;

		bench_quota_check(c, by[k].take(&p, TIMED_BYTES), "cuMemAlloc_v2");
		bench_quota_check(c, by[k].give(p), "cuMemFree_v2");
		c->me->ns[k][i / QUOTA_BYS] = (uint32_t)MIN(clock_now_ns() - before, UINT32_MAX);
	}
}

void bench_quota_time(struct bench_quota_client *c)
{
	CUdeviceptr *small = calloc(LIVE_MAX, sizeof(*small));
	uint64_t live = 0;

	if (!small) {
		bench_quota_fail(c, "out of memory");
	}
	open_driver(c);
	bench_quota_ready(c);
	while (bench_quota_await_command(c)) {
		live = reach(c, small, live, MIN(c->me->live, LIVE_MAX));
		c->me->live = live;
		measure(c, MIN(c->me->pairs, QUOTA_PAIRS));
		bench_quota_complete(c);
	}
	free(small);
}
