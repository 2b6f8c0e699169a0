/* Maps of any type: checks definitions, lays maps out in regions, and calls the operations of the
 * type. Every process computes the layout from its private copy of the definitions; nothing here
 * reads a size or an offset from shared memory. */
#include "bpf/run/map/map_int.h"

#include <errno.h>

#include "base/point.h"
#include "bpf/run/insn.h"
#include "bpf/run/map/map_pool.h"
#include "bpf/run/map/ring_int.h"

#define MAP_FLAGS ((uint32_t)GBPF_F_TENANT | GBPF_F_DAEMON | GBPF_F_RDONLY | (uint32_t)GBPF_F_EPOCH)
#define MAP_ALIGN 64u /* a cache line: maps of different writers do not share one */
#define PAGE 4096u
#define HIST_BYTES (EBPF_HIST_BUCKETS * 8)
#define LPM_LENGTH_BYTES ROUND_UP(((EBPF_MAX_LPM_KEY_BYTES - 4) * 8 / 64 + 1) * 8, 64u)

static int name_ok(const char *name)
{
	size_t len = strnlen(name, EBPF_NAME_BYTES);

	if (!len || len == EBPF_NAME_BYTES) {
		return 0;
	}
	for (size_t i = 0; i < len; i++) {
		if (name[i] <= ' ' || name[i] > '~') {
			return 0;
		}
	}
	return 1;
}

static int flags_ok(uint32_t flags)
{
	if (flags & ~MAP_FLAGS) {
		return 0;
	}
	/* The tenant writes its instance, so it can be neither private to gbpfd nor constant;
	 * epochs are published to all processes. */
	return (!(flags & GBPF_F_TENANT) || flags == GBPF_F_TENANT) &&
	       (!(flags & GBPF_F_EPOCH) || flags == (uint32_t)GBPF_F_EPOCH);
}

static int lock_ok(const struct ebpf_map_def *d)
{
	uint32_t where = d->flags & ((uint32_t)GBPF_F_TENANT | GBPF_F_DAEMON);

	switch (d->type) {
	case GBPF_MAP_ARRAY:
		return d->key_bytes == 4 && d->value_bytes &&
		       (!d->is_data || (d->max_entries == 1 && !(d->flags & GBPF_F_EPOCH)));
	case GBPF_MAP_HASH:
	case GBPF_MAP_LRU_HASH:
		return d->key_bytes && d->value_bytes && !(d->flags & GBPF_F_RDONLY);
	case GBPF_MAP_LPM_TRIE:
		return d->key_bytes > 4 && d->value_bytes && !(d->flags & GBPF_F_RDONLY);
	case GBPF_MAP_QUEUE:
	case GBPF_MAP_STACK:
		return !d->key_bytes && d->value_bytes && !(d->flags & GBPF_F_RDONLY);
	case GBPF_MAP_RINGBUF:
		return !d->key_bytes && !d->value_bytes && where && d->flags == where &&
		       d->max_entries % PAGE == 0 && !(d->max_entries & (d->max_entries - 1));
	case GBPF_MAP_HISTOGRAM:
		return d->key_bytes == 4 && d->value_bytes == HIST_BYTES &&
		       !(d->flags & GBPF_F_RDONLY);
	case GBPF_MAP_THREAD_ARRAY:
		return d->key_bytes == 4 && d->value_bytes && d->value_bytes % 8 == 0 &&
		       d->flags == (uint32_t)GBPF_F_TENANT;
	case GBPF_MAP_ARRAY_OF_MAPS:
		return d->key_bytes == 4 && d->value_bytes == 4 && d->inner_1 &&
		       !(d->flags & ~(uint32_t)GBPF_F_RDONLY);
	case GBPF_MAP_PROG_ARRAY:
		return d->key_bytes == 4 && d->value_bytes == 4 &&
		       !(d->flags & ~(uint32_t)GBPF_F_RDONLY);
	default:
		return 0;
	}
}

static uint32_t most_entries(uint32_t type)
{
	return type == GBPF_MAP_RINGBUF ? EBPF_MAX_RING_BYTES
	       : type == GBPF_MAP_STACK ? EBPF_MAX_STACK_ENTRIES
					: EBPF_MAX_ENTRIES;
}

static uint32_t most_key_bytes(uint32_t type)
{
	return type == GBPF_MAP_LPM_TRIE ? EBPF_MAX_LPM_KEY_BYTES : EBPF_MAX_KEY_BYTES;
}

