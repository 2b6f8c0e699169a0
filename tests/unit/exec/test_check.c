/* Findings of --check: kind and place of errors, and silence for correct kernels. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/compiler.h"
#include "engine.h"

#define HEAD ".version 7.8\n.target sm_80\n.address_size 64\n"
#define MAX_FINDINGS 16

struct found {
	unsigned n;
	struct exec_finding f[MAX_FINDINGS];
};

static void note(void *arg, const struct exec_finding *f)
{
	struct found *found = arg;

	assert_true(found->n < MAX_FINDINGS);
	found->f[found->n++] = *f;
}

/* Two buffers: 100 initialized bytes, and 64 uninitialized ones followed by 64 freed ones. */
static struct found check_status(const char *text, unsigned threads, enum exec_status status)
{
	static struct engine e;
	struct found found = { 0 };
	struct exec_host host = { .finding = note, .arg = &found };
	char message[256] = "";
	uint64_t params[2];
	uint8_t *shadow;
	struct engine_launch l = {
		.grid = { 2, 1, 1 }, .block = { threads, 1, 1 }, .params = params, .host = &host
	};

	exec_check_enable(true);
	engine_init(&e);
	shadow = calloc(1, ENGINE_BYTES);
	assert_non_null(shadow);
	e.space.shadow = shadow;
	if (engine_load(&e, text, strlen(text), "t", message, sizeof(message)) < 0) {
		fail_msg("%s", message);
	}
	engine_take(&e, 100, &params[0]);
	engine_take(&e, 64, &params[1]);
	memset(shadow + (params[0] - ENGINE_BASE), 3, 100);
	memset(shadow + (params[1] - ENGINE_BASE), 1, 64);
	memset(shadow + (params[1] - ENGINE_BASE) + 64, EXEC_SHADOW_FREED, 64);
	assert_int_equal(engine_run(&e, &l), status);
	engine_finish(&e);
	free(shadow);
	exec_check_enable(false);
	return found;
}

static struct found check(const char *text, unsigned threads)
{
	return check_status(text, threads, EXEC_DONE);
}

#define KERNEL_HEAD                                                                                \
	HEAD ".shared .align 16 .b8 tile[1024];\n"                                                 \
	     ".visible .entry k(.param .u64 a, .param .u64 b)\n{\n"                                \
	     ".reg .b32 %r<9>; .reg .b64 %d<9>; .reg .pred %p<4>;\n"                               \
	     "ld.param.u64 %d1, [a]; ld.param.u64 %d2, [b];\n"                                     \
	     "mov.u32 %r1, %tid.x; mul.wide.u32 %d3, %r1, 4; add.u64 %d4, %d1, %d3;\n"             \
	     "mov.u32 %r2, tile; mad.lo.u32 %r2, %r1, 4, %r2; xor.b32 %r3, %r2, 128;\n"
#define KERNEL(body) KERNEL_HEAD body "\nret;\n}\n"
/* line of the text at which the body begins */
#define BODY 11

static void right_kernels_have_no_findings(void **state)
{
	struct found f = check(KERNEL("setp.lt.u32 %p1, %r1, 25;\n"
				      "@%p1 ld.global.u32 %r4, [%d4];\n"
				      "st.shared.u32 [%r2], %r1;\n"
				      "bar.sync 0;\n"
				      "ld.shared.u32 %r5, [%r3];\n"
				      "bar.sync 0;\n"
				      "st.shared.u32 [%r2], %r5;\n"
				      "@%p1 st.global.u32 [%d2], %r5;\n"
				      "@%p1 ld.global.u32 %r6, [%d2];\n"),
			       64);

	(void)state;
	assert_int_equal(f.n, 0);
}

static void an_access_behind_an_allocation_is_told_once(void **state)
{
	struct found f = check(KERNEL("ld.global.u32 %r4, [%d4];\n"), 27);

	(void)state;
	assert_int_equal(f.n, 1);
	assert_int_equal(f.f[0].kind, EXEC_FINDING_BOUNDS);
	assert_int_equal(f.f[0].line, BODY);
	assert_int_equal(f.f[0].thread, 25);
	assert_int_equal(f.f[0].bytes, 4);
	assert_int_equal(f.f[0].distance, 1);
	assert_int_equal(f.f[0].block[0], 0);
	assert_false(f.f[0].write);
	assert_string_equal(f.f[0].space, "device");
}

