/* Tests the abstract sets of numbers with concrete numbers: the result of an instruction on members
 * of the operands' sets must be a member of the result's set, and a comparison may only remove
 * numbers that do not satisfy it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "bpf/load/scalar/scalar.h"
#include "bpf/run/interp/alu.h"
#include "random.h"

#define ROUNDS 400000

static const unsigned alu_ops[] = { EBPF_ADD, EBPF_SUB, EBPF_MUL, EBPF_DIV, EBPF_OR,
				    EBPF_AND, EBPF_LSH, EBPF_RSH, EBPF_NEG, EBPF_MOD,
				    EBPF_XOR, EBPF_MOV, EBPF_ARSH };
static const unsigned jump_ops[] = { EBPF_JEQ,	EBPF_JGT, EBPF_JGE, EBPF_JSET, EBPF_JNE, EBPF_JSGT,
				     EBPF_JSGE, EBPF_JLT, EBPF_JLE, EBPF_JSLT, EBPF_JSLE };

/* Sets s to a set that contains x: random bounds around it in some of the views. */
static void set_around(struct rng *r, uint64_t x, struct ebpf_scalar *s)
{
	uint64_t up, down;

	if (rng_below(r, 6) == 0) {
		ebpf_scalar_const(s, x);
		return;
	}
	ebpf_scalar_unknown(s);
	if (rng_below(r, 2)) {
		s->t.mask = rng_number(r);
		s->t.value = x & ~s->t.mask;
	}
	if (rng_below(r, 2)) {
		down = rng_number(r), up = rng_number(r);
		s->umin = x < down ? 0 : x - down;
		s->umax = UINT64_MAX - x < up ? UINT64_MAX : x + up;
	}
	if (rng_below(r, 2)) {
		int64_t lo, hi;

		down = rng_number(r) >> 1, up = rng_number(r) >> 1;
		s->smin = __builtin_sub_overflow((int64_t)x, (int64_t)down, &lo) ? INT64_MIN : lo;
		s->smax = __builtin_add_overflow((int64_t)x, (int64_t)up, &hi) ? INT64_MAX : hi;
	}
	if (rng_below(r, 2)) {
		uint32_t d32 = (uint32_t)rng_number(r), u32 = (uint32_t)rng_number(r),
			 y = (uint32_t)x;

		s->u32min = y < d32 ? 0 : y - d32;
		s->u32max = UINT32_MAX - y < u32 ? UINT32_MAX : y + u32;
	}
	if (rng_below(r, 2)) {
		int32_t lo, hi, d32 = (int32_t)(rng_number(r) & INT32_MAX),
				u32 = (int32_t)(rng_number(r) & INT32_MAX);

		s->s32min = __builtin_sub_overflow((int32_t)x, d32, &lo) ? INT32_MIN : lo;
		s->s32max = __builtin_add_overflow((int32_t)x, u32, &hi) ? INT32_MAX : hi;
	}
	assert_true(ebpf_scalar_sync(s));
	if (!ebpf_scalar_has(s, x)) {
		fail_msg("sync drops 0x%llx", (unsigned long long)x);
	}
}

static void arithmetic_holds_every_result(void **state)
{
	struct rng r = { 1 };

	for (unsigned i = 0; i < ROUNDS; i++) {
		unsigned op = alu_ops[rng_below(&r, ARRAY_SIZE(alu_ops))];
		int is64 = (int)rng_below(&r, 2), off = 0;
		uint64_t x = rng_number(&r), y = rng_number(&r), z;
		struct ebpf_scalar a, b;

		if (op == EBPF_DIV || op == EBPF_MOD) {
			off = (int)rng_below(&r, 2);
		} else if (op == EBPF_MOV) {
			static const int widths[] = { 0, 8, 16, 32 };

			off = widths[rng_below(&r, is64 ? 4 : 3)];
		}
		set_around(&r, x, &a);
		set_around(&r, y, &b);
		z = is64 ? ebpf_alu64(op, x, y, off)
			 : ebpf_alu32(op, (uint32_t)x, (uint32_t)y, off);
		ebpf_scalar_alu(op, is64, off, &a, &b);
		if (!ebpf_scalar_has(&a, z)) {
			fail_msg("op 0x%02x width %d off %d of 0x%llx and 0x%llx misses 0x%llx", op,
				 is64 ? 64 : 32, off, (unsigned long long)x, (unsigned long long)y,
				 (unsigned long long)z);
		}
	}
}

