/* Compares each map type with a simple model: one thread, fixed seeds. */
#include "map_env.h"

#include <errno.h>
#include <pthread.h>

#include "base/compiler.h"
#include "bpf/run/env.h"
#include "bpf/run/map/map_sm_ring.h"

/* ---- definitions ---- */

static void definitions_without_sense_are_refused(void **state)
{
	const struct {
		struct ebpf_map_def d;
		int err;
	} cases[] = {
		{ map_def(GBPF_MAP_HASH, 4, 8, 10, 0), 0 },
		{ map_def(GBPF_MAP_HASH, 512, 65536, 10, 0), 0 },
		{ map_def(GBPF_MAP_HASH, 513, 8, 10, 0), -E2BIG },
		{ map_def(GBPF_MAP_HASH, 0, 8, 10, 0), -EINVAL },
		{ map_def(GBPF_MAP_HASH, 4, 0, 10, 0), -EINVAL },
		{ map_def(GBPF_MAP_HASH, 4, 8, 0, 0), -EINVAL },
		{ map_def(GBPF_MAP_HASH, 4, 8, 1000001, 0), -E2BIG },
		{ map_def(GBPF_MAP_HASH, 4, 8, 10, GBPF_F_RDONLY), -EINVAL },
		{ map_def(GBPF_MAP_HASH, 4, 8, 10, EPOCH), -EINVAL },
		{ map_def(GBPF_MAP_HASH, 4, 8, 10, TENANT | DAEMON), -EINVAL },
		{ map_def(GBPF_MAP_HASH, 4, 8, 10, 1u << 31), -EINVAL },
		{ map_def(GBPF_MAP_LRU_HASH, 4, 8, 10, TENANT), 0 },
		{ map_def(GBPF_MAP_ARRAY, 8, 8, 10, 0), -EINVAL },
		{ map_def(GBPF_MAP_ARRAY, 4, 8, 10, EPOCH), 0 },
		{ map_def(GBPF_MAP_ARRAY, 4, 8, 10, EPOCH | TENANT), -EINVAL },
		{ map_def(GBPF_MAP_ARRAY, 4, 8, 10, EPOCH | GBPF_F_RDONLY), -EINVAL },
		{ map_def(GBPF_MAP_QUEUE, 0, 8, 10, 0), 0 },
		{ map_def(GBPF_MAP_QUEUE, 4, 8, 10, 0), -EINVAL },
		{ map_def(GBPF_MAP_STACK, 0, 8, 65536, 0), 0 },
		{ map_def(GBPF_MAP_STACK, 0, 8, 65537, 0), -E2BIG },
		{ map_def(GBPF_MAP_STACK, 0, 0, 10, 0), -EINVAL },
		{ map_def(GBPF_MAP_LPM_TRIE, 5, 8, 10, 0), 0 },
		{ map_def(GBPF_MAP_LPM_TRIE, 4, 8, 10, 0), -EINVAL },
		{ map_def(GBPF_MAP_LPM_TRIE, 260, 8, 10, 0), 0 },
		{ map_def(GBPF_MAP_LPM_TRIE, 261, 8, 10, 0), -E2BIG },
		{ map_def(GBPF_MAP_RINGBUF, 0, 0, 4096, TENANT), 0 },
		{ map_def(GBPF_MAP_RINGBUF, 0, 0, 4096, DAEMON), 0 },
		{ map_def(GBPF_MAP_RINGBUF, 0, 0, 4096, 0), -EINVAL },
		{ map_def(GBPF_MAP_RINGBUF, 0, 0, 2048, TENANT), -EINVAL },
		{ map_def(GBPF_MAP_RINGBUF, 0, 0, 12288, TENANT), -EINVAL },
		{ map_def(GBPF_MAP_RINGBUF, 4, 0, 4096, TENANT), -EINVAL },
		{ map_def(GBPF_MAP_RINGBUF, 0, 8, 4096, TENANT), -EINVAL },
		{ map_def(GBPF_MAP_RINGBUF, 0, 0, 32u << 20, TENANT), -E2BIG },
		{ map_def(GBPF_MAP_HISTOGRAM, 4, 512, 3, TENANT), 0 },
		{ map_def(GBPF_MAP_HISTOGRAM, 4, 256, 3, TENANT), -EINVAL },
		{ map_def(GBPF_MAP_HISTOGRAM, 8, 512, 3, TENANT), -EINVAL },
		{ map_def(GBPF_MAP_THREAD_ARRAY, 4, 16, 3, TENANT), 0 },
		{ map_def(GBPF_MAP_THREAD_ARRAY, 4, 12, 3, TENANT), -EINVAL },
		{ map_def(GBPF_MAP_THREAD_ARRAY, 4, 16, 3, 0), -EINVAL },
		{ map_def(GBPF_MAP_PROG_ARRAY, 4, 4, 8, 0), 0 },
		{ map_def(GBPF_MAP_PROG_ARRAY, 4, 8, 8, 0), -EINVAL },
		{ map_def(GBPF_MAP_PROG_ARRAY, 4, 4, 8, TENANT), -EINVAL },
		{ map_def(GBPF_MAP_ARRAY_OF_MAPS, 4, 4, 8, 0), -EINVAL }, /* of what? */
		{ map_def(7, 4, 8, 8, 0), -EINVAL },
		{ map_def(GBPF_MAP_ARRAY, 4, 8, 10, GBPF_F_DEVICE), 0 },
		{ map_def(GBPF_MAP_ARRAY, 4, 8, 10, GBPF_F_DEVICE | TENANT), -EINVAL },
		{ map_def(GBPF_MAP_ARRAY, 4, 8, 10, GBPF_F_DEVICE | DAEMON), -EINVAL },
		{ map_def(GBPF_MAP_ARRAY, 4, 8, 10, GBPF_F_DEVICE | GBPF_F_RDONLY), -EINVAL },
		{ map_def(GBPF_MAP_ARRAY, 4, 8, 10, GBPF_F_DEVICE | EPOCH), -EINVAL },
		{ map_def(GBPF_MAP_HISTOGRAM, 4, 512, 3, GBPF_F_DEVICE), 0 },
		{ map_def(GBPF_MAP_SM_ARRAY, 4, 16, 3, GBPF_F_DEVICE), 0 },
		{ map_def(GBPF_MAP_SM_ARRAY, 4, 16, 3, GBPF_F_DEVICE | GBPF_F_DEFER), 0 },
		{ map_def(GBPF_MAP_WARP_ARRAY, 4, 16, 3, GBPF_F_DEVICE | GBPF_F_DEFER), 0 },
		{ map_def(GBPF_MAP_SM_ARRAY, 4, 16, 3, GBPF_F_DEFER), -EINVAL },
		{ map_def(GBPF_MAP_SM_RING, 0, 16, 8, GBPF_F_DEVICE | GBPF_F_DEFER), -EINVAL },
		{ map_def(GBPF_MAP_HASH, 4, 8, 10, GBPF_F_DEVICE | GBPF_F_DEFER), -EINVAL },
		{ map_def(GBPF_MAP_ARRAY, 4, 8, 10, GBPF_F_DEVICE | GBPF_F_DEFER), -EINVAL },
		{ map_def(GBPF_MAP_SM_ARRAY, 4, 12, 3, GBPF_F_DEVICE), -EINVAL },
		{ map_def(GBPF_MAP_SM_ARRAY, 4, 0, 3, GBPF_F_DEVICE), -EINVAL },
		{ map_def(GBPF_MAP_SM_ARRAY, 8, 16, 3, GBPF_F_DEVICE), -EINVAL },
		{ map_def(GBPF_MAP_SM_ARRAY, 4, 16, 3, TENANT), -EINVAL },
		{ map_def(GBPF_MAP_SM_ARRAY, 4, 16, 3, 0), -EINVAL },
		{ map_def(GBPF_MAP_WARP_ARRAY, 4, 16, 3, GBPF_F_DEVICE), 0 },
		{ map_def(GBPF_MAP_WARP_ARRAY, 4, 16, 3, GBPF_F_DEVICE | GBPF_F_RDONLY), -EINVAL },
		{ map_def(GBPF_MAP_SM_RING, 0, 16, 8, GBPF_F_DEVICE), 0 },
		{ map_def(GBPF_MAP_SM_RING, 0, 512, 65536, GBPF_F_DEVICE), 0 },
		{ map_def(GBPF_MAP_SM_RING, 0, 520, 8, GBPF_F_DEVICE), -EINVAL },
		{ map_def(GBPF_MAP_SM_RING, 0, 12, 8, GBPF_F_DEVICE), -EINVAL },
		{ map_def(GBPF_MAP_SM_RING, 0, 16, 12, GBPF_F_DEVICE), -EINVAL },
		{ map_def(GBPF_MAP_SM_RING, 4, 16, 8, GBPF_F_DEVICE), -EINVAL },
		{ map_def(GBPF_MAP_SM_RING, 0, 16, 8, TENANT), -EINVAL },
		{ map_def(GBPF_MAP_SM_RING, 0, 16, 131072, GBPF_F_DEVICE), -E2BIG },
		{ map_def(GBPF_MAP_HASH, 4, 8, 10, GBPF_F_DEVICE), 0 },
		{ map_def(GBPF_MAP_ARRAY, 4, 8, 10, GBPF_F_DEVICE | GBPF_F_HOST), 0 },
		{ map_def(GBPF_MAP_HASH, 4, 8, 10, GBPF_F_DEVICE | GBPF_F_HOST), 0 },
		{ map_def(GBPF_MAP_LRU_HASH, 4, 8, 10, GBPF_F_DEVICE | GBPF_F_HOST), 0 },
		{ map_def(GBPF_MAP_HISTOGRAM, 4, 512, 3, GBPF_F_DEVICE | GBPF_F_HOST), 0 },
		{ map_def(GBPF_MAP_SM_ARRAY, 4, 16, 3, GBPF_F_DEVICE | GBPF_F_HOST), 0 },
		{ map_def(GBPF_MAP_WARP_ARRAY, 4, 16, 3, GBPF_F_DEVICE | GBPF_F_HOST), 0 },
		{ map_def(GBPF_MAP_BLOCK_ARRAY, 4, 16, 3, GBPF_F_DEVICE | GBPF_F_HOST), 0 },
		{ map_def(GBPF_MAP_SM_RING, 0, 16, 8, GBPF_F_DEVICE | GBPF_F_HOST), 0 },
		{ map_def(GBPF_MAP_WARP_SCRATCH, 4, 16, 64, GBPF_F_DEVICE), 0 },
		{ map_def(GBPF_MAP_WARP_SCRATCH, 4, 1024, 1, GBPF_F_DEVICE), 0 },
		{ map_def(GBPF_MAP_WARP_SCRATCH, 4, 16, 65, GBPF_F_DEVICE), -EINVAL },
		{ map_def(GBPF_MAP_WARP_SCRATCH, 4, 1032, 1, GBPF_F_DEVICE), -EINVAL },
		{ map_def(GBPF_MAP_WARP_SCRATCH, 4, 12, 1, GBPF_F_DEVICE), -EINVAL },
		{ map_def(GBPF_MAP_WARP_SCRATCH, 8, 8, 1, GBPF_F_DEVICE), -EINVAL },
		{ map_def(GBPF_MAP_WARP_SCRATCH, 4, 8, 1, 0), -EINVAL },
		{ map_def(GBPF_MAP_WARP_SCRATCH, 4, 8, 1, GBPF_F_DEVICE | GBPF_F_HOST), -EINVAL },
		{ map_def(GBPF_MAP_WARP_SCRATCH, 4, 8, 1, GBPF_F_DEVICE | GBPF_F_DEFER), -EINVAL },
		{ map_def(GBPF_MAP_ARRAY, 4, 8, 10, GBPF_F_HOST), -EINVAL },
		{ map_def(GBPF_MAP_ARRAY, 4, 8, 10, GBPF_F_HOST | TENANT), -EINVAL },
		{ map_def(GBPF_MAP_ARRAY, 4, 8, 10, GBPF_F_DEVICE | GBPF_F_HOST | EPOCH), -EINVAL },
		{ map_def(GBPF_MAP_SM_ARRAY, 4, 16, 3, GBPF_F_DEVICE | GBPF_F_HOST | GBPF_F_DEFER),
		  -EINVAL },
		{ map_def(GBPF_MAP_QUEUE, 0, 8, 10, GBPF_F_DEVICE | GBPF_F_HOST), -EINVAL },
		{ map_def(GBPF_MAP_LRU_HASH, 64, 512, 10, GBPF_F_DEVICE), 0 },
		{ map_def(GBPF_MAP_HASH, 65, 8, 10, GBPF_F_DEVICE), -EINVAL },
		{ map_def(GBPF_MAP_HASH, 8, 513, 10, GBPF_F_DEVICE), -EINVAL },
		{ map_def(GBPF_MAP_HASH, 4, 8, 10, GBPF_F_DEVICE | TENANT), -EINVAL },
		{ map_def(GBPF_MAP_LPM_TRIE, 8, 8, 10, GBPF_F_DEVICE), -EINVAL },
		{ map_def(GBPF_MAP_QUEUE, 0, 8, 10, GBPF_F_DEVICE), -EINVAL },
		{ map_def(GBPF_MAP_RINGBUF, 0, 0, 4096, GBPF_F_DEVICE), -EINVAL },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		print_message("case %zu\n", i);
		assert_int_equal(ebpf_map_check(&cases[i].d), cases[i].err);
	}
}

