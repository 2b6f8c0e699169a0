/* The hash table of regions: linear probing, removal by moving later entries back. */
#include "mem/region.h"

#include <errno.h>
#include <stdlib.h>

#include "base/compiler.h"

#define FIRST_SIZE 64u

static size_t place_of(const struct mem_regions *t, uint64_t key)
{
	/* Multiplicative hashing (Knuth, TAOCP 6.4): addresses differ in their middle bits. */
	return (size_t)(key * 0x9e3779b97f4a7c15u >> 32) & (t->size - 1);
}

static void put(struct mem_regions *t, const struct mem_region *r)
{
	size_t i = place_of(t, r->key);

	while (t->slot[i].count) {
		i = (i + 1) & (t->size - 1);
	}
	t->slot[i] = *r;
}

/* Doubles the table once three quarters are in use. */
static int grow(struct mem_regions *t)
{
	struct mem_regions old = *t;

	if (t->n * 4 < t->size * 3) {
		return 0;
	}
	t->size = t->size ? 2 * t->size : FIRST_SIZE;
	t->slot = calloc(t->size, sizeof(*t->slot));
	if (!t->slot) {
		*t = old;
		return -ENOMEM;
	}
	for (size_t i = 0; i < old.size; i++) {
		if (old.slot[i].count) {
			put(t, &old.slot[i]);
		}
	}
	free(old.slot);
	return 0;
}

int mem_regions_add(struct mem_regions *t, const struct mem_region *r)
{
	int err = grow(t);

	if (!err) {
		put(t, r);
		t->n++;
	}
	return err;
}

struct mem_region *mem_regions_find(const struct mem_regions *t, uint64_t key)
{
	if (!t->n) {
		return NULL;
	}
	for (size_t i = place_of(t, key); t->slot[i].count; i = (i + 1) & (t->size - 1)) {
		if (t->slot[i].key == key) {
			return &t->slot[i];
		}
	}
	return NULL;
}

/* Empties a slot and moves those entries back that were placed behind it because it was taken. */
static void empty(struct mem_regions *t, size_t hole)
{
	size_t mask = t->size - 1;

	t->slot[hole].count = 0;
	t->n--;
	for (size_t i = (hole + 1) & mask; t->slot[i].count; i = (i + 1) & mask) {
		size_t home = place_of(t, t->slot[i].key);

		if (((i - home) & mask) >= ((i - hole) & mask)) {
			t->slot[hole] = t->slot[i];
			t->slot[i].count = 0;
			hole = i;
		}
	}
}

bool mem_regions_take(struct mem_regions *t, uint64_t key, struct mem_region *ret)
{
	struct mem_region *r = mem_regions_find(t, key);

	if (!r) {
		return false;
	}
	*ret = *r;
	empty(t, (size_t)(r - t->slot));
	return true;
}

bool mem_regions_take_owned(struct mem_regions *t, uint64_t owner, uint64_t epoch, size_t *cursor,
			    struct mem_region *ret)
{
	/* After a removal the same slot is looked at again: another entry may have moved there,
	 * from a later slot, or from the beginning of the table, where none of the owner are left.
	 */
	for (; *cursor < t->size; (*cursor)++) {
		struct mem_region *r = &t->slot[*cursor];

		if (r->count && r->owner == owner && r->epoch <= epoch) {
			*ret = *r;
			empty(t, *cursor);
			return true;
		}
	}
	return false;
}

bool mem_regions_take_between(struct mem_regions *t, uint64_t first, uint64_t last, size_t *cursor,
			      struct mem_region *ret)
{
	for (; *cursor < t->size; (*cursor)++) { /* the same slot again after a removal, as above */
		struct mem_region *r = &t->slot[*cursor];

		if (r->count && r->key >= first && r->key <= last) {
			*ret = *r;
			empty(t, *cursor);
			return true;
		}
	}
	return false;
}

void mem_regions_finish(struct mem_regions *t)
{
	free(t->slot);
	*t = (struct mem_regions){ 0 };
}
