/* Which kernels that were found hung are reported: those that wait for blocks of higher index, and
 * none whose blocks are merely long. */
#include "hang_rig.h"

#define FINE (100 * US)
#define UNSEEN (60 * S)

static unsigned hung;

static void on_hung(void *arg, CUfunction clone)
{
	hung++;
}

/* One launch that is interrupted. Times of the device: when its blocks end by themselves, since the
 * counter was taken; and since the missing blocks were launched, when these could begin, when they
 * have ended, and when the others end because of that. */
struct hang {
	uint64_t alone_ns, begin_ns, bypass_ns, freed_ns;
	uint64_t block_ns; /* learned */
	uint64_t id;
	uint64_t blind_ns; /* the host does not look for so long after the bypass launch */
	bool none;	   /* no block has begun */
};

static struct gpu_block_launch launch_of(const struct hang *h)
{
	struct gpu_block_launch l = rig_launch(48, 0);

	l.id = h->id;
	l.block_ns = h->block_ns;
	l.resident = 16;
	return l;
}

static void launch_and_take(const struct hang *h)
{
	struct gpu_block_launch l = launch_of(h);

	if (!gpu_run_busy(d, &q)) {
		assert_int_equal(gpu_run_launch(d, &q, &l), CUDA_SUCCESS);
	}
	if (h->none) { /* submitted to an empty stream */
		interrupted_at(q.run->list.ticket - 48 - FIRST, false);
		script_query[20] = CUDA_ERROR_NOT_READY;
		(void)step(true, false);
	} else {
		*device_counter() += 16;
	}
	script_query[20] = CUDA_ERROR_NOT_READY;
	script_log[0] = 0;
	(void)steps_until_taken();
	device_takes();
	(void)step(true, false);
	assert_int_equal(run_state(), GPU_RUN_WATCHING);
}

/* Both streams after the bypass launch at time `begin`; `end` is when the blocks end by themselves.
 */
static void play_bypass(const struct hang *h, uint64_t begin, uint64_t end)
{
	uint64_t freed = begin + h->freed_ns;

	now_ns += h->blind_ns;
	while (run_state() == GPU_RUN_BYPASS) {
		if (now_ns >= begin + h->begin_ns) {
			device_beats();
		}
		script_query[20] = now_ns >= MIN(freed, end) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
		script_query[2] =
			now_ns >= begin + h->bypass_ns ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
		(void)step(true, false);
		now_ns += FINE;
	}
}

/* Returns how long the stream was watched before the bypass launch, 0 if there was none. */
static uint64_t interrupt(const struct hang *h)
{
	uint64_t begin, end, watched = 0;
	struct gpu_run_counts before, after;

	gpu_run_counts(d, &before);
	launch_and_take(h);
	begin = now_ns;
	end = begin + h->alone_ns;
	while (run_state() == GPU_RUN_WATCHING) {
		now_ns += MS;
		script_query[20] = now_ns >= end ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
		(void)step(true, false);
	}
	gpu_run_counts(d, &after);
	if (after.hung != before.hung) {
		watched = now_ns - begin;
		play_bypass(h, now_ns, end);
	}
	while (run_state() != GPU_RUN_ACTIVE) {
		script_query[20] = CUDA_SUCCESS;
		(void)step(true, false);
	}
	if (gpu_run_busy(d, &q) && !watched) { /* the missing blocks run */
		(void)step(true, false);
		*device_counter() = q.run->list.ticket;
		device_stores(q.run->pieces.number);
		(void)step(true, false);
		assert_int_equal(gpu_run_busy(d, &q), 0);
	}
	return watched;
}

static int set_up(void **state)
{
	int r = rig_set_up(state);

	hung = 0;
	gpu_run_on_hung(d, on_hung, NULL);
	return r;
}

/* ---- */

static const struct hang waits = {
	.alone_ns = UNSEEN, .begin_ns = FINE, .bypass_ns = 5 * FINE, .freed_ns = 6 * FINE, .id = 1
};

