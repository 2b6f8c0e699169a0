/* Map operations for tools: walking over all elements, reading, clearing, copying. Other processes
 * may change the memory at the same time; the definition bounds every walk. */
#include <errno.h>
#include <stdlib.h>

#include "bpf/run/map/map_bucket.h"
#include "bpf/run/map/map_int.h"

uint32_t ebpf_map_slots(const struct ebpf_map *m)
{
	if (!m->ops->slot) {
		return 0;
	}
	if (ebpf_is_bucket_map(m)) {
		return m->n_slots * EBPF_BUCKET_SLOTS;
	}
	return m->ops->traits & EBPF_MAP_KEYLESS && m->n_slots ? m->n_slots : m->max_entries;
}

int ebpf_map_slot(const struct ebpf_map *m, uint32_t slot, void *key, void *value)
{
	if (!m->data || slot >= ebpf_map_slots(m)) {
		return 0;
	}
	return m->ops->slot(m, slot, key, value);
}

int ebpf_map_read(const struct ebpf_map *m, const void *key, void *value)
{
	const void *at;

	if (m->ops->traits & EBPF_MAP_HASHED) {
		at = ebpf_map_lookup(m, key);
		if (!at) {
			return -ENOENT;
		}
		ebpf_value_load(value, at, m->value_bytes);
		return 0;
	}
	if (!(m->ops->traits & EBPF_MAP_INDEXED) || !m->ops->slot) {
		return -EINVAL;
	}
	return ebpf_map_slot(m, ebpf_map_index(key), NULL, value) ? 0 : -ENOENT;
}

uint32_t ebpf_map_count(const struct ebpf_map *m)
{
	if (!m->data) {
		return 0;
	}
	return m->ops->count ? m->ops->count(m) : ebpf_map_slots(m);
}

uint32_t ebpf_map_count_present(const struct ebpf_map *m)
{
	uint32_t n = 0;

	for (uint32_t s = 0, all = ebpf_map_slots(m); s < all; s++) {
		n += m->ops->slot(m, s, NULL, NULL) == 1;
	}
	return n;
}

int ebpf_map_clear(const struct ebpf_map *m)
{
	if (!ebpf_map_writable(m)) {
		return -EPERM;
	}
	return m->ops->clear ? m->ops->clear(m) : -EINVAL;
}

int ebpf_map_clear_pops(const struct ebpf_map *m)
{
	for (uint32_t n = 0; n < 2 * m->max_entries; n++) { /* bounded: other threads may push */
		int err = ebpf_map_pop(m, NULL);

		if (err) {
			return err == -ENOENT ? 0 : err;
		}
	}
	return 0;
}

static int alike(const struct ebpf_map *a, const struct ebpf_map *b)
{
	return a->type == b->type && a->key_bytes == b->key_bytes &&
	       a->value_bytes == b->value_bytes && a->max_entries == b->max_entries &&
	       a->copy_bytes == b->copy_bytes && a->bytes == b->bytes;
}

/* Copies element by element through a buffer, so that an element that changes during the copy is
 * copied whole or not at all. */
int ebpf_map_copy_each(const struct ebpf_map *to, const struct ebpf_map *from)
{
	uint8_t key[EBPF_MAX_KEY_BYTES], *value = malloc(from->value_bytes);
	int err = value ? 0 : -ENOMEM;

	for (uint32_t s = 0, n = ebpf_map_slots(from); s < n && !err; s++) {
		if (ebpf_map_slot(from, s, key, value) == 1) {
			err = to->ops->push ? to->ops->push(to, value, 0)
					    : ebpf_map_update(to, key, value, 0);
		}
	}
	free(value);
	return err;
}

int ebpf_map_copy(const struct ebpf_map *to, const struct ebpf_map *from)
{
	if (!alike(to, from) || !to->data || !from->data) {
		return -EINVAL;
	}
	return from->ops->copy ? from->ops->copy(to, from) : 0;
}
