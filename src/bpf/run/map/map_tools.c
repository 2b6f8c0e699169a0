/* Map operations for tools: walking over all elements, reading, clearing, copying. Other processes
 * may change the memory at the same time; the definition bounds every walk. */
#include <errno.h>
#include <stdlib.h>

#include "bpf/run/map/map_int.h"

static int array_like(const struct ebpf_map *m)
{
	return m->type == GBPF_MAP_ARRAY || m->type == GBPF_MAP_HISTOGRAM ||
	       m->type == GBPF_MAP_THREAD_ARRAY;
}

static int hash_like(const struct ebpf_map *m)
{
	return m->type == GBPF_MAP_HASH || m->type == GBPF_MAP_LRU_HASH ||
	       m->type == GBPF_MAP_LPM_TRIE;
}

uint32_t ebpf_map_slots(const struct ebpf_map *m)
{
	switch (m->type) {
	case GBPF_MAP_PROG_ARRAY:
	case GBPF_MAP_RINGBUF:
		return 0;
	case GBPF_MAP_QUEUE:
		return m->n_slots;
	default:
		return m->max_entries;
	}
}

static void array_value(const struct ebpf_map *m, uint32_t index, void *value)
{
	if (m->type == GBPF_MAP_THREAD_ARRAY) {
		ebpf_thread_read(m, index, value);
	} else if (m->copy_bytes) {
		ebpf_value_load(value, ebpf_epoch_published(m) + (size_t)index * m->stride,
				m->value_bytes);
	} else {
		ebpf_value_load(value, m->data + (size_t)index * m->stride, m->value_bytes);
	}
}

int ebpf_map_slot(const struct ebpf_map *m, uint32_t slot, void *key, void *value)
{
	if (!m->data || slot >= ebpf_map_slots(m)) {
		return 0;
	}
	if (hash_like(m)) {
		return ebpf_hash_slot(m, slot, key, value);
	}
	if (m->type == GBPF_MAP_QUEUE) {
		return queue_slot(m, slot, value);
	}
	if (m->type == GBPF_MAP_STACK) {
		return stack_slot(m, slot, value);
	}
	if (key) {
		memcpy(key, &slot, 4);
	}
	if (value) {
		array_value(m, slot, value);
	}
	return 1;
}

int ebpf_map_read(const struct ebpf_map *m, const void *key, void *value)
{
	const void *at;
	uint32_t index;

	if (hash_like(m)) {
		at = ebpf_map_lookup(m, key);
		if (!at) {
			return -ENOENT;
		}
		ebpf_value_load(value, at, m->value_bytes);
		return 0;
	}
	if (!array_like(m) && m->type != GBPF_MAP_ARRAY_OF_MAPS) {
		return -EINVAL;
	}
	index = ebpf_map_index(key);
	return ebpf_map_slot(m, index, NULL, value) ? 0 : -ENOENT;
}

uint32_t ebpf_map_count(const struct ebpf_map *m)
{
	uint32_t n = 0;

	if (!m->data) {
		return 0;
	}
	if (m->type == GBPF_MAP_STACK) {
		return stack_count(m);
	}
	if (!hash_like(m) && m->type != GBPF_MAP_QUEUE) {
		return ebpf_map_slots(m);
	}
	for (uint32_t s = 0, all = ebpf_map_slots(m); s < all; s++) {
		n += ebpf_map_slot(m, s, NULL, NULL) == 1;
	}
	return n;
}

/* An element may be deleted by others between being seen and being deleted. */
static int clear_hash(const struct ebpf_map *m)
{
	uint8_t key[EBPF_MAX_KEY_BYTES];

	for (uint32_t s = 0; s < m->max_entries; s++) {
		if (ebpf_hash_slot(m, s, key, NULL) == 1) {
			(void)ebpf_map_delete(m, key);
		}
	}
	return 0;
}

static int ebpf_map_clear_pops(const struct ebpf_map *m)
{
	for (uint32_t n = 0; n < 2 * m->max_entries; n++) { /* bounded: other threads may push */
		int err = ebpf_map_pop(m, NULL);

		if (err) {
			return err == -ENOENT ? 0 : err;
		}
	}
	return 0;
}