int ebpf_map_check(const struct ebpf_map_def *def)
{
	int keyed = def->type == GBPF_MAP_ARRAY || def->type == GBPF_MAP_HASH ||
		    def->type == GBPF_MAP_LRU_HASH;

	if (!name_ok(def->name) || !def->max_entries || !flags_ok(def->flags) || def->is_data > 1 ||
	    !lock_ok(def) || (def->is_data && def->type != GBPF_MAP_ARRAY) ||
	    ((def->flags & GBPF_F_EPOCH) && def->type != GBPF_MAP_ARRAY) ||
	    (def->inner_1 && def->type != GBPF_MAP_ARRAY_OF_MAPS) || def->inner_1 > EBPF_MAX_MAPS) {
		return -EINVAL;
	}
	if (def->lock_1 && (!keyed || !(def->flags & GBPF_F_DAEMON) || (def->lock_1 - 1) % 4 ||
			    def->value_bytes < 4 || def->lock_1 - 1 > def->value_bytes - 4)) {
		return -EINVAL;
	}
	if (def->value_bytes > EBPF_MAX_VALUE_BYTES || def->max_entries > most_entries(def->type) ||
	    def->key_bytes > most_key_bytes(def->type)) {
		return -E2BIG;
	}
	return 0;
}

static enum ebpf_region region_of(uint32_t flags)
{
	if (flags & GBPF_F_TENANT) {
		return EBPF_REGION_TENANT;
	}
	return flags & GBPF_F_DAEMON ? EBPF_REGION_DAEMON : EBPF_REGION_GLOBAL;
}

static uint32_t ebpf_map_power_of_two(uint32_t least)
{
	return least <= 1 ? 1 : 1u << (32 - __builtin_clz(least - 1));
}

/* Elements of a pool with a head before them: [head_bytes][pool][elements]. An element is its word,
 * `more` bytes, the key and the value; small ones lie within a cache line. */
static uint64_t ebpf_map_lay_elements(struct ebpf_map *m, uint64_t head_bytes, uint32_t more)
{
	uint32_t key = ROUND_UP(m->key_bytes, 8u), value = ROUND_UP(m->value_bytes, 8u);

	m->key_off = 8 + more;
	m->value_off = m->key_off + key;
	m->stride = m->value_off + value;
	m->stride = m->stride <= 64 ? ebpf_map_power_of_two(m->stride) : m->stride;
	m->pool_off = (uint32_t)ROUND_UP(m->head_off + head_bytes, MAP_ALIGN);
	m->elem_off = ROUND_UP(m->pool_off + ebpf_pool_bytes(m->max_entries), MAP_ALIGN);
	return m->elem_off + (uint64_t)m->stride * m->max_entries;
}

/* Returns the offset of the first map: the GLOBAL region begins with the epoch word if there are
 * epoch arrays. */
static uint64_t lay_hash(struct ebpf_map *m)
{
	m->head_off = m->type == GBPF_MAP_LPM_TRIE ? LPM_LENGTH_BYTES : 0;
	m->n_slots = ebpf_map_power_of_two(m->max_entries + m->max_entries / 2);
	return ebpf_map_lay_elements(m, (uint64_t)m->n_slots * 8,
				     m->type == GBPF_MAP_LRU_HASH ? 8 : 0);
}

static uint64_t lay_ring(struct ebpf_map *m)
{
	m->n_slots = m->max_entries / EBPF_RING_BLOCK;
	m->stride = EBPF_RING_BLOCK;
	m->elem_off =
		ROUND_UP((uint32_t)sizeof(struct ebpf_ring_shared) + m->n_slots * 8, MAP_ALIGN);
	return m->elem_off + (uint64_t)m->max_entries;
}

/* Bytes of a map; fills in where its parts lie. At most 2^20 elements of 2^17 bytes, 64 times. */
static uint64_t lay_out(struct ebpf_map *m)
{
	uint64_t plain;

	m->stride = ROUND_UP(m->value_bytes, 8u);
	plain = (uint64_t)m->stride * m->max_entries;
	switch (m->type) {
	case GBPF_MAP_HASH:
	case GBPF_MAP_LRU_HASH:
	case GBPF_MAP_LPM_TRIE:
		return lay_hash(m);
	case GBPF_MAP_QUEUE:
		m->n_slots = ebpf_map_power_of_two(m->max_entries);
		return ebpf_map_lay_elements(m, queue_head_bytes(m->n_slots), 0);
	case GBPF_MAP_STACK:
		return ebpf_map_lay_elements(m, 8, 0);
	case GBPF_MAP_RINGBUF:
		return lay_ring(m);
	case GBPF_MAP_PROG_ARRAY:
		return 0;
	case GBPF_MAP_THREAD_ARRAY:
		plain = ROUND_UP(plain, MAP_ALIGN);
		m->copy_bytes = (uint32_t)MIN(plain, EBPF_MAX_REGION_BYTES);
		return plain * EBPF_THREAD_SLOTS;
	default:
		if (m->flags & GBPF_F_EPOCH) {
			plain = ROUND_UP(plain, MAP_ALIGN);
			m->copy_bytes = (uint32_t)MIN(plain, EBPF_MAX_REGION_BYTES);
			plain *= EBPF_EPOCH_COPIES;
		}
		return plain;
	}
}