static void byte_order_holds_every_result(void **state)
{
	static const uint8_t codes[] = { EBPF_ALU | EBPF_END, EBPF_ALU | EBPF_END | EBPF_X,
					 EBPF_ALU64 | EBPF_END };
	static const int bits[] = { 16, 32, 64 };
	struct rng r = { 2 };

	for (unsigned i = 0; i < ROUNDS / 4; i++) {
		uint8_t code = codes[rng_below(&r, 3)];
		int n = bits[rng_below(&r, 3)];
		uint64_t x = rng_number(&r);
		struct ebpf_scalar a;

		set_around(&r, x, &a);
		ebpf_scalar_end(code, n, &a);
		if (!ebpf_scalar_has(&a, ebpf_end(code, x, n))) {
			fail_msg("code 0x%02x bits %d of 0x%llx", code, n, (unsigned long long)x);
		}
		set_around(&r, x, &a);
		ebpf_scalar_truncate(&a, (unsigned)(8u << rng_below(&r, 3)));
	}
}

static void comparisons_keep_what_can_be(void **state)
{
	struct rng r = { 3 };

	for (unsigned i = 0; i < ROUNDS; i++) {
		unsigned op = jump_ops[rng_below(&r, ARRAY_SIZE(jump_ops))];
		int is64 = (int)rng_below(&r, 2), outcome;
		uint64_t x = rng_number(&r),
			 y = rng_below(&r, 3) ? rng_number(&r) : x + rng_below(&r, 3) - 1;
		struct ebpf_scalar a, b;

		set_around(&r, x, &a);
		set_around(&r, y, &b);
		outcome =
			is64 ? ebpf_taken64(op, x, y) : ebpf_taken32(op, (uint32_t)x, (uint32_t)y);
		if (!ebpf_scalar_refine(op, is64, outcome, &a, &b) || !ebpf_scalar_has(&a, x) ||
		    !ebpf_scalar_has(&b, y)) {
			fail_msg("op 0x%02x width %d outcome %d of 0x%llx and 0x%llx", op,
				 is64 ? 64 : 32, outcome, (unsigned long long)x,
				 (unsigned long long)y);
		}
	}
}

/* Narrow widths, all members: tnum operations are checked completely for 4-bit numbers. */
static void bits_are_exact_enough(void **state)
{
	for (unsigned am = 0; am < 16; am++) {
		for (unsigned av = 0; av < 16; av++) {
			for (unsigned bm = 0; bm < 16; bm++) {
				for (unsigned bv = 0; bv < 16; bv++) {
					struct ebpf_tnum a = { av, am }, b = { bv, bm };

					if ((av & am) || (bv & bm)) {
						continue;
					}
					for (uint64_t x = 0; x < 16; x++) {
						for (uint64_t y = 0; y < 16; y++) {
							if ((x & ~(uint64_t)am) != av ||
							    (y & ~(uint64_t)bm) != bv) {
								continue;
							}
							assert_true(ebpf_tnum_within(
								ebpf_tnum_add(a, b),
								TNUM_CONST(x + y)));
							assert_true(ebpf_tnum_within(
								ebpf_tnum_sub(a, b),
								TNUM_CONST(x - y)));
							assert_true(ebpf_tnum_within(
								ebpf_tnum_mul(a, b),
								TNUM_CONST(x * y)));
							assert_true(ebpf_tnum_within(
								ebpf_tnum_and(a, b),
								TNUM_CONST(x & y)));
							assert_true(ebpf_tnum_within(
								ebpf_tnum_or(a, b),
								TNUM_CONST(x | y)));
							assert_true(ebpf_tnum_within(
								ebpf_tnum_xor(a, b),
								TNUM_CONST(x ^ y)));
						}
					}
				}
			}
		}
	}
}

