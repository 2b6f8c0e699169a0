/* Pieces of a resumable run: their sizes, how many go to the device, and how long before the end of
 * what it has. */
#include "run_rig.h"

/* While the device has work for longer than the host needs to react, the next piece waits: 300 us
 * before its end, or 200 us where pieces are long. The next step is due then. */
static void pieces_are_submitted_ahead_of_the_end(void **state)
{
	struct gpu_block_launch l = rig_launch(4800, 1600);
	uint64_t begin;

	script_query[20] = CUDA_ERROR_NOT_READY;
	l.block_ns = 4000; /* 400 us each */
	assert_int_equal(gpu_run_launch(d, &q, &l), CUDA_SUCCESS);
	begin = now_ns;
	assert_non_null(strstr(script_log, "launch 3001 1600:20 launch 3001 1600:20"));
	script_log[0] = 0;
	assert_int_equal(step(true, false), 406250); /* the end of the first, and a bit */
	SCRIPT_SAID("");
	now_ns = begin + 600 * US - 1;
	(void)step(true, false);
	SCRIPT_SAID("");
	now_ns++;
	(void)step(true, false);
	SCRIPT_SAID("launch 3001 1600:20");
}

static void short_pieces_are_submitted_earlier(void **state)
{
	struct gpu_block_launch l = rig_launch(4800, 1600);
	uint64_t begin;

	script_query[20] = CUDA_ERROR_NOT_READY;
	l.block_ns = 3990; /* 399 us each */
	assert_int_equal(gpu_run_launch(d, &q, &l), CUDA_SUCCESS);
	begin = now_ns;
	script_log[0] = 0;
	/* 798 us: 80 us and a sixteenth before it */
	assert_int_equal(step(true, false), 798 * US - 80 * US - 49875);
	now_ns = begin + 498 * US - 1;
	(void)step(true, false);
	SCRIPT_SAID("");
	now_ns++;
	(void)step(true, false);
	SCRIPT_SAID("launch 3001 1600:20");
}

/* A remainder of a quarter of a piece is not a piece of its own. */
static void small_remainders_are_included(void **state)
{
	static const struct {
		uint32_t blocks, piece;
		const char *said;
	} cases[] = {
		{ 1000, 800, "launch 3001 1000:20" },
		{ 1001, 800, "launch 3001 800:20 launch 3001 201:20" },
		{ 100, 33, "launch 3001 33:20 launch 3001 33:20 launch 3001 34:20" },
		{ 300, 100, "launch 3001 96:20 launch 3001 96:20 launch 3001 108:20" }, /* waves */
		{ 130, 63, "launch 3001 63:20 launch 3001 67:20" }, /* fewer than four waves */
		{ 130, 64, "launch 3001 64:20 launch 3001 66:20" },
		{ 16384, 0, "launch 3001 16384:20" },
	};

	for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		gpu_run_prepare(d, &q);
		script_log[0] = 0;
		assert_int_equal(launch(cases[i].blocks, cases[i].piece), CUDA_SUCCESS);
		SCRIPT_SAID(cases[i].said);
		rig_tear_down(state);
		rig_set_up(state);
	}
}

/* 4096 blocks of each run, and 32768 of all runs that may not have begun. */
static void the_device_has_a_budget_of_blocks(void **state)
{
	gpu_run_prepare(d, &q);
	script_query[20] = CUDA_ERROR_NOT_READY;
	store_relaxed(&d->runs->contexts->out, 40000u); /* of other runs */
	script_log[0] = 0;
	assert_int_equal(launch(8000, 2048), CUDA_SUCCESS);
	SCRIPT_SAID("launch 3001 2048:20 launch 3001 2048:20");
	store_relaxed(&d->runs->contexts->out, 32768u - 2048u);
	(void)step(true, false);
	SCRIPT_SAID("launch 3001 2048:20");
	(void)step(true, false);
	SCRIPT_SAID("");
	store_relaxed(&d->runs->contexts->out, 32769u - 1856u);
	(void)step(true, false);
	SCRIPT_SAID("");
	store_relaxed(&d->runs->contexts->out, 32768u - 1856u);
	(void)step(true, false);
	SCRIPT_SAID("launch 3001 1856:20");
	store_relaxed(&d->runs->contexts->out, 8000u);
}

/* One piece may always wait behind another one, whatever their size. */
static void a_large_piece_may_wait_behind_one(void **state)
{
	gpu_run_prepare(d, &q);
	script_query[20] = CUDA_ERROR_NOT_READY;
	script_log[0] = 0;
	assert_int_equal(launch(200000, 60000), CUDA_SUCCESS);
	SCRIPT_SAID("launch 3001 60000:20 launch 3001 60000:20");
	(void)step(true, false);
	SCRIPT_SAID("");
	device_stores(1);
	(void)step(true, false);
	SCRIPT_SAID("launch 3001 60000:20");
	device_stores(3);
	(void)step(true, false);
	SCRIPT_SAID("launch 3001 20000:20");
	rig_tear_down(state);
	rig_set_up(state);
	gpu_run_prepare(d, &q);
	script_log[0] = 0;
	assert_int_equal(launch(200000, 65536), CUDA_SUCCESS); /* 65536 at most */
	SCRIPT_SAID("launch 3001 65536:20 launch 3001 65536:20");
	rig_tear_down(state);
	rig_set_up(state);
	gpu_run_prepare(d, &q);
	script_log[0] = 0;
	assert_int_equal(launch(200000, 65552), CUDA_SUCCESS);
	SCRIPT_SAID("launch 3001 65552:20");
}

static void the_device_has_128_pieces(void **state)
{
	script_query[20] = CUDA_ERROR_NOT_READY;
	assert_int_equal(launch(200, 1), CUDA_SUCCESS);
	assert_int_equal(q.run->pieces.number, 128);
	device_stores(1);
	(void)step(true, false);
	assert_int_equal(q.run->pieces.number, 129);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, rig_set_up, rig_tear_down)
		T(pieces_are_submitted_ahead_of_the_end), T(short_pieces_are_submitted_earlier),
		T(small_remainders_are_included),	  T(the_device_has_a_budget_of_blocks),
		T(a_large_piece_may_wait_behind_one),	  T(the_device_has_128_pieces),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