/* The word of the epoch lies before everything else of the GLOBAL region. */
static uint64_t first_offset(const struct ebpf_map_def *defs, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		if (defs[i].flags & GBPF_F_EPOCH) {
			return MAP_ALIGN;
		}
	}
	return 0;
}

/* Checks that an array of maps names the map that defines the shape of its members. */
static int inner_ok(const struct ebpf_map_def *defs, unsigned n, const struct ebpf_map_def *d)
{
	const struct ebpf_map_def *in = d->inner_1 ? &defs[d->inner_1 - 1] : NULL;

	return !in || (d->inner_1 <= n && in->type != GBPF_MAP_ARRAY_OF_MAPS &&
		       in->type != GBPF_MAP_PROG_ARRAY);
}

int ebpf_maps_layout(const struct ebpf_map_def *defs, unsigned n, struct ebpf_map *maps,
		     size_t ret_region_bytes[EBPF_REGIONS])
{
	uint64_t end[EBPF_REGIONS] = { 0 };

	if (n > EBPF_MAX_MAPS) {
		return -E2BIG;
	}
	end[EBPF_REGION_GLOBAL] = first_offset(defs, n);
	for (unsigned i = 0; i < n; i++) {
		const struct ebpf_map_def *d = &defs[i];
		enum ebpf_region region = region_of(d->flags);
		uint64_t bytes;
		int err = ebpf_map_check(d);

		if (err || !inner_ok(defs, n, d)) {
			return err ? err : -EINVAL;
		}
		maps[i] = (struct ebpf_map){ .max_entries = d->max_entries,
					     .key_bytes = d->key_bytes,
					     .value_bytes = d->value_bytes,
					     .type = d->type,
					     .flags = d->flags,
					     .index = i,
					     .region = region,
					     .region_offset = ROUND_UP(end[region], MAP_ALIGN),
					     .inner_1 = d->inner_1,
					     .lock_1 = d->lock_1 };
		/* Cannot overflow: at most 2^20 elements of 2^17 bytes, 64 times. */
		bytes = lay_out(&maps[i]);
		end[region] = maps[i].region_offset + bytes;
		if (end[region] > EBPF_MAX_REGION_BYTES) {
			return -E2BIG;
		}
		maps[i].bytes = (uint32_t)bytes;
	}
	for (int r = 0; r < EBPF_REGIONS; r++) {
		ret_region_bytes[r] = ROUND_UP(end[r], PAGE);
	}
	return 0;
}

void ebpf_maps_bind(struct ebpf_map *maps, unsigned n, enum ebpf_region region, void *base)
{
	for (unsigned i = 0; i < n; i++) {
		if (maps[i].region == region) {
			maps[i].data = base ? (uint8_t *)base + maps[i].region_offset : NULL;
		}
	}
}

void ebpf_map_at(struct ebpf_map *out, const struct ebpf_map *m, void *region_base)
{
	*out = *m;
	out->data = region_base ? (uint8_t *)region_base + m->region_offset : NULL;
}

/* A member of an array of maps: any map of the policy whose shape is the one that was verified. */
static void *member(const struct ebpf_map *m, uint32_t index)
{
	const struct ebpf_map *all = m - m->index, *like = &all[m->inner_1 - 1], *in;
	uint32_t i_1;

	if (index >= m->max_entries || !m->data) {
		return NULL;
	}
	i_1 = load_relaxed((uint32_t *)(void *)(m->data + (size_t)index * m->stride));
	if (!i_1 || i_1 > EBPF_MAX_MAPS) {
		return NULL;
	}
	in = &all[i_1 - 1];
	if (in->type != like->type || in->key_bytes != like->key_bytes ||
	    in->value_bytes != like->value_bytes || in->max_entries != like->max_entries ||
	    in->flags != like->flags || in->lock_1 != like->lock_1) {
		return NULL;
	}
	return (void *)(uintptr_t)in;
}

void *ebpf_map_lookup(const struct ebpf_map *map, const void *key)
{
	uint32_t index;

	switch (map->type) {
	case GBPF_MAP_HASH:
	case GBPF_MAP_LRU_HASH:
		return ebpf_hash_lookup(map, key);
	case GBPF_MAP_ARRAY:
	case GBPF_MAP_HISTOGRAM:
		index = ebpf_map_index(key);
		if (unlikely(map->copy_bytes)) {
			return ebpf_epoch_lookup(map, index);
		}
		if (index >= map->max_entries || !map->data) {
			return NULL;
		}
		return map->data + (size_t)index * map->stride;
	case GBPF_MAP_LPM_TRIE:
		return lpm_lookup(map, key);
	case GBPF_MAP_THREAD_ARRAY:
		return ebpf_thread_lookup(map, key);
	case GBPF_MAP_ARRAY_OF_MAPS:
		return member(map, ebpf_map_index(key));
	default:
		return NULL;
	}
}

