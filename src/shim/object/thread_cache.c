/* Per-thread caches: allocated at a thread's first gated call, freed when the thread exits. Only a
 * pointer is thread-local, because a library opened with dlopen() finds little static thread-local
 * memory left. */
#include "shim/object/thread_cache.h"

#include <pthread.h>
#include <stdlib.h>

#include "shim/object/stream_queue.h"

TLS_FAST struct shim_thread *shim_thread_known;

static pthread_key_t key;
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
	store_release(&have_key, pthread_key_create(&key, leave) == 0);
}

struct shim_thread *shim_thread_create(void)
{
	struct shim_thread *t = load_acquire(&have_key) ? calloc(1, sizeof(*t)) : NULL;

	if (t && pthread_setspecific(key, t) != 0) {
		free(t);
		t = NULL;
	}
	shim_thread_known = t;
	return t;
}
