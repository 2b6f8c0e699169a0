/* Which types are equal when maps are kept; also types of hostile objects. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <bpf/btf.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "bpf/load/btf/btf_equal.h"

/* Builds struct { u32 a; TYPE b; } with b at this bit. */
static int pair(struct btf *b, const char *second, int type, uint32_t bit, uint32_t bits)
{
	int u32 = btf__add_int(b, "unsigned int", 4, 0), s = btf__add_struct(b, "pair", 16);

	assert_true(u32 > 0 && s > 0);
	assert_int_equal(btf__add_field(b, "a", u32, 0, bits ? 32 : 0), 0);
	assert_int_equal(btf__add_field(b, second, type ? type : u32, bit, bits), 0);
	return s;
}

static void names_of_types_do_not_matter_but_their_bytes_do(void **state)
{
	struct btf *a = btf__new_empty(), *b = btf__new_empty();
	uint32_t ia = (uint32_t)btf__add_int(a, "u32", 4, 0);
	uint32_t ib = (uint32_t)btf__add_int(b, "unsigned int", 4, 0);
	uint32_t sb = (uint32_t)btf__add_int(b, "int", 4, BTF_INT_SIGNED);
	uint32_t lb = (uint32_t)btf__add_int(b, "long", 8, 0);
	uint32_t tb = (uint32_t)btf__add_typedef(b, "word", (int)ib);
	uint32_t cb = (uint32_t)btf__add_const(b, (int)tb);

	(void)state;
	assert_true(ebpf_types_equal(a, ia, b, ib));
	assert_true(ebpf_types_equal(a, ia, b, cb));
	assert_false(ebpf_types_equal(a, ia, b, sb));
	assert_false(ebpf_types_equal(a, ia, b, lb));
	assert_true(ebpf_types_equal(a, 0, b, 0));
	assert_false(ebpf_types_equal(a, 0, b, ib));
	assert_false(ebpf_types_equal(a, ia, b, 99)); /* no such type */
	assert_false(ebpf_types_equal(NULL, ia, b, ib));
	btf__free(a);
	btf__free(b);
}

static void members_must_agree_in_name_place_and_type(void **state)
{
	struct btf *a = btf__new_empty(), *b = btf__new_empty();
	uint32_t whole = (uint32_t)pair(a, "b", 0, 32, 0);

	(void)state;
	assert_true(ebpf_types_equal(a, whole, b, (uint32_t)pair(b, "b", 0, 32, 0)));
	assert_false(ebpf_types_equal(a, whole, b, (uint32_t)pair(b, "c", 0, 32, 0)));
	assert_false(ebpf_types_equal(a, whole, b, (uint32_t)pair(b, "b", 0, 64, 0)));
	assert_false(ebpf_types_equal(
		a, whole, b, (uint32_t)pair(b, "b", btf__add_int(b, "long", 8, 0), 32, 0)));
	assert_false(ebpf_types_equal(a, whole, b, (uint32_t)pair(b, "b", 0, 32, 5)));
	btf__free(a);
	btf__free(b);
}

static void arrays_must_agree_in_length(void **state)
{
	struct btf *a = btf__new_empty();
	int u8 = btf__add_int(a, "u8", 1, 0);
	uint32_t x = (uint32_t)btf__add_array(a, u8, u8, 4),
		 y = (uint32_t)btf__add_array(a, u8, u8, 5);

	(void)state;
	assert_true(ebpf_types_equal(a, x, a, x));
	assert_false(ebpf_types_equal(a, x, a, y));
	btf__free(a);
}

/* A struct that contains itself, and a sequence of structs that each contain the next one many
 * times. */
static void types_without_end_are_never_equal(void **state)
{
	struct btf *a = btf__new_empty();
	int self, inner = btf__add_int(a, "u8", 1, 0);

	(void)state;
	for (int level = 0; level < 12; level++) {
		int s = btf__add_struct(a, "level", 64);

		for (uint32_t i = 0; i < 16; i++) {
			char name[8];

			snprintf(name, sizeof(name), "m%u", i);
			assert_int_equal(btf__add_field(a, name, inner, i * 8, 0), 0);
		}
		inner = s;
	}
	assert_false(ebpf_types_equal(a, (uint32_t)inner, a, (uint32_t)inner)); /* 16^12 members */
	btf__free(a);
	a = btf__new_empty();
	self = btf__add_struct(a, "self", 8);
	assert_int_equal(btf__add_field(a, "me", self, 0, 0), 0);
	assert_false(ebpf_types_equal(a, (uint32_t)self, a, (uint32_t)self));
	btf__free(a);
}

static void variables_lie_within_their_section(void **state)
{
	struct btf *a = btf__new_empty();
	int u64 = btf__add_int(a, "u64", 8, 0), v = btf__add_var(a, "x", BTF_VAR_STATIC, u64);
	uint32_t section = (uint32_t)btf__add_datasec(a, ".data", 16);
	struct ebpf_variable got;

	(void)state;
	assert_int_equal(btf__add_datasec_var_info(a, v, 8, 8), 0);
	assert_int_equal(btf__add_datasec_var_info(a, v, 9, 8), 0);
	assert_int_equal(ebpf_variable_at(a, section, 16, 0, &got), 0);
	assert_string_equal(got.name, "x");
	assert_int_equal(got.offset, 8);
	assert_int_equal(got.bytes, 8);
	assert_int_equal(ebpf_variable_at(a, section, 16, 1, &got),
			 -EINVAL); /* exceeds the section */
	assert_int_equal(ebpf_variable_at(a, section, 16, 2, &got), -ENOENT);
	assert_int_equal(ebpf_variable_at(a, (uint32_t)u64, 16, 0, &got), -EINVAL);
	assert_int_equal(ebpf_variable_at(a, 99, 16, 0, &got), -EINVAL);
	btf__free(a);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(names_of_types_do_not_matter_but_their_bytes_do),
		cmocka_unit_test(members_must_agree_in_name_place_and_type),
		cmocka_unit_test(arrays_must_agree_in_length),
		cmocka_unit_test(types_without_end_are_never_equal),
		cmocka_unit_test(variables_lie_within_their_section),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
