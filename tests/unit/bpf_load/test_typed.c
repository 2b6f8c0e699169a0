/* Prints, parses and finds values by their BTF types. */
#include <bpf/btf.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/compiler.h"
#include "bpf/load/btf/typed.h"

struct flow {
	uint32_t tenant;
	int32_t delta;
	uint64_t bytes;
	char name[8];
	uint16_t low : 4, high : 12;
	uint8_t kind;
	uint8_t pad;
	uint32_t arr[3];
};

static struct btf *btf;
static int u8_id, u32_id, s32_id, u64_id, char_id, kind_id, flow_id, many_id;

static int make_types(void **state)
{
	int index, name_array, arr_array, u16_id;

	btf = btf__new_empty();
	u8_id = btf__add_typedef(btf, "u8", btf__add_int(btf, "unsigned char", 1, 0));
	u16_id = btf__add_int(btf, "unsigned short", 2, 0);
	index = btf__add_int(btf, "unsigned int", 4, 0);
	u32_id = btf__add_typedef(btf, "u32", index);
	s32_id = btf__add_int(btf, "int", 4, BTF_INT_SIGNED);
	u64_id = btf__add_typedef(btf, "u64", btf__add_int(btf, "unsigned long long", 8, 0));
	char_id = btf__add_int(btf, "char", 1, BTF_INT_SIGNED);
	kind_id = btf__add_enum(btf, "kind", 1);
	btf__add_enum_value(btf, "COPY", 1);
	btf__add_enum_value(btf, "KERNEL", 2);
	name_array = btf__add_array(btf, index, char_id, 8);
	arr_array = btf__add_array(btf, index, u32_id, 3);
	flow_id = btf__add_struct(btf, "flow", sizeof(struct flow));
	btf__add_field(btf, "tenant", u32_id, 0, 0);
	btf__add_field(btf, "delta", s32_id, 32, 0);
	btf__add_field(btf, "bytes", u64_id, 64, 0);
	btf__add_field(btf, "name", name_array, 128, 0);
	btf__add_field(btf, "low", u16_id, 192, 4);
	btf__add_field(btf, "high", u16_id, 196, 12);
	btf__add_field(btf, "kind", kind_id, 208, 0);
	btf__add_field(btf, "pad", u8_id, 216, 0);
	btf__add_field(btf, "arr", arr_array, 224, 0);
	many_id = btf__add_array(btf, index, u8_id, 60000);
	return flow_id > 0 && many_id > 0 ? 0 : -1;
}

static int drop_types(void **state)
{
	btf__free(btf);
	return 0;
}

static void assert_prints(uint32_t type, const void *bytes, size_t n, const char *text)
{
	struct buf out = { 0 };

	assert_int_equal(ebpf_typed_print(&out, btf, type, bytes, n), 0);
	assert_string_equal(buf_text(&out), text);
	buf_finish(&out);
}

static struct flow sample(void)
{
	struct flow f = { .tenant = 3,
			  .delta = -5,
			  .bytes = UINT64_MAX,
			  .name = "web",
			  .low = 9,
			  .high = 700,
			  .kind = 2,
			  .arr = { 1, 2, 3 } };

	return f;
}

static void a_struct_prints_as_an_object(void **state)
{
	struct flow f = sample();

	assert_prints(
		flow_id, &f, sizeof(f),
		"{\"tenant\":3,\"delta\":-5,\"bytes\":\"18446744073709551615\",\"name\":\"web\","
		"\"low\":9,\"high\":700,\"kind\":\"KERNEL\",\"pad\":0,\"arr\":[1,2,3]}");
}

static void what_has_no_type_prints_as_hex(void **state)
{
	assert_prints(0, "\x00\xff", 2, "{\"hex\":\"00ff\"}");
	assert_prints(9999, "\x01", 1, "{\"hex\":\"01\"}");
	assert_prints(u64_id, "\x01", 1, "{\"hex\":\"01\"}"); /* too few bytes */
}

