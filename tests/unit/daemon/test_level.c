/* How long a level applied by gbpfd from outside the process is in force, on a clock that the test
 * moves. The figures are literals, as documented: a level is suspended for 2 ms (2 % of 100 ms)
 * after each 100 ms, and ends with the request that it is for. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "daemon/hw/hw_control.h"
#include "daemon/hw/hw_control_int.h"

#define MS UINT64_C(1000000)

static uint64_t fake_now;

static uint64_t fake_clock(void)
{
	return fake_now;
}

/* gbpfd with a latency tenant and a batch tenant, whose handles can switch it off. */
struct two {
	struct daemon *d;
	struct daemon_session lc, batch;
	struct daemon_hw hw;
	struct proto_board board;
};

static void two_init(struct two *t)
{
	memset(t, 0, sizeof(*t));
	fake_now = 1000 * MS;
	clock_set_source(fake_clock);
	t->d = calloc(1, sizeof(*t->d));
	assert_non_null(t->d);
	t->lc = (struct daemon_session){ .d = t->d, .tenant = 0, .pidfd = -1 };
	t->lc.class_id = GBPF_CLASS_LATENCY;
	t->lc.board = (struct daemon_page){ .fd = -1, .map = &t->board };
	t->lc.next = &t->batch;
	t->batch = (struct daemon_session){ .d = t->d, .tenant = 1, .pidfd = -1 };
	t->batch.class_id = GBPF_CLASS_BATCH;
	t->batch.grant.lane = GBPF_LANE_PROCESS;
	t->batch.hw.state = &t->hw;
	t->batch.hw.capable = 1u << GPU_CONTROL_SLICE_SET | 1u << GPU_CONTROL_SCHEDULE;
	t->hw.d = t->d;
	t->hw.s = &t->batch;
	t->hw.for_tenant = -1;
	t->hw.want = t->hw.done = HW_NOTHING;
	t->d->sessions.first = &t->lc;
	t->d->sessions.tenant[0] = &t->lc;
	t->d->sessions.tenant[1] = &t->batch;
}

static void two_finish(struct two *t)
{
	free(t->d);
	clock_set_source(NULL);
}

static void open_request(struct two *t)
{
	t->board.gpu[0].opened_ns = fake_now;
	t->board.gpu[0].open = 1;
}

static bool in_force(const struct two *t)
{
	return t->hw.want.level != GBPF_LEVEL_NONE && !t->hw.pause_until_ns;
}

/* Runs gbpfd's ticks for that time; returns for how many ms the level was in force. */
static unsigned live_ms(struct two *t, unsigned ms)
{
	unsigned n = 0;

	for (unsigned i = 0; i < ms; i++) {
		fake_now += MS;
		t->board.beat_ns = fake_now;
		(void)daemon_hw_tick(t->d, fake_now);
		n += in_force(t);
	}
	return n;
}

static void level_is_suspended_for_the_minimum_share(void **state)
{
	struct two t;

	two_init(&t);
	open_request(&t);
	assert_int_equal(daemon_hw_set_level(&t.batch, GBPF_LEVEL_OFF, 1, 1, &t.lc), 0);
	assert_int_equal(live_ms(&t, 100), 100);
	assert_int_equal(live_ms(&t, 1), 0); /* the hold limit is over */
	assert_true(t.hw.pause_until_ns == fake_now + 2 * MS);
	assert_int_equal(live_ms(&t, 2), 0);
	assert_int_equal(live_ms(&t, 1), 1);
	/* a tenant whose request never ends leaves at least 2 % to the other */
	assert_in_range(live_ms(&t, 10000), 9600, 9800);
	two_finish(&t);
}

static void level_ends_with_its_request(void **state)
{
	struct two t;

	two_init(&t);
	open_request(&t);
	assert_int_equal(daemon_hw_set_level(&t.batch, GBPF_LEVEL_SLICE, 1, 1, &t.lc), 0);
	assert_int_equal(live_ms(&t, 10), 10);
	t.board.gpu[0].open = 0;
	t.board.gpu[0].last_end_ns = fake_now;
	assert_int_equal(live_ms(&t, 1), 0);
	assert_int_equal(t.hw.want.level, GBPF_LEVEL_NONE);
	/* the next request is not the one that the level was for */
	open_request(&t);
	assert_int_equal(live_ms(&t, 10), 0);
	two_finish(&t);
}

