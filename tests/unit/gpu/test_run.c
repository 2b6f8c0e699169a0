/* Resumable runs on a driver in memory, on one thread and the test's clock: every interleaving
 * follows from a seed. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/compiler.h"
#include "fake_driver.h"
#include "gpu/cuda/gpu_run_int.h"
#include "gpu/flag.h"

#define STREAMS 40

/* The flag page that runs read. */
CUdeviceptr gpu_flag_address(const struct gpu_flag *f)
{
	return (uintptr_t)drv_leases;
}

static uint64_t now_ns = 1000000000;

static uint64_t test_clock(void)
{
	now_ns += 300;
	return now_ns;
}

struct testbed {
	struct gpu_device *d;
	uint64_t rng;
	unsigned n;
	struct gpu_queue q[STREAMS];
	struct track track[STREAMS];
	uint32_t ordinal[STREAMS];
	struct {
		CUevent event; /* NULL: no event is recorded */
		uint64_t seq;
		uint32_t ordinal; /* of the operation before it */
		bool pending;
	} mark[STREAMS];
	struct work *all;
	unsigned loads; /* number of times that the clone's handle was reused */
};

static void testbed_init(struct testbed *w, unsigned n, const struct drv_options *o)
{
	memset(w, 0, sizeof(*w));
	clock_set_source(test_clock);
	drv_init(o);
	(void)drv.cuCtxPushCurrent_v2(DRV_CTX);
	w->rng = o->seed * 77 + 1;
	w->n = n;
	assert_int_equal(gpu_device_create(&w->d, &drv), 0);
	for (unsigned i = 0; i < n; i++) {
		w->q[i] = (struct gpu_queue){ .stream = drv_stream(), .ctx = DRV_CTX };
		w->track[i].ordered = true;
	}
	gpu_run_set_flag(w->d, DRV_CTX, (const struct gpu_flag *)(uintptr_t)1, 7);
}

static struct work *new_work(struct testbed *w, unsigned i, uint32_t blocks)
{
	struct work *x = drv_work(&w->track[i], ++w->ordinal[i], blocks);

	x->next = w->all;
	w->all = x;
	return x;
}

static uint32_t pick(struct testbed *w, uint32_t n)
{
	return (uint32_t)(drv_random(&w->rng) % n);
}

static CUresult launch(struct testbed *w, unsigned i, uint32_t blocks, uint32_t piece)
{
	struct work *x = new_work(w, i, blocks);
	struct gpu_block_launch l = drv_clone(&x, piece);
	CUresult e;

	l.id += w->loads;
	e = gpu_run_launch(w->d, &w->q[i], &l);
	if (e) {
		w->all = x->next;
		w->ordinal[i]--;
		free(x);
	}
	return e;
}

static CUresult launch_gate(struct testbed *w, unsigned i, uint32_t blocks, uint32_t wave)
{
	struct work *x = new_work(w, i, blocks);
	struct gpu_block_launch l = drv_gate(&x, wave);

	return gpu_run_launch(w->d, &w->q[i], &l);
}

static void testbed_finish(struct testbed *w)
{
	CUcontext popped;
	struct work *x;

	for (unsigned i = 0; i < w->n; i++) {
		gpu_run_close(w->d, &w->q[i]);
	}
	while ((x = w->all)) {
		w->all = x->next;
		free(x);
	}
	gpu_device_destroy(w->d);
	(void)drv.cuCtxPopCurrent_v2(&popped);
	drv_finish();
	clock_set_source(NULL);
}

static bool all_through(struct testbed *w)
{
	for (unsigned i = 0; i < w->n; i++) {
		if (gpu_run_busy(w->d, &w->q[i])) {
			return false;
		}
	}
	return true;
}

/* Steps all queues and the device until nothing is left. */
static void run_out(struct testbed *w, bool may_run, bool force)
{
	for (unsigned round = 0; !all_through(w) || !drv_idle(); round++) {
		assert_true(round < 200000);
		for (unsigned i = 0; i < w->n; i++) {
			(void)gpu_run_step(w->d, &w->q[i], may_run, force);
		}
		drv_run(40);
		now_ns += 3000;
	}
}

static void check_all(struct testbed *w)
{
	for (struct work *x = w->all; x; x = x->next) {
		assert_int_equal(x->ended, x->blocks);
	}
}

static void lease(uint32_t on)
{
	store_relaxed(&drv_leases[5], on);
}

static uint64_t checked; /* events of runs */

static void record(struct testbed *w, unsigned i)
{
	if (!w->mark[i].event) {
		assert_int_equal(drv.cuEventCreate(&w->mark[i].event, 0), CUDA_SUCCESS);
	}
	w->mark[i].ordinal = w->ordinal[i];
	w->mark[i].pending = true;
	assert_int_equal(gpu_run_record(w->d, &w->q[i], w->mark[i].event, &w->mark[i].seq),
			 CUDA_SUCCESS);
}

/* Checks that the work before an event is done once the event is reported done. */
static void check_event(struct testbed *w, unsigned i)
{
	struct sched_run_progress look;

	(void)gpu_run_look(w->d, &w->q[i], &look);
	if (w->mark[i].pending && look.done >= w->mark[i].seq &&
	    drv.cuEventQuery(w->mark[i].event) == CUDA_SUCCESS) {
		assert_true(load_acquire(&w->track[i].last) >= w->mark[i].ordinal);
		w->mark[i].pending = false;
		checked += w->mark[i].seq != 0;
	}
}

