/* Open requests of boards and what the driver has seen meanwhile: the samples, the judgement of a
 * window, and the class that follows, in the test's process and against an NVML that it controls.
 * Samples come at random times of the real clock, but count by the clock that the test moves. */
#include "nvml_rig.h"

#include "parts.h"

#include "base/atomic.h"
#include "daemon/idle/idle_boards.h"

static struct parts *p;
static struct part *pacer, *a; /* pacer: always open and at work, to see when samples are taken */

static int begin(void **state)
{
	struct daemon_gpu *g;

	reset();
	nvml->n_processes = 1;
	nvml->process[0] = 10000;
	nvml->samples = 3; /* whatever has a context has worked */
	p = parts_new();
	snprintf(p->d->devices.kind, sizeof(p->d->devices.kind), "soft");
	g = &p->d->devices.d[0];
	g->used = true;
	memset(g->uuid, 1, sizeof(g->uuid));
	if (daemon_job_thread_start(&p->d->control_thread, p->d->loop, 1) < 0 ||
	    daemon_idle_open(p->d) < 0) {
		return -1;
	}
	pacer = parts_add(p, 1, GBPF_CLASS_LATENCY);
	a = parts_add(p, 1000, GBPF_CLASS_LATENCY);
	pacer->board.gpu[0].open = a->board.gpu[0].open = 1;
	daemon_lc_publish(&pacer->s);
	daemon_lc_publish(&a->s);
	return 0;
}

static int finish(void **state)
{
	daemon_idle_close(p->d);
	daemon_job_thread_stop(&p->d->control_thread);
	parts_free(p);
	return 0;
}

/* Moves the clock and waits for a sample. Returns what it added to a's open time. */
static uint64_t sample_after(uint64_t ns)
{
	uint64_t before = a->s.idle.open_ns[0], paced = pacer->s.idle.open_ns[0];

	parts_now += ns;
	while (pacer->s.idle.open_ns[0] == paced) {
		assert_true(sd_event_run(p->d->loop, UINT64_MAX) >= 0);
	}
	return a->s.idle.open_ns[0] - before;
}

/* Lets a window pass in samples of 20 ms, up to its judgement, during which no time passes. */
static void window(void)
{
	unsigned measures = nvml->measures;

	pacer->stats.launches++;
	do { /* its end sets the open time to 0 */
		(void)sample_after(20 * MS);
	} while (pacer->s.idle.open_ns[0]);
	while (load_seqcst(&nvml->measures) == measures || pacer->s.idle.window_ns[0]) {
		assert_true(sd_event_run(p->d->loop, UINT64_MAX) >= 0);
	}
}

static void open_time_is_the_time_between_samples(void **state)
{
	assert_int_equal(sample_after(5 * MS), 5 * MS);
	assert_int_equal(sample_after(20 * MS), 20 * MS);
	assert_int_equal(sample_after(21 * MS), 20 * MS); /* the loop was late */
	a->board.gpu[0].open = 0;
	assert_int_equal(sample_after(5 * MS), 0);
	a->board.gpu[0].next_ns = parts_now + 5 * MS + 1000; /* announced */
	assert_int_equal(sample_after(5 * MS), 5 * MS);
	a->board.gpu[0].next_ns = 0;
	a->board.gpu[1].open = 1; /* a GPU that it does not use */
	assert_int_equal(sample_after(5 * MS), 0);
	a->s.gpu_mask = 3;
	assert_int_equal(sample_after(5 * MS), 0);
	assert_int_equal(a->s.idle.open_ns[1], 5 * MS);
}

