/* The figures of smmap: multiprocessors are weighed by the time of their blocks, or by number where
 * no block has a time. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cli/trace.h"

#define SMS 1024u

/* tracers/smmap.bpf.c */
struct sm {
	uint64_t blocks, warps, lanes, ended, busy_ns, lost, open;
};

static struct sm sms[SMS];

/* For messages about connections, of which there are none here. */
const char *cli_verb_name(const struct cli *c, char *out, size_t cap)
{
	(void)c;
	snprintf(out, cap, "test");
	return out;
}

/* Caller frees. */
static json_t *figures(uint64_t in_part)
{
	const struct cli_trace_values v = { .at = { (uint64_t *)sms },
					    .in_part = in_part,
					    .why_in_part = in_part ? "k: runs without" : NULL };

	return cli_trace_smmap.figures(&v);
}

static void check(const char *weighed_by, double imbalance, uint64_t without_end)
{
	json_t *f = figures(0);

	assert_string_equal(cli_text(f, "weighed_by"), weighed_by);
	assert_int_equal((int64_t)(json_real_value(json_object_get(f, "imbalance")) * 1000 + 0.5),
			 (int64_t)(imbalance * 1000 + 0.5));
	assert_int_equal(cli_u64(f, "without_end"), without_end);
	json_decref(f);
}

/* Ten multiprocessors with ten blocks each, of 1000 ns. */
static void make_equal(void)
{
	memset(sms, 0, sizeof(sms));
	for (unsigned i = 0; i < 10; i++) {
		sms[2 * i] = (struct sm){ 10, 10, 320, 10, 10000, 0, 0 };
	}
}

static void equal_blocks_are_balanced(void **state)
{
	(void)state;
	make_equal();
	check("time", 1.0, 0);
}

static void one_long_block_is_imbalance(void **state)
{
	(void)state;
	make_equal();
	sms[4].busy_ns += 59000; /* 69 of 159 */
	check("time", 69.0 * 10 / 159, 0);
}

/* A multiprocessor whose blocks all run still has no time, and no part in the mean. */
static void blocks_that_run_have_no_time(void **state)
{
	(void)state;
	make_equal();
	sms[4] = (struct sm){ 10, 10, 320, 0, 0, 0, 10 };
	sms[6].open = 2;
	check("time", 1.0, 12);
}

/* A block that was moved begins on one multiprocessor and ends on another one. */
static void a_moved_block_has_ended(void **state)
{
	(void)state;
	make_equal();
	sms[4].open = 1;
	sms[4].ended--;
	sms[4].busy_ns -= 1000;
	sms[6].open = UINT64_MAX;
	sms[6].lost = 1;
	check("time", 10.0 * 10 / 99, 0);
}

static void without_times_blocks_are_counted(void **state)
{
	json_t *f;

	(void)state;
	make_equal();
	for (unsigned i = 0; i < SMS; i++) {
		sms[i].open = sms[i].blocks;
		sms[i].ended = sms[i].busy_ns = 0;
	}
	sms[0].blocks = sms[0].open = 20;
	check("blocks", 20.0 * 10 / 110, 110);
	f = figures(1);
	assert_int_equal(cli_u64(f, "in_part"), 1);
	assert_string_equal(cli_text(f, "why_in_part"), "k: runs without");
	json_decref(f);
}

/* Reasons name kernels, and have a limit. */
static void a_reason_that_is_cut_within_a_character_leaves_the_figures(void **state)
{
	const struct cli_trace_values v = { .at = { (uint64_t *)sms },
					    .in_part = 1,
					    .why_in_part = "gr\xc3\xb6\xc3" };
	json_t *f;

	(void)state;
	make_equal();
	f = cli_trace_smmap.figures(&v);
	assert_int_equal(cli_u64(f, "blocks"), 100);
	assert_string_equal(cli_text(f, "why_in_part"), "gr???");
	json_decref(f);
}

static void values_of_any_kind_are_figures(void **state)
{
	(void)state;
	memset(sms, 0, sizeof(sms));
	check("blocks", 0, 0);
	memset(sms, 0xff, sizeof(sms));
	json_decref(figures(UINT64_MAX));
	memset(sms, 0, sizeof(sms));
	sms[3].ended = 1; /* it began in the interval before */
	sms[3].busy_ns = 7;
	check("time", 1.0, 0);
	sms[3].open = UINT64_MAX; /* the program wrote the map */
	check("time", 1.0, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(equal_blocks_are_balanced),
		cmocka_unit_test(one_long_block_is_imbalance),
		cmocka_unit_test(blocks_that_run_have_no_time),
		cmocka_unit_test(a_moved_block_has_ended),
		cmocka_unit_test(without_times_blocks_are_counted),
		cmocka_unit_test(a_reason_that_is_cut_within_a_character_leaves_the_figures),
		cmocka_unit_test(values_of_any_kind_are_figures),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
