/* Who yields to a processor that many want does not do it again for a while. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "soft/yield.h"

static uint64_t now_ns, step_ns;

/* Each look at the clock takes so long. */
static uint64_t stepping(void)
{
	return now_ns += step_ns;
}

static void a_yield_that_took_long_is_not_repeated_soon(void **state)
{
	uint64_t not_before = 0;

	clock_set_source(stepping);
	step_ns = YIELD_LONG_NS / 2;
	for (int i = 0; i < 10; i++) {
		assert_true(yield_quickly(&not_before));
	}
	step_ns = YIELD_LONG_NS + 1;
	assert_true(yield_quickly(&not_before)); /* that it takes long is only seen then */
	step_ns = YIELD_NOT_NS / 10;
	for (int i = 0; i < 9; i++) {
		assert_false(yield_quickly(&not_before));
	}
	step_ns = 1;
	assert_false(yield_quickly(&not_before));
	now_ns += YIELD_NOT_NS / 10;
	assert_true(yield_quickly(&not_before));
	clock_set_source(NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_yield_that_took_long_is_not_repeated_soon),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
