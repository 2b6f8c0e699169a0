/* Watches: the language of conditions, and automatic rollback. */
#include "harness.h"

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/buf.h"
#include "base/clock.h"
#include "daemon/policy/policy_store.h"
#include "daemon/watch/watch_expr.h"

enum { LATENCY, NORMAL, BATCH };

/* ---- the language ---- */

static void conditions_are_read(void **state)
{
	struct daemon_watch_expr e;
	struct report r;

	(void)state;
	report_init(&r);
	assert_int_equal(daemon_watch_parse(&e,
					    "p99.9[class=latency] > 6ms and (held>=20% or "
					    "notes[3,tenant=web]>1.5k) or launches/s<100",
					    &r),
			 0);
	assert_int_equal(e.n_terms, 4);
	assert_int_equal(e.term[0].metric, DAEMON_WATCH_quantile);
	assert_true(fabs(e.term[0].quantile - 0.999) < 1e-9);
	assert_int_equal(e.term[0].class_id, LATENCY);
	assert_true(fabs(e.term[0].limit - 6e6) < 1);
	assert_string_equal(e.term[0].text, "p99.9[class=latency] > 6ms");
	assert_true(e.term[1].percent && fabs(e.term[1].limit - 0.2) < 1e-9);
	assert_int_equal(e.term[2].note, 3);
	assert_string_equal(e.term[2].tenant, "web");
	assert_true(fabs(e.term[2].limit - 1500) < 1e-9);
	assert_true(e.term[3].per_second);
	assert_int_equal(e.term[3].op, DAEMON_WATCH_LT);
	report_finish(&r);
}

static void and_binds_closer_than_or(void **state)
{
	static const struct {
		double v[3];
		bool holds;
	} rows[] = {
		{ { 2, 0, 0 }, true },	{ { 0, 2, 0 }, false },	      { { 0, 2, 2 }, true },
		{ { 0, 0, 2 }, false }, { { NAN, NAN, NAN }, false }, { { NAN, 2, 2 }, true }
	};
	struct daemon_watch_expr e;
	struct report r;

	(void)state;
	report_init(&r);
	assert_int_equal(daemon_watch_parse(&e, "holds>1 or launches>1 and copies>1", &r), 0);
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		assert_int_equal(daemon_watch_holds(&e, rows[i].v), rows[i].holds);
	}
	assert_int_equal(daemon_watch_parse(&e, "(holds>1 or launches>1) and copies>1", &r), 0);
	assert_false(daemon_watch_holds(&e, rows[0].v));
	report_finish(&r);
}

static void bad_conditions_are_refused_with_the_column(void **state)
{
	static const struct {
		const char *text, *place, *part;
	} rows[] = {
		{ "", "column 1", "missing metric at the end" },
		{ "p99 > 6", "column 8", "missing unit of a time limit" },
		{ "p99>6kg", "column 6", "missing unit of a time limit" },
		{ "p100>1ms", "column 1", "unknown percentile" },
		{ "p0>1ms", "column 1", "unknown percentile" },
		{ "latency>1ms", "column 1", "unknown metric" },
		{ "p99 6ms", "column 5", "expected a comparison" },
		{ "p99>ms", "column 5", "expected a limit" },
		{ "p99>-1ms", "column 5", "expected a limit" },
		{ "p99>6ms and", "column 12", "missing metric at the end" },
		{ "p99>6ms p50>1ms", "column 9", "unexpected text" },
		{ "(p99>6ms", "column 9", ") is missing" },
		{ "p99[class=fast]>6ms", "column 11", "unknown class" },
		{ "p99[class=batch>6ms", "column 16", "] is missing" },
		{ "p99[foo]>6ms", "column 5", "unknown selector" },
		{ "notes>1", "column 6", "note index missing" },
		{ "notes[16]>1", "column 7", "unknown note" },
		{ "holds>5ms", "column 8", "unit does not fit" },
		{ "p99/s>5ms", "column 1", "no rate" },
		{ "holds>0x10", "column 7", "invalid limit" },
		{ "holds>1e999", "column 7", "invalid limit" },
		{ "((((((((((((((((((holds>1", "column 18", "parentheses nested too deeply" },
		{ "holds>1 or holds>1 or holds>1 or holds>1 or holds>1 or holds>1 or holds>1 or "
		  "holds>1 or holds>1",
		  "column 89", "8 comparisons" },
	};
	char longer[DAEMON_WATCH_TEXT + 8];
	struct daemon_watch_expr e;
	struct report r;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		report_init(&r);
		assert_int_equal(daemon_watch_parse(&e, rows[i].text, &r), -EINVAL);
		assert_string_equal(buf_text(&r.place), rows[i].place);
		assert_non_null(strstr(buf_text(&r.message), rows[i].part));
		assert_true(r.hint.len > 0);
		report_finish(&r);
	}
	memset(longer, ' ', sizeof(longer));
	longer[sizeof(longer) - 1] = 0;
	report_init(&r);
	assert_int_equal(daemon_watch_parse(&e, longer, &r), -EINVAL);
	assert_int_equal(daemon_watch_parse(&e, "holds>1\nor", &r), -EINVAL);
	report_finish(&r);
}

