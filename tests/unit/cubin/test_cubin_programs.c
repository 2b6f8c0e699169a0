/* Entry stubs that run programs: compiled ones of each architecture are accepted, and each rule is
 * enforced: a case is one changed instruction of an accepted stub. */
#include "cubin_files.h"

#include <errno.h>
#include <stdio.h>

#include "cubin/cubin_insn_int.h"
#include "cubin/cubin_stub_int.h"

/* more: bytes of padding that hold arguments of the kernel. */
static struct cubin_stub *open_padded(const char *name, unsigned arch, uint32_t more)
{
	struct cubin_stub *s = NULL;
	struct buf a, b;
	char path[64];

	snprintf(path, sizeof(path), "%s_64.sm_%u", name, arch);
	a = read_cubin(path);
	snprintf(path, sizeof(path), "%s_1024.sm_%u", name, arch);
	b = read_cubin(path);
	assert_int_equal(cubin_stub_open(&s, a.data, a.len, 64 + more, b.data, b.len, 1024 + more,
					 "gbpf_stub", 64, NULL),
			 0);
	buf_finish(&a);
	buf_finish(&b);
	return s;
}

static struct cubin_stub *open_programs(const char *name, unsigned arch)
{
	return open_padded(name, arch, 0);
}

/* Figures are the compiler's. */
static void programs_are_accepted_on_each_architecture(void **state)
{
	static const struct {
		unsigned arch, registers;
	} cases[] = { { 75, 21 }, { 80, 18 },  { 86, 18 },  { 89, 18 },
		      { 90, 17 }, { 100, 17 }, { 103, 17 }, { 120, 18 } };

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct cubin_stub *s = open_programs("probe", cases[i].arch);

		assert_int_equal(s->registers, cases[i].registers);
		assert_in_range(s->lists[0].n, 1, 2); /* the gate's exits */
		assert_int_equal(cubin_stub_check_programs(s, NULL), 0);
		cubin_stub_close(s);
		s = open_programs("late", cases[i].arch);
		assert_int_equal(cubin_stub_check_programs(s, NULL), 0);
		cubin_stub_close(s);
		s = open_programs("gate", cases[i].arch); /* no program is fine, too */
		assert_int_equal(cubin_stub_check_programs(s, NULL), 0);
		cubin_stub_close(s);
	}
}

/* Returns how many operands of a stub name that address in bank 0; `argument`: as a part of the
 * stub's own argument, which is moved. */
static unsigned mentions(const struct cubin_stub *s, uint32_t address, bool argument)
{
	unsigned n = 0;

	for (size_t at = 0; at < s->bytes; at += 16) {
		struct cubin_insn i = cubin_insn_at(s->code + at);
		unsigned form = cubin_insn_op(i) >> 9;
		unsigned first = cubin_insn_op(i) == CUBIN_OP_LDCU ? 37 : 38;

		n += (form == 3 || form == 5) && (i.lo >> first & 0xffff) == address &&
		     !s->field[at / 16] == !argument;
	}
	return n;
}

/* The kernel's parameters begin at the stub's base, whatever the padding. */
static void arguments_of_the_kernel_stay_in_place(void **state)
{
	static const unsigned archs[] = { 75, 80, 86, 89, 90, 100, 103, 120 };

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(archs); i++) {
		struct cubin_stub *s = open_padded("argument", archs[i], 88);

		print_message("sm_%u\n", archs[i]);
		assert_int_equal(cubin_stub_check_programs(s, NULL), 0);
		assert_int_equal(s->arg_at, s->base + 64 + 88);
		assert_int_equal(mentions(s, s->base + 16, false), 1);
		assert_int_equal(mentions(s, s->base + 16, true), 0);
		assert_true(mentions(s, s->arg_at + 8, true) > 0); /* the gate's address */
		cubin_stub_close(s);
	}
}

/* Returns the nth instruction with that base behind the gate. */
static uint8_t *find(const struct cubin_stub *s, unsigned base, unsigned n)
{
	size_t at = s->lists[0].at[s->lists[0].n - 1];

	for (at += 16; at < s->bytes; at += 16) {
		if (cubin_insn_base(cubin_insn_at(s->code + at)) == base && n-- == 0) {
			return s->code + at;
		}
	}
	fail_msg("no instruction 0x%x", base);
	return NULL;
}

static void expect(const struct cubin_stub *s, const char *text)
{
	struct report r;

	report_init(&r);
	assert_int_equal(cubin_stub_check_programs(s, &r), -ENOTSUP);
	if (!strstr(buf_text(&r.message), text)) {
		fail_msg("'%s' is not in '%s'", text, buf_text(&r.message));
	}
	assert_non_null(strstr(buf_text(&r.place), "code at 0x"));
	report_finish(&r);
}

