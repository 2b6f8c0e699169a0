/* Open addressing with linear probing; removed slots keep their key until the table grows. */
#include "cudart/rt_table.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>

static struct cudart_table_slot *slot_of(const struct cudart_table *t, const void *key)
{
	uint64_t hash = (uint64_t)(uintptr_t)key * 0x9e3779b97f4a7c15ull;

	for (size_t i = hash >> 32;; i++) {
		struct cudart_table_slot *s = &t->slots[i & (t->cap - 1)];

		if (!s->key || s->key == key) {
			return s;
		}
	}
}

void *cudart_table_get(const struct cudart_table *t, const void *key)
{
	return t->cap && key ? slot_of(t, key)->value : NULL;
}

static int grow(struct cudart_table *t)
{
	struct cudart_table bigger = { .cap = t->cap ? 2 * t->cap : 64 };

	bigger.slots = calloc(bigger.cap, sizeof(*bigger.slots));
	if (!bigger.slots) {
		return -ENOMEM;
	}
	for (size_t i = 0; i < t->cap; i++) {
		if (t->slots[i].value) {
			*slot_of(&bigger, t->slots[i].key) = t->slots[i];
			bigger.used++;
		}
	}
	free(t->slots);
	*t = bigger;
	return 0;
}

int cudart_table_put(struct cudart_table *t, const void *key, void *value)
{
	struct cudart_table_slot *s;

	if (2 * (t->used + 1) > t->cap && grow(t) < 0) {
		return -ENOMEM;
	}
	s = slot_of(t, key);
	t->used += s->key == NULL;
	s->key = key;
	s->value = value;
	return 0;
}

void cudart_table_remove(struct cudart_table *t, const void *key, const void *value)
{
	struct cudart_table_slot *s = t->cap && key ? slot_of(t, key) : NULL;

	if (s && s->key && s->value == value) {
		s->value = NULL;
	}
}
