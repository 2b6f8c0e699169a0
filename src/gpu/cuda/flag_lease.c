/* Leases on the pages of other processes. The word of a page follows until_ns of its GPU: a thread
 * that changes until_ns stores it, then stores the words, then loads until_ns again and repeats if
 * it has changed. So the last store to each page is made by a thread that has seen the last change.
 * A page that is added is published first and then written in the same way, so it misses no change.
 */
#include "gpu/flag_lease.h"

#include <errno.h>
#include <stdlib.h>

#include "base/atomic.h"
#include "base/compiler.h"
#include "gpu/flag.h"
#include "gpu/gpu_int.h"
#include "gpu/cuda/flag_lease_int.h"
#include "proto/pages.h"
#include "policy/read.h"

#define UNKNOWN INT64_MIN
#define MEASURE_NS 30000000000u	     /* period; the clocks drift apart by some ppm */
#define MEASURE_MAX_NS 600000000000u /* after this time also while a lease is up */
#define RETRY_NS 1000000000u	     /* after a failed measurement; then doubled each time */

struct page {
	struct gpu_lease_page map;
	uint32_t gpu, slot;
};

struct gpu_leases {
	uint32_t high;			    /* [atomic] the highest number in use plus one */
	uint32_t count;			    /* [atomic] number of pages */
	struct page *page[GPU_LEASE_PAGES]; /* [atomic]; freed after a grace period of read-side
					       sections */
	struct on_gpu {
		uint64_t until_ns; /* [atomic] end of the lease, CLOCK_MONOTONIC; 0: none */
		int64_t offset_ns; /* [atomic] UNKNOWN before the first measurement */
		uint32_t wanted;   /* [atomic] a lease was requested at least once */
		uint64_t measured_ns, due_ns, retry_ns; /* agent only */
		CUcontext ctx;				/* under lock */
		struct gpu_warm_kernel warm;		/* under lock */
	} gpu[PROTO_MAX_GPUS];
	struct lock lock; /* held over calls into a context, which must not end meanwhile */
};

int gpu_leases_create(struct gpu_device *d)
{
	struct gpu_leases *l = calloc(1, sizeof(*l));

	if (!l) {
		return -ENOMEM;
	}
	lock_init(&l->lock, LOCK_FLAG_LEASE);
	for (uint32_t g = 0; g < PROTO_MAX_GPUS; g++) {
		l->gpu[g].offset_ns = UNKNOWN;
	}
	d->leases = l;
	return 0;
}

void gpu_leases_destroy(struct gpu_device *d)
{
	struct gpu_leases *l = d->leases;

	for (uint32_t i = 0; l && i < GPU_LEASE_PAGES; i++) {
		if (l->page[i]) {
			gpu_lease_unmap(&l->page[i]->map);
			free(l->page[i]);
		}
	}
	if (l) {
		lock_finish(&l->lock);
	}
	free(l);
	d->leases = NULL;
}

/* ---- words ---- */

/* Returns false if the GPU's clock is unknown. */
static bool word_for(const struct on_gpu *g, uint64_t until_ns, uint32_t *ret)
{
	int64_t offset = load_acquire(&g->offset_ns);

	if (until_ns && offset == UNKNOWN) {
		return false;
	}
	*ret = until_ns ? gpu_lease_word(offset, until_ns) : 0;
	return true;
}

static void write_pages(struct gpu_leases *l, uint32_t gpu, uint64_t until_ns)
{
	uint32_t high = load_acquire(&l->high), word;

	if (!word_for(&l->gpu[gpu], until_ns, &word)) {
		return;
	}
	for (uint32_t i = 0; i < high; i++) {
		const struct page *p = load_acquire(&l->page[i]);

		if (p && p->gpu == gpu) {
			gpu_lease_store(&p->map, p->slot, word);
		}
	}
	gpu_lease_fence();
}