static void only_published_boards_of_ordinary_users_are_watched(void **state)
{
	a->s.peer.uid = 0;
	assert_int_equal(sample_after(5 * MS), 0);
	a->s.peer.uid = OWN_USER;
	assert_int_equal(sample_after(5 * MS), 0);
	a->s.peer.uid = 1000;
	a->s.dying = true;
	assert_int_equal(sample_after(5 * MS), 0);
	a->s.dying = false;
	a->s.state = DAEMON_SESSION_WELCOMED;
	assert_int_equal(sample_after(5 * MS), 0);
	a->s.state = DAEMON_SESSION_READY;
	assert_int_equal(sample_after(5 * MS), 5 * MS);
	p->directory.off = 1;
	pacer->s.idle.open_ns[0] = 0;
	a->s.idle.open_ns[0] = 0;
	parts_now += 5 * MS;
	for (unsigned i = 0; i < 3; i++) {
		assert_true(sd_event_run(p->d->loop, UINT64_MAX) >= 0);
	}
	assert_int_equal(a->s.idle.open_ns[0], 0); /* no policy: nothing is held for it */
}

static void an_open_board_without_a_context_owes_its_open_time(void **state)
{
	window();
	assert_in_range(a->s.idle.charge_ns, 230 * MS, 320 * MS);
	assert_false(a->s.idle.has_worked);
	assert_int_equal(pacer->s.idle.charge_ns, 0);
	assert_true(pacer->s.idle.has_worked);
	assert_int_equal(a->s.idle.window_ns[0], 0);
	a->board.gpu[0].open = 0;
	window();
	assert_int_equal(a->s.idle.charge_ns, 0);
}

static void one_that_works_owes_nothing(void **state)
{
	nvml->n_processes = 2;
	nvml->process[1] = 10001;
	window();
	assert_int_equal(a->s.idle.charge_ns, 0);
	assert_true(a->s.idle.has_worked);
	nvml->samples = 0; /* it has a context, but no work */
	window();
	assert_in_range(a->s.idle.charge_ns, 230 * MS, 320 * MS);
	assert_false(a->s.idle.has_worked);
}

/* NVIDIA's own figures are coarse: a process with a context owes a tenth, and only if its board is
 * open for more than nine tenths of the time. */
static void a_coarse_driver_is_believed_less(void **state)
{
	snprintf(p->d->devices.kind, sizeof(p->d->devices.kind), "nvidia");
	nvml->n_processes = 2;
	nvml->process[1] = 10001;
	nvml->samples = 0;
	window();
	assert_in_range(a->s.idle.charge_ns, 23 * MS, 32 * MS);
	a->board.gpu[0].open = 0;
	window();
	assert_int_equal(a->s.idle.charge_ns, 0);
	for (unsigned i = 0; i < 12; i++) { /* half of the time */
		(void)sample_after(10 * MS);
	}
	a->board.gpu[0].open = 1;
	window();
	assert_int_equal(a->s.idle.charge_ns, 0);
	nvml->n_processes = 1; /* without a context it owes all */
	window();
	assert_in_range(a->s.idle.charge_ns, 230 * MS, 320 * MS);
}

/* A GPU that NVML does not know: what the tenant's page claims counts. */
static void claims_count_where_the_driver_cannot_be_asked(void **state)
{
	uint64_t *const claims[] = { &a->stats.launches, &a->stats.copies, &a->stats.memsets,
				     &a->stats.graphs, &a->stats.busy_ns };

	nvml->processes = 1;
	for (unsigned i = 0; i < 4; i++) { /* their sum */
		++*claims[i];
		++*claims[i + 1];
		window();
		assert_int_equal(a->s.idle.charge_ns, 0);
		assert_true(a->s.idle.has_worked);
	}
	window();
	assert_true(a->s.idle.charge_ns >= 230 * MS);
	assert_false(a->s.idle.has_worked);
	nvml->processes = 0;
	nvml->n_processes = 2;
	nvml->process[1] = 10001;
	a->s.peer.pid = 0; /* of another pid namespace */
	++a->stats.launches;
	window();
	assert_true(a->s.idle.has_worked);
}

