/* Grids of up to 2^29 blocks in sequence, so that tickets pass 2^31 and 2^32 repeatedly, whole and
 * in pieces of any size, interrupted at random: each block runs once, in order, and the run ends.
 * On a GPU that runs whole waves, some of millions of blocks. */
#include <string.h>

#include "base/clock.h"
#include "base/compiler.h"
#include "gpu/gpu_run.h"
#include "gpu/gpu.h"
#include "occupancy.h"

#define LAUNCHES 24u
#define STEPS_MAX 20000000u /* far more than any of them needs */

struct testbed {
	struct gpu_device *d;
	struct gpu_queue q;
	CUevent event;
	uint64_t rng, expected;
	unsigned steps;
};

static uint32_t below(struct testbed *w, uint32_t n)
{
	w->rng = w->rng * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)((w->rng >> 33) % n);
}

static void testbed_init(struct testbed *w, uint64_t seed)
{
	memset(w, 0, sizeof(*w));
	w->rng = seed * 0x9e3779b97f4a7c15u;
	occupancy_init(132u << (10 + below(w, 12)), 1000 + below(w, 200000));
	assert_int_equal(gpu_device_create(&w->d, &occupancy_table), 0);
	w->q = (struct gpu_queue){ .stream = WAVES_STREAM, .ctx = WAVES_CTX };
	gpu_run_set_flag(w->d, WAVES_CTX, (const struct gpu_flag *)(uintptr_t)1, 4);
	(void)occupancy_table.cuEventCreate(&w->event, 0);
}

/* Advances time, begins and ends requests, and steps the run. */
static void go_on(struct testbed *w, bool end)
{
	bool leased = waves.lease[0] != 0, force = below(w, 500) == 0;

	assert_true(w->steps++ < STEPS_MAX);
	if (below(w, 4) == 0) {
		occupancy_lease(!leased && !end);
	}
	occupancy_until(waves.now_ns + below(w, below(w, 10) ? 20000 : 5000000));
	(void)gpu_run_step(w->d, &w->q, !waves.lease[0] || below(w, 10) == 0, force);
}

static bool full(struct testbed *w)
{
	struct sched_run_progress c;

	assert_int_equal(gpu_run_look(w->d, &w->q, &c), 0);
	return c.full;
}

static void launch(struct testbed *w)
{
	static const uint32_t grids[][3] = {
		{ 1u << 29, 1, 1 },   { 65537, 8191, 1 },  { 1, 65535, 8192 }, { 8192, 1, 65535 },
		{ 0x1fffffff, 1, 1 }, { 1, 65535, 65535 }, { 1, 1, 1 },	       { 300, 7, 3 },
	};
	static const uint32_t pieces[] = { 0, 0, 1u << 22, 100000007, 1u << 29, UINT32_MAX };
	const uint32_t *g = grids[below(w, ARRAY_SIZE(grids))];
	uint64_t blocks = (uint64_t)g[0] * g[1] * g[2];
	bool slow = !below(w, 3);
	struct gpu_block_launch b = { .clone = slow ? OCCUPANCY_SLOW : OCCUPANCY_CLONE,
				      .id = slow ? 2 : 1,
				      .resident = waves.resident,
				      .block = { 1, 1, 1 },
				      .piece_blocks = pieces[below(w, ARRAY_SIZE(pieces))] };
	CUresult r;

	memcpy(b.grid, g, sizeof(b.grid));
	/* A launch that the run cannot take waits for the run on the real clock. */
	while (full(w) || (blocks > 1u << 30 && gpu_run_busy(w->d, &w->q))) {
		go_on(w, false);
	}
	r = gpu_run_launch(w->d, &w->q, &b);
	if (blocks > 1u << 30) {
		assert_int_equal(r, CUDA_ERROR_NOT_SUPPORTED);
		assert_false(gpu_run_busy(w->d, &w->q));
	} else {
		assert_int_equal(r, CUDA_SUCCESS);
		w->expected += blocks;
	}
}

static void one(uint64_t seed)
{
	struct sched_run_progress c;
	struct testbed w;
	uint64_t seq;

	testbed_init(&w, seed);
	for (unsigned i = 0; i < LAUNCHES; i++) {
		launch(&w);
		if (below(&w, 4) == 0) {
			while (full(&w)) {
				go_on(&w, false);
			}
			assert_int_equal(gpu_run_record(w.d, &w.q, w.event, &seq), CUDA_SUCCESS);
		}
		for (unsigned n = below(&w, 3) ? 0 : below(&w, 200); n; n--) {
			go_on(&w, false);
		}
	}
	while (gpu_run_busy(w.d, &w.q) || !occupancy_idle()) {
		go_on(&w, true);
	}
	assert_int_equal(gpu_run_look(w.d, &w.q, &c), 0);
	assert_int_equal(c.done, c.launched);
	assert_int_equal(waves.blocks, w.expected);
	gpu_run_close(w.d, &w.q);
	gpu_device_destroy(w.d);
	(void)occupancy_table.cuEventDestroy_v2(w.event);
	occupancy_finish();
}

static void each_block_of_huge_grids_runs_once(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= 20; seed++) {
		one(seed);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_block_of_huge_grids_runs_once),
	};

	return cmocka_run_group_tests_name("gpu-run-huge", tests, NULL, NULL);
}
