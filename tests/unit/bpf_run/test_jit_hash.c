/* Hash tables in memory of the GPU: programs inside kernels change them by instructions, in many
 * warps at once, and the host reads them. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "asm.h"
#include "base/compiler.h"
#include "bpf/run/map/map_bucket.h"
#include "bpf/run/map/map_seed.h"
#include "ptx_engine.h"

#define GBPF_CONST(name, value, doc) enum { name = value };
#define GBPF_DEVICE_HOOK(id, name, budget, doc) enum { HOOK_##name = id };
#include "gbpf/hooks.def"

#define CTX_BYTES 256u
#define BLOCK_AT 24u /* offset of the field `block`: here the number of the thread's warp */
#define LANE_AT 92u
#define ACTIVE_AT 96u

static struct asm_unit unit;
static struct test_env t;

/* Map 0: 8 bytes for each thread and program; map 1: the table. */
static void make(uint32_t type, uint32_t key_bytes, uint32_t value_bytes, uint32_t entries)
{
	const uint64_t seed[2] = { UINT64_C(0x0123456789abcdef), UINT64_C(0xfedcba9876543210) };

	test_env_init(&t);
	test_env_add(&t, "out", 65536, 1, 0, 1);
	test_env_add(&t, "table", value_bytes, entries, 0, 0);
	t.defs[1].type = type;
	t.defs[1].key_bytes = key_bytes;
	t.defs[1].flags = (uint32_t)GBPF_F_DEVICE;
	assert_int_equal(test_env_bind(&t), 0);
	memcpy(t.env.maps[1].data + EBPF_BUCKET_SEED, seed, sizeof(seed));
	ebpf_map_at(&t.env.maps[1], &t.env.maps[1], t.mem[EBPF_REGION_TENANT]);
}

static const struct ebpf_map *table(void)
{
	return &t.env.maps[1];
}

/* Runs a program in lane 0 of some warps, or in all lanes. */
static void run(const char *program, unsigned threads, int lanes)
{
	uint8_t *ctx = calloc(threads, CTX_BYTES);
	uint64_t *ret = calloc(threads, sizeof(*ret));
	struct ptx_batch b;
	struct report r;

	assert_non_null(ctx);
	assert_non_null(ret);
	for (unsigned k = 0; k < threads; k++) {
		uint64_t warp = k / 32;
		uint32_t lane = k % 32, active = UINT32_MAX;

		memcpy(ctx + (size_t)k * CTX_BYTES + BLOCK_AT, &warp, 8);
		memcpy(ctx + (size_t)k * CTX_BYTES + LANE_AT, &lane, 4);
		memcpy(ctx + (size_t)k * CTX_BYTES + ACTIVE_AT, &active, 4);
	}
	if (asm_text(&unit, program) < 0) {
		fail_msg("%s: %s", program, unit.error);
	}
	report_init(&r);
	ptx_batch_begin(&b);
	if (ptx_batch_add_device(&b, unit.insns, unit.n, &t.env, HOOK_gdev_access, lanes, &r)) {
		fail_msg("%s: %s", buf_text(&r.place), buf_text(&r.message));
	}
	report_finish(&r);
	ptx_batch_run(&b, &t, ctx, (size_t)threads * CTX_BYTES, CTX_BYTES, threads, ret);
	free(ret);
	free(ctx);
}

static int64_t out(unsigned i)
{
	int64_t v;

	memcpy(&v, t.env.maps[0].data + 8 * (size_t)i, 8);
	return v;
}

/* Returns the first word of a key's value as the host reads it, or -1. */
static int64_t value_of(const void *key)
{
	uint64_t value[EBPF_BUCKET_MAX_VALUE / 8] = { 0 };

	return ebpf_map_read(table(), key, value) ? -1 : (int64_t)value[0];
}

static int64_t value_of_number(uint64_t key)
{
	return value_of(&key);
}

/* Fails if a slot is still claimed. */
static void check_claims(void)
{
	for (uint32_t b = 0; b < table()->n_slots; b++) {
		uint64_t word;

		memcpy(&word, table()->data + table()->head_off + b * (size_t)EBPF_BUCKET_BYTES, 8);
		assert_int_equal(word >> EBPF_BUCKET_SLOTS & EBPF_BUCKET_ALL, 0);
	}
}