static void a_value_of_too_many_parts_prints_as_hex(void **state)
{
	static uint8_t many[60000];
	struct buf out = { 0 };

	assert_int_equal(ebpf_typed_print(&out, btf, (uint32_t)many_id, many, sizeof(many)), 0);
	assert_memory_equal(buf_text(&out), "{\"hex\":\"0000", 12);
	assert_int_equal(out.len, 2 * sizeof(many) + 10);
	buf_finish(&out);
}

static void text_that_cannot_be_printed_is_an_array(void **state)
{
	struct flow f = sample();
	struct buf out = { 0 };

	memcpy(f.name, "a\x01\xff", 3);
	ebpf_typed_print(&out, btf, (uint32_t)flow_id, &f, sizeof(f));
	assert_non_null(strstr(buf_text(&out), "\"name\":[97,1,-1,0"));
	buf_finish(&out);
}

static void what_is_printed_can_be_parsed(void **state)
{
	struct flow f = sample(), g;
	struct buf out = { 0 };
	struct report r;

	report_init(&r);
	memset(&g, 0, sizeof(g));
	ebpf_typed_print(&out, btf, (uint32_t)flow_id, &f, sizeof(f));
	assert_int_equal(
		ebpf_typed_parse(btf, (uint32_t)flow_id, buf_text(&out), &g, sizeof(g), &r), 0);
	assert_memory_equal(&f, &g, sizeof(f));
	buf_finish(&out);
	report_finish(&r);
}

static void what_is_not_named_keeps_its_value(void **state)
{
	static const char *const texts[] = { "tenant=7, high = 0xfff", "{tenant: 7, high: 4095}",
					     "{\"tenant\":7,\"high\":4095}" };

	for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
		struct flow f = sample();
		struct report r;

		report_init(&r);
		assert_int_equal(
			ebpf_typed_parse(btf, (uint32_t)flow_id, texts[i], &f, sizeof(f), &r), 0);
		assert_int_equal(f.tenant, 7);
		assert_int_equal(f.high, 4095);
		assert_int_equal(f.low, 9);
		assert_string_equal(f.name, "web");
		report_finish(&r);
	}
}

static void numbers_have_units(void **state)
{
	static const struct {
		const char *text;
		uint64_t value;
	} good[] = { { "7", 7 },	 { "0x10", 16 },       { "2us", 2000 },
		     { "1ms", 1000000 }, { "1.5ms", 1500000 }, { "3s", 3000000000 },
		     { "4KiB", 4096 },	 { "-1", UINT64_MAX } };
	static const char *const bad[] = { "",
					   "x",
					   "1x",
					   "1.5",
					   "99999999999999999999",
					   "1e5",
					   "--1",
					   "ms",
					   "18446744073709551615s" };
	const char *end;
	uint64_t v;

	for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
		assert_int_equal(ebpf_typed_number(good[i].text, &end, &v), 0);
		assert_int_equal(v, good[i].value);
		assert_int_equal(*end, 0);
	}
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		assert_int_equal(ebpf_typed_number(bad[i], &end, &v), -EINVAL);
	}
}

/* Refused, with a word of the message and the caret's column. */
static void assert_refused(uint32_t type, size_t n, const char *text, const char *word,
			   unsigned column)
{
	uint8_t bytes[64] = { 0 };
	char caret[64];
	struct report r;

	report_init(&r);
	assert_int_equal(ebpf_typed_parse(btf, type, text, bytes, n, &r), -EINVAL);
	if (!strstr(buf_text(&r.message), word)) {
		fail_msg("'%s': '%s' is not in '%s'", text, word, buf_text(&r.message));
	}
	snprintf(caret, sizeof(caret), "\n%*s^", (int)column + 2, "");
	if (!strstr(buf_text(&r.detail), caret)) {
		fail_msg("'%s': the caret is elsewhere:\n%s", text, buf_text(&r.detail));
	}
	report_finish(&r);
}

