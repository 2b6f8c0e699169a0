/* Sets of numbers against the numbers themselves: whatever an instruction computes from members of
 * the operands' sets must be a member of the result's set, and a comparison may only drop numbers
 * for which it comes out otherwise. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <string.h>

#include "bpf/load/scalar.h"
#include "bpf/run/alu.h"
#include "random.h"

#define ROUNDS 400000

static const unsigned alu_ops[] = { EBPF_ADD, EBPF_SUB, EBPF_MUL, EBPF_DIV, EBPF_OR,
				    EBPF_AND, EBPF_LSH, EBPF_RSH, EBPF_NEG, EBPF_MOD,
				    EBPF_XOR, EBPF_MOV, EBPF_ARSH };
static const unsigned jump_ops[] = { EBPF_JEQ,	EBPF_JGT, EBPF_JGE, EBPF_JSET, EBPF_JNE, EBPF_JSGT,
				     EBPF_JSGE, EBPF_JLT, EBPF_JLE, EBPF_JSLT, EBPF_JSLE };

/* A set that is known to hold x: random bounds around it in some of the views. */
static void set_around(struct rng *r, uint64_t x, struct scalar *s)
{
	uint64_t up, down;

	if (rng_below(r, 6) == 0) {
		scalar_const(s, x);
		return;
	}
	scalar_unknown(s);
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
	assert_true(scalar_sync(s));
	if (!scalar_has(s, x)) {
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
		struct scalar a, b;

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
		scalar_alu(op, is64, off, &a, &b);
		if (!scalar_has(&a, z)) {
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
		struct scalar a;

		set_around(&r, x, &a);
		scalar_end(code, n, &a);
		if (!scalar_has(&a, ebpf_end(code, x, n))) {
			fail_msg("code 0x%02x bits %d of 0x%llx", code, n, (unsigned long long)x);
		}
		set_around(&r, x, &a);
		scalar_truncate(&a, (unsigned)(8u << rng_below(&r, 3)));
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
		struct scalar a, b;

		set_around(&r, x, &a);
		set_around(&r, y, &b);
		outcome =
			is64 ? ebpf_taken64(op, x, y) : ebpf_taken32(op, (uint32_t)x, (uint32_t)y);
		if (!scalar_refine(op, is64, outcome, &a, &b) || !scalar_has(&a, x) ||
		    !scalar_has(&b, y)) {
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
					struct tnum a = { av, am }, b = { bv, bm };

					if ((av & am) || (bv & bm)) {
						continue;
					}
					for (uint64_t x = 0; x < 16; x++) {
						for (uint64_t y = 0; y < 16; y++) {
							if ((x & ~(uint64_t)am) != av ||
							    (y & ~(uint64_t)bm) != bv) {
								continue;
							}
							assert_true(tnum_within(tnum_add(a, b),
										TNUM_CONST(x + y)));
							assert_true(tnum_within(tnum_sub(a, b),
										TNUM_CONST(x - y)));
							assert_true(tnum_within(tnum_mul(a, b),
										TNUM_CONST(x * y)));
							assert_true(tnum_within(tnum_and(a, b),
										TNUM_CONST(x & y)));
							assert_true(tnum_within(tnum_or(a, b),
										TNUM_CONST(x | y)));
							assert_true(tnum_within(tnum_xor(a, b),
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
	struct scalar a, b;

	scalar_unknown(&a);
	scalar_const(&b, 63);
	scalar_alu(EBPF_AND, 1, 0, &a, &b);
	assert_int_equal(a.umax, 63);
	assert_int_equal(a.smin, 0);
	assert_int_equal(a.s32max, 63);

	scalar_const(&b, 3);
	scalar_alu(EBPF_LSH, 1, 0, &a, &b);
	assert_int_equal(a.umax, 504);
	assert_int_equal(a.t.mask & 7, 0);

	/* a loaded w register is not negative; compared as 32 bits it bounds the whole */
	scalar_loaded(&a, 4, 0);
	scalar_const(&b, 10);
	assert_true(scalar_refine(EBPF_JSLT, 0, 1, &a, &b));
	assert_int_equal(a.s32max, 9);
	assert_true(scalar_refine(EBPF_JLT, 0, 1, &a, &b));
	assert_int_equal(a.umax, 9);
	assert_int_equal(a.smin, 0);

	/* signed comparison with zero, then with a limit, bounds both ways */
	scalar_unknown(&a);
	scalar_const(&b, 0);
	assert_true(scalar_refine(EBPF_JSGE, 1, 1, &a, &b));
	scalar_const(&b, 100);
	assert_true(scalar_refine(EBPF_JSGT, 1, 0, &a, &b));
	assert_int_equal(a.umax, 100);

	/* contradictions are noticed */
	scalar_urange(&a, 5, 9);
	scalar_const(&b, 4);
	assert_false(scalar_refine(EBPF_JLE, 1, 1, &a, &b));
	scalar_urange(&a, 5, 9);
	scalar_const(&b, 4);
	assert_false(scalar_refine(EBPF_JEQ, 1, 1, &a, &b));
	scalar_urange(&a, 5, 9);
	scalar_const(&b, 5);
	assert_true(scalar_refine(EBPF_JNE, 1, 1, &a, &b));
	assert_int_equal(a.umin, 6);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(arithmetic_holds_every_result),
		cmocka_unit_test(byte_order_holds_every_result),
		cmocka_unit_test(comparisons_keep_what_can_be),
		cmocka_unit_test(bits_are_exact_enough),
		cmocka_unit_test(views_learn_from_each_other),
	};

	return cmocka_run_group_tests_name("scalar", tests, NULL, NULL);
}
