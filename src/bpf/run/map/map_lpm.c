/* Longest prefix match: a hash table over (length, bits) that is searched for each length in use,
 * longest first. A key has at most 2 048 bits, so a lookup is bounded; tables of addresses use a
 * few lengths. The set of used lengths is stored before the table and only grows. It is a filter:
 * no key with a length outside the set was ever inserted. */
#include "bpf/run/map/map_int.h"

#include <errno.h>

#include "base/point.h"

#define LENGTH_BYTES ROUND_UP(((EBPF_MAX_LPM_KEY_BYTES - 4) * 8 / 64 + 1) * 8, 64u)

struct lpm_key {
	uint32_t bits; /* length of the prefix */
	uint8_t data[EBPF_MAX_LPM_KEY_BYTES - 4];
};

static uint64_t *lengths(const struct ebpf_map *m)
{
	return (void *)m->data;
}

static uint32_t max_bits(const struct ebpf_map *m)
{
	return (m->key_bytes - 4) * 8;
}

/* Clears the bits from `bits` on; those from `until` on are already clear. */
static void cut(struct lpm_key *k, uint32_t bits, uint32_t until)
{
	uint32_t first = bits / 8;

	if (bits % 8 && bits < until) {
		k->data[first] &= (uint8_t)(0xff00u >> bits % 8);
		first++;
	}
	if (first < (until + 7) / 8) {
		memset(k->data + first, 0, (until + 7) / 8 - first);
	}
	k->bits = bits;
}

static int take(const struct ebpf_map *m, struct lpm_key *k, const void *key)
{
	memset(k, 0, sizeof(*k));
	memcpy(k, key, m->key_bytes);
	compiler_barrier();
	return k->bits <= max_bits(m) ? 0 : -EINVAL;
}

static void *lpm_lookup(const struct ebpf_map *m, const void *key)
{
	uint32_t until = max_bits(m);
	struct lpm_key k;
	int32_t w;

	if (!m->data || take(m, &k, key) != 0) {
		return NULL;
	}
	w = (int32_t)(k.bits / 64);
	for (uint64_t mask = ~UINT64_C(0) >> (63 - k.bits % 64); w >= 0; w--, mask = ~UINT64_C(0)) {
		uint64_t here = load_acquire(&lengths(m)[w]) & mask;

		while (here) {
			uint32_t bit = 63 - (uint32_t)__builtin_clzll(here);
			void *value;

			cut(&k, (uint32_t)w * 64 + bit, until);
			until = k.bits;
			value = ebpf_hash_lookup(m, &k);
			if (value) {
				return value;
			}
			here &= ~(UINT64_C(1) << bit);
		}
	}
	return NULL;
}

static int lpm_update(const struct ebpf_map *m, const void *key, const void *value, uint64_t flags)
{
	struct lpm_key k;
	uint64_t *word;

	if (!ebpf_map_writable(m)) {
		return -EPERM;
	}
	if (take(m, &k, key) != 0) {
		return -EINVAL;
	}
	cut(&k, k.bits, max_bits(m));
	word = &lengths(m)[k.bits / 64];
	if (!(load_relaxed(word) >> k.bits % 64 & 1)) {
		(void)or_seqcst(word, UINT64_C(1) << k.bits % 64);
	}
	POINT("map.lpm.insert.length");
	return ebpf_hash_update(m, &k, value, flags);
}

static int lpm_delete(const struct ebpf_map *m, const void *key)
{
	struct lpm_key k;

	if (!ebpf_map_writable(m)) {
		return -EPERM;
	}
	if (take(m, &k, key) != 0) {
		return -EINVAL;
	}
	cut(&k, k.bits, max_bits(m));
	return ebpf_hash_delete(m, &k);
}

static int lpm_check(const struct ebpf_map_def *d)
{
	return d->key_bytes > 4 && d->value_bytes && !(d->flags & GBPF_F_RDONLY);
}

static uint64_t lpm_layout(struct ebpf_map *m)
{
	return ebpf_hash_layout(m, LENGTH_BYTES, 0);
}

const struct ebpf_map_type ebpf_map_type_LPM_TRIE = {
	.traits = EBPF_MAP_HASHED | EBPF_MAP_PREFIX,
	.max_entries = EBPF_MAX_ENTRIES,
	.hint = "its key is a struct of a u32, the length in bits, and the bytes",
	.check = lpm_check,
	.layout = lpm_layout,
	.lookup = lpm_lookup,
	.update = lpm_update,
	.delete = lpm_delete,
	.slot = ebpf_hash_slot,
	.count = ebpf_map_count_present,
	.clear = ebpf_hash_clear,
	.copy = ebpf_map_copy_each,
};
