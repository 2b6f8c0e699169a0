/* Pauses of launches (shim/probe/probe_quiet.c) between a double of the driver and a clock that the
 * test moves: when one begins, how long it holds launches back, and when no further call begins. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "base/clock.h"
#include "shim/capture_state.h"
#include "shim/probe/shim_probe_int.h"

#define MS 1000000u
#define CTX ((CUcontext)0x3000)
#define PAUSE_MAX (15u * MS / 2)
#define CALL_MAX (20u * MS)

struct cuabi_table shim_driver;
struct shim_state shim;

/* ---- the clock and the driver ---- */

static uint64_t now_ns, paused_ns; /* the latter: first moment at which launches were paused */
static uint64_t work_ns;	   /* work that is submitted takes so long from its record on */
static uint64_t done_ns;	   /* of the event */
static CUresult recorded, queried; /* errors */
static unsigned n_events, n_records;

uint64_t __wrap_clock_now_ns(void);
void __wrap_clock_sleep_ns(uint64_t ns);

uint64_t __wrap_clock_now_ns(void)
{
	return now_ns;
}

void __wrap_clock_sleep_ns(uint64_t ns)
{
	if (!paused_ns && shim_probe_paused_until) {
		paused_ns = now_ns;
	}
	now_ns += ns;
}

void shim_capture_lock(void)
{
}

void shim_capture_unlock(void)
{
}

static CUresult get_current(CUcontext *ret)
{
	*ret = CTX;
	return CUDA_SUCCESS;
}

static CUresult create(CUevent *ret, unsigned flags)
{
	(void)flags;
	*ret = (CUevent)(uintptr_t)++n_events;
	return CUDA_SUCCESS;
}

static CUresult destroy(CUevent e)
{
	assert_non_null(e);
	n_events--;
	return CUDA_SUCCESS;
}

static CUresult record(CUcontext ctx, CUevent e)
{
	assert_ptr_equal(ctx, CTX);
	assert_non_null(e);
	n_records++;
	done_ns = now_ns + work_ns;
	return recorded;
}

static CUresult query(CUevent e)
{
	assert_non_null(e);
	return queried ? queried : now_ns < done_ns ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
}

static int set_up(void **state)
{
	(void)state;
	shim_driver.cuCtxGetCurrent = get_current;
	shim_driver.cuEventCreate = create;
	shim_driver.cuEventDestroy_v2 = destroy;
	shim_driver.cuCtxRecordEvent = record;
	shim_driver.cuEventQuery = query;
	shim_probe_paused_until = 0;
	shim.captures = 0;
	now_ns = 1000 * MS;
	paused_ns = work_ns = done_ns = 0;
	recorded = queried = CUDA_SUCCESS;
	n_events = n_records = 0;
	return 0;
}

/* ---- tests ---- */

static void holds_launches_back_until_its_end(void **state)
{
	uint64_t begin = now_ns;

	(void)state;
	work_ns = 6 * MS;
	assert_int_equal(shim_probe_quiet_begin(SHIM_PROBE_BACKLOG_NS), SHIM_PROBE_QUIET);
	assert_true(paused_ns >= begin + 6 * MS); /* the present work delays no launch */
	assert_true(shim_probe_quiet_step());
	assert_true(shim_probe_paused_until >= now_ns + CALL_MAX);
	now_ns += CALL_MAX - MS; /* a long call */
	assert_true(shim_probe_paused_until > now_ns);
	assert_false(shim_probe_quiet_step());
	shim_probe_quiet_end();
	assert_int_equal(shim_probe_paused_until, 0);
	assert_int_equal(n_events, 0);
}

static void begins_no_call_behind_its_time(void **state)
{
	(void)state;
	work_ns = 6 * MS;
	assert_int_equal(shim_probe_quiet_begin(SHIM_PROBE_BACKLOG_NS), SHIM_PROBE_QUIET);
	now_ns = paused_ns + PAUSE_MAX - 1;
	assert_true(shim_probe_quiet_step());
	now_ns = paused_ns + PAUSE_MAX;
	assert_false(shim_probe_quiet_step());
	shim_probe_quiet_end();
}

static void gives_up_while_calls_could_still_begin(void **state)
{
	uint64_t begin = now_ns;

	(void)state;
	work_ns = 15 * MS / 2;
	assert_int_equal(shim_probe_quiet_begin(SHIM_PROBE_BACKLOG_NS), SHIM_PROBE_BUSY);
	assert_int_equal(shim_probe_paused_until, 0);
	assert_true(now_ns < begin + work_ns + PAUSE_MAX);
	assert_int_equal(n_events, 0);
}

static void holds_no_launch_back_for_a_long_backlog(void **state)
{
	(void)state;
	work_ns = SHIM_PROBE_BACKLOG_NS + MS;
	assert_int_equal(shim_probe_quiet_begin(SHIM_PROBE_BACKLOG_NS), SHIM_PROBE_BUSY);
	assert_int_equal(paused_ns, 0);
	assert_int_equal(n_records, 1);
}

static void does_not_ask_while_a_stream_captures(void **state)
{
	(void)state;
	shim.captures = 1;
	assert_int_equal(shim_probe_quiet_begin(SHIM_PROBE_BACKLOG_NS), SHIM_PROBE_BUSY);
	assert_int_equal(n_records, 0);
	assert_int_equal(n_events, 0);
}

static void marks_once_and_looks_again(void **state)
{
	CUevent e = NULL;

	(void)state;
	work_ns = 30 * MS;
	assert_int_equal(shim_probe_mark(&e), SHIM_PROBE_QUIET);
	assert_int_equal(shim_probe_mark_passed(e, now_ns + 8 * MS), SHIM_PROBE_BUSY);
	now_ns += 30 * MS;
	assert_int_equal(shim_probe_mark_passed(e, now_ns), SHIM_PROBE_QUIET);
	assert_int_equal(n_records, 1);
	assert_int_equal(paused_ns, 0);
}

static void a_failed_context_has_no_mark(void **state)
{
	CUevent e = NULL;

	(void)state;
	recorded = CUDA_ERROR_ILLEGAL_ADDRESS;
	assert_int_equal(shim_probe_mark(&e), SHIM_PROBE_FAILED);
	assert_null(e);
	assert_int_equal(n_events, 0);
	recorded = CUDA_SUCCESS;
	assert_int_equal(shim_probe_mark(&e), SHIM_PROBE_QUIET);
	queried = CUDA_ERROR_ILLEGAL_ADDRESS;
	assert_int_equal(shim_probe_mark_passed(e, now_ns), SHIM_PROBE_FAILED);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(holds_launches_back_until_its_end, set_up),
		cmocka_unit_test_setup(begins_no_call_behind_its_time, set_up),
		cmocka_unit_test_setup(gives_up_while_calls_could_still_begin, set_up),
		cmocka_unit_test_setup(holds_no_launch_back_for_a_long_backlog, set_up),
		cmocka_unit_test_setup(does_not_ask_while_a_stream_captures, set_up),
		cmocka_unit_test_setup(marks_once_and_looks_again, set_up),
		cmocka_unit_test_setup(a_failed_context_has_no_mark, set_up),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
