/* The driver's calls that submit work, in the sections that shim/mem/work.h describes: each is in
 * one while the driver has it, and leaves it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "base/compiler.h"
#include "cuabi/lookup.h"
#include "policy/read.h"
#include "shim/mem/work.h"
#include "shim/shim.h"

/* No call has more arguments, and each of them is 0. */
typedef CUresult (*call)(uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t,
			 uint64_t, uint64_t, uint64_t, uint64_t, uint64_t);

static unsigned called, sections;

/* In place of each function of the driver. */
static CUresult in_driver(void)
{
	called++;
	sections = policy_reader_self ? load_relaxed(&policy_reader_self->working) : 0;
	return CUDA_ERROR_UNKNOWN;
}

static CUresult call_entry(const struct shim_work *w)
{
	call entry = __extension__(call) w->entry;

	((void **)&shim_work_driver)[w->index] = __extension__(void *) in_driver;
	called = sections = 0;
	store_relaxed(&shim_work_opened, (uint64_t)0);
	return entry(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
}

static const struct shim_work *entry_of(unsigned index)
{
	for (unsigned i = 0; i < shim_work_count; i++) {
		if (shim_work[i].index == index) {
			return &shim_work[i];
		}
	}
	return NULL;
}

static void each_call_is_in_one_section(void **state)
{
	assert_true(shim_work_count > 100);
	for (unsigned i = 0; i < shim_work_count; i++) {
		assert_int_equal(call_entry(&shim_work[i]), CUDA_ERROR_UNKNOWN);
		if (called != 1 || sections != 1) {
			fail_msg("%s: %u calls, in %u sections", cuabi_names[shim_work[i].index],
				 called, sections);
		}
		assert_int_equal(load_relaxed(&policy_reader_self->working), 0);
	}
}

static void work_is_noted_and_questions_are_not(void **state)
{
	static const struct {
		unsigned index;
		bool noted;
	} cases[] = {
		{ CUABI_IDX_cuLaunchKernel, true },
		{ CUABI_IDX_cuLaunchKernelEx_ptsz, true },
		{ CUABI_IDX_cuLaunchCooperativeKernel, true },
		{ CUABI_IDX_cuMemcpyDtoDAsync_v2, true },
		{ CUABI_IDX_cuMemcpyDtoH_v2, true },
		{ CUABI_IDX_cuMemsetD8_v2, true },
		{ CUABI_IDX_cuGraphLaunch, true },
		{ CUABI_IDX_cuGraphAddKernelNode_v2, true },
		{ CUABI_IDX_cuTexObjectCreate, true },
		{ CUABI_IDX_cuPointerGetAttribute, false },
		{ CUABI_IDX_cuMemGetAddressRange_v2, false },
	};

	for (unsigned i = 0; i < ARRAY_SIZE(cases); i++) {
		const struct shim_work *w = entry_of(cases[i].index);

		assert_non_null(w);
		(void)call_entry(w);
		assert_int_equal(load_relaxed(&shim_work_opened),
				 cases[i].noted ? load_relaxed(&shim_work_interval) : 0);
	}
}

static int set_up(void **state)
{
	policy_read_setup();
	policy_read_leave(policy_read_enter()); /* the thread's first section takes a slot */
	return policy_reader_self == NULL;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_call_is_in_one_section),
		cmocka_unit_test(work_is_noted_and_questions_are_not),
	};

	return cmocka_run_group_tests_name("work calls", tests, set_up, NULL);
}