static void maps_in_host_memory_are_the_last_of_their_region(void **state)
{
	const struct ebpf_map_def d[] = {
		map_def(GBPF_MAP_ARRAY, 4, 8, 10, GBPF_F_DEVICE | GBPF_F_HOST),
		map_def(GBPF_MAP_ARRAY, 4, 8, 600, GBPF_F_DEVICE),
		map_def(GBPF_MAP_HASH, 4, 8, 10, GBPF_F_DEVICE | GBPF_F_HOST),
		map_def(GBPF_MAP_ARRAY, 4, 8, 10, TENANT),
	};
	size_t bytes[EBPF_REGIONS];
	struct ebpf_map m[4];
	size_t at;

	assert_int_equal(ebpf_maps_layout(d, 4, m, bytes), 0);
	at = ebpf_maps_host_at(m, 4, bytes[EBPF_REGION_TENANT]);
	assert_int_equal(at, 12288);
	assert_int_equal(m[1].region_offset, 0);
	assert_true(m[3].region_offset >= m[1].bytes && m[3].region_offset + m[3].bytes <= at);
	assert_int_equal(m[0].region_offset, at);
	assert_true(m[2].region_offset >= at + m[0].bytes);
	assert_true(m[2].region_offset + m[2].bytes <= bytes[EBPF_REGION_TENANT]);
	for (unsigned i = 0; i < 4; i++) {
		assert_int_equal(m[i].region, EBPF_REGION_TENANT);
	}
	assert_int_equal(ebpf_maps_layout(d + 3, 1, m, bytes), 0);
	assert_int_equal(ebpf_maps_host_at(m, 1, bytes[EBPF_REGION_TENANT]),
			 bytes[EBPF_REGION_TENANT]);
}

