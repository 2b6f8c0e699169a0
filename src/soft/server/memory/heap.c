/* The heap of malloc() in kernels: one allocation of the context's memory, made on first use. All
 * bookkeeping lies outside that memory, so a stray write of a kernel damages only its own data.
 * Sizes are rounded up to size classes, four per power of two, each with a list of free pieces. */
#include "soft/server/memory/heap.h"

#include <errno.h>
#include <stdlib.h>

#include "base/compiler.h"
#include "soft/server/connection.h"
#include "soft/server/machine.h"
#include "soft/server/run/context_group.h"
#include "soft/server/memory/device_memory.h"

#define STEP 16u
#define USED 0x80u

/* Class sizes in steps: 1 2 3 4 5 6 7 8 10 12 14 16 20 ... */
static uint64_t class_steps(unsigned class)
{
	return class < 4 ? class + 1 : (uint64_t)(4 + class % 4) << (class / 4 - 1);
}

static unsigned class_of(uint64_t steps)
{
	unsigned class = 0;

	while (class < SOFTD_HEAP_CLASSES && class_steps(class) < steps) {
		class ++;
	}
	return class;
}

void softd_heap_init(struct softd_heap *h, struct softd_group *g)
{
	*h = (struct softd_heap){ .group = g, .bytes = SOFTD_HEAP_DEFAULT_BYTES };
	lock_init(&h->lock, LOCK_SOFTD_HEAP);
}

int softd_heap_resize(struct softd_heap *h, uint64_t bytes)
{
	int err = 0;

	lock_take(&h->lock);
	if (h->base) {
		err = -EBUSY;
	} else {
		h->bytes = ROUND_UP(MAX(bytes, 4096u), 4096u);
		h->failed = false;
	}
	lock_release(&h->lock);
	return err;
}

static void free_tables(struct softd_heap *h)
{
	free(h->class_at);
	free(h->next);
	h->class_at = NULL;
	h->next = NULL;
}

void softd_heap_finish(struct softd_heap *h)
{
	free_tables(h);
	lock_finish(&h->lock);
}

/* Allocates the heap's memory on first use. Lock order: heap, then machine. */
static bool begin(struct softd_heap *h) REQUIRES(h->lock)
{
	struct softd_machine *machine = h->group->client->machine;
	size_t n = h->bytes / STEP;

	if (h->base) {
		return true;
	}
	if (h->failed) {
		return false;
	}
	h->class_at = calloc(n, sizeof(*h->class_at));
	h->next = calloc(n, sizeof(*h->next));
	if (h->class_at && h->next) {
		softd_machine_lock(machine);
		h->base = softd_memory_alloc(h->group->memory, machine, h->group->slot, h->bytes,
					     SOFT_MEMORY_DEVICE, -1);
		softd_machine_unlock(machine);
	}
	h->failed = h->base == 0;
	if (h->failed) { /* another size may be tried */
		free_tables(h);
	}
	return !h->failed;
}

uint64_t softd_heap_allocate(void *group, uint64_t bytes)
{
	struct softd_heap *h = &((struct softd_group *)group)->heap;
	uint64_t steps, at = 0;
	unsigned class;

	if (bytes == 0 || bytes > SOFT_MAX_HEAP_BYTES) {
		return 0;
	}
	class = class_of((bytes + STEP - 1) / STEP);
	if (class >= SOFTD_HEAP_CLASSES) {
		return 0;
	}
	steps = class_steps(class);
	lock_take(&h->lock);
	if (bytes > h->bytes || !begin(h)) {
		lock_release(&h->lock);
		return 0;
	}
	if (h->free[class]) {
		at = h->free[class] - 1;
		h->free[class] = h->next[at];
	} else if (steps <= h->bytes / STEP - h->top) {
		at = h->top;
		h->top += (uint32_t)steps;
	} else {
		lock_release(&h->lock);
		return 0;
	}
	h->class_at[at] = (uint8_t)(class | USED);
	lock_release(&h->lock);
	return h->base + at * STEP;
}

int softd_heap_release(void *group, uint64_t address)
{
	struct softd_heap *h = &((struct softd_group *)group)->heap;
	uint64_t off, at;
	int err = -ENOENT;

	lock_take(&h->lock);
	off = address - h->base;
	at = off / STEP;
	if (h->base && off < h->bytes && off % STEP == 0 && h->class_at[at] & USED) {
		unsigned class = h->class_at[at] & ~USED;

		h->class_at[at] = 0;
		h->next[at] = h->free[class];
		h->free[class] = (uint32_t)at + 1;
		err = 0;
	}
	lock_release(&h->lock);
	return err;
}
