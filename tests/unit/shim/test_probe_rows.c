/* Rows of control words: which kernels share one, and what a tool is set to in each. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>

#include "shim/probe/shim_probe_int.h"

static void kernels_of_a_name_share_a_row(void **state)
{
	uint32_t a = shim_probe_row_take("a"), b = shim_probe_row_take("b");

	(void)state;
	assert_true(a && b && a != b);
	assert_int_equal(shim_probe_row_take("a"), a);
	shim_probe_row_put(a);
	assert_true(shim_probe_row_is_used(a));
	shim_probe_row_put(a);
	assert_false(shim_probe_row_is_used(a));
	assert_true(shim_probe_row_is_used(b));
	assert_int_equal(shim_probe_row_take("c"), a); /* it is given again */
	shim_probe_row_put(a);
	shim_probe_row_put(b);
	shim_probe_row_put(0);
	assert_true(shim_probe_row_is_used(0));
}

static void kernels_beyond_the_last_row_have_that_of_all(void **state)
{
	const struct proto_probe_control c = { .every = 4,
					       .n = 1,
					       .scopes = { { .every = 8, .kernel = "*" } } };
	uint32_t rows[SHIM_PROBE_ROWS];
	char name[16];

	(void)state;
	for (unsigned i = 0; i < SHIM_PROBE_ROWS; i++) {
		snprintf(name, sizeof(name), "k%u", i);
		rows[i] = shim_probe_row_take(name);
		assert_int_equal(rows[i], i + 1 < SHIM_PROBE_ROWS ? i + 1 : 0);
	}
	assert_int_equal(shim_probe_row_interval(&c, rows[0]), 8);
	assert_int_equal(shim_probe_row_interval(&c, 0), 4);
	shim_probe_row_put(rows[7]);
	assert_int_equal(shim_probe_row_take("k4095"), rows[7]);
	shim_probe_rows_forget();
	assert_false(shim_probe_row_is_used(1));
	assert_int_equal(shim_probe_row_take("k9"), 1);
	shim_probe_row_put(1);
}

/* The interval, and on and off, are those of the last scope that sets them. */
static void last_matching_scope_counts(void **state)
{
	static const struct {
		const char *name;
		uint32_t interval, interval_off; /* the latter with the tool off */
	} cases[] = {
		{ "gemm", 0, 0 }, { "gemm_1", 64, 64 }, { "gemv", 2, 2 },
		{ "copy", 8, 0 }, { "reduce", 16, 0 },
	};
	struct proto_probe_control c = {
		.every = 8,
		.n = 5,
		.scopes = { { .every = 64, .kernel = "gem*" },
			    { .every = 2, .on_off = PROTO_PROBE_ON, .kernel = "gemv" },
			    { .on_off = PROTO_PROBE_OFF, .kernel = "gemm*" },
			    { .on_off = PROTO_PROBE_ON, .kernel = "gemm_?" },
			    { .every = 16, .kernel = "*duce" },
			    { .every = 99, .kernel = "*" } /* not one of the n */ },
	};

	(void)state;
	for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		uint32_t row = shim_probe_row_take(cases[i].name);

		c.off = 0;
		assert_int_equal(shim_probe_row_interval(&c, row), cases[i].interval);
		c.off = 1;
		assert_int_equal(shim_probe_row_interval(&c, row), cases[i].interval_off);
		shim_probe_row_put(row);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(kernels_of_a_name_share_a_row),
		cmocka_unit_test(kernels_beyond_the_last_row_have_that_of_all),
		cmocka_unit_test(last_matching_scope_counts),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