static void level_without_a_request_lasts_for_the_hold_limit(void **state)
{
	struct two t;

	two_init(&t);
	assert_int_equal(daemon_hw_set_level(&t.batch, GBPF_LEVEL_OFF, 1, 1, NULL), 0);
	assert_int_equal(live_ms(&t, 99), 99);
	assert_int_equal(live_ms(&t, 1), 0);
	assert_int_equal(t.hw.want.level, GBPF_LEVEL_NONE);
	two_finish(&t);
}

/* The time that a request says it has been open is believed for 20 ms at most. */
static void unseen_request_counts_for_20_ms(void **state)
{
	uint64_t key;
	struct two t;

	two_init(&t);
	open_request(&t);
	t.board.gpu[0].opened_ns = 1;
	assert_true(daemon_hw_request_since(&t.lc, 0, fake_now, &key) == fake_now - 20 * MS);
	two_finish(&t);
}

static void levels_are_checked(void **state)
{
	struct two t;

	two_init(&t);
	assert_int_equal(daemon_hw_set_level(&t.batch, GBPF_LEVEL_OFF + 1, 1, 1, NULL), -EINVAL);
	assert_int_equal(daemon_hw_set_level(&t.lc, GBPF_LEVEL_OFF, 1, 1, NULL), -ENOTSUP);
	t.batch.hw.capable = 0;
	assert_int_equal(daemon_hw_set_level(&t.batch, GBPF_LEVEL_OFF, 1, 1, NULL), -ENOTSUP);
	assert_int_equal(t.hw.want.level, GBPF_LEVEL_NONE);
	assert_int_equal(daemon_hw_set_level(&t.lc, GBPF_LEVEL_HOLD, 1, 1, NULL), 0);
	t.batch.hw.capable = 1u << GPU_CONTROL_SLICE_SET | 1u << GPU_CONTROL_SCHEDULE;
	assert_int_equal(daemon_hw_set_level(&t.batch, GBPF_LEVEL_SLICE, 5, 77, &t.lc), 0);
	assert_int_equal(t.hw.want.level, GBPF_LEVEL_SLICE);
	assert_int_equal(t.hw.want.gpus, 5);
	assert_int_equal(t.hw.level_version, 77);
	assert_int_equal(t.hw.for_tenant, 0);
	assert_true(t.hw.level_since_ns == fake_now && t.hw.level_set_ns == fake_now);
	fake_now += 5 * MS; /* a stronger one: the limit counts from the first */
	assert_int_equal(daemon_hw_set_level(&t.batch, GBPF_LEVEL_OFF, 1, 78, NULL), 0);
	assert_true(t.hw.level_since_ns == fake_now - 5 * MS && t.hw.level_set_ns == fake_now);
	assert_int_equal(t.hw.for_tenant, -1);
	t.hw.pause_until_ns = 1;
	assert_int_equal(daemon_hw_set_level(&t.batch, GBPF_LEVEL_BLOCK, 1, 1, NULL), 0);
	assert_int_equal(t.hw.want.level, GBPF_LEVEL_NONE);
	assert_int_equal(t.hw.pause_until_ns, 0);
	two_finish(&t);
}

static void later_requests_are_told_apart(void **state)
{
	struct two t;

	two_init(&t);
	t.board.gpu[0].last_end_ns = 555; /* it had one before */
	open_request(&t);
	assert_int_equal(daemon_hw_set_level(&t.batch, GBPF_LEVEL_OFF, 1, 1, &t.lc), 0);
	assert_int_equal(live_ms(&t, 10), 10);
	t.board.gpu[0].last_end_ns = 556; /* it ended and began again between two ticks */
	assert_int_equal(live_ms(&t, 1), 0);
	assert_int_equal(t.hw.want.level, GBPF_LEVEL_NONE);
	two_finish(&t);
}

static void level_ends_with_the_tenant_that_it_is_for(void **state)
{
	for (int how = 0; how < 4; how++) {
		struct two t;

		two_init(&t);
		open_request(&t);
		assert_int_equal(daemon_hw_set_level(&t.batch, GBPF_LEVEL_OFF, 1, 1, &t.lc), 0);
		assert_int_equal(live_ms(&t, 5), 5);
		if (how == 0) {
			t.d->sessions.tenant[0] = NULL;
		} else if (how == 1) {
			t.lc.dying = true;
		} else if (how == 2) {
			t.lc.class_id = GBPF_CLASS_NORMAL;
		} else {
			t.lc.board.map = NULL;
		}
		assert_int_equal(live_ms(&t, 1), 0);
		assert_int_equal(t.hw.want.level, GBPF_LEVEL_NONE);
		two_finish(&t);
	}
}

