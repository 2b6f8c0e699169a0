/* Tail calls: the same on every engine, from any root, with each shape of table. */
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
#include "bpf/load/jit/jit.h"
#include "bpf/run/interp/interp.h"
#include "engines.h"

#define MAX_TAILS 64u

static struct asm_unit unit;
static struct test_env t;
static struct code_pool pool;
static struct ebpf_tail_at tails[MAX_TAILS];
static uint64_t ctx[4];

static uint32_t assemble(const char *text)
{
	char *copy = strdup(text), *rest = copy;

	asm_begin(&unit);
	for (char *line = strsep(&rest, "\n;"); line; line = strsep(&rest, "\n;")) {
		if (asm_line(&unit, line) < 0) {
			fail_msg("%s", unit.error);
		}
	}
	if (asm_end(&unit) < 0) {
		fail_msg("%s", unit.error);
	}
	free(copy);
	return unit.n;
}

static uint32_t at(const char *label)
{
	for (unsigned i = 0; i < unit.n_labels; i++) {
		if (strcmp(unit.labels[i].name, label) == 0) {
			return unit.labels[i].at;
		}
	}
	fail_msg("no label %s", label);
	return 0;
}

/* Two program arrays (0 and 1) and an array (2). */
static int setup(void **state)
{
	test_env_init(&t);
	test_env_add(&t, "a", 8, 64, 0, 0);
	test_env_add(&t, "b", 8, 64, 0, 0);
	test_env_add(&t, "data", 8, 4, 0, 0);
	assert_int_equal(test_env_bind(&t), 0);
	t.env.maps[0].type = t.env.maps[1].type = 3;
	pool_init(&pool, 1u << 16);
	return 0;
}

static int teardown(void **state)
{
	pool_finish(&pool);
	test_env_finish(&t);
	return 0;
}

static int checked(unsigned n_tails, uint64_t *ret_r0)
{
	struct ebpf_memory region = { (uintptr_t)ctx, sizeof(ctx), 1 };
	struct ebpf_checked_run run = { .regions = &region,
					.n_regions = 1,
					.r1 = (uintptr_t)ctx,
					.fuel = 100000,
					.env = &t.env,
					.tails = tails,
					.n_tails = n_tails };

	memset(ctx, 0, sizeof(ctx));
	test_env_reset(&t);
	return ebpf_interp_checked(unit.insns, unit.n, &run, ret_r0, NULL);
}

static void all_give(unsigned n_tails, uint64_t expected)
{
	struct ebpf_code code = { unit.insns, unit.n, tails, n_tails };
	uint64_t r0 = 0, left;
	int entry;

	assert_int_equal(checked(n_tails, &r0), 0);
	assert_int_equal(r0, expected);
	left = ctx[0];
	memset(ctx, 0, sizeof(ctx));
	test_env_reset(&t);
	assert_int_equal(ebpf_interp_code(&code, ctx, &t.env), expected);
	assert_int_equal(ctx[0], left);
	entry = ebpf_jit_compile(&ebpf_target_x86, &code, t.env.maps, t.env.n_maps, pool.plain,
				 pool.cap, &pool.len);
	assert_true(entry >= 0);
	assert_int_equal(pool_map(&pool), 0);
	memset(ctx, 0, sizeof(ctx));
	test_env_reset(&t);
	assert_int_equal(pool_run(&pool, entry, ctx, &t.env), expected);
	assert_int_equal(ctx[0], left);
	pool_clear(&pool);
}

static void another_program_goes_on(void **state)
{
	assemble("stdw [r10-8], 5; mov r6, 1; ldmap r2, 0; mov r3, 7; call 12; mov r0, 1; exit;"
		 "next:; stxdw [r10-16], r1; ldxdw r2, [r10-16]; stdw [r2], 9; mov r0, 42; exit");
	tails[0] = (struct ebpf_tail_at){ 0, 7, at("next") };
	all_give(1, 42);
	assert_int_equal(ctx[0], 9);
}

static void what_is_not_there_returns(void **state)
{
	assemble("mov r6, r1; ldmap r2, 0; mov r3, 8; call 12; mov r7, r0; mov r1, r6;"
		 "ldmap r2, 1; mov r3, 7; call 12; lsh r0, 32; add32 r7, 0; or r0, r7; exit;"
		 "next:; mov r0, 42; exit");
	tails[0] = (struct ebpf_tail_at){ 0, 7, at("next") };
	all_give(1, (uint64_t)-ENOENT << 32 | (uint32_t)-ENOENT);
	all_give(0, (uint64_t)-ENOENT << 32 | (uint32_t)-ENOENT);
}

