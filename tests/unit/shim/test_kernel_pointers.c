/* Which memory the kernels of an image can access: shim/kernel/kernel_pointers.c. */
#include "fixture.h"

#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "shim/kernel/kernel_pointers.h"

#define HEAD ".version 8.0\n.target sm_80\n.address_size 64\n"
#define WRITES(name)                                                                               \
	".visible .entry " name "(.param .u64 p)\n{\n.reg .b64 %q;\n"                              \
	"ld.param.u64 %q, [p];\nst.global.u32 [%q], 1;\nret;\n}\n"
#define NOTHING ".visible .entry nothing(.param .u64 p)\n{\nret;\n}\n"
#define CHASES                                                                                     \
	".visible .entry chases(.param .u64 p)\n{\n.reg .b64 %q, %r;\nld.param.u64 %q, [p];\n"     \
	"ld.global.u64 %r, [%q];\nst.global.u32 [%r], 1;\nret;\n}\n"

static struct shim_kernel_pointers *read_text(const char *text)
{
	struct ptx_device device = { .arch = 80 };
	struct shim_kept_reason why;
	struct shim_kept_image *k = shim_kept_open(text, strlen(text), device, false, &why);
	struct shim_kernel_pointers *p;

	assert_non_null(k);
	p = shim_kernel_pointers_read(k);
	shim_kept_unref(k);
	return p;
}

static void assert_of(const struct shim_kernel_pointers *p, const char *kernel, uint32_t words)
{
	struct ptx_pointers *of = shim_kernel_pointers_of(p, kernel);

	assert_int_equal(of ? of->n : 0, words);
	free(of);
}

static void kernels_are_known_by_name(void **state)
{
	struct shim_kernel_pointers *p = read_text(HEAD WRITES("a") CHASES NOTHING WRITES("b"));

	(void)state;
	assert_of(p, "a", 1);
	assert_of(p, "b", 1);
	assert_of(p, "chases", 0);
	assert_of(p, "c", 0);
	assert_of(NULL, "a", 0);
	shim_kernel_pointers_free(p);
}

/* Its machine code may not be of this text. */
static void a_kernel_without_addresses_is_not_known(void **state)
{
	struct shim_kernel_pointers *p = read_text(HEAD NOTHING WRITES("a"));
	struct ptx_pointers *of = shim_kernel_pointers_of(p, "nothing");

	(void)state;
	assert_null(of);
	assert_of(p, "a", 1);
	shim_kernel_pointers_free(p);
	assert_null(read_text(HEAD NOTHING));
}

/* Their arguments may point into other memory than they use. */
static void kernels_of_directives_are_not_known(void **state)
{
	static const char *const names[] = {
		"main_12_gpu",		 "f_7_gpu__red",
		"nvkernel_main_F1L12_2", "__omp_offloading_10_2_main_l7",
		"main$_omp_fn$0",	 "main$ck_L12_1"
	};
	struct shim_kernel_pointers *p = read_text(
		HEAD WRITES("main_12_gpu") WRITES("f_7_gpu__red") WRITES("nvkernel_main_F1L12_2")
			WRITES("__omp_offloading_10_2_main_l7") WRITES("main$_omp_fn$0")
				WRITES("main$ck_L12_1") WRITES("add_gpu") WRITES("f_7_gpus"));

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		print_message("%s\n", names[i]);
		assert_of(p, names[i], 0);
	}
	assert_of(p, "add_gpu", 1);
	assert_of(p, "f_7_gpus", 1);
	shim_kernel_pointers_free(p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(kernels_are_known_by_name),
		cmocka_unit_test(a_kernel_without_addresses_is_not_known),
		cmocka_unit_test(kernels_of_directives_are_not_known),
	};

	return cmocka_run_group_tests_name("kernel_pointers", tests, NULL, NULL);
}