static void clear_array(const struct ebpf_map *m)
{
	if (m->copy_bytes && m->type == GBPF_MAP_ARRAY) {
		static const uint8_t zeros[EBPF_MAX_VALUE_BYTES];

		for (uint32_t i = 0; i < m->max_entries; i++) {
			(void)ebpf_epoch_update(m, i, zeros);
		}
		return;
	}
	for (uint32_t at = 0; at + 8 <= m->bytes; at += 8) {
		store_relaxed((uint64_t *)(void *)(m->data + at), UINT64_C(0));
	}
}

int ebpf_map_clear(const struct ebpf_map *m)
{
	if (!ebpf_map_writable(m)) {
		return -EPERM;
	}
	if (hash_like(m)) {
		return clear_hash(m);
	}
	if (m->type == GBPF_MAP_QUEUE || m->type == GBPF_MAP_STACK) {
		return ebpf_map_clear_pops(m);
	}
	if (!array_like(m)) {
		return -EINVAL;
	}
	clear_array(m);
	return 0;
}

static int alike(const struct ebpf_map *a, const struct ebpf_map *b)
{
	return a->type == b->type && a->key_bytes == b->key_bytes &&
	       a->value_bytes == b->value_bytes && a->max_entries == b->max_entries &&
	       a->copy_bytes == b->copy_bytes && a->bytes == b->bytes;
}

/* Element by element through a buffer, so that what others change meanwhile is taken whole or not
 * at all. */
static int ebpf_map_copy_each(const struct ebpf_map *to, const struct ebpf_map *from,
			      uint8_t *value)
{
	uint8_t key[EBPF_MAX_KEY_BYTES];
	int err = 0;

	for (uint32_t s = 0, n = ebpf_map_slots(from); s < n && !err; s++) {
		if (ebpf_map_slot(from, s, key, value) == 1) {
			err = to->type == GBPF_MAP_QUEUE ? queue_push(to, value, 0)
							 : ebpf_map_update(to, key, value, 0);
		}
	}
	return err;
}

/* The top comes last. */
static int copy_stack(const struct ebpf_map *to, const struct ebpf_map *from, uint8_t *value)
{
	uint32_t *order = malloc(sizeof(*order) * from->max_entries), n;
	int err = order ? 0 : -ENOMEM;

	n = order ? stack_order(from, order) : 0;
	while (n-- > 0 && !err) {
		ebpf_value_load(value, ebpf_elem_at(from, order[n]) + from->value_off,
				from->value_bytes);
		err = stack_push(to, value, 0);
	}
	free(order);
	return err;
}

static void copy_words(uint8_t *to, const uint8_t *from, size_t bytes)
{
	for (size_t at = 0; at + 8 <= bytes; at += 8) {
		store_relaxed((uint64_t *)(void *)(to + at),
			      load_relaxed((const uint64_t *)(const void *)(from + at)));
	}
}

static void copy_array(const struct ebpf_map *to, const struct ebpf_map *from)
{
	if (from->type != GBPF_MAP_ARRAY || !from->copy_bytes) {
		copy_words(to->data, from->data, from->bytes);
		return;
	}
	for (uint32_t c = 0; c < EBPF_EPOCH_COPIES; c++) {
		copy_words(to->data + (size_t)c * to->copy_bytes, ebpf_epoch_published(from),
			   from->copy_bytes);
	}
}

int ebpf_map_copy(const struct ebpf_map *to, const struct ebpf_map *from)
{
	uint8_t *value;
	int err;

	if (!alike(to, from) || !to->data || !from->data) {
		return -EINVAL;
	}
	if (array_like(from)) {
		copy_array(to, from);
		return 0;
	}
	if (!hash_like(from) && from->type != GBPF_MAP_QUEUE && from->type != GBPF_MAP_STACK) {
		return 0;
	}
	value = malloc(from->value_bytes);
	if (!value) {
		return -ENOMEM;
	}
	err = from->type == GBPF_MAP_STACK ? copy_stack(to, from, value)
					   : ebpf_map_copy_each(to, from, value);
	free(value);
	return err;
}
