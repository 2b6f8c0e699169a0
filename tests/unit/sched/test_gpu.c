/* Markers on a driver table, against a driver in memory that checks its arguments. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/atomic.h"
#include "gpu/gpu.h"

struct drv_event {
	CUcontext ctx;
	int recorded;
	struct drv_event *next;
};

static struct drv_event
	*all_events; /* a driver frees them with their context; here the end of the test does */

static int free_events(void **state)
{
	(void)state;
	while (all_events) {
		struct drv_event *e = all_events;

		all_events = e->next;
		free(e);
	}
	return 0;
}

static __thread CUcontext current;
static __thread int depth;
static struct cuabi_table table;
static uint32_t events_made;
static int capture_status, capture_error, record_error, query_result;

#define CTX(n) ((CUcontext)(uintptr_t)(0x1000 * (n)))
#define STREAM(n) ((CUstream)(uintptr_t)(0x10000 * (n)))

static CUresult get_current(CUcontext *ret)
{
	*ret = current;
	return CUDA_SUCCESS;
}

static CUresult push_current(CUcontext ctx)
{
	if (ctx == CTX(9)) {
		return CUDA_ERROR_CONTEXT_IS_DESTROYED;
	}
	assert_null(current);
	current = ctx;
	depth++;
	return CUDA_SUCCESS;
}

static CUresult pop_current(CUcontext *ret)
{
	*ret = current;
	current = NULL;
	depth--;
	return CUDA_SUCCESS;
}

static CUresult is_capturing(CUstream s, CUstreamCaptureStatus *ret)
{
	*ret = capture_status;
	return capture_error;
}

static CUresult event_create(CUevent *ret, unsigned flags)
{
	struct drv_event *e = calloc(1, sizeof(*e));

	assert_int_equal(flags, CU_EVENT_DEFAULT); /* timed */
	assert_non_null(e);
	e->ctx = current;
	(void)add_acqrel(&events_made, 1u);
	e->next = load_acquire(&all_events);
	while (!cas_acqrel(&all_events, &e->next, e)) {
	}
	*ret = (CUevent)e;
	return CUDA_SUCCESS;
}

static CUresult event_record(CUevent ev, CUstream s)
{
	struct drv_event *e = (struct drv_event *)ev;

	assert_ptr_equal(e->ctx, current);
	e->recorded++;
	return record_error;
}

static CUresult event_query(CUevent ev)
{
	assert_ptr_equal(((struct drv_event *)ev)->ctx, current);
	return query_result;
}

static CUresult elapsed(float *ms, CUevent a, CUevent b)
{
	*ms = 1.5f;
	return CUDA_SUCCESS;
}

static CUresult stream_query(CUstream s)
{
	assert_non_null(current);
	return query_result;
}

static struct gpu_device *setup(void)
{
	struct gpu_device *d;

	memset(&table, 0, sizeof(table));
	table.cuCtxGetCurrent = get_current;
	table.cuCtxPushCurrent_v2 = push_current;
	table.cuCtxPopCurrent_v2 = pop_current;
	table.cuStreamIsCapturing = is_capturing;
	table.cuEventCreate = event_create;
	table.cuEventRecord = event_record;
	table.cuEventQuery = event_query;
	table.cuEventElapsedTime = elapsed;
	table.cuStreamQuery = stream_query;
	events_made = 0;
	capture_status = capture_error = record_error = query_result = 0;
	current = NULL;
	depth = 0;
	assert_int_equal(gpu_device_create(&d, &table), 0);
	return d;
}

static void events_are_pooled_by_context(void **state)
{
	struct gpu_device *d = setup();
	struct gpu_queue a = { .stream = STREAM(1), .ctx = CTX(1) },
			 b = { .stream = STREAM(2), .ctx = CTX(2) };
	struct sched_marker m[4];

	for (int round = 0; round < 10; round++) {
		for (int i = 0; i < 4; i++) {
			assert_int_equal(gpu_sched_ops.mark(d, i & 1 ? &b : &a, true, &m[i]), 0);
		}
		assert_int_equal(depth, 0);
		assert_int_equal(gpu_sched_ops.mark_done(d, &m[0]), 1);
		assert_int_equal(gpu_sched_ops.mark_span_ns(d, &m[0], &m[2]), 1500000);
		assert_int_equal(gpu_sched_ops.mark_span_ns(d, &m[0], &m[1]), -EIO);
		for (int i = 0; i < 4; i++) {
			gpu_sched_ops.mark_release(d, &m[i]);
			assert_null(m[i].event);
		}
	}
	assert_int_equal(events_made, 4);
	gpu_device_destroy(d);
}

static void captures_are_left_alone(void **state)
{
	struct gpu_device *d = setup();
	struct gpu_queue q = { .stream = STREAM(1), .ctx = CTX(1) };
	struct sched_marker m = { 0 };

	capture_status = CU_STREAM_CAPTURE_STATUS_ACTIVE;
	assert_int_equal(gpu_sched_ops.mark(d, &q, true, &m), -EAGAIN);
	assert_int_equal(gpu_sched_ops.queue_idle(d, &q), -EAGAIN);
	capture_status = CU_STREAM_CAPTURE_STATUS_NONE;
	capture_error = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT; /* the legacy stream while another
							       stream captures */
	assert_int_equal(gpu_sched_ops.mark(d, &q, true, &m), -EAGAIN);
	assert_int_equal(gpu_sched_ops.queue_idle(d, &q), -EAGAIN);
	assert_null(m.event);
	gpu_device_destroy(d);
}