/* Any text is valid or refused: a generator with a fixed seed joins valid and invalid parts. */
static void any_text_is_read_or_refused(void **state)
{
	static const char *const parts[] = { "p99",   "p",    "notes", "[",    "]",	 "(",
					     ")",     "and",  "or",    ">",    "<=",	 "6",
					     "ms",    "%",    "/s",    ",",    "class=", "tenant=",
					     "batch", "held", " ",     "\377", ".",	 "-" };
	uint64_t x = 88172645463325252u;
	unsigned read = 0;

	(void)state;
	for (int i = 0; i < 200000; i++) {
		char text[128] = "";
		struct daemon_watch_expr e;
		struct report r;

		for (unsigned n = (unsigned)(x >> 60); n < 18; n++) {
			x ^= x << 13;
			x ^= x >> 7;
			x ^= x << 17;
			strncat(text, parts[x % ARRAY_SIZE(parts)],
				sizeof(text) - strlen(text) - 1);
		}
		report_init(&r);
		if (daemon_watch_parse(&e, text, &r) == 0) {
			double v[DAEMON_WATCH_TERMS] = { 1, NAN, 2 };

			read++;
			daemon_watch_holds(&e, v);
		} else {
			assert_true(r.message.len > 0);
		}
		report_finish(&r);
	}
	(void)read;
}

/* ---- in gbpfd ---- */

static json_t *load(struct gd *d, const char *policy, uint64_t watch_ns, const char *condition)
{
	struct gbpf *g = gd_open(d);
	struct buf elf;
	char *json = NULL;
	json_t *j;

	buf_init(&elf);
	assert_int_equal(buf_read_file(&elf, gd_object(policy), 1 << 20), 0);
	if (gbpf_policy_load_watched(g, elf.data, elf.len, policy, GBPF_LOAD_SWAP, watch_ns,
				     condition, &json) < 0) {
		fail_msg("%s", gbpf_last_error(g)->message);
	}
	j = json_loads(json, 0, NULL);
	free(json);
	buf_finish(&elf);
	gbpf_close(g);
	return j;
}

/* Requests before the swap must not count. */
static void requests(struct fake *f, unsigned n, uint64_t ns)
{
	uint64_t *word = &f->stats->request_hist[proto_hist_bucket(ns)];

	store_relaxed(word, load_relaxed(word) + n);
	store_relaxed(&f->stats->requests, load_relaxed(&f->stats->requests) + n);
}

static json_t *watch_now(struct gd *d, uint64_t version)
{
	char params[48];

	snprintf(params, sizeof(params), "{\"version\":%llu}", (unsigned long long)version);
	return gd_call(d, "policy.watch", params);
}

static bool state_is(struct gd *d, uint64_t version, const char *state)
{
	json_t *j = watch_now(d, version);
	bool is = strcmp(json_string_value(json_object_get(j, "state")), state) == 0;

	json_decref(j);
	return is;
}