static void views_learn_from_each_other(void **state)
{
	struct ebpf_scalar a, b;

	ebpf_scalar_unknown(&a);
	ebpf_scalar_const(&b, 63);
	ebpf_scalar_alu(EBPF_AND, 1, 0, &a, &b);
	assert_int_equal(a.umax, 63);
	assert_int_equal(a.smin, 0);
	assert_int_equal(a.s32max, 63);

	ebpf_scalar_const(&b, 3);
	ebpf_scalar_alu(EBPF_LSH, 1, 0, &a, &b);
	assert_int_equal(a.umax, 504);
	assert_int_equal(a.t.mask & 7, 0);

	/* a loaded w register is not negative; compared as 32 bits it bounds the whole */
	ebpf_scalar_loaded(&a, 4, 0);
	ebpf_scalar_const(&b, 10);
	assert_true(ebpf_scalar_refine(EBPF_JSLT, 0, 1, &a, &b));
	assert_int_equal(a.s32max, 9);
	assert_true(ebpf_scalar_refine(EBPF_JLT, 0, 1, &a, &b));
	assert_int_equal(a.umax, 9);
	assert_int_equal(a.smin, 0);

	/* signed comparison with zero, then with a limit, bounds both ways */
	ebpf_scalar_unknown(&a);
	ebpf_scalar_const(&b, 0);
	assert_true(ebpf_scalar_refine(EBPF_JSGE, 1, 1, &a, &b));
	ebpf_scalar_const(&b, 100);
	assert_true(ebpf_scalar_refine(EBPF_JSGT, 1, 0, &a, &b));
	assert_int_equal(a.umax, 100);

	/* contradictions are noticed */
	ebpf_scalar_urange(&a, 5, 9);
	ebpf_scalar_const(&b, 4);
	assert_false(ebpf_scalar_refine(EBPF_JLE, 1, 1, &a, &b));
	ebpf_scalar_urange(&a, 5, 9);
	ebpf_scalar_const(&b, 4);
	assert_false(ebpf_scalar_refine(EBPF_JEQ, 1, 1, &a, &b));
	ebpf_scalar_urange(&a, 5, 9);
	ebpf_scalar_const(&b, 5);
	assert_true(ebpf_scalar_refine(EBPF_JNE, 1, 1, &a, &b));
	assert_int_equal(a.umin, 6);
}

/* The narrowest ranges that hold these numbers. */
static void hull(const uint64_t *x, unsigned n, struct ebpf_scalar *out)
{
	ebpf_scalar_const(out, x[0]);
	for (unsigned i = 1; i < n; i++) {
		out->umin = MIN(out->umin, x[i]);
		out->umax = MAX(out->umax, x[i]);
		out->smin = MIN(out->smin, (int64_t)x[i]);
		out->smax = MAX(out->smax, (int64_t)x[i]);
		out->u32min = MIN(out->u32min, (uint32_t)x[i]);
		out->u32max = MAX(out->u32max, (uint32_t)x[i]);
		out->s32min = MIN(out->s32min, (int32_t)x[i]);
		out->s32max = MAX(out->s32max, (int32_t)x[i]);
	}
}

/* Numbers first .. first + n - 1, as the verifier learns of them: by one view alone. */
static void range_of(struct rng *r, uint64_t first, unsigned n, struct ebpf_scalar *out)
{
	uint64_t last = first + n - 1;

	ebpf_scalar_unknown(out);
	if (last < first || (rng_below(r, 2) && (int64_t)first <= (int64_t)last)) {
		out->smin = (int64_t)first;
		out->smax = (int64_t)last;
	} else {
		out->umin = first;
		out->umax = last;
	}
	assert_true(ebpf_scalar_sync(out));
}

