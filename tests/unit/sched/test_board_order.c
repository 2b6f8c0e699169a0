/* No lost wake, checked at every instruction: the owner of a board closes it, and a process that
 * read the board at any point of that, in any combination of points, is woken or does not sleep.
 * docs/SCHEDULING.md, "No lost wakeup", is the argument. */
#include "lease_rig.h"

#include "../single_step.h"
#include "daemon/sealed_page.h"

/* The board as it is after each instruction of the owner. */
struct look {
	uint32_t open, seq;
};
struct history {
	struct look at[STEPS_MAX];
	unsigned n;
	unsigned woke; /* looks before the last wake; 0: there was none */
};

static struct history past;

/* Steps through a piece, at whose begin the child is. */
static void record(pid_t pid, const struct proto_board_gpu *b)
{
	bool wakes = false;

	past.n = past.woke = 0;
	do {
		assert_true(past.n < STEPS_MAX);
		past.woke = wakes ? past.n : past.woke;
		past.at[past.n++] = (struct look){ load_seqcst(&b->open), load_seqcst(&b->seq) };
	} while (step_one(pid, &wakes));
}

/* A reader loads seq at one point, open at the same or a later one, and if it is open waits at the
 * same or a later one. It sleeps for ever if seq is still the same then and the last wake is past.
 * Returns the number of pairs of points at which one does. */
static unsigned readers_that_sleep_for_ever(void)
{
	unsigned lost = 0, last_open = 0;

	for (unsigned i = 0; i < past.n; i++) {
		last_open = past.at[i].open ? i : last_open;
	}
	for (unsigned wait = past.woke; wait < past.n; wait++) {
		for (unsigned seq = 0; seq <= MIN(wait, last_open); seq++) {
			lost += past.at[seq].seq == past.at[wait].seq;
		}
	}
	return lost;
}

static void check_close(pid_t pid, const struct proto_board_gpu *b)
{
	assert_true(step_to_mark(pid, true));
	record(pid, b);
	assert_int_equal(past.at[0].open, 1);
	assert_int_equal(past.at[past.n - 1].open, 0);
	assert_int_equal(past.at[past.n - 1].seq, past.at[0].seq + 1);
	assert_int_equal(readers_that_sleep_for_ever(), 0);
	/* one that slept before the first step is woken, after the board shows the end */
	assert_true(past.woke > 0);
	assert_int_equal(past.at[past.woke - 1].open, 0);
	assert_int_equal(past.at[past.woke - 1].seq, past.at[0].seq + 1);
	assert_false(step_to_mark(pid, false)); /* it exits */
}

static void owner_closes(void *arg)
{
	struct one *o = arg;

	one_init(o, true);
	request(o, 30000); /* the agent learns that no close delay is wanted */
	fake_now += 500000;
	go(o->q, &o->fq, &o->l);
	(void)step(o);
	fake_now += 30000;
	fake_finish(&o->fq);
	step_mark();
	sched_synced(o->r.s, o->q);
	step_mark();
}

static void closing_a_request_loses_no_wake(void **state)
{
	struct one *o = step_shared(sizeof(*o));

	assert_non_null(o);
	check_close(step_fork(owner_closes, o), &o->r.own.gpu[0]);
	munmap(o, sizeof(*o));
}

static void owner_stalls(void *arg)
{
	struct one *o = arg;

	one_init(o, true);
	go(o->q, &o->fq, &o->l);
	live_until(o, fake_now + 900000000);
	for (int i = 0; i < 20 && o->r.own.gpu[0].open; i++) {
		fake_now += 10000000;
		step_mark();
		(void)step(o);
		step_mark();
	}
}

static void timing_out_loses_no_wake(void **state)
{
	struct one *o = step_shared(sizeof(*o));
	const struct proto_board_gpu *b = &o->r.own.gpu[0];
	pid_t pid;

	assert_non_null(o);
	pid = step_fork(owner_stalls, o);
	assert_true(step_to_mark(pid, true));
	do {
		record(pid, b);
	} while (load_seqcst(&b->open) && step_to_mark(pid, false));
	assert_int_equal(b->open, 0);
	assert_int_equal(readers_that_sleep_for_ever(), 0);
	assert_true(past.woke > 0);
	step_end(pid);
	munmap(o, sizeof(*o));
}

/* gbpfd closes the board of a tenant that has died. */
static void gbpfd_clears(void *arg)
{
	const struct daemon_page page = { .map = arg, .writable = true };

	step_mark();
	daemon_board_clear(&page);
	step_mark();
}

static void clearing_the_board_of_the_dead_loses_no_wake(void **state)
{
	struct proto_board *b = step_shared(sizeof(*b));
	pid_t pid;

	assert_non_null(b);
	b->gpu[0].open = 1;
	pid = step_fork(gbpfd_clears, b);
	assert_true(step_to_mark(pid, true));
	record(pid, &b->gpu[0]);
	assert_int_equal(past.at[past.n - 1].open, 0);
	assert_int_equal(readers_that_sleep_for_ever(), 0);
	assert_true(past.woke > 0);
	assert_false(step_to_mark(pid, false));
	munmap(b, sizeof(*b));
}

/* ---- the reader ---- */

struct reading {
	struct rig r;
	struct proto_board board;
	uint32_t total, seq;
};

static void read_again_and_again(void *arg)
{
	struct reading *g = arg;

	rig_init(&g->r, GBPF_CLASS_BATCH, 0, 0);
	for (;;) {
		struct sched_decision a = { 0 };
		uint64_t idle, next;

		step_mark();
		g->total = sched_boards_scan(g->r.s, 0, 1000000000, &a, &idle, &next);
		g->seq = a.seq;
		step_mark();
	}
}

/* The owner closes between two instructions of the reader, at each place in turn. */
static void a_reader_never_waits_for_a_close_it_has_missed(void **state)
{
	struct reading *g = step_shared(sizeof(*g));
	struct proto_board_gpu *b = &g->r.other.gpu[0];
	unsigned closed_at = 0, saw_open = 0, saw_closed = 0;
	bool wakes, inside = true;
	pid_t pid;

	assert_non_null(g);
	pid = step_fork(read_again_and_again, g);
	assert_true(step_to_mark(pid, true));
	while (inside) {
		store_seqcst(&b->open, 1u);
		store_seqcst(&b->seq, 5u);
		for (unsigned i = 0; inside && i < closed_at; i++) {
			inside = step_one(pid, &wakes);
		}
		store_seqcst(&b->open, 0u);
		(void)add_acqrel(&b->seq, 1u);
		if (inside) {
			assert_true(step_to_mark(pid, false));
		}
		if (g->total) {
			assert_int_equal(g->seq, 5);
			saw_open++;
		} else {
			saw_closed++;
		}
		closed_at++;
		assert_true(step_to_mark(pid, false));
	}
	assert_true(saw_open > 1);
	assert_true(saw_closed > 1);
	step_end(pid);
	munmap(g, sizeof(*g));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(closing_a_request_loses_no_wake),
		cmocka_unit_test(timing_out_loses_no_wake),
		cmocka_unit_test(clearing_the_board_of_the_dead_loses_no_wake),
		cmocka_unit_test(a_reader_never_waits_for_a_close_it_has_missed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