/* kinds: of launches; clones, kernels with an entry stub, or both. */
static enum kinds { CLONES, GATES, BOTH } kinds;

static CUresult launch_any(struct testbed *w, unsigned i)
{
	uint32_t blocks = 1 + pick(w, 200), other = pick(w, 40);

	if (kinds == CLONES || (kinds == BOTH && pick(w, 2))) {
		return launch(w, i, blocks, other);
	}
	return launch_gate(w, i, blocks, other & 1 ? UINT32_MAX : other * 4);
}

/* Runs one random program with random interruptions. */
static uint64_t interruptions, resumed; /* of all programs */

static void program(uint64_t seed, unsigned streams, bool one_connection, unsigned rounds)
{
	struct drv_options o = { .seed = seed, .one_connection = one_connection };
	struct gpu_run_counts counts;
	struct sched_run_progress look;
	struct testbed w;

	testbed_init(&w, streams, &o);
	for (unsigned r = 0; r < rounds; r++) {
		unsigned i = pick(&w, streams);

		check_event(&w, i);
		switch (pick(&w, 9)) {
		case 8:
			(void)gpu_run_look(w.d, &w.q[i], &look);
			if (!look.full && !w.mark[i].pending) {
				record(&w, i);
			}
			break;
		case 0:
		case 1:
			assert_int_equal(gpu_run_look(w.d, &w.q[i], &look), 0);
			if (!look.full) {
				assert_int_equal(launch_any(&w, i), CUDA_SUCCESS);
			}
			break;
		case 2:
			if (!gpu_run_busy(w.d, &w.q[i])) {
				assert_int_equal(
					drv_plain(w.q[i].stream, new_work(&w, i, 1 + pick(&w, 3))),
					CUDA_SUCCESS);
			}
			break;
		case 3:
			lease(pick(&w, 2));
			break;
		case 4:
		case 5:
			(void)gpu_run_step(w.d, &w.q[i], !load_relaxed(&drv_leases[5]),
					   !pick(&w, 30));
			break;
		default:
			drv_run(pick(&w, 120));
			now_ns += pick(&w, 20000);
		}
	}
	lease(0);
	run_out(&w, true, false);
	check_all(&w);
	gpu_run_counts(w.d, &counts);
	interruptions += counts.interruptions;
	resumed += counts.resumed_blocks;
	testbed_finish(&w);
}

static void random_programs_keep_order_and_run_each_block_once(void **state)
{
	unsigned more = getenv("GBPF_LONG") ? 4000 : 36;

	for (unsigned i = 0; i < more; i++) {
		kinds = (enum kinds)(i / 4 % 3);

		static const unsigned streams[] = { 1, 3, 12, 40 };

		program(1000 + i, streams[i % 4], i % 3 == 2, 3000);
	}
	assert_true(checked > more);
	assert_true(interruptions > 10 * more);
	assert_true(resumed > 10 * more);
}

static const struct drv_options plain_options = { .seed = 5 };

/* The last ticket is drawn one block before the end; the next operation may begin then. */
static void it_is_through_when_the_last_block_has_begun(void **state)
{
	struct testbed w;

	testbed_init(&w, 1, &plain_options);
	assert_int_equal(launch(&w, 0, 10, 0), CUDA_SUCCESS);
	assert_true(gpu_run_busy(w.d, &w.q[0]));
	while (gpu_run_busy(w.d, &w.q[0])) {
		assert_int_equal(drv_run(1), 1);
	}
	assert_int_equal(w.all->begun, 10);
	assert_true(w.all->ended < 10);
	assert_int_equal(gpu_run_step(w.d, &w.q[0], true, false), UINT64_MAX);
	run_out(&w, true, false);
	testbed_finish(&w);
}

/* While the lease is up nothing is submitted again; then exactly the missing blocks. */
static void missing_blocks_are_submitted_again(void **state)
{
	struct gpu_run_counts counts;
	struct sched_run_progress look;
	uint64_t before;
	struct testbed w;

	testbed_init(&w, 1, &plain_options);
	assert_int_equal(launch(&w, 0, 100, 0), CUDA_SUCCESS);
	assert_int_equal(launch(&w, 0, 50, 0), CUDA_SUCCESS);
	while (w.all->next->begun < 30) {
		drv_run(1);
	}
	lease(1);
	while (drv_run(100)) {
	}
	before = drv_launches;
	for (int i = 0; i < 100; i++) {
		now_ns += 10000;
		assert_true(gpu_run_step(w.d, &w.q[0], false, false) < UINT64_MAX);
		drv_run(10);
	}
	assert_int_equal(drv_launches, before);
	assert_int_equal(gpu_run_look(w.d, &w.q[0], &look), 0);
	assert_true(look.stopped);
	assert_int_equal(look.interruptions, 1);
	lease(0);
	run_out(&w, true, false);
	check_all(&w);
	gpu_run_counts(w.d, &counts);
	assert_int_equal(counts.resumed_blocks, 120);
	assert_int_equal(counts.launches, 2);
	assert_int_equal(counts.forced, 0);
	testbed_finish(&w);
}