/* Both views are as wide as the ranges at hand allow: no wrap inside. */
static int is_plain(uint64_t first, unsigned n)
{
	uint64_t last = first + n - 1;

	return first <= last && (int64_t)first <= (int64_t)last &&
	       (uint32_t)first <= (uint32_t)last && (int32_t)first <= (int32_t)last;
}

static uint64_t near_an_edge(struct rng *r)
{
	static const uint64_t edges[] = {
		0, 0, 100, 1ull << 31, 1ull << 32, 1ull << 63, 0x12345678
	};

	return edges[rng_below(r, ARRAY_SIZE(edges))] + rng_below(r, 80) - 40;
}

static void assert_hull(const char *what, const struct ebpf_scalar *got,
			const struct ebpf_scalar *want, int is64)
{
	if (got->umin != want->umin || got->umax != want->umax || got->smin != want->smin ||
	    got->smax != want->smax ||
	    (!is64 && (got->u32min != want->u32min || got->u32max != want->u32max ||
		       got->s32min != want->s32min || got->s32max != want->s32max))) {
		fail_msg("%s: %llx..%llx %llx..%llx %x..%x %x..%x instead of %llx..%llx %llx..%llx "
			 "%x..%x %x..%x",
			 what, (unsigned long long)got->umin, (unsigned long long)got->umax,
			 (unsigned long long)got->smin, (unsigned long long)got->smax, got->u32min,
			 got->u32max, (unsigned)got->s32min, (unsigned)got->s32max,
			 (unsigned long long)want->umin, (unsigned long long)want->umax,
			 (unsigned long long)want->smin, (unsigned long long)want->smax,
			 want->u32min, want->u32max, (unsigned)want->s32min,
			 (unsigned)want->s32max);
	}
}

/* Policies that are right must pass: where a range describes operands and results alike, nothing of
 * it may be lost. */
static void ranges_stay_narrow(void **state)
{
	static const struct {
		unsigned op;
		int off, constant;
	} ops[] = { { EBPF_ADD, 0, 0 }, { EBPF_SUB, 0, 0 }, { EBPF_MUL, 0, 0 },	 { EBPF_DIV, 0, 0 },
		    { EBPF_DIV, 1, 1 }, { EBPF_RSH, 0, 1 }, { EBPF_ARSH, 0, 1 }, { EBPF_NEG, 0, 0 },
		    { EBPF_MOV, 0, 0 }, { EBPF_LSH, 0, 1 } };
	struct rng r = { 4 };
	unsigned tried = 0;

	for (unsigned i = 0; i < ROUNDS; i++) {
		unsigned k = rng_below(&r, ARRAY_SIZE(ops)), n = 1 + rng_below(&r, 4), results = 0,
			 m = ops[k].constant ? 1 : 1 + rng_below(&r, 4);
		uint64_t x = near_an_edge(&r),
			 y = rng_below(&r, 3) ? rng_below(&r, 9) : near_an_edge(&r), z[16];
		int is64 = (int)rng_below(&r, 2), plain = is_plain(x, n) && is_plain(y, m);
		struct ebpf_scalar a, b, want;
		char what[80];

		if (ops[k].op == EBPF_LSH || ops[k].op == EBPF_RSH || ops[k].op == EBPF_ARSH) {
			y = rng_below(&r, 8);
		}
		/* no bit that differs is lost to the left */
		plain &= ops[k].op != EBPF_LSH || (x + n < 1u << 20 && x < 1u << 20);
		plain &=
			ops[k].op != EBPF_MUL || (x + n < 1u << 12 && x < 1u << 12 && y < 1u << 12);
		range_of(&r, x, n, &a);
		range_of(&r, y, m, &b);
		for (unsigned p = 0; p < n; p++) {
			for (unsigned q = 0; q < m; q++) {
				plain &= ops[k].op != EBPF_DIV || (uint32_t)(y + q) != 0;
				z[results++] =
					is64 ? ebpf_alu64(ops[k].op, x + p, y + q, ops[k].off)
					     : ebpf_alu32(ops[k].op, (uint32_t)(x + p),
							  (uint32_t)(y + q), ops[k].off);
			}
		}
		hull(z, results, &want);
		/* results that lie far apart have wrapped */
		if (!plain || want.umax - want.umin > 100000 ||
		    (uint64_t)want.smax - (uint64_t)want.smin > 100000 ||
		    want.u32max - want.u32min > 100000 ||
		    (int64_t)want.s32max - want.s32min > 100000) {
			continue;
		}
		tried++;
		snprintf(what, sizeof(what), "op 0x%02x width %d of 0x%llx+%u and 0x%llx+%u",
			 ops[k].op, is64 ? 64 : 32, (unsigned long long)x, n, (unsigned long long)y,
			 m);
		ebpf_scalar_alu(ops[k].op, is64, ops[k].off, &a, &b);
		assert_hull(what, &a, &want, is64);
	}
	assert_true(tried > ROUNDS / 4);
}

