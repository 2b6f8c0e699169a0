/* Every entry point with an action: stream-ordered calls pass the gate and stay behind a deferred
 * launch; frees and destroys wait for it. The cases are generated from behaviour.def. */
#include "fixture.h"

enum case_kind { CASE_LAUNCH, CASE_ORDER, CASE_DRAIN, CASE_EARLY };
enum case_stream { STREAM_NAMED, STREAM_LEGACY, STREAM_OWN };

struct gate_case {
	const char *name;
	uint32_t index;
	enum case_kind kind;
	enum case_stream stream;
	int own;     /* the null stream means the per-thread default stream */
	int ordered; /* stream-ordered */
	CUresult (*call)(CUstream stream);
};

static char case_scratch[65536] ALIGNED(64);

#define case_event ((CUevent)0x5000)
#define case_handle ((void *)0x7000)

static void case_host_function(void *user)
{
}

static void case_callback(CUstream stream, CUresult status, void *user)
{
}

static const CUlaunchConfig *case_config(CUstream stream)
{
	static CUlaunchConfig c;

	c = (CUlaunchConfig){ 1, 1, 1, 32, 1, 1, 0, stream, NULL, 0 };
	return &c;
}

static CUDA_LAUNCH_PARAMS *case_multi(CUstream stream)
{
	static CUDA_LAUNCH_PARAMS p;

	p = (CUDA_LAUNCH_PARAMS){ FAKE_FUNCTION, 1, 1, 1, 32, 1, 1, 0, stream, NULL };
	return &p;
}

#include "cases.inc"

static CUstream named;

/* The call reaches the driver once, after the deferred launch. */
static void check_behind(const struct gate_case *c)
{
	double_issue();
	assert_int_equal(double_deferred(), 0);
	assert_int_equal(shim.deferred, 0);
	if (c->index == CUABI_IDX_cuLaunchKernel) {
		assert_int_equal(fixture_count(c->index), 2);
		assert_true(fake->get((unsigned)fixture_find(c->index)).a[1] == 1);
		return;
	}
	assert_int_equal(fixture_count(c->index), 1);
	assert_int_equal(fixture_count(CUABI_IDX_cuLaunchKernel), 1);
	if (fixture_find(CUABI_IDX_cuLaunchKernel) > fixture_find(c->index)) {
		fail_msg("%s overtook a deferred launch", c->name);
	}
}

/* Behind a deferred launch on the call's stream, or on a stream that the default stream is ordered
 * with. */
static CUstream stream_before(const struct gate_case *c)
{
	return c->stream == STREAM_NAMED || c->stream == STREAM_LEGACY ? named : CU_STREAM_LEGACY;
}

static void calls_follow_deferred_launch_on_same_stream(void **state)
{
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		const struct gate_case *c = &cases[i];
		struct sched_queue *q;

		fixture_before(NULL);
		q = fixture_defer_one(stream_before(c));
		if (c->kind == CASE_EARLY) {
			assert_int_equal(c->call(named), CUDA_SUCCESS);
			assert_int_equal(double_deferred(), 1);
			continue;
		}
		assert_int_equal(c->call(named), CUDA_SUCCESS);
		if (!q->queried && !q->submits) {
			fail_msg("%s did not pass the gate", c->name);
		}
		check_behind(c);
	}
}

/* On the legacy default stream (as 0 or by its name) behind a blocking stream, and the reverse. */
static void calls_follow_deferred_launch_through_legacy_stream(void **state)
{
	CUstream own = CU_STREAM_PER_THREAD;

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		const struct gate_case *c = &cases[i];
		CUstream legacy[] = { c->own ? CU_STREAM_LEGACY : NULL, CU_STREAM_LEGACY };

		for (unsigned k = 0; c->stream == STREAM_NAMED && c->ordered && k < 2; k++) {
			fixture_before(NULL);
			fixture_defer_one(named);
			assert_int_equal(c->call(legacy[k]), CUDA_SUCCESS);
			check_behind(c);
		}
		if (c->stream == STREAM_NAMED && c->ordered) {
			CUstream theirs[] = { named, own, c->own ? NULL : own };

			for (unsigned k = 0; k < 3; k++) {
				fixture_before(NULL);
				fixture_defer_one(CU_STREAM_LEGACY);
				assert_int_equal(c->call(theirs[k]), CUDA_SUCCESS);
				check_behind(c);
			}
		}
	}
}

/* With nothing deferred, the scheduler is asked once before the driver is called and notified once
 * afterwards. */
static void launches_ask_the_scheduler(void **state)
{
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		const struct gate_case *c = &cases[i];
		int submit, submitted, call;

		if (c->kind != CASE_LAUNCH) {
			continue;
		}
		fixture_before(NULL);
		assert_int_equal(c->call(named), CUDA_SUCCESS);
		submit = fixture_find_note("submit");
		submitted = fixture_find_note("submitted");
		call = fixture_find(c->index);
		if (submit != 0 || call != 1 || submitted != 2 || fake->count() != 3) {
			fail_msg("%s: submit at %d, call at %d, submitted at %d", c->name, submit,
				 call, submitted);
		}
	}
}

/* Calls that are stream-ordered but no launches call no hook. */
static void ordered_calls_call_no_hook(void **state)
{
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		const struct gate_case *c = &cases[i];

		if (c->kind == CASE_LAUNCH) {
			continue;
		}
		fixture_before(NULL);
		assert_int_equal(c->call(named), CUDA_SUCCESS);
		assert_int_equal(fixture_find(c->index), 0);
		assert_int_equal(fake->count(), 1);
	}
}

/* The driver's error reaches the caller and the scheduler. */
static void driver_errors_reach_caller_and_scheduler(void **state)
{
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		const struct gate_case *c = &cases[i];

		fixture_before(NULL);
		fake->fail_with(c->index, CUDA_ERROR_INVALID_HANDLE);
		assert_int_equal(c->call(named), CUDA_ERROR_INVALID_HANDLE);
	}
}

/* While the scheduler is idle only the driver is called. */
static void idle_passes_through(void **state)
{
	struct sched_shared *s = (struct sched_shared *)(void *)double_scheduler();

	fixture_before(NULL);
	s->active = 0;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		fake->reset();
		assert_int_equal(cases[i].call(named), CUDA_SUCCESS);
		assert_int_equal(fake->count(), 1);
		assert_int_equal(fake->get(0).index, cases[i].index);
	}
	s->active = 1;
}

static int setup(void **state)
{
	if (fixture_setup(state) != 0) {
		return -1;
	}
	named = fixture_stream(0);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(calls_follow_deferred_launch_on_same_stream),
		cmocka_unit_test(calls_follow_deferred_launch_through_legacy_stream),
		cmocka_unit_test(launches_ask_the_scheduler),
		cmocka_unit_test(ordered_calls_call_no_hook),
		cmocka_unit_test(driver_errors_reach_caller_and_scheduler),
		cmocka_unit_test(idle_passes_through),
	};

	return cmocka_run_group_tests(tests, setup, NULL);
}