static void await_state(struct gd *d, uint64_t version, const char *state)
{
	eventually(state_is(d, version, state));
}

/* Returns the value of a comparison at the last evaluation, or -1 if it is not known. */
static double value_of(struct gd *d, uint64_t version, size_t term)
{
	json_t *j = watch_now(d, version);
	json_t *v = json_object_get(json_array_get(json_object_get(j, "values"), term), "value");
	double value = json_is_real(v) ? json_real_value(v) : -1;

	json_decref(j);
	return value;
}

/* Waits for an evaluation of version 2 that finds this value and does not roll back. */
static void await_value(struct gd *d, const struct fake *f, size_t term, double value)
{
	eventually(value_of(d, 2, term) == value);
	assert_true(state_is(d, 2, "watching"));
	assert_int_equal(load_seqcst(&f->dir->version[0]), 2);
}

/* Gives a watch that has ended the time of two evaluations. It has no state that could be awaited:
 * this shows that nothing happens. */
static void stays(const struct fake *f, uint64_t version)
{
	clock_sleep_ns(250000000);
	assert_int_equal(load_seqcst(&f->dir->version[0]), version);
}

static void prepare_two(struct fake *f, struct gd *d, uint32_t class_id, const char *name)
{
	fake_enter(f, d, class_id, name);
	assert_int_equal(fake_prepare(f, 0), 1);
}

static void a_condition_that_holds_goes_back(void **state)
{
	struct gd *d = *state;
	json_t *j, *watch;
	struct gbpf *g;
	struct fake f;
	uint64_t since;

	json_decref(load(d, "plain", 0, NULL));
	prepare_two(&f, d, LATENCY, "service");
	requests(&f, 1000, 50000000); /* before the swap: not counted */
	j = load(d, "counting", UINT64_C(60000000000),
		 "p99[class=latency]>6ms or requests>1000000");
	watch = json_object_get(j, "watch");
	assert_string_equal(json_string_value(json_object_get(watch, "state")), "watching");
	json_decref(j);
	assert_int_equal(load_seqcst(&f.dir->version[0]), 2);
	since = gd_last_event(d);
	requests(&f, 2000, 1000000);
	requests(&f, 10, 9000000); /* half a percent: p99 is below the limit */
	await_value(d, &f, 1, 2010);
	requests(&f, 40, 9000000);
	await_state(d, 2, "rolled-back");
	assert_int_equal(load_seqcst(&f.dir->version[0]), 1); /* it says so when it is so */
	gd_await_event(d, since, "watch", "'counting' version 2 is rolled back to 1: p99");
	gd_await_event(d, since, "policy", "rollback: 'plain' version 1 is active");
	j = watch_now(d, 2);
	assert_non_null(strstr(json_string_value(json_object_get(j, "reason")), "it was"));
	assert_int_equal(json_integer_value(json_object_get(j, "before")), 1);
	assert_true(json_integer_value(json_object_get(j, "rollback_ns")) > 0);
	json_decref(j);
	/* A rollback that a user orders in addition does not bring the bad version back. */
	g = gd_open(d);
	assert_int_equal(gbpf_policy_rollback(g, 0, NULL), -ENOENT);
	assert_string_equal(gbpf_last_error(g)->message,
			    "no previous version to return to: 'plain' version 1 is "
			    "active and no older one is known; version 2 was rolled back by its "
			    "watch");
	gbpf_close(g);
	assert_int_equal(load_seqcst(&f.dir->version[0]), 1);
	fake_leave(&f);
}

static uint64_t roll_back(struct gd *d)
{
	struct gbpf *g = gd_open(d);

	if (gbpf_policy_rollback(g, 0, NULL) < 0) {
		fail_msg("%s", gbpf_last_error(g)->message);
	}
	gbpf_close(g);
	return (uint64_t)gd_number(d, "policy.list", "active");
}