/* Fails if a key is in the table twice, or a slot still claimed. Returns the number of keys. */
static uint32_t count(void)
{
	uint32_t n = 0, slots = ebpf_map_slots(table());
	uint8_t key[EBPF_BUCKET_MAX_KEY], value[EBPF_BUCKET_MAX_VALUE];

	for (uint32_t s = 0; s < slots; s++) {
		if (ebpf_map_slot(table(), s, key, value) == 1) {
			const uint8_t *at = ebpf_map_lookup(table(), key);

			n++;
			assert_non_null(at);
			assert_ptr_equal(at, table()->data + table()->elem_off +
						     (size_t)s * table()->stride +
						     table()->value_off);
		}
	}
	assert_int_equal(ebpf_map_count(table()), n);
	check_claims();
	return n;
}

#define LANE_0 "ldxw r6, [r1+92]; jne r6, 0, out; "
#define OUT " out:; mov r0, 0; exit"
#define KEY "mov r2, r10; add r2, -8; ldmap r1, 1; "
#define VALUE "mov r3, r10; add r3, -16; "
#define KEEP(n) "ldval r3, 0, " #n "; stxdw [r3], r0; "

static void one_thread_finds_what_it_stores(void **state)
{
	const uint64_t key = 77;

	make(GBPF_MAP_HASH, 8, 8, 100);
	run(LANE_0 "stdw [r10-8], 77; stdw [r10-16], 5; " KEY "call 1; " KEEP(0) KEY VALUE
	    "mov r4, 2; call 2; " KEEP(8)	     /* EXIST: not there */
	    KEY VALUE "mov r4, 1; call 2; " KEEP(16) /* NOEXIST */
	    KEY VALUE "mov r4, 1; call 2; " KEEP(24) /* again */
	    "stdw [r10-16], 6; " KEY VALUE "mov r4, 0; call 2; " KEEP(32) KEY
	    "call 1; jeq r0, 0, out; ldxdw r0, [r0]; " KEEP(40) "stdw [r10-16], 7; " KEY VALUE
								"mov r4, 2; call 2; " KEEP(48) KEY
	    "call 1; jeq r0, 0, out; ldxdw r0, [r0]; " KEEP(56) KEY "call 3; " KEEP(64) KEY
	    "call 3; " KEEP(72) KEY "call 1; " KEEP(80) KEY VALUE "mov r4, 3; call 2; " KEEP(88) KEY
	    "mov r3, 9; call 1120; " KEEP(96) KEY "mov r3, 4; call 1120; " KEEP(104) OUT,
	    1, 0);
	assert_int_equal(out(0), 0);
	assert_int_equal(out(1), -ENOENT);
	assert_int_equal(out(2), 0);
	assert_int_equal(out(3), -EEXIST);
	assert_int_equal(out(4), 0);
	assert_int_equal(out(5), 6);
	assert_int_equal(out(6), 0);
	assert_int_equal(out(7), 7);
	assert_int_equal(out(8), 0);
	assert_int_equal(out(9), -ENOENT);
	assert_int_equal(out(10), 0);
	assert_int_equal(out(11), -EINVAL);
	assert_int_equal(t.env.helper_errors, 1);
	assert_int_equal(out(12), 0);
	assert_int_equal(out(13), 0);
	assert_int_equal(value_of(&key), 13);
	assert_int_equal(count(), 1);
	test_env_finish(&t);
}

/* The host computes the same bucket and compares the same bytes for keys of any size. */
static void the_host_finds_keys_of_any_size(void **state)
{
	static const uint32_t sizes[] = { 1, 2, 3, 4, 5, 8, 12, 16, 24, 64 };

	for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
		uint8_t key[64];

		make(GBPF_MAP_HASH, sizes[i], sizes[i] < 8 ? 12 : 24, 200);
		run(LANE_0 "ldxdw r7, [r1+24]; mov r8, 0x01010101; lsh r8, 8; mov r6, 64; "
			   "mov r9, r10; fill:; add r9, -8; stxdw [r9], r8; sub r6, 8; "
			   "jne r6, 0, fill; stxb [r10-64], r7; stxdw [r10-96], r7; "
			   "stdw [r10-88], 5; stdw [r10-80], 6; mov r2, r10; add r2, -64; "
			   "mov r3, r10; add r3, -96; ldmap r1, 1; mov r4, 1; call 2; "
			   "jeq r0, 0, out; mov r1, 0; mov r2, 1; call 1003;" OUT,
		    32 * 100, 0);
		assert_int_equal(t.env.notes[0], 0);
		assert_int_equal(count(), 100);
		for (unsigned k = 0; k < 100; k++) {
			uint64_t fill = UINT64_C(0x01010101) << 8;

			for (unsigned at = 0; at < 64; at += 8) {
				memcpy(key + at, &fill, 8);
			}
			key[0] = (uint8_t)k;
			assert_int_equal(value_of(key), k);
		}
		test_env_finish(&t);
	}
}

