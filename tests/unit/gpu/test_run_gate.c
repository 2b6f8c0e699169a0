/* Launches of kernels with an entry stub, on a driver in memory: where they stop, what is launched
 * again, and that nothing waits for ever. Random programs of them are in test_run.c. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/compiler.h"
#include "fake_driver.h"
#include "gpu/cuda/gpu_run_int.h"
#include "gpu/flag.h"

#define WORKS 8

/* The flag page that runs read. */
CUdeviceptr gpu_flag_address(const struct gpu_flag *f)
{
	return (uintptr_t)drv_leases;
}

static uint64_t now_ns;
static struct gpu_device *d;
static struct gpu_queue q;
static struct track track;
static struct work *works[WORKS];
static unsigned n_works;

static uint64_t test_clock(void)
{
	now_ns += 300;
	return now_ns;
}

static int set_up(void **state)
{
	static const struct drv_options options = { .seed = 3 };

	now_ns = 1000000000;
	clock_set_source(test_clock);
	drv_init(&options);
	(void)drv.cuCtxPushCurrent_v2(DRV_CTX);
	assert_int_equal(gpu_device_create(&d, &drv), 0);
	q = (struct gpu_queue){ .stream = drv_stream(), .ctx = DRV_CTX };
	track = (struct track){ .ordered = true };
	n_works = 0;
	gpu_run_set_flag(d, DRV_CTX, (const struct gpu_flag *)(uintptr_t)1, 7);
	gpu_run_prepare(d, &q);
	return 0;
}

static int tear_down(void **state)
{
	CUcontext popped;

	gpu_run_close(d, &q);
	gpu_device_destroy(d);
	(void)drv.cuCtxPopCurrent_v2(&popped);
	drv_finish();
	clock_set_source(NULL);
	while (n_works) {
		free(works[--n_works]);
	}
	return 0;
}

static struct work *launch(uint32_t blocks, bool gate, uint32_t wave)
{
	struct work *w = drv_work(&track, n_works + 1, blocks);
	struct gpu_block_launch l = gate ? drv_gate(&w, wave) : drv_clone(&w, 0);

	l.block_ns = 100000;
	works[n_works++] = w;
	assert_int_equal(gpu_run_launch(d, &q, &l), CUDA_SUCCESS);
	return w;
}

static void run_until_begun(const struct work *w, uint32_t blocks)
{
	while (w->begun < blocks) {
		assert_int_equal(drv_run(1), 1);
	}
}

/* Raises or lowers the lease; then the device and the host take as many steps as they find. */
static void lease(bool on)
{
	store_relaxed(&drv_leases[5], (uint32_t)on);
	for (unsigned i = 0; i < 200; i++) {
		now_ns += 10000;
		(void)drv_run(200);
		(void)gpu_run_step(d, &q, !on, false);
	}
}

static struct sched_run_progress progress(void)
{
	struct sched_run_progress p;

	assert_int_equal(gpu_run_look(d, &q, &p), 0);
	return p;
}

/* All blocks that begin ask first, so none begins under a lease; afterwards the missing ones. */
static void it_stops_and_continues(void **state)
{
	struct work *a = launch(100, true, UINT32_MAX), *b = launch(50, true, UINT32_MAX);
	struct gpu_run_counts counts;

	run_until_begun(a, 30);
	lease(true);
	assert_true(a->begun >= 30 && a->begun < 30 + 4); /* a lower one may come late */
	assert_int_equal(a->begun, a->ended);
	assert_int_equal(b->begun, 0);
	assert_true(progress().stopped);
	assert_int_equal(progress().interruptions, 1);
	gpu_run_counts(d, &counts);
	assert_int_equal(counts.resumed_blocks, 150 - a->begun);
	lease(false);
	assert_true(drv_done(a) && drv_done(b));
	assert_false(gpu_run_busy(d, &q));
}

/* A later launch's blocks are not taken for an earlier one's. */
static void a_second_launch_stops_early_too(void **state)
{
	struct work *a = launch(100, true, UINT32_MAX), *b = launch(100, true, UINT32_MAX);

	run_until_begun(b, 5);
	assert_true(drv_done(a));
	lease(true);
	assert_true(b->begun >= 5 && b->begun < 5 + 4);
	lease(false);
	assert_true(drv_done(b));
	assert_int_equal(progress().interruptions, 1);
}

