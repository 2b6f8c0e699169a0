/* What a run learns from the times at which it sees pieces end: estimates of ends, the pace of
 * blocks, durations of launches, and the size of pieces, each by its figures. */
#include "run_rig.h"

#include <stdlib.h>

static struct gpu_run *run;

static int set_up(void **state)
{
	run = calloc(1, sizeof(*run));
	run->list.head = 2;
	run->list.entry[0] = (struct gpu_run_entry){
		.id = 1, .total = 100, .covered = 100, .resident = 16, .first = 1000
	};
	run->list.entry[1] = (struct gpu_run_entry){
		.id = 1, .total = 100, .covered = 100, .resident = 16, .first = 1100
	};
	run->pieces.head = 2;
	run->pieces.piece[0] =
		(struct gpu_run_piece){ .entry = 0, .blocks = 100, .est_ns = 100 * US };
	run->pieces.piece[1] =
		(struct gpu_run_piece){ .entry = 1, .blocks = 100, .est_ns = 50 * US };
	run->pieces.est_ns = 150 * US;
	run->pieces.front_ns = 1000 * US;
	return 0;
}

static int tear_down(void **state)
{
	free(run);
	return 0;
}

static uint64_t end_of(uint32_t upto, uint64_t from_us, uint64_t to_us)
{
	const struct gpu_run_interval end = { from_us * US, to_us * US };

	return gpu_run_estimate_end(run, upto, &end) / US;
}

static void the_expected_end_is_kept_within_what_was_seen(void **state)
{
	assert_int_equal(end_of(1, 1050, 1120), 1100);
	assert_int_equal(end_of(1, 1050, 1080), 1080);
	assert_int_equal(end_of(1, 1120, 1130), 1120);
	assert_int_equal(end_of(1, 1050, 1200), 1150); /* the next one has not ended */
	assert_int_equal(end_of(2, 1050, 1200), 1150);
	assert_int_equal(end_of(2, 1050, 1120), 1120);
	run->pieces.piece[1].est_ns = 0;
	assert_int_equal(end_of(1, 1050, 1200), 1100); /* nothing is known of the next one */
	assert_int_equal(end_of(2, 1050, 1200), 1125); /* of one of them: the middle */
	run->pieces.piece[1].est_ns = 2000 * US;
	assert_int_equal(end_of(1, 1050, 1200), 1100);
	/* the number says that the last wave has begun: 16 blocks of 1 us each */
	run->list.entry[0].block_ps = 1000000;
	run->pieces.from_idle = true;
	assert_int_equal(end_of(1, 1050, 1120), 1084);
	run->pieces.piece[0].est_ns = 10 * US; /* less than a wave */
	assert_int_equal(end_of(1, 900, 1120), 1000);
}

static void midpoints_are_between(void **state)
{
	assert_int_equal(gpu_run_midpoint(100, 200), 150);
	assert_int_equal(gpu_run_midpoint(100, 203), 152);
	assert_int_equal(gpu_run_midpoint(200, 200), 200);
	assert_int_equal(gpu_run_midpoint(300, 200), 200);
}

static void a_stopped_piece_teaches_its_duration(void **state)
{
	struct gpu_run_entry *l = &run->list.entry[0];

	run->halt.empty_ns = 1200 * US;
	gpu_run_learn_stopped(run, 1000); /* no block of it ran */
	gpu_run_learn_stopped(run, 1101); /* impossible */
	assert_int_equal(l->used_ns + l->ran, 0);
	gpu_run_learn_stopped(run, 1050);
	assert_int_equal(l->used_ns, 200 * US);
	assert_int_equal(l->ran, 50);
	gpu_run_learn_stopped(run, 1100); /* all of them */
	assert_int_equal(l->used_ns, 400 * US);
	assert_int_equal(l->ran, 150);
	/* a request was seen: only what had begun went on for a wave, at the pace until then */
	l->used_ns = l->ran = 0;
	run->halt.request_ns = 1100 * US;
	gpu_run_learn_stopped(run, 1050); /* 2 us a block, 16 at once */
	assert_int_equal(l->used_ns, 132 * US);
	l->used_ns = 0;
	l->block_ps = 1000000;
	gpu_run_learn_stopped(run, 1050);
	assert_int_equal(l->used_ns, 116 * US);
	l->used_ns = 0;
	run->halt.empty_ns = 1110 * US;
	gpu_run_learn_stopped(run, 1050);
	assert_int_equal(l->used_ns, 110 * US);
	l->used_ns = 0;
	run->halt.request_ns = 1000 * US; /* before the piece began */
	gpu_run_learn_stopped(run, 1050);
	assert_int_equal(l->used_ns, 110 * US);
	l->used_ns = l->ran = 0;
	run->halt.empty_ns = 1000 * US;
	gpu_run_learn_stopped(run, 1050);
	assert_int_equal(l->used_ns + l->ran, 0);
	run->halt.empty_ns = 1200 * US;
	run->pieces.piece[0].start = 20; /* of a later piece of the launch */
	gpu_run_learn_stopped(run, 1050);
	assert_int_equal(l->ran, 30);
	run->pieces.tail = 2;
	gpu_run_learn_stopped(run, 1150);
	assert_int_equal(l->ran, 30);
}

