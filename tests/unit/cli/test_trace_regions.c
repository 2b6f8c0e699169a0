/* The table of regions: the numbering of tracers/regions.h and of the printer agree, and a place
 * that several regions share has no address. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cli/trace.h"

#define SHIFT 21

/* The program's own function, compiled for the host; its header declares helpers of eBPF. Returns
 * the words of the region: count, tags, squares, spread. */
uint64_t *region_of_address(uint64_t low, uint64_t high, uint32_t shift);
extern uint64_t region_table[CLI_TRACE_REGIONS][CLI_REGION_WORDS];

/* For messages about connections, of which there are none here. */
const char *cli_verb_name(const struct cli *c, char *out, size_t cap)
{
	(void)c;
	snprintf(out, cap, "test");
	return out;
}

static void add_none(json_t *region, const uint64_t *words)
{
	(void)region;
	(void)words;
}

static json_t *regions(uint64_t *ret_mixed)
{
	return cli_trace_regions(&region_table[0][0], CLI_REGION_WORDS, UINT64_C(1) << SHIFT,
				 add_none, ret_mixed);
}

static int setup(void **state)
{
	(void)state;
	memset(region_table, 0, sizeof(region_table));
	return 0;
}

static void touch(uint64_t address, unsigned n)
{
	while (n--) {
		assert_non_null(region_of_address(address, address + 127, SHIFT));
	}
}

static void addresses_are_those_of_the_accesses(void **state)
{
	static const uint64_t at[] = {
		0, 0x200000, 0x1fffe00000, 0x2000000000, 0x7f3412200000, 0x7fffffe00000
	};
	uint64_t mixed;
	json_t *list, *r;

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(at); i++) {
		touch(at[i] + 77, i + 1);
	}
	assert_non_null(region_of_address(at[2], at[3], SHIFT));
	list = regions(&mixed);
	assert_int_equal(mixed, 0);
	assert_int_equal(json_array_size(list), ARRAY_SIZE(at));
	for (unsigned i = 0; i < ARRAY_SIZE(at); i++) {
		r = json_array_get(list, i);
		assert_int_equal(strtoull(cli_text(r, "address"), NULL, 16), at[i]);
		assert_int_equal(cli_u64(r, "count"), i + 1 + (i == 2));
		assert_int_equal(cli_u64(r, "spread"), i == 2);
	}
	json_decref(list);
}

/* Finds an address in another window of 65536 regions that has the place of `address`. */
static uint64_t twin(uint64_t address, uint64_t window)
{
	const uint64_t *place = region_of_address(address, address, SHIFT);
	uint64_t a = address + (window << (16 + SHIFT));

	while (region_of_address(a, a, SHIFT) != place) {
		a += UINT64_C(1) << SHIFT;
	}
	return a;
}

static void a_shared_place_has_no_address(void **state)
{
	uint64_t a = UINT64_C(5) << (16 + SHIFT), b = twin(a, 2), mixed;
	json_t *list;

	(void)state;
	setup(NULL);
	touch(a, 10);
	touch(b, 10); /* the mean is a whole number: another region's */
	touch(a + (UINT64_C(1) << SHIFT), 3);
	list = regions(&mixed);
	assert_int_equal(mixed, 20);
	assert_int_equal(json_array_size(list), 1);
	assert_int_equal(cli_u64(json_array_get(list, 0), "count"), 3);
	json_decref(list);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(addresses_are_those_of_the_accesses, setup),
		cmocka_unit_test_setup(a_shared_place_has_no_address, setup),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
