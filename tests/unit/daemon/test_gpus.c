/* The list of GPUs and texts of outside origin, at their edges. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "daemon/clean_text.h"
#include "daemon/gpu_list.h"

static char dir[64];

static int setup(void **state)
{
	snprintf(dir, sizeof(dir), "/tmp/gbpfd-gpus-XXXXXX");
	return mkdtemp(dir) ? 0 : -1;
}

static int teardown(void **state)
{
	char command[96];

	snprintf(command, sizeof(command), "rm -rf '%s'", dir);
	return system(command);
}

/* Makes the driver's file of a GPU. */
static void gpu_file(const char *address, const char *text)
{
	char path[200];
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", dir, address);
	assert_int_equal(mkdir(path, 0755), 0);
	snprintf(path, sizeof(path), "%s/%s/information", dir, address);
	f = fopen(path, "w");
	assert_non_null(f);
	fputs(text, f);
	fclose(f);
}

#define UUID(last) "GPU UUID: GPU-01234567-89ab-cdef-0123-4567890000" last "\n"

static void gpus_come_in_the_order_of_their_addresses(void **state)
{
	struct daemon_gpus t;

	gpu_file("0000:1b:00.0", "Model: Second\n" UUID("02"));
	gpu_file("0000:0a:00.0", "Model:   First one \t\n" UUID("01"));
	gpu_file("0000:2c:00.0", UUID("03")); /* without a name */
	gpu_file(".hidden", "Model: Hidden\n" UUID("04"));
	assert_int_equal(daemon_gpus_open(&t, "nvidia", dir, "/nonexistent"), 0);
	assert_string_equal(t.kind, "nvidia");
	assert_string_equal(t.d[0].name, "First one");
	assert_string_equal(t.d[1].name, "Second");
	assert_string_equal(t.d[2].name, "NVIDIA GPU");
	for (int i = 0; i < 3; i++) {
		assert_true(t.d[i].used && t.d[i].pinned);
		assert_int_equal(t.d[i].uuid[15], i + 1);
		assert_int_equal(t.d[i].tenants, 0);
	}
	assert_false(t.d[3].used);
	assert_int_equal(daemon_gpus_first(&t), 0);
}

static void sixteen_gpus_are_known(void **state)
{
	struct daemon_gpus t;
	char address[16], text[100];

	for (int i = 0; i < 18; i++) {
		snprintf(address, sizeof(address), "0000:%02x:00.0", i);
		snprintf(text, sizeof(text),
			 "GPU UUID: GPU-01234567-89ab-cdef-0123-4567890000%02x\n", i);
		gpu_file(address, text);
	}
	assert_int_equal(daemon_gpus_open(&t, "auto", dir, "/nonexistent"), 0);
	for (unsigned i = 0; i < PROTO_MAX_GPUS; i++) {
		assert_int_equal(t.d[i].uuid[15], i);
	}
}

static void a_uuid_is_32_digits(void **state)
{
	static const struct {
		const char *text;
		bool valid;
	} cases[] = {
		{ "GPU-01234567-89ab-cdef-0123-456789abcdef", true },
		{ "0123456789ABCDEF0123456789abcdef", true },
		{ "GPU-01234567-89ab-cdef-0123-456789abcde", false },
		{ "GPU-01234567-89ab-cdef-0123-456789abcdef0", false },
		{ "GPU-01234567-89ab-cdef-0123-456789abcdeg", false },
		{ "GPU-01234567-89ab-cdef-0123-456789abcdef and more", true },
		{ "", false },
	};
	char address[16], text[100];

	for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct daemon_gpus t;

		snprintf(address, sizeof(address), "0000:%02x:00.0", i);
		snprintf(text, sizeof(text), "GPU UUID: %s\n", cases[i].text);
		(void)teardown(NULL);
		(void)setup(NULL);
		gpu_file(address, text);
		assert_int_equal(daemon_gpus_open(&t, "nvidia", dir, "/nonexistent"),
				 cases[i].valid ? 0 : -ENODEV);
		assert_int_equal(t.d[0].used, cases[i].valid);
		if (cases[i].valid) {
			assert_int_equal(t.d[0].uuid[0], 0x01);
			assert_int_equal(t.d[0].uuid[4], 0x89);
			assert_int_equal(t.d[0].uuid[7], 0xef);
			assert_int_equal(t.d[0].uuid[15], 0xef);
		}
	}
}