static void additions_of_all_warps_are_counted(void **state)
{
	make(GBPF_MAP_HASH, 8, 16, 64);
	run(LANE_0 "ldxdw r6, [r1+24]; mov r7, r6; and r6, 15; stxdw [r10-8], r6; add r7, 1; " KEY
		   "mov r3, r7; call 1120; jeq r0, 0, out; mov r1, 0; mov r2, 1; call 1003;" OUT,
	    32 * 512, 0);
	assert_int_equal(t.env.notes[0], 0);
	assert_int_equal(count(), 16);
	for (unsigned k = 0; k < 16; k++) {
		assert_int_equal(value_of_number(k), 32 * (k + 1) + 16 * (31 * 32 / 2));
	}
	assert_int_equal(ebpf_bucket_dropped(table()), 0);
	test_env_finish(&t);
}

/* All lanes of a warp insert different keys at once: a lane either stores its key or says that it
 * did not. */
static void lanes_that_run_apart_lose_nothing_silently(void **state)
{
	uint64_t missing;

	make(GBPF_MAP_HASH, 8, 8, 2048);
	run("ldxdw r6, [r1+24]; lsh r6, 5; ldxw r7, [r1+92]; or r6, r7; stxdw [r10-8], r6; "
	    "stxdw [r10-16], r6; " KEY VALUE "mov r4, 1; call 2; jeq r0, 0, out; "
	    "mov r1, 0; mov r2, 1; call 1003;" OUT,
	    2048, 0);
	missing = t.env.notes[0];
	assert_true(missing < 64);
	assert_int_equal(count(), 2048 - missing);
	for (unsigned k = 0; k < 2048; k++) {
		missing -= value_of_number(k) == -1;
		assert_true(value_of_number(k) == -1 || value_of_number(k) == k);
	}
	assert_int_equal(missing, 0);
	test_env_finish(&t);
}

/* All lanes of all warps insert one key. As a slot of the bucket is being written all the time,
 * they do not wait for each other long: some claim slots that they do not need. */
static void one_key_of_all_lanes_is_counted(void **state)
{
	const uint64_t busy = UINT64_C(1) << (2 * EBPF_BUCKET_SLOTS - 1);
	uint64_t word = busy;

	make(GBPF_MAP_HASH, 8, 8, 8);
	memcpy(table()->data + table()->head_off, &word, 8);
	run("stdw [r10-8], 5; " KEY "mov r3, 1; call 1120; jeq r0, 0, out; "
	    "mov r1, 0; mov r2, 1; call 1003;" OUT,
	    2048, 0);
	memcpy(&word, table()->data + table()->head_off, 8);
	assert_true(word & busy);
	word -= busy;
	memcpy(table()->data + table()->head_off, &word, 8);
	assert_int_equal(count(), 1);
	assert_int_equal((uint64_t)value_of_number(5) + t.env.notes[0], 2048);
	assert_true(t.env.notes[0] < 64);
	test_env_finish(&t);
}

