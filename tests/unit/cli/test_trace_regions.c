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
 * the words of the region, CLI_REGION_*; NULL: another one owns the place, which is region_place.
 */
uint64_t *region_of_address(uint64_t low, uint64_t high, uint32_t shift);
extern uint32_t region_place;
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
		(void)region_of_address(address, address + 127, SHIFT);
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

static uint32_t place_of(uint64_t address)
{
	(void)region_of_address(address, address, SHIFT);
	return region_place;
}

/* Finds an address in another window of 65536 regions that has the place of `address`. */
static uint64_t twin(uint64_t address, uint64_t window)
{
	uint32_t place = place_of(address);
	uint64_t a = address + (window << (16 + SHIFT));

	while (place_of(a) != place) {
		a += UINT64_C(1) << SHIFT;
	}
	return a;
}

static void a_shared_place_has_the_first_ones_address(void **state)
{
	uint64_t a = UINT64_C(5) << (16 + SHIFT), b = twin(a, 2), mixed;
	json_t *list;

	(void)state;
	setup(NULL);
	touch(a, 10);
	touch(b, 7);
	touch(a + (UINT64_C(1) << SHIFT), 3);
	assert_null(region_of_address(b, b, SHIFT));
	list = regions(&mixed);
	assert_int_equal(mixed, 8);
	assert_int_equal(json_array_size(list), 2);
	assert_int_equal(cli_u64(json_array_get(list, 0), "count"), 10);
	assert_int_equal(strtoull(cli_text(json_array_get(list, 0), "address"), NULL, 16), a);
	assert_int_equal(cli_u64(json_array_get(list, 1), "count"), 3);
	json_decref(list);
}

/* The table is copied while warps are between their additions: what has been counted has its
 * address, and what was read during the first access of its place has no wrong one. */
static void a_table_that_is_being_written_has_right_addresses(void **state)
{
	static const uint64_t a = 0x7f3412200000;
	uint64_t mixed, *at = region_of_address(a, a, SHIFT);

	(void)state;
	for (unsigned missing = 0; missing < 4; missing++) {
		uint64_t all[CLI_REGION_WORDS];
		json_t *list;

		memcpy(all, at, sizeof(all));
		at[CLI_REGION_OWNERS] = missing & 1 ? 0 : 1;
		at[CLI_REGION_SQUARES] = missing & 2 ? 0 : at[CLI_REGION_SQUARES];
		at[CLI_REGION_COUNT] = 1000000 + missing;
		list = regions(&mixed);
		assert_int_equal(mixed, missing ? at[CLI_REGION_COUNT] : 0);
		assert_int_equal(json_array_size(list), !missing);
		if (!missing) {
			json_t *r = json_array_get(list, 0);

			assert_int_equal(strtoull(cli_text(r, "address"), NULL, 16), a);
		}
		json_decref(list);
		memcpy(at, all, sizeof(all));
	}
}

/* Values of contexts and programs are added. */
static void sums_have_an_address_if_all_have_the_same(void **state)
{
	uint64_t a = UINT64_C(5) << (16 + SHIFT), b = twin(a, 2), mixed, one[CLI_REGION_WORDS];
	uint64_t *at;
	json_t *list;

	(void)state;
	for (unsigned other = 0; other < 2; other++) {
		setup(NULL);
		at = region_of_address(a, a, SHIFT);
		memcpy(one, at, sizeof(one));
		setup(NULL);
		at = region_of_address(other ? b : a, other ? b : a, SHIFT);
		for (unsigned i = 0; i < CLI_REGION_WORDS; i++) {
			at[i] += 2 * one[i]; /* the mean is a whole number, too */
		}
		list = regions(&mixed);
		assert_int_equal(json_array_size(list), !other);
		assert_int_equal(mixed, other ? 3 : 0);
		json_decref(list);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(addresses_are_those_of_the_accesses, setup),
		cmocka_unit_test_setup(a_shared_place_has_the_first_ones_address, setup),
		cmocka_unit_test_setup(a_table_that_is_being_written_has_right_addresses, setup),
		cmocka_unit_test_setup(sums_have_an_address_if_all_have_the_same, setup),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
