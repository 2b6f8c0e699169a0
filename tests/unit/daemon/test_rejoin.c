/* admit of a version that becomes active, for tenants that are present: at a load, a swap, a
 * rollback, an unload, and after a restart of gbpfd. */
#include "harness.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/shm.h"

enum { LATENCY, NORMAL, BATCH };
enum { NOTE_STARTS, NOTE_REJOINS, NOTE_ONE_LANE };

/* A load, swap or rollback that is pending while the test acts as the processes. */
struct pending {
	pthread_t thread;
	struct gbpf *g;
	const char *policy; /* NULL: roll back to version, ~0: unload */
	uint64_t version;
	char *json;
	int err;
};

static void *run_call(void *arg)
{
	struct pending *p = arg;

	p->err = p->policy ? gbpf_policy_load(p->g, gd_object(p->policy), NULL, GBPF_LOAD_SWAP,
					      &p->json)
		 : p->version != ~0ull ? gbpf_policy_rollback(p->g, p->version, &p->json)
				       : gbpf_policy_unload(p->g, NULL);
	return NULL;
}

static void begin(struct pending *p, struct gd *d, const char *policy, uint64_t version)
{
	*p = (struct pending){ .g = gd_open(d), .policy = policy, .version = version };
	assert_int_equal(pthread_create(&p->thread, NULL, run_call, p), 0);
}

/* Returns the member "rejoined" of the answer; -1: it has none. */
static int end(struct pending *p)
{
	json_t *j, *n, *took;
	int rejoined;

	pthread_join(p->thread, NULL);
	if (p->err) {
		fail_msg("%s", gbpf_last_error(p->g)->message);
	}
	j = p->json ? json_loads(p->json, 0, NULL) : NULL;
	n = json_object_get(j, "rejoined");
	rejoined = n ? (int)json_integer_value(n) : -1;
	took = json_object_get(j, "rejoin_ns");
	assert_true(rejoined <= 0 || json_integer_value(took) > 0);
	json_decref(j);
	free(p->json);
	gbpf_close(p->g);
	return rejoined;
}

static void enter(struct fake *f, struct gd *d, uint32_t weight, const char *name)
{
	fake_connect(f, d);
	fake_say_hello(f, NORMAL, weight, name);
	fake_welcomed(f);
	gd_await_event(d, 0, "start", name);
}

/* Swaps while one process is connected, which was running a policy or not. */
static int swap(struct gd *d, struct fake *f, const char *policy)
{
	struct pending p;

	begin(&p, d, policy, 0);
	fake_prepare(f, 0);
	return end(&p);
}

static void expect_weight(struct fake *f, uint32_t weight, uint32_t asked)
{
	union proto_message m;

	fake_expect(f, &m, PROTO_SET);
	assert_int_equal(m.set.weight, weight);
	assert_int_equal(m.set.weight_asked, asked);
	assert_int_equal(m.set.class_id, NORMAL); /* stays, whatever admit answers */
}

/* Enters as "f" with weight 5, which the policy rejoining then doubles. */
static void enter_and_swap(struct fake *f, struct gd *d)
{
	enter(f, d, 5, "f");
	assert_int_equal(swap(d, f, "rejoining"), 1);
	expect_weight(f, 10, 5);
}

static void expect_drop(struct fake *f)
{
	union proto_message m;

	fake_expect(f, &m, PROTO_DROP);
}

static uint64_t mark_of(const struct fake *f)
{
	const uint64_t *own = shm_map(f->region_fd, 4096, 0);
	uint64_t mark;

	assert_non_null(own);
	mark = load_seqcst(&own[0]);
	shm_unmap((void *)(uintptr_t)own, 4096);
	return mark;
}

static json_int_t note(struct gd *d, int i)
{
	json_t *j = gd_call(d, "policy.show", NULL);
	json_int_t v = json_integer_value(json_array_get(
		json_object_get(json_object_get(j, "counters"), "notes"), (size_t)i));

	json_decref(j);
	return v;
}