static void a_rollback_after_that_of_a_watch_finds_the_last_good_version(void **state)
{
	struct gd *d = *state;
	struct fake f;

	json_decref(load(d, "plain", 0, NULL));
	json_decref(load(d, "counting", 0, NULL));
	json_decref(load(d, "plain", UINT64_C(60000000000), "launches>0"));
	fake_enter(&f, d, BATCH, "f");
	assert_int_equal(fake_prepare(&f, 0), 3);
	store_relaxed(&f.stats->launches, UINT64_C(1));
	await_state(d, 3, "rolled-back");
	fake_leave(&f);
	assert_int_equal(roll_back(d), 1);
	assert_int_equal(roll_back(d), 2);
	gd_stop(d); /* the next gbpfd knows, too, which version is not to be chosen */
	assert_int_equal(gd_start(d, NULL), 0);
	assert_int_equal(roll_back(d), 1);
	assert_int_equal(roll_back(d), 2);
}

static void a_watch_says_rolled_back_after_the_flip(void **state)
{
	struct gd *d = *state;
	uint64_t since, event;
	struct fake f;

	json_decref(load(d, "plain", 0, NULL));
	prepare_two(&f, d, BATCH, "f");
	json_decref(load(d, "counting", UINT64_C(60000000000), "launches>0"));
	assert_int_equal(fake_prepare(&f, 0), 2);
	since = gd_last_event(d);
	store_relaxed(&f.stats->launches, UINT64_C(1));
	/* The process has not answered to PREPARE: the flip waits for it. */
	eventually(!state_is(d, 2, "watching"));
	event = gd_await_event(d, since, "watch", "that took ");
	assert_int_equal(load_seqcst(&f.dir->version[0]), 1);
	assert_true(event > since);
	assert_true(state_is(d, 2, "rolled-back"));
	fake_leave(&f);
}

static void a_watch_returns_to_a_version_whose_object_is_lost(void **state)
{
	struct gd *d = *state;
	char path[160];
	struct fake f;

	json_decref(load(d, "plain", 0, NULL));
	prepare_two(&f, d, BATCH, "f");
	json_decref(load(d, "counting", UINT64_C(60000000000), "launches>0"));
	snprintf(path, sizeof(path), "%s/policies/1.bpf.o", d->state);
	assert_int_equal(unlink(path), 0); /* it stays compiled */
	store_relaxed(&f.stats->launches, UINT64_C(1));
	await_state(d, 2, "rolled-back");
	assert_int_equal(load_seqcst(&f.dir->version[0]), 1);
	fake_leave(&f);
}

static bool launches(struct fake *f)
{
	(void)add_relaxed(&f->stats->launches, UINT64_C(1));
	return true;
}

static void a_rollback_that_fails_is_reported(void **state)
{
	struct gd *d = *state;
	char path[160];
	uint64_t since;
	struct fake f;

	json_decref(load(d, "plain", 0, NULL));
	fake_enter(&f, d, BATCH, "f");
	assert_int_equal(fake_prepare(&f, 0), 1);
	json_decref(load(d, "counting", UINT64_C(60000000000), "launches>0"));
	snprintf(path, sizeof(path), "%s/policies/1.bpf.o", d->state);
	assert_int_equal(gd_stop(d), 0); /* the next one reads the object again */
	assert_int_equal(truncate(path, 100), 0);
	assert_int_equal(gd_start(d, NULL), 0);
	fake_reattach(&f, d, 2);
	since = gd_last_event(d);
	eventually(launches(&f) &&
		   !state_is(d, 2, "watching")); /* they count from its first look on */
	gd_await_event(d, since, "watch", "'counting' version 2 could not be rolled back: ");
	assert_true(state_is(d, 2, "ended"));
	assert_int_equal(gd_number(d, "policy.list", "active"), 2);
	fake_leave(&f);
}

/* A policy under which hardly any request ends must be rolled back although fewer than a hundred
 * have ended. */
static void few_requests_that_are_slow_are_enough(void **state)
{
	struct gd *d = *state;
	struct fake f;

	json_decref(load(d, "plain", 0, NULL));
	prepare_two(&f, d, LATENCY, "service");
	json_decref(load(d, "counting", UINT64_C(60000000000), "p99>6ms or requests>1000000"));
	requests(&f, 9, 9000000);
	await_value(d, &f, 1, 9); /* nine: not known yet */
	requests(&f, 4, 9000000);
	await_state(d, 2, "rolled-back");
	fake_leave(&f);
}

