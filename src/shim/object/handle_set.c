/* A set of handles: a map under a lock, and a count that spares the lock while the set is empty. */
#include "shim/object/handle_set.h"

#include <errno.h>

#include "base/atomic.h"
#include "base/compiler.h"
#include "shim/fork_lock.h"

#define MAX_HANDLES 65536u

/* The release pairs with the acquire in is_empty(): a thread that learned of a handle after it was
 * added sees a count that is not 0. */
static void publish_count(struct shim_handle_set *s) REQUIRES(s->mutex)
{
	store_release(&s->n, (uint32_t)s->map.live + s->overflow);
}

static bool is_empty(const struct shim_handle_set *s)
{
	return likely(!load_acquire(&s->n));
}

bool shim_handle_set_has(struct shim_handle_set *s, const void *handle)
{
	bool found;

	if (is_empty(s)) {
		return false;
	}
	lock_take(&s->mutex);
	found = s->overflow || strmap_get(&s->map, shim_handle_key(handle).text);
	lock_release(&s->mutex);
	return found;
}

void shim_handle_set_add(struct shim_handle_set *s, void *handle)
{
	int err;

	lock_take(&s->mutex);
	err = s->map.live < MAX_HANDLES ? strmap_add(&s->map, shim_handle_key(handle).text, handle)
					: -ENOMEM;
	if (err && err != -EEXIST) {
		s->overflow = true;
	}
	publish_count(s);
	lock_release(&s->mutex);
}

void shim_handle_set_remove(struct shim_handle_set *s, const void *handle)
{
	if (is_empty(s)) {
		return;
	}
	lock_take(&s->mutex);
	(void)strmap_del(&s->map, shim_handle_key(handle).text);
	publish_count(s);
	lock_release(&s->mutex);
}

void shim_handle_set_after_fork(struct shim_handle_set *s)
{
	shim_lock_after_fork(&s->mutex, LOCK_HANDLE_SET);
}
