/* Callbacks, which helpers call: every engine returns the same results, and the checked interpreter
 * checks a callback like the rest of the program. */
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

static struct asm_unit unit;
static struct test_env t;
static struct code_pool pool;

static void assemble(const char *text)
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
}

/* Calls a2 for each element of an array a1, with its key in memory of its own. */
static uint64_t each(uint64_t a1, uint64_t a2, uint64_t a3, uint64_t a4, uint64_t a5,
		     struct ebpf_env *env)
{
	const struct ebpf_map *map = (const struct ebpf_map *)(uintptr_t)a1;
	uint32_t i;

	for (i = 0; i < map->max_entries; i++) {
		uint64_t value = (uintptr_t)map->data + (uint64_t)i * map->stride;

		if (ebpf_call_back(a2, a1, (uintptr_t)&i, value, a3, env)) {
			return i + 1;
		}
	}
	return i;
}

static int setup(void **state)
{
	test_env_init(&t);
	test_env_add(&t, "m", 8, 5, 0, 0);
	assert_int_equal(test_env_bind(&t), 0);
	t.env.helpers[EBPF_SLOT_bpf_for_each_map_elem] = each;
	pool_init(&pool, 1u << 16);
	return 0;
}

static int teardown(void **state)
{
	pool_finish(&pool);
	test_env_finish(&t);
	return 0;
}

static int checked(uint64_t *ret_r0, uint64_t fuel)
{
	struct ebpf_checked_run run = { .fuel = fuel, .env = &t.env };

	test_env_reset(&t);
	return ebpf_interp_checked(unit.insns, unit.n, &run, ret_r0, NULL);
}

static void all_give(const char *text, uint64_t expected)
{
	uint64_t r0 = 0;
	int entry;

	assemble(text);
	assert_int_equal(checked(&r0, 100000), 0);
	assert_int_equal(r0, expected);
	test_env_reset(&t);
	assert_int_equal(ebpf_interp_verified(unit.insns, unit.n, NULL, &t.env), expected);
	entry = pool_add(&pool, unit.insns, unit.n, &t.env);
	assert_true(entry >= 0);
	assert_int_equal(pool_map(&pool), 0);
	test_env_reset(&t);
	assert_int_equal(pool_run(&pool, entry, NULL, &t.env), expected);
	pool_clear(&pool);
}

static void checked_gives(const char *text, int expected)
{
	uint64_t r0;

	assemble(text);
	assert_int_equal(checked(&r0, 1000), expected);
	assert_null(ebpf_callee);
}

static void a_callback_reaches_its_callers_frame(void **state)
{
	all_give("stdw [r10-8], 0; mov r1, 10; ldfn r2, body; mov r3, r10; add r3, -8; mov r4, 0;"
		 "call 181; ldxdw r1, [r10-8]; lsh r0, 32; or r0, r1; exit;"
		 "body:; ldxdw r3, [r2]; add r3, r1; stxdw [r2], r3; mov r0, 0; exit",
		 10 * (UINT64_C(1) << 32) + 45);
}

static void not_zero_ends_the_loop(void **state)
{
	all_give("mov r1, 10; ldfn r2, body; mov r3, 0; mov r4, 0; call 181; exit;"
		 "body:; mov r0, 0; jne r1, 4, out; mov r0, 1; out:; exit",
		 5);
}

static void a_callback_keeps_its_callers_registers(void **state)
{
	all_give("mov r6, 1; mov r7, 2; mov r8, 3; mov r9, 4;"
		 "mov r1, 3; ldfn r2, body; mov r3, 0; mov r4, 0; call 181;"
		 "lsh r6, 12; lsh r7, 8; lsh r8, 4; mov r0, r6; or r0, r7; or r0, r8; or r0, r9; "
		 "exit;"
		 "body:; mov r6, 9; mov r7, 9; mov r8, 9; mov r9, 9; stdw [r10-8], 1; mov r0, 0; "
		 "exit",
		 0x1234);
}

/* The inner one calls helpers and a local function, which needs the environment there too. */
static void callbacks_nest(void **state)
{
	all_give("mov r1, 3; ldfn r2, outer; mov r3, 0; mov r4, 0; call 181;"
		 "mov r1, 1; callf get; exit;"
		 "outer:; mov r1, 4; ldfn r2, inner; mov r3, 0; mov r4, 0; call 181; mov r0, 0; "
		 "exit;"
		 "inner:; add r1, 1; callf count; mov r0, 0; exit;"
		 "count:; mov r6, r1; mov r1, 1; callf find; jeq r0, 0, none; ldxdw r1, [r0]; add "
		 "r1, r6; stxdw [r0], r1; none:; exit;"
		 "find:; stxw [r10-4], r1; mov r2, r10; add r2, -4; ldmap r1, 0; call 1; exit;"
		 "get:; callf find; jeq r0, 0, no; ldxdw r0, [r0]; no:; exit",
		 3 * (1 + 2 + 3 + 4));
}

