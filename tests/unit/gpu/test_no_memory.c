/* Without memory: each allocation of the room fails in turn; the operation says so, and goes when
 * there is memory again. The linker redirects the allocations of the objects under test. */
#include "run_rig.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/shm.h"
#include "gpu/flag_lease.h"
#include "policy/read.h"

void *__real_calloc(size_t n, size_t bytes);
void *__wrap_calloc(size_t n, size_t bytes);
void *__real_realloc(void *p, size_t bytes);
void *__wrap_realloc(void *p, size_t bytes);

static int left = -1; /* allocations that succeed; -1: all */

void *__wrap_calloc(size_t n, size_t bytes)
{
	return left >= 0 && !left-- ? NULL : __real_calloc(n, bytes);
}

void *__wrap_realloc(void *p, size_t bytes)
{
	return left >= 0 && !left-- ? NULL : __real_realloc(p, bytes);
}

static void a_device_is_not_made(void **state)
{
	for (int i = 0; i < 2; i++) { /* the device, its leases */
		struct gpu_device *none = NULL;

		left = i;
		assert_int_equal(gpu_device_create(&none, &script), -ENOMEM);
		assert_null(none);
	}
	left = -1;
}

static void a_run_is_not_begun(void **state)
{
	/* the run, all runs, the context's entry, the slab */
	for (int i = 0; i < 4; i++) {
		rig_tear_down(state);
		rig_set_up(state);
		left = i;
		assert_int_equal(launch(10, 0), CUDA_ERROR_NOT_SUPPORTED);
		left = -1;
		assert_null(q.run);
		assert_int_equal(script_n_launches, 0);
		assert_int_equal(launch(10, 0), CUDA_SUCCESS);
	}
}

static void a_launch_is_not_added(void **state)
{
	struct sched_run_progress p;

	assert_int_equal(launch(10, 0), CUDA_SUCCESS);
	left = 0; /* its parameters */
	assert_int_equal(launch(10, 0), CUDA_ERROR_OUT_OF_MEMORY);
	left = -1;
	assert_int_equal(gpu_run_look(d, &q, &p), 0);
	assert_int_equal(p.launched, 1);
	assert_int_equal(launch(10, 0), CUDA_SUCCESS);
}

static void a_marker_is_not_placed(void **state)
{
	struct sched_marker m = { NULL };

	left = 0;
	assert_int_equal(gpu_sched_ops.mark(d, &q, true, &m), -EAGAIN);
	left = -1;
	assert_null(m.event);
	assert_int_equal(gpu_sched_ops.mark(d, &q, true, &m), 0);
	gpu_sched_ops.mark_release(d, &m);
}

static void a_page_is_not_added(void **state)
{
	int fd = shm_create("page", GPU_FLAG_BYTES, SHM_NOEXEC);

	policy_read_setup();
	left = 0;
	assert_int_equal(gpu_lease_add(d, 0, fd, 0, 0), -ENOMEM);
	left = -1;
	assert_int_equal(gpu_lease_count(d), 0);
	assert_int_equal(gpu_lease_add(d, 0, fd, 0, 0), 0);
	close(fd);
}

static void a_clock_is_not_measured(void **state)
{
	int64_t offset;

	left = 0;
	assert_int_equal(gpu_clock_offset(d, SCRIPT_CONTEXT(1), &offset), -EIO);
	left = -1;
	SCRIPT_SAID("");
}

static void settings_are_without_effect(void **state)
{
	for (int i = 0; i < 2; i++) {
		left = i;
		gpu_run_set_flag(d, q.ctx, (const struct gpu_flag *)(uintptr_t)1, 4);
		left = 0;
		gpu_run_prepare(d, &q);
		left = -1;
	}
	SCRIPT_SAID("");
	left = 0;
	rig_tear_down(state);
	left = -1;
	rig_set_up(state);
	left = 0;
	gpu_run_on_hung(d, NULL, NULL);
	left = -1;
	assert_null(d->runs);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, rig_set_up, rig_tear_down)
		T(a_device_is_not_made),	T(a_run_is_not_begun),	T(a_launch_is_not_added),
		T(a_marker_is_not_placed),	T(a_page_is_not_added), T(a_clock_is_not_measured),
		T(settings_are_without_effect),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
