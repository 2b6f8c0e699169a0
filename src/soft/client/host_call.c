/* Runs calls on the host in stream order, and knows which thread is inside one: driver calls there
 * must not wait for the device, which may wait for this very call. */
#include "soft/client/host_call.h"

#include <stdlib.h>
#include <string.h>

#include "base/atomic.h"

static __thread unsigned depth; /* host functions of the program that this thread is inside of */

void soft_host_enter(void)
{
	depth++;
}

void soft_host_leave(void)
{
	depth--;
}

bool soft_in_host_function(void)
{
	return depth != 0;
}

int cuabi_in_host_function(void)
{
	return depth != 0;
}

static void copy_box(const struct soft_copy *c)
{
	for (uint64_t z = 0; z < c->depth; z++) {
		for (uint64_t y = 0; y < c->height; y++) {
			memcpy((void *)(uintptr_t)(c->dst + z * c->dst_slice + y * c->dst_pitch),
			       (const void *)(uintptr_t)(c->src + z * c->src_slice +
							 y * c->src_pitch),
			       c->width);
		}
	}
}

void soft_host_run(uint64_t cookie, CUresult context_error)
{
	struct soft_host_call *c = (struct soft_host_call *)(uintptr_t)cookie;

	(void)load_acquire(&c->ready);
	soft_host_enter();
	if (c->callback) {
		c->callback(c->stream, context_error, c->user);
	} else if (!context_error && c->fn) {
		c->fn(c->user);
	} else if (!context_error) {
		copy_box(&c->copy);
	}
	soft_host_leave();
	free(c);
}
