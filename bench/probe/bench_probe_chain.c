/* Times of launches that follow one another without a pause. */
#include "base/atomic.h"
#include "base/clock.h"
#include "bench/probe/bench_probe.h"

#define GATE_NS 1000000000ull
#define GATE_TRIES 5u

/* Queues the launches behind a kernel that ends when all of them are queued, so that the host's
 * speed has no part in the time. *ret_queued: they were before that kernel's time was up, which
 * only ends a wait that nothing else would: the driver may hold a launch until all kernels have
 * ended. */
static int queue_launches(struct bench_probe *p, enum bench_probe_by by, unsigned n,
			  bench_probe_launch *launch, void *arg, struct bench_probe_time *ret,
			  bool *ret_queued)
{
	struct bench_probe_gpu *g = &p->gpu;
	uint64_t limit = clock_patience(GATE_NS), begin = clock_now_ns(), before, after;
	void *params[] = { &g->flag_at, &limit };
	int err;

	store_seqcst(g->flag, 0u);
	err = BENCH_PROBE_CU(p, by,
			     cuLaunchKernel(g->gate, 1, 1, 1, 1, 1, 1, 0, g->stream, params, NULL));
	err = err || BENCH_PROBE_CU(p, by, cuEventRecord(g->begin, g->stream));
	before = clock_now_ns();
	for (unsigned i = 0; i < n && !err; i++) {
		err = launch(p, by, arg);
	}
	after = clock_now_ns();
	err = err || BENCH_PROBE_CU(p, by, cuEventRecord(g->end, g->stream));
	*ret_queued = clock_now_ns() - begin < limit;
	store_seqcst(g->flag, 1u);
	ret->call_us = (double)(after - before) / 1e3 / n;
	return err || BENCH_PROBE_CU(p, by, cuStreamSynchronize(g->stream)) ? -1 : 0;
}

int bench_probe_chain(struct bench_probe *p, enum bench_probe_by by, unsigned n,
		      bench_probe_launch *launch, void *arg, struct bench_probe_time *ret)
{
	struct bench_probe_gpu *g = &p->gpu;
	bool queued = false;
	float ms = 0;
	int err = 0;

	for (unsigned i = 0; i < GATE_TRIES && !err && !queued; i++) {
		err = queue_launches(p, by, n, launch, arg, ret, &queued);
	}
	if (!err && !queued) {
		err = bench_testbed_fail(&p->testbed, "%u launches were not queued in %.1f s", n,
					 (double)clock_patience(GATE_NS) / 1e9);
	}
	err = err || BENCH_PROBE_CU(p, by, cuEventElapsedTime(&ms, g->begin, g->end));
	ret->us = (double)ms * 1e3 / n;
	return err ? -1 : 0;
}
