/* The form of a kernel's launch, for all combinations of what was decided and what the kernel has:
 * each is as the first row says that matches it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "shim/object/form_choice.h"

#define COMBINATIONS 64u
#define S SHIM_HAS_STUB
#define C SHIM_HAS_CLONE
#define P SHIM_HAS_PROBED
#define PS SHIM_HAS_PROBED_STUB
#define PC SHIM_HAS_PROBED_CLONE
#define B SHIM_HAS_BRACKETS
#define ANY 2

enum form { OWN, CLONE, PROBED, CLONE_OF_PROBED };

static const struct row {
	int at_blocks, tools;
	unsigned with, without;
	enum form form;
	enum shim_stub_arg arg;
	bool stops;
} rows[] = {
	/* no tool's launch */
	{ true, false, C | S, 0, OWN, SHIM_STUB_GATE, true },
	{ true, false, C, S, CLONE, SHIM_STUB_NONE, true },
	{ ANY, false, S, 0, OWN, SHIM_STUB_ZERO, false },
	{ ANY, false, 0, S, OWN, SHIM_STUB_NONE, false },
	/* between brackets: never stopped */
	{ ANY, true, B | P | PS, 0, PROBED, SHIM_STUB_TOOLS, false },
	{ ANY, true, B | P, PS, PROBED, SHIM_STUB_NONE, false },
	{ ANY, true, B | S, P, OWN, SHIM_STUB_ZERO, false },
	{ ANY, true, B, P | S, OWN, SHIM_STUB_NONE, false },
	/* the probed form, whatever the kernel itself has */
	{ true, true, P | PC | PS, B, PROBED, SHIM_STUB_GATE, true },
	{ true, true, P | PC, B | PS, CLONE_OF_PROBED, SHIM_STUB_NONE, true },
	{ ANY, true, P | PS, B, PROBED, SHIM_STUB_TOOLS, false },
	{ ANY, true, P, B | PS, PROBED, SHIM_STUB_NONE, false },
	/* there is no form of the tools */
	{ true, true, C | S, B | P, OWN, SHIM_STUB_GATE, true },
	{ true, true, C, B | P | S, CLONE, SHIM_STUB_NONE, true },
	{ ANY, true, S, B | P, OWN, SHIM_STUB_ZERO, false },
	{ ANY, true, 0, B | P | S, OWN, SHIM_STUB_NONE, false },
};

#define N_ROWS (sizeof(rows) / sizeof(rows[0]))

static bool matches(const struct row *r, int at_blocks, int tools, unsigned has)
{
	return (r->at_blocks == ANY || r->at_blocks == at_blocks) && r->tools == tools &&
	       (has & r->with) == r->with && !(has & r->without);
}

static void every_combination_is_in_the_table(void **state)
{
	bool used[N_ROWS] = { false };

	for (unsigned i = 0; i < 4 * COMBINATIONS; i++) {
		int at_blocks = i & 1, tools = i >> 1 & 1;
		unsigned has = i >> 2, n = 0, form;
		struct shim_form_choice c = shim_form_choose(at_blocks, tools, has);

		while (n < N_ROWS && !matches(&rows[n], at_blocks, tools, has)) {
			n++;
		}
		assert_true(n < N_ROWS);
		used[n] = true;
		form = c.probed * 2u + (c.stops && c.arg == SHIM_STUB_NONE);
		if (form != rows[n].form || c.arg != rows[n].arg || c.stops != rows[n].stops) {
			fail_msg("row %u, at_blocks %d, tools %d, has 0x%x: form %u, argument %d",
				 n, at_blocks, tools, has, form, (int)c.arg);
		}
	}
	for (unsigned n = 0; n < N_ROWS; n++) {
		assert_true(used[n]);
	}
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_combination_is_in_the_table),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