static json_int_t of_tenant(struct gd *d, const char *member)
{
	json_t *j = gd_call(d, "ps", NULL);
	json_int_t v = json_integer_value(
		json_object_get(json_array_get(json_object_get(j, "tenants"), 0), member));

	json_decref(j);
	return v;
}

static void a_swap_runs_admit_for_a_tenant_that_is_present(void **state)
{
	struct gd *d = *state;
	struct fake f;

	enter_and_swap(&f, d);
	assert_int_equal(mark_of(&f), 1005);
	assert_int_equal(of_tenant(d, "weight"), 10);
	assert_int_equal(of_tenant(d, "slice_us"), 1000);
	assert_int_equal(note(d, NOTE_STARTS), 0);
	assert_int_equal(note(d, NOTE_REJOINS), 1);
	assert_int_equal(note(d, NOTE_ONE_LANE), 1); /* its sharing mode cannot change */
	fake_leave(&f);
}

static void admit_sees_the_weight_asked_for_after_each_swap(void **state)
{
	struct gd *d = *state;
	struct fake f;

	enter_and_swap(&f, d);
	assert_int_equal(swap(d, &f, "rejoining2"), 1);
	expect_weight(&f, 15, 5);
	expect_drop(&f);
	assert_int_equal(of_tenant(d, "slice_us"), 1500);
	fake_leave(&f);
}

static void a_weight_that_was_set_is_what_the_tenant_asks_for(void **state)
{
	struct gd *d = *state;
	struct fake f;

	enter_and_swap(&f, d);
	json_decref(gd_call(d, "set", "{\"tenant\":0,\"weight\":70}"));
	expect_weight(&f, 70, 70);
	json_decref(gd_call(d, "set", "{\"tenant\":0,\"class\":\"normal\"}"));
	expect_weight(&f, 70, 70);
	swap(d, &f, "rejoining2");
	expect_weight(&f, 210, 70);
	fake_leave(&f);
}

static void a_rollback_runs_admit_of_the_previous_version(void **state)
{
	struct gd *d = *state;
	struct pending p;
	struct fake f;

	enter_and_swap(&f, d);
	swap(d, &f, "rejoining2");
	expect_weight(&f, 15, 5);
	expect_drop(&f);
	begin(&p, d, NULL, 0);
	fake_prepare(&f, 0);
	assert_int_equal(end(&p), 1);
	expect_weight(&f, 10, 5);
	assert_int_equal(mark_of(&f), 1005);
	fake_leave(&f);
}

static void without_admit_the_tenant_has_what_it_asked_for(void **state)
{
	struct gd *d = *state;
	struct pending p;
	struct fake f;

	enter_and_swap(&f, d);
	assert_int_equal(swap(d, &f, "plain"), 0);
	expect_weight(&f, 5, 5);
	expect_drop(&f);
	assert_int_equal(of_tenant(d, "slice_us"), 0);
	swap(d, &f, "rejoining");
	expect_weight(&f, 10, 5);
	expect_drop(&f);
	begin(&p, d, NULL, ~0ull);
	end(&p);
	expect_weight(&f, 5, 5);
	fake_leave(&f);
}

static void queue_and_reject_admit_a_tenant_that_runs(void **state)
{
	struct gd *d = *state;

	for (uint32_t weight = 13; weight <= 14; weight++) {
		struct fake f;

		enter(&f, d, weight, weight == 13 ? "thirteen" : "fourteen");
		assert_int_equal(swap(d, &f, "rejoining"), 1);
		expect_weight(&f, 2 * weight, weight);
		assert_int_equal(of_tenant(d, "weight"), 2 * weight);
		fake_leave(&f);
		gd_renew(d);
	}
}