/* Whether the control thread has got a job; takes it. */
static bool applied(struct two *t, uint32_t level)
{
	bool yes = t->hw.working && t->d->control_thread.waiting == &t->hw.job &&
		   t->hw.done.level == level;

	t->hw.working = false;
	t->d->control_thread.waiting = NULL;
	return yes;
}

static void levels_are_applied_at_once_and_by_ticks(void **state)
{
	struct two t;

	two_init(&t);
	t.d->control_thread.running = true; /* as if */
	assert_int_equal(daemon_hw_set_level(&t.batch, GBPF_LEVEL_OFF, 1, 1, NULL), 0);
	assert_true(applied(&t, GBPF_LEVEL_OFF));
	fake_now += MS;
	(void)daemon_hw_tick(t.d, fake_now);
	assert_false(applied(&t, GBPF_LEVEL_OFF)); /* nothing has changed */
	t.hw.want.level = GBPF_LEVEL_SLICE;
	fake_now += MS;
	(void)daemon_hw_tick(t.d, fake_now);
	assert_true(applied(&t, GBPF_LEVEL_SLICE));
	fake_now += MS;
	daemon_hw_end_level(&t.hw, fake_now);
	assert_true(applied(&t, GBPF_LEVEL_NONE));
	two_finish(&t);
}

static void levels_are_released(void **state)
{
	struct two t;

	two_init(&t);
	assert_int_equal(daemon_hw_set_level(&t.batch, GBPF_LEVEL_OFF, 1, 1, NULL), 0);
	daemon_hw_release_levels(t.d);
	assert_int_equal(t.hw.want.level, GBPF_LEVEL_NONE);
	two_finish(&t);
}

static uint64_t since(struct two *t, uint64_t opened_ns, uint64_t last_end_ns)
{
	uint64_t key = 0, at;

	t->board.gpu[0].opened_ns = opened_ns;
	t->board.gpu[0].last_end_ns = last_end_ns;
	at = daemon_hw_request_since(&t->lc, 0, fake_now, &key);
	assert_true(key == last_end_ns);
	return at;
}

/* What a board says of its request's begin is believed once, and within limits. */
static void begin_of_a_request_is_bounded(void **state)
{
	struct two t;
	uint64_t first;

	two_init(&t);
	assert_true(since(&t, 5, 7) == 0); /* none is open */
	t.board.gpu[0].open = 1;
	t.board.beat_ns = fake_now;
	first = fake_now - 3 * MS;
	assert_true(since(&t, first, 7) == first);
	assert_true(since(&t, first - MS, 7) == first);	     /* it says otherwise now */
	assert_true(since(&t, first + MS, 8) == first + MS); /* another one */
	assert_true(since(&t, 0, 9) == fake_now);
	assert_true(since(&t, fake_now, 10) == fake_now);
	assert_true(since(&t, fake_now + MS, 11) == fake_now);
	assert_true(since(&t, fake_now - 20 * MS, 12) == fake_now - 20 * MS);
	assert_true(since(&t, fake_now - 20 * MS - 1, 13) == fake_now - 20 * MS);
	t.board.gpu[0].open = 0;
	assert_true(since(&t, first, 13) == 0);
	assert_int_equal(t.lc.hw.request_since[0], 0);
	two_finish(&t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(level_is_suspended_for_the_minimum_share),
		cmocka_unit_test(level_ends_with_its_request),
		cmocka_unit_test(level_without_a_request_lasts_for_the_hold_limit),
		cmocka_unit_test(unseen_request_counts_for_20_ms),
		cmocka_unit_test(levels_are_checked),
		cmocka_unit_test(later_requests_are_told_apart),
		cmocka_unit_test(level_ends_with_the_tenant_that_it_is_for),
		cmocka_unit_test(levels_are_applied_at_once_and_by_ticks),
		cmocka_unit_test(levels_are_released),
		cmocka_unit_test(begin_of_a_request_is_bounded),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
