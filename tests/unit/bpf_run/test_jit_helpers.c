/* Helpers of programs inside kernels: each gives what a model in C gives, also when thousands of
 * threads call it. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "asm.h"
#include "base/compiler.h"
#include "bpf/load/jit/ptx/jit_ptx.h"
#include "bpf/run/map/map.h"
#include "bpf/run/map/map_sm_ring.h"
#include "bpf/run/printk.h"
#include "ptx_engine.h"

#define GBPF_CONST(name, value, doc) enum { name = value };
#define GBPF_MAP_TYPE(id, name, ops, doc) enum { GBPF_MAP_##name = id };
#define GBPF_DEVICE_HOOK(id, name, budget, doc) enum { HOOK_##name = id };
#include "gbpf/hooks.def"

typedef uint64_t u64;
typedef int64_t s64;
typedef uint32_t u32;
typedef int32_t s32;

#define GBPF_DEVICE_HOOK(id, name, budget, doc)
#define GBPF_CTX_BEGIN(hook) struct ctx_##hook {
#define GBPF_CTX(hook, type, name, access, doc) type name;
#define GBPF_CTX_END(hook)                                                                         \
	}                                                                                          \
	;
#include "gbpf/hooks.def"

#define THREADS 1024u
#define SEED UINT64_C(0x68656c7065727301)

static struct asm_unit unit;
static struct test_env t;
static struct ctx_gdev_enter ctx[THREADS];
static uint64_t rng;

static uint64_t rnd(void)
{
	uint64_t z = rng += UINT64_C(0x9e3779b97f4a7c15);

	z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
	return z ^ z >> 31;
}

enum { OUT, COUNTS, HIST, PAIRS, BY_SM, BY_WARP, RING, SMALL, LINES, BLOCKS, GPU_THREADS, TEXTS };

/* Map 0 has eight words for each thread. */
static uint64_t out(unsigned thread, unsigned word)
{
	uint64_t v;

	memcpy(&v, t.env.maps[OUT].data + (8 * (size_t)thread + word) * 8, 8);
	return v;
}

/* Runs a program in each thread; site is the number of the thread. control: of ptx_batch. */
static void run_controlled(const char *program, unsigned threads, int lane, const uint32_t *control)
{
	uint64_t *ret = calloc(threads, sizeof(*ret));
	struct ptx_batch b;
	struct report r;

	if (asm_text(&unit, program) < 0) {
		fail_msg("%s: %s", program, unit.error);
	}
	test_env_reset(&t);
	for (unsigned k = 0; k < threads; k++) {
		ctx[k].site = k;
	}
	report_init(&r);
	ptx_batch_begin(&b);
	b.control = control;
	b.print_map_1 = LINES + 1;
	if (ptx_batch_add_device(&b, unit.insns, unit.n, &t.env, HOOK_gdev_enter, lane, &r)) {
		fail_msg("%s: %s", buf_text(&r.place), buf_text(&r.message));
	}
	report_finish(&r);
	ptx_batch_run(&b, &t, (uint8_t *)ctx, sizeof(*ctx) * threads, sizeof(*ctx), threads, ret);
	free(ret);
}

static void run(const char *program, unsigned threads, int lane)
{
	run_controlled(program, threads, lane, NULL);
}

/* r6 = the place of the thread's eight words. Offsets of fields: clock 0, block 24, block_x 32 ...
 */
#define BEGIN "mov r9, r1; ldxw r6, [r9+104]; lsh r6, 6; ldval r7, 0, 0; add r6, r7;"
#define END "mov r0, 0; exit"

static void the_offsets_in_the_programs_are_right(void **state)
{
	assert_int_equal(offsetof(struct ctx_gdev_enter, site), 104);
	assert_int_equal(offsetof(struct ctx_gdev_enter, active), 96);
	assert_int_equal(offsetof(struct ctx_gdev_enter, block), 24);
	assert_int_equal(offsetof(struct ctx_gdev_enter, thread_x), 68);
}

static void fill(unsigned threads)
{
	for (unsigned k = 0; k < threads; k++) {
		uint32_t *words = (uint32_t *)&ctx[k];

		for (unsigned i = 0; i < sizeof(*ctx) / 4; i++) {
			words[i] = (uint32_t)rnd();
		}
	}
}

/* ---- indices ---- */

static void indices_are_the_fields_of_the_context(void **state)
{
	fill(64);
	run(BEGIN "mov r1, r6; mov r2, r6; add r2, 8; mov r3, r6; add r3, 16; call 503; "
		  "stxdw [r6+24], r0; call 509; stxdw [r6+32], r0; call 510; stxdw [r6+40], r0; "
		  "call 511; stxdw [r6+48], r0;" END,
	    64, 0);
	for (unsigned k = 0; k < 64; k++) {
		const struct ctx_gdev_enter *c = &ctx[k];
		const uint64_t expected[] = { c->block_x, c->block_y,	c->block_z, 0,
					      c->sm,	  c->warp_slot, c->lane };

		for (unsigned i = 0; i < ARRAY_SIZE(expected); i++) {
			assert_int_equal(out(k, i), expected[i]);
		}
	}
}

