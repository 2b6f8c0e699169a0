/* A worker: its threads allocate and free by random paths and sizes, from a fixed seed. After a
 * refusal a thread asks for the smallest size, and then frees some of what it holds, so that the
 * memory is nearly always full. */
#include <pthread.h>
#include <string.h>

#include "base/atomic.h"
#include "base/fd.h"
#include "bench/common/statistics.h"
#include "bench/quota/quota_client.h"

#define HELD_MAX 512u
#define ROW_BYTES 4096u
#define ODD_ROW_BYTES 4000u /* for which the driver chooses a larger pitch */
#define PIXELS 4096u
#define PIXEL_BYTES 4u
#define FRACTION_MIN (64u << 10) /* smallest size that is not whole */

enum path { ALLOC, PITCH, MANAGED, CREATE, ARRAY, ASYNC, PATHS };
static const char *const names[PATHS] = { "alloc", "pitch", "managed", "create", "array", "async" };

struct piece {
	enum path path;
	uint64_t bytes; /* asked for */
	CUdeviceptr address;
	CUmemGenericAllocationHandle handle;
	CUarray array;
};

struct thread {
	struct bench_quota_client *c;
	pthread_t id;
	uint64_t random;
	CUstream stream;
	unsigned held;
	struct piece piece[HELD_MAX];
};

