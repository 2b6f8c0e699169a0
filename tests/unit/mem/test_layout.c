/* What arrays take, learned from figures that are falsified now and then. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "mem/layout.h"

#define SHAPE 12345u

static struct mem_layouts t;

static int set_up(void **state)
{
	memset(&t, 0, sizeof(t));
	return 0;
}

static void a_figure_is_known_once_it_is_seen_twice(void **state)
{
	assert_int_equal(mem_layout_known(&t, SHAPE), 0);
	assert_false(mem_layout_note(&t, SHAPE, 22));
	assert_int_equal(mem_layout_known(&t, SHAPE), 0);
	assert_true(mem_layout_note(&t, SHAPE, 22));
	assert_int_equal(mem_layout_known(&t, SHAPE), 22);
	assert_false(mem_layout_note(&t, SHAPE, 22));
}

static void larger_figures_do_not_matter(void **state)
{
	assert_false(mem_layout_note(&t, SHAPE, 22));
	assert_false(mem_layout_note(&t, SHAPE, 40));
	assert_false(mem_layout_note(&t, SHAPE, 40));
	assert_int_equal(mem_layout_known(&t, SHAPE), 0);
	assert_true(mem_layout_note(&t, SHAPE, 22));
	assert_int_equal(mem_layout_known(&t, SHAPE), 22);
}

static void a_smaller_figure_replaces_a_larger_one(void **state)
{
	assert_false(mem_layout_note(&t, SHAPE, 40));
	assert_true(mem_layout_note(&t, SHAPE, 40));
	assert_false(mem_layout_note(&t, SHAPE, 22));
	assert_int_equal(mem_layout_known(&t, SHAPE), 40);
	assert_true(mem_layout_note(&t, SHAPE, 22));
	assert_int_equal(mem_layout_known(&t, SHAPE), 22);
}

static void shapes_are_kept_apart(void **state)
{
	assert_false(mem_layout_note(&t, SHAPE, 22));
	assert_false(mem_layout_note(&t, SHAPE + 1, 22));
	assert_true(mem_layout_note(&t, SHAPE, 22));
	assert_int_equal(mem_layout_known(&t, SHAPE + 1), 0);
	assert_false(mem_layout_note(&t, SHAPE + MEM_LAYOUTS, 7)); /* replaces the first */
	assert_int_equal(mem_layout_known(&t, SHAPE), 0);
	assert_int_equal(mem_layout_known(&t, SHAPE + MEM_LAYOUTS), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(a_figure_is_known_once_it_is_seen_twice, set_up),
		cmocka_unit_test_setup(larger_figures_do_not_matter, set_up),
		cmocka_unit_test_setup(a_smaller_figure_replaces_a_larger_one, set_up),
		cmocka_unit_test_setup(shapes_are_kept_apart, set_up),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
