/* A resumable run whose stream stays busy. The test plays the kernel that takes the counter. */
#ifndef GBPF_TESTS_GPU_HANG_RIG_H
#define GBPF_TESTS_GPU_HANG_RIG_H

#include "run_rig.h"

/* Steps every so often until that time. */
static inline void steps_until(uint64_t end, uint64_t period, bool may_run)
{
	while (now_ns + period <= end) {
		now_ns += period;
		(void)step(may_run, false);
	}
}

/* The stream is busy; the counter is at that ticket. */
static inline void launch_that_hangs(uint32_t blocks, uint32_t at)
{
	assert_int_equal(launch(blocks, 0), CUDA_SUCCESS);
	script_query[20] = CUDA_ERROR_NOT_READY;
	*device_counter() += at;
	script_log[0] = 0;
}

/* Probes until the counter is taken. Returns when it was. */
static inline uint64_t steps_until_taken(void)
{
	uint64_t limit = now_ns + 100 * S;

	while (run_state() != GPU_RUN_TAKING) {
		now_ns += MS;
		(void)step(true, false);
		if (strstr(script_log, "copy")) {
			script_copy();
			script_log[0] = 0;
		}
		assert_true(now_ns < limit);
	}
	return now_ns;
}

/* The kernel runs: it takes the counter. */
static inline void device_takes(void)
{
	const struct script_launch *l = last_launch();
	uint32_t *counter = (uint32_t *)(uintptr_t)l->param[0], old = *counter;

	assert_ptr_equal(l->f, SCRIPT_TAKE);
	assert_int_equal(l->stream, 2);
	*counter = (uint32_t)l->param[3];
	*(uint32_t *)(uintptr_t)l->param[1] = old;
	((uint32_t *)(uintptr_t)l->param[1])[8192] = old;
	*(uint32_t *)(uintptr_t)l->param[2] = old;
}

/* The kernel of our own that was launched last runs. */
static inline void device_beats(void)
{
	__atomic_store_n(q.run->line.words + 4, q.run->strike.beat - 1, __ATOMIC_RELEASE);
}

#endif
