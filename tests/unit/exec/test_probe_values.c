/* Values that programs at sites are given, of kernels whose addresses, masks and lines are known.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/compiler.h"
#include "base/strmap.h"
#include "probe_form.h"

#define HEAD                                                                                       \
	".version 8.0\n.target sm_90\n.address_size 64\n.const .align 4 .b8 c[64];\n"              \
	".shared .align 128 .b8 s[8192];\n"                                                        \
	".func helper()\n{\n.loc 1 30 1\nret;\n}\n"                                                \
	".visible .entry k(.param .u64 b)\n{\n.reg .pred %p<4>; .reg .b32 %r<20>; .reg .b64 "      \
	"%d<9>;\n.local .align 4 .b8 mine[16];\nld.param.u64 %d1, [b];\nmov.u32 %r0, %tid.x;\n"    \
	"setp.lt.u32 %p1, %r0, 5;\nmov.u32 %r9, s;\n"
#define TAIL "\nret;\n}\n.file 1 \"a.cu\"\n"
/* %d2 = buffer + tid * n; %r2 = shared + tid * n */
#define GLOBAL(n) "mad.wide.u32 %d2, %r0, " #n ", %d1;\n"
#define SHARED(n) "mad.lo.u32 %r2, %r0, " #n ", %r9;\n"

enum { MIXED, SAME, UNIT, CONSTANT };
enum { GENERIC, GLOBAL_SPACE, SHARED_SPACE, LOCAL, CONSTANT_SPACE };
enum { LOAD, STORE, ATOMIC, ASYNC, BULK, MATRIX };

/* The engine has no bulk copies, so it runs the code in front of one without the copy. */
#define BULK_COPY "@%p2 cp.async.bulk.global.shared::cta.bulk_group [%d1+16], [%r9], 64;"

/* Nor has the memory of these addresses. */
#define FAR_LOAD "ld.global.u32 %r19, [%d8+4];"

static void without_copies(char *text)
{
	static const char *const parts[] = { BULK_COPY, FAR_LOAD };

	for (size_t i = 0; i < ARRAY_SIZE(parts); i++) {
		for (char *at = strstr(text, parts[i]); at; at = strstr(at, parts[i])) {
			memset(at, ' ', strlen(parts[i]));
		}
	}
}

/* Later targets have instructions for what others compute in loops. */
static char sm_60[] = "sm_60", sm_75[] = "sm_75", sm_90[] = "sm_90";
static const char *target = sm_90;
static uint32_t threads = 32; /* of the block */

struct ran {
	struct engine e;
	struct probe_form f;
	uint64_t buffer;
};

static void run(struct ran *t, const char *body, const uint32_t *hooks, uint32_t n)
{
	const uint32_t one[3] = { 1, 1, 1 }, block[3] = { threads, 1, 1 };
	struct engine_launch l = { .grid = { 1, 1, 1 },
				   .block = { threads, 1, 1 },
				   .limit = 1000000 };
	char text[8192], message[512] = "";
	uint64_t params[2];
	enum exec_status s;

	snprintf(text, sizeof(text), "%s%s%s", HEAD, body, TAIL);
	memcpy(strstr(text, "sm_90"), target, strlen("sm_90"));
	engine_init(&t->e);
	engine_take(&t->e, 4096, &t->buffer);
	if (probe_form_make(&t->f, text, strlen(text), hooks, n, message, sizeof(message)) < 0) {
		fail_msg("%s\n%s", message, text);
	}
	without_copies(text);
	without_copies(t->f.probed.text.data);
	if (engine_load(&t->e, text, strlen(text), "k", message, sizeof(message)) < 0 ||
	    probe_form_bind(&t->f, &t->e, &t->f.probed.text, message, sizeof(message)) < 0) {
		fail_msg("%s\n%s", message, text);
	}
	params[0] = t->buffer;
	probe_form_number(&t->f, params);
	l.params = params;
	l.shared = t->f.probed.needs_shared ? ptx_probe_smem(0, 0, 0) : 0;
	s = engine_run(&t->e, &l);
	if (s != EXEC_DONE || probe_form_check(&t->f, one, block, body)) {
		fail_msg("%d %s\n%s", (int)s, t->e.fault.what ? t->e.fault.what : "",
			 buf_text(&t->f.probed.text));
	}
}

static void done(struct ran *t)
{
	probe_form_unbind(&t->f, &t->e);
	probe_form_finish(&t->f);
	engine_finish(&t->e);
}

