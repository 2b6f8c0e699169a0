/* Exports and imports in an account: which import is charged, and that each change is made exactly
 * once, wherever a process or gbpfd stops. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/atomic.h"
#include "base/compiler.h"
#include "mem/account_shares.h"

#define ROW 3u
#define MIB (UINT64_C(1) << 20)
#define ID UINT64_C(0x1234567890abcdef)
#define KIND 0xfu
#define SEQ_SHIFT 24u

static struct proto_account page;
static struct mem_ledger a, b;

static int set_up(void **state)
{
	memset(&page, 0, sizeof(page));
	page.magic = PROTO_ACCOUNT_MAGIC;
	page.abi = PROTO_ABI;
	page.lines = 2;
	page.limit[ROW] = 64 * MIB;
	assert_int_equal(mem_ledger_init(&a, &page, 0), 0);
	assert_int_equal(mem_ledger_init(&b, &page, 1), 0);
	return 0;
}

static uint32_t add(const struct mem_ledger *l, enum mem_share_kind kind, uint64_t bytes)
{
	int n = mem_share_add(l, ROW, kind, false, ID, bytes);

	assert_true(n >= 0);
	return (uint32_t)n;
}

static enum mem_share_kind kind_of(uint32_t number)
{
	return mem_share_at(&page, number).kind;
}

static void give(uint32_t number)
{
	struct mem_share s = mem_share_at(&page, number);

	assert_true(mem_share_give(&page, number, &s));
}

static uint64_t orphans(uint32_t line)
{
	return mem_account_orphans(&page, ROW, line);
}

static void a_claim_answers_an_import(void **state)
{
	uint32_t claim = add(&a, MEM_SHARE_CLAIM, 10 * MIB);
	uint32_t import = add(&b, MEM_SHARE_IMPORT, 10 * MIB);
	struct mem_share s = mem_share_at(&page, import);

	assert_int_equal(s.row, ROW);
	assert_int_equal(s.line, 1);
	assert_int_equal(s.id, ID);
	assert_int_equal(s.bytes, 10 * MIB);
	assert_int_equal(mem_shares_of(&page), 2);
	assert_true(mem_share_is_answered(&page, import));
	assert_true(mem_share_has_claim(&a, ID));
	assert_false(mem_share_has_claim(&b, ID));
	assert_false(mem_share_has_claim(&a, ID + 1));
	assert_true(mem_share_drop(&a, claim)); /* gbpfd has to look */
	assert_false(mem_share_is_answered(&page, import));
	assert_int_equal(mem_account_used(&page, ROW), 0);
	assert_false(mem_share_drop(&b, import));
	assert_int_equal(kind_of(import), MEM_SHARE_FREE);
}

static void a_dead_claim_does_not_answer(void **state)
{
	uint32_t claim = add(&a, MEM_SHARE_CLAIM, MIB), import = add(&b, MEM_SHARE_IMPORT, MIB);
	struct mem_share s = mem_share_at(&page, claim);

	mem_share_mark_dead(&page, claim, &s);
	assert_int_equal(kind_of(claim), MEM_SHARE_DEAD);
	assert_false(mem_share_is_answered(&page, import));
	s = mem_share_at(&page, claim);
	mem_share_free(&page, claim, &s);
	assert_int_equal(kind_of(claim), MEM_SHARE_FREE);
}

static void what_is_given_counts_until_it_is_closed(void **state)
{
	uint32_t import = add(&b, MEM_SHARE_IMPORT, 10 * MIB);

	give(import);
	assert_int_equal(kind_of(import), MEM_SHARE_OWNED);
	assert_int_equal(orphans(1), 10 * MIB);
	assert_int_equal(orphans(0), 0);
	assert_int_equal(mem_account_used(&page, ROW), 10 * MIB);
	assert_int_equal(mem_account_claimed(&page, ROW), 10 * MIB);
	assert_int_equal(mem_account_line_used(&page, ROW, 1), 10 * MIB);
	assert_int_equal(mem_ledger_own(&b, ROW), 0);
	assert_int_equal(mem_ledger_charge(&a, ROW, 55 * MIB), -ENOMEM);
	assert_int_equal(mem_ledger_charge(&a, ROW, 54 * MIB), 0);
	assert_false(mem_share_drop(&b, import));
	assert_int_equal(mem_account_used(&page, ROW), 54 * MIB);
	assert_int_equal(mem_ledger_charge(&a, ROW, 10 * MIB), 0);
}

static void what_exceeds_the_limit_admits_nothing(void **state)
{
	uint32_t import = add(&b, MEM_SHARE_IMPORT, 100 * MIB);

	give(import);
	assert_int_equal(mem_account_used(&page, ROW), 100 * MIB);
	assert_int_equal(mem_ledger_charge(&a, ROW, 1), -ENOMEM);
	assert_false(mem_share_drop(&b, import));
	assert_int_equal(mem_ledger_charge(&a, ROW, 64 * MIB), 0);
}