static void indices_may_be_stored_anywhere(void **state)
{
	static const struct {
		int helper;
		size_t offset;
	} all[] = { { 503, offsetof(struct ctx_gdev_enter, block_x) },
		    { 504, offsetof(struct ctx_gdev_enter, threads_x) },
		    { 505, offsetof(struct ctx_gdev_enter, thread_x) },
		    { 508, offsetof(struct ctx_gdev_enter, grid_x) } };

	fill(32);
	for (unsigned i = 0; i < ARRAY_SIZE(all); i++) {
		char program[512];

		/* unaligned places of the stack, in a function that receives no context */
		snprintf(program, sizeof(program),
			 BEGIN "mov r1, r6; callf f;" END
			       "; f:; mov r6, r1; mov r1, r10; add r1, -9; mov r2, r10; "
			       "add r2, -24; mov r3, r10; add r3, -35; call %d; "
			       "ldxdw r1, [r10-9]; stxdw [r6], r1; ldxdw r1, [r10-24]; "
			       "stxdw [r6+8], r1; ldxdw r1, [r10-35]; stxdw [r6+16], r1; exit",
			 all[i].helper);
		run(program, 32, 0);
		for (unsigned k = 0; k < 32; k++) {
			for (unsigned w = 0; w < 3; w++) {
				uint32_t expected;

				memcpy(&expected, (char *)&ctx[k] + all[i].offset + 4 * (size_t)w,
				       4);
				assert_int_equal(out(k, w), expected);
			}
		}
	}
}

/* ---- time and chance ---- */

static void clocks_run_forward(void **state)
{
	run(BEGIN "call 1100; mov r7, r0; call 502; stxdw [r6+8], r0; call 5; stxdw [r6+16], r0; "
		  "call 1100; sub r0, r7; stxdw [r6], r0;" END,
	    32, 0);
	for (unsigned k = 0; k < 32; k++) {
		assert_true((int64_t)out(k, 0) > 0);
		assert_true(out(k, 1) > 0 && out(k, 1) <= out(k, 2));
	}
}

