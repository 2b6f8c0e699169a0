/* Launches of vec_add, measured and checked; see bench_probe_gpu.h. */
#include "bench/probe/bench_probe.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "bench/common/statistics.h"

#define SINGLE_MAX 512u
#define SAMPLES 64u /* positions of the result that are compared */
#define CHECK_BLOCKS 256u
#define EMPTY 0xbf800000u /* -1: no sum is negative */
#define FILL_SHIFT 10u

extern const char ptx_probe_kernels[];

const char *const bench_probe_workloads[BENCH_PROBE_WORKLOADS] = { "chained", "single", "large",
								   "block" };

/* Not more launches than the queue of a stream holds behind the gate. */
static const struct bench_probe_size sizes[2][BENCH_PROBE_WORKLOADS] = {
	{ { 1u << 20, 400 }, { 1u << 20, 200 }, { 1u << 26, 20 }, { BENCH_PROBE_THREADS, 400 } },
	{ { 1u << 14, 6 }, { 1u << 14, 4 }, { 1u << 16, 2 }, { BENCH_PROBE_THREADS, 20 } },
};

int bench_probe_check(struct bench_probe *p, CUresult r, const char *call)
{
	const char *name = NULL;

	if (r == CUDA_SUCCESS) {
		return 0;
	}
	p->gpu.by[BENCH_PROBE_DRIVER].cuGetErrorName(r, &name);
	return bench_testbed_fail(&p->testbed, "%.120s: %s", call, name ? name : "unknown error");
}

/* ---- set-up ---- */

