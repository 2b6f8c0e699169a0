/* Markers: which events are made, recorded and used again, in which context, and when none can be
 * placed. Each driver call is asserted. */
#include "script.h"

#include <errno.h>

#include "base/atomic.h"
#include "gpu/gpu_int.h"

static struct gpu_device *d;

static int set_up(void **state)
{
	script_init();
	return gpu_device_create(&d, &script);
}

static int tear_down(void **state)
{
	gpu_device_destroy(d);
	script_finish();
	return 0;
}

static struct gpu_queue queue_of(unsigned ctx, unsigned stream)
{
	return (struct gpu_queue){ .stream = SCRIPT_STREAM(stream), .ctx = SCRIPT_CONTEXT(ctx) };
}

static int mark_timed(struct gpu_queue *q, bool timed, struct sched_marker *m)
{
	m->event = NULL;
	return gpu_sched_ops.mark(d, q, timed, m);
}

static int mark(struct gpu_queue *q, struct sched_marker *m)
{
	return mark_timed(q, true, m);
}

static void a_marker_is_recorded_in_its_context(void **state)
{
	struct gpu_queue q = queue_of(1, 3);
	struct sched_marker m;

	assert_int_equal(mark(&q, &m), 0);
	assert_non_null(m.event);
	SCRIPT_SAID("push 1 event 1 of 1 record 1:3 pop");
	script_current = SCRIPT_CONTEXT(1); /* as in the application's thread */
	assert_int_equal(gpu_sched_ops.mark_done(d, &m), 1);
	SCRIPT_SAID("query 1");
	script_current = SCRIPT_CONTEXT(2);
	script_reached = CUDA_ERROR_NOT_READY;
	assert_int_equal(gpu_sched_ops.mark_done(d, &m), 0);
	SCRIPT_SAID("push 1 query 1 pop");
	script_reached = CUDA_ERROR_ILLEGAL_ADDRESS;
	assert_int_equal(gpu_sched_ops.mark_done(d, &m), -EIO);
	script_log[0] = 0;
	script_fail("current", CUDA_ERROR_UNKNOWN, 0);
	assert_int_equal(gpu_sched_ops.mark_done(d, &m), -EIO);
	SCRIPT_SAID("current! push 1 query 1 pop");
	script_current = NULL;
	gpu_sched_ops.mark_release(d, &m);
	assert_null(m.event);
	gpu_sched_ops.mark_release(d, &m); /* none */
	SCRIPT_SAID("");
}

static void events_are_used_again_by_their_context(void **state)
{
	struct gpu_queue one = queue_of(1, 3), two = queue_of(2, 4);
	struct sched_marker a, b, c;

	assert_int_equal(mark(&one, &a) + mark(&one, &b), 0);
	SCRIPT_SAID("push 1 event 1 of 1 record 1:3 pop push 1 event 2 of 1 record 2:3 pop");
	gpu_sched_ops.mark_release(d, &a);
	gpu_sched_ops.mark_release(d, &b);
	assert_int_equal(mark(&two, &c), 0);
	SCRIPT_SAID("push 2 event 3 of 2 record 3:4 pop");
	assert_int_equal(mark(&one, &a), 0); /* the last one that was returned */
	SCRIPT_SAID("push 1 record 2:3 pop");
	assert_int_equal(mark(&one, &b), 0);
	SCRIPT_SAID("push 1 record 1:3 pop");
	gpu_sched_ops.mark_release(d, &b);
	assert_int_equal(mark(&one, &b), 0);
	SCRIPT_SAID("push 1 record 1:3 pop");
	gpu_sched_ops.mark_release(d, &a);
	gpu_sched_ops.mark_release(d, &b);
	gpu_sched_ops.mark_release(d, &c);
}

