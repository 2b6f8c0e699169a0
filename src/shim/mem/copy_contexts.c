/* The contexts in which copies run, and their end. A context takes its pinned pieces with it, so
 * that no copy may use them any more when the driver ends it. */
#include "shim/mem/copies.h"

#include <errno.h>
#include <time.h>

#include "base/clock.h"
#include "shim/shim.h"

#define CONTEXTS_MAX 64u
#define EXIT_WAIT_NS 1000000000u /* a helper may be in a page fault that takes long */

static struct lock mutex = LOCK_INITIALIZER(COPY_CONTEXTS);
static pthread_cond_t left = PTHREAD_COND_INITIALIZER; /* no copy uses a context any more */
static struct shim_copy_context contexts[CONTEXTS_MAX] GUARDED_BY(mutex);

/* Returns the entry of a context; NULL: add: the table is full, otherwise: there is none. */
static struct shim_copy_context *find(CUcontext ctx, bool add) REQUIRES(mutex)
{
	struct shim_copy_context *unused = NULL;

	for (unsigned i = 0; i < CONTEXTS_MAX; i++) {
		if (contexts[i].ctx == ctx) {
			return &contexts[i];
		}
		if (!contexts[i].ctx) {
			unused = &contexts[i];
		}
	}
	if (add && unused) {
		unused->ctx = ctx;
		return unused;
	}
	return NULL;
}

/* Forgets the pieces of a context that is gone. */
static void drop(struct shim_copy_context *c) REQUIRES(mutex)
{
	if (c->id) {
		mem_pieces_finish(&c->pieces, NULL, NULL);
		c->id = 0;
	}
}

struct shim_copy_context *shim_copy_context_enter(CUcontext ctx, unsigned long long id)
{
	struct shim_copy_context *c;

	lock_take(&mutex);
	c = find(ctx, true);
	if (c && c->id != id && !c->running) { /* another context had that handle before */
		drop(c);
		mem_pieces_init(&c->pieces);
		store_relaxed(&c->placed, 0u);
		c->id = id;
	}
	if (c && (c->ending || c->id != id)) {
		c = NULL;
	}
	if (c) {
		c->running++;
	}
	lock_release(&mutex);
	return c;
}

void shim_copy_context_leave(struct shim_copy_context *c)
{
	lock_take(&mutex);
	if (!--c->running) {
		pthread_cond_broadcast(&left);
	}
	lock_release(&mutex);
}

void shim_copy_context_place(struct shim_copy_context *c)
{
	struct mem_numa numa = MEM_NUMA_NONE;
	CUdevice device = 0;

	/* Pairs with the release below: the node is stored before a copy reads it. */
	if (likely(load_acquire(&c->placed))) {
		return;
	}
	if (shim_driver.cuCtxGetDevice(&device) == CUDA_SUCCESS) {
		numa = gpu_copy_numa(&shim_driver, device, MEM_NUMA_SYSFS);
	}
	lock_take(&mutex);
	if (!load_relaxed(&c->placed)) { /* another copy may use the node by now */
		c->pieces.numa = numa;
		store_release(&c->placed, 1u);
	}
	lock_release(&mutex);
}

uint64_t shim_copy_context_ending(CUcontext ctx)
{
	struct shim_copy_context *c;

	if (!shim_copies_planned()) { /* in a forked child another thread may have held the mutex */
		return 0;
	}
	lock_take(&mutex);
	c = find(ctx, true);
	if (c) {
		store_relaxed(&c->ending, c->ending + 1);
		while (c->running) {
			lock_wait(&mutex, &left);
		}
	}
	lock_release(&mutex);
	return 0;
}

void shim_copy_context_ended(CUcontext ctx, uint64_t before, bool gone)
{
	struct shim_copy_context *c;

	if (!shim_copies_planned()) {
		return;
	}
	lock_take(&mutex);
	c = find(ctx, false);
	if (c && c->ending) {
		if (gone) {
			drop(c);
		}
		store_relaxed(&c->ending, c->ending - 1);
		if (!c->id && !c->ending) {
			c->ctx = NULL;
		}
	}
	lock_release(&mutex);
}

void shim_copy_contexts_exit(void)
{
	struct timespec until = clock_timespec(clock_wall_ns() + EXIT_WAIT_NS);

	lock_take(&mutex);
	for (unsigned i = 0; i < CONTEXTS_MAX; i++) {
		store_relaxed(&contexts[i].ending, contexts[i].ending + 1);
	}
	for (unsigned i = 0; i < CONTEXTS_MAX; i++) {
		while (contexts[i].running && lock_wait_until(&mutex, &left, &until) != ETIMEDOUT) {
		}
	}
	lock_release(&mutex);
}