static void keys_come_and_go_in_all_warps(void **state)
{
	make(GBPF_MAP_HASH, 4, 8, 64);
	/* insert, find and delete one of 8 keys, 64 times; insertions and deletions are noted */
	run(LANE_0
	    "ldxdw r8, [r1+24]; mov r9, 64; again:; mov r6, r8; add r6, r9; and r6, 7; "
	    "stxw [r10-8], r6; stxdw [r10-16], r6; " KEY VALUE "mov r4, 1; call 2; "
	    "jne r0, 0, there; mov r1, 0; mov r2, 1; call 1003; there:; " KEY
	    "call 1; jeq r0, 0, gone; ldxdw r7, [r0]; mov r1, 2; mov r2, 1; jeq r7, r6, note; "
	    "mov r1, 3; note:; call 1003; gone:; " KEY "call 3; jne r0, 0, kept; "
	    "mov r1, 1; mov r2, 1; call 1003; kept:; sub r9, 1; jne r9, 0, again;" OUT,
	    32 * 64, 0);
	assert_true(t.env.notes[0] >= 8);
	assert_int_equal(t.env.notes[0] - t.env.notes[1], count());
	assert_true(t.env.notes[2] > 0);
	assert_int_equal(ebpf_bucket_dropped(table()), 0);
	test_env_finish(&t);
}

#define INSERT_OWN                                                                                 \
	LANE_0 "ldxdw r6, [r1+24]; stxdw [r10-8], r6; stxdw [r10-16], r6; " KEY VALUE              \
	       "mov r4, 0; call 2; jeq r0, 0, out; mov r1, 0; mov r2, 1; call 1003;" OUT

static void a_full_table_drops_and_counts(void **state)
{
	make(GBPF_MAP_HASH, 8, 8, 8); /* one bucket */
	run(INSERT_OWN, 32 * 40, 0);
	assert_int_equal(count(), EBPF_BUCKET_SLOTS);
	assert_int_equal(t.env.notes[0], 40 - EBPF_BUCKET_SLOTS);
	assert_int_equal(ebpf_bucket_dropped(table()), 40 - EBPF_BUCKET_SLOTS);
	assert_int_equal(ebpf_map_clear(table()), 0);
	assert_int_equal(count(), 0);
	assert_int_equal(ebpf_bucket_dropped(table()), 0);
	test_env_finish(&t);
}

static void an_lru_table_keeps_what_is_used(void **state)
{
	uint64_t zero = 0;

	make(GBPF_MAP_LRU_HASH, 8, 8, 8);
	/* one warp inserts 1..99 and uses 0 after each */
	run(LANE_0 "mov r6, 0; again:; stxdw [r10-8], r6; stxdw [r10-16], r6; " KEY VALUE
		   "mov r4, 0; call 2; jeq r0, 0, good; mov r1, 0; mov r2, 1; call 1003; good:; "
		   "stdw [r10-8], 0; " KEY "call 1; jne r0, 0, used; mov r1, 1; mov r2, 1; "
		   "call 1003; used:; add r6, 1; jlt r6, 100, again;" OUT,
	    1, 0);
	assert_int_equal(t.env.notes[0], 0);
	assert_int_equal(t.env.notes[1], 0);
	assert_int_equal(value_of(&zero), 0);
	assert_int_equal(value_of_number(99), 99);
	assert_int_equal(count(), EBPF_BUCKET_SLOTS);
	assert_int_equal(ebpf_bucket_dropped(table()), 0);
	test_env_finish(&t);
}

static void an_lru_table_takes_the_keys_of_all_warps(void **state)
{
	make(GBPF_MAP_LRU_HASH, 8, 8, 64);
	run(INSERT_OWN, 32 * 1000, 0);
	assert_int_equal(t.env.notes[0], ebpf_bucket_dropped(table()));
	assert_true(t.env.notes[0] < 100);
	assert_true(count() > 64);
	for (unsigned k = 0; k < 1000; k++) {
		assert_true(value_of_number(k) == -1 || value_of_number(k) == k);
	}
	test_env_finish(&t);
}

/* One lane acts for all, and all get its result. */
static void lanes_add_together(void **state)
{
	make(GBPF_MAP_HASH, 8, 8, 64);
	run("ldxdw r6, [r1+24]; and r6, 3; stxdw [r10-8], r6; ldxw r7, [r1+92]; " KEY
	    "mov r3, r7; call 1120; mov r1, 0; mov r2, r0; call 1003; "
	    "add r6, 100; stxdw [r10-8], r6; stxdw [r10-16], r6; " KEY VALUE
	    "mov r4, 0; call 2; mov r1, 0; mov r2, r0; call 1003; " KEY
	    "call 3; add r0, 3; mov r1, 1; mov r2, r0; call 1003;" OUT,
	    32 * 64, 1);
	assert_int_equal(t.env.notes[0], 0);
	assert_int_equal(count(), 4 + ebpf_map_count(table()) - 4);
	for (unsigned k = 0; k < 4; k++) {
		assert_int_equal(value_of_number(k), 16 * (31 * 32 / 2));
	}
	/* each deletion is one warp's: 32 lanes note 3, or 1 where another warp was first */
	assert_int_equal(t.env.notes[1] % 32, 0);
	test_env_finish(&t);
}