#define OF(log, record, field) probe_form_value(&t.f, log, record, field)

static void values_of_accesses(void **state)
{
	static const struct {
		const char *body;
		uint64_t low, span, bytes, sectors, stride, conflicts, space, op, lanes;
	} cases[] = {
		{ GLOBAL(4) "ld.global.u32 %r1, [%d2];", 0, 124, 4, 4, UNIT, 0, GLOBAL_SPACE, LOAD,
		  32 },
		{ GLOBAL(4) "ld.u32 %r1, [%d2+8];", 8, 124, 4, 5, UNIT, 0, GENERIC, LOAD, 32 },
		{ "st.global.u32 [%d1], %r1;", 0, 0, 4, 1, SAME, 0, GLOBAL_SPACE, STORE, 32 },
		{ GLOBAL(32) "ld.global.u8 %r1, [%d2];", 0, 31 * 32, 1, 32, CONSTANT, 0,
		  GLOBAL_SPACE, LOAD, 32 },
		{ GLOBAL(16) "ld.global.nc.v4.u32 {%r1,%r2,%r3,%r4}, [%d2];", 0, 31 * 16, 16, 16,
		  UNIT, 0, GLOBAL_SPACE, LOAD, 32 },
		{ "sub.u32 %r1, 31, %r0; mad.wide.u32 %d2, %r1, 4, %d1; ld.global.u32 %r1, [%d2];",
		  0, 124, 4, 4, CONSTANT, 0, GLOBAL_SPACE, LOAD, 32 },
		{ "and.b32 %r1, %r0, 1; mad.wide.u32 %d2, %r1, 32, %d1; ld.global.u32 %r1, [%d2];",
		  0, 32, 4, 2, MIXED, 0, GLOBAL_SPACE, LOAD, 32 },
		{ "and.b32 %r1, %r0, 1; mad.lo.u32 %r2, %r1, 32, %r9; ld.shared.u32 %r1, [%r2];", 0,
		  32, 4, 2, MIXED, 0, SHARED_SPACE, LOAD, 32 },
		{ "xor.b32 %r1, %r0, 1; mad.wide.u32 %d2, %r1, 4, %d1; ld.global.u32 %r1, [%d2];",
		  0, 124, 4, 4, MIXED, 0, GLOBAL_SPACE, LOAD, 32 },
		{ GLOBAL(4) "@%p1 red.global.add.u32 [%d2+16], 1;", 16, 16, 4, 2, UNIT, 0,
		  GLOBAL_SPACE, ATOMIC, 5 },
		{ GLOBAL(64) "@!%p1 st.global.u32 [%d2], %r0;", 320, 26 * 64, 4, 27, CONSTANT, 0,
		  GLOBAL_SPACE, STORE, 27 },
		{ GLOBAL(4) "setp.eq.u32 %p2, %r0, 7; @%p2 ld.global.u32 %r1, [%d2];", 28, 0, 4, 1,
		  SAME, 0, GLOBAL_SPACE, LOAD, 1 },
		{ SHARED(4) "ld.shared.u32 %r1, [%r2];", 0, 124, 4, 4, UNIT, 0, SHARED_SPACE, LOAD,
		  32 },
		{ SHARED(8) "ld.shared.u32 %r1, [%r2];", 0, 248, 4, 8, CONSTANT, 1, SHARED_SPACE,
		  LOAD, 32 },
		{ SHARED(128) "st.shared.u32 [%r2+4], %r1;", 4, 31 * 128, 4, 32, CONSTANT, 31,
		  SHARED_SPACE, STORE, 32 },
		{ SHARED(128) "@%p1 st.shared.u32 [%r2+4], %r1;", 4, 4 * 128, 4, 5, CONSTANT, 4,
		  SHARED_SPACE, STORE, 5 },
		{ "atom.shared.add.u32 %r1, [s], 1;", 0, 0, 4, 1, SAME, 0, SHARED_SPACE, ATOMIC,
		  32 },
		{ SHARED(1) "ld.shared.u8 %r1, [%r2];", 0, 31, 1, 1, UNIT, 0, SHARED_SPACE, LOAD,
		  32 },
		{ SHARED(8) "ld.shared.u64 %d3, [%r2];", 0, 248, 8, 8, UNIT, 0, SHARED_SPACE, LOAD,
		  32 },
		{ SHARED(16) "ld.shared.u64 %d3, [%r2];", 0, 496, 8, 16, CONSTANT, 1, SHARED_SPACE,
		  LOAD, 32 },
		{ SHARED(16) "ld.shared.v4.u32 {%r1,%r3,%r4,%r5}, [%r2];", 0, 496, 16, 16, UNIT, 0,
		  SHARED_SPACE, LOAD, 32 },
		{ SHARED(32) "ld.shared.v2.u64 {%d2,%d3}, [%r2];", 0, 31 * 32, 16, 32, CONSTANT, 1,
		  SHARED_SPACE, LOAD, 32 },
		{ "mad.lo.u32 %r2, %r0, 128, %r9; setp.lt.u32 %p2, %r0, 8; "
		  "@%p2 mad.lo.u32 %r2, %r0, 16, %r9; "
		  "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r1}, [%r2];",
		  0, 112, 16, 4, UNIT, 0, SHARED_SPACE, MATRIX, 32 },
		{ SHARED(128) "ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%r1,%r3}, [%r2];", 0,
		  15 * 128, 16, 16, CONSTANT, 7, SHARED_SPACE, MATRIX, 32 },
		{ SHARED(4) GLOBAL(4) "cp.async.ca.shared.global [%r2], [%d2+4], 4; "
				      "cp.async.wait_all;",
		  4, 124, 4, 5, UNIT, 0, GLOBAL_SPACE, ASYNC, 32 },
		{ "setp.eq.u32 %p2, %r0, 3;\n" BULK_COPY "\n", 16, 0, 64, 3, SAME, 0, GLOBAL_SPACE,
		  BULK, 1 },
		{ "wmma.load.a.sync.aligned.row.m16n16k16.global.f16 "
		  "{%r1,%r2,%r3,%r4,%r5,%r6,%r7,%r8}, [%d1];",
		  0, 496, 16, 16, UNIT, 0, GLOBAL_SPACE, MATRIX, 32 },
		{ "mov.u32 %r10, 24; wmma.load.a.sync.aligned.row.m16n16k16.global.f16 "
		  "{%r1,%r2,%r3,%r4,%r5,%r6,%r7,%r8}, [%d1+64], %r10;",
		  64, 736, 16, 24, MIXED, 0, GLOBAL_SPACE, MATRIX, 32 },
		{ "wmma.load.b.sync.aligned.row.m32n8k16.f16 "
		  "{%r1,%r2,%r3,%r4,%r5,%r6,%r7,%r8}, [%d1], 16;",
		  0, 15 * 32 + 8, 8, 16, MIXED, 0, GENERIC, MATRIX, 32 },
		{ "wmma.store.d.sync.aligned.col.m16n16k16.shared.f32 [%r9], "
		  "{%r1,%r2,%r3,%r4,%r5,%r6,%r7,%r8}, 32;",
		  0, 15 * 128 + 32, 32, 32, MIXED, 0, SHARED_SPACE, MATRIX, 32 },
		{ "wmma.load.b.sync.aligned.col.m8n8k32.global.s4 {%r1}, [%d1], 64;", 0,
		  7 * 32 + 12, 4, 8, MIXED, 0, GLOBAL_SPACE, MATRIX, 32 },
		{ "wmma.store.d.sync.aligned.row.m8n32k16.shared.s32 [%r9], "
		  "{%r1,%r2,%r3,%r4,%r5,%r6,%r7,%r8}, 32;",
		  0, 31 * 32, 32, 32, UNIT, 0, SHARED_SPACE, MATRIX, 32 },
		{ "ld.const.u32 %r1, [c+4];", 0, 0, 4, 1, SAME, 0, CONSTANT_SPACE, LOAD, 32 },
		{ "st.local.u32 [mine+4], %r0;", 0, 0, 4, 1, SAME, 0, LOCAL, STORE, 32 },
	};
	static const uint32_t hooks[] = { 38, 138 };

	target = *state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		static struct ran t;
		uint64_t base;

		run(&t, cases[i].body, hooks, 2);
		base = cases[i].space <= GLOBAL_SPACE ? t.buffer : OF(0, 0, "addr") - cases[i].low;
		if (t.f.logs[0]->n != 1 || t.f.logs[1]->n != cases[i].lanes ||
		    OF(0, 0, "addr") != base + cases[i].low ||
		    OF(0, 0, "addr_high") - OF(0, 0, "addr") != cases[i].span ||
		    OF(0, 0, "bytes") != cases[i].bytes ||
		    OF(0, 0, "sectors") != cases[i].sectors ||
		    OF(0, 0, "stride") != cases[i].stride ||
		    OF(0, 0, "conflicts") != cases[i].conflicts ||
		    OF(0, 0, "space") != cases[i].space || OF(0, 0, "op") != cases[i].op ||
		    OF(0, 0, "lanes") != cases[i].lanes) {
			fail_msg("%s: %u records, %u of lanes, +%d to +%d, bytes %u, sectors %u, "
				 "stride %u, conflicts %u, space %u, op %u, lanes %u",
				 cases[i].body, (unsigned)t.f.logs[0]->n, (unsigned)t.f.logs[1]->n,
				 (int)(OF(0, 0, "addr") - base),
				 (int)(OF(0, 0, "addr_high") - base), (unsigned)OF(0, 0, "bytes"),
				 (unsigned)OF(0, 0, "sectors"), (unsigned)OF(0, 0, "stride"),
				 (unsigned)OF(0, 0, "conflicts"), (unsigned)OF(0, 0, "space"),
				 (unsigned)OF(0, 0, "op"), (unsigned)OF(0, 0, "lanes"));
		}
		if (cases[i].op == BULK) {
			assert_int_equal(OF(1, 0, "sectors"), 3);
			assert_int_equal(OF(1, 0, "bytes"), 64);
		}
		done(&t);
	}
}