static void few_requests_do_not_show_that_a_percentile_is_small(void **state)
{
	struct gd *d = *state;
	uint64_t since = gd_last_event(d);
	struct fake f;

	json_decref(load(d, "plain", 0, NULL));
	prepare_two(&f, d, LATENCY, "service");
	json_decref(load(d, "counting", 300000000, "p99<6ms"));
	requests(&f, 50, 1000000);
	await_state(d, 2, "kept");
	gd_await_event(d, since, "watch", "; not known: p99");
	fake_leave(&f);
}

static void a_watch_whose_time_is_over_keeps_the_version(void **state)
{
	struct gd *d = *state;
	uint64_t since = gd_last_event(d);
	struct fake f;

	json_decref(load(d, "plain", 0, NULL));
	prepare_two(&f, d, LATENCY, "service");
	json_decref(load(d, "counting", 300000000, "p50>1us and requests>5000"));
	requests(&f, 3000, 1000000);
	await_state(d, 2, "kept");
	gd_await_event(d, since, "watch", "'counting' version 2 stays");
	requests(&f, 3000, 1000000); /* too late */
	stays(&f, 2);
	fake_leave(&f);
}

static void a_watch_ends_with_its_version(void **state)
{
	struct gd *d = *state;
	struct fake f;

	json_decref(load(d, "plain", 0, NULL));
	prepare_two(&f, d, BATCH, "worker");
	json_decref(load(d, "counting", UINT64_C(60000000000), "holds>=1"));
	json_decref(load(d, "plain", 0, NULL));
	await_state(d, 2, "ended");
	store_relaxed(&f.stats->holds, UINT64_C(100));
	stays(&f, 3);
	fake_leave(&f);
}

static void tenants_that_left_count_by_class(void **state)
{
	struct gd *d = *state;
	struct fake a, b;

	json_decref(load(d, "plain", 0, NULL));
	prepare_two(&a, d, BATCH, "a");
	prepare_two(&b, d, LATENCY, "b");
	json_decref(load(d, "counting", UINT64_C(60000000000),
			 "launches[class=latency]>10 or launches[class=batch]>=100"));
	store_relaxed(&b.stats->launches, UINT64_C(10));
	store_relaxed(&a.stats->launches, UINT64_C(60));
	fake_leave(&a);
	gd_await_event(d, 0, "detach", "a (pid");
	await_value(d, &b, 0, 10);
	await_value(d, &b, 1, 60);
	fake_enter(&a, d, BATCH, "a");
	store_relaxed(&a.stats->launches, UINT64_C(40));
	await_state(d, 2, "rolled-back");
	fake_leave(&a);
	fake_leave(&b);
}

static void without_a_version_before_it_is_unloaded(void **state)
{
	struct gd *d = *state;
	struct fake f;

	fake_enter(&f, d, BATCH, "f");
	json_decref(load(d, "plain", UINT64_C(60000000000), "launches>0"));
	store_relaxed(&f.stats->launches, UINT64_C(1));
	await_state(d, 1, "rolled-back");
	eventually(load_seqcst(&f.dir->version[0]) == 0);
	fake_leave(&f);
}

static void *cannot_run(void *f)
{
	fake_prepare(f, -ENOEXEC);
	return NULL;
}

static void processes_that_cannot_run_the_version_count(void **state)
{
	struct gd *d = *state;
	struct fake f;
	pthread_t t;

	json_decref(load(d, "plain", 0, NULL));
	prepare_two(&f, d, LATENCY, "service");
	assert_int_equal(pthread_create(&t, NULL, cannot_run, &f), 0);
	json_decref(load(d, "counting", UINT64_C(60000000000), "failed_prepares>0"));
	pthread_join(t, NULL);
	await_state(d, 2, "rolled-back");
	eventually(load_seqcst(&f.dir->version[0]) == 1);
	fake_leave(&f);
}

