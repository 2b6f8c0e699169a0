/* After a slow yield, which indicates competition for the processor, soft_yield pauses. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "soft/yield.h"

static uint64_t now_ns, step_ns;

/* Clock source: each reading advances the time by step_ns. */
static uint64_t stepping(void)
{
	return now_ns += step_ns;
}

static void a_slow_yield_disables_yielding(void **state)
{
	uint64_t not_before = 0;

	clock_set_source(stepping);
	step_ns = SOFT_YIELD_SLOW_NS / 2;
	for (int i = 0; i < 10; i++) {
		assert_true(soft_yield(&not_before));
	}
	step_ns = SOFT_YIELD_SLOW_NS + 1;
	assert_true(soft_yield(&not_before)); /* the slowness is noticed only after this yield */
	step_ns = SOFT_YIELD_PAUSE_NS / 10;
	for (int i = 0; i < 9; i++) {
		assert_false(soft_yield(&not_before));
	}
	step_ns = 1;
	assert_false(soft_yield(&not_before));
	now_ns += SOFT_YIELD_PAUSE_NS / 10;
	assert_true(soft_yield(&not_before));
	clock_set_source(NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_slow_yield_disables_yielding),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
