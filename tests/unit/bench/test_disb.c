/* Figures of `gbpf bench disb`: ratios and their intervals, and what requests met. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <math.h>

#include "bench/disb/disb.h"

static const struct bench_disb_def defs[DISB_CONDITIONS] = {
	{ "rt", "", LANE_OWN, false, false },
	{ "rt-again", "", LANE_OWN, false, true },
	{ "default", "", LANE_OWN, true, false },
	{ "rt-mps", "", LANE_MPS, false, false },
	{ "rt-mps-again", "", LANE_MPS, false, true },
	{ "mps", "", LANE_MPS, true, false },
	{ "gbpf", "", LANE_GBPF, true, false },
	{ "gbpf-shared", "", LANE_GBPF_SHARED, true, false },
};
enum { RT, RT_AGAIN, DEFAULT, RT_MPS, RT_MPS_AGAIN, MPS, GBPF, GBPF_SHARED };

#define REQUESTS 200u

/* A round of a task: requests of 1 to 2 times that long. */
static void add_round(struct bench_disb_condition *c, unsigned task, double us)
{
	struct bench_disb_row *r = &c->row[task];

	r->us = realloc(r->us, (r->n + REQUESTS) * sizeof(double));
	assert_non_null(r->us);
	for (unsigned i = 0; i < REQUESTS; i++) {
		r->us[r->n + i] = us * (1 + (double)i / REQUESTS);
	}
	r->n += REQUESTS;
	r->from[c->rounds + 1] = r->n;
	r->round_mean[c->rounds] = us * 1.5;
	r->round_rate[c->rounds] = REQUESTS;
	r->seconds += 1;
}

static int set_up(void **state)
{
	struct bench_disb *b = calloc(1, sizeof(*b));

	assert_non_null(b);
	for (unsigned i = 0; i < DISB_CONDITIONS; i++) {
		b->condition[i].def = &defs[i];
	}
	*state = b;
	return 0;
}

static int tear_down(void **state)
{
	struct bench_disb *b = *state;

	for (unsigned i = 0; i < DISB_CONDITIONS; i++) {
		for (unsigned k = 0; k < DISB_TASKS; k++) {
			free(b->condition[i].row[k].us);
		}
	}
	free(b);
	return 0;
}

static const struct bench_disb_workload one = { .name = "one",
						.task = { { .rt = true } },
						.tasks = 1 };

/* Rounds differ by three times, the ratio does not: it is sure, because rounds are drawn in pairs.
 */
static void test_rounds_are_drawn_in_pairs(void **state)
{
	struct bench_disb *b = *state;
	struct bench_disb_condition *base = &b->condition[RT], *c = &b->condition[GBPF];
	struct bench_disb_summary s;

	for (unsigned r = 0; r < 3; r++) {
		add_round(base, 0, 1000 * (r + 1));
		add_round(c, 0, 1100 * (r + 1));
		base->rounds++;
		c->rounds++;
	}
	s = bench_disb_summary(b, &one, c);
	assert_int_equal(s.rounds, 3);
	assert_true(fabs(s.mean_ratio - 1.1) < 1e-9);
	assert_true(fabs(s.p99_ratio - 1.1) < 1e-9);
	assert_true(fabs(s.mean_range.low - 1.1) < 1e-9 && fabs(s.mean_range.high - 1.1) < 1e-9);
	assert_true(fabs(s.p99_range.low - 1.1) < 1e-9 && fabs(s.p99_range.high - 1.1) < 1e-9);
}

/* One round of three is slower: the interval says so, and holds the whole. */
static void test_a_round_that_differs_widens_the_interval(void **state)
{
	struct bench_disb *b = *state;
	struct bench_disb_condition *base = &b->condition[RT], *c = &b->condition[GBPF];
	struct bench_disb_summary s;

	for (unsigned r = 0; r < 3; r++) {
		add_round(base, 0, 1000);
		add_round(c, 0, r == 1 ? 1300 : 1000);
		base->rounds++;
		c->rounds++;
	}
	s = bench_disb_summary(b, &one, c);
	assert_true(fabs(s.round_mean_ratio[1] - 1.3) < 1e-9);
	assert_true(fabs(s.mean_ratio - 1.1) < 1e-9);
	assert_true(fabs(s.mean_range.low - 1) < 1e-9 && s.mean_range.high > 1.19);
}

