/* The host's side of hash tables in memory of the GPU. It reads a copy, which may have been made
 * while kernels changed the table, and merges the copies of several contexts. Kernels look up and
 * insert by code of the compiler (jit_ptx_hash.c). Operations that change the table are for one
 * thread alone. */
#include "bpf/run/map/map_bucket.h"

#include <errno.h>

#include "bpf/run/map/map_int.h"
#include "bpf/run/map/map_seed.h"

#define MAX_WORDS (EBPF_BUCKET_MAX_KEY / 8)

struct bucket {
	uint64_t word;
	uint32_t used, unused;
};

_Static_assert(sizeof(struct bucket) == EBPF_BUCKET_BYTES, "as programs inside kernels expect");

static uint32_t key_words(const struct ebpf_map *m)
{
	return (m->key_bytes + 7) / 8;
}

static void take_key(const struct ebpf_map *m, uint64_t *k, const void *key)
{
	memset(k, 0, MAX_WORDS * sizeof(*k));
	memcpy(k, key, m->key_bytes);
}

static struct bucket *bucket_at(const struct ebpf_map *m, uint32_t b)
{
	return (struct bucket *)(void *)(m->data + m->head_off) + b;
}

static uint32_t bucket_of(const struct ebpf_map *m, const uint64_t *k)
{
	return (uint32_t)ebpf_mix(&m->seed, k, key_words(m)) & (m->n_slots - 1);
}

static uint64_t *slot_at(const struct ebpf_map *m, uint32_t slot)
{
	return (uint64_t *)(void *)(m->data + m->elem_off + (size_t)slot * m->stride);
}

/* Returns the slot with the key, or -1. */
static int64_t find(const struct ebpf_map *m, const uint64_t *k)
{
	uint32_t b = bucket_of(m, k);
	uint32_t live = (uint32_t)load_acquire(&bucket_at(m, b)->word) & EBPF_BUCKET_ALL;

	for (; live; live &= live - 1) {
		uint32_t slot = b * EBPF_BUCKET_SLOTS + (uint32_t)__builtin_ctz(live), w = 0;

		while (w < key_words(m) && load_relaxed(&slot_at(m, slot)[w]) == k[w]) {
			w++;
		}
		if (w == key_words(m)) {
			return slot;
		}
	}
	return -1;
}

static void *bucket_lookup(const struct ebpf_map *m, const void *key)
{
	uint64_t k[MAX_WORDS];
	int64_t slot;

	if (!m->data) {
		return NULL;
	}
	take_key(m, k, key);
	slot = find(m, k);
	return slot < 0 ? NULL : (uint8_t *)slot_at(m, (uint32_t)slot) + m->value_off;
}

/* Chooses a slot of the bucket for a new key, and takes a key that was not used lately out of a
 * full bucket of an LRU_HASH. Returns its number in the bucket, or -1. */
static int choose(const struct ebpf_map *m, struct bucket *b)
{
	uint32_t live = (uint32_t)b->word & EBPF_BUCKET_ALL;
	uint32_t busy = (uint32_t)(b->word >> EBPF_BUCKET_SLOTS) & EBPF_BUCKET_ALL;
	uint32_t from = ~(live | busy) & EBPF_BUCKET_ALL;

	if (!from && live && m->type == GBPF_MAP_LRU_HASH) {
		from = live & ~b->used;
		if (!from) {
			b->used = 0;
			return 31 - __builtin_clz(live);
		}
	}
	return from ? __builtin_ctz(from) : -1;
}

static uint64_t *dropped_of(const struct ebpf_map *m)
{
	return (uint64_t *)(void *)m->data;
}

/* Returns the slot, in which the key is and the value is zero; -1: no room. */
static int64_t insert(const struct ebpf_map *m, const uint64_t *k)
{
	uint32_t at = bucket_of(m, k), slot;
	struct bucket *b = bucket_at(m, at);
	int i = choose(m, b);

	if (i < 0) {
		++*dropped_of(m);
		return -1;
	}
	slot = at * EBPF_BUCKET_SLOTS + (uint32_t)i;
	memset(slot_at(m, slot), 0, m->stride);
	memcpy(slot_at(m, slot), k, 8 * (size_t)key_words(m));
	b->used |= 1u << i;
	store_release(&b->word, (b->word | 1u << i) + EBPF_BUCKET_CHANGE);
	return slot;
}