static void durations_are_extrapolated(void **state)
{
	struct gpu_run_entry *l = &run->list.entry[0];

	run->seen.finished = 70;
	gpu_run_store_duration(run, l);
	assert_int_equal(run->seen.took[7], 71);
	l->used_ns = 30 * US;
	l->ran = 25;
	gpu_run_store_duration(run, l);
	assert_true(run->seen.took[7] == (120 * US << 16 | 71));
	l->used_ns = 20 * S;
	gpu_run_store_duration(run, l); /* 60 s at most */
	assert_true(run->seen.took[7] == (60 * S << 16 | 71));
	run->seen.finished = 65535;
	l->used_ns = 30 * US;
	gpu_run_store_duration(run, l);
	assert_true(run->seen.took[0] == 120 * US << 16);
}

static void learn(uint32_t upto, uint32_t blocks, uint64_t end_us, uint64_t from_us, uint64_t to_us)
{
	const struct gpu_run_interval end = { from_us * US, to_us * US };

	gpu_run_learn(run, upto, blocks, end_us * US, &end);
}

/* From idle, the number says that the 84 blocks before the last wave of 16 have ended: between 84
 * and 168 us. Of 100 blocks the six whole waves, 96, count for the lower bound. */
static void the_first_pace_is_the_middle_of_its_bounds(void **state)
{
	run->pieces.from_idle = true;
	learn(1, 100, 1100, 1096, 1192);
	assert_int_equal(run->pace.block_ps, 1500000);
	assert_int_equal(run->list.entry[0].block_ps, 1500000);
	assert_int_equal(run->pace.clone_id, 1);
	/* also of the pieces on the device */
	assert_int_equal(run->pieces.piece[0].est_ns, 150 * US);
	assert_int_equal(run->pieces.piece[1].est_ns, 150 * US);
	assert_int_equal(run->pieces.est_ns, 300 * US);
	assert_int_equal(run->list.entry[0].used_ns, 100 * US);
	assert_int_equal(run->list.entry[0].ran, 84);
	assert_true(run->pace.mark.from == 1096 * US && run->pace.mark.to == 1192 * US);
	assert_int_equal(run->pace.mark_blocks, 0);
}

static void other_clones_keep_their_estimates(void **state)
{
	run->list.entry[1].id = 2;
	run->pieces.from_idle = true;
	learn(1, 100, 1100, 1096, 1192);
	assert_int_equal(run->pieces.piece[1].est_ns, 50 * US);
	assert_int_equal(run->pieces.est_ns, 200 * US);
	assert_int_equal(gpu_run_pace_of(run, &run->list.entry[1]), 0);
	run->list.entry[1].block_ps = 77;
	assert_int_equal(gpu_run_pace_of(run, &run->list.entry[1]), 77);
	run->list.entry[1].id = 1;
	assert_int_equal(gpu_run_pace_of(run, &run->list.entry[1]), 1500000);
	/* pieces of two clones that end together teach nothing */
	run->list.entry[1].id = 2;
	run->pace.mark.to = 5;
	learn(2, 200, 1300, 1290, 1300);
	assert_int_equal(run->pace.block_ps, 1500000);
	assert_int_equal(run->pace.mark.to, 0);
}