/* The driver refuses to measure with an event that was created without times. */
static void timed_markers_get_no_untimed_events(void **state)
{
	struct gpu_queue q = queue_of(1, 3);
	struct sched_marker a, b;

	script_current = SCRIPT_CONTEXT(1);
	assert_int_equal(mark_timed(&q, false, &a) + mark_timed(&q, true, &b), 0);
	SCRIPT_SAID("untimed event 1 of 1 record 1:3 event 2 of 1 record 2:3");
	gpu_sched_ops.mark_release(d, &b);
	gpu_sched_ops.mark_release(d, &a);
	for (int i = 0; i < 2; i++) { /* in the order of their return, and in the other */
		assert_int_equal(mark_timed(&q, i, &a) + mark_timed(&q, !i, &b), 0);
		SCRIPT_SAID(i ? "record 2:3 record 1:3" : "record 1:3 record 2:3");
		gpu_sched_ops.mark_release(d, &a);
		gpu_sched_ops.mark_release(d, &b);
	}
	assert_int_equal(mark_timed(&q, false, &a), 0);
	gpu_context_forget(d, SCRIPT_CONTEXT(1));
	gpu_sched_ops.mark_release(d, &a);
	script_log[0] = 0;
	assert_int_equal(mark_timed(&q, false, &a), 0);
	SCRIPT_SAID("untimed event 3 of 1 record 3:3");
	gpu_sched_ops.mark_release(d, &a);
	script_current = NULL;
}

static void markers_need_a_context_and_a_stream_that_is_not_captured(void **state)
{
	struct gpu_queue q = queue_of(1, 3);
	struct sched_marker m;
	char other;

	script_fail("push", CUDA_ERROR_INVALID_CONTEXT, 0);
	assert_int_equal(mark(&q, &m), -EIO);
	SCRIPT_SAID("push!");
	script_capturing[3] = CU_STREAM_CAPTURE_STATUS_ACTIVE;
	assert_int_equal(mark(&q, &m), -EAGAIN);
	SCRIPT_SAID("push 1 pop");
	assert_int_equal(gpu_sched_ops.queue_idle(d, &q), -EAGAIN);
	SCRIPT_SAID("push 1 pop");
	script_capturing[3] = CU_STREAM_CAPTURE_STATUS_NONE;
	script_fail("capturing", CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, 0);
	assert_int_equal(mark(&q, &m), -EAGAIN);
	SCRIPT_SAID("push 1 capturing! pop");
	script_fail("event", CUDA_ERROR_OUT_OF_MEMORY, 0);
	assert_int_equal(mark(&q, &m), -EAGAIN);
	SCRIPT_SAID("push 1 event! pop");
	assert_null(m.event);
	q.home = &other; /* the default stream of another thread */
	assert_int_equal(mark(&q, &m), -EAGAIN);
	assert_int_equal(gpu_sched_ops.queue_idle(d, &q), -EAGAIN);
	SCRIPT_SAID("");
	q.home = gpu_thread();
	assert_int_equal(mark(&q, &m), 0);
	SCRIPT_SAID("push 1 event 1 of 1 record 1:3 pop");
	assert_int_equal(gpu_sched_ops.queue_idle(d, &q), 1);
	SCRIPT_SAID("push 1 pop");
	gpu_sched_ops.mark_release(d, &m);
}

static void an_event_that_was_not_recorded_is_used_again(void **state)
{
	struct gpu_queue q = queue_of(1, 3);
	struct sched_marker m;

	script_fail("record", CUDA_ERROR_LAUNCH_FAILED, 0);
	assert_int_equal(mark(&q, &m), -EIO);
	assert_null(m.event);
	SCRIPT_SAID("push 1 event 1 of 1 record! pop");
	assert_int_equal(mark(&q, &m), 0);
	SCRIPT_SAID("push 1 record 1:3 pop");
	gpu_sched_ops.mark_release(d, &m);
}

/* A green context is current to one thread only; its markers belong to the context behind it. */
static void markers_of_green_contexts_belong_to_the_base(void **state)
{
	struct gpu_queue q = queue_of(5, 3);
	struct sched_marker m;

	q.base = SCRIPT_CONTEXT(1);
	assert_int_equal(mark(&q, &m), 0);
	SCRIPT_SAID("push 5 push 1 event 1 of 1 pop record 1:3 pop");
	assert_int_equal(gpu_sched_ops.mark_done(d, &m), 1);
	SCRIPT_SAID("push 1 query 1 pop");
	gpu_sched_ops.mark_release(d, &m);
	script_fail("push", CUDA_ERROR_INVALID_CONTEXT, 1);
	assert_int_equal(mark(&q, &m), -EAGAIN);
	SCRIPT_SAID("push 5 push! pop");
}

