/* Maps: checking definitions, laying them out in regions, and the operations behind the helpers.
 * Every process computes the layout from its private copy of the definitions, so nothing here reads
 * a size or an offset from shared memory. */
#include "bpf/run/map.h"

#include <errno.h>
#include <string.h>

#include "base/atomic.h"
#include "base/compiler.h"
#include "bpf/run/insn.h"

#define GBPF_MAP_TYPE(id, name, ops, doc) enum { GBPF_MAP_##name = id };
#define GBPF_CONST(name, value, doc) enum { name = value };
#include "gbpf/hooks.def"

#define MAP_FLAGS ((uint32_t)GBPF_F_TENANT | GBPF_F_DAEMON | GBPF_F_RDONLY)
#define MAP_ALIGN 64u /* a cache line: maps of different writers do not share one */
#define PAGE 4096u

enum { UPDATE_ANY = 0, UPDATE_NOEXIST = 1, UPDATE_EXIST = 2 };

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
	/* A tenant's instance is written by that tenant, so it is neither gbpfd's own nor constant.
	 */
	return !(flags & GBPF_F_TENANT) || flags == GBPF_F_TENANT;
}

int ebpf_map_check(const struct ebpf_map_def *def)
{
	if (!name_ok(def->name) || def->type != GBPF_MAP_ARRAY || def->key_bytes != 4 ||
	    !def->value_bytes || !def->max_entries || !flags_ok(def->flags) || def->is_data > 1 ||
	    (def->is_data && def->max_entries != 1)) {
		return -EINVAL;
	}
	if (def->value_bytes > EBPF_MAX_VALUE_BYTES || def->max_entries > EBPF_MAX_ENTRIES) {
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

int ebpf_maps_layout(const struct ebpf_map_def *defs, unsigned n, struct ebpf_map *maps,
		     size_t ret_region_bytes[EBPF_REGIONS])
{
	uint64_t end[EBPF_REGIONS] = { 0 };

	if (n > EBPF_MAX_MAPS) {
		return -E2BIG;
	}
	for (unsigned i = 0; i < n; i++) {
		const struct ebpf_map_def *d = &defs[i];
		enum ebpf_region region;
		int err = ebpf_map_check(d);

		if (err) {
			return err;
		}
		region = region_of(d->flags);
		maps[i] = (struct ebpf_map){
			.stride = ROUND_UP(d->value_bytes, 8u),
			.max_entries = d->max_entries,
			.key_bytes = d->key_bytes,
			.value_bytes = d->value_bytes,
			.type = d->type,
			.flags = d->flags,
			.index = i,
			.region = region,
			.region_offset = ROUND_UP(end[region], MAP_ALIGN),
		};
		/* 64 maps of at most 2^37 bytes: the sum fits 64 bits */
		end[region] = maps[i].region_offset + (uint64_t)maps[i].stride * d->max_entries;
		if (end[region] > EBPF_MAX_REGION_BYTES) {
			return -E2BIG;
		}
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

void *ebpf_map_lookup(const struct ebpf_map *map, const void *key)
{
	uint32_t index = ebpf_map_index(key);

	if (index >= map->max_entries || !map->data) {
		return NULL;
	}
	return map->data + (size_t)index * map->stride;
}

/* Elements are aligned to 8, so each of the small sizes is one store. */
static void store_value(void *slot, const void *value, uint32_t bytes)
{
	uint64_t v8;
	uint32_t v4;
	uint16_t v2;

	switch (bytes) {
	case 8:
		memcpy(&v8, value, 8);
		store_relaxed((uint64_t *)slot, v8);
		break;
	case 4:
		memcpy(&v4, value, 4);
		store_relaxed((uint32_t *)slot, v4);
		break;
	case 2:
		memcpy(&v2, value, 2);
		store_relaxed((uint16_t *)slot, v2);
		break;
	default:
		memmove(slot, value, bytes); /* the program may pass the element itself */
	}
}

int ebpf_map_update(const struct ebpf_map *map, const void *key, const void *value, uint64_t flags)
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
	store_value(slot, value, map->value_bytes);
	return 0;
}