/* Which function it is, is known only when it runs: the helper does it. */
static void a_function_that_is_not_a_constant(void **state)
{
	for (int which = 0; which < 2; which++) {
		char text[400];

		snprintf(text, sizeof(text),
			 "stdw [r10-8], 0; mov r6, %d; ldfn r2, one; jeq r6, 0, go; ldfn r2, ten; "
			 "go:;"
			 "mov r1, 3; mov r3, r10; add r3, -8; mov r4, 0; call 181; ldxdw r0, "
			 "[r10-8]; exit;"
			 "one:; ldxdw r3, [r2]; add r3, 1; stxdw [r2], r3; mov r0, 0; exit;"
			 "ten:; ldxdw r3, [r2]; add r3, 10; stxdw [r2], r3; mov r0, 0; exit",
			 which);
		all_give(text, which ? 30 : 3);
	}
}

/* Loops in line within loops, with helpers at the bottom, which see an aligned stack; registers,
 * the environment and the numbers of rounds survive. */
static unsigned misaligned, helper_runs;

static NOINLINE uint64_t checks_stack(uint64_t a1, uint64_t a2, uint64_t a3, uint64_t a4,
				      uint64_t a5, struct ebpf_env *env)
{
	misaligned += (uintptr_t)__builtin_frame_address(0) % 16 != 0 || env != &t.env;
	helper_runs++;
	return 0;
}

static void loops_in_loops(void **state)
{
	ebpf_helper_fn kept = t.env.helpers[EBPF_SLOT_bpf_ktime_get_ns];

	t.env.helpers[EBPF_SLOT_bpf_ktime_get_ns] = checks_stack;
	for (int frame = 0; frame < 8; frame++) {
		char text[700];

		snprintf(text, sizeof(text),
			 "mov r6, 5; %s %s mov r1, 3; ldfn r2, outer; lddw r3, 0x123456789; mov "
			 "r4, 0; call 181;"
			 "add r0, r6; exit;"
			 "outer:; %s mov r0, r2; mov r7, 0x23456789; lsh r7, 4; rsh r7, 4; rsh r0, "
			 "4; mov r1, 4;"
			 "ldfn r2, inner; mov r3, 7; mov r4, 0; call 181; sub r0, 4; exit;"
			 "inner:; mov r6, 9; mov r8, 1; jne r2, 7, bad; call 5; mov r0, 0; exit; "
			 "bad:; mov r0, 1; exit",
			 frame & 1 ? "stdw [r10-8], 1;" : "",
			 frame & 2 ? "mov r7, 1; mov r8, 2;" : "",
			 frame & 4 ? "stdw [r10-8], 1; mov r9, 3;" : "");
		helper_runs = 0;
		all_give(text, 8);
		assert_int_equal(helper_runs, 3 * 3 * 4);
	}
	assert_int_equal(misaligned, 0);
	t.env.helpers[EBPF_SLOT_bpf_ktime_get_ns] = kept;
}

static void failed_loops_are_counted(void **state)
{
	all_give("mov r1, 1; ldfn r2, f; mov r3, 0; mov r4, 2; call 181; exit; f:; mov r0, 0; exit",
		 (uint64_t)-EINVAL);
	assert_int_equal(t.env.helper_errors, 1);
	all_give("lddw r1, 0xffffffff; ldfn r2, f; mov r3, 0; mov r4, 0; call 181; exit; f:; mov "
		 "r0, 0; exit",
		 (uint64_t)-E2BIG);
	assert_int_equal(t.env.helper_errors, 1);
	all_give("lddw r1, 0xffffffff00000002; ldfn r2, f; mov r3, 0; mov r4, 0; call 181; exit;"
		 "f:; mov r0, 0; exit",
		 2);
	assert_int_equal(t.env.helper_errors, 0);
	all_give("mov r1, 0; ldfn r2, f; mov r3, 0; mov r4, 0; call 181; exit; f:; mov r0, 1; exit",
		 0);
}

static void one_function_is_called_both_ways(void **state)
{
	all_give("mov r1, 5; callf f; mov r1, 3; ldfn r2, f; mov r3, 0; mov r4, 0; call 181;"
		 "ldval r1, 0, 0; ldxdw r0, [r1]; exit;"
		 "f:; ldval r2, 0, 0; ldxdw r3, [r2]; add r3, r1; stxdw [r2], r3;"
		 "mov r1, 0; mov r2, 1; call 1003; mov r0, 0; exit",
		 5 + 0 + 1 + 2);
}

