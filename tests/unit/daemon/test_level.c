/* How long a level applied by gbpfd from outside the process is in force, on a clock that the test
 * moves. The figures are literals, as documented: a level is suspended for 2 ms (2 % of 100 ms)
 * after each 100 ms, and ends with the request that it is for. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(level_is_suspended_for_the_minimum_share),
		cmocka_unit_test(level_ends_with_its_request),
		cmocka_unit_test(level_without_a_request_lasts_for_the_hold_limit),
		cmocka_unit_test(unseen_request_counts_for_20_ms),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
