/* Maps in memory that a hostile process overwrites: no operation accesses memory outside the map
 * (which the sanitizer detects, because the allocation ends where the map ends), and each ends. */
#include "map_env.h"

#include <pthread.h>

#include "base/atomic.h"
#include "base/compiler.h"
#include "bpf/run/map/map_sm_ring.h"
#include "bpf/run/map/ring.h"

static const struct ebpf_map_def defs[] = {
	{ .name = "hash4",
	  .type = GBPF_MAP_HASH,
	  .key_bytes = 4,
	  .value_bytes = 8,
	  .max_entries = 50 },
	{ .name = "hash16",
	  .type = GBPF_MAP_HASH,
	  .key_bytes = 16,
	  .value_bytes = 100,
	  .max_entries = 300 },
	{ .name = "hash1",
	  .type = GBPF_MAP_HASH,
	  .key_bytes = 8,
	  .value_bytes = 1,
	  .max_entries = 1 },
	{ .name = "lru",
	  .type = GBPF_MAP_LRU_HASH,
	  .key_bytes = 8,
	  .value_bytes = 8,
	  .max_entries = 100 },
	{ .name = "lpm",
	  .type = GBPF_MAP_LPM_TRIE,
	  .key_bytes = 8,
	  .value_bytes = 8,
	  .max_entries = 70 },
	{ .name = "lpm256",
	  .type = GBPF_MAP_LPM_TRIE,
	  .key_bytes = 260,
	  .value_bytes = 4,
	  .max_entries = 9 },
	{ .name = "queue", .type = GBPF_MAP_QUEUE, .value_bytes = 24, .max_entries = 40 },
	{ .name = "stack", .type = GBPF_MAP_STACK, .value_bytes = 8, .max_entries = 300 },
	{ .name = "ring", .type = GBPF_MAP_RINGBUF, .max_entries = 4096, .flags = TENANT },
	{ .name = "hist",
	  .type = GBPF_MAP_HISTOGRAM,
	  .key_bytes = 4,
	  .value_bytes = 512,
	  .max_entries = 3 },
	{ .name = "thread",
	  .type = GBPF_MAP_THREAD_ARRAY,
	  .key_bytes = 4,
	  .value_bytes = 8,
	  .max_entries = 3,
	  .flags = TENANT },
	{ .name = "sm",
	  .type = GBPF_MAP_SM_ARRAY,
	  .key_bytes = 4,
	  .value_bytes = 8,
	  .max_entries = 3,
	  .flags = GBPF_F_DEVICE },
	{ .name = "pinned",
	  .type = GBPF_MAP_LRU_HASH,
	  .key_bytes = 8,
	  .value_bytes = 16,
	  .max_entries = 40,
	  .flags = (uint32_t)GBPF_F_DEVICE | (uint32_t)GBPF_F_HOST },
	{ .name = "smring",
	  .type = GBPF_MAP_SM_RING,
	  .value_bytes = 16,
	  .max_entries = 4,
	  .flags = GBPF_F_DEVICE },
};

struct place {
	struct ebpf_map m;
	uint8_t *base;
	size_t words;
};

static void make(struct place *p, const struct ebpf_map_def *d)
{
	size_t bytes[EBPF_REGIONS];

	assert_int_equal(ebpf_maps_layout(d, 1, &p->m, bytes), 0);
	p->words = (p->m.bytes + 7) / 8;
	p->base = aligned_alloc(64, ROUND_UP(p->m.bytes, 64u));
	memset(p->base, 0, p->m.bytes);
	ebpf_maps_bind(&p->m, 1, (enum ebpf_region)p->m.region, p->base);
}

/* A word such as the algorithms use: indices, states and positions that are nearly right. */
static uint64_t evil(uint64_t *seed)
{
	uint64_t v = test_random(seed);

	switch (test_random(seed) % 5) {
	case 0:
		return v;
	case 1: /* state, small next, small tag */
		return v % 6 | v / 6 % 400 << 3 | (v >> 40) % 4 << 23;
	case 2: /* queue place or ring header */
		return v % 64 | v / 64 % 100 << 20;
	case 3:
		return v % 8 ? 0 : UINT64_MAX;
	default:
		return v >> 40;
	}
}