static void driver_errors_do_not_leak_markers(void **state)
{
	struct gpu_device *d = setup();
	struct gpu_queue q = { .stream = STREAM(1), .ctx = CTX(1) },
			 gone = { .stream = STREAM(1), .ctx = CTX(9) };
	struct sched_marker m = { 0 };

	record_error = CUDA_ERROR_LAUNCH_FAILED;
	assert_int_equal(gpu_sched_ops.mark(d, &q, true, &m), -EIO);
	assert_null(m.event);
	assert_int_equal(gpu_sched_ops.mark(d, &gone, true, &m), -EIO);
	assert_int_equal(gpu_sched_ops.queue_idle(d, &gone), -EIO);
	record_error = 0;
	assert_int_equal(gpu_sched_ops.mark(d, &q, true, &m), 0);
	query_result = CUDA_ERROR_NOT_READY;
	assert_int_equal(gpu_sched_ops.mark_done(d, &m), 0);
	assert_int_equal(gpu_sched_ops.queue_idle(d, &q), 0);
	query_result = CUDA_ERROR_LAUNCH_FAILED;
	assert_int_equal(gpu_sched_ops.mark_done(d, &m), -EIO);
	gpu_sched_ops.mark_release(d, &m);
	assert_int_equal(depth, 0);
	gpu_device_destroy(d);
}

static void a_context_that_ends_takes_its_events(void **state)
{
	struct gpu_device *d = setup();
	struct gpu_queue q = { .stream = STREAM(1), .ctx = CTX(1) };
	struct sched_marker pooled, out, m;

	assert_int_equal(gpu_sched_ops.mark(d, &q, true, &pooled), 0);
	assert_int_equal(gpu_sched_ops.mark(d, &q, true, &out), 0);
	gpu_sched_ops.mark_release(d, &pooled);
	gpu_context_forget(d, CTX(1));
	assert_int_equal(gpu_sched_ops.mark_done(d, &out),
			 -EIO); /* counts as reached without asking the driver */
	gpu_sched_ops.mark_release(d, &out);
	q.ctx = CTX(2); /* another context in the same entry, with the same address */
	assert_int_equal(gpu_sched_ops.mark(d, &q, true, &m), 0);
	gpu_sched_ops.mark_release(d, &m);
	q.ctx = CTX(1);
	assert_int_equal(gpu_sched_ops.mark(d, &q, true, &m), 0);
	gpu_sched_ops.mark_release(d, &m);
	assert_int_equal(events_made, 4);
	gpu_device_destroy(d);
}

static void *elsewhere(void *arg)
{
	struct gpu_queue *q = arg;
	struct sched_marker m = { 0 };

	q->home = gpu_thread();
	assert_int_equal(gpu_sched_ops.mark(*(void **)(q + 1), q, true, &m), 0);
	gpu_sched_ops.mark_release(*(void **)(q + 1), &m);
	return NULL;
}

static void a_thread_s_own_stream_is_only_its_own(void **state)
{
	struct gpu_device *d = setup();
	struct {
		struct gpu_queue q;
		void *d;
	} x = { .q = { .stream = CU_STREAM_PER_THREAD, .ctx = CTX(1) }, .d = d };
	struct sched_marker m;
	pthread_t th;

	pthread_create(&th, NULL, elsewhere, &x.q);
	pthread_join(th, NULL);
	x.q.home = &x; /* the home of another thread */
	assert_int_equal(gpu_sched_ops.mark(d, &x.q, true, &m), -EAGAIN);
	assert_int_equal(gpu_sched_ops.queue_idle(d, &x.q), -EAGAIN);
	gpu_device_destroy(d);
}

/* Threads take and return events concurrently; each event has one owner at any time. */
static void *churn(void *arg)
{
	struct gpu_queue q = { .stream = STREAM(1), .ctx = CTX(1) };

	for (int i = 0; i < 20000; i++) {
		struct sched_marker m[3] = { 0 };

		for (int k = 0; k < 3; k++) {
			int err = gpu_sched_ops.mark(arg, &q, true, &m[k]);

			assert_true(err == 0 || err == -EAGAIN); /* better no marker than a wait */
		}
		for (int k = 0; k < 3; k++) {
			gpu_sched_ops.mark_release(arg, &m[k]);
		}
	}
	return NULL;
}

static void pools_serve_many_threads(void **state)
{
	struct gpu_device *d = setup();
	pthread_t th[4];

	for (int i = 0; i < 4; i++) {
		pthread_create(&th[i], NULL, churn, d);
	}
	for (int i = 0; i < 4; i++) {
		pthread_join(th[i], NULL);
	}
	assert_true(events_made <= 12 + 4);
	gpu_device_destroy(d);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(events_are_pooled_by_context),
		cmocka_unit_test(captures_are_left_alone),
		cmocka_unit_test(driver_errors_do_not_leak_markers),
		cmocka_unit_test(a_context_that_ends_takes_its_events),
		cmocka_unit_test(a_thread_s_own_stream_is_only_its_own),
		cmocka_unit_test(pools_serve_many_threads),
	};

	return cmocka_run_group_tests(tests, NULL, free_events);
}
