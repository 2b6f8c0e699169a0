/* The first patched image makes launches go through shim/code while other threads launch. A process
 * does this once, so the test has a program of its own. ThreadSanitizer checks the accesses. */
#include "code_rig.h"

#include <pthread.h>

#include "base/atomic.h"

#define AFTER 100u /* launches of each thread after the image was loaded */
#define N_THREADS 2u

static uint32_t stop, launched[N_THREADS], failed;
static __thread uint32_t *mine;

static CUresult count(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
		      unsigned bz, unsigned smem, CUstream s, void **params, void **extra)
{
	if (mine) {
		add_relaxed(mine, 1);
	}
	return CUDA_SUCCESS;
}

static void *launch(void *arg)
{
	uint64_t address = 0;
	uint32_t number = 0;
	void *params[] = { &address, &number };

	mine = arg;
	while (!load_acquire(&stop)) {
		if (cuLaunchKernel(RIG_OTHER, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL)) {
			add_relaxed(&failed, 1);
		}
	}
	return NULL;
}

/* Waits until each thread has made n more launches. */
static void wait_for_launches(uint32_t n)
{
	for (unsigned i = 0; i < N_THREADS; i++) {
		uint32_t before = load_relaxed(&launched[i]);

		while (load_relaxed(&launched[i]) - before < n) {
			cpu_relax();
		}
	}
}

static void launches_lead_elsewhere_while_threads_launch(void **state)
{
	pthread_t threads[N_THREADS];
	CUmodule m = RIG_MODULE;

	/* Idle: the launches go straight to the driver. */
	store_relaxed(&((struct sched_shared *)(void *)shim.sched)->active, 0);
	shim_driver.cuLaunchKernel = count;
	shim_real.cuLaunchKernel = count;
	for (unsigned i = 0; i < N_THREADS; i++) {
		assert_int_equal(pthread_create(&threads[i], NULL, launch, &launched[i]), 0);
	}
	wait_for_launches(1);
	assert_int_equal(cuModuleLoadData(&m, rig_image), CUDA_SUCCESS);
	assert_true(load_acquire(&shim.forms));
	wait_for_launches(AFTER);
	store_release(&stop, 1);
	for (unsigned i = 0; i < N_THREADS; i++) {
		assert_int_equal(pthread_join(threads[i], NULL), 0);
	}
	assert_int_equal(failed, 0);
	assert_int_equal(cuModuleUnload(m), CUDA_SUCCESS);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(launches_lead_elsewhere_while_threads_launch, rig_before),
	};

	return cmocka_run_group_tests(tests, rig_setup, NULL);
}
