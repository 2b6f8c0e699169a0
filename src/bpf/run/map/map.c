/* Maps of any type: checks definitions, lays maps out in regions, and calls the operations of the
 * type. Every process computes the layout from its private copy of the definitions; nothing here
 * reads a size or an offset from shared memory. */
#include "bpf/run/map/map_int.h"

#include <errno.h>

#include "bpf/run/insn.h"
#include "bpf/run/map/map_pool.h"

#define MAP_FLAGS                                                                                  \
	((uint32_t)GBPF_F_TENANT | GBPF_F_DAEMON | GBPF_F_RDONLY | (uint32_t)GBPF_F_EPOCH |        \
	 (uint32_t)GBPF_F_DEVICE | (uint32_t)GBPF_F_DEFER | (uint32_t)GBPF_F_HOST |                \
	 (uint32_t)GBPF_F_ALL_GPUS)
/* GBPF_F_DEFER is for maps in memory of the GPU. */
#define EBPF_F_DEFERRED ((uint32_t)GBPF_F_DEVICE | (uint32_t)GBPF_F_DEFER)
/* GBPF_F_HOST places a map of kernels in host memory. */
#define EBPF_F_PINNED ((uint32_t)GBPF_F_DEVICE | (uint32_t)GBPF_F_HOST)
/* GBPF_F_ALL_GPUS is for maps of gbpfd's programs, which run on one thread for all GPUs. */
#define EBPF_F_ACROSS ((uint32_t)GBPF_F_DAEMON | (uint32_t)GBPF_F_ALL_GPUS)
#define PAGE 4096u

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
	if (flags & (uint32_t)GBPF_F_DEFER) {
		return flags == EBPF_F_DEFERRED;
	}
	if (flags & (uint32_t)GBPF_F_HOST) {
		return flags == EBPF_F_PINNED;
	}
	if (flags & (uint32_t)GBPF_F_ALL_GPUS) {
		return flags == EBPF_F_ACROSS;
	}
	/* The tenant writes its instance, so it can be neither private to gbpfd nor constant;
	 * epochs are published to all processes. Kernels of the tenant write its instance of a
	 * DEVICE map. */
	return (!(flags & GBPF_F_TENANT) || flags == GBPF_F_TENANT) &&
	       (!(flags & GBPF_F_DEVICE) || flags == (uint32_t)GBPF_F_DEVICE) &&
	       (!(flags & GBPF_F_EPOCH) || flags == (uint32_t)GBPF_F_EPOCH);
}

static int lock_ok(const struct ebpf_map_def *d, const struct ebpf_map_type *t)
{
	return (t->traits & EBPF_MAP_IN_PLACE) && (d->flags & GBPF_F_DAEMON) &&
	       (d->lock_1 - 1) % 4 == 0 && d->value_bytes >= 4 &&
	       d->lock_1 - 1 <= d->value_bytes - 4;
}

int ebpf_map_check(const struct ebpf_map_def *def)
{
	const struct ebpf_map_type *t = ebpf_map_type_of(def->type);
	uint32_t max_key;

	if (!t || !name_ok(def->name) || !def->max_entries || !flags_ok(def->flags) ||
	    def->is_data > 1 || !t->check(def) || (def->lock_1 && !lock_ok(def, t))) {
		return -EINVAL;
	}
	if (((def->is_data || (def->flags & GBPF_F_EPOCH)) && !(t->traits & EBPF_MAP_EPOCHS)) ||
	    (def->inner_1 && !(t->traits & EBPF_MAP_MAPS)) || def->inner_1 > EBPF_MAX_MAPS ||
	    ((def->flags & GBPF_F_DEVICE) && !(t->traits & EBPF_MAP_ON_DEVICE)) ||
	    ((def->flags & (uint32_t)GBPF_F_ALL_GPUS) && (t->traits & EBPF_MAP_RECORDS))) {
		return -EINVAL; /* the last: a ring has one reader, that of its instance */
	}
	if ((def->flags & (uint32_t)GBPF_F_DEFER) && !(t->traits & EBPF_MAP_DEFERS)) {
		return -EINVAL;
	}
	max_key = t->traits & EBPF_MAP_PREFIX ? EBPF_MAX_LPM_KEY_BYTES : EBPF_MAX_KEY_BYTES;
	if (def->value_bytes > EBPF_MAX_VALUE_BYTES || def->max_entries > t->max_entries ||
	    def->key_bytes > max_key) {
		return -E2BIG;
	}
	return 0;
}

static enum ebpf_region region_of(uint32_t flags)
{
	if (flags & ((uint32_t)GBPF_F_TENANT | (uint32_t)GBPF_F_DEVICE)) {
		return EBPF_REGION_TENANT;
	}
	if (flags & (uint32_t)GBPF_F_ALL_GPUS) {
		return EBPF_REGION_ALL_GPUS;
	}
	return flags & GBPF_F_DAEMON ? EBPF_REGION_DAEMON : EBPF_REGION_GLOBAL;
}

uint32_t ebpf_map_power_of_two(uint32_t min)
{
	return min <= 1 ? 1 : 1u << (32 - __builtin_clz(min - 1));
}

uint64_t ebpf_map_lay_elements(struct ebpf_map *m, uint64_t head_bytes, uint32_t more)
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

	return !in || (d->inner_1 <= n && !ebpf_map_type_has(in->type, EBPF_MAP_MAPS) &&
		       !ebpf_map_type_has(in->type, EBPF_MAP_PROGRAMS) &&
		       !ebpf_map_type_has(in->type, EBPF_MAP_IN_BLOCK));
}

