/* A tenant of `gbpf bench dev copy --overlap`: it uploads an image, processes it and downloads the
 * result, one after another in one stream, as Gdev's SRAD does. Its own work never overlaps; that
 * of two tenants can. */
#include <sys/mman.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "bench/copy/copy_client.h"

#define THREADS 256u
#define BLOCKS_MAX 4096u
#define ITERATIONS_MAX (1 << 24)
#define SAMPLES 64u /* pixels of each image that are compared */
#define WARM 2u
#define TIMES 4u
#define LEVELS 1024u /* values of a pixel; integers, so that results are exact */

extern const char ptx_bench_image[];

struct image {
	struct bench_copy_page *page;
	uint64_t bytes;
	CUmodule module;
	CUfunction kernel;
	CUdeviceptr device;
	float *in, *out; /* page-locked or pageable */
	unsigned pixels;
	int iterations;
};

static float *take_memory(const struct image *m)
{
	void *p = NULL;

	if (!m->page->pinned) {
		return (float *)(void *)bench_copy_map(m->bytes);
	}
	CU(COPY_BY_SHIM, cuMemHostAlloc(&p, m->bytes, 0));
	return p;
}

static void give_memory(const struct image *m, float *p)
{
	if (m->page->pinned) {
		CU(COPY_BY_SHIM, cuMemFreeHost(p));
	} else {
		munmap(p, m->bytes);
	}
}

static void image_init(struct image *m, struct bench_copy_page *page)
{
	*m = (struct image){ .page = page,
			     .bytes = page->bytes / sizeof(float) * sizeof(float),
			     .pixels = (unsigned)(page->bytes / sizeof(float)),
			     .iterations = (int)page->iterations };
	if (!m->pixels) {
		bench_copy_fail("an image has at least 4 bytes");
	}
	CU(COPY_BY_SHIM, cuModuleLoadData(&m->module, ptx_bench_image));
	CU(COPY_BY_SHIM, cuModuleGetFunction(&m->kernel, m->module, "bench_image"));
	CU(COPY_BY_SHIM, cuMemAlloc_v2(&m->device, m->bytes));
	m->in = take_memory(m);
	m->out = take_memory(m);
	for (unsigned p = 0; p < m->pixels; p++) {
		m->in[p] = (float)(p % LEVELS);
		m->out[p] = -1;
	}
}

static void image_finish(struct image *m)
{
	give_memory(m, m->in);
	give_memory(m, m->out);
	CU(COPY_BY_SHIM, cuMemFree_v2(m->device));
	CU(COPY_BY_SHIM, cuModuleUnload(m->module));
}

static void await(void)
{
	CU(COPY_BY_SHIM, cuStreamSynchronize(bench_copy_stream[0]));
}

/* Logs that an operation is in flight, from before the call that submits it. */
static struct bench_copy_interval *begin(struct image *m, enum bench_copy_queue queue)
{
	uint64_t n = m->page->log[queue].begun;
	struct bench_copy_interval *entry = &m->page->log[queue].entry[n % COPY_LOG];

	store_relaxed(&entry->end_ns, UINT64_C(0));
	store_relaxed(&entry->begin_ns, clock_now_ns());
	store_release(&m->page->log[queue].begun, n + 1);
	return entry;
}

/* Waits for the operation, and logs its end. */
static void end(struct bench_copy_interval *entry)
{
	await();
	store_release(&entry->end_ns, clock_now_ns());
}

static void copy(struct image *m, enum bench_copy_way way)
{
	CUstream to = bench_copy_stream[0];

	if (way == COPY_UP) {
		CU(COPY_BY_SHIM, cuMemcpyHtoDAsync_v2(m->device, m->in, m->bytes, to));
	} else {
		CU(COPY_BY_SHIM, cuMemcpyDtoHAsync_v2(m->out, m->device, m->bytes, to));
	}
}

/* v becomes b - v at each odd iteration, and v again at each even one. */
static void launch(struct image *m, unsigned b)
{
	unsigned blocks = (m->pixels + THREADS - 1) / THREADS;
	float factor = -1, summand = (float)b;
	void *args[] = { &m->device, &m->pixels, &factor, &summand, &m->iterations };

	CU(COPY_BY_SHIM, cuLaunchKernel(m->kernel, MIN(blocks, BLOCKS_MAX), 1, 1, THREADS, 1, 1, 0,
					bench_copy_stream[0], args, NULL));
}

/* Compares some pixels of the result; `b` differs from image to image, so that an older one fails.
 */
static void check(const struct image *m, unsigned b)
{
	for (uint64_t k = 0; k < SAMPLES; k++) {
		unsigned p = (unsigned)((m->pixels - 1) * k / (SAMPLES - 1));

		if (m->out[p] != (float)b - (float)(p % LEVELS)) {
			bench_copy_fail("pixel %u is %g, not %g", p, (double)m->out[p],
					(double)b - (double)(p % LEVELS));
		}
	}
}

static void process(struct image *m, unsigned b)
{
	struct bench_copy_interval *entry = begin(m, COPY_QUEUE_COPY);

	copy(m, COPY_UP);
	end(entry);
	entry = begin(m, COPY_QUEUE_COMPUTE);
	launch(m, b);
	end(entry);
	entry = begin(m, COPY_QUEUE_COPY);
	copy(m, COPY_DOWN);
	end(entry);
	check(m, b);
}

/* Returns the time of one kernel when several are queued. */
static uint64_t time_kernel(struct image *m)
{
	uint64_t since;

	launch(m, 0);
	await();
	since = clock_now_ns();
	for (unsigned i = 0; i < TIMES; i++) {
		launch(m, 0);
	}
	await();
	return MAX((clock_now_ns() - since) / TIMES, 1);
}

/* Returns the time of an upload and a download. */
static uint64_t time_copies(struct image *m)
{
	uint64_t since = 0;

	for (unsigned i = 0; i < WARM + TIMES; i++) {
		since = i == WARM ? clock_now_ns() : since;
		copy(m, COPY_UP);
		await();
		copy(m, COPY_DOWN);
		await();
	}
	return (clock_now_ns() - since) / TIMES;
}

void bench_copy_calibrate(struct bench_copy_page *page)
{
	struct image m;
	uint64_t ns, want;

	image_init(&m, page);
	m.iterations = 1;
	process(&m, 1);
	want = time_copies(&m);
	ns = time_kernel(&m);
	while (ns < want && m.iterations < ITERATIONS_MAX) {
		m.iterations = 2 * m.iterations + 1;
		ns = time_kernel(&m);
	}
	if (ns > want) {
		m.iterations = (int)MAX((double)m.iterations * (double)want / (double)ns, 1) | 1;
	}
	page->iterations = (uint32_t)m.iterations;
	page->kernel_ns = time_kernel(&m);
	page->copies_ns = want;
	image_finish(&m);
}

void bench_copy_images(struct bench_copy_page *page)
{
	struct image m;
	unsigned b = 0;

	image_init(&m, page);
	if (!(m.iterations & 1)) {
		bench_copy_fail("invalid command");
	}
	process(&m, LEVELS); /* compiles, and touches all memory */
	store_release(&page->looping, 1u);
	do {
		process(&m, b++ % LEVELS);
		store_release(&page->images, page->images + 1);
	} while (!load_acquire(&page->stop));
	image_finish(&m);
}