/* Writes until_ns to the pages, and repeats until it has not changed meanwhile. */
static void follow(struct gpu_leases *l, uint32_t gpu, uint64_t until_ns)
{
	uint64_t now = until_ns;

	do {
		until_ns = now;
		write_pages(l, gpu, until_ns);
		fence_seqcst();
		now = load_seqcst(&l->gpu[gpu].until_ns);
	} while (now != until_ns);
}

void gpu_lease(void *dev, uint32_t gpu, uint64_t until_ns)
{
	struct gpu_leases *l = ((struct gpu_device *)dev)->leases;

	if (gpu >= PROTO_MAX_GPUS) {
		return;
	}
	if (unlikely(!load_relaxed(&l->gpu[gpu].wanted))) {
		store_relaxed(&l->gpu[gpu].wanted, 1u);
	}
	store_seqcst(&l->gpu[gpu].until_ns, until_ns);
	if (load_seqcst(&l->high)) {
		follow(l, gpu, until_ns);
	}
}

/* ---- pages ---- */

static void set_high(struct gpu_leases *l)
{
	uint32_t high = GPU_LEASE_PAGES;

	while (high && !l->page[high - 1]) {
		high--;
	}
	store_seqcst(&l->high, high);
}

int gpu_lease_add(struct gpu_device *d, uint32_t number, int fd, uint32_t gpu, uint32_t slot)
{
	struct gpu_leases *l = d->leases;
	struct page *p;
	int err;

	if (number >= GPU_LEASE_PAGES || gpu >= PROTO_MAX_GPUS || slot >= GPU_FLAG_SLOTS) {
		return -EINVAL;
	}
	p = calloc(1, sizeof(*p));
	if (!p) {
		return -ENOMEM;
	}
	err = gpu_lease_map(&p->map, fd);
	if (err) {
		free(p);
		return err;
	}
	gpu_lease_remove(d, number);
	p->gpu = gpu;
	p->slot = slot;
	store_seqcst(&l->page[number], p);
	(void)add_relaxed(&l->count, 1u);
	set_high(l);
	fence_seqcst();
	follow(l, gpu, load_seqcst(&l->gpu[gpu].until_ns));
	return 0;
}

void gpu_lease_remove(struct gpu_device *d, uint32_t number)
{
	struct gpu_leases *l = d->leases;
	struct page *p = number < GPU_LEASE_PAGES ? l->page[number] : NULL;

	if (!p) {
		return;
	}
	store_seqcst(&l->page[number], (struct page *)NULL);
	set_high(l);
	(void)sub_acqrel(&l->count, 1u);
	if (!policy_synchronize()) {
		return; /* a thread may still write to the page: keep it mapped, and leak it */
	}
	gpu_lease_store(&p->map, p->slot, 0);
	gpu_lease_fence();
	gpu_lease_unmap(&p->map);
	free(p);
}

void gpu_leases_rewrite(struct gpu_device *d)
{
	struct gpu_leases *l = d->leases;

	for (uint32_t g = 0; g < PROTO_MAX_GPUS && load_seqcst(&l->high); g++) {
		follow(l, g, load_seqcst(&l->gpu[g].until_ns));
	}
}

uint32_t gpu_lease_count(const struct gpu_device *d)
{
	return load_relaxed(&d->leases->count);
}

/* ---- contexts and clocks ---- */

void gpu_lease_context(struct gpu_device *d, uint32_t gpu, CUcontext ctx)
{
	struct gpu_leases *l = d->leases;

	if (gpu >= PROTO_MAX_GPUS || !ctx || load_relaxed(&l->gpu[gpu].ctx)) {
		return;
	}
	lock_take(&l->lock);
	if (!l->gpu[gpu].ctx) {
		store_relaxed(&l->gpu[gpu].ctx, ctx);
		l->gpu[gpu].warm = (struct gpu_warm_kernel){ 0 };
		store_relaxed(&l->gpu[gpu].due_ns, (uint64_t)0);
	}
	lock_release(&l->lock);
}

