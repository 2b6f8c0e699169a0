/* Types with permanent elements that are found by index: ARRAY (with or without epochs), HISTOGRAM,
 * THREAD_ARRAY, SM_ARRAY, WARP_ARRAY, BLOCK_ARRAY, GPU_THREAD_ARRAY, WARP_SCRATCH, ARRAY_OF_MAPS
 * and PROG_ARRAY. */
#include "bpf/run/map/map_int.h"

#include <errno.h>

#include "bpf/run/insn.h"

#define HIST_BYTES (EBPF_HIST_BUCKETS * 8)

/* ---- ARRAY ---- */

static int array_check(const struct ebpf_map_def *d)
{
	return d->key_bytes == 4 && d->value_bytes &&
	       (!d->is_data || (d->max_entries == 1 && !(d->flags & GBPF_F_EPOCH)));
}

static uint64_t plain_layout(struct ebpf_map *m)
{
	m->stride = ROUND_UP(m->value_bytes, 8u);
	return (uint64_t)m->stride * m->max_entries;
}

static uint64_t copies_layout(struct ebpf_map *m, uint32_t copies, uint32_t align)
{
	uint64_t bytes = ROUND_UP(plain_layout(m), (uint64_t)align);

	m->copy_bytes = (uint32_t)MIN(bytes, EBPF_MAX_REGION_BYTES);
	return bytes * copies;
}

static uint64_t array_layout(struct ebpf_map *m)
{
	return m->flags & GBPF_F_EPOCH ? copies_layout(m, EBPF_EPOCH_COPIES, MAP_ALIGN)
				       : plain_layout(m);
}

static void *array_lookup(const struct ebpf_map *m, const void *key)
{
	uint32_t index = ebpf_map_index(key);

	if (unlikely(m->copy_bytes)) {
		return ebpf_epoch_lookup(m, index);
	}
	if (index >= m->max_entries || !m->data) {
		return NULL;
	}
	return m->data + (size_t)index * m->stride;
}

/* Finds the element to update. Returns 0, or the error for an element that cannot be updated. */
static int update_at(const struct ebpf_map *m, const void *key, uint64_t flags, void **ret)
{
	if (flags > UPDATE_EXIST) {
		return -EINVAL;
	}
	if (m->flags & GBPF_F_RDONLY) {
		return -EPERM;
	}
	*ret = ebpf_map_lookup(m, key);
	if (!*ret) {
		return -ENOENT;
	}
	return flags == UPDATE_NOEXIST ? -EEXIST : 0; /* array elements are always present */
}

static int plain_update(const struct ebpf_map *m, const void *key, const void *value,
			uint64_t flags)
{
	void *at;
	int err = update_at(m, key, flags, &at);

	if (err == 0) {
		ebpf_value_update(m, at, value);
	}
	return err;
}

static int array_update(const struct ebpf_map *m, const void *key, const void *value,
			uint64_t flags)
{
	void *at;
	int err;

	if (likely(!m->copy_bytes)) {
		return plain_update(m, key, value, flags);
	}
	err = update_at(m, key, flags, &at);
	return err ? err : ebpf_epoch_update(m, ebpf_map_index(key), value);
}

static void slot_key(uint32_t slot, void *key)
{
	if (key) {
		memcpy(key, &slot, 4);
	}
}

static int array_slot(const struct ebpf_map *m, uint32_t slot, void *key, void *value)
{
	const uint8_t *first = m->copy_bytes ? ebpf_epoch_published(m) : m->data;

	slot_key(slot, key);
	if (value) {
		ebpf_value_load(value, first + (size_t)slot * m->stride, m->value_bytes);
	}
	return 1;
}

static int plain_clear(const struct ebpf_map *m)
{
	for (uint32_t at = 0; at + 8 <= m->bytes; at += 8) {
		store_relaxed((uint64_t *)(void *)(m->data + at), UINT64_C(0));
	}
	return 0;
}

static int array_clear(const struct ebpf_map *m)
{
	static const uint8_t zeros[EBPF_MAX_VALUE_BYTES];

	if (!m->copy_bytes) {
		return plain_clear(m);
	}
	for (uint32_t i = 0; i < m->max_entries; i++) {
		(void)ebpf_epoch_update(m, i, zeros);
	}
	return 0;
}

static void copy_words(uint8_t *to, const uint8_t *from, size_t bytes)
{
	for (size_t at = 0; at + 8 <= bytes; at += 8) {
		store_relaxed((uint64_t *)(void *)(to + at),
			      load_relaxed((const uint64_t *)(const void *)(from + at)));
	}
}

static int plain_copy(const struct ebpf_map *to, const struct ebpf_map *from)
{
	copy_words(to->data, from->data, from->bytes);
	return 0;
}

