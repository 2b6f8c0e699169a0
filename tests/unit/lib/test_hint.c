/* gbpf_hint in a process with a shim (this program acts as one: SHIM) and without. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/compiler.h"
#include "gbpf/gbpf.h"

#ifdef SHIM
static uint64_t in, deadline;
static int on, answer;

EXPORT int gbpf_shim_hint(uint64_t in_us, uint64_t deadline_us, int device);
EXPORT int gbpf_shim_hint(uint64_t in_us, uint64_t deadline_us, int device)
{
	in = in_us;
	deadline = deadline_us;
	on = device;
	return answer;
}

static void the_hint_reaches_the_shim_and_returns_its_answer(void **state)
{
	assert_int_equal(gbpf_hint(1500, 20000, -1), 0);
	assert_int_equal(in, 1500);
	assert_int_equal(deadline, 20000);
	assert_int_equal(on, -1);
	answer = -EAGAIN;
	assert_int_equal(gbpf_hint(0, 0, 3), -EAGAIN);
	assert_int_equal(in, 0);
	assert_int_equal(on, 3);
}
#else
static void without_a_shim_the_hint_fails(void **state)
{
	assert_int_equal(gbpf_hint(1500, 0, -1), -ENOENT);
	assert_int_equal(gbpf_hint(1500, 0, -1), -ENOENT);
}
#endif

int main(void)
{
	const struct CMUnitTest tests[] = {
#ifdef SHIM
		cmocka_unit_test(the_hint_reaches_the_shim_and_returns_its_answer),
#else
		cmocka_unit_test(without_a_shim_the_hint_fails),
#endif
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