static int bucket_update(const struct ebpf_map *m, const void *key, const void *value,
			 uint64_t flags)
{
	uint64_t k[MAX_WORDS];
	int64_t slot;

	if (flags > UPDATE_EXIST) {
		return -EINVAL;
	}
	if (!ebpf_map_writable(m)) {
		return -EPERM;
	}
	take_key(m, k, key);
	slot = find(m, k);
	if (slot >= 0 ? flags == UPDATE_NOEXIST : flags == UPDATE_EXIST) {
		return slot >= 0 ? -EEXIST : -ENOENT;
	}
	slot = slot >= 0 ? slot : insert(m, k);
	if (slot < 0) {
		return -E2BIG;
	}
	ebpf_value_store((uint8_t *)slot_at(m, (uint32_t)slot) + m->value_off, value,
			 m->value_bytes);
	return 0;
}

static int bucket_delete(const struct ebpf_map *m, const void *key)
{
	uint64_t k[MAX_WORDS];
	struct bucket *b;
	int64_t slot;

	if (!ebpf_map_writable(m)) {
		return -EPERM;
	}
	take_key(m, k, key);
	slot = find(m, k);
	if (slot < 0) {
		return -ENOENT;
	}
	b = bucket_at(m, (uint32_t)slot / EBPF_BUCKET_SLOTS);
	store_release(&b->word,
		      (b->word & ~(UINT64_C(1) << slot % EBPF_BUCKET_SLOTS)) + EBPF_BUCKET_CHANGE);
	return 0;
}

static int bucket_slot(const struct ebpf_map *m, uint32_t slot, void *key, void *value)
{
	const struct bucket *b = bucket_at(m, slot / EBPF_BUCKET_SLOTS);
	const uint64_t *at = slot_at(m, slot);

	if (!(load_acquire(&b->word) >> slot % EBPF_BUCKET_SLOTS & 1)) {
		return 0;
	}
	if (key) {
		memcpy(key, at, m->key_bytes);
	}
	if (value) {
		ebpf_value_load(value, (const uint8_t *)at + m->value_off, m->value_bytes);
	}
	return 1;
}

/* The seed stays. */
static int bucket_clear(const struct ebpf_map *m)
{
	memset(m->data + m->head_off, 0, (size_t)m->n_slots * EBPF_BUCKET_BYTES);
	*dropped_of(m) = 0;
	return 0;
}

uint64_t ebpf_bucket_dropped(const struct ebpf_map *m)
{
	return m->data && ebpf_is_bucket_map(m) ? load_relaxed(dropped_of(m)) : 0;
}

void ebpf_bucket_add(const struct ebpf_map *to, const struct ebpf_map *from)
{
	uint32_t n = from->n_slots * EBPF_BUCKET_SLOTS;

	*dropped_of(to) += load_relaxed(dropped_of(from));
	for (uint32_t s = 0; s < n; s++) {
		const uint64_t *value = slot_at(from, s) + from->value_off / 8;
		uint64_t k[MAX_WORDS] = { 0 }, *sum;
		int64_t slot;

		if (!bucket_slot(from, s, k, NULL)) {
			continue;
		}
		slot = find(to, k);
		slot = slot >= 0 ? slot : insert(to, k);
		sum = slot < 0 ? NULL : slot_at(to, (uint32_t)slot) + to->value_off / 8;
		for (uint32_t w = 0; sum && w < (to->stride - to->value_off) / 8; w++) {
			sum[w] += load_relaxed(&value[w]);
		}
	}
}

int ebpf_bucket_check(const struct ebpf_map_def *d)
{
	return d->key_bytes <= EBPF_BUCKET_MAX_KEY && d->value_bytes <= EBPF_BUCKET_MAX_VALUE;
}

static const struct ebpf_map_type bucket_hash = {
	.traits = EBPF_MAP_HASHED | EBPF_MAP_ON_DEVICE | EBPF_MAP_BUCKETS,
	.max_entries = EBPF_MAX_ENTRIES,
	.hint = GENERAL_HINT,
	.check = ebpf_bucket_check,
	.layout = ebpf_bucket_layout,
	.lookup = bucket_lookup,
	.update = bucket_update,
	.delete = bucket_delete,
	.slot = bucket_slot,
	.count = ebpf_map_count_present,
	.clear = bucket_clear,
	.copy = ebpf_map_copy_each,
};

/* A bucket has 4 to 8 keys on average when max_entries are stored: of random keys less than one in
 * a thousand finds its bucket full. */
uint64_t ebpf_bucket_layout(struct ebpf_map *m)
{
	m->ops = &bucket_hash;
	m->head_off = EBPF_BUCKET_SEED + MAP_ALIGN;
	m->n_slots = ebpf_map_power_of_two((m->max_entries + 7) / 8);
	m->value_off = ROUND_UP(m->key_bytes, 8u);
	m->stride = m->value_off + ROUND_UP(m->value_bytes, 8u);
	m->elem_off = ROUND_UP(m->head_off + m->n_slots * EBPF_BUCKET_BYTES, MAP_ALIGN);
	return m->elem_off + (uint64_t)m->n_slots * EBPF_BUCKET_SLOTS * m->stride;
}