static CUresult create(struct thread *t, struct piece *p)
{
	CUmemLocation here = { .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = t->c->device };
	CUmemAllocationProp prop = { .type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = here };
	CUmemAccessDesc access = { .location = here, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
	CUresult r;

	p->bytes = ROUND_UP(p->bytes, (uint64_t)QUOTA_UNIT);
	r = cuda.cuMemCreate(&p->handle, p->bytes, &prop, 0);
	if (r != CUDA_SUCCESS) {
		return r;
	}
	CU(t->c, cuMemAddressReserve(&p->address, p->bytes, 0, 0, 0));
	CU(t->c, cuMemMap(p->address, p->bytes, 0, p->handle, 0));
	CU(t->c, cuMemSetAccess(p->address, p->bytes, &access, 1));
	return r;
}

static CUresult create_array(struct piece *p)
{
	CUDA_ARRAY3D_DESCRIPTOR d = { .Width = PIXELS,
				      .Height = MAX(p->bytes / (PIXELS * PIXEL_BYTES), 1u),
				      .Format = CU_AD_FORMAT_UNSIGNED_INT32,
				      .NumChannels = 1 };

	p->bytes = (uint64_t)d.Width * d.Height * PIXEL_BYTES;
	return cuda.cuArray3DCreate_v2(&p->array, &d);
}

static CUresult allocate_pitch(struct piece *p)
{
	size_t width = p->bytes % QUOTA_UNIT ? ODD_ROW_BYTES : ROW_BYTES, pitch;
	size_t height = MAX(p->bytes / width, 1u);

	p->bytes = width * height;
	return cuda.cuMemAllocPitch_v2(&p->address, &pitch, width, height, 4);
}

static CUresult allocate(struct thread *t, struct piece *p)
{
	switch (p->path) {
	case ALLOC:
		return cuda.cuMemAlloc_v2(&p->address, p->bytes);
	case PITCH:
		return allocate_pitch(p);
	case MANAGED:
		return cuda.cuMemAllocManaged(&p->address, p->bytes, CU_MEM_ATTACH_GLOBAL);
	case CREATE:
		return create(t, p);
	case ARRAY:
		return create_array(p);
	default:
		return cuda.cuMemAllocAsync(&p->address, p->bytes, t->stream);
	}
}

static void release(struct thread *t, struct piece *p)
{
	switch (p->path) {
	case CREATE:
		CU(t->c, cuMemUnmap(p->address, p->bytes));
		CU(t->c, cuMemAddressFree(p->address, p->bytes));
		CU(t->c, cuMemRelease(p->handle));
		break;
	case ARRAY:
		CU(t->c, cuArrayDestroy(p->array));
		break;
	case ASYNC:
		CU(t->c, cuMemFreeAsync(p->address, t->stream));
		CU(t->c, cuStreamSynchronize(t->stream));
		break;
	default:
		CU(t->c, cuMemFree_v2(p->address));
	}
}

static void raise_to(int64_t *peak, int64_t value)
{
	int64_t was = load_relaxed(peak);

	while (value > was && !cas_acqrel(peak, &was, value)) {
	}
}

/* Counts bytes that the worker has now. If it is killed in between, the sum is too low, never too
 * high. */
static void count(struct bench_quota_client *c, uint64_t bytes)
{
	add_acqrel(&c->me->held, (int64_t)bytes);
	raise_to(&c->page->peak, add_acqrel(&c->page->total, (int64_t)bytes) + (int64_t)bytes);
	add_relaxed(&c->me->allocations, UINT64_C(1));
}

static void discount(struct bench_quota_client *c, uint64_t bytes)
{
	sub_acqrel(&c->page->total, (int64_t)bytes);
	sub_acqrel(&c->me->held, (int64_t)bytes);
}

/* Returns whether the driver's figure leaves room below the limit. Another process may allocate
 * before this one does. */
static bool has_room(struct bench_quota_client *c, uint64_t bytes)
{
	size_t available = 0, total;
	uint64_t used;

	CU(c, cuMemGetInfo_v2(&available, &total));
	used = c->page->base_free > available ? c->page->base_free - available : 0;
	raise_to(&c->page->driver_peak, (int64_t)used);
	return used + bytes <= c->page->limit;
}

static bool take(struct thread *t, enum path path, uint64_t bytes)
{
	struct piece *p = &t->piece[t->held];
	CUresult r = CUDA_ERROR_OUT_OF_MEMORY;

	*p = (struct piece){ .path = path, .bytes = bytes };
	if (!t->c->check || has_room(t->c, bytes)) {
		r = allocate(t, p);
	}
	if (r == CUDA_ERROR_OUT_OF_MEMORY) {
		add_relaxed(&t->c->me->refusals, UINT64_C(1));
		return false;
	}
	bench_quota_check(t->c, r, names[path]);
	count(t->c, p->bytes);
	t->held++;
	return true;
}

static void drop(struct thread *t, unsigned i)
{
	struct piece p = t->piece[i];

	t->piece[i] = t->piece[--t->held];
	discount(t->c, p.bytes);
	release(t, &p);
}

static unsigned draw(struct thread *t, unsigned below)
{
	return (unsigned)((bench_stats_random(&t->random) >> 33) % below);
}

static enum path draw_path(struct thread *t)
{
	enum path all[PATHS];
	unsigned n = 0;

	for (unsigned i = 0; i < PATHS; i++) {
		const char *at = t->c->paths ? strstr(t->c->paths, names[i]) : "";

		if (at) {
			all[n++] = (enum path)i;
		}
	}
	return n ? all[draw(t, n)] : ALLOC;
}

/* Up to a 64th of the limit, every other time in whole units. If the page asks for whole sizes: one
 * unit or three, since a pool may serve a request with a block of up to twice its size. */
static uint64_t draw_bytes(struct thread *t)
{
	unsigned units = (unsigned)(t->c->page->limit / (64 * (uint64_t)QUOTA_UNIT));
	uint64_t bytes = (uint64_t)QUOTA_UNIT * (1 + draw(t, MAX(MIN(units, 64u), 1u)));

	if (load_relaxed(&t->c->page->whole)) {
		return (uint64_t)QUOTA_UNIT * (draw(t, 2) ? 1 : 3);
	}
	return draw(t, 2) ? bytes : FRACTION_MIN + draw(t, (unsigned)(bytes - FRACTION_MIN));
}

static void step(struct thread *t)
{
	unsigned n;

	if (t->held < HELD_MAX && draw(t, 8) &&
	    (take(t, draw_path(t), draw_bytes(t)) || take(t, draw_path(t), QUOTA_UNIT))) {
		return;
	}
	n = t->held ? 1 + draw(t, MIN(t->held, 4u)) : 0;
	while (n--) {
		drop(t, draw(t, t->held));
	}
}

static void *run(void *arg)
{
	struct thread *t = arg;
	struct bench_quota_client *c = t->c;
	uint32_t phase = load_acquire(&c->page->phase);

	CU(c, cuCtxSetCurrent(c->ctx));
	CU(c, cuStreamCreate(&t->stream, CU_STREAM_NON_BLOCKING));
	while (bench_quota_activity(phase) != QUOTA_EXIT) {
		if (bench_quota_activity(phase) == QUOTA_RACE) {
			while (load_acquire(&c->page->phase) == phase) {
				step(t);
			}
			phase = load_acquire(&c->page->phase);
			continue;
		}
		while (bench_quota_activity(phase) == QUOTA_RELEASE && t->held) {
			drop(t, t->held - 1);
		}
		CU(c, cuStreamSynchronize(t->stream)); /* a pool returns what is not in use */
		add_acqrel(&c->me->quiet, 1u);
		phase = bench_quota_await_phase(c, phase);
	}
	return NULL;
}

void bench_quota_work(struct bench_quota_client *c)
{
	static struct thread threads[QUOTA_THREADS];

	for (unsigned i = 0; i < c->threads; i++) {
		threads[i].c = c;
		threads[i].random = 0x9e3779b97f4a7c15u * (c->seed * 1000 + c->slot * 100 + i + 1);
		if (pthread_create(&threads[i].id, NULL, run, &threads[i]) != 0) {
			bench_quota_fail(c, "cannot start a thread");
		}
	}
	bench_quota_ready(c);
	for (unsigned i = 0; i < c->threads; i++) {
		pthread_join(threads[i].id, NULL);
	}
}