/* After a comparison that came out so, exactly those numbers are left for which it can; where none
 * is, that side is known to be impossible. */
static void comparisons_narrow_exactly(void **state)
{
	static const unsigned ops[] = { EBPF_JEQ,  EBPF_JGT, EBPF_JGE, EBPF_JNE,  EBPF_JSGT,
					EBPF_JSGE, EBPF_JLT, EBPF_JLE, EBPF_JSLT, EBPF_JSLE };
	struct rng r = { 5 };
	unsigned tried = 0;

	for (unsigned i = 0; i < ROUNDS; i++) {
		unsigned op = ops[rng_below(&r, ARRAY_SIZE(ops))], n = 1 + rng_below(&r, 5),
			 m = 1 + rng_below(&r, 5), n_left[2] = { 0, 0 };
		int is64 = (int)rng_below(&r, 2), outcome = (int)rng_below(&r, 2), possible;
		uint64_t x = near_an_edge(&r), y = x + rng_below(&r, 9) - 4, left[2][32];
		struct ebpf_scalar a, b, want;
		char what[96];

		if (!is_plain(x, n) || !is_plain(y, m)) {
			continue;
		}
		range_of(&r, x, n, &a);
		range_of(&r, y, m, &b);
		for (unsigned p = 0; p < n; p++) {
			for (unsigned q = 0; q < m; q++) {
				uint64_t c = x + p, d = y + q;

				if (outcome ==
				    (is64 ? ebpf_taken64(op, c, d)
					  : ebpf_taken32(op, (uint32_t)c, (uint32_t)d))) {
					left[0][n_left[0]++] = c;
					left[1][n_left[1]++] = d;
				}
			}
		}
		tried++;
		snprintf(what, sizeof(what),
			 "op 0x%02x width %d outcome %d of 0x%llx+%u and 0x%llx+%u", op,
			 is64 ? 64 : 32, outcome, (unsigned long long)x, n, (unsigned long long)y,
			 m);
		possible = ebpf_scalar_refine(op, is64, outcome, &a, &b);
		if (possible != (n_left[0] > 0)) {
			fail_msg("%s: %d", what, possible);
		}
		if (possible) {
			hull(left[0], n_left[0], &want);
			assert_hull(what, &a, &want, 0);
			hull(left[1], n_left[1], &want);
			assert_hull(what, &b, &want, 0);
		}
	}
	assert_true(tried > ROUNDS / 4);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(arithmetic_holds_every_result),
		cmocka_unit_test(byte_order_holds_every_result),
		cmocka_unit_test(comparisons_keep_what_can_be),
		cmocka_unit_test(bits_are_exact_enough),
		cmocka_unit_test(views_learn_from_each_other),
		cmocka_unit_test(ranges_stay_narrow),
		cmocka_unit_test(comparisons_narrow_exactly),
	};

	return cmocka_run_group_tests_name("scalar", tests, NULL, NULL);
}