void ebpf_value_store(void *slot, const void *value, uint32_t bytes)
{
	uint64_t v8 = 0;
	uint32_t v4;

	if (bytes == 4) { /* programs may store to 4-byte values directly */
		memcpy(&v4, value, 4);
		store_relaxed((uint32_t *)slot, v4);
	} else if (bytes <= 8) { /* a shorter value is followed by its own padding */
		memcpy(&v8, value, bytes);
		store_relaxed((uint64_t *)slot, v8);
	} else {
		memmove(slot, value, bytes); /* memmove: the program may pass the element itself */
	}
}

void ebpf_value_update(const struct ebpf_map *m, void *slot, const void *value)
{
	uint32_t lock = m->lock_1 - 1;

	if (likely(!m->lock_1)) {
		ebpf_value_store(slot, value, m->value_bytes);
		return;
	}
	memmove(slot, value, lock);
	memmove((uint8_t *)slot + lock + 4, (const uint8_t *)value + lock + 4,
		m->value_bytes - lock - 4);
}

void ebpf_value_load(void *value, const void *slot, uint32_t bytes)
{
	uint64_t v8;

	if (bytes <= 8) {
		v8 = load_relaxed((const uint64_t *)slot);
		memcpy(value, &v8, bytes);
	} else {
		memcpy(value, slot, bytes);
	}
}

static int array_update(const struct ebpf_map *map, const void *key, const void *value,
			uint64_t flags)
{
	void *slot;

	if (flags > UPDATE_EXIST) {
		return -EINVAL;
	}
	if (map->flags & GBPF_F_RDONLY) {
		return -EPERM;
	}
	slot = ebpf_map_lookup(map, key);
	if (!slot) {
		return -ENOENT;
	}
	if (flags == UPDATE_NOEXIST) {
		return -EEXIST; /* elements of an array are always there */
	}
	if (unlikely(map->copy_bytes) && map->type == GBPF_MAP_ARRAY) {
		return ebpf_epoch_update(map, ebpf_map_index(key), value);
	}
	ebpf_value_update(map, slot, value);
	return 0;
}

int ebpf_map_update(const struct ebpf_map *map, const void *key, const void *value, uint64_t flags)
{
	switch (map->type) {
	case GBPF_MAP_HASH:
	case GBPF_MAP_LRU_HASH:
		return ebpf_hash_update(map, key, value, flags);
	case GBPF_MAP_ARRAY:
	case GBPF_MAP_THREAD_ARRAY:
		return array_update(map, key, value, flags);
	case GBPF_MAP_LPM_TRIE:
		return lpm_update(map, key, value, flags);
	default:
		return -EINVAL;
	}
}

int ebpf_map_delete(const struct ebpf_map *map, const void *key)
{
	switch (map->type) {
	case GBPF_MAP_HASH:
	case GBPF_MAP_LRU_HASH:
		return ebpf_hash_delete(map, key);
	case GBPF_MAP_LPM_TRIE:
		return lpm_delete(map, key);
	default:
		return -EINVAL;
	}
}

int ebpf_map_push(const struct ebpf_map *map, const void *value, uint64_t flags)
{
	switch (map->type) {
	case GBPF_MAP_QUEUE:
		return queue_push(map, value, flags);
	case GBPF_MAP_STACK:
		return stack_push(map, value, flags);
	default:
		return -EINVAL;
	}
}

static int take(const struct ebpf_map *map, void *value, int remove)
{
	switch (map->type) {
	case GBPF_MAP_QUEUE:
		return queue_take(map, value, remove);
	case GBPF_MAP_STACK:
		return stack_take(map, value, remove);
	default:
		return -EINVAL;
	}
}

int ebpf_map_pop(const struct ebpf_map *map, void *value)
{
	return take(map, value, 1);
}

int ebpf_map_peek(const struct ebpf_map *map, void *value)
{
	return take(map, value, 0);
}

int ebpf_map_hist_add(const struct ebpf_map *map, uint32_t row, uint64_t value)
{
	uint32_t bucket = value ? MIN(64u - (uint32_t)__builtin_clzll(value), 63u) : 0;

	if (map->type != GBPF_MAP_HISTOGRAM) {
		return -EINVAL;
	}
	if (row >= map->max_entries || !map->data) {
		return -ENOENT;
	}
	if (map->flags & GBPF_F_RDONLY) {
		return -EPERM;
	}
	(void)add_relaxed((uint64_t *)(void *)(map->data + (size_t)row * map->stride) + bucket, 1);
	return 0;
}