static void what_is_wanted_decides_the_kind(void **state)
{
	struct daemon_gpus t;

	assert_int_equal(daemon_gpus_open(&t, "soft", dir, "/dev/null"), 0);
	assert_string_equal(t.kind, "soft");
	assert_int_equal(daemon_gpus_open(&t, "auto", dir, "/dev/null"), 0);
	assert_string_equal(t.kind, "nvidia");
	assert_int_equal(daemon_gpus_open(&t, "auto", dir, "/nonexistent"), 0);
	assert_string_equal(t.kind, "soft");
	assert_int_equal(daemon_gpus_open(&t, "nvidia", "/nonexistent", "/dev/null"), 0);
	assert_int_equal(daemon_gpus_open(&t, "nvidia", "/nonexistent", "/nonexistent"), -ENODEV);
	assert_int_equal(daemon_gpus_open(&t, "none", dir, "/dev/null"), -EINVAL);
	gpu_file("0000:0a:00.0", UUID("01"));
	assert_int_equal(daemon_gpus_open(&t, "soft", dir, "/dev/null"), 0);
	assert_false(t.d[0].used);
}

static int acquire(struct daemon_gpus *t, int id, uid_t uid, unsigned may_name)
{
	uint8_t uuid[16];

	memset(uuid, id, sizeof(uuid));
	return daemon_gpus_acquire(t, uuid, uid, may_name);
}

static void a_user_names_so_many_gpus_at_most(void **state)
{
	struct daemon_gpus t;

	assert_int_equal(daemon_gpus_open(&t, "soft", "", ""), 0);
	assert_int_equal(acquire(&t, 1, 1000, 0), -ENOSPC);
	assert_int_equal(acquire(&t, 1, 1000, 2), 0);
	assert_string_equal(t.d[0].name, "gBPF soft GPU");
	assert_int_equal(t.d[0].named_by, 1000);
	assert_int_equal(t.d[0].tenants, 1);
	assert_int_equal(acquire(&t, 2, 1000, 2), 1);
	assert_int_equal(acquire(&t, 3, 1000, 2), -ENOSPC);
	assert_int_equal(acquire(&t, 2, 1000, 2), 1); /* a known one costs nothing */
	assert_int_equal(t.d[1].tenants, 2);
	assert_int_equal(acquire(&t, 3, 1001, 2), 2); /* another user's */
	t.d[1].pinned = true;
	assert_int_equal(acquire(&t, 4, 1000, 2), 3); /* those that gbpfd found do not count */
	snprintf(t.kind, sizeof(t.kind), "nvidia");
	assert_int_equal(acquire(&t, 5, 0, 16), 4);
	assert_string_equal(t.d[4].name, "NVIDIA GPU");
}

static void numbers_are_free_after_their_last_tenant(void **state)
{
	struct daemon_gpus t;

	assert_int_equal(daemon_gpus_open(&t, "soft", "", ""), 0);
	assert_int_equal(daemon_gpus_first(&t), 0);
	assert_int_equal(acquire(&t, 1, 0, 16), 0);
	assert_int_equal(acquire(&t, 2, 0, 16), 1);
	assert_int_equal(acquire(&t, 2, 0, 16), 1);
	daemon_gpus_release(&t, 0);
	assert_false(t.d[0].used);
	assert_int_equal(daemon_gpus_first(&t), 1);
	daemon_gpus_release(&t, 0); /* once more: nothing */
	assert_int_equal(t.d[0].tenants, 0);
	daemon_gpus_release(&t, PROTO_MAX_GPUS);
	daemon_gpus_release(&t, 1);
	assert_true(t.d[1].used);
	t.d[1].pinned = true;
	daemon_gpus_release(&t, 1);
	assert_true(t.d[1].used);
	assert_int_equal(t.d[1].tenants, 0);
	assert_int_equal(acquire(&t, 3, 0, 16), 0);
	for (int i = 4; i < 18; i++) {
		assert_int_equal(acquire(&t, i, 0, 16), i - 2);
	}
	assert_int_equal(acquire(&t, 99, 0, 16), -ENOSPC);
	assert_int_equal(daemon_gpus_first(&t), 0);
}

static void controls_that_work_are_remembered(void **state)
{
	struct daemon_gpus t;

	assert_int_equal(daemon_gpus_open(&t, "soft", "", ""), 0);
	daemon_gpus_set_capable(&t, 0, 1); /* not in use */
	assert_false(t.d[0].tried);
	(void)acquire(&t, 1, 0, 16);
	daemon_gpus_set_capable(&t, 0, 1);
	daemon_gpus_set_capable(&t, 0, 4);
	daemon_gpus_set_capable(&t, PROTO_MAX_GPUS, 8);
	assert_true(t.d[0].tried);
	assert_int_equal(t.d[0].capable, 5);
	assert_int_equal(t.d[1].capable, 0);
}

