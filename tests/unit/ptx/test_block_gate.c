/* The gate's stub is PTX that parses, with its argument behind the padding, and ends with the
 * marker by which its end is found in machine code. */
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "base/compiler.h"
#include "ptx/block_gate.h"
#include "ptx/module.h"

static void check(unsigned arch, uint32_t pad, const char *target, bool clusters)
{
	static const char tail[] = "$run:\npmevent 13;\nret;\n}\n";
	struct ptx_module *m = NULL;
	struct ptx_function *f;
	struct report r;
	struct buf text;

	report_init(&r);
	buf_init(&text);
	assert_int_equal(ptx_gate_stub(&text, arch, pad), 0);
	assert_true(text.len > sizeof(tail));
	assert_string_equal(buf_text(&text) + text.len - (sizeof(tail) - 1), tail);
	assert_non_null(strstr(buf_text(&text), target));
	assert_int_equal(strstr(buf_text(&text), "%cluster_nctarank") != NULL, clusters);
	assert_int_equal(ptx_module_parse(&m, buf_text(&text), text.len, "stub", &r), 0);
	f = ptx_module_function(m, PTX_GATE_ENTRY);
	assert_non_null(f);
	assert_true(f->is_entry && f->has_body);
	assert_null(strchr(buf_text(&text), '~'));
	ptx_module_free(m);
	buf_finish(&text);
	report_finish(&r);
}

static void parses_for_each_architecture(void **state)
{
	(void)state;
	check(75, PTX_GATE_PAD_A, ".target sm_70\n", false);
	check(89, PTX_GATE_PAD_B, ".target sm_70\n", false);
	check(90, PTX_GATE_PAD_A, ".target sm_90\n", true);
	check(120, PTX_GATE_PAD_B, ".target sm_90\n", true);
}

/* Two paddings give the same text but for the padding itself. */
static void padding_is_all_that_differs(void **state)
{
	struct buf a, b;
	const char *pa, *pb;

	(void)state;
	buf_init(&a);
	buf_init(&b);
	assert_int_equal(ptx_gate_stub(&a, 90, PTX_GATE_PAD_A), 0);
	assert_int_equal(ptx_gate_stub(&b, 90, PTX_GATE_PAD_B), 0);
	pa = strstr(buf_text(&a), "pad[64]");
	pb = strstr(buf_text(&b), "pad[1024]");
	assert_non_null(pa);
	assert_non_null(pb);
	assert_int_equal(pa - buf_text(&a), pb - buf_text(&b));
	assert_memory_equal(buf_text(&a), buf_text(&b), (size_t)(pa - buf_text(&a)));
	assert_string_equal(pa + strlen("pad[64]"), pb + strlen("pad[1024]"));
	buf_finish(&a);
	buf_finish(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(parses_for_each_architecture),
		cmocka_unit_test(padding_is_all_that_differs),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
