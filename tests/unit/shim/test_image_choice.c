/* Which of an image's PTX gets clones, and is kept for probes: that which the driver executes. */
#include "code_rig.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../ptx/fatbin_make.h"
#include "shim/kernel/loaded_image.h"

/* A kernel named after its target. */
static void add_ptx(struct buf *b, unsigned arch)
{
	char text[256];

	snprintf(text, sizeof(text),
		 ".version 7.0\n.target sm_%u\n.address_size 64\n"
		 ".visible .entry on_sm_%u(.param .u64 p)\n{\n\tret;\n}\n",
		 arch, arch);
	make_entry(b, PTX_FATBIN_PTX, arch, text, strlen(text), 0);
}

/* ---- what is kept ---- */

/* Machine code for the device, 9.0, and PTX. */
static void native_and(struct buf *b, unsigned arch)
{
	size_t at = make_begin(b);

	make_entry(b, PTX_FATBIN_CUBIN, 90, rig_image, rig_image_bytes, 0);
	add_ptx(b, arch);
	make_end(b, at);
}

/* Loads the image and asserts that PTX is kept, or for which reason it is not. */
static void assert_kept(const struct buf *b, const char *reason)
{
	struct shim_kept_reason why;
	struct shim_kept_image *k;
	struct shim_code_kept *code;
	CUmodule m = RIG_MODULE;
	struct buf text;

	assert_int_equal(cuModuleLoadData(&m, b->data), CUDA_SUCCESS);
	k = shim_image_kept(m, &why);
	code = shim_image_code(m);
	if (reason) {
		buf_init(&text);
		shim_kept_why_print(&why, &text);
		assert_null(k);
		assert_non_null(code);
		assert_string_equal(buf_text(&text), reason);
		buf_finish(&text);
	} else {
		assert_non_null(k);
		assert_null(code);
	}
	shim_kept_unref(k);
	shim_image_code_unref(code);
	assert_int_equal(cuModuleUnload(m), CUDA_SUCCESS);
}

#define OLDER "its machine code runs, and its PTX is for sm_80, the device is 9.0"

static void older_ptx_is_not_kept_where_machine_code_runs(void **state)
{
	struct buf b = { 0 };

	native_and(&b, 80);
	assert_kept(&b, OLDER);
	double_block_wanted = false;
	assert_kept(&b, OLDER);
	buf_finish(&b);
}

static void ptx_that_was_loaded_in_place_of_machine_code_is_kept(void **state)
{
	struct buf b = { 0 };

	native_and(&b, 80);
	setenv("GBPF_BLOCK", "1", 1);
	assert_kept(&b, NULL);
	buf_finish(&b);
}

static void ptx_of_the_same_major_architecture_is_kept(void **state)
{
	struct buf b = { 0 };

	native_and(&b, 90);
	double_block_wanted = false;
	assert_kept(&b, NULL);
	buf_finish(&b);
}

#define TEST(f) cmocka_unit_test_setup(f, rig_before)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(older_ptx_is_not_kept_where_machine_code_runs),
		TEST(ptx_that_was_loaded_in_place_of_machine_code_is_kept),
		TEST(ptx_of_the_same_major_architecture_is_kept),
	};

	return cmocka_run_group_tests_name("choice of images", tests, rig_setup, NULL);
}
