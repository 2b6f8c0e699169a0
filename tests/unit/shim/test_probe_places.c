/* Places of a tool: which sites share a number, and what becomes of those beyond the last. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "bpf/run/kernel_places.h"
#include "shim/probe/shim_probe_int.h"

enum {
#define GBPF_MAP_TYPE(id, name, ops, doc) MAP_##name = id,
#include "gbpf/hooks.def"
};
enum {
#define GBPF_CONST(name, value, doc) name = value,
#include "gbpf/hooks.def"
};

#define ENTRIES 4u
#define LAST (ENTRIES - 1)
#define ACCESS 38u
#define BARRIER 40u

static struct shim_probe_tool *tool;

/* Gives the tool a new region. */
static void bind(void)
{
	size_t bytes = tool->p.region_bytes[EBPF_REGION_TENANT];
	void *region = calloc(1, bytes);

	assert_non_null(region);
	free(tool->p.region[EBPF_REGION_TENANT]);
	tool->p.region[EBPF_REGION_TENANT] = region;
	ebpf_maps_bind(tool->p.env.maps, tool->p.env.n_maps, EBPF_REGION_TENANT, region);
}

static void with_map(const char *name)
{
	struct ebpf_map_def *def;

	tool = calloc(1, sizeof(*tool));
	assert_non_null(tool);
	def = &tool->p.defs[0];
	*def = (struct ebpf_map_def){ .type = MAP_ARRAY,
				      .key_bytes = 4,
				      .value_bytes = sizeof(struct ebpf_kernel_place),
				      .max_entries = ENTRIES,
				      .flags = (uint32_t)GBPF_F_TENANT };
	snprintf(def->name, sizeof(def->name), "%s", name);
	tool->p.env.n_maps = 1;
	assert_int_equal(ebpf_maps_layout(def, 1, tool->p.env.maps, tool->p.region_bytes), 0);
	bind();
}

static int setup(void **state)
{
	(void)state;
	with_map(EBPF_KERNEL_PLACES);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	shim_probe_places_free(tool->places);
	free(tool->p.region[EBPF_REGION_TENANT]);
	free(tool);
	return 0;
}

static const struct ebpf_kernel_place *row(uint32_t i)
{
	const struct ebpf_kernel_place *at = ebpf_map_lookup(&tool->p.env.maps[0], &i);

	assert_non_null(at);
	return at;
}

/* file NULL: no line is known. */
static uint32_t place(const char *kernel, uint32_t hook, uint32_t site, const char *file,
		      uint32_t line)
{
	const struct ptx_probe_place p = { .kernel = kernel,
					   .hook = hook,
					   .site = site,
					   .file = file,
					   .file_len = file ? strlen(file) : 0,
					   .line = line };

	return shim_probe_place_number(tool, &p);
}

static void sites_of_different_kernels_have_different_places(void **state)
{
	(void)state;
	assert_int_equal(place("a", ACCESS, 0, NULL, 0), 0);
	assert_int_equal(place("b", ACCESS, 0, NULL, 0), 1);
	assert_int_equal(place("a", ACCESS, 1, NULL, 0), 2);
	assert_int_equal(place("a", ACCESS, 0, NULL, 0), 0); /* its form is made again */
	assert_int_equal(place("b", ACCESS, 0, NULL, 0), 1);
	assert_string_equal(row(0)->name, "a");
	assert_string_equal(row(1)->name, "b");
	assert_int_equal(row(0)->kernel, hash_bytes("a", 1));
	assert_int_equal(row(2)->site, 1);
	assert_int_equal(row(2)->line, 0);
	assert_string_equal(row(2)->file, "");
}

static void sites_of_one_line_have_one_place(void **state)
{
	(void)state;
	assert_int_equal(place("a", ACCESS, 3, "/x.cu", 7), 0);
	assert_int_equal(place("a", ACCESS, 4, "/x.cu", 7), 0);
	assert_int_equal(place("a", ACCESS, 5, "/y.cu", 7), 1);
	assert_int_equal(place("a", BARRIER, 3, "/x.cu", 7), 2);
	assert_int_equal(place("a", ACCESS, 6, "/x.cu", 8), 3);
	assert_string_equal(row(0)->file, "/x.cu");
	assert_int_equal(row(0)->line, 7);
	assert_int_equal(row(0)->site, 3);
	assert_int_equal(row(1)->site, 5);
	assert_int_equal(row(2)->hook, BARRIER);
}