static void what_is_closed_stays_until_another_importer_has_it(void **state)
{
	uint32_t first = add(&a, MEM_SHARE_IMPORT, MIB), second = add(&b, MEM_SHARE_IMPORT, MIB);
	struct mem_share s;

	give(first);
	assert_true(mem_share_is_answered(&page, second));
	assert_true(mem_share_drop(&a, first));
	assert_int_equal(kind_of(first), MEM_SHARE_LEFT);
	assert_false(mem_share_is_answered(&page, second));
	assert_int_equal(mem_account_used(&page, ROW), MIB);
	give(second);
	s = mem_share_at(&page, first);
	mem_share_return(&page, first, &s);
	assert_int_equal(kind_of(first), MEM_SHARE_FREE);
	assert_int_equal(orphans(0), 0);
	assert_int_equal(orphans(1), MIB);
	assert_int_equal(mem_account_used(&page, ROW), MIB);
}

/* Memory that is known by its size may be different memory. */
static void vague_imports_are_not_told_apart(void **state)
{
	int first = mem_share_add(&a, ROW, MEM_SHARE_IMPORT, true, ID, MIB);
	int second = mem_share_add(&b, ROW, MEM_SHARE_IMPORT, true, ID, MIB);

	give((uint32_t)first);
	assert_false(mem_share_is_answered(&page, (uint32_t)second));
	assert_false(mem_share_drop(&a, (uint32_t)first)); /* it is not kept for the other one */
	assert_int_equal(mem_account_used(&page, ROW), 0);
}

/* gbpfd was killed after it had given the import, before or after it changed the word. */
static void a_gift_that_was_interrupted_counts_once(void **state)
{
	for (int changed = 0; changed < 2; changed++) {
		for (int by_process = 0; by_process < 2; by_process++) {
			uint32_t n = add(&b, MEM_SHARE_IMPORT, 2 * MIB);
			uint64_t given = (page.share[n].state & ~(uint64_t)KIND) | MEM_SHARE_GIVEN;

			page.share[n].state = given | page.orphans[ROW][1].inherited >>
							      PROTO_SHARE_COUNT_SHIFT << SEQ_SHIFT;
			if (changed) {
				uint64_t state_before = page.share[n].state;

				mem_share_complete(&page, n);
				page.share[n].state = state_before;
			}
			if (!by_process) {
				mem_share_complete(&page, n);
				mem_share_complete(&page, n);
				assert_int_equal(kind_of(n), MEM_SHARE_OWNED);
				assert_int_equal(orphans(1), 2 * MIB);
			}
			assert_false(mem_share_drop(&b, n));
			assert_int_equal(orphans(1), 0);
		}
	}
}

static void a_return_that_was_interrupted_counts_once(void **state)
{
	for (int changed = 0; changed < 2; changed++) {
		uint32_t n = add(&a, MEM_SHARE_IMPORT, 2 * MIB);
		uint64_t returning;

		give(n);
		returning = (page.share[n].state & ~(uint64_t)KIND) | MEM_SHARE_RETURNING;
		page.share[n].state = returning | page.orphans[ROW][0].returned >>
							  PROTO_SHARE_COUNT_SHIFT << SEQ_SHIFT;
		returning = page.share[n].state;
		if (changed) {
			mem_share_complete(&page, n);
			page.share[n].state = returning;
		}
		mem_share_complete(&page, n);
		assert_int_equal(kind_of(n), MEM_SHARE_FREE);
		assert_int_equal(orphans(0), 0);
	}
}

static void a_share_that_is_used_again_is_not_given(void **state)
{
	uint32_t n = add(&b, MEM_SHARE_IMPORT, MIB);
	struct mem_share s = mem_share_at(&page, n);

	assert_false(mem_share_drop(&b, n));
	assert_int_equal(add(&b, MEM_SHARE_IMPORT, 7 * MIB), n);
	assert_false(mem_share_give(&page, n, &s));
	assert_int_equal(orphans(1), 0);
}

static void a_full_table_refuses(void **state)
{
	for (uint32_t i = 0; i < PROTO_ACCOUNT_SHARES; i++) {
		assert_int_equal(add(&a, MEM_SHARE_CLAIM, 1), i);
	}
	assert_int_equal(mem_share_add(&a, ROW, MEM_SHARE_CLAIM, false, ID, 1), -ENOSPC);
	assert_true(mem_share_drop(&a, 77));
	assert_int_equal(add(&b, MEM_SHARE_IMPORT, 1), 77);
	assert_int_equal(mem_share_at(&page, 77).bytes, PROTO_SHARE_UNIT);
}