void gpu_leases_forget(struct gpu_device *d, CUcontext ctx)
{
	struct gpu_leases *l = d->leases;

	lock_take(&l->lock);
	for (uint32_t g = 0; g < PROTO_MAX_GPUS; g++) {
		if (l->gpu[g].ctx == ctx) {
			store_relaxed(&l->gpu[g].ctx, (CUcontext)NULL);
			l->gpu[g].warm = (struct gpu_warm_kernel){ 0 };
		}
	}
	lock_release(&l->lock);
}

void gpu_warm(void *dev, uint32_t gpu)
{
	struct gpu_device *d = dev;
	struct gpu_leases *l = d->leases;

	if (gpu >= PROTO_MAX_GPUS) {
		return;
	}
	lock_take(&l->lock);
	if (l->gpu[gpu].ctx) {
		gpu_warm_launch(d, l->gpu[gpu].ctx, &l->gpu[gpu].warm);
	}
	lock_release(&l->lock);
}

void gpu_leases_set_offset(struct gpu_device *d, uint32_t gpu, int64_t offset_ns)
{
	struct on_gpu *g = &d->leases->gpu[gpu];

	if (offset_ns != UNKNOWN) {
		store_seqcst(&g->offset_ns, offset_ns);
		follow(d->leases, gpu, load_seqcst(&g->until_ns));
	}
}

static void measure(struct gpu_device *d, uint32_t gpu, uint64_t now)
{
	struct gpu_leases *l = d->leases;
	struct on_gpu *g = &l->gpu[gpu];
	int64_t offset;
	int err;

	lock_take(&l->lock);
	err = g->ctx ? gpu_clock_offset(d, g->ctx, &offset) : -EAGAIN;
	if (!err) {
		gpu_warm_prepare(d, g->ctx, &g->warm);
	}
	lock_release(&l->lock);
	g->retry_ns = err ? MIN(MAX(2 * g->retry_ns, (uint64_t)RETRY_NS), MEASURE_NS) : 0;
	store_relaxed(&g->due_ns, now + (err ? g->retry_ns : MEASURE_NS));
	if (!err) {
		g->measured_ns = now;
		gpu_leases_set_offset(d, gpu, offset);
	}
}

static bool has_pages(const struct gpu_leases *l, uint32_t gpu)
{
	for (uint32_t i = 0; i < l->high; i++) {
		if (l->page[i] && l->page[i]->gpu == gpu) {
			return true;
		}
	}
	return false;
}

/* Returns true if a measurement is due and does not cost an open request its time. While pages wait
 * for the first measurement that cost is accepted. */
static bool due(const struct gpu_leases *l, uint32_t gpu, uint64_t now)
{
	const struct on_gpu *g = &l->gpu[gpu];
	bool busy = load_relaxed(&g->until_ns) != 0;

	if (now < load_relaxed(&g->due_ns) || !load_relaxed(&g->ctx)) {
		return false;
	}
	if (!busy) {
		return true;
	}
	return load_relaxed(&g->offset_ns) == UNKNOWN ? has_pages(l, gpu)
						      : now - g->measured_ns > MEASURE_MAX_NS;
}

uint64_t gpu_lease_measure_clocks(struct gpu_device *d, uint64_t now)
{
	struct gpu_leases *l = d->leases;
	uint64_t again = UINT64_MAX;

	for (uint32_t g = 0; g < PROTO_MAX_GPUS; g++) {
		uint64_t at;

		if (!load_relaxed(&l->gpu[g].wanted) && !(l->high && has_pages(l, g))) {
			continue;
		}
		if (due(l, g, now)) {
			measure(d, g, now);
		}
		at = load_relaxed(&l->gpu[g].due_ns);
		again = MIN(again, at > now ? at - now : RETRY_NS);
	}
	return again;
}