static void maps_on_the_gpu_are_the_first_of_their_region(void **state)
{
	const struct ebpf_map_def d[] = {
		map_def(GBPF_MAP_ARRAY, 4, 8, 600, TENANT),
		map_def(GBPF_MAP_ARRAY, 4, 8, 10, GBPF_F_DEVICE),
		map_def(GBPF_MAP_ARRAY, 4, 8, 10, GBPF_F_DEVICE | GBPF_F_HOST),
		map_def(GBPF_MAP_ARRAY, 4, 8, 600, GBPF_F_DEVICE),
		map_def(GBPF_MAP_ARRAY, 4, 8, 10, TENANT),
	};
	size_t bytes[EBPF_REGIONS], gpu, host;
	struct ebpf_map m[5];

	(void)state;
	assert_int_equal(ebpf_maps_layout(d, 5, m, bytes), 0);
	gpu = ebpf_maps_gpu_bytes(m, 5);
	host = ebpf_maps_host_at(m, 5, bytes[EBPF_REGION_TENANT]);
	assert_int_equal(gpu, 8192);
	assert_int_equal(m[1].region_offset, 0);
	assert_true(m[3].region_offset >= m[1].bytes && m[3].region_offset + m[3].bytes <= gpu);
	assert_int_equal(m[0].region_offset, gpu);
	assert_true(m[4].region_offset >= gpu + m[0].bytes);
	assert_true(m[4].region_offset + m[4].bytes <= host);
	assert_int_equal(m[2].region_offset, host);
	assert_int_equal(ebpf_maps_layout(d, 1, m, bytes), 0);
	assert_int_equal(m[0].region_offset, 0);
	assert_int_equal(ebpf_maps_gpu_bytes(m, 1), 0);
}

static void maps_in_shared_memory_take_no_memory(void **state)
{
	const struct ebpf_map_def d[] = {
		map_def(GBPF_MAP_WARP_SCRATCH, 4, 8, 3, GBPF_F_DEVICE),
		map_def(GBPF_MAP_ARRAY, 4, 8, 10, GBPF_F_DEVICE),
		map_def(GBPF_MAP_WARP_SCRATCH, 4, 16, 4, GBPF_F_DEVICE),
	};
	uint32_t at[3], key = 0;
	size_t bytes[EBPF_REGIONS];
	struct ebpf_map m[3];
	uint64_t value[2];

	(void)state;
	assert_int_equal(ebpf_maps_layout(d, 1, m, bytes), 0);
	assert_int_equal(bytes[EBPF_REGION_TENANT], 0);
	assert_int_equal(ebpf_maps_layout(d, 3, m, bytes), 0);
	assert_int_equal(m[0].bytes + m[2].bytes, 0);
	assert_int_equal(ebpf_maps_scratch(m, 3, at), 32 + 64);
	assert_int_equal(at[0], 0);
	assert_int_equal(at[1], 0);
	assert_int_equal(at[2], 32);
	assert_int_equal(ebpf_map_slots(&m[0]), 0);
	assert_null(ebpf_map_lookup(&m[0], &key));
	assert_true(ebpf_map_read(&m[0], &key, value) < 0);
	assert_true(ebpf_map_clear(&m[0]) < 0);
}

static void locks_lie_in_values_of_gbpfd(void **state)
{
	struct ebpf_map_def d = map_def(GBPF_MAP_HASH, 4, 16, 10, DAEMON);

	d.lock_1 = 1 + 12;
	assert_int_equal(ebpf_map_check(&d), 0);
	d.lock_1 = 1 + 14;
	assert_int_equal(ebpf_map_check(&d), -EINVAL);
	d.lock_1 = 1 + 16;
	assert_int_equal(ebpf_map_check(&d), -EINVAL);
	d.lock_1 = 1;
	d.flags = TENANT;
	assert_int_equal(ebpf_map_check(&d), -EINVAL);
	d = map_def(GBPF_MAP_QUEUE, 0, 16, 10, DAEMON);
	d.lock_1 = 1;
	assert_int_equal(ebpf_map_check(&d), -EINVAL);
}

static void maps_of_all_gpus_are_of_gbpfd(void **state)
{
	const uint32_t all = DAEMON | (uint32_t)GBPF_F_ALL_GPUS;
	struct ebpf_map_def d[] = {
		map_def(GBPF_MAP_ARRAY, 4, 8, 10, DAEMON),
		map_def(GBPF_MAP_HASH, 4, 8, 10, all),
		map_def(GBPF_MAP_ARRAY, 4, 8, 10, all),
	};
	size_t bytes[EBPF_REGIONS];
	struct ebpf_map m[3];

	assert_int_equal(ebpf_maps_layout(d, 3, m, bytes), 0);
	assert_int_equal(m[0].region, EBPF_REGION_DAEMON);
	assert_int_equal(bytes[EBPF_REGION_DAEMON], 4096);
	assert_int_equal(m[1].region, EBPF_REGION_ALL_GPUS);
	assert_int_equal(m[1].region_offset, 0);
	assert_int_equal(m[2].region, EBPF_REGION_ALL_GPUS);
	assert_true(m[2].region_offset >= m[1].bytes);
	assert_int_equal(bytes[EBPF_REGION_GLOBAL] + bytes[EBPF_REGION_TENANT], 0);
	d[1].flags = GBPF_F_ALL_GPUS;
	assert_int_equal(ebpf_map_check(&d[1]), -EINVAL);
	d[1].flags = all | TENANT;
	assert_int_equal(ebpf_map_check(&d[1]), -EINVAL);
	d[2].flags = (uint32_t)GBPF_F_ALL_GPUS | (uint32_t)GBPF_F_EPOCH;
	assert_int_equal(ebpf_map_check(&d[2]), -EINVAL);
	d[0] = map_def(GBPF_MAP_RINGBUF, 0, 0, 4096, DAEMON);
	assert_int_equal(ebpf_map_check(&d[0]), 0);
	d[0].flags = all;
	assert_int_equal(ebpf_map_check(&d[0]), -EINVAL);
}

/* ---- hash ---- */

#define MODEL_KEYS 200u

struct model {
	uint8_t key[MODEL_KEYS][512];
	uint8_t value[MODEL_KEYS][128];
	uint8_t present[MODEL_KEYS];
	uint32_t n;
};

static void fill(uint8_t *to, uint32_t bytes, uint64_t *seed)
{
	for (uint32_t i = 0; i < bytes; i++) {
		to[i] = (uint8_t)test_random(seed);
	}
}