/* Lays map i out behind `end` of its region. */
static int lay(const struct ebpf_map_def *defs, unsigned n, unsigned i, struct ebpf_map *maps,
	       uint64_t end[EBPF_REGIONS])
{
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
				     .ops = ebpf_map_type_of(d->type),
				     .flags = d->flags,
				     .index = i,
				     .region = region,
				     .region_offset = ROUND_UP(end[region], MAP_ALIGN),
				     .inner_1 = d->inner_1,
				     .lock_1 = d->lock_1 };
	/* Cannot overflow: at most 2^20 elements of 2^17 bytes, 2^14 times. */
	bytes = maps[i].ops->layout(&maps[i]);
	end[region] = maps[i].region_offset + bytes;
	if (end[region] > EBPF_MAX_REGION_BYTES) {
		return -E2BIG;
	}
	maps[i].bytes = (uint32_t)bytes;
	return 0;
}

/* The parts of the TENANT region, in their order. A tool's memory on a GPU is a copy of the first
 * one, its pinned memory a copy of the last one. */
enum part { ON_GPU, OF_PROCESS, IN_HOST, PARTS };

static enum part part_of(uint32_t flags)
{
	return flags & (uint32_t)GBPF_F_HOST	 ? IN_HOST
	       : flags & (uint32_t)GBPF_F_DEVICE ? ON_GPU
						 : OF_PROCESS;
}

static int lay_all(const struct ebpf_map_def *defs, unsigned n, enum part part,
		   struct ebpf_map *maps, uint64_t end[EBPF_REGIONS])
{
	int err = 0;

	for (unsigned i = 0; i < n && !err; i++) {
		if (part_of(defs[i].flags) == part) {
			err = lay(defs, n, i, maps, end);
		}
	}
	return err;
}

int ebpf_maps_layout(const struct ebpf_map_def *defs, unsigned n, struct ebpf_map *maps,
		     size_t ret_region_bytes[EBPF_REGIONS])
{
	uint64_t end[EBPF_REGIONS] = { 0 };
	int err = 0;

	if (n > EBPF_MAX_MAPS) {
		return -E2BIG;
	}
	end[EBPF_REGION_GLOBAL] = first_offset(defs, n);
	for (enum part part = 0; part < PARTS && !err; part++) {
		/* Each has pages of its own. */
		end[EBPF_REGION_TENANT] = ROUND_UP(end[EBPF_REGION_TENANT], PAGE);
		err = lay_all(defs, n, part, maps, end);
	}
	if (err) {
		return err;
	}
	for (int r = 0; r < EBPF_REGIONS; r++) {
		ret_region_bytes[r] = ROUND_UP(end[r], PAGE);
	}
	return 0;
}

size_t ebpf_maps_gpu_bytes(const struct ebpf_map *maps, unsigned n)
{
	uint64_t end = 0;

	for (unsigned i = 0; i < n; i++) {
		if (maps[i].region == EBPF_REGION_TENANT && part_of(maps[i].flags) == ON_GPU) {
			end = MAX(end, maps[i].region_offset + maps[i].bytes);
		}
	}
	return (size_t)ROUND_UP(end, PAGE);
}

size_t ebpf_maps_host_at(const struct ebpf_map *maps, unsigned n, size_t region_bytes)
{
	uint64_t at = region_bytes;

	for (unsigned i = 0; i < n; i++) {
		if (maps[i].flags & (uint32_t)GBPF_F_HOST) {
			at = MIN(at, maps[i].region_offset);
		}
	}
	return (size_t)at;
}

uint32_t ebpf_maps_scratch(const struct ebpf_map *maps, unsigned n, uint32_t *ret_at)
{
	uint32_t end = 0;

	for (unsigned i = 0; i < n; i++) {
		ret_at[i] = 0;
		if (maps[i].ops->traits & EBPF_MAP_IN_BLOCK) {
			ret_at[i] = end;
			end += ROUND_UP(maps[i].stride * maps[i].max_entries, 16u);
		}
	}
	return end;
}

void ebpf_maps_bind(struct ebpf_map *maps, unsigned n, enum ebpf_region region, void *base)
{
	for (unsigned i = 0; i < n; i++) {
		if (maps[i].region == region) {
			ebpf_map_at(&maps[i], &maps[i], base);
		}
	}
}

void ebpf_map_at(struct ebpf_map *out, const struct ebpf_map *m, void *region_base)
{
	if (out != m) {
		*out = *m;
	}
	out->data = region_base ? (uint8_t *)region_base + m->region_offset : NULL;
	if (out->data && (m->ops->traits & EBPF_MAP_HASHED)) {
		ebpf_hash_attach(out);
	}
}

void *ebpf_map_lookup(const struct ebpf_map *map, const void *key)
{
	return map->ops->lookup ? map->ops->lookup(map, key) : NULL;
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

int ebpf_map_update(const struct ebpf_map *map, const void *key, const void *value, uint64_t flags)
{
	return map->ops->update ? map->ops->update(map, key, value, flags) : -EINVAL;
}

int ebpf_map_delete(const struct ebpf_map *map, const void *key)
{
	return map->ops->delete ? map->ops->delete (map, key) : -EINVAL;
}

int ebpf_map_push(const struct ebpf_map *map, const void *value, uint64_t flags)
{
	return map->ops->push ? map->ops->push(map, value, flags) : -EINVAL;
}

int ebpf_map_pop(const struct ebpf_map *map, void *value)
{
	return map->ops->take ? map->ops->take(map, value, 1) : -EINVAL;
}

int ebpf_map_peek(const struct ebpf_map *map, void *value)
{
	return map->ops->take ? map->ops->take(map, value, 0) : -EINVAL;
}