/* Forced without may_run: one piece at a time, which no lease stops. */
static void force_gives_one_piece_each_time(void **state)
{
	struct testbed w;

	testbed_init(&w, 1, &plain_options);
	lease(1);
	assert_int_equal(launch(&w, 0, 100, 20), CUDA_SUCCESS);
	for (unsigned piece = 1; piece <= 5; piece++) {
		struct sched_run_progress look;

		for (int i = 0; i < 50; i++) {
			drv_run(50);
			now_ns += 10000;
			(void)gpu_run_step(w.d, &w.q[0], false, false);
		}
		assert_int_equal(w.all->ended, 20 * (piece - 1));
		(void)gpu_run_look(w.d, &w.q[0], &look);
		assert_true(look.stopped);
		(void)gpu_run_step(w.d, &w.q[0], false, true);
		while (drv_run(100)) {
		}
		assert_int_equal(w.all->ended, 20 * piece);
	}
	assert_int_equal(gpu_run_step(w.d, &w.q[0], false, false), UINT64_MAX);
	testbed_finish(&w);
}

static void both_finish_it_against_all_leases(void **state)
{
	struct testbed w;

	testbed_init(&w, 3, &plain_options);
	lease(1);
	for (unsigned i = 0; i < 9; i++) {
		assert_int_equal(launch(&w, i % 3, 60, 7), CUDA_SUCCESS);
	}
	run_out(&w, true, true);
	check_all(&w);
	testbed_finish(&w);
}