/* Keys differ in one place each, near the beginning or the end. */
static void model_init(struct model *md, uint32_t key_bytes, uint64_t *seed)
{
	memset(md, 0, sizeof(*md));
	fill(md->key[0], key_bytes, seed);
	for (uint32_t i = 1; i < MODEL_KEYS; i++) {
		memcpy(md->key[i], md->key[0], key_bytes);
		md->key[i][i % 2 ? key_bytes - 1 : 0] = (uint8_t)(md->key[0][0] + i);
		if (key_bytes > 1) {
			md->key[i][i % 2 ? 0 : key_bytes - 1] ^= (uint8_t)(i / 3);
		}
	}
}

static int duplicate(const struct model *md, uint32_t k, uint32_t key_bytes)
{
	for (uint32_t i = 0; i < k; i++) {
		if (memcmp(md->key[i], md->key[k], key_bytes) == 0) {
			return 1;
		}
	}
	return 0;
}

static int model_update(const struct model *md, const struct ebpf_map *m, uint32_t k,
			uint64_t flags)
{
	if (flags > 2) {
		return -EINVAL;
	}
	if (md->present[k]) {
		return flags == 1 ? -EEXIST : 0;
	}
	return flags == 2 ? -ENOENT : md->n == m->max_entries ? -E2BIG : 0;
}

static void model_compare(const struct model *md, const struct ebpf_map *m)
{
	uint8_t key[512], value[128];
	uint32_t seen = 0;

	for (uint32_t k = 0; k < MODEL_KEYS; k++) {
		void *at = ebpf_map_lookup(m, md->key[k]);

		if (duplicate(md, k, m->key_bytes)) {
			continue;
		}
		assert_int_equal(at != NULL, md->present[k]);
		if (at) {
			assert_memory_equal(at, md->value[k], m->value_bytes);
			assert_int_equal(ebpf_map_read(m, md->key[k], value), 0);
			assert_memory_equal(value, md->value[k], m->value_bytes);
		}
	}
	for (uint32_t s = 0; s < ebpf_map_slots(m); s++) {
		int there = ebpf_map_slot(m, s, key, value);
		uint32_t k = 0;

		if (!there) {
			continue;
		}
		assert_int_equal(there, 1);
		while (memcmp(md->key[k], key, m->key_bytes) != 0) {
			k++;
			assert_true(k < MODEL_KEYS);
		}
		assert_true(md->present[k]);
		assert_memory_equal(value, md->value[k], m->value_bytes);
		seen++;
	}
	assert_int_equal(seen, md->n);
	assert_int_equal(ebpf_map_count(m), md->n);
}

static void hash_like_model(uint32_t key_bytes, uint32_t value_bytes, uint32_t entries,
			    uint32_t flags)
{
	static struct model md;
	uint64_t seed = 88172645463325252u + key_bytes * 131 + value_bytes;
	struct one_map o;

	map_make(&o, map_def(GBPF_MAP_HASH, key_bytes, value_bytes, entries, flags));
	model_init(&md, key_bytes, &seed);
	for (uint32_t step = 0; step < 4000; step++) {
		uint32_t k = (uint32_t)test_random(&seed) % MODEL_KEYS, op = test_random(&seed) % 8;
		uint64_t how = test_random(&seed) % 4;
		uint8_t value[128];

		if (duplicate(&md, k, key_bytes)) {
			continue;
		}
		fill(value, value_bytes, &seed);
		if (op < 5) {
			int want = model_update(&md, &o.m, k, how);

			assert_int_equal(ebpf_map_update(&o.m, md.key[k], value, how), want);
			if (!want) {
				memcpy(md.value[k], value, value_bytes);
				md.n += !md.present[k];
				md.present[k] = 1;
			}
		} else {
			assert_int_equal(ebpf_map_delete(&o.m, md.key[k]),
					 md.present[k] ? 0 : -ENOENT);
			md.n -= md.present[k];
			md.present[k] = 0;
		}
		if (step % 500 == 0) {
			model_compare(&md, &o.m);
		}
	}
	model_compare(&md, &o.m);
	assert_int_equal(ebpf_map_clear(&o.m), 0);
	memset(md.present, 0, sizeof(md.present));
	md.n = 0;
	model_compare(&md, &o.m);
	map_drop(&o);
}

static void hash_tables_are_like_their_model(void **state)
{
	const uint32_t keys[] = { 1, 2, 3, 4, 5, 8, 12, 16, 60, 512 };
	const uint32_t values[] = { 1, 4, 7, 8, 24, 100 };

	for (size_t k = 0; k < ARRAY_SIZE(keys); k++) {
		hash_like_model(keys[k], values[k % ARRAY_SIZE(values)], 100, TENANT);
		hash_like_model(keys[k], values[(k + 2) % ARRAY_SIZE(values)], k == 3 ? 1 : 150, 0);
	}
}

static void a_large_table_takes_all_its_entries(void **state)
{
	struct one_map o;
	const uint32_t n = 100000;

	map_make(&o, map_def(GBPF_MAP_HASH, 4, 8, n, 0));
	for (uint32_t i = 0; i < n; i++) {
		uint32_t key = i * 4096;
		uint64_t value = i;

		assert_int_equal(ebpf_map_update(&o.m, &key, &value, 0), 0);
	}
	for (uint32_t i = 0; i < n; i++) {
		uint32_t key = i * 4096;
		uint64_t *at = ebpf_map_lookup(&o.m, &key);

		assert_non_null(at);
		assert_int_equal(*at, i);
	}
	assert_int_equal(ebpf_map_update(&o.m, &(uint32_t){ 7 }, &(uint64_t){ 7 }, 0), -E2BIG);
	for (uint32_t i = 0; i < n; i += 2) {
		assert_int_equal(ebpf_map_delete(&o.m, &(uint32_t){ i * 4096 }), 0);
	}
	for (uint32_t i = 0; i < n; i += 2) {
		assert_int_equal(
			ebpf_map_update(&o.m, &(uint32_t){ i * 4096 + 1 }, &(uint64_t){ 7 }, 0), 0);
	}
	assert_int_equal(ebpf_map_count(&o.m), n);
	map_drop(&o);
}

static void a_lock_in_a_value_stays_as_it_is(void **state)
{
	struct ebpf_map_def d = map_def(GBPF_MAP_HASH, 4, 16, 10, DAEMON);
	uint32_t value[4] = { 1, 2, 3, 4 }, *at;
	struct one_map o;

	d.lock_1 = 1 + 4;
	map_make(&o, d);
	assert_int_equal(ebpf_map_update(&o.m, value, value, 0), 0);
	at = ebpf_map_lookup(&o.m, value);
	assert_non_null(at);
	assert_int_equal(at[0] | at[1] << 4 | at[2] << 8 | at[3] << 12, 0x4301);
	at[1] = 1;
	value[2] = 5;
	value[3] = 6;
	assert_int_equal(ebpf_map_update(&o.m, value, value, 0), 0);
	assert_int_equal(at[0] | at[1] << 4 | at[2] << 8 | at[3] << 12, 0x6511);
	map_drop(&o);
}