static void one_operation(const struct ebpf_map *m, uint64_t *seed)
{
	static __thread struct ebpf_ring_reader r;
	static __thread uint8_t out[1024];
	uint64_t key[70] = { 0 }, value[70] = { 0 };
	void *at;

	key[0] = test_random(seed) % 200;
	key[1] = 0;
	if (m->type == GBPF_MAP_LPM_TRIE) {
		key[0] = test_random(seed) % ((m->key_bytes - 4) * 8 + 3) | key[0] << 32;
	}
	switch (test_random(seed) % 12) {
	case 0:
	case 1:
		at = ebpf_map_lookup(m, key);
		if (at) {
			assert_true((uint8_t *)at >= m->data &&
				    (uint8_t *)at + m->value_bytes <= m->data + m->bytes);
			memset(at, 0x5a, m->value_bytes);
		}
		break;
	case 2:
	case 3:
		(void)ebpf_map_update(m, key, value, test_random(seed) % 3);
		break;
	case 4:
		(void)ebpf_map_delete(m, key);
		break;
	case 5:
		(void)ebpf_map_push(m, value, test_random(seed) % 3);
		break;
	case 6:
		(void)ebpf_map_pop(m, value);
		(void)ebpf_map_peek(m, value);
		break;
	case 7:
		(void)ebpf_map_hist_add(m, (uint32_t)key[0] % 4, key[0]);
		break;
	case 8:
		(void)ebpf_map_slot(m, (uint32_t)(test_random(seed) % (ebpf_map_slots(m) + 2)), key,
				    out);
		break;
	case 9:
		if (m->type == GBPF_MAP_RINGBUF) {
			at = ebpf_ring_reserve(m, 1 + test_random(seed) % 2048);
			assert_true(!at || (uint8_t *)at + 32 <= m->data + m->bytes);
			(void)(at ? ebpf_ring_finish(m, at, (int)(key[0] & 1)) : 0);
			(void)ebpf_ring_output(m, out, 1 + test_random(seed) % 200);
		}
		break;
	case 10:
		if (m->type == GBPF_MAP_RINGBUF) {
			(void)ebpf_ring_read(m, &r, out, sizeof(out), key[0] << 30,
					     (int)(key[0] & 1));
		}
		if (m->type == GBPF_MAP_SM_RING) {
			uint64_t missed = 0;

			key[0] = evil(seed);
			(void)ebpf_sm_ring_next(m, (uint32_t)key[0] % EBPF_SM_SLOTS,
						(int)(key[0] >> 8 & 1), &key[0], &missed, out);
		}
		break;
	default:
		if (test_random(seed) % 64 == 0) {
			(void)ebpf_map_count(m);
			(void)ebpf_map_clear(m);
		}
	}
}

static void random_memory_does_no_harm(void **state)
{
	uint64_t seed = 0x1234567;

	for (size_t d = 0; d < ARRAY_SIZE(defs); d++) {
		struct place p;

		print_message("%s\n", defs[d].name);
		make(&p, &defs[d]);
		for (int round = 0; round < 60; round++) {
			for (size_t w = 0; w < p.words; w++) { /* the last word may be cut short */
				if (w * 8 + 8 <= p.m.bytes) {
					((uint64_t *)(void *)p.base)[w] = evil(&seed);
				}
			}
			for (int op = 0; op < 300; op++) {
				one_operation(&p.m, &seed);
			}
		}
		free(p.base);
	}
}

static void maps_with_some_wrong_words_do_no_harm(void **state)
{
	uint64_t seed = 0x7654321;

	for (size_t d = 0; d < ARRAY_SIZE(defs); d++) {
		struct place p;

		make(&p, &defs[d]);
		for (int op = 0; op < 20000; op++) {
			one_operation(&p.m, &seed);
			if (op % 16 == 0) {
				size_t w = test_random(&seed) % (p.m.bytes / 8);

				((uint64_t *)(void *)p.base)[w] = evil(&seed);
			}
		}
		free(p.base);
	}
}

static struct place target;
static uint32_t stop;

static void *scribble(void *arg)
{
	uint64_t seed = 31337;

	while (!load_relaxed(&stop)) {
		size_t w = test_random(&seed) % (target.m.bytes / 8);

		store_relaxed((uint64_t *)(void *)target.base + w, evil(&seed));
	}
	return NULL;
}

/* Runs the operations of gbpfd on a tenant's map while the tenant writes random data to it. */
static void memory_that_changes_meanwhile_does_no_harm(void **state)
{
	uint64_t seed = 0xabcdef;

	for (size_t d = 0; d < ARRAY_SIZE(defs); d++) {
		pthread_t t;

		make(&target, &defs[d]);
		store_relaxed(&stop, 0u);
		assert_int_equal(pthread_create(&t, NULL, scribble, NULL), 0);
		for (int op = 0; op < 10000; op++) {
			one_operation(&target.m, &seed);
		}
		store_relaxed(&stop, 1u);
		pthread_join(t, NULL);
		free(target.base);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(random_memory_does_no_harm),
		cmocka_unit_test(maps_with_some_wrong_words_do_no_harm),
		cmocka_unit_test(memory_that_changes_meanwhile_does_no_harm),
	};

	return cmocka_run_group_tests_name("hostile maps", tests, NULL, NULL);
}