static void values_of_far_addresses(void **state)
{
	static const struct {
		const char *body;
		uint64_t low, high, sectors, stride;
	} cases[] = {
		{ "mul.wide.u32 %d8, %r0, 0x10000000;", 4, (UINT64_C(31) << 28) + 4, 32, CONSTANT },
		/* the lowest address has not the lowest low word, nor the highest the highest */
		{ "mul.wide.u32 %d8, %r0, 0xfffffff0;", 4, UINT64_C(31) * 0xfffffff0 + 4, 32,
		  CONSTANT },
		{ "and.b32 %r1, %r0, 1; mul.wide.u32 %d8, %r1, 0xfffffffc;", 4,
		  UINT64_C(0x100000000), 2, MIXED },
		{ "mov.u64 %d8, 0xfffffffffffffff8;", UINT64_MAX - 3, UINT64_MAX - 3, 1, SAME },
	};
	static const uint32_t hooks[] = { 38 };

	target = *state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		static struct ran t;
		char body[512];

		snprintf(body, sizeof(body), "%s %s", cases[i].body, FAR_LOAD);
		run(&t, body, hooks, 1);
		assert_int_equal(OF(0, 0, "addr"), cases[i].low);
		assert_int_equal(OF(0, 0, "addr_high"), cases[i].high);
		assert_int_equal(OF(0, 0, "sectors"), cases[i].sectors);
		assert_int_equal(OF(0, 0, "stride"), cases[i].stride);
		done(&t);
	}
}

