/* Per-thread caches: allocated at a thread's first gated call, freed when the thread exits. Only a
 * pointer is thread-local, because a library opened with dlopen() finds little static thread-local
 * memory left. */
#include "shim/object/thread_cache.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "shim/object/stream_queue.h"

TLS_FAST struct shim_thread *shim_thread_known;

static pthread_key_t thread_key;
static bool
	have_key; /* [atomic] a driver's callback thread may get here before shim_thread_setup() */

/* Runs when a thread exits. Its per-thread default streams end with it, so their queues are closed.
 */
static void leave(void *arg)
{
	struct shim_thread *t = arg;

	shim_thread_known = NULL;
	shim_queue_close_thread(t);
	free(t);
}

void shim_thread_setup(void)
{
	store_release(&have_key, pthread_key_create(&thread_key, leave) == 0);
}

struct shim_thread *shim_thread_create(void)
{
	struct shim_thread *t = load_acquire(&have_key) ? calloc(1, sizeof(*t)) : NULL;

	if (t && pthread_setspecific(thread_key, t) != 0) {
		free(t);
		t = NULL;
	}
	shim_thread_known = t;
	return t;
}

/* ---- kernels ---- */

struct shim_thread_kernel *shim_thread_find_near(struct shim_thread *t, uintptr_t key,
						 unsigned slot)
{
	for (unsigned i = 0; i < SHIM_THREAD_WAYS; i++) {
		if (t->kernels[slot ^ i].key == key) {
			return &t->kernels[slot ^ i];
		}
	}
	return NULL;
}

uint32_t shim_thread_fill_begin(struct shim_thread *t)
{
	uint32_t now = load_acquire(&shim.kernel_generation);

	if (t->kernel_generation != now) {
		memset(t->kernels, 0, sizeof(t->kernels));
		t->kernel_generation = now;
	}
	return now;
}

/* Returns the place for a key that has none: a free one; or that of a handle which was not
 * launched, such as the CUkernel of a CUfunction that is; or each in turn, so that no two keys take
 * one from each other for ever. */
static struct shim_thread_kernel *place_for(struct shim_thread *t, unsigned slot)
{
	struct shim_thread_kernel *unlaunched = NULL;

	for (unsigned i = 0; i < SHIM_THREAD_WAYS; i++) {
		struct shim_thread_kernel *e = &t->kernels[slot ^ i];

		if (!e->key) {
			return e;
		}
		unlaunched = e->kernel ? unlaunched : e;
	}
	return unlaunched ? unlaunched : &t->kernels[slot ^ t->victim++ % SHIM_THREAD_WAYS];
}

struct shim_thread_kernel *shim_thread_fill(struct shim_thread *t, uintptr_t key,
					    uint32_t generation)
{
	unsigned slot = shim_thread_slot(key, SHIM_THREAD_KERNELS);
	struct shim_thread_kernel *e;

	if (t->kernel_generation != generation) { /* what was asked has filled members itself */
		return NULL;
	}
	e = shim_thread_find_near(t, key, slot);
	if (!e) {
		e = place_for(t, slot);
		*e = (struct shim_thread_kernel){ .key = key };
	}
	return e;
}