static int array_copy(const struct ebpf_map *to, const struct ebpf_map *from)
{
	if (!from->copy_bytes) {
		return plain_copy(to, from);
	}
	for (uint32_t c = 0; c < EBPF_EPOCH_COPIES; c++) {
		copy_words(to->data + (size_t)c * to->copy_bytes, ebpf_epoch_published(from),
			   from->copy_bytes);
	}
	return 0;
}

const struct ebpf_map_type ebpf_map_type_ARRAY = {
	.traits = EBPF_MAP_INDEXED | EBPF_MAP_IN_PLACE | EBPF_MAP_EPOCHS | EBPF_MAP_ON_DEVICE,
	.max_entries = EBPF_MAX_ENTRIES,
	.hint = "arrays have u32 keys; GBPF_F_TENANT, GBPF_F_EPOCH and GBPF_F_DEVICE stand alone",
	.check = array_check,
	.layout = array_layout,
	.lookup = array_lookup,
	.update = array_update,
	.slot = array_slot,
	.clear = array_clear,
	.copy = array_copy,
};

/* ---- HISTOGRAM ---- */

static int hist_check(const struct ebpf_map_def *d)
{
	return d->key_bytes == 4 && d->value_bytes == HIST_BYTES && !(d->flags & GBPF_F_RDONLY);
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

const struct ebpf_map_type ebpf_map_type_HISTOGRAM = {
	.traits = EBPF_MAP_INDEXED | EBPF_MAP_COUNTERS | EBPF_MAP_ON_DEVICE,
	.max_entries = EBPF_MAX_ENTRIES,
	.hint = "declare it by GBPF_HISTOGRAM(name, rows)",
	.check = hist_check,
	.layout = plain_layout,
	.lookup = array_lookup,
	.slot = array_slot,
	.clear = plain_clear,
	.copy = plain_copy,
};

/* ---- THREAD_ARRAY ---- */

static int thread_check(const struct ebpf_map_def *d)
{
	return d->key_bytes == 4 && d->value_bytes && d->value_bytes % 8 == 0 &&
	       d->flags == (uint32_t)GBPF_F_TENANT;
}

static uint64_t thread_layout(struct ebpf_map *m)
{
	return copies_layout(m, EBPF_THREAD_SLOTS, MAP_ALIGN);
}

static int thread_array_slot(const struct ebpf_map *m, uint32_t slot, void *key, void *value)
{
	slot_key(slot, key);
	if (value) {
		ebpf_thread_read(m, slot, value);
	}
	return 1;
}

const struct ebpf_map_type ebpf_map_type_THREAD_ARRAY = {
	.traits = EBPF_MAP_INDEXED | EBPF_MAP_PER_THREAD,
	.max_entries = EBPF_MAX_ENTRIES,
	.hint = "it has u32 keys, values of whole 8 bytes, and map_flags GBPF_F_TENANT",
	.check = thread_check,
	.layout = thread_layout,
	.lookup = ebpf_thread_lookup,
	.update = plain_update,
	.slot = thread_array_slot,
	.clear = plain_clear,
	.copy = plain_copy,
};

/* ---- SM_ARRAY, WARP_ARRAY ----
 *
 * Only programs inside kernels look elements up, by instructions of their own; the host adds up
 * what it has copied from the GPU. Instances lie in different lines of L2. */

#define GPU_LINE 128u

static int place_check(const struct ebpf_map_def *d)
{
	return d->key_bytes == 4 && d->value_bytes && d->value_bytes % 8 == 0 &&
	       (d->flags & ~((uint32_t)GBPF_F_DEFER | (uint32_t)GBPF_F_HOST)) ==
		       (uint32_t)GBPF_F_DEVICE;
}

static uint64_t sm_layout(struct ebpf_map *m)
{
	return copies_layout(m, EBPF_SM_SLOTS, GPU_LINE);
}

static uint64_t warp_layout(struct ebpf_map *m)
{
	return copies_layout(m, EBPF_SM_SLOTS * EBPF_WARP_SLOTS, GPU_LINE);
}

#define PLACE_HINT "it has u32 keys, values of whole 8 bytes, and map_flags GBPF_F_DEVICE"

const struct ebpf_map_type ebpf_map_type_SM_ARRAY = {
	.traits = EBPF_MAP_INDEXED | EBPF_MAP_PER_THREAD | EBPF_MAP_ON_DEVICE | EBPF_MAP_DEFERS,
	.max_entries = EBPF_MAX_ENTRIES,
	.hint = PLACE_HINT,
	.check = place_check,
	.layout = sm_layout,
	.slot = thread_array_slot,
	.clear = plain_clear,
	.copy = plain_copy,
};

const struct ebpf_map_type ebpf_map_type_WARP_ARRAY = {
	.traits = EBPF_MAP_INDEXED | EBPF_MAP_PER_THREAD | EBPF_MAP_ON_DEVICE | EBPF_MAP_DEFERS,
	.max_entries = EBPF_MAX_ENTRIES,
	.hint = PLACE_HINT,
	.check = place_check,
	.layout = warp_layout,
	.slot = thread_array_slot,
	.clear = plain_clear,
	.copy = plain_copy,
};

/* ---- BLOCK_ARRAY, GPU_THREAD_ARRAY ----
 *
 * Programs inside kernels find the value of their own block or thread, by instructions; the host
 * sees an array of all of them. Behind it lies the number of look-ups by blocks or threads beyond
 * max_entries. */

static uint64_t own_layout(struct ebpf_map *m)
{
	uint64_t bytes = plain_layout(m);

	m->head_off = (uint32_t)MIN(bytes, EBPF_MAX_REGION_BYTES);
	return bytes + 8;
}

uint64_t ebpf_array_dropped(const struct ebpf_map *m)
{
	int is_own = m->type == GBPF_MAP_BLOCK_ARRAY || m->type == GBPF_MAP_GPU_THREAD_ARRAY;

	return is_own && m->data
		       ? load_relaxed((const uint64_t *)(const void *)(m->data + m->head_off))
		       : 0;
}

#define OWN_ARRAY(name)                                                                            \
	const struct ebpf_map_type ebpf_map_type_##name = {                                        \
		.traits = EBPF_MAP_INDEXED | EBPF_MAP_ON_DEVICE,                                   \
		.max_entries = EBPF_MAX_ENTRIES,                                                   \
		.hint = PLACE_HINT,                                                                \
		.check = place_check,                                                              \
		.layout = own_layout,                                                              \
		.lookup = array_lookup,                                                            \
		.update = plain_update,                                                            \
		.slot = array_slot,                                                                \
		.clear = plain_clear,                                                              \
		.copy = plain_copy,                                                                \
	}