static void a_kernel_that_waits_is_reported_the_third_time(void **state)
{
	uint64_t watched = 0;

	for (unsigned i = 0; i < 3; i++) {
		assert_int_equal(hung, 0);
		watched += interrupt(&waits);
	}
	assert_int_equal(hung, 1);
	assert_true(watched >= 300 * MS && watched <= 306 * MS);
	(void)interrupt(&waits);
	assert_int_equal(hung, 1);
}

/* Both launches of a run hang. */
static void launches_of_one_run_count(void **state)
{
	struct gpu_block_launch l = launch_of(&waits);

	(void)interrupt(&waits);
	assert_int_equal(gpu_run_launch(d, &q, &l), CUDA_SUCCESS);
	assert_int_equal(gpu_run_launch(d, &q, &l), CUDA_SUCCESS);
	(void)interrupt(&waits);
	assert_int_equal(hung, 0);
	assert_int_equal(gpu_run_busy(d, &q), 1);
	(void)interrupt(&waits);
	assert_int_equal(hung, 1);
}

/* Each block takes the same: the missing ones, too. Or only those take long that have begun. */
static void long_blocks_of_one_duration_are_never_reported(void **state)
{
	for (uint64_t ms = 20; ms < 1500; ms += ms / 13 + 1) {
		for (unsigned alike = 0; alike < 2; alike++) {
			struct hang h = { .alone_ns = ms * MS,
					  .begin_ns = FINE,
					  .bypass_ns = (alike ? ms * MS : 0) + 5 * FINE,
					  .freed_ns = UNSEEN,
					  .id = 2 * ms + alike };

			for (unsigned i = 0; i < 8; i++) {
				(void)interrupt(&h);
			}
		}
	}
	assert_int_equal(hung, 0);
}

/* The same where the host knows a block's duration, but some take much longer. */
static void long_blocks_among_short_ones_are_never_reported(void **state)
{
	uint64_t rng = 1;

	for (uint64_t ms = 1; ms < 200; ms += ms / 3 + 1) {
		struct hang h = { .begin_ns = FINE,
				  .bypass_ns = ms * MS,
				  .freed_ns = UNSEEN,
				  .block_ns = ms * MS,
				  .id = ms };

		for (unsigned i = 0; i < 60; i++) {
			rng = rng * UINT64_C(6364136223846793005) + 1442695040888963407;
			h.alone_ns = (rng >> 33) % (20 * ms * MS);
			(void)interrupt(&h);
		}
	}
	assert_int_equal(hung, 0);
}

/* Blocks of any duration, which the host has not learned. */
static void blocks_of_random_duration_are_never_reported(void **state)
{
	struct hang h = { .begin_ns = FINE, .bypass_ns = 5 * FINE, .freed_ns = UNSEEN, .id = 7 };
	uint64_t rng = 1;

	for (unsigned i = 0; i < 1000; i++) {
		rng = rng * UINT64_C(6364136223846793005) + 1442695040888963407;
		h.alone_ns = 20 * MS + (rng >> 33) % (800 * MS);
		(void)interrupt(&h);
	}
	assert_int_equal(hung, 0);
}

/* The stream ends in the time in which the missing blocks do not get to the device. */
static void an_end_before_the_missing_blocks_began_does_not_count(void **state)
{
	struct hang h = {
		.alone_ns = UNSEEN, .begin_ns = 4 * MS, .bypass_ns = 5 * MS, .freed_ns = MS, .id = 1
	};

	for (unsigned i = 0; i < 6; i++) {
		(void)interrupt(&h);
	}
	assert_int_equal(hung, 0);
	assert_true(q.run->strike.score < 0);
}

/* The missing blocks get to the device late: that is no time in which they had an effect. */
static void missing_blocks_may_begin_late(void **state)
{
	struct hang h = waits;

	h.begin_ns += 300 * MS;
	h.bypass_ns += 300 * MS;
	h.freed_ns += 300 * MS;
	for (unsigned i = 0; i < 3; i++) {
		(void)interrupt(&h);
	}
	assert_int_equal(hung, 1);
}

