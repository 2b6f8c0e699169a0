/* Keys that were chosen for one bucket do not fill a table whose seed the chooser does not know. */
#include "map_env.h"

#include "base/compiler.h"
#include "bpf/run/map/map_seed.h"

enum { ENTRIES = 4096, BUCKET_MAX = 128, WORDS = 2 };

struct chosen_key {
	uint64_t w[WORDS];
};

static const struct {
	uint32_t type, key_bytes;
} tables[] = { { GBPF_MAP_HASH, 4 },	 { GBPF_MAP_HASH, 8 },	   { GBPF_MAP_HASH, 16 },
	       { GBPF_MAP_LRU_HASH, 4 }, { GBPF_MAP_LRU_HASH, 8 }, { GBPF_MAP_LPM_TRIE, 8 } };

/* Returns candidate number i for a key of table t. */
static struct chosen_key candidate(size_t t, uint64_t i)
{
	struct chosen_key k = { { i } };

	if (tables[t].type == GBPF_MAP_LPM_TRIE) {
		k.w[0] = 32 | i << 32; /* a whole address */
	} else if (tables[t].key_bytes == 16) {
		k.w[1] = ~i;
	}
	return k;
}

/* A multiplicative hash without a key, which needs no knowledge of the table. */
static uint64_t unkeyed(const uint64_t *words, uint32_t n)
{
	uint64_t h = 0;

	for (uint32_t i = 0; i < n; i++) {
		u128 r = (u128)(h ^ words[i] ^ UINT64_C(0x2545f4914f6cdd1d)) *
			 UINT64_C(0x9e3779b97f4a7c15);

		h = (uint64_t)r ^ (uint64_t)(r >> 64);
	}
	return h;
}

/* Inserts the first n candidates whose hashes share bucket 0: those of the table if it has the
 * given seed, or unkeyed ones if seed is NULL. Returns the number of stored keys. */
static uint32_t insert_chosen(const struct ebpf_map *m, size_t t, const struct ebpf_seed *seed,
			      uint32_t n)
{
	uint32_t stored = 0, words = (tables[t].key_bytes + 7) / 8;
	uint64_t value = 1;

	for (uint64_t i = 0, found = 0; found < n; i++) {
		struct chosen_key k = candidate(t, i);
		uint64_t h = !seed			       ? unkeyed(k.w, words)
			     : m->region == EBPF_REGION_DAEMON ? ebpf_sip(seed, k.w, words)
							       : ebpf_mix(seed, k.w, words);

		if (h & (m->n_slots - 1)) {
			continue;
		}
		found++;
		stored += ebpf_map_update(m, k.w, &value, 0) == 0;
	}
	return stored;
}

static void make_table(struct one_map *map, size_t t, uint32_t flags)
{
	print_message("type %u, key of %u bytes, flags %#x\n", tables[t].type, tables[t].key_bytes,
		      flags);
	map_make(map, map_def(tables[t].type, tables[t].key_bytes, 8, ENTRIES, flags));
}

/* Stores a random seed in an empty map and attaches it again. */
static void seed(struct one_map *map)
{
	enum ebpf_region region = (enum ebpf_region)map->m.region;

	assert_int_equal(ebpf_maps_seed(&map->m, 1, region, map->base), 0);
	ebpf_maps_bind(&map->m, 1, region, map->base);
}

/* Runs a check for each type, of a table of gbpfd's own and of one that tenants read. */
static void for_each_table(void (*check)(size_t t, uint32_t flags))
{
	for (size_t t = 0; t < ARRAY_SIZE(tables); t++) {
		check(t, DAEMON);
		check(t, TENANT);
	}
}

static void check_unkeyed(size_t t, uint32_t flags)
{
	struct one_map map;

	make_table(&map, t, flags);
	assert_int_equal(insert_chosen(&map.m, t, NULL, BUCKET_MAX + 1), BUCKET_MAX + 1);
	assert_int_equal(ebpf_map_clear(&map.m), 0);
	assert_int_equal(insert_chosen(&map.m, t, NULL, ENTRIES), ENTRIES);
	assert_int_equal(ebpf_map_count(&map.m), ENTRIES);
	map_drop(&map);
}

static void keys_chosen_without_the_seed_are_stored(void **state)
{
	(void)state;
	for_each_table(check_unkeyed);
}

static void check_two_seeds(size_t t, uint32_t flags)
{
	struct one_map known, other;

	make_table(&known, t, flags);
	make_table(&other, t, flags);
	seed(&known);
	seed(&other);
	assert_int_equal(insert_chosen(&known.m, t, &known.m.seed, BUCKET_MAX + 100), BUCKET_MAX);
	assert_int_equal(insert_chosen(&other.m, t, &known.m.seed, ENTRIES), ENTRIES);
	map_drop(&known);
	map_drop(&other);
}

/* The control: with the seed, keys of one bucket are found at once, and the bucket's limit holds.
 */
static void keys_chosen_with_the_seed_fill_a_bucket_of_that_seed_alone(void **state)
{
	(void)state;
	for_each_table(check_two_seeds);
}

/* Sequences of numbers are the keys for which multiplicative functions are weakest. */
static void sequences_spread_under_any_seed(void **state)
{
	static uint8_t load[8192];
	uint64_t random = 11;

	(void)state;
	for (uint32_t i = 0; i < 100; i++) {
		const uint64_t words[2] = { test_random(&random), test_random(&random) << 13 };
		const struct ebpf_seed s = ebpf_seed_of(words);

		for (uint32_t shift = 0; shift < 52; shift++) {
			uint64_t step = (i % 4 ? 2 * (uint64_t)i + 1 : 1) << shift;

			memset(load, 0, sizeof(load));
			for (uint64_t k = 0, n = 0; n < ENTRIES; n++, k += step) {
				assert_true(++load[ebpf_mix(&s, &k, 1) % ARRAY_SIZE(load)] <= 24);
			}
		}
	}
}

