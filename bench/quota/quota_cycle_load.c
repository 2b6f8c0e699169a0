/* Cycles over layers that together need more memory than the device may give: by gBPF, layers are
 * plain memory of the device, which gBPF moves; by hand, they lie in pinned memory of the host, and
 * the client copies them into two buffers in turn, on a stream of its own, while kernels use the
 * other one. Launches name their layer by a pointer. */
#include <stdlib.h>

#include "base/clock.h"
#include "bench/quota/quota_client.h"

#define BUFFERS 2u

static struct {
	CUfunction layer;
	unsigned n;
	CUdeviceptr *at; /* [n] by gBPF, [BUFFERS] by hand */
	void **host;	 /* [n], by hand */
	CUstream copies;
	CUevent ready[BUFFERS], done[BUFFERS];
	bool changed[BUFFERS]; /* the kernel changed it: it goes back to the host */
	unsigned has[BUFFERS]; /* number of the layer in it */
} cycle;

static void launch(struct bench_quota_kernels *k, CUdeviceptr at, uint32_t reads, uint32_t change)
{
	const struct bench_quota_load *m = &k->c->me->load;
	uint64_t words = m->bytes / sizeof(uint32_t), stride = m->stride;
	void *params[] = { &at, &words, &stride, &reads, &change, &k->sums };

	CU(k->c, cuLaunchKernel(cycle.layer, k->grid, 1, 1, k->threads, 1, 1, 0, k->stream, params,
				NULL));
}

uint64_t bench_quota_digest(struct bench_quota_kernels *k)
{
	uint64_t n = (uint64_t)k->grid * k->threads, digest = UINT64_C(0xcbf29ce484222325);
	uint32_t *sums = calloc(n, sizeof(*sums));

	if (!sums) {
		bench_quota_fail(k->c, "out of memory");
	}
	CU(k->c, cuMemcpyDtoH_v2(sums, k->sums, n * sizeof(*sums)));
	for (uint64_t i = 0; i < n; i++) {
		digest = (digest ^ sums[i]) * UINT64_C(0x100000001b3);
	}
	free(sums);
	return digest;
}

static void make_by_hand(struct bench_quota_kernels *k, unsigned i)
{
	const struct bench_quota_load *m = &k->c->me->load;

	CU(k->c, cuMemAllocHost_v2(&cycle.host[i], m->bytes));
	CU(k->c, cuMemsetD32Async(cycle.at[0], i + 1, m->bytes / sizeof(uint32_t), k->stream));
	launch(k, cycle.at[0], 1, 1);
	CU(k->c, cuMemcpyDtoHAsync_v2(cycle.host[i], cycle.at[0], m->bytes, k->stream));
}

void bench_quota_make_layers(struct bench_quota_kernels *k)
{
	struct bench_quota_client *c = k->c;
	const struct bench_quota_load *m = &c->me->load;

	cycle.n = m->layers;
	cycle.at = calloc(MAX(cycle.n, BUFFERS), sizeof(*cycle.at));
	cycle.host = calloc(MAX(cycle.n, 1), sizeof(*cycle.host));
	if (!cycle.at || !cycle.host || !cycle.n) {
		bench_quota_fail(c, "out of memory for %u layers", cycle.n);
	}
	CU(c, cuModuleGetFunction(&cycle.layer, k->module, "quota_layer"));
	CU(c, cuStreamCreate(&cycle.copies, CU_STREAM_NON_BLOCKING));
	for (unsigned b = 0; b < BUFFERS; b++) {
		CU(c, cuEventCreate(&cycle.ready[b], CU_EVENT_DISABLE_TIMING));
		CU(c, cuEventCreate(&cycle.done[b], CU_EVENT_DISABLE_TIMING));
	}
	for (unsigned i = 0; i < (m->by_hand ? BUFFERS : cycle.n); i++) {
		CU(c, cuMemAlloc_v2(&cycle.at[i], m->bytes));
	}
	for (unsigned i = 0; i < cycle.n; i++) {
		if (m->by_hand) {
			make_by_hand(k, i);
		} else {
			CU(c, cuMemsetD32Async(cycle.at[i], i + 1, m->bytes / sizeof(uint32_t),
					       k->stream));
			launch(k, cycle.at[i], 1, 1);
		}
	}
	CU(c, cuStreamSynchronize(k->stream));
	c->me->load.digest = bench_quota_digest(k);
}

/* Downloads the layer in a buffer if the kernel behind which this is queued has changed it. */
static void put_back(struct bench_quota_client *c, unsigned b)
{
	if (cycle.changed[b]) {
		CU(c, cuMemcpyDtoHAsync_v2(cycle.host[cycle.has[b]], cycle.at[b], c->me->load.bytes,
					   cycle.copies));
	}
	cycle.changed[b] = false;
}

/* Queues the copies and the kernel of a layer. */
static void step_by_hand(struct bench_quota_kernels *k, uint64_t step)
{
	struct bench_quota_client *c = k->c;
	const struct bench_quota_load *m = &c->me->load;
	unsigned b = step % BUFFERS, i = (unsigned)(step % cycle.n);

	if (step >= BUFFERS) {
		CU(c, cuStreamWaitEvent(cycle.copies, cycle.done[b], 0));
	}
	put_back(c, b);
	CU(c, cuMemcpyHtoDAsync_v2(cycle.at[b], cycle.host[i], m->bytes, cycle.copies));
	CU(c, cuEventRecord(cycle.ready[b], cycle.copies));
	CU(c, cuStreamWaitEvent(k->stream, cycle.ready[b], 0));
	launch(k, cycle.at[b], m->reads, m->change);
	CU(c, cuEventRecord(cycle.done[b], k->stream));
	cycle.has[b] = i;
	cycle.changed[b] = m->change;
}

void bench_quota_run_cycles(struct bench_quota_kernels *k)
{
	struct bench_quota_client *c = k->c;
	struct bench_quota_load *m = &c->me->load;

	m->begin_ns = clock_now_ns();
	for (uint64_t step = 0; step < (uint64_t)m->passes * cycle.n; step++) {
		if (m->by_hand) {
			step_by_hand(k, step);
		} else {
			launch(k, cycle.at[step % cycle.n], m->reads, m->change);
		}
	}
	CU(c, cuStreamSynchronize(k->stream));
	for (unsigned b = 0; b < BUFFERS; b++) {
		put_back(c, b);
	}
	CU(c, cuStreamSynchronize(cycle.copies));
	m->end_ns = clock_now_ns();
	m->digest = bench_quota_digest(k);
}