static void refusals_point_at_the_place(void **state)
{
	uint32_t f = (uint32_t)flow_id;

	assert_refused(f, sizeof(struct flow), "{tenant=1, byts=2}", "byts", 11);
	assert_refused(f, sizeof(struct flow), "{tenant=x}", "not a number", 8);
	assert_refused(f, sizeof(struct flow), "{tenant=1", "'}'", 9);
	assert_refused(f, sizeof(struct flow), "{tenant=4294967296}", "fit", 8);
	assert_refused(f, sizeof(struct flow), "{high=4096}", "fit", 6);
	assert_refused(f, sizeof(struct flow), "{name=\"123456789\"}", "longer than 8", 15);
	assert_refused(f, sizeof(struct flow), "{arr=[1,2,3,4]}", "3 elements", 12);
	assert_refused(f, sizeof(struct flow), "{arr=1}", "array", 5);
	assert_refused(f, sizeof(struct flow), "{kind=GRAPH}", "enum", 6);
	assert_refused(f, sizeof(struct flow), "7", "struct is written", 0);
	assert_refused((uint32_t)u32_id, 4, "7 8", "more than one", 2);
	assert_refused((uint32_t)u32_id, 4, "hex:00", "1 hex bytes", 6);
	assert_refused((uint32_t)u32_id, 4, "hex:0011223344", "4 bytes", 12);
	assert_refused(0, 3, "7", "not known", 0);
}

static void a_refusal_says_what_the_type_looks_like(void **state)
{
	uint8_t bytes[64];
	struct report r;

	report_init(&r);
	ebpf_typed_parse(btf, (uint32_t)flow_id, "x", bytes, sizeof(struct flow), &r);
	assert_non_null(strstr(buf_text(&r.hint), "struct flow {u32 tenant, int delta, u64 bytes"));
	report_finish(&r);
}

static void parts_are_found_by_path(void **state)
{
	struct flow f = sample();
	struct ebpf_typed_part part;
	struct report r;
	bool is_signed;
	uint64_t v;

	report_init(&r);
	assert_int_equal(ebpf_typed_find(btf, (uint32_t)flow_id, sizeof(f), ".arr[2]", &part, &r),
			 0);
	assert_int_equal(ebpf_typed_read(btf, &part, &f, &v, &is_signed), 0);
	assert_int_equal(v, 3);
	assert_int_equal(ebpf_typed_find(btf, (uint32_t)flow_id, sizeof(f), "high", &part, &r), 0);
	assert_int_equal(ebpf_typed_read(btf, &part, &f, &v, &is_signed), 0);
	assert_int_equal(v, 700);
	assert_int_equal(ebpf_typed_find(btf, (uint32_t)flow_id, sizeof(f), "delta", &part, &r), 0);
	assert_int_equal(ebpf_typed_read(btf, &part, &f, &v, &is_signed), 0);
	assert_true(is_signed);
	assert_int_equal((int64_t)v, -5);
	assert_int_equal(ebpf_typed_find(btf, (uint32_t)flow_id, sizeof(f), ".arr[3]", &part, &r),
			 -EINVAL);
	assert_int_equal(ebpf_typed_find(btf, (uint32_t)flow_id, sizeof(f), ".nope", &part, &r),
			 -EINVAL);
	assert_int_equal(ebpf_typed_find(btf, (uint32_t)flow_id, 20, ".arr[0]", &part, &r),
			 -EINVAL);
	report_finish(&r);
}

/* A struct that says to be larger than its bytes, with members outside and around in circles. */
static void hostile_types_stay_inside(void **state)
{
	struct btf *b = btf__new_empty();
	uint8_t bytes[8] = { 1, 2, 3, 4, 5, 6, 7, 8 };
	struct buf out = { 0 };
	int i32 = btf__add_int(b, "int", 4, 0);
	int s = btf__add_struct(b, "evil", 8);
	int deep = s;

	btf__add_field(b, "a", i32, 0, 0);
	btf__add_field(b, "outside", i32, 64, 0);
	btf__add_field(b, "far", i32, 0x7ffffff8, 0);
	btf__add_field(b, "odd", i32, 40, 0);
	assert_int_equal(ebpf_typed_print(&out, b, (uint32_t)s, bytes, 8), 0);
	assert_string_equal(buf_text(&out), "{\"a\":67305985}");
	/* Each of 40 levels names the level below four times: 4^40 leaves. */
	for (int i = 0; i < 40; i++) {
		int up = btf__add_struct(b, "up", 8);

		for (int k = 0; k < 4; k++) {
			char name[8];

			snprintf(name, sizeof(name), "m%d", k);
			btf__add_field(b, name, deep, 0, 0);
		}
		deep = up;
	}
	buf_clear(&out);
	assert_int_equal(ebpf_typed_print(&out, b, (uint32_t)deep, bytes, 8), 0);
	assert_string_equal(buf_text(&out), "{\"hex\":\"0102030405060708\"}");
	buf_finish(&out);
	btf__free(b);
}