static void only_the_lower_half_of_an_index_counts(void **state)
{
	assemble("ldmap r2, 0; lddw r3, 0xffffffff00000007; call 12; mov r0, 1; exit;"
		 "next:; mov r0, 42; exit");
	tails[0] = (struct ebpf_tail_at){ 0, 7, at("next") };
	all_give(1, 42);
}

/* The program, then 33 times the other one, whose 34th call returns. */
static void a_chain_has_33_links(void **state)
{
	assemble("ldmap r2, 0; mov r3, 0; call 12; mov r0, 1; exit;"
		 "next:; ldxdw r2, [r1]; add r2, 1; stxdw [r1], r2;"
		 "ldmap r2, 0; mov r3, 0; call 12; exit");
	tails[0] = (struct ebpf_tail_at){ 0, 0, at("next") };
	all_give(1, (uint64_t)-ELOOP);
	assert_int_equal(ctx[0], 33);
}

/* Each index of a table of 40 leads to its own program, indexes between them to none. */
static void every_entry_of_a_table_is_found(void **state)
{
	char text[4000], name[16];

	for (unsigned n = 1; n <= 40; n += n < 10 ? 1 : 10) {
		for (unsigned wanted = 0; wanted <= 2 * n; wanted++) {
			snprintf(text, sizeof(text),
				 "ldmap r2, 0; mov r3, %u; call 12; mov r0, 1; exit;", wanted);
			for (unsigned k = 0; k < n; k++) {
				snprintf(text + strlen(text), sizeof(text) - strlen(text),
					 "n%u:; mov r0, %u; exit;", k, 100 + k);
			}
			assemble(text);
			for (unsigned k = 0; k < n; k++) {
				snprintf(name, sizeof(name), "n%u", k);
				tails[k] = (struct ebpf_tail_at){ 0, 2 * k + 1, at(name) };
			}
			all_give(n, wanted & 1 ? 100 + wanted / 2 : 1);
		}
	}
}

/* Which of two arrays is known only when it runs. */
static void an_array_that_is_not_a_constant(void **state)
{
	for (int which = 0; which < 3; which++) {
		char text[300];

		snprintf(text, sizeof(text),
			 "mov r4, %d; ldmap r2, 0; jeq r4, 0, go; ldmap r2, 1; go:; mov r3, %d;"
			 "call 12; exit; a:; mov r0, 10; exit; b:; mov r0, 11; exit",
			 which, which == 2 ? 9 : 3);
		assemble(text);
		tails[0] = (struct ebpf_tail_at){ 0, 3, at("a") };
		tails[1] = (struct ebpf_tail_at){ 1, 3, at("b") };
		all_give(2, which == 2 ? (uint64_t)-ENOENT : 10u + (unsigned)which);
	}
}

/* Roots with frames, saved registers, helpers, lookups and local calls in all mixtures: what C
 * keeps is kept (the test's own registers), and the stack is aligned at calls. */
static unsigned misaligned, notes;

static NOINLINE uint64_t note(uint64_t a1, uint64_t a2, uint64_t a3, uint64_t a4, uint64_t a5,
			      struct ebpf_env *env)
{
	misaligned += (uintptr_t)__builtin_frame_address(0) % 16 != 0;
	notes++;
	return 0;
}

static void roots_of_every_shape(void **state)
{
	ebpf_helper_fn kept = t.env.helpers[EBPF_SLOT_bpf_ktime_get_ns];

	static const char *const parts[] = {
		"mov r6, 1;",
		"mov r7, 1; mov r8, 2;",
		"stdw [r10-8], 3;",
		"mov r9, r1; mov r1, 0; mov r2, 1; call 5; mov r1, r9;",
		"mov r9, r1; callf f; mov r1, r9;",
		"mov r9, r1; stw [r10-4], 1; mov r2, r10; add r2, -4; ldmap r1, 2; call 1; mov r1, "
		"r9;",
	};

	t.env.helpers[EBPF_SLOT_bpf_ktime_get_ns] = note;
	for (unsigned a = 0; a < 64; a++) {
		for (unsigned b = 0; b < 64; b += 1 + a % 3) {
			char text[1200] = "";

			for (unsigned k = 0; k < 6; k++) {
				strcat(text, a & 1u << k ? parts[k] : "");
			}
			strcat(text, "ldmap r2, 0; mov r3, 1; call 12; mov r0, 1; exit; next:;");
			for (unsigned k = 0; k < 6; k++) {
				strcat(text, b & 1u << k ? parts[k] : "");
			}
			strcat(text,
			       "ldxdw r2, [r1]; add r2, 1; stxdw [r1], r2; jgt r2, 3, end;"
			       "ldmap r2, 0; mov r3, 1; call 12; end:; mov r0, 7; exit;"
			       "f:; mov r6, 5; mov r1, 0; mov r2, 1; call 5; mov r0, 0; exit");
			assemble(text);
			tails[0] = (struct ebpf_tail_at){ 0, 1, at("next") };
			all_give(1, 7);
			assert_int_equal(ctx[0], 4);
		}
	}
	assert_int_equal(misaligned, 0);
	assert_true(notes > 1000);
	t.env.helpers[EBPF_SLOT_bpf_ktime_get_ns] = kept;
}