static void memory_that_nobody_has_written_is_told_until_it_is(void **state)
{
	struct found f = check(KERNEL("ld.global.u32 %r4, [%d2+8];\n"
				      "st.global.u32 [%d2+8], %r4;\n"
				      "ld.global.u32 %r4, [%d2+8];\n"
				      "ld.global.u32 %r4, [%d2+12];\n"),
			       1);

	(void)state;
	assert_int_equal(f.n, 2);
	assert_int_equal(f.f[0].kind, EXEC_FINDING_UNINITIALIZED);
	assert_int_equal(f.f[0].line, BODY);
	assert_int_equal(f.f[1].line, BODY + 3);
}

static void shared_memory_is_initialized_by_its_own_block_alone(void **state)
{
	struct found f = check(KERNEL("mov.u32 %r4, %ctaid.x;\n"
				      "setp.eq.u32 %p1, %r4, 0;\n"
				      "@%p1 st.shared.u32 [%r2], %r1;\n"
				      "ld.shared.u32 %r5, [%r2];\n"),
			       32);

	(void)state;
	assert_int_equal(f.n, 1);
	assert_int_equal(f.f[0].kind, EXEC_FINDING_UNINITIALIZED);
	assert_int_equal(f.f[0].line, BODY + 3);
	assert_int_equal(f.f[0].block[0], 1);
	assert_string_equal(f.f[0].space, "shared");
}

static void a_missing_barrier_is_a_race_between_warps(void **state)
{
	struct found f = check(KERNEL("st.shared.u32 [%r2], %r1;\n"
				      "ld.shared.u32 %r5, [%r3];\n"),
			       64);
	const struct exec_finding *r = NULL;

	(void)state;
	for (unsigned i = 0; i < f.n; i++) {
		r = f.f[i].kind == EXEC_FINDING_RACE ? &f.f[i] : r;
	}
	assert_non_null(r);
	assert_int_not_equal(r->line, r->other_line);
	assert_int_not_equal(r->thread / 32, r->other_thread / 32);
	assert_true(r->write || r->other_writes);
}

static void storing_what_is_there_is_no_race(void **state)
{
	struct found same = check(KERNEL("st.shared.u32 [tile], 7;\n"), 64);
	struct found other = check(KERNEL("st.shared.u32 [tile], %r1;\n"), 64);

	(void)state;
	assert_int_equal(same.n, 0);
	assert_int_equal(other.n, 1);
	assert_int_equal(other.f[0].kind, EXEC_FINDING_RACE);
	assert_true(other.f[0].write && other.f[0].other_writes);
}

static void atomics_and_volatile_accesses_are_no_races(void **state)
{
	struct found f = check(KERNEL("st.volatile.shared.u32 [tile], 0;\n"
				      "atom.shared.add.u32 %r5, [tile], 1;\n"
				      "ld.volatile.shared.u32 %r5, [tile];\n"),
			       64);

	(void)state;
	assert_int_equal(f.n, 0);
}

/* Expects one finding of this kind, at this line of the body. */
static void finds(const char *text, unsigned threads, enum exec_finding_kind kind, unsigned line)
{
	struct found f = check(text, threads);

	assert_int_equal(f.n, 1);
	assert_int_equal(f.f[0].kind, kind);
	assert_int_equal(f.f[0].line, BODY + line);
}

static void reads_of_several_warps_race_with_a_later_store(void **state)
{
	(void)state;
	finds(KERNEL("st.volatile.shared.u32 [tile], 5;\n"
		     "ld.shared.u32 %r4, [tile];\n"
		     "nanosleep.u32 1;\n" /* gives the other warp a turn */
		     "setp.eq.u32 %p1, %r1, 0;\n"
		     "@%p1 st.shared.u32 [tile], %r1;\n"),
	      64, EXEC_FINDING_RACE, 4);
}

static bool has_race(const struct found *f, unsigned line, unsigned other_line)
{
	bool found = false;

	for (unsigned i = 0; i < f->n; i++) {
		found = found ||
			(f->f[i].kind == EXEC_FINDING_RACE && f->f[i].line == BODY + line &&
			 f->f[i].other_line == BODY + other_line);
	}
	return found;
}

static void a_histogram_needs_barriers_around_its_atomics(void **state)
{
	struct found before = check(KERNEL("st.shared.u32 [%r2], 0;\n"
					   "red.shared.add.u32 [%r3], 1;\n"),
				    64);
	struct found behind = check(KERNEL("st.shared.u32 [%r2], 0;\n"
					   "bar.sync 0;\n"
					   "red.shared.add.u32 [%r3], 1;\n"
					   "ld.shared.u32 %r4, [%r2];\n"),
				    64);
	struct found right = check(KERNEL("st.shared.u32 [%r2], 0;\n"
					  "bar.sync 0;\n"
					  "red.shared.add.u32 [%r3], 1;\n"
					  "bar.sync 0;\n"
					  "ld.shared.u32 %r4, [%r2];\n"),
				   64);

	(void)state;
	/* the warps run one after the other */
	assert_true(has_race(&before, 1, 0));
	assert_true(has_race(&behind, 3, 2));
	assert_int_equal(right.n, 0);
}

