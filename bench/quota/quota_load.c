/* A client with a load: computes in memory that may leave the device, on command. Each launch names
 * the memory that it uses by a pointer. All results are checked. */
#include <string.h>

#include "base/clock.h"
#include "bench/quota/quota_client.h"

#define THREADS 256u
#define BLOCKS_PER_MULTIPROCESSOR 8u
#define SEED 12345u
#define COMPARED 251u /* one word in that many is compared: several in each page */

struct load {
	struct bench_quota_client *c;
	struct bench_quota_kernels k;
	CUstream stream;
	CUfunction mix;
	uint32_t *host; /* pinned; source and destination of a task */
	uint64_t host_bytes;
};

static void launch_mix(const struct load *l, CUdeviceptr a, uint64_t bytes)
{
	uint64_t words = bytes / sizeof(uint32_t), stride = l->c->me->load.stride;
	uint32_t seed = SEED;
	void *params[] = { &a, &words, &stride, &seed };

	CU(l->c,
	   cuLaunchKernel(l->mix, l->k.grid, 1, 1, THREADS, 1, 1, 0, l->stream, params, NULL));
}

static uint32_t word(uint64_t i)
{
	return (uint32_t)(i * UINT64_C(0x9e3779b97f4a7c15) >> 32);
}

static void fill(struct load *l)
{
	const struct bench_quota_load *m = &l->c->me->load;
	void *pinned = NULL;

	if (l->host_bytes != m->bytes) {
		if (l->host) {
			CU(l->c, cuMemFreeHost(l->host));
		}
		CU(l->c, cuMemAllocHost_v2(&pinned, m->bytes));
		l->host = pinned;
		l->host_bytes = m->bytes;
	}
	for (uint64_t i = 0; i < m->bytes / sizeof(uint32_t); i++) {
		l->host[i] = word(i);
	}
}

/* Returns the number of words that are wrong after the kernels of a task. */
static uint64_t wrong_words(const struct load *l)
{
	const struct bench_quota_load *m = &l->c->me->load;
	uint64_t wrong = 0;

	for (uint64_t i = 0; i < m->bytes / sizeof(uint32_t); i += COMPARED) {
		uint32_t v = word(i);

		for (uint32_t pass = 0; i % m->stride == 0 && pass < m->passes; pass++) {
			v = v * 1664525u + (uint32_t)i + SEED;
		}
		wrong += l->host[i] != v;
	}
	return wrong;
}

/* What a task of Gdev's benchmark does with its memory. */
static void task(struct load *l)
{
	struct bench_quota_client *c = l->c;
	struct bench_quota_load *m = &c->me->load;
	CUdeviceptr p = 0;
	CUresult r;

	m->begin_ns = clock_now_ns();
	r = cuda.cuMemAlloc_v2(&p, m->bytes);
	m->refused = r == CUDA_ERROR_OUT_OF_MEMORY;
	m->wrong = 0;
	if (!m->refused) {
		bench_quota_check(c, r, "cuMemAlloc_v2");
		CU(c, cuMemcpyHtoDAsync_v2(p, l->host, m->bytes, l->stream));
		for (uint32_t pass = 0; pass < m->passes; pass++) {
			launch_mix(l, p, m->bytes);
		}
		CU(c, cuMemcpyDtoHAsync_v2(l->host, p, m->bytes, l->stream));
		CU(c, cuStreamSynchronize(l->stream));
		CU(c, cuMemFree_v2(p));
	}
	m->end_ns = clock_now_ns();
	m->wrong = m->refused ? 0 : wrong_words(l);
}

static void open_kernels(struct load *l)
{
	struct bench_quota_client *c = l->c;
	int sms = 0;

	l->k = (struct bench_quota_kernels){ .c = c, .threads = THREADS };
	CU(c, cuModuleLoadData(&l->k.module, ptx_bench_quota));
	CU(c, cuModuleGetFunction(&l->mix, l->k.module, "quota_mix"));
	CU(c, cuDeviceGetAttribute(&sms, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, c->device));
	CU(c, cuStreamCreate(&l->stream, CU_STREAM_NON_BLOCKING));
	l->k.stream = l->stream;
	l->k.grid = MAX((unsigned)sms, 1) * BLOCKS_PER_MULTIPROCESSOR;
	CU(c, cuMemAlloc_v2(&l->k.sums, l->k.grid * THREADS * sizeof(uint32_t)));
	CU(c, cuMemsetD32_v2(l->k.sums, 0, l->k.grid * THREADS));
}

/* The first launch makes the driver take memory, which is not to be a part of a measurement. */
static void warm_up(struct load *l)
{
	CUdeviceptr p = 0;

	l->c->me->load.stride = 1;
	CU(l->c, cuMemAlloc_v2(&p, QUOTA_UNIT));
	launch_mix(l, p, QUOTA_UNIT / 1024);
	CU(l->c, cuStreamSynchronize(l->stream));
	CU(l->c, cuMemFree_v2(p));
}

void bench_quota_compute(struct bench_quota_client *c)
{
	struct load l = { .c = c };

	open_kernels(&l);
	warm_up(&l);
	bench_quota_ready(c);
	while (bench_quota_await_command(c)) {
		switch ((enum bench_quota_op)c->me->load.op) {
		case QUOTA_LOAD_FILL:
			fill(&l);
			break;
		case QUOTA_LOAD_TASK:
			task(&l);
			break;
		case QUOTA_LOAD_MAKE:
			bench_quota_make_layers(&l.k);
			break;
		case QUOTA_LOAD_CYCLE:
			bench_quota_run_cycles(&l.k);
			break;
		case QUOTA_LOAD_FREE:
			bench_quota_read_free(c);
			break;
		case QUOTA_LOAD_PROGRAM:
			bench_quota_run_program(&l.k);
			break;
		}
		bench_quota_complete(c);
	}
}