static int order(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

static void random_numbers_differ_between_threads_and_calls(void **state)
{
	static uint64_t all[THREADS * 4];
	unsigned equal = 0, ones = 0;

	run(BEGIN "call 7; stxdw [r6], r0; call 7; stxdw [r6+8], r0; call 7; stxdw [r6+16], r0; "
		  "call 7; stxdw [r6+24], r0;" END,
	    THREADS, 0);
	assert_int_equal(t.env.random_state, 1); /* no thread writes it */
	for (unsigned k = 0; k < ARRAY_SIZE(all); k++) {
		all[k] = out(k / 4, k % 4);
		assert_true(all[k] <= UINT32_MAX);
		ones += (unsigned)__builtin_popcountll(all[k]);
	}
	qsort(all, ARRAY_SIZE(all), sizeof(*all), order);
	for (unsigned k = 1; k < ARRAY_SIZE(all); k++) {
		equal += all[k] == all[k - 1];
	}
	/* 4096 numbers of 32 bits: 0.002 equal pairs and 65536 ones are expected */
	assert_true(equal <= 2);
	assert_true(ones > 64000 && ones < 67000);
}

static uint64_t sampled(uint64_t block, uint32_t every)
{
	uint32_t h = (uint32_t)block * EBPF_PTX_SAMPLE_FACTOR;

	h = (h ^ h >> 16) * EBPF_PTX_SAMPLE_FACTOR;
	return every && ((uint64_t)h * every) >> 32 == 0;
}

static void about_one_block_of_each_interval_is_sampled(void **state)
{
	static const uint32_t intervals[] = { 0, 1, 2, 7, 8, 100, 1u << 31, UINT32_MAX };
	char program[256];

	for (unsigned i = 0; i < ARRAY_SIZE(intervals); i++) {
		uint32_t every = intervals[i], n = 0;

		for (unsigned k = 0; k < THREADS; k++) {
			ctx[k].block = (k % 2 ? UINT64_C(0x500000000) : 0) + k;
		}
		snprintf(program, sizeof(program),
			 BEGIN "lddw r1, 0x%llx; call 1101; stxdw [r6], r0;" END,
			 every | 0xabcdULL << 32);
		run(program, THREADS, 0);
		for (unsigned k = 0; k < THREADS; k++) {
			assert_int_equal(out(k, 0), sampled(ctx[k].block, every));
			n += (uint32_t)out(k, 0);
		}
		if (every && every <= 100) {
			assert_true(n >= THREADS / every * 2 / 3 &&
				    n <= THREADS / every * 3 / 2 + 2);
		}
	}
}

/* Each multiprocessor has a word of its own here. */
static void control_words_choose_blocks(void **state)
{
	static const uint32_t control[] = { 1, 0, 8, UINT32_MAX };

	for (unsigned k = 0; k < THREADS; k++) {
		ctx[k].block = (k % 2 ? UINT64_C(0x500000000) : 0) + k;
	}
	run_controlled(BEGIN "mov r1, 1; stxdw [r6], r1;" END, THREADS, 0, control);
	for (unsigned k = 0; k < THREADS; k++) {
		uint32_t every = control[k / PTX_BLOCK % 4];

		assert_int_equal(out(k, 0), sampled(ctx[k].block, every));
	}
}

/* Here the lanes of a warp are in different blocks, as if each had loaded another word: those that
 * are active run the program if it is chosen for one of them. */
static void lanes_agree_on_a_control_word(void **state)
{
	static const uint32_t control[] = { 40, 40, 40, 40 };
	unsigned with = 0, without = 0;

	for (unsigned k = 0; k < THREADS; k++) {
		ctx[k].block = k;
		ctx[k].active = k / 32 % 2 ? UINT32_MAX : 0x00ffff0f;
	}
	run_controlled(BEGIN "mov r1, 1; call 1106; stxdw [r6], r0;" END, THREADS, 1, control);
	for (unsigned w = 0; w < THREADS / 32; w++) {
		uint32_t active = ctx[w * 32].active, any = 0;

		for (unsigned k = 0; k < 32; k++) {
			any |= (active >> k & 1) && sampled(w * 32 + k, 40);
		}
		for (unsigned k = 0; k < 32; k++) {
			bool runs = any && active >> k & 1;

			assert_int_equal(out(w * 32 + k, 0),
					 runs ? (uint64_t)__builtin_popcount(active) : 0);
		}
		with += any;
		without += !any;
	}
	assert_true(with > 0 && without > 0);
}

/* ---- maps and counters ---- */

static void sums_of_all_threads_are_exact(void **state)
{
	uint64_t expected[5] = { 0 }, missing = 0;

	fill(THREADS);
	run(BEGIN "ldmap r1, 1; ldxw r2, [r9+32]; and r2, 7; ldxdw r3, [r9]; call 1102; "
		  "stxdw [r6], r0;" END,
	    THREADS, 0);
	for (unsigned k = 0; k < THREADS; k++) {
		unsigned index = ctx[k].block_x & 7;

		assert_int_equal(out(k, 0), index < 5 ? 0 : (uint64_t)-ENOENT);
		missing += index >= 5;
		if (index < 5) {
			expected[index] += ctx[k].clock;
		}
	}
	for (uint32_t i = 0; i < 5; i++) {
		assert_int_equal(*(uint64_t *)ebpf_map_lookup(&t.env.maps[COUNTS], &i),
				 expected[i]);
	}
	assert_int_equal(t.env.helper_errors, missing);
}

static void histograms_are_those_of_the_host(void **state)
{
	static uint64_t got[3 * 64];
	size_t bytes = 3 * 64 * 8;
	uint64_t missing = 0;

	fill(THREADS);
	for (unsigned k = 0; k < THREADS; k++) { /* values of every length, and the edges */
		ctx[k].clock = k < 130 ? (UINT64_C(1) << k / 2 % 64) - k % 2 : rnd() >> rnd() % 64;
	}
	run(BEGIN "ldmap r1, 2; ldxw r2, [r9+32]; and r2, 3; ldxdw r3, [r9]; call 1004; "
		  "stxdw [r6], r0;" END,
	    THREADS, 0);
	memcpy(got, t.env.maps[HIST].data, bytes);
	assert_int_equal(t.env.maps[HIST].stride, 512);
	for (unsigned k = 0; k < THREADS; k++) {
		missing += (ctx[k].block_x & 3) == 3;
		assert_int_equal((int64_t)out(k, 0), (ctx[k].block_x & 3) == 3 ? -ENOENT : 0);
	}
	assert_int_equal(t.env.helper_errors, missing);
	memset(t.env.maps[HIST].data, 0, bytes);
	for (unsigned k = 0; k < THREADS; k++) {
		(void)ebpf_map_hist_add(&t.env.maps[HIST], ctx[k].block_x & 3, ctx[k].clock);
	}
	assert_memory_equal(got, t.env.maps[HIST].data, bytes);
}

static void operations_on_other_maps_are_errors(void **state)
{
	run(BEGIN "ldmap r1, 2; mov r2, 0; mov r3, 1; call 1102; stxdw [r6], r0; "
		  "ldmap r1, 1; mov r2, 0; mov r3, 1; call 1004; stxdw [r6+8], r0; "
		  "ldmap r1, 3; mov r2, 0; mov r3, 1; call 1102; stxdw [r6+16], r0;" END,
	    32, 0);
	assert_int_equal((int64_t)out(5, 0), -EINVAL);
	assert_int_equal((int64_t)out(5, 1), -EINVAL);
	assert_int_equal((int64_t)out(5, 2), -EINVAL); /* values of 4 bytes */
	assert_int_equal(t.env.helper_errors, 3 * 32);
}

static void notes_of_all_threads_add_up(void **state)
{
	run(BEGIN "ldxw r1, [r9+104]; and r1, 31; mov r2, 3; call 1003;" END, THREADS, 0);
	for (unsigned i = 0; i < EBPF_NOTES; i++) {
		assert_int_equal(t.env.notes[i], 3 * THREADS / 32);
	}
	assert_int_equal(t.env.helper_errors, THREADS / 2);
}

static void values_of_a_looked_up_histogram_are_counters(void **state)
{
	/* on a stack in memory, with a handle in another register */
	run(BEGIN "stw [r10-4], 1; mov r2, r10; add r2, -4; ldmap r7, 2; mov r1, r7; call 1; "
		  "jne r0, 0, good; mov r0, 0; exit; good:; mov r1, 2; aadd64 [r0+24], r1;" END,
	    THREADS, 0);
	assert_int_equal(((uint64_t *)(void *)t.env.maps[HIST].data)[64 + 3], 2 * THREADS);
}

static uint64_t word_of(unsigned map, unsigned copy, unsigned index, unsigned word)
{
	const struct ebpf_map *m = &t.env.maps[map];
	uint64_t v;

	memcpy(&v, m->data + (size_t)copy * m->copy_bytes + (size_t)index * m->stride + 8 * word,
	       8);
	return v;
}

/* Block i of 4 warps runs on multiprocessor i % 4. The first word is counted by the helper, the
 * second through a pointer, and by an update in the last element. */
static void each_place_counts_in_its_own_instance(void **state)
{
	const unsigned each = THREADS / 4, warp = THREADS / 16;

	for (unsigned map = BY_SM; map <= BY_WARP; map++) {
		unsigned copies = ebpf_map_copies(&t.env.maps[map]);
		char program[512];
		uint64_t sum[2];

		snprintf(program, sizeof(program),
			 BEGIN "ldmap r1, %u; mov r2, 3; mov r3, 2; call 1102; stxdw [r6], r0; "
			       "ldmap r1, %u; mov r2, 5; mov r3, 2; call 1102; stxdw [r6+8], r0; "
			       "stw [r10-4], 3; mov r2, r10; add r2, -4; ldmap r1, %u; call 1; "
			       "jeq r0, 0, out; mov r1, 7; aadd64 [r0+8], r1; out:; "
			       "stw [r10-4], 4; stdw [r10-24], 11; stdw [r10-16], 12; "
			       "mov r2, r10; add r2, -4; mov r3, r10; add r3, -24; mov r4, 0; "
			       "ldmap r1, %u; call 2; stxdw [r6+16], r0;" END,
			 map, map, map, map);
		run(program, THREADS, 0);
		assert_int_equal((int64_t)out(9, 0), 0);
		assert_int_equal((int64_t)out(9, 1), -ENOENT);
		assert_int_equal((int64_t)out(9, 2), 0);
		for (unsigned c = 0; c < copies; c++) {
			unsigned n = map == BY_SM		? c < 4 ? each : 0
				     : c / 64 < 4 && c % 64 < 4 ? warp
								: 0;

			assert_int_equal(word_of(map, c, 3, 0), 2 * n);
			assert_int_equal(word_of(map, c, 3, 1), 7 * n);
			assert_int_equal(word_of(map, c, 2, 0), 0);
			assert_int_equal(word_of(map, c, 4, 0), n ? 11 : 0);
			assert_int_equal(word_of(map, c, 4, 1), n ? 12 : 0);
		}
		assert_int_equal(ebpf_map_read(&t.env.maps[map], &(uint32_t){ 3 }, sum), 0);
		assert_int_equal(sum[0], 2 * THREADS);
		assert_int_equal(sum[1], 7 * THREADS);
	}
}

/* Each of the four multiprocessors in use pushes values of THREADS / 4 threads. */
static void pushed(unsigned map, unsigned kept)
{
	static uint8_t seen[THREADS];
	uint64_t value[3], all = 0;
	unsigned n = 0;

	memset(seen, 0, sizeof(seen));
	for (uint32_t ring = 0; ring < EBPF_SM_SLOTS; ring++) {
		uint64_t next = 0, missed = 0;

		while (ebpf_sm_ring_next(&t.env.maps[map], ring, 0, &next, &missed, value)) {
			assert_true(value[0] < THREADS && !seen[value[0]]);
			assert_int_equal(value[0] / PTX_BLOCK % 4, ring);
			assert_int_equal(value[1], ctx[value[0]].clock);
			assert_int_equal(value[2], ctx[value[0]].block);
			seen[value[0]] = 1;
			n++;
		}
		assert_int_equal(missed, ring < 4 ? THREADS / 4 - kept : 0);
		assert_int_equal(next, ring < 4 ? THREADS / 4 : 0);
		all += missed;
	}
	assert_int_equal(n, 4 * kept);
	assert_int_equal(n + all, THREADS);
	assert_int_equal(ebpf_map_count(&t.env.maps[map]), n);
}

static void rings_keep_the_newest_values(void **state)
{
	/* the value is aligned, and not */
	static const int places[] = { -24, -27 };

	fill(THREADS);
	for (unsigned map = RING; map <= SMALL; map++) {
		for (unsigned k = 0; k < ARRAY_SIZE(places); k++) {
			int at = places[k];
			char program[512];

			snprintf(program, sizeof(program),
				 BEGIN
				 "ldxw r1, [r9+104]; stxdw [r10%d], r1; ldxdw r1, [r9]; "
				 "stxdw [r10%d], r1; ldxdw r1, [r9+24]; stxdw [r10%d], r1; "
				 "mov r2, r10; add r2, %d; mov r3, %u; ldmap r1, %u; call 87; "
				 "stxdw [r6], r0;" END,
				 at, at + 8, at + 16, at, 2 * k, map);
			run(program, THREADS, 0);
			assert_int_equal((int64_t)out(7, 0), 0);
			assert_int_equal(t.env.helper_errors, 0);
			pushed(map, map == RING ? THREADS / 4 : 64);
		}
	}
	run(BEGIN "stdw [r10-24], 1; stdw [r10-16], 1; stdw [r10-8], 1; mov r2, r10; add r2, -24; "
		  "mov r3, 1; ldmap r1, 6; call 87; stxdw [r6], r0;" END,
	    64, 0);
	assert_int_equal((int64_t)out(7, 0), -EINVAL);
	assert_int_equal(t.env.helper_errors, 64);
	assert_int_equal(ebpf_map_count(&t.env.maps[RING]), 0);
}

/* Runs a program in which each thread submits its number, the clock and the block to a ring. */
static void submits(const char *begin, const char *rest)
{
	fill(THREADS);
	for (unsigned map = RING; map <= SMALL; map++) {
		char text[1024];

		snprintf(text, sizeof(text), BEGIN "mov r0, 0; ldmap r1, %u; %s%s", map, begin,
			 rest);
		run(text, THREADS, 0);
		assert_int_equal((int64_t)out(7, 0), 0);
		assert_int_equal(t.env.helper_errors, 0);
		pushed(map, map == RING ? THREADS / 4 : 64);
	}
}

#define RESERVE "mov r2, 24; mov r3, 0; call 131; mov r8, r0; jeq r8, 0, out; "
#define FILL                                                                                       \
	"ldxw r1, [r9+104]; stxdw [r8], r1; ldxdw r1, [r9]; stxdw [r8+8], r1; ldxdw r1, [r9+24]; " \
	"stxw [r8+16], r1; rsh r1, 32; stxw [r8+20], r1; "
#define SUBMIT "mov r1, r8; mov r2, 0; call 132; "

static void records_are_pushed_when_they_are_submitted(void **state)
{
	/* one of another ring, in registers, that is dropped; the next begins with zeros */
	submits(RESERVE FILL SUBMIT "ldmap r1, 6; " RESERVE FILL
				    "mov r1, r8; mov r2, 0; call 133; ldmap r1, 7; ",
		RESERVE "ldxdw r1, [r8]; ldxdw r2, [r8+8]; or r1, r2; ldxdw r2, [r8+16]; "
			"or r1, r2; stxdw [r6], r1; mov r1, r8; mov r2, 0; call 133; "
			"out:;" END);
}

static void records_may_be_in_memory(void **state)
{
	/* a function fills it; the stack and the record are apart; an unknown place of it */
	submits(RESERVE "stdw [r10-512], 77; mov r1, r8; mov r2, r9; callf f; "
			"ldxdw r1, [r10-512]; sub r1, 77; stxdw [r6], r1; " SUBMIT,
		"out:;" END "; f:; mov r8, r1; mov r9, r2; " FILL "mov r0, 0; exit");
	submits(RESERVE FILL, "ldxw r1, [r9+104]; and r1, 16; mov r2, r8; add r2, r1; "
			      "ldxdw r3, [r2]; stxdw [r2], r3; " SUBMIT "out:;" END);
}

static void records_of_two_calls_meet(void **state)
{
	submits("ldxw r7, [r9+104]; and r7, 1; jeq r7, 0, even; " RESERVE FILL
		"ja send; even:; " RESERVE FILL,
		"send:; " SUBMIT "out:;" END);
}

static void flags_of_a_record_are_errors(void **state)
{
	run(BEGIN "ldmap r1, 6; mov r2, 24; mov r3, 1; call 131; mov r7, 5; jeq r0, 0, null; "
		  "mov r1, r0; mov r2, 0; call 133; mov r7, 6; null:; stxdw [r6], r7;" END,
	    64, 0);
	assert_int_equal(out(7, 0), 5);
	assert_int_equal(t.env.helper_errors, 64);
	assert_int_equal(ebpf_map_count(&t.env.maps[RING]), 0);
}

/* ---- values of blocks and threads ---- */

/* Grids of 6 x 4 blocks with 4 x 2 x 3 threads, and more. */
static void fill_places(void)
{
	for (unsigned k = 0; k < THREADS; k++) {
		unsigned in_block = k % 24;

		ctx[k].block = k / 24;
		ctx[k].threads_x = 4;
		ctx[k].threads_y = 2;
		ctx[k].threads_z = 3;
		ctx[k].thread_x = in_block % 4;
		ctx[k].thread_y = in_block / 4 % 2;
		ctx[k].thread_z = in_block / 8;
	}
	ctx[THREADS - 1].block = UINT64_C(1) << 32;
}

static void blocks_and_threads_have_values_of_their_own(void **state)
{
	for (unsigned map = BLOCKS; map <= GPU_THREADS; map++) {
		uint32_t max = t.defs[map].max_entries;
		uint64_t beyond = 0;
		char program[512];

		fill_places();
		snprintf(program, sizeof(program),
			 BEGIN "stw [r10-4], 0; mov r2, r10; add r2, -4; ldmap r1, %u; call 1; "
			       "mov r7, 1; jeq r0, 0, out; mov r7, 2; ldxw r2, [r9+104]; "
			       "stxdw [r0], r2; mov r2, 3; aadd64 [r0+8], r2; out:; "
			       "stxdw [r6], r7;" END,
			 map);
		run(program, THREADS, 0);
		for (unsigned k = 0; k < THREADS; k++) {
			uint64_t at = map == BLOCKS ? ctx[k].block : ctx[k].block * 24 + k % 24;

			assert_int_equal(out(k, 0), at < max ? 2 : 1);
			beyond += at >= max;
			if (at < max) {
				uint64_t who = word_of(map, 0, (unsigned)at, 0);

				assert_int_equal(map == BLOCKS ? who / 24 : who,
						 map == BLOCKS ? ctx[k].block : k);
				assert_int_equal(word_of(map, 0, (unsigned)at, 1),
						 map == BLOCKS ? 3 * 24 : 3);
			}
		}
		assert_true(beyond > 0);
		assert_int_equal(ebpf_array_dropped(&t.env.maps[map]), beyond);
		assert_int_equal(t.env.helper_errors, 0);
	}
}

static void another_key_has_no_value(void **state)
{
	fill_places();
	run(BEGIN
	    "stw [r10-4], 1; mov r2, r10; add r2, -4; ldmap r1, 9; call 1; stxdw [r6], r0;" END,
	    32, 0);
	assert_int_equal(out(3, 0), 0);
	assert_int_equal(ebpf_array_dropped(&t.env.maps[BLOCKS]), 0);
}

/* ---- lines ---- */

/* Returns how many lines there are, after comparing each with what its thread printed: its number
 * and, if there are two, the clock. */
static unsigned lines_are_right(uint32_t fmt, int two)
{
	static uint8_t seen[THREADS];
	struct ebpf_print_record r;
	unsigned n = 0;

	memset(seen, 0, sizeof(seen));
	for (uint32_t ring = 0; ring < EBPF_SM_SLOTS; ring++) {
		uint64_t next = 0, missed = 0;

		while (ebpf_sm_ring_next(&t.env.maps[LINES], ring, 0, &next, &missed, &r)) {
			uint64_t k = r.args[0];

			assert_true(k < THREADS && !seen[k]);
			seen[k] = 1;
			assert_int_equal(r.fmt, (uint64_t)TEXTS << 32 | fmt);
			assert_true(r.time > 0);
			assert_int_equal(r.kernel, ctx[k].kernel);
			assert_int_equal(r.block, ctx[k].block);
			assert_int_equal(r.lane, (uint64_t)ctx[k].warp << 32 | ctx[k].lane);
			assert_int_equal(r.args[1], two ? ctx[k].clock : 0);
			for (unsigned a = 2; a < EBPF_PRINT_ARGS; a++) {
				assert_int_equal(r.args[a], 0);
			}
			n++;
		}
		assert_int_equal(missed, 0);
	}
	return n;
}

static void lines_are_records_of_numbers(void **state)
{
	fill(THREADS);
	/* in registers; then at an unaligned place of memory, in a function without the context */
	run(BEGIN "ldxw r1, [r9+104]; stxdw [r10-24], r1; ldxdw r1, [r9]; stxdw [r10-16], r1; "
		  "stdw [r10-8], 0; ldval r1, 11, 5; mov r2, 9; mov r3, r10; add r3, -24; "
		  "mov r4, 24; call 177; stxdw [r6], r0;" END,
	    THREADS, 0);
	assert_int_equal(lines_are_right(5, 1), THREADS);
	assert_int_equal(out(7, 0), 0);
	run(BEGIN "ldxw r1, [r9+104]; callf f;" END
		  "; f:; stxdw [r10-9], r1; ldval r1, 11, 0; mov r2, 9; mov r3, r10; "
		  "add r3, -9; mov r4, 8; call 177; mov r0, 0; exit",
	    THREADS, 0);
	assert_int_equal(lines_are_right(0, 0), THREADS);
	/* three values in registers, of which the last is 0 */
	run(BEGIN "ldxw r3, [r9+104]; ldxdw r4, [r9]; mov r5, 0; ldval r1, 11, 5; mov r2, 9; "
		  "call 6; stxdw [r6], r0;" END,
	    THREADS, 0);
	assert_int_equal(lines_are_right(5, 1), THREADS);
	assert_int_equal(out(7, 0), 0);
	assert_int_equal(t.env.helper_errors, 0);
}

/* The line has all three, and a sum of them: what nothing has written is undefined in PTX, and may
 * be another value each time it is read. */
static void registers_that_a_line_takes_are_defined(void **state)
{
	static const struct {
		const char *program;
		unsigned times; /* that each is defined */
	} cases[] = {
		{ "ldxw r3, [r1+104]; ldval r1, 11, 5; mov r2, 9; call 6; mov r0, 0; exit", 1 },
		{ "ldxw r1, [r1+104]; mov r2, 1; mov r3, 2; callf f; mov r0, 0; exit; "
		  "f:; ldval r1, 11, 5; mov r2, 9; call 6; mov r0, 0; exit",
		  1 },
		{ "ldxw r1, [r1+104]; mov r3, r1; mov r0, 0; exit", 0 },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct ptx_batch b;

		if (asm_text(&unit, cases[i].program) < 0) {
			fail_msg("%s: %s", cases[i].program, unit.error);
		}
		ptx_batch_begin(&b);
		b.print_map_1 = LINES + 1;
		assert_int_equal(ptx_batch_add_device(&b, unit.insns, unit.n, &t.env,
						      HOOK_gdev_enter, 0, NULL),
				 0);
		for (unsigned r = 3; r <= 5; r++) {
			char definition[24];
			unsigned n = 0;

			snprintf(definition, sizeof(definition), "\tmov.b64 %%r%u, 0;", r);
			for (const char *at = buf_text(&b.text); (at = strstr(at, definition));
			     at++) {
				n++;
			}
			assert_int_equal(n, cases[i].times);
		}
		ptx_batch_finish(&b);
	}
}

/* ---- warp-wide ---- */

static void model(uint32_t active, unsigned lane, const uint64_t *v, const uint32_t *from,
		  uint64_t ret[5])
{
	unsigned f = from[lane] & 31;

	ret[0] = 0;
	ret[1] = active >> f & 1 ? v[f] : v[lane];
	ret[2] = 0;
	ret[3] = UINT64_MAX;
	ret[4] = 0;
	for (unsigned k = 0; k < 32; k++) {
		if (active >> k & 1) {
			ret[0] |= (uint64_t)(v[k] % 3 != 0) << k;
			ret[2] += v[k];
			ret[3] = MIN(ret[3], v[k]);
			ret[4] = MAX(ret[4], v[k]);
		}
	}
}

static void warp_wide_helpers_combine_the_active_lanes(void **state)
{
	static const uint32_t masks[] = { UINT32_MAX, 1,	  1u << 31,  0xa5a5f00f,
					  0x7fffffff, 0x00018000, 0xfffffffe };

	for (unsigned m = 0; m < ARRAY_SIZE(masks); m++) {
		uint64_t v[32], expected[5];
		uint32_t from[32];

		fill(32);
		for (unsigned k = 0; k < 32; k++) {
			ctx[k].active = masks[m];
			ctx[k].clock = v[k] = m % 2 ? rnd() >> rnd() % 64 : rnd();
			from[k] = ctx[k].block_x;
		}
		run(BEGIN "ldxdw r8, [r9]; mov r1, r8; mod r1, 3; call 1104; stxdw [r6], r0; "
			  "mov r1, r8; ldxw r2, [r9+32]; call 1105; stxdw [r6+8], r0; "
			  "mov r1, r8; call 1106; stxdw [r6+16], r0; mov r1, r8; callf f; "
			  "stxdw [r6+24], r0; mov r1, r8; call 1108; stxdw [r6+32], r0;" END
			  "; f:; call 1107; exit",
		    32, 1);
		for (unsigned k = 0; k < 32; k++) {
			model(masks[m], k, v, from, expected);
			for (unsigned i = 0; i < 5; i++) {
				uint64_t e = masks[m] >> k & 1 ? expected[i] : 0;

				if (out(k, i) != e) {
					fail_msg("mask 0x%x, lane %u, helper %u: 0x%llx, not "
						 "0x%llx",
						 masks[m], k, 1104 + i,
						 (unsigned long long)out(k, i),
						 (unsigned long long)e);
				}
			}
		}
	}
}

/* ---- refusals ---- */

static int compiled(const char *program, int hook, int lane, const char *reason)
{
	struct ptx_batch b;
	struct report r;
	int err;

	if (asm_text(&unit, program) < 0) {
		fail_msg("%s: %s", program, unit.error);
	}
	report_init(&r);
	ptx_batch_begin(&b);
	b.print_map_1 = LINES + 1;
	err = ptx_batch_add_device(&b, unit.insns, unit.n, &t.env, hook, lane, &r);
	if (err && strcmp(buf_text(&r.message), reason) != 0) {
		fail_msg("%s: %s", program, buf_text(&r.message));
	}
	report_finish(&r);
	ptx_batch_finish(&b);
	return err;
}

static void helpers_of_other_places_are_refused(void **state)
{
	const char *warp = "no PTX for a warp-wide helper: one lane runs the program";
	char program[64], reason[64];

	for (int id = 1104; id <= 1108; id++) {
		snprintf(program, sizeof(program), "mov r1, 1; mov r2, 2; call %d; mov r0, 0; exit",
			 id);
		assert_int_equal(compiled(program, HOOK_gdev_enter, 1, ""), 0);
		assert_int_equal(compiled(program, HOOK_gdev_enter, 0, warp), -ENOTSUP);
	}
	for (unsigned i = 0; i < 4; i++) { /* a host's program; a tenant's class inside a kernel */
		static const int ids[] = { 509, 1100, 1104, 1001 };

		snprintf(program, sizeof(program), "mov r1, 1; call %d; mov r0, 0; exit", ids[i]);
		snprintf(reason, sizeof(reason), "no PTX for helper %d", ids[i]);
		assert_int_equal(compiled(program, i < 3 ? 0 : HOOK_gdev_enter, 1, reason),
				 -ENOTSUP);
	}
	assert_int_equal(compiled("mov r2, r10; stdw [r10-8], 1; add r2, -8; mov r3, 0; "
				  "ldmap r1, 1; call 87; mov r0, 0; exit",
				  HOOK_gdev_enter, 0,
				  "no PTX for bpf_map_push_elem, except to a known SM_RING"),
			 -ENOTSUP);
	assert_int_equal(compiled("ldmap r1, 1; mov r2, 8; mov r3, 0; call 131; mov r0, 0; exit",
				  HOOK_gdev_enter, 0,
				  "no PTX for bpf_ringbuf_reserve, except in a known SM_RING"),
			 -ENOTSUP);
	assert_int_equal(compiled("mov r1, r10; add r1, -16; mov r2, 0; call 132; mov r0, 0; exit",
				  HOOK_gdev_enter, 0,
				  "no PTX for bpf_ringbuf_submit, unless the function reserved the "
				  "record, in a known SM_RING"),
			 -ENOTSUP);
	/* bpftime's exit is no helper */
	assert_int_equal(ebpf_helper_slot(507), -ENOENT);
}

static void lines_of_other_forms_are_refused(void **state)
{
	const char *reason =
		"no PTX for bpf_trace_vprintk, unless its format is a constant and the "
		"size of its arguments a number in the call";

	assert_int_equal(
		compiled("stdw [r10-8], 0; mov r1, r10; add r1, -8; mov r2, 8; mov r3, r1; "
			 "mov r4, 8; call 177; mov r0, 0; exit",
			 HOOK_gdev_enter, 0, reason),
		-ENOTSUP);
	assert_int_equal(compiled("stdw [r10-8], 0; mov r1, r10; add r1, -8; mov r2, 8; call 6; "
				  "mov r0, 0; exit",
				  HOOK_gdev_enter, 0,
				  "no PTX for bpf_trace_printk, unless its text is a constant"),
			 -ENOTSUP);
	assert_int_equal(compiled("stdw [r10-8], 0; ldxw r4, [r1+104]; ldval r1, 11, 0; mov r2, 8; "
				  "mov r3, r10; add r3, -8; call 177; mov r0, 0; exit",
				  HOOK_gdev_enter, 0, reason),
			 -ENOTSUP);
}

static void the_host_counts_a_call_as_an_error(void **state)
{
	test_env_reset(&t);
	assert_int_equal((int64_t)t.env.helpers[EBPF_SLOT_gbpf_clock](0, 0, 0, 0, 0, &t.env),
			 -EINVAL);
	assert_int_equal(t.env.helper_errors, 1);
}

static int setup(void **state)
{
	rng = SEED;
	test_env_init(&t);
	test_env_add(&t, "out", 64 * THREADS, 1, 0, 0);
	test_env_add(&t, "counts", 24, 5, 0, 0);
	test_env_add(&t, "hist", 512, 3, 0, 0);
	test_env_add(&t, "pairs", 4, 3, 0, 0);
	test_env_add(&t, "by_sm", 16, 5, GBPF_F_DEVICE, 0);
	test_env_add(&t, "by_warp", 16, 5, GBPF_F_DEVICE, 0);
	test_env_add(&t, "ring", 24, THREADS / 4, GBPF_F_DEVICE, 0);
	test_env_add(&t, "small", 24, 64, GBPF_F_DEVICE, 0);
	test_env_add(&t, "lines", sizeof(struct ebpf_print_record), THREADS / 4, GBPF_F_DEVICE, 0);
	test_env_add(&t, "blocks", 16, 20, GBPF_F_DEVICE, 0);
	test_env_add(&t, "threads", 16, THREADS - 100, GBPF_F_DEVICE, 0);
	test_env_add(&t, "texts", 64, 1, 0, 0);
	t.defs[BLOCKS].type = GBPF_MAP_BLOCK_ARRAY;
	t.defs[GPU_THREADS].type = GBPF_MAP_GPU_THREAD_ARRAY;
	for (unsigned i = RING; i <= LINES; i++) {
		t.defs[i].type = GBPF_MAP_SM_RING;
		t.defs[i].key_bytes = 0;
	}
	t.defs[HIST].type = GBPF_MAP_HISTOGRAM;
	t.defs[BY_SM].type = GBPF_MAP_SM_ARRAY;
	t.defs[BY_WARP].type = GBPF_MAP_WARP_ARRAY;
	if (test_env_bind(&t) < 0) {
		return -1;
	}
	for (unsigned i = 0; i < t.n; i++) {
		t.env.maps[i].flags |= GBPF_F_DEVICE;
	}
	return 0;
}

static int teardown(void **state)
{
	test_env_finish(&t);
	return 0;
}

/* --keep-ptx FOLDER: also writes each module that runs to a file there. */
int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_offsets_in_the_programs_are_right),
		cmocka_unit_test(indices_are_the_fields_of_the_context),
		cmocka_unit_test(indices_may_be_stored_anywhere),
		cmocka_unit_test(clocks_run_forward),
		cmocka_unit_test(random_numbers_differ_between_threads_and_calls),
		cmocka_unit_test(about_one_block_of_each_interval_is_sampled),
		cmocka_unit_test(control_words_choose_blocks),
		cmocka_unit_test(lanes_agree_on_a_control_word),
		cmocka_unit_test(sums_of_all_threads_are_exact),
		cmocka_unit_test(histograms_are_those_of_the_host),
		cmocka_unit_test(operations_on_other_maps_are_errors),
		cmocka_unit_test(notes_of_all_threads_add_up),
		cmocka_unit_test(values_of_a_looked_up_histogram_are_counters),
		cmocka_unit_test(each_place_counts_in_its_own_instance),
		cmocka_unit_test(rings_keep_the_newest_values),
		cmocka_unit_test(records_are_pushed_when_they_are_submitted),
		cmocka_unit_test(records_may_be_in_memory),
		cmocka_unit_test(records_of_two_calls_meet),
		cmocka_unit_test(flags_of_a_record_are_errors),
		cmocka_unit_test(blocks_and_threads_have_values_of_their_own),
		cmocka_unit_test(another_key_has_no_value),
		cmocka_unit_test(lines_are_records_of_numbers),
		cmocka_unit_test(registers_that_a_line_takes_are_defined),
		cmocka_unit_test(lines_of_other_forms_are_refused),
		cmocka_unit_test(warp_wide_helpers_combine_the_active_lanes),
		cmocka_unit_test(helpers_of_other_places_are_refused),
		cmocka_unit_test(the_host_counts_a_call_as_an_error),
	};

	ptx_folder = argc > 2 && strcmp(argv[1], "--keep-ptx") == 0 ? argv[2] : NULL;
	return cmocka_run_group_tests_name("bpf ptx helpers", tests, setup, teardown);
}