static void a_histogram_without_atomics_is_a_race(void **state)
{
	struct found f = check(KERNEL("st.shared.u32 [%r2], 0;\n"
				      "bar.sync 0;\n"
				      "ld.shared.u32 %r4, [tile];\n"
				      "add.u32 %r4, %r4, 1;\n"
				      "st.shared.u32 [tile], %r4;\n"),
			       64);

	(void)state;
	assert_true(f.n >= 1);
	assert_int_equal(f.f[0].kind, EXEC_FINDING_RACE);
}

static void freed_memory_is_told_apart(void **state)
{
	(void)state;
	finds(KERNEL("ld.global.u32 %r4, [%d2+64];\n"), 1, EXEC_FINDING_FREED, 0);
	finds(KERNEL("st.u8 [%d2+127], %r1;\n"), 1, EXEC_FINDING_FREED, 0);
}

static void every_kind_of_access_is_looked_at(void **state)
{
	static const char *const bad[] = {
		"ld.global.v4.u32 {%r4, %r5, %r6, %r7}, [%d1+96];",
		"ld.v2.u32 {%r4, %r5}, [%d1+96];",
		"st.global.u16 [%d1+100], %r1;",
		"atom.global.add.u32 %r4, [%d1+100], 1;",
		"red.or.b64 [%d1+96], %d3;",
		"cp.async.ca.shared.global [tile], [%d1+96], 8;",
		"ld.global.nc.b64 %d5, [%d1+96];",
		"ld.volatile.global.u8 %r4, [%d1+100];",
	};
	char text[2048];

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		snprintf(text, sizeof(text), "%s%s\nret;\n}\n", KERNEL_HEAD, bad[i]);
		finds(text, 1, EXEC_FINDING_BOUNDS, 0);
	}
}

static void uninitialized_bytes_are_found_by_whatever_reads_them(void **state)
{
	(void)state;
	finds(KERNEL("cp.async.cg.shared.global [tile], [%d2], 16;\n"), 1,
	      EXEC_FINDING_UNINITIALIZED, 0);
	finds(KERNEL("mul.lo.u32 %r4, %r1, 16;\n"
		     "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r5, %r6, %r7, %r8}, [%r4];\n"),
	      32, EXEC_FINDING_UNINITIALIZED, 1);
	/* Copying byte by byte: reported where the byte is read; the written byte counts as
	 * initialized. */
	finds(KERNEL("ld.global.u8 %r4, [%d2+3];\n"
		     "st.global.u8 [%d1], %r4;\n"
		     "ld.global.u8 %r4, [%d1];\n"),
	      1, EXEC_FINDING_UNINITIALIZED, 0);
	finds(KERNEL("cvta.shared.u64 %d5, %d3; mov.u64 %d5, tile; cvta.shared.u64 %d5, %d5;\n"
		     "st.u16 [%d5+8], %r1;\n"
		     "ld.u32 %r4, [%d5+8];\n"),
	      1, EXEC_FINDING_UNINITIALIZED, 2);
}

static void behind_shared_memory_is_told_before_the_fault(void **state)
{
	struct found f =
		check_status(KERNEL("st.shared.u32 [%r2+512], %r1;\n"), 160, EXEC_FAULT_ADDRESS);

	(void)state;
	assert_int_equal(f.n, 1);
	assert_int_equal(f.f[0].kind, EXEC_FINDING_BOUNDS);
	assert_string_equal(f.f[0].space, "shared");
	assert_int_equal(f.f[0].thread, 128);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(right_kernels_have_no_findings),
		cmocka_unit_test(an_access_behind_an_allocation_is_told_once),
		cmocka_unit_test(memory_that_nobody_has_written_is_told_until_it_is),
		cmocka_unit_test(shared_memory_is_initialized_by_its_own_block_alone),
		cmocka_unit_test(a_missing_barrier_is_a_race_between_warps),
		cmocka_unit_test(storing_what_is_there_is_no_race),
		cmocka_unit_test(atomics_and_volatile_accesses_are_no_races),
		cmocka_unit_test(reads_of_several_warps_race_with_a_later_store),
		cmocka_unit_test(a_histogram_needs_barriers_around_its_atomics),
		cmocka_unit_test(a_histogram_without_atomics_is_a_race),
		cmocka_unit_test(freed_memory_is_told_apart),
		cmocka_unit_test(every_kind_of_access_is_looked_at),
		cmocka_unit_test(uninitialized_bytes_are_found_by_whatever_reads_them),
		cmocka_unit_test(behind_shared_memory_is_told_before_the_fault),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