static void test_compared_with_the_same_lane(void **state)
{
	struct bench_disb *b = *state;

	for (unsigned i = 0; i < DISB_CONDITIONS; i++) {
		b->condition[i].rounds = 1;
	}
	assert_ptr_equal(bench_disb_plain(b, &b->condition[GBPF], false), &b->condition[RT]);
	assert_ptr_equal(bench_disb_plain(b, &b->condition[GBPF], true), &b->condition[DEFAULT]);
	assert_ptr_equal(bench_disb_plain(b, &b->condition[GBPF_SHARED], false),
			 &b->condition[RT_MPS]);
	assert_ptr_equal(bench_disb_plain(b, &b->condition[RT_MPS_AGAIN], false),
			 &b->condition[RT_MPS]);
	b->condition[RT_MPS].rounds =
		0; /* then the other lane's, but never what is there to compare */
	assert_ptr_equal(bench_disb_plain(b, &b->condition[GBPF_SHARED], false), &b->condition[RT]);
	b->condition[RT].rounds = 0;
	assert_null(bench_disb_plain(b, &b->condition[GBPF_SHARED], false));
}

static void test_total_share(void **state)
{
	static const struct bench_disb_workload two = { .name = "two",
							.task = { { .rt = true }, { .rt = false } },
							.tasks = 2 };
	struct bench_disb *b = *state;
	struct bench_disb_condition *c[2] = { &b->condition[MPS], &b->condition[GBPF_SHARED] };
	struct bench_disb_summary s;

	for (unsigned i = 0; i < 2; i++) {
		add_round(c[i], 0, 1000);
		add_round(c[i], 1, 1000);
		c[i]->row[1].round_rate[0] = i ? 100 : 300;
		c[i]->rounds = 1;
	}
	s = bench_disb_summary(b, &two, c[1]);
	assert_true(fabs(s.total_share - 300.0 / 500) < 1e-9);
}

static void add_request(struct bench_page *p, uint64_t due_ms, float late_us, float took_us)
{
	p->request[p->samples[0]++] = (struct bench_page_request){ .due_ns = due_ms * 1000000,
								   .late_us = late_us,
								   .first_us = 100,
								   .front_us = 400,
								   .took_us = took_us };
}

/* Task 0 has requests at 10-14 and 30-34 ms. Of task 1 the first and the last meet nobody, the
 * second meets the first of task 0; the third was due before one of task 0, began in it. Batch does
 * not count. */
static void test_what_requests_met(void **state)
{
	static const struct bench_disb_workload w = {
		.name = "w", .task = { { .rt = true }, { .rt = true }, { .rt = false } }, .tasks = 3
	};
	struct bench_testbed_client client[DISB_TASKS] = { { 0 } };
	struct bench_disb *b = *state;
	struct bench_disb_condition *c = &b->condition[GBPF];
	const struct bench_disb_parts *p = c->row[1].parts;

	for (unsigned i = 0; i < 3; i++) {
		client[i].page = calloc(1, sizeof(struct bench_page));
		assert_non_null(client[i].page);
	}
	add_request(client[0].page, 10, 0, 4000);
	add_request(client[0].page, 30, 0, 4000);
	add_request(client[1].page, 5, 0, 1000);
	add_request(client[1].page, 12, 0, 1000);
	add_request(client[1].page, 29, 2000, 1000);
	add_request(client[1].page, 40, 0, 2000);
	add_request(client[2].page, 0, 0, 60000);
	bench_disb_note_parts(&w, c, client);
	assert_int_equal(p[MET_NOBODY].n, 2);
	assert_int_equal(p[MET_OTHERS].n, 2);
	assert_true(fabs(p[MET_NOBODY].took_us - 3000) < 0.1);
	assert_true(fabs(p[MET_OTHERS].us[PART_LATE] - 2000) < 0.1);
	assert_true(fabs(p[MET_NOBODY].us[PART_FIRST] - 200) < 0.1);
	assert_true(fabs(p[MET_NOBODY].us[PART_FRONT] - 600) < 0.1);
	assert_true(fabs(p[MET_NOBODY].us[PART_REST] - 2200) < 0.1);
	assert_int_equal(c->row[0].parts[MET_NOBODY].n, 2);
	assert_int_equal(c->row[2].parts[MET_NOBODY].n + c->row[2].parts[MET_OTHERS].n, 0);
	for (unsigned i = 0; i < 3; i++) {
		free(client[i].page);
	}
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		T(test_rounds_are_drawn_in_pairs),
		T(test_a_round_that_differs_widens_the_interval),
		T(test_compared_with_the_same_lane),
		T(test_total_share),
		T(test_what_requests_met),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