/* Returns whether the swap came while the rollback verified the version before. */
static bool a_swap_comes_first(struct gd *d)
{
	json_int_t before;
	struct fake f;
	bool first;

	json_decref(load(d, "slow", 0, NULL));
	fake_enter(&f, d, BATCH, "f");
	assert_int_equal(fake_prepare(&f, 0), 1);
	json_decref(load(d, "counting", UINT64_C(60000000000), "launches>0"));
	assert_int_equal(gd_stop(d), 0); /* the next one has not verified version 1 */
	assert_int_equal(gd_start(d, NULL), 0);
	before = gd_number(d, "status", "counters.rollbacks");
	fake_reattach(&f, d, 2);
	eventually(launches(&f) && !state_is(d, 2, "watching"));
	json_decref(load(d, "plain", 0, NULL));
	first = state_is(d, 2, "ended");
	if (first) {
		json_decref(
			load(d, "slow", 0, NULL)); /* its verification ends after the other one */
		assert_int_equal(gd_number(d, "status", "counters.rollbacks"), before);
		assert_int_equal(gd_number(d, "policy.list", "active"), 4);
	} else {
		assert_true(state_is(d, 2, "rolled-back"));
	}
	fake_leave(&f);
	return first;
}

static void a_rollback_does_not_undo_a_swap_that_came_first(void **state)
{
	struct gd *d = *state;

	for (int i = 0; !a_swap_comes_first(d); i++) {
		assert_true(i < 20);
		gd_renew(d);
	}
}

static void a_bad_condition_loads_nothing(void **state)
{
	struct gd *d = *state;
	struct gbpf *g = gd_open(d);
	struct buf elf;

	buf_init(&elf);
	assert_int_equal(buf_read_file(&elf, gd_object("plain"), 1 << 20), 0);
	assert_true(gbpf_policy_load_watched(g, elf.data, elf.len, "plain", GBPF_LOAD_SWAP,
					     1000000000, "p99>6", NULL) < 0);
	assert_int_equal(gbpf_last_error(g)->exit, 2);
	assert_non_null(strstr(gbpf_last_error(g)->message, "column 6"));
	assert_true(gbpf_policy_load_watched(g, elf.data, elf.len, "plain", GBPF_LOAD_SWAP, 5,
					     "holds>1", NULL) < 0);
	assert_int_equal(gbpf_last_error(g)->exit, 2);
	assert_int_equal(gd_number(d, "status", "counters.loads"), 0);
	assert_int_equal(gbpf_policy_watch(g, 0, NULL), -ENOENT);
	buf_finish(&elf);
	gbpf_close(g);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(conditions_are_read),
		cmocka_unit_test(and_binds_closer_than_or),
		cmocka_unit_test(bad_conditions_are_refused_with_the_column),
		cmocka_unit_test(any_text_is_read_or_refused),
#define WITH_GBPFD(f) cmocka_unit_test_setup_teardown(f, gd_setup, gd_teardown)
		WITH_GBPFD(a_condition_that_holds_goes_back),
		WITH_GBPFD(a_rollback_after_that_of_a_watch_finds_the_last_good_version),
		WITH_GBPFD(a_watch_says_rolled_back_after_the_flip),
		WITH_GBPFD(a_watch_returns_to_a_version_whose_object_is_lost),
		WITH_GBPFD(a_rollback_that_fails_is_reported),
		WITH_GBPFD(few_requests_that_are_slow_are_enough),
		WITH_GBPFD(few_requests_do_not_show_that_a_percentile_is_small),
		WITH_GBPFD(a_watch_whose_time_is_over_keeps_the_version),
		WITH_GBPFD(a_watch_ends_with_its_version),
		WITH_GBPFD(tenants_that_left_count_by_class),
		WITH_GBPFD(without_a_version_before_it_is_unloaded),
		WITH_GBPFD(processes_that_cannot_run_the_version_count),
		WITH_GBPFD(a_rollback_does_not_undo_a_swap_that_came_first),
		WITH_GBPFD(a_bad_condition_loads_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
