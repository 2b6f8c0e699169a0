/* The programs of a pair: a stencil, a matrix product and k-means, each with the number of passes
 * that the coordinator asks for, in memory of cuMemAlloc or in managed memory. Each launch names
 * all of the program's memory by pointers, and the program waits for each pass, as one that looks
 * at a residual does. */
#include "base/atomic.h"
#include "base/clock.h"
#include "bench/quota/quota_client.h"

#define CENTRES 16u /* as in quota.cu, */
#define DIMENSIONS 3u
#define SPREAD 256u
#define TILE 8u
/* Strips of rows at most, one for each pass of a product: short passes, since one of them may take
 * a hundred times as long in place. 128 leave an item for each thread of an H200 with 1 GiB a
 * matrix. */
#define STRIPS 128u
#define ROW 4096u /* cells of a row of the stencil */
#define MIXES 2u
#define BUFFERS_MAX 3u
#define ATTACH_GLOBAL 1u
#define MEET_NS 50000u

struct program {
	struct bench_quota_kernels *k;
	const struct bench_quota_load *m;
	CUdeviceptr at[BUFFERS_MAX];
	uint64_t bytes[BUFFERS_MAX];
	unsigned buffers;
	CUdeviceptr centres, sums; /* of k-means */
};

static struct {
	CUfunction mix, layer, stencil, product, assign, centres;
} kernel;

static void find_kernels(struct bench_quota_kernels *k)
{
	const struct {
		const char *name;
		CUfunction *to;
	} all[] = { { "quota_mix", &kernel.mix },	  { "quota_layer", &kernel.layer },
		    { "quota_stencil", &kernel.stencil }, { "quota_product", &kernel.product },
		    { "quota_assign", &kernel.assign },	  { "quota_centres", &kernel.centres } };

	for (unsigned i = 0; i < ARRAY_SIZE(all) && !kernel.centres; i++) {
		CU(k->c, cuModuleGetFunction(all[i].to, k->module, all[i].name));
	}
}

static void launch(const struct program *p, CUfunction f, void **params)
{
	CU(p->k->c,
	   cuLaunchKernel(f, p->k->grid, 1, 1, p->k->threads, 1, 1, 0, p->k->stream, params, NULL));
}

static void wait_for(const struct program *p)
{
	CU(p->k->c, cuStreamSynchronize(p->k->stream));
}

/* Returns the number of cells in that many bytes. */
static uint64_t cells_of(const struct program *p, uint64_t bytes)
{
	return bytes / sizeof(uint32_t) / p->m->stride;
}

static void make(struct program *p, unsigned i, uint64_t bytes)
{
	struct bench_quota_client *c = p->k->c;
	uint64_t words = bytes / sizeof(uint32_t), stride = p->m->stride;
	uint32_t seed = p->m->seed;
	void *params[] = { &p->at[i], &words, &stride, &seed };

	if (p->m->managed) {
		CU(c, cuMemAllocManaged(&p->at[i], bytes, ATTACH_GLOBAL));
	} else {
		CU(c, cuMemAlloc_v2(&p->at[i], bytes));
	}
	p->bytes[i] = bytes;
	p->buffers = MAX(p->buffers, i + 1);
	CU(c, cuMemsetD32Async(p->at[i], i + 1, words, p->k->stream));
	for (unsigned n = 0; n < MIXES; n++) {
		launch(p, kernel.mix, params);
	}
}

/* Waits until the other program has its memory as well, so that both have theirs at the same time
 * however late one of them begins. The coordinator ends this process if the other one fails. */
static void meet(const struct program *p)
{
	struct bench_quota_client *c = p->k->c;

	wait_for(p);
	store_release(&c->me->load.made, 1u);
	while (!load_acquire(&c->page->slot[p->m->partner].load.made)) {
		clock_sleep_ns(MEET_NS);
	}
}

/* Begins the passes of a program, which has its memory. */
static uint64_t begin_passes(struct program *p)
{
	store_release(&p->k->c->me->load.passes_done, 0u);
	meet(p);
	return clock_now_ns();
}

/* Waits for a pass. Returns whether the program is to do another one. */
static bool end_pass(struct program *p, uint64_t begin_ns)
{
	struct bench_quota_load *m = &p->k->c->me->load;
	uint32_t done = m->passes_done + 1;

	wait_for(p);
	m->passes_ns = clock_now_ns() - begin_ns;
	store_release(&m->passes_done, done);
	return done < m->passes && (!m->limit_ns || m->passes_ns < m->limit_ns);
}

static void run_stencil(struct program *p)
{
	uint64_t bytes = p->m->bytes / 2, stride = p->m->stride, cells, row, begin_ns;
	uint32_t pass = 0;

	bytes -= bytes % (sizeof(uint32_t) * stride);
	cells = cells_of(p, bytes);
	row = MIN((uint64_t)ROW, cells);
	make(p, 0, bytes);
	make(p, 1, bytes);
	begin_ns = begin_passes(p);
	do {
		void *params[] = { &p->at[pass % 2], &p->at[(pass + 1) % 2], &cells, &stride,
				   &row };

		launch(p, kernel.stencil, params);
		pass++;
	} while (end_pass(p, begin_ns));
}