static int open_library(struct bench_probe *p, enum bench_probe_by by, const char *path)
{
	void *lib = dlopen(path, RTLD_NOW | RTLD_LOCAL), *f;

	if (!lib) {
		return bench_testbed_fail(&p->testbed, "%s", dlerror());
	}
#define BENCH_PROBE_CALL(name)                                                                     \
	f = dlsym(lib, #name);                                                                     \
	if (!f) {                                                                                  \
		return bench_testbed_fail(&p->testbed, "%s lacks %s", path, #name);                \
	}                                                                                          \
	memcpy(&p->gpu.by[by].name, &f, sizeof(f));
	BENCH_PROBE_CALLS(BENCH_PROBE_CALL)
#undef BENCH_PROBE_CALL
	return 0;
}

static int open_device(struct bench_probe *p)
{
	struct bench_probe_gpu *g = &p->gpu;
	CUdevice d;

	return BENCH_PROBE_GPU(p, cuInit(0)) || BENCH_PROBE_GPU(p, cuDeviceGet(&d, 0)) ||
	       BENCH_PROBE_GPU(p, cuDeviceGetName(g->device, sizeof(g->device), d)) ||
	       BENCH_PROBE_GPU(p, cuDevicePrimaryCtxRetain(&g->context, d)) ||
	       BENCH_PROBE_GPU(p, cuCtxSetCurrent(g->context)) ||
	       BENCH_PROBE_GPU(p, cuStreamCreate(&g->stream, CU_STREAM_NON_BLOCKING)) ||
	       BENCH_PROBE_GPU(p, cuEventCreate(&g->begin, CU_EVENT_DEFAULT)) ||
	       BENCH_PROBE_GPU(p, cuEventCreate(&g->end, CU_EVENT_DEFAULT));
}

static int load_kernels(struct bench_probe *p)
{
	struct bench_probe_gpu *g = &p->gpu;
	const struct {
		const char *name;
		CUfunction *f;
	} all[] = {
		{ "vec_add", &g->vec_add },   { "other", &g->other }, { "fill", &g->fill },
		{ "checksum", &g->checksum }, { "gate", &g->gate },   { "last", &g->last },
	};
	int err = BENCH_PROBE_GPU(p, cuModuleLoadData(&g->module, ptx_probe_kernels));

	for (size_t i = 0; i < ARRAY_SIZE(all) && !err; i++) {
		err = BENCH_PROBE_GPU(p, cuModuleGetFunction(all[i].f, g->module, all[i].name));
	}
	return err;
}

static unsigned elements_max(const struct bench_probe_gpu *g)
{
	unsigned most = 0;

	for (unsigned i = 0; i < BENCH_PROBE_WORKLOADS; i++) {
		most = MAX(most, g->size[i].threads);
	}
	return most;
}

static int fill(struct bench_probe *p, CUdeviceptr at, unsigned n, unsigned shift)
{
	void *params[] = { &at, &n, &shift };

	return BENCH_PROBE_GPU(p, cuLaunchKernel(p->gpu.fill, n / BENCH_PROBE_THREADS, 1, 1,
						 BENCH_PROBE_THREADS, 1, 1, 0, p->gpu.stream,
						 params, NULL));
}

static int allocate(struct bench_probe *p)
{
	struct bench_probe_gpu *g = &p->gpu;
	unsigned n = elements_max(g);
	void *flag = NULL;

	if (BENCH_PROBE_GPU(p, cuMemAlloc_v2(&g->a, (size_t)4 * n)) ||
	    BENCH_PROBE_GPU(p, cuMemAlloc_v2(&g->b, (size_t)4 * n)) ||
	    BENCH_PROBE_GPU(p, cuMemAlloc_v2(&g->c, (size_t)4 * n)) ||
	    BENCH_PROBE_GPU(p, cuMemAlloc_v2(&g->sum, 8)) ||
	    BENCH_PROBE_GPU(p, cuMemAlloc_v2(&g->words, 4 * 32)) ||
	    BENCH_PROBE_GPU(p, cuMemHostAlloc(&flag, 4, CU_MEMHOSTALLOC_DEVICEMAP)) ||
	    BENCH_PROBE_GPU(p, cuMemHostGetDevicePointer_v2(&g->flag_at, flag, 0)) ||
	    fill(p, g->a, n, 0) || fill(p, g->b, n, FILL_SHIFT) ||
	    BENCH_PROBE_GPU(p, cuMemsetD32Async(g->words, 0, 32, g->stream)) ||
	    BENCH_PROBE_GPU(p, cuStreamSynchronize(g->stream))) {
		return -1;
	}
	g->flag = flag;
	return 0;
}

static uint32_t expected(uint32_t i)
{
	return (i & 1023) + (i >> FILL_SHIFT & 1023);
}

static void compute_checksums(struct bench_probe_gpu *g)
{
	for (unsigned w = 0; w < BENCH_PROBE_WORKLOADS; w++) {
		for (uint32_t i = 0; i < g->size[w].threads; i++) {
			g->expected[w] += (uint64_t)expected(i) * (i | 1);
		}
	}
}

int bench_probe_gpu_open(struct bench_probe *p)
{
	memcpy(p->gpu.size, sizes[p->testbed.soft], sizeof(p->gpu.size));
	compute_checksums(&p->gpu);
	return open_library(p, BENCH_PROBE_SHIM, p->shim) ||
			       open_library(p, BENCH_PROBE_DRIVER, p->testbed.libcuda) ||
			       open_device(p) || load_kernels(p) || allocate(p)
		       ? -1
		       : 0;
}

/* ---- launches ---- */

static int launch(struct bench_probe *p, enum bench_probe_by by, unsigned blocks)
{
	struct bench_probe_gpu *g = &p->gpu;
	unsigned n = blocks * BENCH_PROBE_THREADS;
	void *params[] = { &g->a, &g->b, &g->c, &n };

	g->done.launches++;
	g->done.blocks += blocks;
	g->done.sampled += (blocks + 7) / 8;
	g->done.warps += (uint64_t)blocks * BENCH_PROBE_WARPS;
	g->done.lanes += n;
	return bench_probe_check(p,
				 g->by[by].cuLaunchKernel(g->vec_add, blocks, 1, 1,
							  BENCH_PROBE_THREADS, 1, 1, 0, g->stream,
							  params, NULL),
				 "cuLaunchKernel");
}

int bench_probe_launch_blocks(struct bench_probe *p, unsigned blocks)
{
	return launch(p, BENCH_PROBE_SHIM, blocks) ||
			       BENCH_PROBE_GPU(p, cuStreamSynchronize(p->gpu.stream))
		       ? -1
		       : 0;
}

int bench_probe_launch_other(struct bench_probe *p)
{
	void *params[] = { &p->gpu.words };

	return BENCH_PROBE_GPU(p, cuLaunchKernel(p->gpu.other, 1, 1, 1, 32, 1, 1, 0, p->gpu.stream,
						 params, NULL)) ||
			       BENCH_PROBE_GPU(p, cuStreamSynchronize(p->gpu.stream))
		       ? -1
		       : 0;
}

static int launch_one(struct bench_probe *p, enum bench_probe_by by, void *size)
{
	const struct bench_probe_size *s = size;

	return launch(p, by, s->threads / BENCH_PROBE_THREADS);
}

static int measure_single(struct bench_probe *p, enum bench_probe_by by,
			  const struct bench_probe_size *s, struct bench_probe_time *ret)
{
	double all[SINGLE_MAX], call[SINGLE_MAX];

	for (unsigned i = 0; i < s->launches; i++) {
		uint64_t before = clock_now_ns(), called;

		if (launch(p, by, s->threads / BENCH_PROBE_THREADS)) {
			return -1;
		}
		called = clock_now_ns();
		if (BENCH_PROBE_CU(p, by, cuStreamSynchronize(p->gpu.stream))) {
			return -1;
		}
		all[i] = (double)(clock_now_ns() - before) / 1e3;
		call[i] = (double)(called - before) / 1e3;
	}
	bench_stats_sort(all, s->launches);
	bench_stats_sort(call, s->launches);
	ret->us = bench_stats_quantile(all, s->launches, 0.5);
	ret->call_us = bench_stats_quantile(call, s->launches, 0.5);
	return 0;
}

/* ---- results ---- */

/* Compares positions that differ from call to call. */
static int check_samples(struct bench_probe *p, unsigned n)
{
	static uint64_t seed = 0x9e3779b97f4a7c15u;

	for (unsigned i = 0; i < SAMPLES; i++) {
		uint32_t at = i == 0   ? 0
			      : i == 1 ? n - 1
				       : (uint32_t)(bench_stats_random(&seed) % n);
		float v = -1;

		if (BENCH_PROBE_GPU(p, cuMemcpyDtoH_v2(&v, p->gpu.c + (uint64_t)4 * at, 4))) {
			return -1;
		}
		if (v != (float)expected(at)) {
			return bench_testbed_fail(&p->testbed,
						  "WRONG RESULT: element %u of %u is %g, not %u",
						  at, n, (double)v, expected(at));
		}
	}
	return 0;
}

static int check_sum(struct bench_probe *p, unsigned n, uint64_t sum)
{
	struct bench_probe_gpu *g = &p->gpu;
	unsigned blocks = MIN(n / BENCH_PROBE_THREADS, CHECK_BLOCKS);
	void *params[] = { &g->c, &n, &g->sum };
	uint64_t got = 0;

	if (BENCH_PROBE_GPU(p, cuMemsetD32Async(g->sum, 0, 2, g->stream)) ||
	    BENCH_PROBE_GPU(p, cuLaunchKernel(g->checksum, blocks, 1, 1, BENCH_PROBE_THREADS, 1, 1,
					      0, g->stream, params, NULL)) ||
	    BENCH_PROBE_GPU(p, cuStreamSynchronize(g->stream)) ||
	    BENCH_PROBE_GPU(p, cuMemcpyDtoH_v2(&got, g->sum, 8))) {
		return -1;
	}
	return got == sum ? 0
			  : bench_testbed_fail(&p->testbed,
					       "WRONG RESULT: checksum of %u elements is %llx, not "
					       "%llx",
					       n, (unsigned long long)got, (unsigned long long)sum);
}

int bench_probe_measure(struct bench_probe *p, enum bench_probe_by by,
			enum bench_probe_workload which, struct bench_probe_time *ret)
{
	const struct bench_probe_size *s = &p->gpu.size[which];
	struct bench_probe_gpu *g = &p->gpu;
	int err;

	if (bench_testbed_interrupted()) {
		return bench_testbed_fail(&p->testbed, "interrupted");
	}
	if (BENCH_PROBE_GPU(p, cuMemsetD32Async(g->c, EMPTY, s->threads, g->stream)) ||
	    launch(p, by, s->threads / BENCH_PROBE_THREADS) || /* warm */
	    BENCH_PROBE_GPU(p, cuMemsetD32Async(g->c, EMPTY, s->threads, g->stream)) ||
	    BENCH_PROBE_GPU(p, cuStreamSynchronize(g->stream))) {
		return -1;
	}
	err = which == BENCH_PROBE_SINGLE
		      ? measure_single(p, by, s, ret)
		      : bench_probe_chain(p, by, s->launches, launch_one, &g->size[which], ret);
	return err || check_samples(p, s->threads) || check_sum(p, s->threads, g->expected[which])
		       ? -1
		       : 0;
}

uint64_t bench_probe_work_of(const struct bench_probe_work *w, enum bench_probe_counted counted,
			     uint64_t accesses_of_lane)
{
	switch (counted) {
	case BENCH_COUNTED_WARPS:
		return w->warps;
	case BENCH_COUNTED_BLOCKS:
		return w->blocks;
	case BENCH_COUNTED_SAMPLED:
		return w->sampled;
	case BENCH_COUNTED_LANES:
	case BENCH_COUNTED_RETURNS:
		return w->lanes;
	case BENCH_COUNTED_ACCESSES:
		return w->lanes * accesses_of_lane;
	default:
		return 0;
	}
}