/* Refused at its first submission: an error, and the run is unchanged. */
static void a_refused_launch_leaves_no_trace(void **state)
{
	struct testbed w;

	testbed_init(&w, 1, &plain_options);
	drv_refuse(CUDA_ERROR_INVALID_VALUE, 0);
	assert_int_equal(launch(&w, 0, 10, 0), CUDA_ERROR_INVALID_VALUE);
	assert_false(gpu_run_busy(w.d, &w.q[0]));
	assert_int_equal(launch(&w, 0, 10, 0), CUDA_SUCCESS);
	drv_refuse(CUDA_ERROR_INVALID_VALUE, 0);
	assert_int_equal(launch(&w, 0, 11, 0), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(launch(&w, 0, 12, 0), CUDA_SUCCESS);
	run_out(&w, true, false);
	check_all(&w);
	testbed_finish(&w);
}

/* Refused when submitted again: the next submit returns the error, and the others continue. */
static void a_launch_refused_later_is_an_error_of_the_run(void **state)
{
	struct sched_run_progress look;
	struct testbed w;
	struct work *lost;

	testbed_init(&w, 1, &plain_options);
	assert_int_equal(launch(&w, 0, 10, 0), CUDA_SUCCESS);
	lease(1);
	assert_int_equal(launch(&w, 0, 11, 0), CUDA_SUCCESS);
	lost = w.all;
	assert_int_equal(launch(&w, 0, 12, 0), CUDA_SUCCESS);
	w.all->ordinal--;
	for (int i = 0; i < 20; i++) {
		drv_run(100);
		now_ns += 10000;
		(void)gpu_run_step(w.d, &w.q[0], false, false);
	}
	lease(0);
	drv_refuse(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, 1);
	run_out(&w, true, false);
	assert_int_equal(lost->ended, 0);
	assert_int_equal(w.all->ended, 12);
	assert_int_equal(gpu_run_look(w.d, &w.q[0], &look), CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
	assert_int_equal(gpu_run_look(w.d, &w.q[0], &look), 0);
	assert_int_equal(launch(&w, 0, 5, 0), CUDA_SUCCESS);
	w.all->ordinal--;
	run_out(&w, true, false);
	testbed_finish(&w);
}

static void a_lost_device_ends_the_run_with_its_error(void **state)
{
	struct sched_run_progress look;
	struct testbed w;

	testbed_init(&w, 2, &plain_options);
	assert_int_equal(launch(&w, 0, 100, 9), CUDA_SUCCESS);
	assert_int_equal(launch(&w, 0, 100, 9), CUDA_SUCCESS);
	drv_run(30);
	drv_lose(CUDA_ERROR_ILLEGAL_ADDRESS);
	now_ns += 100000;
	(void)gpu_run_step(w.d, &w.q[0], true, false);
	assert_false(gpu_run_busy(w.d, &w.q[0]));
	assert_int_equal(gpu_run_look(w.d, &w.q[0], &look), CUDA_ERROR_ILLEGAL_ADDRESS);
	assert_int_equal(look.launched, look.done);
	assert_int_equal(launch(&w, 0, 100, 9), CUDA_ERROR_ILLEGAL_ADDRESS);
	testbed_finish(&w);
}

static void it_is_full_after_64_and_waits_for_room_all_the_same(void **state)
{
	struct sched_run_progress look;
	struct testbed w;

	testbed_init(&w, 1, &plain_options);
	lease(1);
	for (unsigned i = 0; i < GPU_RUN_DEPTH; i++) {
		(void)gpu_run_look(w.d, &w.q[0], &look);
		assert_false(look.full);
		assert_int_equal(launch(&w, 0, 1 + i, 0), CUDA_SUCCESS);
	}
	(void)gpu_run_look(w.d, &w.q[0], &look);
	assert_true(look.full);
	lease(0);
	drv_start();
	assert_int_equal(launch(&w, 0, 3, 0), CUDA_SUCCESS);
	drv_stop();
	run_out(&w, true, false);
	check_all(&w);
	testbed_finish(&w);
}

/* A million blocks: at most about the budget waits on the device, by the host's estimate of how
 * many have begun, and the device stays busy. */
/* A caller that launches only while there is room never waits for tickets. */
static void it_is_full_when_half_of_the_tickets_are_out(void **state)
{
	struct sched_run_progress look;
	struct testbed w;

	testbed_init(&w, 1, &plain_options);
	drv_freeze(w.q[0].stream, true);
	for (unsigned i = 0; i < 2; i++) {
		(void)gpu_run_look(w.d, &w.q[0], &look);
		assert_false(look.full);
		assert_int_equal(launch(&w, 0, GPU_RUN_TICKETS_MAX / 2, 0), CUDA_SUCCESS);
	}
	(void)gpu_run_look(w.d, &w.q[0], &look);
	assert_true(look.full);
	assert_int_equal(look.launched - look.done, 2);
	testbed_finish(&w);
}

static void large_grids_are_fed_within_the_budget(void **state)
{
	struct drv_options o = { .seed = 9, .resident = 64 };
	const struct gpu_run_entry *l;
	struct sched_run_progress look;
	struct gpu_run *run;
	uint32_t waiting;
	struct testbed w;

	testbed_init(&w, 1, &o);
	assert_int_equal(launch(&w, 0, 300000, 0), CUDA_SUCCESS);
	run = w.q[0].run;
	assert_int_equal(run->pieces.n_blocks, GPU_RUN_BUDGET_BLOCKS);
	(void)gpu_run_look(w.d, &w.q[0], &look);
	assert_true(look.feeding);
	while (gpu_run_busy(w.d, &w.q[0])) {
		drv_run(5000);
		now_ns += 20000;
		(void)gpu_run_step(w.d, &w.q[0], true, false);
		l = &run->list.entry[run->list.next % GPU_RUN_DEPTH];
		waiting = l->first + l->covered -
			  load_relaxed((uint32_t *)(uintptr_t)run->line.counter);
		assert_true(run->list.next == run->list.head ||
			    waiting <= GPU_RUN_BUDGET_BLOCKS + GPU_RUN_BUDGET_BLOCKS / 4);
		if (pick(&w, 10) == 0) {
			lease(1);
			drv_run(20000);
			lease(0);
		}
	}
	run_out(&w, true, false);
	check_all(&w);
	testbed_finish(&w);
}

/* Whole waves: at least 24 and 240 us, else the number that can be dropped in a quarter of a
 * block's duration. */
static void piece_sizes_follow_learned_durations(void **state)
{
	static const struct {
		uint32_t resident, block_us, blocks;
	} cases[] = {
		{ 0, 0, 16384 },	{ 0, 30, 16384 },
		{ 1056, 0, 25344 },			     /* unknown */
		{ 264, 0, 16368 },	{ 1056, 30, 25344 }, /* 24 waves; 25000 may be dropped */
		{ 264, 30, 24816 },			     /* 94 waves of 30 us */
		{ 1056, 10, 25344 },	{ 2112, 10, 50688 },
		{ 1056, 2, 25344 },	{ 132, 10, 8316 },
		{ 1056, 100, 52800 },	{ 1056, 1000, 25344 }, /* 5 ms; 24 waves */
		{ 200000, 10, 200000 },
	};

	for (unsigned i = 0; i < ARRAY_SIZE(cases); i++) {
		uint64_t ps = cases[i].resident
				      ? cases[i].block_us * UINT64_C(1000000) / cases[i].resident
				      : cases[i].block_us;
		uint32_t blocks = gpu_run_piece_blocks(cases[i].resident, ps);

		assert_in_range(blocks, cases[i].blocks - cases[i].resident,
				cases[i].blocks + cases[i].resident);
		if (cases[i].resident) {
			assert_int_equal(blocks % cases[i].resident, 0);
		}
	}
	assert_int_equal(gpu_run_piece_blocks(1, UINT64_MAX), 24);
	assert_true(gpu_run_piece_blocks(UINT32_MAX, UINT64_MAX) > 0);
}

/* The next piece of a large grid is submitted shortly before the end of the previous one. */
static void large_pieces_come_when_they_are_needed(void **state)
{
	const struct drv_options o = { .seed = 9, .resident = 256 };
	uint64_t next = 0, dry = 0, two = 0, rounds = 0;
	struct gpu_run *run;
	struct testbed w;

	testbed_init(&w, 1, &o);
	assert_int_equal(launch(&w, 0, 200000, 0), CUDA_SUCCESS);
	run = w.q[0].run;
	while (load_relaxed(&run->seen.n_pending)) {
		if (now_ns >= next) {
			next = now_ns + gpu_run_step(w.d, &w.q[0], true, false) + 10000;
		}
		rounds++;
		two += rounds > 200 && run->pieces.head - run->pieces.tail > 1;
		dry += drv_run(352) < 50; /* waves of 15 us, of 256 blocks */
		now_ns += 9500;
	}
	run_out(&w, true, false);
	check_all(&w);
	assert_true(dry < rounds / 100);
	assert_true(two && two < rounds / 2);
	testbed_finish(&w);
}

/* Tickets and numbers wrap around; a returned line continues at its values. */
static void counters_wrap_and_lines_are_used_again(void **state)
{
	struct gpu_run *run;
	uint32_t ticket;
	struct testbed w;

	testbed_init(&w, 1, &plain_options);
	assert_int_equal(launch(&w, 0, 1, 0), CUDA_SUCCESS);
	run_out(&w, true, false);
	run = w.q[0].run;
	assert_int_equal(gpu_run_step(w.d, &w.q[0], true, false), UINT64_MAX);
	run->list.ticket = 0xfffffff0u;
	*(uint32_t *)(uintptr_t)run->line.counter = 0xfffffff0u;
	*(uint32_t *)(uintptr_t)(run->line.counter + PTX_BLOCK_READY) = 0xfffffff0u;
	run->pieces.number = run->seen.newest = 0xfffffffdu;
	run->line.words[0] = 0xfffffffdu;
	for (unsigned i = 0; i < 30; i++) {
		lease(i % 3 == 1);
		assert_int_equal(launch(&w, 0, 100, 30), CUDA_SUCCESS);
		drv_run(60);
		lease(0);
		(void)gpu_run_step(w.d, &w.q[0], true, false);
		now_ns += 10000;
	}
	run_out(&w, true, false);
	ticket = run->list.ticket;
	assert_int_equal(ticket, 0xfffffff0u + 3000);
	gpu_run_close(w.d, &w.q[0]);
	assert_null(w.q[0].run);
	assert_int_equal(launch(&w, 0, 40, 0), CUDA_SUCCESS);
	assert_int_equal(w.q[0].run->list.entry[0].first, ticket);
	run_out(&w, true, false);
	check_all(&w);
	testbed_finish(&w);
}

/* A lease that no board shows: retries become rarer, and the run continues at once when the lease
 * is cleared. */
static void unsuccessful_retries_become_rarer(void **state)
{
	uint64_t before;
	struct testbed w;

	testbed_init(&w, 1, &plain_options);
	lease(1);
	assert_int_equal(launch(&w, 0, 100, 0), CUDA_SUCCESS);
	before = drv_launches;
	for (int i = 0; i < 4000; i++) { /* 20 ms */
		drv_run(200);
		now_ns += 5000;
		(void)gpu_run_step(w.d, &w.q[0], true, false);
	}
	assert_true(drv_launches - before < 100);
	assert_true(drv_launches - before > 10);
	lease(0);
	run_out(&w, true, false);
	check_all(&w);
	testbed_finish(&w);
}

/* Launches that a run cannot take are refused after the run has finished. */
static void refused_launches_wait_for_the_run(void **state)
{
	struct gpu_block_launch l;
	struct testbed w;
	struct work *x;

	testbed_init(&w, 1, &plain_options);
	assert_int_equal(launch(&w, 0, 50, 0), CUDA_SUCCESS);
	x = w.all;
	l = drv_clone(&x, 0);
	l.grid[1] = l.grid[2] = 65535;
	drv_start();
	assert_int_equal(gpu_run_launch(w.d, &w.q[0], &l), CUDA_ERROR_NOT_SUPPORTED);
	drv_stop();
	assert_false(gpu_run_busy(w.d, &w.q[0]));
	w.q[0].home = &w;
	l = drv_clone(&x, 0);
	assert_int_equal(gpu_run_launch(w.d, &w.q[0], &l), CUDA_ERROR_NOT_SUPPORTED);
	w.q[0].home = NULL;
	run_out(&w, true, false);
	testbed_finish(&w);
}

/* The program has overwritten the counter: an error, not a hang. */
static void an_impossible_counter_ends_the_run(void **state)
{
	struct sched_run_progress look;
	struct testbed w;

	testbed_init(&w, 1, &plain_options);
	lease(1);
	assert_int_equal(launch(&w, 0, 50, 0), CUDA_SUCCESS);
	drv_run(1000);
	*(uint32_t *)(uintptr_t)w.q[0].run->line.counter = 0x7654321;
	for (int i = 0; i < 10; i++) {
		now_ns += 10000;
		(void)gpu_run_step(w.d, &w.q[0], true, false);
		drv_run(100);
	}
	assert_false(gpu_run_busy(w.d, &w.q[0]));
	assert_int_equal(gpu_run_look(w.d, &w.q[0], &look), CUDA_ERROR_ILLEGAL_STATE);
	testbed_finish(&w);
}

/* ---- kernels that wait for later blocks ---- */

static CUfunction hung_clone;

static void on_hung(void *arg, CUfunction clone)
{
	hung_clone = clone;
}

static void step_for(struct testbed *w, uint64_t ns, bool may_run)
{
	for (uint64_t end = now_ns + ns; now_ns < end;) {
		(void)gpu_run_step(w->d, &w->q[0], may_run, false);
		drv_run(100);
		now_ns += 50000;
	}
}

/* Half of the blocks leave, and the others wait for them forever. */
static void hang(struct testbed *w)
{
	struct work *a;

	assert_int_equal(launch(w, 0, 12, 0), CUDA_SUCCESS);
	a = w->all;
	a->barrier = true;
	for (unsigned i = 0; i < 5; i++) {
		assert_int_equal(launch(w, 0, 30, 9), CUDA_SUCCESS);
	}
	drv_run(6);
	assert_int_equal(a->begun, 6);
	lease(1);
	step_for(w, 2000000, false);
	lease(0);
	step_for(w, 15000000, true);
	assert_int_equal(a->begun, 6);
	step_for(w, 150000000, true);
	assert_int_equal(a->ended, 12);
	run_out(w, true, false);
	check_all(w);
}

static void a_kernel_that_waits_for_blocks_that_left_gets_them(void **state)
{
	struct gpu_run_counts counts;
	struct testbed w;

	testbed_init(&w, 1, &plain_options);
	gpu_run_on_hung(w.d, on_hung, NULL);
	hung_clone = NULL;
	hang(&w);
	hang(&w);
	assert_null(hung_clone);
	hang(&w);
	assert_ptr_equal(hung_clone, DRV_CLONE);
	gpu_run_counts(w.d, &counts);
	assert_int_equal(counts.hung, 3);
	gpu_run_close(w.d, &w.q[0]); /* its line is reused */
	assert_int_equal(launch(&w, 0, 12, 0), CUDA_SUCCESS);
	run_out(&w, true, false);
	assert_false(gpu_run_busy(w.d, &w.q[0]));
	check_all(&w);
	testbed_finish(&w);
}

/* Each millisecond has a lease of `up` ns; the rest is looked at each 50 us, or once. */
static void hang_under_leases(uint64_t up, uint64_t rest, unsigned rounds)
{
	struct gpu_run_counts counts;
	struct testbed w;
	struct work *a;

	testbed_init(&w, 1, &plain_options);
	assert_int_equal(launch(&w, 0, 12, 0), CUDA_SUCCESS);
	a = w.all;
	a->barrier = true;
	drv_run(6);
	for (unsigned i = 0; i < rounds; i++) {
		lease(1);
		step_for(&w, up, false);
		lease(0);
		step_for(&w, rest, true);
		assert_true(i > 10 || a->begun == 6);
	}
	assert_int_equal(a->ended, 12);
	gpu_run_counts(w.d, &counts);
	assert_int_equal(counts.hung, 1);
	run_out(&w, true, false);
	check_all(&w);
	testbed_finish(&w);
}

/* No long time without a lease is ever seen. */
static void it_gets_them_while_leases_follow_each_other(void **state)
{
	hang_under_leases(250000, 750000, 200);
	hang_under_leases(950000, 50000, 2000);
}

/* What passes between the last piece and the next one is not time without progress. */
static void a_pause_between_launches_is_no_stall(void **state)
{
	struct testbed w;
	struct gpu_run *run;

	testbed_init(&w, 1, &plain_options);
	assert_int_equal(launch(&w, 0, 12, 0), CUDA_SUCCESS);
	run_out(&w, true, false);
	run = w.q[0].run;
	(void)gpu_run_step(w.d, &w.q[0], true, false);
	assert_int_equal(run->pieces.head, run->pieces.tail);
	gpu_run_bypass_watch(run, true, now_ns);
	now_ns += 1000000000;
	assert_int_equal(launch(&w, 0, 12, 0), CUDA_SUCCESS);
	gpu_run_bypass_watch(run, true, now_ns);
	assert_true(run->hang.calm_ns < 1000000);
	run_out(&w, true, false);
	check_all(&w);
	testbed_finish(&w);
}

/* No time under a lease is taken for a hang, however long the kernel that had begun runs. */
static void blocks_that_run_through_a_lease_are_not_hung(void **state)
{
	struct gpu_run_counts counts;
	struct testbed w;
	struct work *a;

	testbed_init(&w, 1, &plain_options);
	assert_int_equal(launch(&w, 0, 12, 0), CUDA_SUCCESS);
	a = w.all;
	a->barrier = true; /* stands for blocks of a second */
	drv_run(6);
	lease(1);
	step_for(&w, 1000000000, false);
	assert_int_equal(a->begun, 6);
	gpu_run_counts(w.d, &counts);
	assert_int_equal(counts.hung, 0);
	lease(0);
	step_for(&w, 200000000, true);
	assert_int_equal(a->ended, 12);
	run_out(&w, true, false);
	check_all(&w);
	testbed_finish(&w);
}

/* A kernel may get the handle of one that was unloaded. */
static void learned_durations_are_not_used_for_a_reused_handle(void **state)
{
	const struct gpu_run_entry *put;
	struct gpu_block_launch l;
	struct gpu_run *run;
	struct testbed w;
	struct work *x;

	testbed_init(&w, 1, &plain_options);
	gpu_run_on_hung(w.d, on_hung, NULL);
	hung_clone = NULL;
	for (unsigned i = 0; i < 6; i++, w.loads++) {
		hang(&w);
	}
	assert_null(hung_clone);
	run = w.q[0].run;
	assert_true(run->pace.block_ps);
	for (unsigned other = 0; other < 2; other++) {
		put = &run->list.entry[run->list.head % GPU_RUN_DEPTH];
		x = new_work(&w, 0, 10);
		l = drv_clone(&x, 0);
		l.id = run->pace.clone_id + other;
		l.resident = 40;
		l.block_ns = 8000;
		assert_int_equal(gpu_run_launch(w.d, &w.q[0], &l), CUDA_SUCCESS);
		assert_int_equal(put->resident, 40);
		assert_int_equal(put->block_ps, other ? 200000 : run->pace.block_ps);
	}
	testbed_finish(&w);
}

/* Submitted again, it does not get to the device: on the same hardware channel, something waits for
 * it. */
static void blocks_kept_off_the_device_use_the_bypass(void **state)
{
	struct work *a;
	struct testbed w;

	testbed_init(&w, 1, &plain_options);
	assert_int_equal(launch(&w, 0, 40, 0), CUDA_SUCCESS);
	a = w.all;
	assert_int_equal(launch(&w, 0, 30, 0), CUDA_SUCCESS);
	lease(1);
	step_for(&w, 2000000, false);
	lease(0);
	drv_freeze(w.q[0].stream, true);
	step_for(&w, 10000000, true);
	assert_int_equal(a->begun, 0);
	step_for(&w, 600000000, true);
	assert_int_equal(a->ended, 40);
	drv_freeze(w.q[0].stream, false);
	run_out(&w, true, false);
	check_all(&w);
	testbed_finish(&w);
}

/* The same if the lease was not seen: it takes longer. */
static void an_unseen_lease_may_cause_a_hang(void **state)
{
	struct testbed w;
	struct work *a;

	testbed_init(&w, 1, &plain_options);
	assert_int_equal(launch(&w, 0, 12, 0), CUDA_SUCCESS);
	a = w.all;
	a->barrier = true;
	drv_run(6);
	lease(1);
	drv_run(100);
	lease(0);
	step_for(&w, 150000000, true);
	assert_int_equal(a->begun, 6);
	step_for(&w, 250000000, true);
	assert_int_equal(a->ended, 12);
	run_out(&w, true, false);
	testbed_finish(&w);
}

/* Another context has the device for a second: the kernel is not declared hung, and the counter is
 * restored. */
static void a_device_that_is_elsewhere_is_not_taken_for_a_hung_kernel(void **state)
{
	struct gpu_run_counts counts;
	struct testbed w;

	testbed_init(&w, 1, &plain_options);
	for (unsigned i = 0; i < 4; i++) {
		assert_int_equal(launch(&w, 0, 40, 0), CUDA_SUCCESS);
	}
	drv_run(15);
	(void)gpu_run_step(w.d, &w.q[0], false, false);
	for (unsigned i = 0; i < 200; i++) {
		now_ns += 5000000;
		(void)gpu_run_step(w.d, &w.q[0], true, false);
	}
	run_out(&w, true, false);
	check_all(&w);
	gpu_run_counts(w.d, &counts);
	assert_int_equal(counts.hung, 0);
	testbed_finish(&w);
}

/* A false suspicion: blocks that begin late do not run twice, and later work does not begin before
 * their end. */
static void a_wrong_suspicion_does_no_harm(void **state)
{
	for (unsigned begun = 0; begun <= 45; begun += 5) {
		struct testbed w;

		testbed_init(&w, 1, &plain_options);
		assert_int_equal(launch(&w, 0, 20, 7), CUDA_SUCCESS);
		assert_int_equal(launch(&w, 0, 20, 0), CUDA_SUCCESS);
		assert_int_equal(launch(&w, 0, 20, 0), CUDA_SUCCESS);
		drv_run(begun);
		lease(begun % 2);
		(void)gpu_run_step(w.d, &w.q[0], false, false);
		lease(0);
		drv_freeze(w.q[0].stream, true);
		step_for(&w, 40000000 * (1 + begun % 4), true);
		drv_freeze(w.q[0].stream, false);
		assert_int_equal(launch(&w, 0, 20, 0), CUDA_SUCCESS);
		run_out(&w, true, false);
		check_all(&w);
		assert_int_equal(drv_plain(w.q[0].stream, new_work(&w, 0, 3)), CUDA_SUCCESS);
		run_out(&w, true, false);
		check_all(&w);
		testbed_finish(&w);
	}
}

/* 16 blocks of 10 us each, while there are any. */
static void run_for(struct testbed *w, uint64_t us, bool may_run)
{
	for (uint64_t i = 0; i < us; i += 10) {
		drv_run(32);
		now_ns += 10000;
		(void)gpu_run_step(w->d, &w->q[0], may_run, false);
	}
}

/* Every launch is interrupted repeatedly, for longer than it runs; its device time is learned all
 * the same. */
static void durations_of_interrupted_launches_are_learned(void **state)
{
	uint64_t took = 0;
	struct testbed w;

	for (uint64_t at = 100; at < 500; at += 40) {
		testbed_init(&w, 1, &plain_options);
		for (unsigned i = 1; i <= 12; i++) {
			assert_int_equal(launch(&w, 0, 800, 0), CUDA_SUCCESS);
			while (gpu_run_busy(w.d, &w.q[0])) {
				run_for(&w, at, true);
				lease(1);
				run_for(&w, 1000, false);
				lease(0);
			}
			run_for(&w, 20, true);
			took = gpu_run_took(w.d, &w.q[0], i);
			assert_in_range(took, 450000, i == 1 ? 1000000 : 650000);
		}
		assert_int_equal(gpu_run_took(w.d, &w.q[0], 13), 0);
		check_all(&w);
		testbed_finish(&w);
	}
	assert_true(took);
}

/* A late step notices the ends of several launches at once. */
static void launches_that_end_unseen_share_the_time(void **state)
{
	struct testbed w;

	testbed_init(&w, 1, &plain_options);
	for (unsigned i = 1; i <= 40; i++) {
		assert_int_equal(launch(&w, 0, 160, 0), CUDA_SUCCESS);
	}
	while (gpu_run_busy(w.d, &w.q[0])) {
		for (unsigned i = 0; i < 35; i++) {
			drv_run(32);
			now_ns += 10000;
		}
		(void)gpu_run_step(w.d, &w.q[0], true, false);
	}
	for (unsigned i = 10; i <= 30; i++) {
		assert_in_range(gpu_run_took(w.d, &w.q[0], i), 50000, 200000);
	}
	testbed_finish(&w);
}

/* A device of 1056 blocks of 10 us each; the agent steps when requested, 20 us late. Returns steps
 * per ms; *ret_dry: share of the time in which the device had no work. */
static unsigned looks_for(uint32_t blocks, uint64_t ms, unsigned *ret_dry)
{
	const struct drv_options o = { .seed = 9, .resident = 1056 };
	uint64_t begin, next = 0, dry = 0, looks = 0;
	struct sched_run_progress look;
	struct testbed w;

	testbed_init(&w, 1, &o);
	begin = now_ns;
	while (now_ns - begin < ms * 1000000) {
		(void)gpu_run_look(w.d, &w.q[0], &look);
		if (!look.full) {
			assert_int_equal(launch(&w, 0, blocks, 8192), CUDA_SUCCESS);
		}
		if (now_ns >= next) {
			uint64_t ns = gpu_run_step(w.d, &w.q[0], true, false);

			looks += now_ns - begin > 2000000;
			next = now_ns + MIN(ns, UINT64_C(1000000)) + 20000;
		}
		dry += drv_run(2112) < 2000 && now_ns - begin > 2000000;
		now_ns += 9000;
	}
	run_out(&w, true, false);
	check_all(&w);
	testbed_finish(&w);
	*ret_dry = (unsigned)(dry * 1000 / (ms * 100));
	return (unsigned)(looks * 10 / ms);
}

/* A step near every end costs a quarter of a core with kernels of 50 us. */
static void looks_are_few_while_the_device_has_enough_to_do(void **state)
{
	static const uint32_t blocks[] = { 5280, 10560, 60000 };
	unsigned dry;

	for (unsigned i = 0; i < ARRAY_SIZE(blocks); i++) {
		unsigned looks = looks_for(blocks[i], 30, &dry);

		print_message("%u blocks: %u.%u looks a ms, dry %u per mille\n", blocks[i],
			      looks / 10, looks % 10, dry);
		assert_in_range(looks, 1, 110);
		assert_in_range(dry, 0, 20);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(it_is_through_when_the_last_block_has_begun),
		cmocka_unit_test(missing_blocks_are_submitted_again),
		cmocka_unit_test(force_gives_one_piece_each_time),
		cmocka_unit_test(both_finish_it_against_all_leases),
		cmocka_unit_test(a_refused_launch_leaves_no_trace),
		cmocka_unit_test(a_launch_refused_later_is_an_error_of_the_run),
		cmocka_unit_test(a_lost_device_ends_the_run_with_its_error),
		cmocka_unit_test(it_is_full_after_64_and_waits_for_room_all_the_same),
		cmocka_unit_test(it_is_full_when_half_of_the_tickets_are_out),
		cmocka_unit_test(large_grids_are_fed_within_the_budget),
		cmocka_unit_test(piece_sizes_follow_learned_durations),
		cmocka_unit_test(large_pieces_come_when_they_are_needed),
		cmocka_unit_test(counters_wrap_and_lines_are_used_again),
		cmocka_unit_test(unsuccessful_retries_become_rarer),
		cmocka_unit_test(refused_launches_wait_for_the_run),
		cmocka_unit_test(an_impossible_counter_ends_the_run),
		cmocka_unit_test(a_kernel_that_waits_for_blocks_that_left_gets_them),
		cmocka_unit_test(it_gets_them_while_leases_follow_each_other),
		cmocka_unit_test(blocks_that_run_through_a_lease_are_not_hung),
		cmocka_unit_test(a_pause_between_launches_is_no_stall),
		cmocka_unit_test(learned_durations_are_not_used_for_a_reused_handle),
		cmocka_unit_test(blocks_kept_off_the_device_use_the_bypass),
		cmocka_unit_test(an_unseen_lease_may_cause_a_hang),
		cmocka_unit_test(a_device_that_is_elsewhere_is_not_taken_for_a_hung_kernel),
		cmocka_unit_test(a_wrong_suspicion_does_no_harm),
		cmocka_unit_test(durations_of_interrupted_launches_are_learned),
		cmocka_unit_test(looks_are_few_while_the_device_has_enough_to_do),
		cmocka_unit_test(launches_that_end_unseen_share_the_time),
		cmocka_unit_test(random_programs_keep_order_and_run_each_block_once),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