/* ---- texts ---- */

static void classes_have_names(void **state)
{
	static const char *const names[] = { "latency", "normal", "batch" };

	for (uint32_t i = 0; i < 3; i++) {
		assert_string_equal(daemon_class_name(i), names[i]);
		assert_int_equal(daemon_class_from_name(names[i]), (int)i);
	}
	assert_string_equal(daemon_class_name(3), "normal");
	assert_string_equal(daemon_class_name(UINT32_MAX), "normal");
	assert_int_equal(daemon_class_from_name("Latency"), -1);
	assert_int_equal(daemon_class_from_name(""), -1);
	assert_int_equal(daemon_class_from_name(NULL), -1);
}

/* The first and last well-formed sequence of each row of Unicode's table 3-7, and their neighbours
 * outside. */
static void sequences_are_well_formed_at_their_edges(void **state)
{
	static const struct {
		const char *in, *out;
	} cases[] = {
		{ "\x1f \x20~\x7e\x7f", "? \x20~\x7e?" },
		{ "\xc2\xa0", "\xc2\xa0" },
		{ "\xc2\x9f", "??" },
		{ "\xc3\x80", "\xc3\x80" },
		{ "\xc3\xbf", "\xc3\xbf" },
		{ "\xc3\xc0", "??" },
		{ "\xc3\x7e", "?~" },
		{ "\xc1\x80", "??" },
		{ "\xdf\xbf", "\xdf\xbf" },
		{ "\xe0\xa0\x80", "\xe0\xa0\x80" },
		{ "\xe0\x9f\xbf", "???" },
		{ "\xe0\xbf\xbf", "\xe0\xbf\xbf" },
		{ "\xe1\x80\x80", "\xe1\x80\x80" },
		{ "\xec\xbf\xbf", "\xec\xbf\xbf" },
		{ "\xec\xbf\xc0", "???" },
		{ "\xec\xbf\x7f", "???" },
		{ "\xed\x9f\xbf", "\xed\x9f\xbf" },
		{ "\xed\xa0\x80", "???" },
		{ "\xee\x80\x80", "\xee\x80\x80" },
		{ "\xef\xbf\xbf", "\xef\xbf\xbf" },
		{ "\xf0\x90\x80\x80", "\xf0\x90\x80\x80" },
		{ "\xf0\x8f\xbf\xbf", "????" },
		{ "\xf0\xbf\xbf\xbf", "\xf0\xbf\xbf\xbf" },
		{ "\xf1\x80\x80\x80", "\xf1\x80\x80\x80" },
		{ "\xf3\xbf\xbf\xbf", "\xf3\xbf\xbf\xbf" },
		{ "\xf4\x8f\xbf\xbf", "\xf4\x8f\xbf\xbf" },
		{ "\xf4\x90\x80\x80", "????" },
		{ "\xf5\x80\x80\x80", "????" },
		{ "\xf0\x90\x80", "???" },
		{ "\xf0\x90\x80\x7e", "???~" },
	};

	for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		char s[16];

		snprintf(s, sizeof(s), "%s", cases[i].in);
		daemon_text_clean(s);
		assert_string_equal(s, cases[i].out);
	}
}

static void copies_end_at_the_end_or_at_a_zero(void **state)
{
	char out[8] = "xxxxxxx";

	daemon_text_copy(out, 8, "ab\0cd", 5);
	assert_string_equal(out, "ab");
	daemon_text_copy(out, 8, "abcdefgh", 3);
	assert_string_equal(out, "abc");
	daemon_text_copy(out, 8, "abcdefgh", 8);
	assert_string_equal(out, "abcdefg");
	daemon_text_copy(out, 1, "abc", 3);
	assert_string_equal(out, "");
}

int main(void)
{
#define IN_FOLDER(t) cmocka_unit_test_setup_teardown(t, setup, teardown)
	const struct CMUnitTest tests[] = {
		IN_FOLDER(gpus_come_in_the_order_of_their_addresses),
		IN_FOLDER(sixteen_gpus_are_known),
		IN_FOLDER(a_uuid_is_32_digits),
		IN_FOLDER(what_is_wanted_decides_the_kind),
		cmocka_unit_test(a_user_names_so_many_gpus_at_most),
		cmocka_unit_test(numbers_are_free_after_their_last_tenant),
		cmocka_unit_test(controls_that_work_are_remembered),
		cmocka_unit_test(classes_have_names),
		cmocka_unit_test(sequences_are_well_formed_at_their_edges),
		cmocka_unit_test(copies_end_at_the_end_or_at_a_zero),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