static void a_full_lru_table_keeps_what_is_used(void **state)
{
	struct one_map o;
	const uint32_t n = 256;
	uint32_t kept = 0;

	map_make(&o, map_def(GBPF_MAP_LRU_HASH, 4, 8, n, TENANT));
	for (uint32_t i = 0; i < 20 * n; i++) {
		uint32_t key = i < 32 ? i : 1000 + i;
		uint64_t value = key;

		assert_int_equal(ebpf_map_update(&o.m, &key, &value, 0), 0);
		for (uint32_t used = 0; i % 8 == 0 && used < 32; used++) {
			(void)ebpf_map_lookup(&o.m, &used);
		}
		assert_non_null(ebpf_map_lookup(&o.m, &key));
	}
	for (uint32_t used = 0; used < 32; used++) {
		uint64_t *at = ebpf_map_lookup(&o.m, &used);

		assert_true(!at || *at == used);
		kept += at != NULL;
	}
	assert_true(kept >= 31);
	assert_int_equal(ebpf_map_count(&o.m), n);
	map_drop(&o);
}

static void a_read_only_table_is_looked_into(void **state)
{
	struct one_map o;

	map_make(&o, map_def(GBPF_MAP_LRU_HASH, 8, 8, 16, 0));
	for (uint64_t i = 0; i < 16; i++) {
		assert_int_equal(ebpf_map_update(&o.m, &i, &i, 0), 0);
	}
	assert_int_equal(mprotect(o.base, o.bytes, PROT_READ), 0);
	o.m.flags |= GBPF_F_RDONLY; /* as ebpf_policy_open does */
	for (uint64_t i = 0; i < 16; i++) {
		uint64_t *at = ebpf_map_lookup(&o.m, &i), key, value;

		assert_non_null(at);
		assert_int_equal(*at, i);
		assert_int_equal(ebpf_map_slot(&o.m, (uint32_t)i, &key, &value), 1);
		assert_int_equal(ebpf_map_update(&o.m, &i, &i, 0), -EPERM);
		assert_int_equal(ebpf_map_delete(&o.m, &i), -EPERM);
	}
	map_drop(&o);
}

/* ---- longest prefix match ---- */

struct prefix {
	uint32_t bits;
	uint8_t data[16];
};

static int has_prefix(const struct prefix *p, const uint8_t *data)
{
	for (uint32_t b = 0; b < p->bits; b++) {
		if ((p->data[b / 8] ^ data[b / 8]) >> (7 - b % 8) & 1) {
			return 0;
		}
	}
	return 1;
}

static int same_prefix(const struct prefix *a, const struct prefix *b)
{
	return a->bits == b->bits && has_prefix(a, b->data);
}

static void lpm_like_model(uint32_t data_bytes)
{
	struct prefix model[300];
	uint32_t value[300], n = 0;
	uint64_t seed = 4101842887655102017u + data_bytes;
	struct one_map o;

	map_make(&o, map_def(GBPF_MAP_LPM_TRIE, 4 + data_bytes, 4, 300, 0));
	for (uint32_t step = 0; step < 3000; step++) {
		struct prefix p = { .bits = (uint32_t)test_random(&seed) % (data_bytes * 8 + 1) };
		uint32_t v = (uint32_t)test_random(&seed), i = 0, best = UINT32_MAX, *at;

		for (uint32_t b = 0; b < data_bytes; b++) { /* few values, so that they collide */
			p.data[b] = (uint8_t)(test_random(&seed) % 3 * 85);
		}
		for (; i < n && !same_prefix(&model[i], &p); i++) {
		}
		switch (step % 3) {
		case 0:
			assert_int_equal(ebpf_map_update(&o.m, &p, &v, 0), i == 300 ? -E2BIG : 0);
			if (i < 300) {
				model[i] = p;
				value[i] = v;
				n = MAX(n, i + 1);
			}
			break;
		case 1:
			p.bits = data_bytes * 8;
			for (i = 0; i < n; i++) {
				if (has_prefix(&model[i], p.data) &&
				    (best == UINT32_MAX || model[i].bits > model[best].bits)) {
					best = i;
				}
			}
			at = ebpf_map_lookup(&o.m, &p);
			assert_int_equal(at != NULL, best != UINT32_MAX);
			if (at) {
				assert_int_equal(*at, value[best]);
			}
			break;
		default:
			if (step % 2) {
				assert_int_equal(ebpf_map_delete(&o.m, &p), i < n ? 0 : -ENOENT);
				if (i < n) {
					model[i] = model[--n];
					value[i] = value[n];
				}
			}
		}
	}
	assert_int_equal(ebpf_map_count(&o.m), n);
	map_drop(&o);
}

static void prefixes_match_like_their_model(void **state)
{
	lpm_like_model(1);
	lpm_like_model(4);
	lpm_like_model(16);
}

static void prefixes_beyond_the_key_are_refused(void **state)
{
	struct prefix p = { .bits = 33 };
	struct one_map o;

	map_make(&o, map_def(GBPF_MAP_LPM_TRIE, 8, 4, 300, 0));
	assert_int_equal(ebpf_map_update(&o.m, &p, &p.bits, 0), -EINVAL);
	assert_null(ebpf_map_lookup(&o.m, &p));
	assert_int_equal(ebpf_map_delete(&o.m, &p), -EINVAL);
	p.bits = 0; /* the default route */
	assert_int_equal(ebpf_map_update(&o.m, &p, &p.bits, 0), 0);
	p.bits = 32;
	assert_non_null(ebpf_map_lookup(&o.m, &p));
	map_drop(&o);
}

/* ---- queue and stack ---- */

static void queues_and_stacks_keep_their_order(void **state)
{
	const uint32_t sizes[] = { 1, 2, 3, 64, 100 }, values[] = { 4, 8, 40 };

	for (size_t c = 0; c < 2 * ARRAY_SIZE(sizes) * ARRAY_SIZE(values); c++) {
		uint32_t n = sizes[c / 2 % ARRAY_SIZE(sizes)], stack = c % 2;
		uint32_t bytes = values[c / 2 / ARRAY_SIZE(sizes)], count = 0;
		uint64_t seed = 1181783497276652981u + c, next = 1, model[100];
		struct one_map o;

		map_make(&o, map_def(stack ? GBPF_MAP_STACK : GBPF_MAP_QUEUE, 0, bytes, n, TENANT));
		for (uint32_t step = 0; step < 3000; step++) {
			uint64_t value[5] = { 0 }, what = test_random(&seed) % 5;
			uint32_t at = stack ? count - 1 : 0;

			if (what < 2 || (what == 2 && stack)) {
				value[0] = next;
				value[bytes / 8 ? bytes / 8 - 1 : 0] = next;
				assert_int_equal(ebpf_map_push(&o.m, value, 0),
						 count == n ? -E2BIG : 0);
				if (count < n) {
					model[count++] = next++;
				}
			} else if (what == 2) {
				value[0] = next;
				assert_int_equal(ebpf_map_push(&o.m, value, 2), 0);
				if (count == n) {
					memmove(model, model + 1, --count * sizeof(*model));
				}
				model[count++] = next++;
			} else {
				int pop = what == 3;

				assert_int_equal(pop ? ebpf_map_pop(&o.m, value)
						     : ebpf_map_peek(&o.m, value),
						 count ? 0 : -ENOENT);
				if (count) {
					assert_int_equal((uint32_t)value[0], (uint32_t)model[at]);
				}
				if (count && pop) {
					count--;
					memmove(model + at, model + at + 1,
						(count - at) * sizeof(*model));
				}
			}
			assert_int_equal(ebpf_map_count(&o.m), count);
		}
		for (uint32_t s = 0, k = 0; s < ebpf_map_slots(&o.m); s++) {
			uint64_t value[5] = { 0 };

			if (ebpf_map_slot(&o.m, s, NULL, value)) {
				assert_int_equal((uint32_t)value[0],
						 (uint32_t)model[stack ? count - 1 - k : k]);
				k++;
				assert_true(k <= count);
			}
		}
		assert_int_equal(ebpf_map_clear(&o.m), 0);
		assert_int_equal(ebpf_map_count(&o.m), 0);
		map_drop(&o);
	}
}