static void only_roots_make_tail_calls(void **state)
{
	struct ebpf_code code = { unit.insns, 0, tails, 1 };
	uint64_t r0;

	code.n = assemble("callf f; exit; f:; ldmap r2, 0; mov r3, 1; call 12; exit;"
			  "next:; mov r0, 1; exit");
	tails[0] = (struct ebpf_tail_at){ 0, 1, at("next") };
	assert_int_equal(checked(1, &r0), -EINVAL);
	assert_int_equal(ebpf_interp_code(&code, ctx, &t.env), 0);
	assert_int_equal(ebpf_jit_compile(&ebpf_target_x86, &code, t.env.maps, t.env.n_maps,
					  pool.plain, pool.cap, &pool.len),
			 -EINVAL);
}

static void tables_are_checked(void **state)
{
	struct ebpf_code code = { unit.insns, 0, tails, 1 };

	code.n = assemble("ldmap r2, 0; mov r3, 1; call 12; callf f; exit; f:; mov r0, 1; exit");
	tails[0] = (struct ebpf_tail_at){ 0, 1, code.n };
	assert_int_equal(ebpf_jit_compile(&ebpf_target_x86, &code, t.env.maps, 2, pool.plain,
					  pool.cap, &pool.len),
			 -EINVAL);
	tails[0] = (struct ebpf_tail_at){ 0, 1, 1 }; /* a second half */
	assert_int_equal(ebpf_jit_compile(&ebpf_target_x86, &code, t.env.maps, 2, pool.plain,
					  pool.cap, &pool.len),
			 -EINVAL);
	tails[0] = (struct ebpf_tail_at){
		0, 1, 2
	}; /* the instruction before falls through into the target */
	assert_int_equal(ebpf_jit_compile(&ebpf_target_x86, &code, t.env.maps, 2, pool.plain,
					  pool.cap, &pool.len),
			 -EINVAL);
	tails[0] = (struct ebpf_tail_at){ 2, 1, at("f") };
	assert_int_equal(ebpf_jit_compile(&ebpf_target_x86, &code, t.env.maps, 2, pool.plain,
					  pool.cap, &pool.len),
			 -EINVAL);
	tails[0] = (struct ebpf_tail_at){ 0, 1, at("f") }; /* it is called, too */
	assert_int_equal(ebpf_jit_compile(&ebpf_target_x86, &code, t.env.maps, 2, pool.plain,
					  pool.cap, &pool.len),
			 -ENOTSUP);
}

/* Each call spells the table out: this once took ten seconds, and the loader then had no memory. */
static void many_calls_through_a_large_table_are_interpreted(void **state)
{
	enum { CALLS = 400, ENTRIES = 1000 };
	static struct ebpf_insn insns[CALLS + 3];
	static struct ebpf_tail_at large[ENTRIES];
	struct ebpf_code code = { insns, CALLS + 3, large, ENTRIES };

	for (unsigned i = 0; i < CALLS; i++) {
		insns[i] = (struct ebpf_insn){ .code = EBPF_JMP | EBPF_CALL, .imm = 12 };
	}
	insns[CALLS] = (struct ebpf_insn){ .code = EBPF_JMP | EBPF_EXIT };
	insns[CALLS + 1] = (struct ebpf_insn){ .code = EBPF_ALU64 | EBPF_MOV | EBPF_K };
	insns[CALLS + 2] = insns[CALLS];
	for (unsigned i = 0; i < ENTRIES; i++) {
		large[i] = (struct ebpf_tail_at){ 0, i, CALLS + 1 };
	}
	assert_int_equal(ebpf_jit_compile(&ebpf_target_x86, &code, t.env.maps, 2, pool.plain,
					  pool.cap, &pool.len),
			 -ENOTSUP);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(another_program_goes_on),
		cmocka_unit_test(what_is_not_there_returns),
		cmocka_unit_test(only_the_lower_half_of_an_index_counts),
		cmocka_unit_test(a_chain_has_33_links),
		cmocka_unit_test(every_entry_of_a_table_is_found),
		cmocka_unit_test(an_array_that_is_not_a_constant),
		cmocka_unit_test(roots_of_every_shape),
		cmocka_unit_test(only_roots_make_tail_calls),
		cmocka_unit_test(tables_are_checked),
		cmocka_unit_test(many_calls_through_a_large_table_are_interpreted),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
