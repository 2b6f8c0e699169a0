/* A device on which patched code fails the self-test: nothing is patched, and it is not asked
 * again.
 */
#include "code_rig.h"

#include "shim/kernel/loaded_image.h"

static void nothing_is_patched(void **state)
{
	const struct ptx_block_entry *e;
	CUmodule m = RIG_MODULE;

	rig_self_test = -1;
	for (unsigned i = 0; i < 3; i++) {
		fake->reset();
		assert_int_equal(cuModuleLoadData(&m, rig_image), CUDA_SUCCESS);
		assert_int_equal(fixture_count(CUABI_IDX_cuModuleLoadDataEx), 0);
		assert_int_equal(fake->get((unsigned)fixture_find(CUABI_IDX_cuModuleLoadData)).a[1],
				 (uintptr_t)rig_image);
		assert_int_equal(shim_image_entry(m, "two", &e), PROTO_BLOCK_STUB);
	}
	assert_int_equal(rig_self_tests, 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(nothing_is_patched, rig_before),
	};

	return cmocka_run_group_tests(tests, rig_setup, NULL);
}