static void an_invalid_answer_leaves_what_the_tenant_asked_for(void **state)
{
	struct gd *d = *state;
	struct fake f;

	enter(&f, d, 15, "f");
	assert_int_equal(swap(d, &f, "rejoining"), 0);
	gd_await_event(d, 0, "verdict", "SMs 101 %");
	assert_int_equal(of_tenant(d, "weight"), 15);
	assert_int_equal(gd_number(d, "policy.list", "active"), 1);
	fake_leave(&f);
}

static void a_tenant_that_starts_during_the_swap_is_asked(void **state)
{
	struct gd *d = *state;
	struct pending p;
	struct fake a, b;

	enter(&a, d, 5, "first");
	begin(&p, d, "rejoining", 0);
	fake_connect(&b, d);
	fake_say_hello(&b, NORMAL, 6, "second"); /* the swap waits 50 ms for the first */
	fake_welcomed(&b);
	gd_await_event(d, 0, "start", "second");
	end(&p);
	assert_true(note(d, NOTE_STARTS) + note(d, NOTE_REJOINS) == 2);
	fake_leave(&a);
	fake_leave(&b);
}

static void after_a_restart_admit_runs_on_what_the_process_asked_for(void **state)
{
	struct gd *d = *state;
	struct fake f;

	enter_and_swap(&f, d);
	gbpf_close(d->g);
	d->g = NULL;
	gd_kill(d);
	assert_int_equal(gd_start(d, NULL), 0);
	f.weight_asked = 5;
	fake_reattach(&f, d, 1);
	assert_int_equal(f.welcome.weight, 10);
	assert_int_equal(f.welcome.class_id, BATCH); /* as it said */
	assert_int_equal(f.welcome.lane, 0);
	assert_int_equal(f.welcome.slice_us, 1000);
	assert_int_equal(note(d, NOTE_STARTS), 0);
	assert_int_equal(note(d, NOTE_REJOINS), 1);
	fake_prepare(&f, 0);
	assert_int_equal(mark_of(&f), 1005);
	fake_leave(&f);
}

/* Other calls are answered while admit, which takes long, runs for each of them. */
static void many_tenants_do_not_block_gbpfd(void **state)
{
	enum { MANY = 200 };
	struct gd *d = *state;
	struct fake *f = calloc(MANY, sizeof(*f));
	struct pending p;
	unsigned answers = 0;

	for (int i = 0; i < MANY; i++) {
		fake_connect(&f[i], d);
		fake_say_hello(&f[i], NORMAL, 16, i == MANY - 1 ? "the last" : "many");
		fake_welcomed(&f[i]);
	}
	gd_await_event(d, 0, "start", "the last");
	begin(&p, d, "rejoining", 0);
	for (int i = 0; i < MANY; i++) {
		fake_prepare(&f[i], 0);
	}
	while (gd_number(d, "policy.list", "active") == 0) {
		answers++;
	}
	assert_int_equal(end(&p), MANY);
	for (int i = 0; i < MANY; i++) {
		expect_weight(&f[i], 32, 16);
		fake_leave(&f[i]);
	}
	free(f);
	print_message("%u answers\n", answers);
	assert_true(answers >= 3);
}

#define WITH_GBPFD(t) cmocka_unit_test_setup_teardown(t, gd_setup, gd_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		WITH_GBPFD(a_swap_runs_admit_for_a_tenant_that_is_present),
		WITH_GBPFD(admit_sees_the_weight_asked_for_after_each_swap),
		WITH_GBPFD(a_weight_that_was_set_is_what_the_tenant_asks_for),
		WITH_GBPFD(a_rollback_runs_admit_of_the_previous_version),
		WITH_GBPFD(without_admit_the_tenant_has_what_it_asked_for),
		WITH_GBPFD(queue_and_reject_admit_a_tenant_that_runs),
		WITH_GBPFD(an_invalid_answer_leaves_what_the_tenant_asked_for),
		WITH_GBPFD(a_tenant_that_starts_during_the_swap_is_asked),
		WITH_GBPFD(after_a_restart_admit_runs_on_what_the_process_asked_for),
		WITH_GBPFD(many_tenants_do_not_block_gbpfd),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