/* None gets the number of another one. */
static void places_beyond_the_map_have_the_last_number(void **state)
{
	(void)state;
	for (uint32_t i = 0; i < LAST; i++) {
		assert_int_equal(place("a", ACCESS, i, NULL, 0), i);
	}
	assert_int_equal(place("a", ACCESS, LAST, NULL, 0), LAST);
	assert_int_equal(place("a", ACCESS, 99, NULL, 0), LAST);
	assert_int_equal(place("b", ACCESS, 0, "/x.cu", 1), LAST);
	assert_int_equal(place("a", ACCESS, 1, NULL, 0), 1);
	assert_int_equal(row(LAST)->kernel, 0);
}

/* What others write to the map changes no number. */
static void a_new_region_gets_the_places(void **state)
{
	(void)state;
	assert_int_equal(place("a", ACCESS, 0, NULL, 0), 0);
	assert_int_equal(place("b", ACCESS, 0, "/x.cu", 9), 1);
	bind();
	assert_int_equal(row(1)->kernel, 0);
	shim_probe_places_renew(tool);
	assert_string_equal(row(0)->name, "a");
	assert_string_equal(row(1)->name, "b");
	assert_string_equal(row(1)->file, "/x.cu");
	assert_int_equal(row(2)->kernel, 0);
	memset(tool->p.region[EBPF_REGION_TENANT], 0xff, tool->p.region_bytes[EBPF_REGION_TENANT]);
	assert_int_equal(place("b", ACCESS, 0, "/x.cu", 9), 1);
	assert_int_equal(place("c", ACCESS, 0, NULL, 0), 2);
	assert_string_equal(row(2)->name, "c");
}

static void texts_are_cut_and_printable(void **state)
{
	char name[200], file[400];

	(void)state;
	memset(name, 'k', sizeof(name) - 1);
	name[sizeof(name) - 1] = 0;
	memset(file, 'f', sizeof(file) - 1);
	memcpy(file + sizeof(file) - 6, "/a.cu", 6);
	assert_int_equal(place(name, ACCESS, 0, file, 1), 0);
	assert_int_equal(strlen(row(0)->name), sizeof(row(0)->name) - 1);
	assert_int_equal(strlen(row(0)->file), sizeof(row(0)->file) - 1);
	assert_memory_equal(row(0)->file, "...fff", 6);
	assert_string_equal(row(0)->file + strlen(row(0)->file) - 6, "f/a.cu");
	name[150] = 'x'; /* another kernel, although the texts agree */
	assert_int_equal(place(name, ACCESS, 0, file, 1), 1);
	assert_int_equal(place("a\n\x1b[m\xc3\xa4", ACCESS, 0, "\x7f/\t", 1), 2);
	assert_string_equal(row(2)->name, "a??[m??");
	assert_string_equal(row(2)->file, "?/?");
}

static void a_tool_without_the_map_has_no_numbers(void **state)
{
	(void)state;
	teardown(NULL);
	with_map("OTHER_PLACES");
	assert_int_equal(place("a", ACCESS, 0, NULL, 0), PTX_PROBE_NO_NUMBER);
	shim_probe_places_renew(tool);
	assert_int_equal(row(0)->kernel, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(sites_of_different_kernels_have_different_places,
						setup, teardown),
		cmocka_unit_test_setup_teardown(sites_of_one_line_have_one_place, setup, teardown),
		cmocka_unit_test_setup_teardown(places_beyond_the_map_have_the_last_number, setup,
						teardown),
		cmocka_unit_test_setup_teardown(a_new_region_gets_the_places, setup, teardown),
		cmocka_unit_test_setup_teardown(texts_are_cut_and_printable, setup, teardown),
		cmocka_unit_test_setup_teardown(a_tool_without_the_map_has_no_numbers, setup,
						teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
