/* The budget of time for effects that a process cannot justify: half a second, 50 ms more in each
 * second, and none until it is full again once it was spent. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/time_budget.h"

#define MS UINT64_C(1000000)
#define S UINT64_C(1000000000)

static void half_a_second_is_spent_once(void **state)
{
	struct time_budget b;

	time_budget_init(&b, 7 * S);
	assert_true(time_budget_is_full(&b));
	assert_int_equal(b.left_ns, 500 * MS);
	assert_false(time_budget_take(&b, 500 * MS - 1, 7 * S));
	assert_int_equal(b.left_ns, 1);
	assert_false(time_budget_is_full(&b));
	assert_true(time_budget_take(&b, 1, 7 * S));
	assert_true(time_budget_take(&b, 0, 7 * S));
	/* it is refilled by a twentieth of the time, and counts again when it is full */
	assert_true(time_budget_take(&b, 0, 8 * S));
	assert_int_equal(b.left_ns, 50 * MS);
	assert_true(time_budget_take(&b, 0, 17 * S - 1));
	assert_int_equal(b.left_ns, 500 * MS - 1);
	assert_true(time_budget_take(&b, 0, 17 * S + 18)); /* less than 20 ns later */
	assert_false(time_budget_take(&b, 0, 17 * S + 38));
	assert_true(time_budget_is_full(&b));
	assert_false(time_budget_take(&b, 0, 1000 * S)); /* and never fuller */
	assert_int_equal(b.left_ns, 500 * MS);
}

static void more_than_is_left_spends_it(void **state)
{
	struct time_budget b;

	time_budget_init(&b, S);
	assert_true(time_budget_take(&b, S, S));
	assert_int_equal(b.left_ns, 0);
	time_budget_init(&b, S);
	assert_false(b.spent);
}

static void a_clock_that_goes_back_refills_nothing(void **state)
{
	struct time_budget b;

	time_budget_init(&b, 10 * S);
	assert_false(time_budget_take(&b, 400 * MS, 10 * S));
	assert_false(time_budget_take(&b, 0, 5 * S));
	assert_int_equal(b.left_ns, 100 * MS);
	assert_false(time_budget_take(&b, 0, 6 * S)); /* from then on */
	assert_int_equal(b.left_ns, 150 * MS);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(half_a_second_is_spent_once),
		cmocka_unit_test(more_than_is_left_spends_it),
		cmocka_unit_test(a_clock_that_goes_back_refills_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