static void a_stack_does_not_drop_its_oldest(void **state)
{
	struct one_map o;

	map_make(&o, map_def(GBPF_MAP_STACK, 0, 8, 4, 0));
	assert_int_equal(ebpf_map_push(&o.m, &(uint64_t){ 1 }, 2), -EINVAL);
	map_drop(&o);
}

/* ---- histogram ---- */

static void histograms_count_powers_of_two(void **state)
{
	const struct {
		uint64_t value;
		uint32_t bucket;
	} cases[] = { { 0, 0 },
		      { 1, 1 },
		      { 2, 2 },
		      { 3, 2 },
		      { 4, 3 },
		      { 1u << 31, 32 },
		      { UINT64_C(1) << 61, 62 },
		      { UINT64_C(1) << 62, 63 },
		      { UINT64_MAX, 63 } };
	struct one_map o;
	uint64_t *row;

	map_make(&o, map_def(GBPF_MAP_HISTOGRAM, 4, 512, 3, TENANT));
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		assert_int_equal(ebpf_map_hist_add(&o.m, 2, cases[i].value), 0);
		row = ebpf_map_lookup(&o.m, &(uint32_t){ 2 });
		assert_int_equal(row[cases[i].bucket], i == 3 || i == 8 ? 2 : 1);
	}
	assert_int_equal(ebpf_map_hist_add(&o.m, 3, 1), -ENOENT);
	assert_null(ebpf_map_lookup(&o.m, &(uint32_t){ 3 }));
	assert_int_equal(ebpf_map_update(&o.m, &(uint32_t){ 0 }, row, 0), -EINVAL);
	assert_int_equal(ebpf_map_clear(&o.m), 0);
	assert_int_equal(row[63], 0);
	map_drop(&o);
}

/* ---- thread arrays ---- */

static struct one_map shared;
static pthread_barrier_t barrier;

static void *add_ones(void *arg)
{
	uint32_t key = 1;
	uint64_t *at;

	pthread_barrier_wait(&barrier); /* all at once, so that each has a slot of its own */
	at = ebpf_map_lookup(&shared.m, &key);
	for (int i = 0; i < 10000; i++) {
		*(volatile uint64_t *)at += 1;
	}
	pthread_barrier_wait(&barrier);
	return at;
}

static void each_thread_counts_for_itself(void **state)
{
	enum { THREADS = 8, ROUNDS = 3 };
	pthread_t t[THREADS];
	uint64_t value[2], *mine;

	map_make(&shared, map_def(GBPF_MAP_THREAD_ARRAY, 4, 16, 3, TENANT));
	pthread_barrier_init(&barrier, NULL, THREADS);
	mine = ebpf_map_lookup(&shared.m, &(uint32_t){ 1 });
	*mine = 5;
	for (int round = 0; round < ROUNDS; round++) {
		void *at[THREADS];

		for (int i = 0; i < THREADS; i++) {
			assert_int_equal(pthread_create(&t[i], NULL, add_ones, NULL), 0);
		}
		for (int i = 0; i < THREADS; i++) {
			pthread_join(t[i], &at[i]);
			for (int k = 0; k < i; k++) {
				assert_ptr_not_equal(at[i], at[k]);
			}
			assert_ptr_not_equal(at[i], mine);
		}
	}
	assert_int_equal(ebpf_map_read(&shared.m, &(uint32_t){ 1 }, value), 0);
	assert_int_equal(value[0], ROUNDS * THREADS * 10000 + 5);
	assert_int_equal(value[1], 0);
	assert_int_equal(ebpf_map_slot(&shared.m, 0, NULL, value), 1);
	assert_int_equal(value[0], 0);
	assert_null(ebpf_map_lookup(&shared.m, &(uint32_t){ 3 }));
	pthread_barrier_destroy(&barrier);
	map_drop(&shared);
}

/* The host reads a copy; only programs inside kernels look elements up. */
static void instances_of_places_are_summed(void **state)
{
	static const struct {
		uint32_t type, copies;
	} types[] = { { GBPF_MAP_SM_ARRAY, 256 }, { GBPF_MAP_WARP_ARRAY, 256 * 64 } };

	for (size_t k = 0; k < ARRAY_SIZE(types); k++) {
		uint64_t value[2];

		map_make(&shared, map_def(types[k].type, 4, 16, 9, GBPF_F_DEVICE));
		assert_int_equal(shared.m.copy_bytes, 256); /* 9 * 16, in lines of 128 bytes */
		assert_int_equal(ebpf_map_copies(&shared.m), types[k].copies);
		for (uint32_t c = 0; c < types[k].copies; c++) {
			uint64_t *at = (uint64_t *)(void *)(shared.m.data + 256 * (size_t)c + 32);

			at[0] = c;
			at[1] = 1;
		}
		assert_int_equal(ebpf_map_read(&shared.m, &(uint32_t){ 2 }, value), 0);
		assert_int_equal(value[0], (uint64_t)types[k].copies * (types[k].copies - 1) / 2);
		assert_int_equal(value[1], types[k].copies);
		assert_int_equal(ebpf_map_slot(&shared.m, 1, NULL, value), 1);
		assert_int_equal(value[0], 0);
		assert_int_equal(ebpf_map_read(&shared.m, &(uint32_t){ 9 }, value), -ENOENT);
		assert_null(ebpf_map_lookup(&shared.m, &(uint32_t){ 2 }));
		assert_int_equal(ebpf_map_update(&shared.m, &(uint32_t){ 2 }, value, 0), -EINVAL);
		assert_int_equal(ebpf_map_clear(&shared.m), 0);
		assert_int_equal(ebpf_map_read(&shared.m, &(uint32_t){ 2 }, value), 0);
		assert_int_equal(value[1], 0);
		map_drop(&shared);
	}
}

/* Stores a value as the GPU does: the number is taken from the counter. */
static void push_to(uint32_t ring, uint64_t a, uint64_t b)
{
	const struct ebpf_map *m = &shared.m;
	uint64_t *end = (uint64_t *)(void *)(m->data + (size_t)ring * m->copy_bytes);
	uint64_t *at = (uint64_t *)(void *)((uint8_t *)end + m->elem_off +
					    (*end % m->max_entries) * m->stride);

	at[1] = a;
	at[2] = b;
	at[0] = *end + 1 + a * EBPF_SM_RING_FACTOR(0) + b * EBPF_SM_RING_FACTOR(1);
	++*end;
}