static void events_end_with_their_context(void **state)
{
	struct gpu_queue q = queue_of(1, 3), other = queue_of(2, 4);
	struct sched_marker a, b, c, e;

	assert_int_equal(mark(&other, &e), 0);
	assert_int_equal(mark(&q, &a) + mark(&q, &b) + mark(&q, &c), 0);
	gpu_sched_ops.mark_release(d, &b);
	gpu_sched_ops.mark_release(d, &c);
	assert_int_equal(mark(&q, &c), 0); /* b's event is ready now */
	gpu_sched_ops.mark_release(d, &c); /* and this one was returned */
	script_log[0] = 0;
	gpu_context_forget(d, SCRIPT_CONTEXT(1));
	SCRIPT_SAID(""); /* the driver frees them */
	assert_int_equal(gpu_sched_ops.mark_done(d, &a), -EIO);
	SCRIPT_SAID("");
	assert_int_equal(mark(&q, &c), 0); /* of a new context at that address */
	SCRIPT_SAID("push 1 event 5 of 1 record 5:3 pop");
	assert_int_equal(gpu_sched_ops.mark_done(d, &a), -EIO);
	assert_int_equal((int)gpu_sched_ops.mark_span_ns(d, &a, &c), -EIO);
	SCRIPT_SAID("");
	assert_int_equal(gpu_sched_ops.mark_done(d, &c), 1);
	SCRIPT_SAID("push 1 query 5 pop");
	gpu_sched_ops.mark_release(d, &a); /* is not used again */
	assert_int_equal(mark(&q, &b), 0);
	SCRIPT_SAID("push 1 event 6 of 1 record 6:3 pop");
	assert_int_equal(gpu_sched_ops.mark_done(d, &e), 1); /* the other context goes on */
	SCRIPT_SAID("push 2 query 1 pop");
	gpu_sched_ops.mark_release(d, &b);
	gpu_sched_ops.mark_release(d, &c);
	gpu_sched_ops.mark_release(d, &e);
	gpu_context_forget(d, SCRIPT_CONTEXT(77)); /* is not known */
}

static void spans_are_between_events_of_one_context(void **state)
{
	struct gpu_queue one = queue_of(1, 3), two = queue_of(2, 4);
	struct sched_marker a, b, c;

	assert_int_equal(mark(&one, &a) + mark(&one, &b) + mark(&two, &c), 0);
	script_log[0] = 0;
	script_ms = 1.5f;
	assert_int_equal(gpu_sched_ops.mark_span_ns(d, &a, &b), 1500000);
	SCRIPT_SAID("push 1 elapsed 1-2 pop");
	script_ms = 0;
	assert_int_equal(gpu_sched_ops.mark_span_ns(d, &a, &b), 0);
	script_ms = -0.5f;
	assert_int_equal(gpu_sched_ops.mark_span_ns(d, &a, &b), -EIO);
	script_ms = 1e9f;
	assert_int_equal(gpu_sched_ops.mark_span_ns(d, &a, &b), -EIO);
	script_ms = 999999936.f; /* the float below */
	assert_true(gpu_sched_ops.mark_span_ns(d, &a, &b) == 999999936000000);
	script_log[0] = 0;
	script_ms = 1;
	script_fail("elapsed", CUDA_ERROR_NOT_READY, 0);
	assert_int_equal(gpu_sched_ops.mark_span_ns(d, &a, &b), -EIO);
	SCRIPT_SAID("push 1 elapsed! elapsed 1-2 pop");
	assert_int_equal(gpu_sched_ops.mark_span_ns(d, &a, &c), -EIO);
	SCRIPT_SAID("");
	script_fail("push", CUDA_ERROR_INVALID_CONTEXT, 0);
	assert_int_equal(gpu_sched_ops.mark_span_ns(d, &a, &b), -EIO);
	SCRIPT_SAID("push!");
	gpu_sched_ops.mark_release(d, &a);
	gpu_sched_ops.mark_release(d, &b);
	gpu_sched_ops.mark_release(d, &c);
}

static void queues_are_idle_as_their_streams(void **state)
{
	struct gpu_queue q = queue_of(1, 3);

	assert_int_equal(gpu_sched_ops.queue_idle(d, &q), 1);
	script_query[3] = CUDA_ERROR_NOT_READY;
	assert_int_equal(gpu_sched_ops.queue_idle(d, &q), 0);
	script_query[3] = CUDA_ERROR_ILLEGAL_ADDRESS;
	assert_int_equal(gpu_sched_ops.queue_idle(d, &q), -EIO);
	SCRIPT_SAID("push 1 pop push 1 pop push 1 pop");
	script_fail("push", CUDA_ERROR_INVALID_CONTEXT, 0);
	assert_int_equal(gpu_sched_ops.queue_idle(d, &q), -EIO);
	SCRIPT_SAID("push!");
}