static void lanes_that_take_a_branch(void **state)
{
	static const uint32_t hooks[] = { 41, 141 };
	static struct ran t;

	(void)state;
	run(&t, "@%p1 bra L;\n@!%p1 bra L;\nL:\n@!%p1 bra M;\nM:\n", hooks, 2);
	assert_int_equal(t.f.logs[0]->n, 3);
	assert_int_equal(OF(0, 0, "taken"), 0x1f);
	assert_int_equal(OF(0, 0, "active"), UINT32_MAX);
	assert_int_equal(OF(0, 1, "taken"), UINT32_MAX & ~0x1fu);
	assert_int_equal(OF(0, 1, "active"), UINT32_MAX & ~0x1fu);
	assert_int_equal(OF(0, 2, "taken"), UINT32_MAX & ~0x1fu);
	assert_int_equal(OF(0, 2, "site"), 2);
	for (uint64_t i = 0; i < 32; i++) {
		uint64_t lane = OF(1, i, "lane");

		assert_int_equal(OF(1, i, "taken"), lane < 5 ? UINT64_C(1) << lane : 0);
	}
	done(&t);
}

static void barriers_fences_lines_and_functions(void **state)
{
	static const uint32_t hooks[] = { 40, 39, 42, 36, 37, 33 };
	static struct ran t;

	(void)state;
	run(&t,
	    ".loc 1 20 1\nbar.red.popc.u32 %r1, 0, %p1;\n.loc 1 21 1\nfence.acq_rel.cluster;\n"
	    "membar.gl;\n@%p1 call helper;\n",
	    hooks, ARRAY_SIZE(hooks));
	assert_int_equal(t.f.logs[0]->n, 2);
	assert_int_equal(OF(0, 0, "after"), 0);
	assert_int_equal(OF(0, 1, "after"), 1);
	assert_int_equal(OF(0, 1, "site"), 0);
	assert_int_equal(OF(0, 1, "line"), 20);
	assert_int_equal(t.f.logs[1]->n, 2);
	assert_int_equal(OF(1, 0, "scope"), 1);
	assert_int_equal(OF(1, 1, "scope"), 2);
	assert_int_equal(OF(1, 1, "line"), 21);
	assert_int_equal(t.f.logs[2]->n, 3);
	assert_int_equal(OF(2, 0, "line"), 20);
	assert_int_equal(OF(2, 1, "line"), 21);
	assert_int_equal(OF(2, 2, "line"), 30);
	assert_int_equal(OF(2, 2, "lanes"), 5);
	assert_int_equal(OF(2, 2, "site"), 0); /* its text is before k's */
	assert_int_equal(t.f.logs[3]->n, 1);
	assert_int_equal(OF(3, 0, "function"), hash_bytes("helper", 6));
	assert_int_equal(OF(3, 0, "active"), 0x1f);
	assert_int_equal(OF(4, 0, "lanes"), 5);
	assert_int_equal(OF(5, 0, "line"), 21);
	done(&t);
}