static void a_reader_of_rings_counts_what_it_missed(void **state)
{
	uint64_t next = 0, missed = 0, value[2], *word;

	map_make(&shared, map_def(GBPF_MAP_SM_RING, 0, 16, 8, GBPF_F_DEVICE));
	assert_int_equal(ebpf_map_slots(&shared.m), 8 * 256);
	assert_int_equal(ebpf_sm_ring_next(&shared.m, 3, 0, &next, &missed, value), 0);
	for (uint64_t k = 0; k < 21; k++) {
		push_to(3, k, ~k);
	}
	assert_int_equal(ebpf_map_count(&shared.m), 8);
	for (uint64_t k = 13; k < 21; k++) {
		assert_int_equal(ebpf_sm_ring_next(&shared.m, 3, 0, &next, &missed, value), 1);
		assert_int_equal(value[0], k);
		assert_int_equal(value[1], ~k);
		assert_int_equal(ebpf_map_slot(&shared.m, 24 + (uint32_t)k - 13, NULL, value), 1);
		assert_int_equal(value[0], k);
	}
	assert_int_equal(ebpf_sm_ring_next(&shared.m, 3, 1, &next, &missed, value), 0);
	assert_int_equal(missed, 13);
	assert_int_equal(ebpf_map_slot(&shared.m, 23, NULL, value), 0);
	assert_int_equal(ebpf_map_slot(&shared.m, 32, NULL, value), 0);
	/* a value that is not whole stops the reader until it gives up */
	push_to(3, 100, 1);
	push_to(3, 101, 1);
	word = (uint64_t *)(void *)(shared.m.data + 3 * (size_t)shared.m.copy_bytes +
				    shared.m.elem_off + 21 % 8 * shared.m.stride);
	word[2] = 2;
	assert_int_equal(ebpf_sm_ring_next(&shared.m, 3, 0, &next, &missed, value), 0);
	assert_int_equal(next, 21);
	assert_int_equal(ebpf_sm_ring_next(&shared.m, 3, 1, &next, &missed, value), 1);
	assert_int_equal(value[0], 101);
	assert_int_equal(missed, 14);
	/* an older value with the right check for its own number is not taken for the newer one */
	push_to(3, 7, 7);
	word = (uint64_t *)(void *)(shared.m.data + 3 * (size_t)shared.m.copy_bytes);
	*word += 8;
	next = 31;
	assert_int_equal(ebpf_sm_ring_next(&shared.m, 3, 0, &next, &missed, value), 0);
	/* the counter went backwards */
	next = 1000;
	assert_int_equal(ebpf_sm_ring_next(&shared.m, 3, 1, &next, &missed, value), 0);
	assert_int_equal(next, 32);
	assert_int_equal(missed, 14);
	assert_int_equal(ebpf_map_clear(&shared.m), 0);
	assert_int_equal(ebpf_map_count(&shared.m), 0);
	assert_int_equal(ebpf_map_push(&shared.m, value, 0), -EINVAL);
	map_drop(&shared);
}

static void *take_and_add(void *arg)
{
	uint64_t *at = ebpf_map_lookup(&shared.m, &(uint32_t){ 0 });

	pthread_barrier_wait(&barrier);
	__atomic_fetch_add(at, 1, __ATOMIC_RELAXED);
	pthread_barrier_wait(&barrier);
	return NULL;
}

static void more_threads_than_slots_share_the_last(void **state)
{
	enum { THREADS = EBPF_THREAD_SLOTS + 20 };
	pthread_t t[THREADS];
	uint64_t value[2];

	map_make(&shared, map_def(GBPF_MAP_THREAD_ARRAY, 4, 16, 3, TENANT));
	pthread_barrier_init(&barrier, NULL, THREADS);
	for (int i = 0; i < THREADS; i++) {
		assert_int_equal(pthread_create(&t[i], NULL, take_and_add, NULL), 0);
	}
	for (int i = 0; i < THREADS; i++) {
		pthread_join(t[i], NULL);
	}
	assert_int_equal(ebpf_map_read(&shared.m, &(uint32_t){ 0 }, value), 0);
	assert_int_equal(value[0], THREADS);
	pthread_barrier_destroy(&barrier);
	map_drop(&shared);
}

/* ---- epochs ---- */

static uint64_t seen(const struct ebpf_map *m, uint32_t index)
{
	uint64_t *at = ebpf_map_lookup(m, &index);

	return at ? *at : UINT64_MAX;
}

static void an_epoch_is_seen_as_a_whole(void **state)
{
	struct ebpf_map_def d[2] = { map_def(GBPF_MAP_ARRAY, 4, 8, 100, EPOCH),
				     map_def(GBPF_MAP_ARRAY, 4, 8, 3, EPOCH) };
	size_t bytes[EBPF_REGIONS];
	struct ebpf_map w[2], r[2];
	uint64_t *word;
	void *base;

	assert_int_equal(ebpf_maps_layout(d, 2, w, bytes), 0);
	base = calloc(1, bytes[EBPF_REGION_GLOBAL]);
	ebpf_maps_bind(w, 2, EBPF_REGION_GLOBAL, base);
	memcpy(r, w, sizeof(r));
	r[0].flags |= GBPF_F_RDONLY; /* another process */
	r[1].flags |= GBPF_F_RDONLY;
	word = ebpf_maps_epoch(w, 2);
	assert_ptr_equal(word, base);
	for (uint64_t e = 0; e < 50; e++) {
		uint64_t latched = *word;

		/* one map by helper, the other by pointer, and not always both */
		ebpf_latch.epoch = latched + 2;
		assert_int_equal(ebpf_map_update(&w[0], &(uint32_t){ 99 }, &e, 0), 0);
		if (e % 7 == 0) {
			uint64_t *at = ebpf_map_lookup(&w[1], &(uint32_t){ 2 });

			*at = e;
		}
		ebpf_latch.epoch = latched + 1;
		assert_int_equal(seen(&r[0], 99), e ? e - 1 : 0);
		ebpf_latch.epoch = 0;
		assert_int_equal(ebpf_maps_publish(w, 2), latched + 1);
		ebpf_latch.epoch = latched + 1; /* a call that began before */
		assert_int_equal(seen(&r[0], 99), e ? e - 1 : 0);
		assert_int_equal(seen(&r[1], 2), e ? (e - 1) / 7 * 7 : 0);
		ebpf_latch.epoch = 0;
		assert_int_equal(seen(&r[0], 99), e);
		assert_int_equal(seen(&r[1], 2), e / 7 * 7);
		assert_int_equal(ebpf_map_update(&r[0], &(uint32_t){ 99 }, &e, 0), -EPERM);
	}
	assert_int_equal(ebpf_maps_publish(w, 2), 50); /* nothing was written */
	free(base);
}

static void an_old_epoch_outlives_two_publications(void **state)
{
	struct one_map o;

	map_make(&o, map_def(GBPF_MAP_ARRAY, 4, 8, 4, EPOCH));
	for (uint64_t e = 1; e <= 3; e++) {
		assert_int_equal(ebpf_map_update(&o.m, &(uint32_t){ 0 }, &e, 0), 0);
		assert_int_equal(ebpf_maps_publish(&o.m, 1), e);
		ebpf_latch.epoch = 1; /* epoch 0 */
		o.m.flags |= GBPF_F_RDONLY;
		assert_int_equal(seen(&o.m, 0), e < 3 ? 0 : 3); /* 3: written over, and found out */
		o.m.flags &= ~(uint32_t)GBPF_F_RDONLY;
		ebpf_latch.epoch = 0;
	}
	map_drop(&o);
}