static void each_operation_is_refused_behind_the_gate(void **state)
{
	static const struct {
		unsigned op;
		const char *text;
	} cases[] = {
		{ 0x806, "whole warp" },    { 0x886, "whole warp" },	{ 0x389, "whole warp" },
		{ 0xf89, "whole warp" },    { 0x3a1, "whole warp" },	{ 0x3c4, "whole warp" },
		{ 0x82f, "whole warp" },    { 0x943, "call" },		{ 0x343, "call" },
		{ 0x944, "call" },	    { 0x950, "call" },		{ 0x949, "table" },
		{ 0x94c, "table" },	    { 0x983, "stack" },		{ 0x987, "stack" },
		{ 0x984, "shared memory" }, { 0x988, "shared memory" }, { 0x38c, "shared memory" },
		{ 0xb1d, "wait" },	    { 0x95c, "wait" },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct cubin_stub *s = open_programs("probe", 90);
		uint8_t *p = find(s, CUBIN_OP_RED & 0x1ff, 0);
		struct cubin_insn insn = cubin_insn_at(p);

		insn.lo = (insn.lo & ~0xfffull) | cases[i].op;
		cubin_insn_put(p, insn);
		expect(s, cases[i].text);
		cubin_stub_close(s);
		s = open_programs("probe", 90); /* in front of the gate's end it is the gate's */
		cubin_insn_put(s->code + s->lists[0].at[s->lists[0].n - 1] - 64, insn);
		assert_int_equal(cubin_stub_check_programs(s, NULL), 0);
		cubin_stub_close(s);
	}
}

/* The driver's compiler puts such loads in front of fences. */
static void loads_that_never_run_are_accepted(void **state)
{
	struct cubin_stub *s = open_programs("probe", 90);
	uint8_t *p = find(s, CUBIN_OP_RED & 0x1ff, 0);
	struct cubin_insn insn = { .lo = 0xfffff984 };

	(void)state;
	cubin_insn_put(p, insn);
	assert_int_equal(cubin_stub_check_programs(s, NULL), 0);
	insn.lo = 0xffff8984; /* @!P0 */
	cubin_insn_put(p, insn);
	expect(s, "shared memory");
	insn.lo = 0xfffff988; /* a store */
	cubin_insn_put(p, insn);
	expect(s, "shared memory");
	cubin_stub_close(s);
}

/* The kernel must begin with whole warps. */
static void lanes_must_join_again(void **state)
{
	struct cubin_stub *s = open_programs("probe", 90);
	struct cubin_insn i;

	(void)state;
	cubin_insn_put(find(s, CUBIN_BASE_BSYNC, 0), cubin_insn_nop(1, 0));
	expect(s, "do not join again"); /* the last of the two stays open */
	cubin_stub_close(s);
	s = open_programs("probe", 90);
	cubin_insn_put(find(s, CUBIN_BASE_BSSY, 0), cubin_insn_nop(1, 0));
	expect(s, "do not join again"); /* a branch outside */
	cubin_stub_close(s);
	s = open_programs("probe", 90);
	cubin_insn_put(find(s, CUBIN_BASE_BSSY, 0), cubin_insn_at(find(s, CUBIN_BASE_BSYNC, 0)));
	expect(s, "unknown form");
	cubin_stub_close(s);
	s = open_programs("probe", 90);
	i = cubin_insn_at(find(s, CUBIN_BASE_BSYNC, 0));
	i.lo &= ~0xf000ull; /* predicated */
	cubin_insn_put(find(s, CUBIN_BASE_BSYNC, 0), i);
	expect(s, "unknown form");
	cubin_stub_close(s);
}

/* The compiler may place a block behind the end. */
static void branches_stay_inside(void **state)
{
	static const unsigned archs[] = { 75, 80, 90, 120 };

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(archs); i++) {
		for (unsigned past = 0; past < 2; past++) {
			struct cubin_stub *s = open_programs("probe", archs[i]);
			uint8_t *p = find(s, CUBIN_BASE_BRA, 0);
			size_t at = (size_t)(p - s->code);

			cubin_insn_put(p, cubin_insn_bra(archs[i], (int64_t)(s->bytes - at) - 16 +
									   (past ? 16 : 0)));
			if (past) {
				expect(s, "behind the stub");
			} else {
				assert_int_equal(cubin_stub_check_programs(s, NULL), 0);
			}
			cubin_stub_close(s);
		}
	}
}

static void a_stub_without_a_gate_is_refused(void **state)
{
	struct cubin_stub *s = open_programs("probe", 90);

	(void)state;
	s->lists[0].n = 0;
	expect(s, "do not follow a gate");
	cubin_stub_close(s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(programs_are_accepted_on_each_architecture),
		cmocka_unit_test(arguments_of_the_kernel_stay_in_place),
		cmocka_unit_test(each_operation_is_refused_behind_the_gate),
		cmocka_unit_test(loads_that_never_run_are_accepted),
		cmocka_unit_test(lanes_must_join_again),
		cmocka_unit_test(branches_stay_inside),
		cmocka_unit_test(a_stub_without_a_gate_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