static void each_table_has_a_seed_of_its_own(void **state)
{
	const struct ebpf_map_def d[] = { map_def(GBPF_MAP_HASH, 4, 8, 16, TENANT),
					  map_def(GBPF_MAP_ARRAY, 4, 8, 16, TENANT),
					  map_def(GBPF_MAP_LPM_TRIE, 8, 8, 16, TENANT),
					  map_def(GBPF_MAP_LRU_HASH, 4, 8, 16, TENANT),
					  map_def(GBPF_MAP_HASH, 4, 8, 16, DAEMON) };
	const struct ebpf_seed zero = { 0, 0, 0, 0 },
			       unseeded = ebpf_seed_of((const uint64_t[2]){ 0, 0 });
	struct ebpf_map m[5], again;
	size_t bytes[EBPF_REGIONS];
	uint8_t *base;

	(void)state;
	assert_int_equal(ebpf_maps_layout(d, 5, m, bytes), 0);
	base = calloc(1, bytes[EBPF_REGION_TENANT]);
	assert_non_null(base);
	assert_int_equal(ebpf_maps_seed(m, 5, EBPF_REGION_TENANT, base), 0);
	ebpf_maps_bind(m, 5, EBPF_REGION_TENANT, base);
	for (size_t i = 0; i < 4; i++) {
		assert_int_equal(ebpf_map_count(&m[i]), i == 1 ? 16 : 0);
		assert_int_equal(!memcmp(&m[i].seed, &zero, sizeof(zero)), i == 1);
		assert_memory_not_equal(&m[i].seed, &unseeded, sizeof(unseeded));
		for (size_t k = 0; k < i; k++) {
			assert_memory_not_equal(&m[i].seed, &m[k].seed, sizeof(m[i].seed));
		}
		ebpf_map_at(&again, &m[i], base);
		assert_memory_equal(&again.seed, &m[i].seed, sizeof(again.seed));
	}
	assert_null(m[4].data); /* of another region */
	free(base);
}

/* The seed of a tenant's table lies in the tenant's memory. */
static void check_changing_seed(size_t t, uint32_t flags)
{
	uint64_t random = 5;
	struct one_map map;
	struct ebpf_map at;

	make_table(&map, t, flags);
	seed(&map);
	assert_int_equal(insert_chosen(&map.m, t, NULL, ENTRIES / 2), ENTRIES / 2);
	for (uint32_t i = 0; i < 100; i++) {
		const uint64_t wrong[2] = { test_random(&random), test_random(&random) };
		const struct ebpf_seed expected = ebpf_seed_of(wrong);
		struct chosen_key k = candidate(t, i);
		uint64_t value = i;

		memcpy(map.m.data + map.m.head_off - 64, wrong, sizeof(wrong));
		ebpf_map_at(&at, &map.m, map.base);
		assert_memory_equal(&at.seed, &expected, sizeof(expected));
		assert_int_equal(ebpf_map_update(&at, k.w, &value, 0), 0);
		assert_non_null(ebpf_map_lookup(&at, k.w));
		assert_int_equal(ebpf_map_delete(&at, k.w), 0);
	}
	/* attached before: finds its keys all the same */
	assert_int_equal(ebpf_map_count(&map.m), ENTRIES / 2);
	assert_int_equal(insert_chosen(&map.m, t, NULL, ENTRIES / 2), ENTRIES / 2);
	assert_int_equal(ebpf_map_count(&map.m), ENTRIES / 2);
	map_drop(&map);
}

static void a_seed_that_changes_harms_its_own_table_alone(void **state)
{
	(void)state;
	for_each_table(check_changing_seed);
}

/* Computed with other implementations: CPython 3.11's hash of bytes (seed 0), and the first test
 * vector of Rust's SipHasher13. The last word is the length, which the tables leave out. */
static void the_hash_of_secret_seeds_is_siphash_1_3(void **state)
{
	const struct ebpf_seed zero = ebpf_seed_of((const uint64_t[2]){ 0, 0 });
	const struct ebpf_seed counting =
		ebpf_seed_of((const uint64_t[2]){ 0x0706050403020100, 0x0f0e0d0c0b0a0908 });
	const uint64_t none[] = { 0 }, eight[] = { 0x6867666564636261, UINT64_C(8) << 56 },
		       sixteen[] = { 0x6867666564636261, 0x706f6e6d6c6b6a69, UINT64_C(16) << 56 };

	(void)state;
	assert_true(ebpf_sip(&counting, none, 1) == UINT64_C(0xabac0158050fc4dc));
	assert_true(ebpf_sip(&zero, eight, 2) == (uint64_t)INT64_C(4574395652268504554));
	assert_true(ebpf_sip(&zero, sixteen, 3) == (uint64_t)INT64_C(-7712962755478248686));
}

int main(void)
{
	const struct CMUnitTest cases[] = {
		cmocka_unit_test(keys_chosen_without_the_seed_are_stored),
		cmocka_unit_test(keys_chosen_with_the_seed_fill_a_bucket_of_that_seed_alone),
		cmocka_unit_test(sequences_spread_under_any_seed),
		cmocka_unit_test(each_table_has_a_seed_of_its_own),
		cmocka_unit_test(a_seed_that_changes_harms_its_own_table_alone),
		cmocka_unit_test(the_hash_of_secret_seeds_is_siphash_1_3),
	};

	return cmocka_run_group_tests(cases, NULL, NULL);
}
