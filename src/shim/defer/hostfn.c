/* Wrappers around host functions, from a fixed pool so that enqueueing one does not allocate. A
 * wrapper returns to the pool when it runs. Host functions in captured graphs, which run
 * repeatedly, are not wrapped (gate.c). */
#include "shim/defer/hostfn.h"

#include "shim/object/thread_cache.h"

#define WRAPPERS 1024u

struct shim_hostfn {
	uint32_t used;
	union {
		CUhostFn plain;
		CUstreamCallback callback;
	} fn;
	void *user;
};

static struct shim_hostfn wrappers[WRAPPERS];
static uint32_t next;

static struct shim_hostfn *take(void)
{
	uint32_t start = add_relaxed(&next, 1);

	for (uint32_t i = 0; i < WRAPPERS; i++) {
		struct shim_hostfn *h = &wrappers[(start + i) % WRAPPERS];
		uint32_t expected = 0;

		if (!load_relaxed(&h->used) && cas_acqrel(&h->used, &expected, 1)) {
			return h;
		}
	}
	return NULL;
}

void shim_hostfn_release(struct shim_hostfn *h)
{
	if (h) {
		store_release(&h->used, 0);
	}
}

static void call_plain(void *arg)
{
	struct shim_hostfn *h = arg;
	struct shim_thread *t = shim_thread_self();
	CUhostFn fn = h->fn.plain;
	void *user = h->user;

	shim_hostfn_release(h);
	if (t) {
		t->host_function++;
	}
	fn(user);
	if (t) {
		t->host_function--;
	}
}

static void call_callback(CUstream stream, CUresult status, void *arg)
{
	struct shim_hostfn *h = arg;
	struct shim_thread *t = shim_thread_self();
	CUstreamCallback fn = h->fn.callback;
	void *user = h->user;

	shim_hostfn_release(h);
	if (t) {
		t->host_function++;
	}
	fn(stream, status, user);
	if (t) {
		t->host_function--;
	}
}

/* cuLaunchHostFunc(stream, fn, user), cuStreamAddCallback(stream, fn, user, flags) */
struct shim_hostfn *shim_hostfn_wrap(const struct shim_call *c, uint64_t *a)
{
	struct shim_hostfn *h = a[1] ? take() : NULL;

	if (!h) {
		return NULL;
	}
	h->user = (void *)(uintptr_t)a[2];
	if (c->nargs == 3) {
		h->fn.plain = (CUhostFn)(uintptr_t)a[1];
		a[1] = (uintptr_t)call_plain;
	} else {
		h->fn.callback = (CUstreamCallback)(uintptr_t)a[1];
		a[1] = (uintptr_t)call_callback;
	}
	a[2] = (uintptr_t)h;
	return h;
}