/* Blocks of the first wave ask first, the others raise the gate at once: the first of them that
 * finds the lease still runs. */
static void together_runs_one_more(void **state)
{
	struct work *a = launch(100, true, 8);

	lease(true);
	assert_int_equal(a->begun, 0);
	lease(false);
	assert_true(drv_done(a));
	a = launch(100, true, 8);
	run_until_begun(a, 20);
	lease(true);
	assert_true(a->begun > 20 && a->begun <= 20 + 4);
	lease(false);
	assert_true(drv_done(a));
}

/* The first wave of what is launched again asks first, too. */
static void a_continuation_asks_first(void **state)
{
	struct work *a = launch(100, true, 8);
	uint32_t begun;

	run_until_begun(a, 20);
	lease(true);
	begun = a->begun;
	for (unsigned i = 0; i < 200; i++) {
		now_ns += 10000;
		(void)gpu_run_step(d, &q, true, false);
		(void)drv_run(200);
	}
	assert_true(progress().interruptions > 1);
	assert_int_equal(a->begun, begun);
	lease(false);
	assert_true(drv_done(a));
}

/* Without a turn for them, blocks leave; one piece at a time is forced. */
static void a_forced_piece_is_part_of_the_grid(void **state)
{
	struct work *a;
	uint32_t piece;

	store_relaxed(&drv_leases[5], 1u);
	a = launch(6000, true, UINT32_MAX);
	lease(true);
	assert_int_equal(a->begun, 0);
	for (unsigned i = 1; i <= 3; i++) {
		uint32_t before = a->begun;

		(void)gpu_run_step(d, &q, false, true);
		while (drv_run(1000)) {
		}
		piece = a->begun - before;
		assert_true(piece >= 16 && piece < 2000);
		lease(true);
		assert_int_equal(a->begun, before + piece);
		assert_true(progress().stopped);
	}
}

/* Clones draw from where a launch with an entry stub has left the counter, and the other way
 * round, also when either is interrupted. */
static void clones_and_gates_follow_each_other(void **state)
{
	struct work *w[6];

	for (unsigned i = 0; i < 6; i++) {
		w[i] = launch(40, i % 2, 4);
	}
	for (unsigned i = 0; i < 6; i++) {
		store_relaxed(&drv_leases[5], 0u);
		while (w[i]->begun < 10) {
			now_ns += 10000;
			(void)gpu_run_step(d, &q, true, false);
			(void)drv_run(1);
		}
		lease(true);
		assert_true(w[i]->begun < 40);
	}
	lease(false);
	assert_true(drv_done(w[5]));
	assert_true(progress().interruptions >= 5);
}

/* Its blocks wait for blocks of higher index, which have left: those run on another stream. */
static void blocks_that_wait_for_later_ones_get_them(void **state)
{
	struct work *a = launch(12, true, UINT32_MAX), *b = launch(20, true, UINT32_MAX);
	struct gpu_run_counts counts;

	a->barrier = true;
	run_until_begun(a, 5);
	lease(true);
	assert_true(a->begun < 12);
	for (unsigned i = 0; i < 100000 && !drv_done(b); i++) {
		now_ns += 100000;
		store_relaxed(&drv_leases[5], 0u);
		(void)drv_run(50);
		(void)gpu_run_step(d, &q, true, false);
	}
	assert_true(drv_done(a) && drv_done(b));
	gpu_run_counts(d, &counts);
	assert_int_equal(counts.hung, 1);
}

/* The last block may be through between the taking of the counter and the closing of the gate. */
static void a_wrong_suspicion_changes_nothing(void **state)
{
	for (unsigned i = 0; i < 40; i++) {
		struct work *a = launch(12, true, UINT32_MAX), *b = launch(9, i % 2, 4);

		a->barrier = true;
		run_until_begun(a, 3);
		store_relaxed(&drv_leases[5], 1u);
		(void)drv_run(i);
		store_relaxed(&drv_leases[5], 0u);
		for (unsigned k = 0; k < 100000 && !drv_done(b); k++) {
			now_ns += 100000;
			(void)drv_run(k % 3);
			(void)gpu_run_step(d, &q, true, false);
		}
		assert_true(drv_done(a) && drv_done(b));
		lease(false);
		tear_down(state);
		set_up(state);
	}
}