static void half_a_second_without_work_costs_the_class(void **state)
{
	union proto_message m;
	unsigned fds;

	window(); /* a quarter */
	assert_false(a->s.idle.demoted);
	window();
	assert_true(a->s.idle.demoted);
	assert_int_equal(a->s.class_id, GBPF_CLASS_NORMAL);
	assert_int_equal(a->s.lc.slot, -1);
	assert_int_equal(p->d->counters.idle_demotions, 1);
	assert_int_equal(parts_events(p, "shows open requests but does no work on the GPU"), 1);
	while (parts_message(a, &m, &fds) != PROTO_SET) {
	}
	assert_int_equal(m.set.class_id, GBPF_CLASS_NORMAL);
	assert_int_equal(pacer->s.class_id, GBPF_CLASS_LATENCY);
	window(); /* still watched, and still without work */
	assert_true(a->s.idle.demoted);
	nvml->n_processes = 2; /* it works */
	nvml->process[1] = 10001;
	window();
	assert_false(a->s.idle.demoted);
	assert_int_equal(a->s.class_id, GBPF_CLASS_LATENCY);
	assert_true(a->s.lc.slot >= 0);
	assert_int_equal(p->d->counters.idle_demotions, 1);
}

static void the_budget_is_of_all_processes_of_the_user(void **state)
{
	struct part *b;

	while (!a->s.idle.demoted) {
		window();
	}
	b = parts_add(p, 1000, GBPF_CLASS_LATENCY);
	b->board.gpu[0].open = 1;
	daemon_lc_publish(&b->s);
	(void)sample_after(5 * MS);
	assert_true(b->s.idle.demoted);	  /* at its first sample */
	a->s.class_id = GBPF_CLASS_BATCH; /* chosen meanwhile: it stays */
	nvml->n_processes = 2;
	nvml->process[1] = 10001;
	window();
	assert_false(a->s.idle.demoted);
	assert_int_equal(a->s.class_id, GBPF_CLASS_BATCH);
	assert_true(b->s.idle.demoted);
}

/* A session that shows an open request for 100 ms and ends before it is judged. */
static void show_and_leave(void)
{
	struct part *b = parts_add(p, 1000, GBPF_CLASS_LATENCY);

	b->board.gpu[0].open = 1;
	daemon_lc_publish(&b->s);
	for (unsigned i = 0; i < 5; i++) {
		(void)sample_after(20 * MS);
	}
	daemon_idle_leave(&b->s);
	daemon_lc_withdraw(&b->s);
	b->s.dying = true; /* destroyed */
}

static void sessions_that_end_early_are_charged_too(void **state)
{
	a->board.gpu[0].open = 0;
	for (unsigned i = 0; i < 8; i++) {
		assert_false(a->s.idle.demoted);
		show_and_leave();
		window();
	}
	a->board.gpu[0].open = 1;
	(void)sample_after(5 * MS);
	assert_true(a->s.idle.demoted); /* half a second is spent */
}

static void but_not_beside_one_that_works(void **state)
{
	a->board.gpu[0].open = 0;
	nvml->n_processes = 2;
	nvml->process[1] = 10001;
	for (unsigned i = 0; i < 10; i++) {
		show_and_leave();
		window();
	}
	nvml->n_processes = 1;
	a->board.gpu[0].open = 1;
	window();
	assert_false(a->s.idle.demoted); /* it owes a quarter of a second */
}

int main(void)
{
#define WATCHED(t) cmocka_unit_test_setup_teardown(t, begin, finish)
	const struct CMUnitTest tests[] = {
		WATCHED(open_time_is_the_time_between_samples),
		WATCHED(only_published_boards_of_ordinary_users_are_watched),
		WATCHED(an_open_board_without_a_context_owes_its_open_time),
		WATCHED(one_that_works_owes_nothing),
		WATCHED(a_coarse_driver_is_believed_less),
		WATCHED(claims_count_where_the_driver_cannot_be_asked),
		WATCHED(half_a_second_without_work_costs_the_class),
		WATCHED(the_budget_is_of_all_processes_of_the_user),
		WATCHED(sessions_that_end_early_are_charged_too),
		WATCHED(but_not_beside_one_that_works),
	};

	return cmocka_run_group_tests(tests, make_library, remove_library);
}