static void tables_of_contexts_are_added_key_by_key(void **state)
{
	struct ebpf_map sum;
	uint8_t *mem;

	make(GBPF_MAP_HASH, 8, 16, 64);
	run(LANE_0 "ldxdw r6, [r1+24]; stxdw [r10-8], r6; add r6, 1; " KEY
		   "mov r3, r6; call 1120;" OUT,
	    32 * 20, 0);
	mem = calloc(1, t.bytes[EBPF_REGION_TENANT]);
	assert_non_null(mem);
	ebpf_map_at(&sum, table(), mem); /* its seed is another one */
	ebpf_bucket_add(&sum, table());
	ebpf_bucket_add(&sum, table());
	for (uint64_t k = 0; k < 20; k++) {
		uint64_t value[2] = { 0 };

		assert_int_equal(ebpf_map_read(&sum, &k, value), 0);
		assert_int_equal(value[0], 2 * (k + 1));
		assert_int_equal(value[1], 0);
	}
	assert_int_equal(ebpf_map_count(&sum), 20);
	free(mem);
	test_env_finish(&t);
}

/* The host reads memory that a tenant has filled at random. */
static void any_memory_can_be_read(void **state)
{
	uint8_t key[8], value[8];

	make(GBPF_MAP_LRU_HASH, 8, 8, 100);
	srand(1);
	for (unsigned round = 0; round < 20; round++) {
		for (uint32_t i = 0; i < table()->bytes; i++) {
			table()->data[i] = (uint8_t)rand();
		}
		ebpf_map_at(&t.env.maps[1], &t.env.maps[1], t.mem[EBPF_REGION_TENANT]);
		for (uint32_t s = 0; s < ebpf_map_slots(table()); s++) {
			if (ebpf_map_slot(table(), s, key, value) == 1) {
				(void)ebpf_map_read(table(), key, value);
			}
		}
	}
	test_env_finish(&t);
}

static void only_known_tables_are_changed(void **state)
{
	static const char *const programs[] = { KEY "call 3; mov r0, 0; exit",
						KEY "mov r3, 1; call 1120; mov r0, 0; exit" };

	make(GBPF_MAP_HASH, 8, 4, 64);
	t.env.maps[1].type = GBPF_MAP_ARRAY;
	t.env.maps[1].ops = ebpf_map_type_of(GBPF_MAP_ARRAY);
	for (size_t i = 0; i < ARRAY_SIZE(programs); i++) {
		struct ptx_batch b;

		assert_true(asm_text(&unit, programs[i]) >= 0);
		ptx_batch_begin(&b);
		assert_int_equal(ptx_batch_add_device(&b, unit.insns, unit.n, &t.env,
						      HOOK_gdev_enter, 0, NULL),
				 -ENOTSUP);
		ptx_batch_finish(&b);
	}
	test_env_finish(&t);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(one_thread_finds_what_it_stores),
		cmocka_unit_test(the_host_finds_keys_of_any_size),
		cmocka_unit_test(additions_of_all_warps_are_counted),
		cmocka_unit_test(lanes_that_run_apart_lose_nothing_silently),
		cmocka_unit_test(one_key_of_all_lanes_is_counted),
		cmocka_unit_test(keys_come_and_go_in_all_warps),
		cmocka_unit_test(a_full_table_drops_and_counts),
		cmocka_unit_test(an_lru_table_keeps_what_is_used),
		cmocka_unit_test(an_lru_table_takes_the_keys_of_all_warps),
		cmocka_unit_test(lanes_add_together),
		cmocka_unit_test(tables_of_contexts_are_added_key_by_key),
		cmocka_unit_test(any_memory_can_be_read),
		cmocka_unit_test(only_known_tables_are_changed),
	};

	if (argc == 3 && strcmp(argv[1], "--keep-ptx") == 0) {
		ptx_folder = argv[2];
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