/* Where the host looks late it cannot tell: neither for nor against. */
static void a_late_look_does_not_count(void **state)
{
	struct hang h = waits;

	h.blind_ns = 40 * MS;
	for (unsigned i = 0; i < 5; i++) {
		(void)interrupt(&h);
	}
	assert_int_equal(hung, 0);
	for (unsigned i = 0; i < 3; i++) {
		(void)interrupt(&waits);
	}
	assert_int_equal(hung, 1);
}

/* Behind what it waits for the kernel does as much as its blocks are known to take. */
static void work_behind_the_wait_may_take_a_blocks_time(void **state)
{
	struct hang h = waits;

	h.block_ns = 30 * MS;
	h.bypass_ns = 30 * MS;
	h.freed_ns = 31 * MS;
	for (unsigned i = 0; i < 3; i++) {
		(void)interrupt(&h);
	}
	assert_int_equal(hung, 1);
}

/* Where that is not known, longer watching tells. */
static void unknown_work_behind_the_wait_takes_longer_to_find(void **state)
{
	struct hang h = waits;

	h.bypass_ns = h.freed_ns = 40 * MS;
	for (unsigned i = 0; i < 7; i++) {
		assert_int_equal(hung, 0);
		(void)interrupt(&h);
	}
	assert_int_equal(hung, 1);
}

/* The blocks that were missing are long themselves. */
static void long_missing_blocks_take_longer_watching(void **state)
{
	struct hang h = waits;

	h.bypass_ns = 80 * MS;
	for (unsigned i = 0; i < 2; i++) {
		(void)interrupt(&h);
	}
	assert_int_equal(hung, 0);
	assert_true(interrupt(&h) >= 320 * MS);
	assert_int_equal(hung, 0);
	assert_true(interrupt(&h) >= 480 * MS);
	assert_int_equal(hung, 1);
}

/* A kernel that has ended by itself after a long time is watched for longer, and needs more. */
static void an_end_without_help_weighs_more(void **state)
{
	struct hang alone = { .alone_ns = 90 * MS, .id = 1 };

	assert_int_equal(interrupt(&alone), 0);
	for (unsigned i = 0; i < 5; i++) {
		assert_true(interrupt(&waits) >= 288 * MS);
	}
	assert_int_equal(hung, 0);
	(void)interrupt(&waits);
	assert_int_equal(hung, 1);
}

/* An interruption like any other: the device was busy for a moment. */
static void an_early_end_does_not_count(void **state)
{
	struct hang alone = { .alone_ns = 30 * MS, .id = 1 };

	for (unsigned i = 0; i < 3; i++) {
		assert_int_equal(interrupt(&alone), 0);
		(void)interrupt(&waits);
	}
	assert_int_equal(hung, 1);
}

/* Something else was in the way of a launch of which no block has begun. */
static void a_launch_that_has_not_begun_does_not_count(void **state)
{
	struct hang h = waits;

	h.none = true;
	for (unsigned i = 0; i < 4; i++) {
		assert_true(interrupt(&h) >= 100 * MS);
	}
	assert_int_equal(hung, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, set_up, rig_tear_down)
		T(a_kernel_that_waits_is_reported_the_third_time),
		T(launches_of_one_run_count),
		T(long_blocks_of_one_duration_are_never_reported),
		T(long_blocks_among_short_ones_are_never_reported),
		T(blocks_of_random_duration_are_never_reported),
		T(an_end_before_the_missing_blocks_began_does_not_count),
		T(missing_blocks_may_begin_late),
		T(a_late_look_does_not_count),
		T(work_behind_the_wait_may_take_a_blocks_time),
		T(unknown_work_behind_the_wait_takes_longer_to_find),
		T(long_missing_blocks_take_longer_watching),
		T(an_end_without_help_weighs_more),
		T(an_early_end_does_not_count),
		T(a_launch_that_has_not_begun_does_not_count),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