/* 256 contexts at once; places of those that have ended are used again. */
static void contexts_are_limited(void **state)
{
	struct sched_marker m;

	for (unsigned i = 1; i <= 257; i++) {
		struct gpu_queue q = queue_of(i, 3);

		assert_int_equal(mark(&q, &m), i <= 256 ? 0 : -EAGAIN);
		gpu_sched_ops.mark_release(d, &m);
	}
	assert_int_equal(d->n_contexts, 256);
	gpu_context_forget(d, SCRIPT_CONTEXT(100));
	for (unsigned i = 257; i <= 258; i++) {
		struct gpu_queue q = queue_of(i, 3);

		assert_int_equal(mark(&q, &m), i == 257 ? 0 : -EAGAIN);
		gpu_sched_ops.mark_release(d, &m);
	}
	assert_ptr_equal(d->contexts[99].ctx, SCRIPT_CONTEXT(257));
	script_log[0] = 0;
}

/* The launch path does not wait for the pool's lock. */
static void a_pool_in_use_is_not_waited_for(void **state)
{
	struct gpu_queue q = queue_of(1, 3);
	struct sched_marker m;

	assert_int_equal(mark(&q, &m), 0);
	gpu_sched_ops.mark_release(d, &m);
	script_log[0] = 0;
	store_release(&d->contexts[0].take_lock, 1u);
	assert_int_equal(mark(&q, &m), -EAGAIN);
	SCRIPT_SAID("push 1 pop");
	store_release(&d->contexts[0].take_lock, 0u);
	assert_int_equal(mark(&q, &m), 0);
	SCRIPT_SAID("push 1 record 1:3 pop");
	gpu_sched_ops.mark_release(d, &m);
}

/* Calls that allocate are made in relaxed mode, which is put back. */
static void scopes_restore_context_and_capture_mode(void **state)
{
	struct gpu_scope s;
	CUstream stream;

	assert_int_equal(gpu_scope_enter(d, SCRIPT_CONTEXT(2), &s), 0);
	assert_int_equal(script_mode, CU_STREAM_CAPTURE_MODE_RELAXED);
	assert_ptr_equal(script_current, SCRIPT_CONTEXT(2));
	assert_int_equal(gpu_private_stream(d, &stream), CUDA_SUCCESS);
	gpu_scope_leave(d, &s);
	SCRIPT_SAID("push 2 stream 1 pop");
	assert_int_equal(script_mode, CU_STREAM_CAPTURE_MODE_GLOBAL);
	script_mode = CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
	script_current = SCRIPT_CONTEXT(2);
	assert_int_equal(gpu_scope_enter(d, SCRIPT_CONTEXT(2), &s), 0);
	gpu_scope_leave(d, &s);
	SCRIPT_SAID("");
	assert_int_equal(script_mode, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
	script_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
	script_fail("mode", CUDA_ERROR_UNKNOWN, 0);
	assert_int_equal(gpu_scope_enter(d, SCRIPT_CONTEXT(2), &s), 0);
	gpu_scope_leave(d, &s);
	assert_int_equal(script_mode, CU_STREAM_CAPTURE_MODE_GLOBAL);
	script_current = NULL;
	script_log[0] = 0;
	script_fail("push", CUDA_ERROR_INVALID_CONTEXT, 0);
	assert_int_equal(gpu_scope_enter(d, SCRIPT_CONTEXT(2), &s), -EIO);
	SCRIPT_SAID("push!");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
		T(a_marker_is_recorded_in_its_context),
		T(events_are_used_again_by_their_context),
		T(timed_markers_get_no_untimed_events),
		T(markers_need_a_context_and_a_stream_that_is_not_captured),
		T(an_event_that_was_not_recorded_is_used_again),
		T(markers_of_green_contexts_belong_to_the_base),
		T(events_end_with_their_context),
		T(spans_are_between_events_of_one_context),
		T(queues_are_idle_as_their_streams),
		T(contexts_are_limited),
		T(a_pool_in_use_is_not_waited_for),
		T(scopes_restore_context_and_capture_mode),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