/* Returns the greatest multiple of TILE whose square is no more. */
static uint64_t side_of(uint64_t cells)
{
	uint64_t n = 0;

	while ((n + TILE) * (n + TILE) <= cells) {
		n += TILE;
	}
	return n;
}

static void run_product(struct program *p)
{
	uint64_t bytes = p->m->bytes / 3, stride = p->m->stride, n, rows, begin_ns;
	uint32_t pass = 0;

	bytes -= bytes % sizeof(uint32_t);
	n = side_of(cells_of(p, bytes));
	rows = MAX(n / STRIPS - n / STRIPS % TILE, (uint64_t)TILE);
	for (unsigned i = 0; i < 3; i++) {
		make(p, i, bytes);
	}
	begin_ns = begin_passes(p);
	do {
		uint64_t from = pass % (n / rows) * rows;
		void *params[] = { &p->at[0], &p->at[1], &p->at[2], &n, &stride, &from, &rows };

		launch(p, kernel.product, params);
		pass++;
	} while (end_pass(p, begin_ns));
}

static void make_centres(struct program *p)
{
	uint32_t at[CENTRES * DIMENSIONS];
	struct bench_quota_client *c = p->k->c;
	uint64_t words = (uint64_t)SPREAD * CENTRES * (DIMENSIONS + 1) * 2;

	for (unsigned i = 0; i < ARRAY_SIZE(at); i++) {
		at[i] = i * 40503u & 0xffff;
	}
	CU(c, cuMemAlloc_v2(&p->centres, sizeof(at)));
	CU(c, cuMemAlloc_v2(&p->sums, words * sizeof(uint32_t)));
	CU(c, cuMemsetD32Async(p->sums, 0, words, p->k->stream));
	CU(c, cuMemcpyHtoDAsync_v2(p->centres, at, sizeof(at), p->k->stream));
	wait_for(p);
}

static void run_kmeans(struct program *p)
{
	uint64_t plane = p->m->bytes / (DIMENSIONS + 1), stride = p->m->stride, points, begin_ns;

	plane -= plane % (sizeof(uint32_t) * stride);
	points = cells_of(p, plane);
	make_centres(p);
	make(p, 0, DIMENSIONS * plane);
	make(p, 1, plane);
	begin_ns = begin_passes(p);
	do {
		void *assign[] = { &p->at[0], &p->at[1], &p->centres, &p->sums, &points, &stride };
		void *centres[] = { &p->centres, &p->sums };

		launch(p, kernel.assign, assign);
		CU(p->k->c, cuLaunchKernel(kernel.centres, 1, 1, 1, CENTRES, 1, 1, 0, p->k->stream,
					   centres, NULL));
	} while (end_pass(p, begin_ns));
}

/* Returns a digest of all memory of the program. */
static uint64_t digest_of(struct program *p)
{
	uint64_t stride = p->m->stride;
	uint32_t once = 1, unchanged = 0;

	CU(p->k->c,
	   cuMemsetD32Async(p->k->sums, 0, (size_t)p->k->grid * p->k->threads, p->k->stream));
	for (unsigned i = 0; i < p->buffers; i++) {
		uint64_t words = p->bytes[i] / sizeof(uint32_t);
		void *params[] = { &p->at[i], &words, &stride, &once, &unchanged, &p->k->sums };

		launch(p, kernel.layer, params);
	}
	wait_for(p);
	return bench_quota_digest(p->k);
}

static void release(struct program *p)
{
	struct bench_quota_client *c = p->k->c;

	for (unsigned i = 0; i < p->buffers; i++) {
		CU(c, cuMemFree_v2(p->at[i]));
	}
	if (p->centres) {
		CU(c, cuMemFree_v2(p->centres));
		CU(c, cuMemFree_v2(p->sums));
	}
}

void bench_quota_run_program(struct bench_quota_kernels *k)
{
	static void (*const run[QUOTA_PROGRAMS])(struct program * p) = {
		[QUOTA_STENCIL] = run_stencil,
		[QUOTA_PRODUCT] = run_product,
		[QUOTA_KMEANS] = run_kmeans,
	};
	struct bench_quota_load *m = &k->c->me->load;
	struct program p = { .k = k, .m = m };

	if (m->program >= QUOTA_PROGRAMS || !m->stride || m->partner >= QUOTA_SLOTS) {
		bench_quota_fail(k->c, "no program %u", m->program);
	}
	find_kernels(k);
	m->begin_ns = clock_now_ns();
	run[m->program](&p);
	m->digest = digest_of(&p);
	release(&p);
	m->end_ns = clock_now_ns();
}

void bench_quota_read_free(struct bench_quota_client *c)
{
	size_t left = 0, total = 0;

	CU(c, cuMemGetInfo_v2(&left, &total));
	c->me->load.free_bytes = left;
}