static void elements_are_handed_to_a_callback(void **state)
{
	all_give("stdw [r10-8], 0; ldmap r1, 0; ldfn r2, body; mov r3, r10; add r3, -8; mov r4, 0;"
		 "call 164; mov r6, r0; ldval r1, 0, 16; ldxdw r0, [r1]; lsh r0, 8; or r0, r6;"
		 "ldxdw r1, [r10-8]; lsh r1, 16; or r0, r1; exit;"
		 "body:; ldxw r5, [r2]; mov r1, r5; add r1, 7; stxdw [r3], r1;"
		 "ldxdw r1, [r4]; add r1, r5; stxdw [r4], r1; mov r0, 0; exit",
		 (10 << 16) | (9 << 8) | 5);
}

static void accesses_in_a_callback_are_checked(void **state)
{
	const char *call = "mov r1, 2; ldfn r2, body; mov r3, 0; mov r4, 0; call 181; exit; body:;";
	char text[400];

	snprintf(text, sizeof(text), "%s ldxdw r0, [r10-520]; exit", call);
	checked_gives(text, 0); /* the caller's frame lies there */
	snprintf(text, sizeof(text), "%s ldxdw r0, [r10]; exit", call);
	checked_gives(text, -EFAULT);
	snprintf(text, sizeof(text), "%s ja body", call);
	checked_gives(text, -ETIME);
	snprintf(text, sizeof(text),
		 "%s mov r1, 1; ldfn r2, body; mov r3, 0; mov r4, 0; call 181; exit", call);
	checked_gives(text, -ELOOP);
	snprintf(text, sizeof(text), "%s hex e500000000000000", call);
	checked_gives(text, -EINVAL);
}

static void keys_are_read_only_and_gone_afterwards(void **state)
{
	checked_gives("ldmap r1, 0; ldfn r2, body; mov r3, 0; mov r4, 0; call 164; exit;"
		      "body:; stw [r2], 0; mov r0, 0; exit",
		      -EFAULT);
	checked_gives("ldmap r1, 0; ldfn r2, body; mov r3, r10; add r3, -8; mov r4, 0; call 164;"
		      "ldxdw r1, [r10-8]; ldxw r0, [r1]; exit;"
		      "body:; stxdw [r4], r2; mov r0, 0; exit",
		      -EFAULT);
	checked_gives("ldmap r1, 0; ldfn r2, body; mov r3, 0; mov r4, 0; call 164; exit;"
		      "body:; stdw [r3+8], 1; mov r0, 0; jset r3, 4, body; ldxdw r0, [r3-8]; exit",
		      -EFAULT);
}

static void only_functions_are_called_back(void **state)
{
	checked_gives("mov r1, 2; mov r2, 1; mov r3, 0; mov r4, 0; call 181; exit", -EFAULT);
	checked_gives("mov r1, 2; ldfn r2, body; add r2, 4; mov r3, 0; mov r4, 0; call 181; exit;"
		      "body:; mov r0, 0; exit",
		      -EFAULT);
}

/* An observer sees a callback one frame deeper, with its arguments in r1 and r2. */
static unsigned deepest, seen_i;

static void observe(void *arg, uint32_t pc, unsigned frame, const uint64_t regs[11])
{
	if (frame > deepest) {
		deepest = frame;
	}
	if (unit.insns[pc].code == (EBPF_ALU64 | EBPF_MOV) && unit.insns[pc].imm == 77) {
		seen_i += (unsigned)regs[1] + 1;
	}
}

static void callbacks_are_observed(void **state)
{
	struct ebpf_checked_run run = { .fuel = 1000, .env = &t.env, .observe = observe };
	uint64_t r0;

	assemble(
		"callf f; exit; f:; mov r1, 3; ldfn r2, body; mov r3, 0; mov r4, 0; call 181; exit;"
		"body:; mov r3, 77; mov r0, 0; exit");
	assert_int_equal(ebpf_interp_checked(unit.insns, unit.n, &run, &r0, NULL), 0);
	assert_int_equal(r0, 3);
	assert_int_equal(deepest, 2);
	assert_int_equal(seen_i, 1 + 2 + 3);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_callback_reaches_its_callers_frame),
		cmocka_unit_test(not_zero_ends_the_loop),
		cmocka_unit_test(a_callback_keeps_its_callers_registers),
		cmocka_unit_test(callbacks_nest),
		cmocka_unit_test(a_function_that_is_not_a_constant),
		cmocka_unit_test(loops_in_loops),
		cmocka_unit_test(failed_loops_are_counted),
		cmocka_unit_test(one_function_is_called_both_ways),
		cmocka_unit_test(elements_are_handed_to_a_callback),
		cmocka_unit_test(accesses_in_a_callback_are_checked),
		cmocka_unit_test(keys_are_read_only_and_gone_afterwards),
		cmocka_unit_test(only_functions_are_called_back),
		cmocka_unit_test(callbacks_are_observed),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