/* Types with far more members and names than bytes are handled in milliseconds. */
static void looking_at_hostile_types_ends(void **state)
{
	struct btf *b = btf__new_empty();
	int i32 = btf__add_int(b, "int", 4, 0), knot, many, huge, all, array;
	uint64_t begin = clock_cpu_ns();
	char *text = malloc(900001), name[16];
	uint8_t bytes[4096] = { 0 };
	struct buf out = { 0 };
	struct report r;

	knot = btf__add_struct(b, "knot", 8); /* of itself, without a name, a hundred times */
	for (int i = 0; i < 100; i++) {
		btf__add_field(b, NULL, knot, 0, 0);
	}
	memset(text, 'n', 900000);
	text[900000] = 0;
	many = btf__add_struct(b, text, 4); /* one member inside, 60 000 outside */
	for (int i = 0; i < 60000; i++) {
		btf__add_field(b, "x", i32, 64, 0);
	}
	btf__add_field(b, "a", i32, 0, 0);
	huge = btf__add_enum(b, "huge", 4);
	for (int i = 0; i < 60000; i++) {
		snprintf(name, sizeof(name), "e%d", i);
		btf__add_enum_value(b, name, i + 1);
	}
	array = btf__add_array(b, i32, huge, 1024);
	all = btf__add_array(b, i32, many, 1024);
	for (int i = 0; i < 900000; i += 4) {
		memcpy(text + i, "a=1,", 4);
	}
	text[899999] = 0;
	report_init(&r);
	assert_int_equal(ebpf_typed_parse(b, (uint32_t)knot, "{zzz=1}", bytes, 8, &r), -EINVAL);
	report_finish(&r);
	report_init(&r);
	assert_int_equal(ebpf_typed_parse(b, (uint32_t)many, text, bytes, 4, &r), -EINVAL);
	report_finish(&r);
	assert_int_equal(ebpf_typed_print(&out, b, (uint32_t)all, bytes, 4096), 0);
	assert_int_equal(ebpf_typed_print(&out, b, (uint32_t)array, bytes, 4096), 0);
	assert_int_equal(ebpf_typed_print(&out, b, (uint32_t)knot, bytes, 8), 0);
	buf_clear(&out);
	ebpf_typed_describe(&out, b, (uint32_t)all);
	ebpf_typed_describe(&out, b, (uint32_t)knot);
	assert_in_range(out.len, 1, 4096);
	print_message("%.1f ms\n", (double)(clock_cpu_ns() - begin) / 1e6);
	buf_finish(&out);
	free(text);
	btf__free(b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_struct_prints_as_an_object),
		cmocka_unit_test(what_has_no_type_prints_as_hex),
		cmocka_unit_test(a_value_of_too_many_parts_prints_as_hex),
		cmocka_unit_test(text_that_cannot_be_printed_is_an_array),
		cmocka_unit_test(what_is_printed_can_be_parsed),
		cmocka_unit_test(what_is_not_named_keeps_its_value),
		cmocka_unit_test(numbers_have_units),
		cmocka_unit_test(refusals_point_at_the_place),
		cmocka_unit_test(a_refusal_says_what_the_type_looks_like),
		cmocka_unit_test(parts_are_found_by_path),
		cmocka_unit_test(hostile_types_stay_inside),
		cmocka_unit_test(looking_at_hostile_types_ends),
	};

	return cmocka_run_group_tests(tests, make_types, drop_types);
}