/* ---- arrays of maps ---- */

static void members_of_an_array_of_maps_are_of_one_shape(void **state)
{
	struct ebpf_map_def d[] = { map_def(GBPF_MAP_ARRAY, 4, 8, 5, 0),
				    map_def(GBPF_MAP_ARRAY, 4, 8, 6, 0),
				    map_def(GBPF_MAP_ARRAY_OF_MAPS, 4, 4, 4, 0),
				    map_def(GBPF_MAP_ARRAY, 4, 8, 5, 0) };
	size_t bytes[EBPF_REGIONS];
	static struct ebpf_map m[EBPF_MAX_MAPS];
	uint8_t *base;

	d[2].inner_1 = 1 + 0;
	assert_int_equal(ebpf_maps_layout(d, 4, m, bytes), 0);
	base = calloc(1, bytes[EBPF_REGION_GLOBAL]);
	ebpf_maps_bind(m, 4, EBPF_REGION_GLOBAL, base);
	for (uint32_t i = 0; i < 4; i++) { /* 0: map 1; 1: map 2 (other size); 2: map 4; 3: none */
		*(uint32_t *)(void *)(m[2].data + i * m[2].stride) =
			(const uint32_t[]){ 1, 2, 4, 0 }[i];
	}
	assert_ptr_equal(ebpf_map_lookup(&m[2], &(uint32_t){ 0 }), &m[0]);
	assert_null(ebpf_map_lookup(&m[2], &(uint32_t){ 1 }));
	assert_ptr_equal(ebpf_map_lookup(&m[2], &(uint32_t){ 2 }), &m[3]);
	assert_null(ebpf_map_lookup(&m[2], &(uint32_t){ 3 }));
	assert_null(ebpf_map_lookup(&m[2], &(uint32_t){ 4 }));
	for (uint32_t i = 0; i < 100; i++) {
		*(uint32_t *)(void *)m[2].data = i * i * i * 77777u;
		(void)ebpf_map_lookup(&m[2], &(uint32_t){ 0 });
	}
	d[2].inner_1 = 1 + 4;
	assert_int_equal(ebpf_maps_layout(d, 4, m, bytes), -EINVAL);
	d[2].inner_1 = 1 + 2;
	assert_int_equal(ebpf_maps_layout(d, 4, m, bytes), -EINVAL);
	free(base);
}

/* ---- copies ---- */

static void add_some(const struct ebpf_map *m, uint32_t i)
{
	uint64_t key = (uint64_t)i << 32 | i, value[3] = { i, i + 1, i + 2 };

	switch (m->type) {
	case GBPF_MAP_QUEUE:
	case GBPF_MAP_STACK:
		assert_int_equal(ebpf_map_push(m, value, 0), 0);
		break;
	case GBPF_MAP_HISTOGRAM:
		assert_int_equal(ebpf_map_hist_add(m, i % 3, i), 0);
		break;
	case GBPF_MAP_LPM_TRIE:
		key -= i > 32 ? i : 0;
		FALLTHROUGH;
	default:
		(void)ebpf_map_update(m, &key, value, 0);
	}
}

static void copies_have_the_same_contents(void **state)
{
	const struct ebpf_map_def defs[] = { map_def(GBPF_MAP_ARRAY, 4, 8, 50, TENANT),
					     map_def(GBPF_MAP_ARRAY, 4, 12, 50, EPOCH),
					     map_def(GBPF_MAP_HASH, 8, 24, 50, 0),
					     map_def(GBPF_MAP_LRU_HASH, 4, 8, 50, TENANT),
					     map_def(GBPF_MAP_LPM_TRIE, 8, 8, 50, 0),
					     map_def(GBPF_MAP_QUEUE, 0, 16, 50, 0),
					     map_def(GBPF_MAP_STACK, 0, 16, 50, 0),
					     map_def(GBPF_MAP_HISTOGRAM, 4, 512, 3, TENANT),
					     map_def(GBPF_MAP_THREAD_ARRAY, 4, 8, 3, TENANT) };

	for (size_t c = 0; c < ARRAY_SIZE(defs); c++) {
		struct one_map a, b, other;
		struct ebpf_map_def longer = defs[c];

		print_message("type %u\n", defs[c].type);
		map_make(&a, defs[c]);
		map_make(&b, defs[c]);
		longer.max_entries++;
		map_make(&other, longer);
		for (uint32_t i = 0; i < 40; i++) {
			add_some(&a.m, i);
		}
		(void)ebpf_maps_publish(&a.m, 1);
		assert_int_equal(ebpf_map_copy(&other.m, &a.m), -EINVAL);
		assert_int_equal(ebpf_map_copy(&b.m, &a.m), 0);
		assert_int_equal(ebpf_map_count(&b.m), ebpf_map_count(&a.m));
		for (uint32_t s = 0; s < ebpf_map_slots(&a.m); s++) {
			uint8_t k1[8] = { 0 }, v1[512] = { 0 }, v2[512] = { 0 };

			if (!ebpf_map_slot(&a.m, s, k1, v1)) {
				continue;
			}
			if (a.m.key_bytes) {
				assert_int_equal(ebpf_map_read(&b.m, k1, v2), 0);
			} else {
				assert_int_equal(ebpf_map_slot(&b.m, s, NULL, v2), 1);
			}
			assert_memory_equal(v1, v2, sizeof(v1));
		}
		map_drop(&a);
		map_drop(&b);
		map_drop(&other);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(definitions_without_sense_are_refused),
		cmocka_unit_test(maps_in_host_memory_are_the_last_of_their_region),
		cmocka_unit_test(maps_on_the_gpu_are_the_first_of_their_region),
		cmocka_unit_test(maps_in_shared_memory_take_no_memory),
		cmocka_unit_test(locks_lie_in_values_of_gbpfd),
		cmocka_unit_test(maps_of_all_gpus_are_of_gbpfd),
		cmocka_unit_test(hash_tables_are_like_their_model),
		cmocka_unit_test(a_large_table_takes_all_its_entries),
		cmocka_unit_test(a_lock_in_a_value_stays_as_it_is),
		cmocka_unit_test(a_full_lru_table_keeps_what_is_used),
		cmocka_unit_test(a_read_only_table_is_looked_into),
		cmocka_unit_test(prefixes_match_like_their_model),
		cmocka_unit_test(prefixes_beyond_the_key_are_refused),
		cmocka_unit_test(queues_and_stacks_keep_their_order),
		cmocka_unit_test(a_stack_does_not_drop_its_oldest),
		cmocka_unit_test(histograms_count_powers_of_two),
		cmocka_unit_test(each_thread_counts_for_itself),
		cmocka_unit_test(instances_of_places_are_summed),
		cmocka_unit_test(a_reader_of_rings_counts_what_it_missed),
		cmocka_unit_test(more_threads_than_slots_share_the_last),
		cmocka_unit_test(an_epoch_is_seen_as_a_whole),
		cmocka_unit_test(an_old_epoch_outlives_two_publications),
		cmocka_unit_test(members_of_an_array_of_maps_are_of_one_shape),
		cmocka_unit_test(copies_have_the_same_contents),
	};

	return cmocka_run_group_tests_name("maps", tests, NULL, NULL);
}
