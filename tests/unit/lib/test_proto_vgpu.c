/* The text of GBPF_VGPU: what is written is read back, and nothing else is accepted. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/compiler.h"
#include "proto/vgpu_text.h"

#define GIB (UINT64_C(1) << 30)

static struct proto_vgpu full(void)
{
	struct proto_vgpu v = { .number = UINT64_MAX, .made_ns = UINT64_MAX };

	for (unsigned i = 0; i < PROTO_MAX_GPUS; i++) {
		v.config.mem[i] = PROTO_VGPU_MEM_MAX - i;
	}
	v.config.reserve = PROTO_VGPU_MEM_MAX - PROTO_MAX_GPUS;
	v.config.pinned = PROTO_VGPU_MEM_MAX;
	v.config.swap = PROTO_VGPU_MEM_MAX;
	v.config.wait_ns = PROTO_VGPU_WAIT_MAX_NS;
	v.config.compute = v.config.copy = 100;
	v.config.prio = PROTO_VGPU_PRIO_MAX;
	v.config.flags = PROTO_VGPU_BURST | PROTO_VGPU_SHOW_MEM;
	return v;
}

static void returns(const struct proto_vgpu *v, const char *expected)
{
	char text[PROTO_VGPU_TEXT];
	struct proto_vgpu back;

	assert_int_equal(proto_vgpu_print(v, text, sizeof(text)), 0);
	if (expected) {
		assert_string_equal(text, expected);
	}
	assert_int_equal(proto_vgpu_parse(text, &back), 0);
	assert_memory_equal(&back, v, sizeof(back));
}

static void what_is_printed_is_parsed(void **state)
{
	struct proto_vgpu v = { .number = 0x1f, .made_ns = 7 };
	struct proto_vgpu all = full(), named = { .name = "a.b_c-9" };
	struct proto_vgpu of_root = { .name = "web", .number = 1 };
	struct proto_vgpu of_last = { .name = "web", .number = UINT32_MAX };

	(void)state;
	for (unsigned i = 0; i < PROTO_MAX_GPUS; i++) {
		v.config.mem[i] = 4 * GIB;
	}
	returns(&v, "1f:7:mem=4294967296");
	v.config.mem[2] = 0;
	v.config.compute = 25;
	returns(&v, "1f:7:mem=4294967296,mem2=0,compute=25");
	v.config.swap = PROTO_VGPU_SWAP_MIN;
	returns(&v, "1f:7:mem=4294967296,mem2=0,swap=2097152,compute=25");
	v.config.flags = PROTO_VGPU_SHOW_MEM;
	returns(&v, "1f:7:mem=4294967296,mem2=0,swap=2097152,compute=25,flags=2");
	returns(&all, NULL);
	returns(&named, "a.b_c-9");
	returns(&of_root, "0/web");
	returns(&of_last, "4294967294/web");
}

static void a_short_buffer_is_refused(void **state)
{
	struct proto_vgpu all = full();
	char text[PROTO_VGPU_TEXT];

	(void)state;
	assert_int_equal(proto_vgpu_print(&all, text, sizeof(text)), 0);
	for (size_t n = 1; n <= strlen(text); n++) {
		char *exact = malloc(n); /* so that writing beyond it is found */

		assert_int_equal(proto_vgpu_print(&all, exact, n), -ENOSPC);
		free(exact);
	}
}

static void other_texts_are_refused(void **state)
{
	static const char *const bad[] = {
		"",
		"/web",
		"0/",
		"7/9x",
		"7/web/x",
		"7web",
		"a/web",
		"-1/web",
		"4294967295/web",
		"99999999999999999999/web",
		"9lives",
		"a b",
		"a/b",
		"abcdefghijklmnopqrstuvwxyz012345",
		"1f",
		"1f:",
		"0:7:mem=4294967296",
		"1f:7:mem",
		"1f:7:mem=",
		"1f:7:mem=-1",
		"1f:7:mem= 4294967296",
		"1f:7:mem=4294967296;",
		"1f:7:mem=16777215",
		"1f:7:mem=99999999999999999999999",
		"1f:7:mem16=4294967296",
		"1f:7:compute=101",
		"1f:7:compute=4294967297",
		"1f:7:prio=101",
		"1f:7:flags=4",
		"1f:7:speed=1",
		"1f:7:mem=16777216,reserve=16777217",
		"1f:7:mem=16777216,swap=1",
		"1f:7:mem=16777216,swap=2097151",
		"1f:7:mem=16777216,swap=1125899906842625",
		"1f:7:mem=16777216,swap=2M",
		"1f:7:swap=2097152",
		"1f:7:mem=0,swap=2097152",
		"1f:7:wait=3600000000001",
		"1g:7:mem=16777216",
		"1f:7:mem=1f000000",
	};

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(bad); i++) {
		struct proto_vgpu v;

		if (proto_vgpu_parse(bad[i], &v) != -EINVAL) {
			fail_msg("accepted: '%s'", bad[i]);
		}
		assert_false(proto_vgpu_is_set(&v));
	}
}

/* Any device with a limit is enough; the text names the option. */
static void swap_needs_a_limit_of_memory(void **state)
{
	struct proto_vgpu_config c = { .swap = PROTO_VGPU_SWAP_MIN };

	(void)state;
	assert_string_equal(proto_vgpu_config_fault(&c),
			    "swap: needs mem, beyond which device memory leaves");
	c.mem[PROTO_MAX_GPUS - 1] = PROTO_VGPU_MEM_MIN;
	assert_null(proto_vgpu_config_fault(&c));
	c.swap = PROTO_VGPU_SWAP_MIN - 1;
	assert_string_equal(proto_vgpu_config_fault(&c),
			    "swap: at least 2M, at most the machine's memory");
	c.swap = PROTO_VGPU_MEM_MAX + 1;
	assert_non_null(proto_vgpu_config_fault(&c));
	c.swap = PROTO_VGPU_MEM_MAX - 1; /* not a multiple of 2 MiB */
	assert_null(proto_vgpu_config_fault(&c));
}

/* It needs neither swap nor a limit. */
static void swap_is_shown_unless_the_flag_is_set(void **state)
{
	struct proto_vgpu_config c = { .mem = { GIB }, .swap = 2 * GIB };

	(void)state;
	assert_int_equal(proto_vgpu_shown_swap(&c), 2 * GIB);
	c.flags = PROTO_VGPU_BURST;
	assert_int_equal(proto_vgpu_shown_swap(&c), 2 * GIB);
	c.flags = PROTO_VGPU_SHOW_MEM;
	assert_int_equal(proto_vgpu_shown_swap(&c), 0);
	c = (struct proto_vgpu_config){ .flags = PROTO_VGPU_SHOW_MEM };
	assert_null(proto_vgpu_config_fault(&c));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_is_printed_is_parsed),
		cmocka_unit_test(a_short_buffer_is_refused),
		cmocka_unit_test(other_texts_are_refused),
		cmocka_unit_test(swap_needs_a_limit_of_memory),
		cmocka_unit_test(swap_is_shown_unless_the_flag_is_set),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
