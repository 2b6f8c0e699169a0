/* Reads of registers that nothing has written: two of them give two values, as of what ptxas makes.
 * A read that may find a value gives that value. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/compiler.h"
#include "engine.h"

#define HEAD                                                                                       \
	".version 7.0\n.target sm_70\n.address_size 64\n"                                          \
	".func use(.reg .b64 %q, .reg .b32 %r)\n"                                                  \
	"{\n\tst.global.u32 [%q], %r;\n\tst.global.u32 [%q+4], %r;\n}\n"                           \
	".visible .entry k(.param .u64 out)\n"                                                     \
	"{\n\t.reg .b64 %q, %d<4>;\n\t.reg .b32 %r<8>;\n\t.reg .pred %p<2>;\n"                     \
	"\tld.param.u64 %q, [out];\n\tsetp.eq.u32 %p0, 0, 0;\n"
#define STORE(r) "\tst.global.u32 [%q], " r ";\n\tst.global.u32 [%q+4], " r ";\n"

#define DIFFERENT UINT32_MAX

static const struct {
	const char *name, *body;
	uint32_t value; /* of both words */
} cases[] = {
	{ "two reads", STORE("%r1"), DIFFERENT },
	{ "behind moves", "\tmov.b32 %r2, %r1;\n\tmov.u32 %r3, %r2;\n" STORE("%r3"), DIFFERENT },
	{ "of 64 bits",
	  "\tmov.b64 %d2, %d1;\n\tcvt.u32.u64 %r1, %d2;\n\tcvt.u32.u64 %r2, %d2;\n"
	  "\tst.global.u32 [%q], %r1;\n\tst.global.u32 [%q+4], %r2;\n",
	  DIFFERENT },
	{ "behind a branch", "\t@!%p0 bra $on;\n\tmov.u32 %r2, 3;\n$on:\n" STORE("%r1"),
	  DIFFERENT },
	{ "in front of a loop",
	  STORE("%r1") "\tmov.u32 %r1, 2;\n$next:\n\tsub.u32 %r1, %r1, 1;\n"
		       "\tsetp.ne.u32 %p1, %r1, 0;\n\t@%p1 bra $next;\n",
	  DIFFERENT },
	{ "behind a loop",
	  "\tmov.u32 %r2, 2;\n$next:\n\tsub.u32 %r2, %r2, 1;\n\tsetp.ne.u32 %p1, %r2, 0;\n"
	  "\t@%p1 bra $next;\n" STORE("%r1"),
	  DIFFERENT },
	{ "by one instruction", "\txor.b32 %r2, %r1, %r1;\n" STORE("%r2"), 0 },
	{ "the result of one read",
	  "\tadd.u32 %r2, %r1, 1;\n\tsub.u32 %r3, %r2, %r2;\n" STORE("%r3"), 0 },
	{ "written", "\tmov.u32 %r1, 5;\n" STORE("%r1"), 5 },
	{ "written on one path", "\t@!%p0 bra $on;\n\tmov.u32 %r1, 5;\n$on:\n" STORE("%r1"), 5 },
	{ "written under a predicate", "\t@%p0 mov.u32 %r1, 6;\n" STORE("%r1"), 6 },
	{ "written in the round before",
	  "\tmov.u32 %r2, 0;\n$next:\n\tsetp.eq.u32 %p1, %r2, 0;\n\t@%p1 bra $first;\n" STORE(
		  "%r1") "$first:\n\tmov.u32 %r1, 7;\n\tadd.u32 %r2, %r2, 1;\n"
			 "\tsetp.lt.u32 %p1, %r2, 2;\n\t@%p1 bra $next;\n",
	  7 },
	{ "moved in the round before",
	  "\tmov.u32 %r2, 0;\n$next:\n\tmov.u32 %r3, %r1;\n" STORE(
		  "%r3") "\tmov.u32 %r1, 7;\n\tadd.u32 %r2, %r2, 1;\n"
			 "\tsetp.lt.u32 %p1, %r2, 2;\n\t@%p1 bra $next;\n",
	  7 },
	{ "written in front, behind in the text",
	  "\tbra $two;\n$one:\n" STORE("%r1") "\tbra $end;\n$two:\n\tmov.u32 %r1, 9;\n"
					      "\tbra $one;\n$end:\n",
	  9 },
	{ "of a branch in a scope",
	  "\tbra $two;\n$one:\n" STORE("%r1") "\tbra $end;\n$two:\n\tmov.u32 %r1, 9;\n"
					      "\t{\n\tbra $one;\n\t}\n$end:\n",
	  9 },
	{ "of a branch with a table",
	  "\tbra $two;\n$one:\n" STORE(
		  "%r1") "\tbra $end;\n$two:\n\tmov.u32 %r1, 9;\n"
			 "\tmov.u32 %r2, 0;\n$all:\n"
			 "\t.branchtargets $one;\n\tbrx.idx %r2, $all;\n$end:\n",
	  9 },
	{ "moved on one path",
	  "\tmov.u32 %r2, 3;\n\t@%p0 bra $on;\n\tmov.u32 %r2, %r1;\n$on:\n" STORE("%r2"), 3 },
	{ "moved under a predicate", "\tmov.u32 %r2, 3;\n\t@!%p0 mov.u32 %r2, %r1;\n" STORE("%r2"),
	  3 },
	{ "written again", "\tmov.u32 %r2, %r1;\n\tmov.u32 %r2, 4;\n" STORE("%r2"), 4 },
	{ "a special register", "\tmov.u32 %r2, %r1;\n\tmov.u32 %r3, %tid.x;\n" STORE("%r3"), 0 },
	{ "a parameter", "\tmov.u32 %r1, 8;\n\tcall use, (%q, %r1);\n", 8 },
};

static void undefined_values(void **state)
{
	static struct engine e;
	char text[4096], message[256] = "";

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		uint64_t out;
		struct engine_launch l = {
			.grid = { 1, 1, 1 }, .block = { 1, 1, 1 }, .params = &out, .limit = 1000
		};
		uint32_t *v;

		engine_init(&e);
		v = engine_take(&e, 8, &out);
		snprintf(text, sizeof(text), "%s%s\tret;\n}\n", HEAD, cases[i].body);
		if (engine_load(&e, text, strlen(text), "t", message, sizeof(message)) < 0) {
			fail_msg("%s: %s", cases[i].name, message);
		}
		assert_int_equal(engine_run(&e, &l), EXEC_DONE);
		if (cases[i].value == DIFFERENT ? v[0] == v[1]
						: v[0] != v[1] || v[0] != cases[i].value) {
			fail_msg("%s: %x %x", cases[i].name, v[0], v[1]);
		}
		engine_finish(&e);
	}
}

int main(void)
{
	static const struct CMUnitTest tests[] = { cmocka_unit_test(undefined_values) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