/* A known pace changes only as far as the bounds demand. */
static void a_known_pace_moves_to_its_bounds(void **state)
{
	static const struct {
		uint64_t from, to, want;
	} cases[] = {
		{ 1050, 1150, 1000000 }, /* [34 / 96, 150 / 84]: allowed */
		{ 1112, 1150, 1000000 }, /* [96 / 96, ...] */
		{ 1208, 1300, 2000000 }, /* [192 / 96, ...]: slower */
		{ 1010, 1042, 500000 },	 /* [0, 42 / 84]: faster */
		{ 1000, 1084, 1000000 }, /* [0, 84 / 84] */
	};

	for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		tear_down(state);
		set_up(state);
		run->list.entry[0].block_ps = 1000000;
		run->pieces.from_idle = true;
		learn(1, 100, cases[i].to, cases[i].from, cases[i].to);
		assert_int_equal(run->pace.block_ps ? run->pace.block_ps
						    : run->list.entry[0].block_ps,
				 cases[i].want);
	}
}

static void a_launch_takes_over_the_pace_of_its_clone(void **state)
{
	run->pace.clone_id = 1;
	run->pace.block_ps = 1000000;
	run->pieces.from_idle = true;
	learn(1, 100, 1100, 1050, 1150); /* allowed as it is */
	assert_int_equal(run->pace.block_ps, 1000000);
	assert_int_equal(run->list.entry[0].block_ps, 1000000);
}

/* Without a pause all blocks between two numbers count; the stretch since the mark is measured as
 * long as it makes the bounds closer. */
static void the_stretch_since_the_mark_is_measured(void **state)
{
	run->pace.clone_id = 1;
	run->pace.block_ps = 1000000;
	run->pace.front = (struct gpu_run_interval){ 1000 * US, 1010 * US };
	learn(1, 100, 1200, 1210, 1220); /* [200 / 100, 220 / 100] */
	assert_int_equal(run->pace.block_ps, 2000000);
	assert_true(run->pace.mark.from == 1210 * US); /* the first mark */
	run->pieces.tail = 1;
	run->pieces.front_ns = 1215 * US;
	learn(2, 100, 1425, 1420, 1430); /* [200 / 100, 220 / 100] */
	assert_int_equal(run->pace.block_ps, 2000000);
	/* 20 + ... us of 220: the bounds may become closer yet */
	assert_true(run->pace.mark.from == 1210 * US);
	assert_int_equal(run->pace.mark_blocks, 100);
	run->pieces.tail = 0;
	learn(1, 100, 1560, 1550, 1560); /* 200 blocks in [330, 350] us: [1.65, 1.75] */
	assert_int_equal(run->pace.block_ps, 1750000);
	assert_true(run->pace.mark.from == 1550 * US); /* 20 of 350 are close enough */
	assert_int_equal(run->pace.mark_blocks, 0);
}

/* The size of a piece from the blocks at once and the time of one, ps (over all). */
static void pieces_have_whole_waves(void **state)
{
	static const struct {
		uint32_t resident;
		uint64_t ps;
		uint32_t want;
	} cases[] = {
		{ 0, 0, 16384 },       { 0, 1000, 16384 },	{ 100, 0, 16300 },
		{ 16384, 0, 65536 },			      /* 24 waves, 65536 at most */
		{ 1000, 0, 24000 },    { 100000, 0, 100000 }, /* a wave at least */
		{ 100, 100000, 8300 }, { 100, 10000000, 2400 }, { 100, 1000000, 5000 },
		{ 100, 1000, 16300 },  { 10, 20000, 12000 }, /* 240 us */
	};

	for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		uint32_t got = gpu_run_piece_blocks(cases[i].resident, cases[i].ps);

		if (got != cases[i].want) {
			fail_msg("%u %u: %u", cases[i].resident, (unsigned)cases[i].ps, got);
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
		T(the_expected_end_is_kept_within_what_was_seen),
		T(midpoints_are_between),
		T(a_stopped_piece_teaches_its_duration),
		T(durations_are_extrapolated),
		T(the_first_pace_is_the_middle_of_its_bounds),
		T(other_clones_keep_their_estimates),
		T(a_known_pace_moves_to_its_bounds),
		T(a_launch_takes_over_the_pace_of_its_clone),
		T(the_stretch_since_the_mark_is_measured),
		T(pieces_have_whole_waves),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