OWN_ARRAY(BLOCK_ARRAY);
OWN_ARRAY(GPU_THREAD_ARRAY);

/* ---- WARP_SCRATCH ----
 *
 * The form of a kernel that uses it has it in shared memory (ptx/probe.h), so it takes none here.
 */

static int scratch_check(const struct ebpf_map_def *d)
{
	return d->key_bytes == 4 && d->value_bytes && d->value_bytes % 8 == 0 &&
	       d->flags == (uint32_t)GBPF_F_DEVICE && d->max_entries <= EBPF_SCRATCH_BYTES / 8 &&
	       d->value_bytes <= EBPF_SCRATCH_BYTES / d->max_entries;
}

static uint64_t scratch_layout(struct ebpf_map *m)
{
	m->stride = m->value_bytes;
	return 0;
}

const struct ebpf_map_type ebpf_map_type_WARP_SCRATCH = {
	.traits = EBPF_MAP_INDEXED | EBPF_MAP_ON_DEVICE | EBPF_MAP_IN_BLOCK,
	.max_entries = EBPF_SCRATCH_BYTES / 8,
	.hint = "it has u32 keys, values of whole 8 bytes, at most 1024 bytes in all, and "
		"map_flags GBPF_F_DEVICE",
	.check = scratch_check,
	.layout = scratch_layout,
};

/* ---- ARRAY_OF_MAPS, PROG_ARRAY ---- */

static int programs_check(const struct ebpf_map_def *d)
{
	return d->key_bytes == 4 && d->value_bytes == 4 && !(d->flags & ~(uint32_t)GBPF_F_RDONLY);
}

static int maps_check(const struct ebpf_map_def *d)
{
	return d->inner_1 && programs_check(d);
}

/* Returns a member of an array of maps: any map of the policy with the verified shape. */
static void *maps_lookup(const struct ebpf_map *m, const void *key)
{
	const struct ebpf_map *all = m - m->index, *like = &all[m->inner_1 - 1], *in;
	uint32_t index = ebpf_map_index(key), i_1;

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

const struct ebpf_map_type ebpf_map_type_ARRAY_OF_MAPS = {
	.traits = EBPF_MAP_INDEXED | EBPF_MAP_MAPS,
	.max_entries = EBPF_MAX_ENTRIES,
	.hint = GENERAL_HINT,
	.check = maps_check,
	.layout = plain_layout,
	.lookup = maps_lookup,
	.slot = array_slot,
};

static uint64_t no_layout(struct ebpf_map *m)
{
	m->stride = ROUND_UP(m->value_bytes, 8u);
	return 0;
}

/* Tail calls use the table in the image (policy_image.h), not memory. */
const struct ebpf_map_type ebpf_map_type_PROG_ARRAY = {
	.traits = EBPF_MAP_INDEXED | EBPF_MAP_PROGRAMS,
	.max_entries = EBPF_MAX_ENTRIES,
	.hint = GENERAL_HINT,
	.check = programs_check,
	.layout = no_layout,
};