static void the_line_of_a_dead_process_is_cleared(void **state)
{
	uint32_t import = add(&b, MEM_SHARE_IMPORT, MIB);

	give(import);
	assert_false(mem_share_drop(&b, import));
	give(add(&b, MEM_SHARE_IMPORT, 3 * MIB));
	mem_account_clear_orphans(&page, ROW, 1);
	assert_int_equal(orphans(1), 0);
	assert_int_equal(mem_account_used(&page, ROW), 0);
	give(add(&b, MEM_SHARE_IMPORT, 4 * MIB)); /* of the next process in the line */
	assert_int_equal(orphans(1), 4 * MIB);
}

/* More gifts than the number of changes can count. */
static void the_number_of_changes_wraps(void **state)
{
	for (uint32_t i = 0; i < 70000; i++) {
		uint32_t n = add(&b, MEM_SHARE_IMPORT, 2 * MIB);

		give(n);
		assert_int_equal(orphans(1), 2 * MIB);
		assert_false(mem_share_drop(&b, n));
	}
	assert_int_equal(orphans(1), 0);
}

static void garbage_is_survived(void **state)
{
	uint64_t r = 1;

	for (unsigned i = 0; i < 200000; i++) {
		uint32_t n = (uint32_t)(r >> 33) % 8;
		struct mem_share s;

		r = r * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
		page.share[n].state = i % 3 ? r : (r & ~(uint64_t)KIND) | r >> 60;
		page.share[n].bytes = r << (i % 64);
		page.shares = (uint32_t)r;
		s = mem_share_at(&page, n);
		assert_true(s.row < PROTO_ACCOUNT_ROWS && s.line < PROTO_ACCOUNT_LINES);
		mem_share_complete(&page, n);
		(void)mem_share_drop(&a, n);
		(void)mem_share_is_answered(&page, n);
		s = mem_share_at(&page, n);
		(void)mem_share_give(&page, n, &s);
		s = mem_share_at(&page, n);
		mem_share_return(&page, n, &s);
		(void)mem_account_used(&page, ROW);
	}
}

/* ---- a process and gbpfd at the same time ---- */

static uint32_t is_over;

static void give_and_return(void)
{
	for (uint32_t i = 0; i < 4; i++) {
		struct mem_share s = mem_share_at(&page, i);

		mem_share_complete(&page, i);
		if (s.kind == MEM_SHARE_IMPORT) {
			(void)mem_share_give(&page, i, &s);
		} else if (s.kind == MEM_SHARE_LEFT) {
			mem_share_return(&page, i, &s);
		}
	}
}

static void *as_gbpfd(void *arg)
{
	while (!load_seqcst(&is_over)) {
		give_and_return();
	}
	return NULL;
}

/* Closes race with gifts and returns: each is counted once. */
static void nothing_is_left_of_closed_imports(void **state)
{
	uint32_t n[3];
	pthread_t t;

	is_over = 0;
	assert_int_equal(pthread_create(&t, NULL, as_gbpfd, NULL), 0);
	for (unsigned i = 0; i < 60000; i++) {
		for (unsigned k = 0; k < ARRAY_SIZE(n); k++) {
			n[k] = add(&b, MEM_SHARE_IMPORT, (k + 1) * MIB);
		}
		for (unsigned k = 0; k < ARRAY_SIZE(n); k++) {
			(void)mem_share_drop(&b, n[(k + i) % ARRAY_SIZE(n)]);
		}
	}
	store_seqcst(&is_over, 1u);
	pthread_join(t, NULL);
	give_and_return(); /* what was left for another import */
	for (uint32_t i = 0; i < 4; i++) {
		assert_int_equal(kind_of(i), MEM_SHARE_FREE);
	}
	assert_int_equal(orphans(1), 0);
	assert_int_equal(mem_account_used(&page, ROW), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(a_claim_answers_an_import, set_up),
		cmocka_unit_test_setup(a_dead_claim_does_not_answer, set_up),
		cmocka_unit_test_setup(what_is_given_counts_until_it_is_closed, set_up),
		cmocka_unit_test_setup(what_exceeds_the_limit_admits_nothing, set_up),
		cmocka_unit_test_setup(what_is_closed_stays_until_another_importer_has_it, set_up),
		cmocka_unit_test_setup(vague_imports_are_not_told_apart, set_up),
		cmocka_unit_test_setup(a_gift_that_was_interrupted_counts_once, set_up),
		cmocka_unit_test_setup(a_return_that_was_interrupted_counts_once, set_up),
		cmocka_unit_test_setup(a_share_that_is_used_again_is_not_given, set_up),
		cmocka_unit_test_setup(a_full_table_refuses, set_up),
		cmocka_unit_test_setup(the_line_of_a_dead_process_is_cleared, set_up),
		cmocka_unit_test_setup(the_number_of_changes_wraps, set_up),
		cmocka_unit_test_setup(garbage_is_survived, set_up),
		cmocka_unit_test_setup(nothing_is_left_of_closed_imports, set_up),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