/* The next run on a line must have higher values than those of blocks that have not decided yet. */
static void a_line_ends_before_its_values(void **state)
{
	struct work *a = launch(1, true, UINT32_MAX);
	uint64_t counter = q.run->line.counter;

	lease(false);
	assert_true(drv_done(a));
	gpu_run_close(d, &q);
	a = launch(1, true, UINT32_MAX);
	assert_int_equal(q.run->line.counter, counter);
	lease(false);
	q.run->gate.base = gpu_run_gate_base(1u << 30);
	gpu_run_close(d, &q);
	a = launch(1, true, UINT32_MAX);
	assert_int_not_equal(q.run->line.counter, counter);
	lease(false);
	assert_true(drv_done(a));
}

/* After 2^31 interruptions the values begin again: nothing of the run is on the device then. */
static void values_begin_again(void **state)
{
	struct work *a = launch(1, true, UINT32_MAX), *b;
	uint64_t *gate = (uint64_t *)(uintptr_t)(q.run->line.counter + PTX_GATE_WORD);

	lease(false);
	assert_true(drv_done(a));
	q.run->gate.base = *gate = gpu_run_gate_base(INT32_MAX - 1);
	a = launch(100, true, UINT32_MAX);
	b = launch(50, true, UINT32_MAX);
	for (unsigned i = 1; i <= 6; i++) {
		while (a->begun < i * 14) {
			now_ns += 10000;
			(void)gpu_run_step(d, &q, true, false);
			(void)drv_run(1);
		}
		lease(true);
		assert_true(a->begun < 100);
		store_relaxed(&drv_leases[5], 0u);
	}
	lease(false);
	assert_true(drv_done(a) && drv_done(b));
	assert_int_equal(progress().interruptions, 6);
	assert_true(q.run->gate.base < gpu_run_gate_base(10));
}

/* The program has overwritten the gate. */
static void an_impossible_gate_ends_the_run(void **state)
{
	struct work *a = launch(100, true, UINT32_MAX);
	uint64_t *gate = (uint64_t *)(uintptr_t)(q.run->line.counter + PTX_GATE_WORD);

	run_until_begun(a, 30);
	store_relaxed(&drv_leases[5], 1u);
	while (drv_run(50)) {
	}
	store_relaxed(gate, UINT64_MAX);
	for (unsigned i = 0; i < 10; i++) {
		now_ns += 10000;
		(void)gpu_run_step(d, &q, false, false);
		(void)drv_run(50);
	}
	assert_false(gpu_run_busy(d, &q));
	assert_int_equal(load_relaxed(&q.run->seen.failed), CUDA_ERROR_ILLEGAL_STATE);
}

/* Longer grids, and more attributes than are kept, are refused. */
static void what_cannot_be_kept_is_refused(void **state)
{
	static const CUlaunchAttribute attrs[GPU_BLOCK_ATTRS_MAX + 1];
	struct work *w = drv_work(&track, 1, 5);
	struct gpu_block_launch l = drv_gate(&w, 0);

	l.grid[0] = (1u << 24) + 1;
	assert_int_equal(gpu_run_launch(d, &q, &l), CUDA_ERROR_NOT_SUPPORTED);
	l.grid[0] = 5;
	l.attrs = attrs;
	l.n_attrs = GPU_BLOCK_ATTRS_MAX + 1;
	assert_int_equal(gpu_run_launch(d, &q, &l), CUDA_ERROR_NOT_SUPPORTED);
	free(w);
}

#define T(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(it_stops_and_continues),
		T(a_second_launch_stops_early_too),
		T(together_runs_one_more),
		T(a_continuation_asks_first),
		T(a_forced_piece_is_part_of_the_grid),
		T(clones_and_gates_follow_each_other),
		T(blocks_that_wait_for_later_ones_get_them),
		T(a_wrong_suspicion_changes_nothing),
		T(a_line_ends_before_its_values),
		T(values_begin_again),
		T(an_impossible_gate_ends_the_run),
		T(what_cannot_be_kept_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
