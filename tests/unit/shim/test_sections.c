/* Each call that src/shim/mem/work.h puts into a work section is in one while the driver has it,
 * and leaves it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "cuabi/lookup.h"
#include "policy/read.h"
#include "shim/mem/work.h"

#define PATIENCE_NS UINT64_C(1000000)

/* A call of any function of the driver: it takes no more words than these. */
typedef CUresult (*call_fn)(uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t,
			    uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t);

static unsigned calls;
static bool was_in_section;

/* Returns true while no thread is in a section; they stay open. */
static bool can_close(void)
{
	bool closed = policy_work_close(PATIENCE_NS);

	if (closed) {
		policy_work_open();
	}
	return closed;
}

/* In place of each function of the driver. */
static CUresult driver_call(void)
{
	calls++;
	was_in_section = !can_close();
	return CUDA_ERROR_INVALID_VALUE;
}

static void each_call_is_in_a_section(void **state)
{
	void **driver = (void **)&shim_work_driver;

	assert_true(can_close());
	assert_true(shim_work_count > 0);
	for (unsigned i = 0; i < shim_work_count; i++) {
		union {
			void *entry;
			call_fn call;
		} work = { shim_work[i].entry };

		driver[shim_work[i].index] = __extension__(void *) driver_call;
		calls = 0;
		was_in_section = false;
		assert_int_equal(work.call(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0),
				 CUDA_ERROR_INVALID_VALUE);
		if (calls != 1 || !was_in_section || !can_close()) {
			fail_msg("%s", cuabi_names[shim_work[i].index]);
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_call_is_in_a_section),
	};

	return cmocka_run_group_tests_name("work sections", tests, NULL, NULL);
}
