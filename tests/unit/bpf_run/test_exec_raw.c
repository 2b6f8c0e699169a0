/* Runs unverified programs interpreted and compiled: the results are equal, and no program can
 * access memory outside its own. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "asm.h"
#include "bpf/load/exec_raw.h"

static struct asm_unit unit;

static int run(const char *text, void *mem, size_t bytes, int jit, uint64_t *r0)
{
	char *copy = strdup(text), *rest = copy;
	struct report r;
	int err;

	asm_begin(&unit);
	for (char *line = strsep(&rest, ";"); line; line = strsep(&rest, ";")) {
		assert_int_equal(asm_line(&unit, line), 0);
	}
	assert_int_equal(asm_end(&unit), 0);
	free(copy);
	report_init(&r);
	err = ebpf_exec_raw(unit.insns, unit.n * 8u, mem, bytes, jit, r0, &r);
	assert_true(!err == !r.message.len);
	report_finish(&r);
	return err;
}

static void both_give(const char *text, void *mem, size_t bytes, uint64_t expected)
{
	for (int jit = 0; jit < 2; jit++) {
		uint64_t r0 = 0;

		assert_int_equal(run(text, mem, bytes, jit, &r0), 0);
		assert_int_equal(r0, expected);
	}
}

static void both_fail(const char *text, void *mem, size_t bytes, int interpreted, int compiled)
{
	uint64_t r0 = 7;

	assert_int_equal(run(text, mem, bytes, 0, &r0), interpreted);
	assert_int_equal(run(text, mem, bytes, 1, &r0), compiled);
	assert_int_equal(r0, 7);
}

static void both_engines_run_programs(void **state)
{
	uint8_t mem[16] = { 1, 2, 3, 4, 5, 6, 7, 8 };

	both_give("mov r0, 42; exit", NULL, 0, 42);
	both_give("mov r0, r1; exit", NULL, 0, 0);
	both_give("mov r0, r2; exit", mem, 5, 5);
	both_give("mov r0, r3; or r0, r4; or r0, r5; or r0, r6; or r0, r7; or r0, r8; or r0, r9; "
		  "exit",
		  mem, 5, 0);
	both_give("ldxdw r0, [r1]; exit", mem, 8, 0x0807060504030201);
	both_give("callf f; add r0, 1; exit; f:; mov r0, 8; exit", NULL, 0, 9);
	both_give("mov r0, -1; rsh32 r0, 4; exit", NULL, 0, 0x0fffffff);
}

/* Two readings of the clock are in order, and less than 2^36 ns apart. */
static void programs_read_the_clock(void **state)
{
	both_give("call 5; mov r6, r0; call 5; sub r0, r6; rsh r0, 36; exit", NULL, 0, 0);
	both_give("call 5; jeq r0, 0, out; mov r0, 1; out:; exit", NULL, 0, 1);
	both_give("mov r7, 3; callf f; mov r0, r7; exit; f:; call 5; exit", NULL, 0, 3);
}

static void changed_memory_comes_back(void **state)
{
	for (int jit = 0; jit < 2; jit++) {
		uint8_t mem[5] = { 1, 2, 3, 4, 5 };
		uint64_t r0;

		assert_int_equal(
			run("ldxb r0, [r1+4]; stb [r1], 9; exit", mem, sizeof(mem), jit, &r0), 0);
		assert_int_equal(r0, 5);
		assert_int_equal(mem[0], 9);
		assert_int_equal(mem[4], 5);
	}
}

static void bad_programs_are_refused(void **state)
{
	uint8_t byte = 0;
	uint64_t r0;

	both_fail("mov r0, 0", NULL, 0, -EINVAL, -EINVAL);
	both_fail("hex ffffffffffffffff", NULL, 0, -EINVAL, -EINVAL);
	both_fail("call 7; exit", NULL, 0, -EINVAL, -EINVAL);
	both_fail("ldmap r1, 0; exit", NULL, 0, -EINVAL, -EINVAL);
	both_fail("ldmap r1, 0; mov r2, r10; call 1; exit", NULL, 0, -EINVAL, -EINVAL);
	both_fail("call 501; exit", NULL, 0, -EINVAL, -EINVAL);
	assert_int_equal(ebpf_exec_raw(&byte, 1, NULL, 0, 0, &r0, NULL), -EINVAL);
	assert_int_equal(ebpf_exec_raw(&byte, 0, NULL, 0, 1, &r0, NULL), -EINVAL);
}

static void bad_accesses_end_the_run_only(void **state)
{
	uint8_t mem[4096] = { 0 };

	both_fail("mov r1, 0; ldxb r0, [r1]; exit", NULL, 0, -EFAULT, -EFAULT);
	both_fail("ldxb r0, [r1+4096]; exit", mem, sizeof(mem), -EFAULT, -EFAULT);
	both_fail("ldxb r0, [r1-1]; exit", mem, sizeof(mem), -EFAULT, -EFAULT);
	both_fail("lddw r1, 0x123456789000; stdw [r1], 1; exit", NULL, 0, -EFAULT, -EFAULT);
}

static void endless_programs_end(void **state)
{
	both_fail("top:; ja top", NULL, 0, -ETIME, -ETIME);
}

/* A compiled program that overwrites its return address gets no further than its process. */
static void a_program_that_escapes_can_do_nothing(void **state)
{
	uint64_t r0;

	assert_int_equal(run("stdw [r10+8], 1; mov r0, 0; exit", NULL, 0, 1, &r0), -EFAULT);
}

static void refused_as(const char *text, const char *words)
{
	for (int jit = 0; jit < 2; jit++) {
		struct report r;
		uint64_t r0;
		char *copy = strdup(text), *rest = copy;

		asm_begin(&unit);
		for (char *line = strsep(&rest, ";"); line; line = strsep(&rest, ";")) {
			assert_int_equal(asm_line(&unit, line), 0);
		}
		assert_int_equal(asm_end(&unit), 0);
		free(copy);
		report_init(&r);
		assert_int_equal(ebpf_exec_raw(unit.insns, unit.n * 8u, NULL, 0, jit, &r0, &r),
				 -EINVAL);
		assert_non_null(strstr(buf_text(&r.message), words));
		assert_string_equal(buf_text(&r.place), "insn 1");
		report_finish(&r);
	}
}

static void what_others_have_is_refused_by_name(void **state)
{
	refused_as("mov r1, 1; hex 8d01000000000000; exit", "callx");
	refused_as("mov r1, 1; hex 2000000000000000; exit", "LD_ABS");
	refused_as("mov r1, 1; hex 4810000000000000; exit", "LD_IND");
	refused_as("mov r1, 1; hex e500010000000000; exit", "may_goto");
	refused_as("mov r1, 1; hex bf11010001000000; exit", "arena");
	refused_as("mov r1, 1; hex 8520000001000000; exit", "kfunc");
	refused_as("mov r1, 1; hex db11000000010000; exit", "load-acquire");
	refused_as("mov r1, 1; hex db11000010010000; exit", "store-release");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(both_engines_run_programs),
		cmocka_unit_test(what_others_have_is_refused_by_name),
		cmocka_unit_test(programs_read_the_clock),
		cmocka_unit_test(changed_memory_comes_back),
		cmocka_unit_test(bad_programs_are_refused),
		cmocka_unit_test(bad_accesses_end_the_run_only),
		cmocka_unit_test(endless_programs_end),
		cmocka_unit_test(a_program_that_escapes_can_do_nothing),
	};

	return cmocka_run_group_tests_name("bpf exec raw", tests, NULL, NULL);
}