/* The barrier writes the predicate that guards it. */
static void a_barrier_may_write_its_guard(void **state)
{
	static const uint32_t hooks[] = { 40 };
	static struct ran t;

	(void)state;
	run(&t, "setp.ne.u32 %p2, %r0, 99;\n@%p2 bar.red.and.pred %p2, 0, %p1;\n", hooks, 1);
	assert_int_equal(t.f.logs[0]->n, 2);
	assert_int_equal(OF(0, 1, "lanes"), 32);
	done(&t);
}

static void lanes_leave_once_each(void **state)
{
	static const uint32_t hooks[] = { 33, 35 };
	static struct ran t;

	(void)state;
	run(&t, "@%p1 exit;\n@!%p1 bra L;\nL:\n", hooks, 2);
	assert_int_equal(t.f.logs[0]->n, 2);
	assert_int_equal(OF(0, 0, "active"), 0x1f);
	assert_int_equal(OF(0, 1, "active"), UINT32_MAX & ~0x1fu);
	assert_int_equal(t.f.logs[1]->n, 1);
	assert_int_equal(OF(1, 0, "active"), UINT32_MAX & ~0x1fu);
	assert_int_equal(OF(1, 0, "site"), 1);
	assert_int_equal(OF(1, 0, "late"), 0);
	assert_true(OF(1, 0, "clock") > OF(0, 1, "clock"));
	assert_true(OF(1, 0, "end_ns") >= OF(0, 1, "time_ns"));
	done(&t);
}

/* The last warp has 8 lanes. */
static void each_warp_enters_once(void **state)
{
	static const uint32_t hooks[] = { 32 };
	static struct ran t;

	target = *state;
	threads = 72;
	run(&t, "", hooks, 1);
	assert_int_equal(strstr(buf_text(&t.f.probed.text), "elect.sync") != NULL, target == sm_90);
	assert_int_equal(t.f.logs[0]->n, 3);
	for (uint64_t i = 0; i < 3; i++) {
		bool last = OF(0, i, "warp") == 2;

		assert_int_equal(OF(0, i, "active"), last ? 0xff : UINT32_MAX);
		assert_int_equal(OF(0, i, "lane"), 0);
	}
	done(&t);
	threads = 32;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		{ "accesses, sm_60", values_of_accesses, .initial_state = sm_60 },
		{ "accesses, sm_75", values_of_accesses, .initial_state = sm_75 },
		{ "accesses, sm_90", values_of_accesses, .initial_state = sm_90 },
		{ "far addresses, sm_60", values_of_far_addresses, .initial_state = sm_60 },
		{ "far addresses, sm_75", values_of_far_addresses, .initial_state = sm_75 },
		{ "far addresses, sm_90", values_of_far_addresses, .initial_state = sm_90 },
		{ "entries, sm_60", each_warp_enters_once, .initial_state = sm_60 },
		{ "entries, sm_90", each_warp_enters_once, .initial_state = sm_90 },
		cmocka_unit_test(lanes_that_take_a_branch),
		cmocka_unit_test(barriers_fences_lines_and_functions),
		cmocka_unit_test(a_barrier_may_write_its_guard),
		cmocka_unit_test(lanes_leave_once_each),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
