/* Open requests without GPU work: the budget of a user, on a clock that the test moves, and a
 * tenant that loses class latency and gets it back. NVML is absent here, so the claims on the
 * tenant's page count as work; tests/system/hostile.bats has the soft GPU's NVML. */
#include "harness.h"

#include <poll.h>
#include <string.h>
#include <sys/stat.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "base/time_budget.h"

#include "../users.h"

#define MS UINT64_C(1000000)

static void user_without_work_has_half_a_second(void **state)
{
	struct time_budget b;
	uint64_t now = 1000 * MS;

	time_budget_init(&b, now);
	assert_true(time_budget_is_full(&b));
	assert_false(time_budget_take(&b, 499 * MS, now));
	assert_true(time_budget_take(&b, 1 * MS, now));
	/* it is not refilled in part: 50 ms of each second, until it is full after ten */
	for (unsigned i = 1; i < 10; i++) {
		assert_true(time_budget_take(&b, 0, now + i * 1000 * MS));
	}
	assert_false(time_budget_take(&b, 0, now + 10000 * MS));
	assert_true(time_budget_is_full(&b));
	assert_false(time_budget_take(&b, 0, now + 1000000 * MS)); /* and is never larger */
	assert_true(time_budget_take(&b, 500 * MS, now + 1000000 * MS));
}

/* A board that is always open costs others 7 % of the time: a budget and a window of each ten
 * seconds and a half. */
static void open_time_is_bounded(void **state)
{
	struct time_budget b;
	uint64_t now = 1000 * MS, effective = 0;

	time_budget_init(&b, now);
	for (unsigned i = 0; i < 4000; i++) { /* windows of 250 ms: 1000 s */
		bool counts = !b.spent;

		now += 250 * MS;
		effective += counts ? 250 * MS : 0;
		(void)time_budget_take(&b, counts ? 250 * MS : 0, now);
	}
	assert_in_range(effective, 60000 * MS, 72000 * MS);
}

static json_t *tenant(struct gd *d, const char *name, json_t **ret_ps)
{
	size_t i;
	json_t *t;

	*ret_ps = gd_call(d, "ps", NULL);
	json_array_foreach(json_object_get(*ret_ps, "tenants"), i, t)
	{
		if (strcmp(json_string_value(json_object_get(t, "name")), name) == 0) {
			return t;
		}
	}
	fail_msg("no tenant %s", name);
	return NULL;
}

static bool has_class(struct gd *d, const char *name, const char *class)
{
	json_t *ps, *t = tenant(d, name, &ps);
	bool has = strcmp(json_string_value(json_object_get(t, "class")), class) == 0;

	json_decref(ps);
	return has;
}

/* Shows an open request, renewed like an honest agent's; with work that the page claims. */
static void show(struct fake *f, bool works)
{
	uint64_t now = clock_now_ns();

	store_seqcst(&f->board->gpu[0].opened_ns, now);
	store_seqcst(&f->board->beat_ns, now);
	store_seqcst(&f->board->gpu[0].open, 1u);
	if (works) {
		store_seqcst(&f->stats->launches, load_seqcst(&f->stats->launches) + 1);
	}
}

static void drain(struct fake *f)
{
	struct pollfd p = { .fd = f->sock, .events = POLLIN };
	union proto_message m;
	unsigned n;
	int fds[8];

	while (poll(&p, 1, 0) == 1 && fake_receive_any(f, &m, fds, &n) == 1) {
		while (n) {
			close(fds[--n]);
		}
	}
}

static void enter_user(struct fake *f, struct gd *d, uid_t uid, const char *name)
{
	AS_USER(uid, fake_connect(f, d));
	fake_say_hello(f, 0, 100, name);
	fake_welcomed(f);
	gd_await_event(d, 0, "start", name);
}

static void tenant_without_work_is_demoted_until_it_works(void **state)
{
	struct gd *d = *state;
	struct fake liar, honest, own;

	NEED_TWO_USERS();
	assert_int_equal(chmod(d->dir, 0755), 0);
	enter_user(&honest, d, USER_A, "honest");
	enter_user(&liar, d, USER_B, "liar");
	enter_user(&own, d, 0, "own");
	while (!has_class(d, "liar", "normal")) {
		show(&liar, false);
		show(&honest, true);
		show(&own, false); /* of gbpfd's user: trusted */
		drain(&liar);
	}
	gd_await_event(d, 0, "limit", "liar (user 65534) shows open requests but does no work");
	assert_true(has_class(d, "honest", "latency"));
	assert_true(has_class(d, "own", "latency"));
	assert_int_equal(gd_number(d, "status", "counters.idle_demotions"), 1);
	assert_int_equal(gd_number(d, "status", "boards"), 2);
	while (!has_class(d, "liar", "latency")) { /* it works */
		show(&liar, true);
		show(&honest, true);
		drain(&liar);
	}
	fake_leave(&liar);
	fake_leave(&honest);
	fake_leave(&own);
}

/* The budget is the user's: another process of it has none either. */
static void coming_back_gains_nothing(void **state)
{
	struct gd *d = *state;
	struct fake first, second;

	NEED_TWO_USERS();
	assert_int_equal(chmod(d->dir, 0755), 0);
	enter_user(&first, d, USER_B, "first");
	while (!has_class(d, "first", "normal")) {
		show(&first, false);
		drain(&first);
	}
	fake_leave(&first);
	enter_user(&second, d, USER_B, "second");
	for (uint64_t begin = clock_now_ns(); !has_class(d, "second", "normal");) {
		show(&second, false);
		drain(&second);
		if (clock_now_ns() > begin + eventually_limit_ns()) {
			fail_msg("the second tenant keeps class latency");
		}
	}
	fake_leave(&second);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(user_without_work_has_half_a_second),
		cmocka_unit_test(open_time_is_bounded),
#define WITH_GBPFD(t) cmocka_unit_test_setup_teardown(t, gd_setup, gd_teardown)
		WITH_GBPFD(tenant_without_work_is_demoted_until_it_works),
		WITH_GBPFD(coming_back_gains_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
