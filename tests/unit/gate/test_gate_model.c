/* The gate's protocol in all orders of steps. Whatever happens,
 *
 * - what ran when a launch ends is a prefix of its clusters,
 * - each block runs exactly once over all attempts,
 * - no block runs before the launch before it in the run is complete,
 * - a launch's end is published once, in the order of launches, and not before all of its blocks
 *   have run or will,
 * - every order ends, also where blocks wait for others,
 * - the host never finds words that it cannot explain.
 *
 * Each planted fault (model.h) breaks one of these. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdio.h>

#include "base/compiler.h"
#include "model.h"

#define GATE(n, c, w)                                                                              \
	{                                                                                          \
		.blocks = n, .cluster = c, .wave = w                                               \
	}
#define CLONE(n)                                                                                   \
	{                                                                                          \
		.blocks = n, .cluster = 1, .clone = true                                           \
	}
#define WAITING(n, c, w, for)                                                                      \
	{                                                                                          \
		.blocks = n, .cluster = c, .wave = w, .wait = for                                  \
	}

/* Those with fewer states first, since faults are tried in this order. */
static const struct model_scenario scenarios[] = {
	{ "a clone behind", { GATE(2, 1, 1), CLONE(2) }, .rises = 2 },
	{ "2 launches, submitted late", { GATE(2, 1, 0), GATE(2, 1, 2) }, .rises = 2, .late = 1 },
	{ "a clone in front, together", { CLONE(2), GATE(2, 1, 0) }, .rises = 2 },
	{ "a clone in front", { CLONE(2), GATE(2, 1, 1) }, .rises = 2 },
	{ "2 launches", { GATE(2, 1, 1), GATE(2, 1, 1) }, .rises = 2 },
	{ "2 launches of clusters", { GATE(2, 2, 1), GATE(2, 2, 0) }, .rises = 2 },
	{ "some blocks pass leases", { GATE(3, 1, 3) }, .rises = 2, .ask = 2 },
	{ "a hang, then a clone", { GATE(2, 1, 0), CLONE(2) }, .rises = 1, .takes = 1 },
	{ "2 launches wait for higher blocks",
	  { WAITING(2, 1, 1, WAIT_HIGHER), WAITING(2, 1, 0, WAIT_HIGHER) },
	  .rises = 1,
	  .takes = 1 },
	{ "a clone hangs", { CLONE(2), GATE(2, 1, 1) }, .rises = 1, .takes = 1 },
	{ "the line goes to a clone", { GATE(2, 1, 0), CLONE(2) }, .rises = 2, .reuse = true },
	{ "a hang, then a launch", { GATE(2, 1, 1), GATE(2, 1, 1) }, .rises = 1, .takes = 1 },
	{ "a cluster hangs", { GATE(2, 2, 0), GATE(2, 1, 0) }, .rises = 1, .takes = 1 },
	{ "4 blocks, flag first", { GATE(4, 1, 4) }, .rises = 2 },
	{ "4 blocks wait for lower ones", { WAITING(4, 1, 2, WAIT_LOWER) }, .rises = 1 },
	{ "the line goes on, clusters",
	  { GATE(2, 2, 1), GATE(2, 1, 1) },
	  .rises = 1,
	  .reuse = true },
	{ "3 blocks wait for higher ones",
	  { WAITING(3, 1, 1, WAIT_HIGHER) },
	  .rises = 1,
	  .takes = 1 },
	{ "4 blocks, together", { GATE(4, 1, 0) }, .rises = 2 },
	{ "4 blocks, both", { GATE(4, 1, 2) }, .rises = 2 },
	{ "the line goes on", { GATE(2, 1, 1), GATE(2, 1, 1) }, .rises = 2, .reuse = true },
	{ "3 blocks hang", { GATE(3, 1, 1) }, .rises = 1, .takes = 1 },
	{ "2 clusters, together", { GATE(4, 2, 0) }, .rises = 2 },
	{ "2 clusters, both", { GATE(4, 2, 2) }, .rises = 2 },
	{ "2 clusters wait for higher ones",
	  { WAITING(4, 2, 2, WAIT_HIGHER) },
	  .rises = 1,
	  .takes = 1 },
};

static void print_steps(const struct model *m)
{
	print_message("steps (stream.block.access, L: lease, h: host):");
	for (unsigned i = 0; i < m->n_steps; i++) {
		unsigned which = m->steps[i];

		if (which < MODEL_STEP_LEASE) {
			print_message(" %u.%u.%u", which >> 4, which >> 2 & 3, which & 3);
		} else if (which == MODEL_STEP_LEASE) {
			print_message(" L");
		} else {
			print_message(" h%u", which - MODEL_STEP_LEASE - 1);
		}
	}
	print_message("\n");
}

static void no_order_breaks_the_rules(void **state)
{
	for (size_t i = 0; i < ARRAY_SIZE(scenarios); i++) {
		struct model m = { .scenario = &scenarios[i] };

		model_explore(&m);
		print_message("%-36s %8llu states\n", scenarios[i].name,
			      (unsigned long long)m.n_states);
		if (m.violation) {
			print_steps(&m);
			fail_msg("%s: %s", scenarios[i].name, m.violation);
		}
		assert_true(m.n_states > 1000);
	}
}

/* Without the bypass, blocks that wait for higher ones never end. */
static void what_cannot_end_is_found(void **state)
{
	static const struct model_scenario waits = { "no bypass",
						     { WAITING(3, 1, 1, WAIT_HIGHER) },
						     .rises = 1 };
	struct model m = { .scenario = &waits };

	model_explore(&m);
	assert_string_equal(m.violation, "nothing is possible any more");
}

static void each_planted_fault_is_found(void **state)
{
	for (unsigned f = FAULT_NONE + 1; f < MODEL_N_FAULTS; f++) {
		struct model m = { .fault = (enum model_fault)f };

		for (size_t i = 0; i < ARRAY_SIZE(scenarios) && !m.violation; i++) {
			m.scenario = &scenarios[i];
			model_explore(&m);
		}
		if (!m.violation) {
			fail_msg("not found: %s", model_fault_names[f]);
		}
		print_message("%s:\n    %s: %s\n", model_fault_names[f], m.scenario->name,
			      m.violation);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(no_order_breaks_the_rules),
		cmocka_unit_test(what_cannot_end_is_found),
		cmocka_unit_test(each_planted_fault_is_found),
	};

	return cmocka_run_group_tests_name("model of the gate", tests, NULL, NULL);
}
