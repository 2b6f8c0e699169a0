/* The direct plan: which units get windows, when windows are closed, and when the plan is used. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/compiler.h"
#include "direct_rig.h"
#include "../eventually.h"

static enum mem_direct_answer find(uint64_t address, size_t bytes)
{
	return mem_direct_find(&rig.d, address, bytes, false);
}

/* Requires that copies of the unit are the driver's, however many there are. */
static void stays_closed(unsigned unit)
{
	for (unsigned i = 0; i < 4 * MEM_WINDOW_HITS; i++) {
		assert_int_equal(find(AT(unit, 64 * i), 8), MEM_DIRECT_NO);
	}
	assert_false(rig_is_open(unit));
}

/* ---- which units ---- */

static void a_window_opens_after_some_copies(void **state)
{
	(void)state;
	for (unsigned i = 1; i < MEM_WINDOW_HITS; i++) {
		assert_int_equal(find(AT(1, UNIT - i), i), MEM_DIRECT_NO);
	}
	assert_int_equal(find(AT(1, 0), MEM_DIRECT_UP_MAX), MEM_DIRECT_OPEN);
	assert_int_equal(rig.opens, 0);
	assert_int_equal(find(AT(1, 0), 1), MEM_DIRECT_OPEN); /* the caller has not done it */
	mem_direct_open(&rig.d, AT(1, 4711), true);
	assert_int_equal(rig.opens, 1);
	assert_int_equal(find(AT(1, 0), 1), MEM_DIRECT_YES);
	assert_int_equal(find(AT(1, UNIT - 1), 1), MEM_DIRECT_YES);
	assert_int_equal(find(AT(0, UNIT - 1), 1), MEM_DIRECT_NO);
	assert_int_equal(find(AT(2, 0), 1), MEM_DIRECT_NO);
}

static void a_unit_gets_one_window(void **state)
{
	(void)state;
	mem_direct_open(&rig.d, AT(1, 0), true); /* without any copy */
	assert_int_equal(rig.opens, 0);
	rig_open(1);
	mem_direct_open(&rig.d, AT(1, 100), true); /* two threads had the same answer */
	mem_direct_open(&rig.d, AT(1, 100), false);
	assert_int_equal(rig.opens, 1);
	assert_int_equal(find(AT(1, 0), 1), MEM_DIRECT_YES);
}

static void copies_are_small_up_to_a_size(void **state)
{
	(void)state;
	assert_true(mem_direct_is_small(MEM_COPY_UP, MEM_DIRECT_UP_MAX));
	assert_false(mem_direct_is_small(MEM_COPY_UP, MEM_DIRECT_UP_MAX + 1));
	assert_true(mem_direct_is_small(MEM_COPY_DOWN, MEM_DIRECT_DOWN_MAX));
	assert_false(mem_direct_is_small(MEM_COPY_DOWN, MEM_DIRECT_DOWN_MAX + 1));
}

static void refuse(unsigned unit, bool may)
{
	enum mem_direct_answer answer = MEM_DIRECT_NO;

	for (unsigned i = 0; answer != MEM_DIRECT_OPEN && i < MEM_WINDOW_HITS; i++) {
		answer = find(AT(unit, 0), 1);
	}
	assert_int_equal(answer, MEM_DIRECT_OPEN);
	mem_direct_open(&rig.d, AT(unit, 0), may);
}

static void refused_units_stay_refused_until_their_memory_goes(void **state)
{
	(void)state;
	rig.refuse[1] = true;
	for (unsigned unit = 1; unit <= 2; unit++) {
		refuse(unit, unit == 1); /* by the device, and by the caller */
		assert_int_equal(rig.refused, 1);
		stays_closed(unit);
		mem_direct_open(&rig.d, AT(unit, 0), true);
		mem_direct_gone(&rig.d, AT(unit - 1, 0), UNIT);
		mem_direct_gone(&rig.d, AT(unit + 1, 0), UNIT);
		stays_closed(unit);
	}
	assert_int_equal(rig.d.n_windows, 0);
	assert_int_equal(rig.refused, 1);
	rig.refuse[1] = false;
	for (unsigned unit = 1; unit <= 2; unit++) {
		mem_direct_gone(&rig.d, AT(unit, UNIT - 1), 1);
		for (unsigned i = 1; i < MEM_WINDOW_HITS; i++) {
			assert_int_equal(find(AT(unit, 0), 1), MEM_DIRECT_NO);
		}
		rig_open(unit);
	}
}

static void windows_may_cover_a_part_of_a_unit(void **state)
{
	const uint64_t first = AT(1, UNIT - 8192), end = AT(2, 4096);
	unsigned char bytes[256] = { 1 };

	(void)state;
	rig.first = first;
	rig.end = end;
	refuse(2, true);
	refuse(1, true); /* the rest of that unit belongs to other memory */
	mem_direct_gone(&rig.d, AT(1, 0), 1);
	for (unsigned i = 1; i < MEM_WINDOW_HITS; i++) {
		(void)find(first, 1);
	}
	assert_int_equal(find(first, 1), MEM_DIRECT_OPEN);
	mem_direct_open(&rig.d, first, true);
	assert_int_equal(rig.opens, 2);
	assert_int_equal(find(first, 8192 + 4096), MEM_DIRECT_YES);
	assert_int_equal(find(first - 1, 2), MEM_DIRECT_NO);
	assert_int_equal(find(first - 4096, 4096), MEM_DIRECT_NO);
	assert_int_equal(find(first, 8192 + 4096 + 1), MEM_DIRECT_NO);
	assert_int_equal(find(end - 1, 1), MEM_DIRECT_YES);
	assert_int_equal(find(end - 1, 2), MEM_DIRECT_NO);
	for (unsigned i = 0; i < 4 * MEM_WINDOW_HITS; i++) {
		assert_int_equal(find(end, 1), MEM_DIRECT_NO);
		assert_int_equal(find(end + 1, 1), MEM_DIRECT_NO);
	}
	assert_false(mem_direct_up(&rig.d, first - 1, bytes, 2));
	assert_false(mem_direct_up(&rig.d, end - 1, bytes, 2));
	assert_false(mem_direct_down(&rig.d, bytes, first - 1, 2));
	assert_false(mem_direct_down(&rig.d, bytes, end - 1, 2));
	assert_false(mem_direct_down(&rig.d, bytes, end, 1));
	assert_int_equal(*rig_at(first), 0);
	assert_int_equal(*rig_at(end - 1), 0);
	assert_int_equal(rig.opens, 2);
}

static void a_copy_across_units_needs_both_windows(void **state)
{
	(void)state;
	rig_open(1);
	for (unsigned i = 1; i < MEM_WINDOW_HITS; i++) { /* they count for the second unit */
		assert_int_equal(find(AT(1, UNIT - 1), 2), MEM_DIRECT_NO);
	}
	assert_int_equal(find(AT(2, 0), 1), MEM_DIRECT_OPEN);
	assert_int_equal(find(AT(1, UNIT - 1), 1), MEM_DIRECT_YES);
	assert_int_equal(find(AT(1, UNIT - 1), 2), MEM_DIRECT_OPEN_NEXT);
	mem_direct_open(&rig.d, AT(2, 0), true);
	assert_int_equal(find(AT(1, UNIT - 1), 2), MEM_DIRECT_YES);
	assert_int_equal(find(AT(1, 1), UNIT), MEM_DIRECT_YES);
	mem_direct_gone(&rig.d, AT(1, 0), UNIT);
	assert_int_equal(find(AT(1, UNIT - 1), 2), MEM_DIRECT_NO);
	assert_int_equal(find(AT(2, 0), 2), MEM_DIRECT_YES);
}

/* Although none of the copies begins in the second unit. */
static void copies_across_units_open_both_windows(void **state)
{
	const uint64_t address = AT(1, UNIT - 10);

	(void)state;
	for (unsigned unit = 1; unit <= 2; unit++) {
		for (unsigned i = 1; i < MEM_WINDOW_HITS; i++) {
			assert_int_equal(find(address, 20), MEM_DIRECT_NO);
		}
		assert_int_equal(find(address, 20),
				 unit == 1 ? MEM_DIRECT_OPEN : MEM_DIRECT_OPEN_NEXT);
		mem_direct_open(&rig.d, unit == 1 ? address : address + 19, true);
		assert_true(rig_is_open(unit));
	}
	assert_int_equal(find(address, 20), MEM_DIRECT_YES);
}

static void windows_have_a_limit(void **state)
{
	(void)state;
	for (unsigned i = 0; i < MEM_WINDOWS_MAX; i++) {
		rig_open(i);
	}
	stays_closed(MEM_WINDOWS_MAX);
	mem_direct_open(&rig.d, AT(MEM_WINDOWS_MAX, 0), true);
	assert_int_equal(rig.opens, MEM_WINDOWS_MAX);
	assert_int_equal(find(AT(0, 0), 1), MEM_DIRECT_YES);
	assert_int_equal(find(AT(MEM_WINDOWS_MAX - 1, 0), 1), MEM_DIRECT_YES);
	mem_direct_gone(&rig.d, AT(7, 0), 1);
	rig_open(MEM_WINDOWS_MAX);
	stays_closed(7);
	assert_int_equal(rig.closes, 1);
}

static void the_limit_holds_for_callers_that_were_told_to_open_before(void **state)
{
	(void)state;
	for (unsigned i = 0; i < MEM_WINDOW_HITS; i++) {
		(void)find(AT(MEM_WINDOWS_MAX, 0), 1);
	}
	for (unsigned i = 0; i < MEM_WINDOWS_MAX; i++) {
		rig_open(i);
	}
	mem_direct_open(&rig.d, AT(MEM_WINDOWS_MAX, 0), true);
	assert_int_equal(rig.opens, MEM_WINDOWS_MAX);
	assert_int_equal(rig.refused, 0);
}

static void units_that_are_counted_have_a_limit(void **state)
{
	(void)state;
	rig_open(1);
	rig_open(2);
	for (uint64_t i = 3; i <= MEM_UNITS_MAX; i++) {
		assert_int_equal(find(AT(RIG_UNITS + i, 0), 1), MEM_DIRECT_NO);
	}
	assert_int_equal(rig.d.units.n, MEM_UNITS_MAX);
	rig_open(0); /* one more: units with windows and this one are left */
	assert_int_equal(rig.d.units.n, 3);
	assert_true(rig_is_open(1) && rig_is_open(2));
	assert_int_equal(find(AT(1, 0), 1), MEM_DIRECT_YES);
	for (uint64_t i = 0; i < 3 * MEM_UNITS_MAX; i++) {
		assert_int_equal(find(AT(RIG_UNITS + i, 0), 1), MEM_DIRECT_NO);
		assert_true(rig.d.units.n <= MEM_UNITS_MAX);
	}
}

/* ---- memory that goes ---- */

static void open_all(unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		rig_open(i);
	}
}

/* Requires that of the first 6 units those of the mask have windows. */
static void are_open(unsigned mask)
{
	for (unsigned i = 0; i < 6; i++) {
		assert_int_equal(rig_is_open(i), mask >> i & 1);
		assert_int_equal(find(AT(i, 5), 1) == MEM_DIRECT_YES, mask >> i & 1);
	}
}

static void windows_on_freed_memory_are_closed_and_no_others(void **state)
{
	unsigned char byte = 1;

	(void)state;
	open_all(6);
	mem_direct_gone(&rig.d, AT(1, 0), UNIT);
	are_open(0x3d);
	assert_false(mem_direct_up(&rig.d, AT(1, 0), &byte, 1));
	assert_false(mem_direct_down(&rig.d, &byte, AT(1, 0), 1));
	mem_direct_gone(&rig.d, AT(2, UNIT - 1), 1);
	are_open(0x39);
	mem_direct_gone(&rig.d, AT(2, 512), UNIT); /* a byte of which is in the next unit */
	are_open(0x31);
	mem_direct_gone(&rig.d, AT(6, 0), UNIT);
	mem_direct_gone(&rig.d, RIG_BASE - UNIT, UNIT);
	are_open(0x31);
	mem_direct_gone(&rig.d, AT(3, UNIT - 1), UNIT + 2);
	are_open(0x01);
	for (unsigned i = 1; i < MEM_WINDOW_HITS; i++) { /* counted from the beginning */
		(void)find(AT(4, 0), 1);
		assert_false(rig_is_open(4));
	}
}

static void ranges_that_go_may_be_huge(void **state)
{
	static const struct {
		uint64_t address, bytes;
	} rows[] = {
		{ 0, UINT64_MAX },
		{ RIG_BASE, UINT64_MAX - RIG_BASE },
		{ RIG_BASE - 1, UINT64_MAX }, /* it would end behind the last address */
		{ 0, (uint64_t)1 << 48 },
	};

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(rows); i++) {
		open_all(6);
		(void)find(AT(RIG_UNITS, 0), 1); /* a unit without a window */
		mem_direct_gone(&rig.d, rows[i].address, rows[i].bytes);
		assert_int_equal(rig.d.units.n, 0);
		are_open(0);
		mem_direct_gone(&rig.d, AT(0, 0), UNIT * RIG_UNITS);
	}
	/* Units in front of a huge range stay. */
	open_all(2);
	mem_direct_gone(&rig.d, AT(1, 0), (uint64_t)1 << 60);
	are_open(1);
	mem_direct_gone(&rig.d, 0, AT(0, 0));
	are_open(1);
}

struct question {
	uint64_t mask;	/* units that were freed */
	unsigned asked; /* of how many windows */
};

static bool is_gone(const struct mem_window *w, void *arg)
{
	struct question *q = arg;

	assert_true(w->bytes == UNIT && w->base == AT(w->own[0], 0));
	q->asked++;
	return q->mask >> w->own[0] & 1;
}

static void windows_are_closed_by_a_condition(void **state)
{
	struct question q = { 0x22, 0 };

	(void)state;
	mem_direct_gone_if(&rig.d, is_gone, &q);
	assert_int_equal(q.asked, 0);
	open_all(6);
	mem_direct_gone_if(&rig.d, is_gone, &q);
	assert_int_equal(q.asked, 6);
	assert_int_equal(rig.closes, 2);
	are_open(0x1d);
	mem_direct_gone(&rig.d, 0, RIG_BASE + 6 * UNIT);
	mem_direct_gone_if(&rig.d, is_gone, &q);
	assert_int_equal(q.asked, 6);
}

static bool any(const struct mem_window *w, void *arg)
{
	(void)w, (void)arg;
	return true;
}

static void *open_slowly(void *arg)
{
	(void)arg;
	mem_direct_open(&rig.d, AT(3, 0), true);
	return NULL;
}

static struct {
	pid_t tid;    /* [atomic] */
	bool is_done; /* [atomic] */
} closer;

static void *close_all(void *arg)
{
	(void)arg;
	store_release(&closer.tid, gettid());
	mem_direct_gone_if(&rig.d, any, NULL);
	store_release(&closer.is_done, true);
	return NULL;
}

/* Starts a thread that opens a window on the unit, and waits until the device is asked to. */
static pthread_t begin_to_open(unsigned unit)
{
	pthread_t t;
	char byte;

	for (unsigned i = 0; i < MEM_WINDOW_HITS; i++) {
		(void)find(AT(unit, 0), 1);
	}
	assert_int_equal(pipe(rig.entered) | pipe(rig.leave), 0);
	assert_int_equal(pthread_create(&t, NULL, open_slowly, NULL), 0);
	assert_int_equal(read(rig.entered[0], &byte, 1), 1);
	return t;
}

static void let_it_open(pthread_t t)
{
	assert_int_equal(write(rig.leave[1], "", 1), 1);
	pthread_join(t, NULL);
	for (unsigned i = 0; i < 2; i++) {
		close(rig.entered[i]);
		close(rig.leave[i]);
	}
	rig.entered[1] = -1;
}

static void a_window_that_is_being_opened_is_closed_too(void **state)
{
	pthread_t opener = begin_to_open(3), t;

	(void)state;
	memset(&closer, 0, sizeof(closer));
	assert_int_equal(pthread_create(&t, NULL, close_all, NULL), 0);
	eventually(load_acquire(&closer.is_done) ||
		   (load_acquire(&closer.tid) && thread_is_blocked(closer.tid)));
	assert_false(load_acquire(&closer.is_done));
	let_it_open(opener);
	pthread_join(t, NULL);
	assert_int_equal(rig.opens, 1);
	assert_int_equal(rig.closes, 1);
}

static void nothing_is_opened_after_the_end(void **state)
{
	unsigned char byte = 1;

	(void)state;
	open_all(6);
	for (unsigned i = 0; i < MEM_WINDOW_HITS; i++) {
		(void)find(AT(7, 0), 1);
	}
	mem_direct_finish(&rig.d);
	assert_int_equal(rig.closes, 6);
	are_open(0);
	mem_direct_open(&rig.d, AT(7, 0), true); /* by an answer from before */
	stays_closed(7);
	stays_closed(1);
	mem_direct_open(&rig.d, AT(1, 0), true);
	assert_false(mem_direct_up(&rig.d, AT(1, 0), &byte, 1));
	assert_false(mem_direct_down(&rig.d, &byte, AT(1, 0), 1));
	mem_direct_asked(&rig.d, AT(1, 0), false);
	mem_direct_gone(&rig.d, 0, UINT64_MAX);
	assert_int_equal(rig.opens, 6);
	assert_int_equal(rig.d.units.n, 0);
}

/* The fork happens while another thread holds the lock. */
static void a_child_does_not_touch_the_windows(void **state)
{
	pthread_t opener;
	int status;
	pid_t pid;

	(void)state;
	open_all(2);
	opener = begin_to_open(3);
	pid = fork();
	if (pid == 0) {
		alarm(EVENTUALLY_S);
		mem_direct_forget(&rig.d);
		_exit(rig.closes || rig.d.n_windows || rig.d.units.n || !rig.d.closed ||
		      !lock_try(&rig.d.lock));
	}
	let_it_open(opener);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	are_open(0xb);
}

/* ---- work that is not done ---- */

/* Returns how many copies are left alone after the answer that work was not done. */
static unsigned skipped(void)
{
	unsigned n = 0;

	mem_direct_asked(&rig.d, AT(1, 8), false);
	while (mem_direct_find(&rig.d, AT(1, 0), 1, true) == MEM_DIRECT_NO) {
		assert_int_equal(find(AT(1, 0), 1), MEM_DIRECT_YES); /* that does not ask */
		assert_int_equal(mem_direct_find(&rig.d, AT(2, 0), 1, true), MEM_DIRECT_YES);
		assert_true(++n < 1000);
	}
	return n;
}

static void units_with_unfinished_work_are_left_alone_for_some_copies(void **state)
{
	static const unsigned expected[] = { 1, 2, 4, 8, 16, 32, 64, 64, 64, 64 };

	(void)state;
	rig_open(1);
	rig_open(2);
	for (unsigned again = 0; again < 2; again++) {
		for (unsigned i = 0; i < ARRAY_SIZE(expected); i++) {
			assert_int_equal(skipped(), expected[i]);
		}
		mem_direct_asked(&rig.d, AT(1, 0), true);
		assert_int_equal(mem_direct_find(&rig.d, AT(1, 0), 1, true), MEM_DIRECT_YES);
	}
	/* A new window has no back-off. */
	(void)skipped();
	mem_direct_asked(&rig.d, AT(1, 0), false);
	mem_direct_gone(&rig.d, AT(1, 0), 1);
	mem_direct_asked(&rig.d, AT(1, 0), false); /* without a window */
	rig_open(1);
	assert_int_equal(mem_direct_find(&rig.d, AT(1, 0), 1, true), MEM_DIRECT_YES);
	assert_int_equal(skipped(), 1);
}

/* ---- times ---- */

static void took(size_t bytes, bool by_plan, uint64_t ns)
{
	mem_direct_took(&rig.d, MEM_COPY_UP, true, bytes, by_plan, ns);
}

static bool pays(size_t bytes)
{
	return mem_direct_pays(&rig.d, MEM_COPY_UP, true, bytes);
}

static bool wants(size_t bytes, bool by_plan)
{
	return mem_direct_wants_time(&rig.d, MEM_COPY_UP, true, bytes, by_plan);
}

/* All the times that are wanted of that size: the shortest is the third. */
static void measure(size_t bytes, bool by_plan, uint64_t ns)
{
	for (unsigned i = 0; i < MEM_DIRECT_TIMES; i++) {
		assert_true(wants(bytes, by_plan));
		took(bytes, by_plan, i == 2 ? ns : ns + 1000 * (i + 1));
	}
	assert_false(wants(bytes, by_plan));
}

static void the_plan_pays_if_its_shortest_time_is_less(void **state)
{
	(void)state;
	assert_true(pays(100)); /* as far as is known */
	measure(100, true, 501);
	assert_true(wants(100, false));
	assert_false(pays(100)); /* the driver's time is wanted */
	measure(64, false, 500); /* of the same class */
	assert_false(pays(127));
	took(100, false, 499); /* not wanted any more */
	assert_false(pays(64));
	assert_true(pays(63));
	measure(128, true, 469);
	assert_true(pays(128)); /* a 16th less than the driver's of the class below */
	measure(255, false, 499);
	assert_false(pays(128));
	/* Other ways and kinds have times of their own. */
	assert_true(mem_direct_pays(&rig.d, MEM_COPY_DOWN, true, 100));
	assert_true(mem_direct_pays(&rig.d, MEM_COPY_UP, false, 100));
	assert_true(mem_direct_wants_time(&rig.d, MEM_COPY_DOWN, true, 100, true));
	assert_true(mem_direct_wants_time(&rig.d, MEM_COPY_UP, false, 100, true));
}

static void times_pay_that_are_shorter_by_a_16th(void **state)
{
	(void)state;
	measure(8, false, 16000);
	measure(8, true, 15000);
	assert_true(pays(8));
	measure(32, false, 16000);
	measure(32, true, 15001);
	assert_false(pays(32));
}

static void sizes_without_times_go_by_the_next_smaller(void **state)
{
	(void)state;
	measure(1, true, 300);
	measure(1, false, 200);
	assert_false(pays(1));
	assert_false(pays(MEM_DIRECT_UP_MAX));
	measure(4096, false, 400);
	assert_false(pays(4095));
	assert_true(pays(4096)); /* against the plan's time of one byte */
	measure(MEM_DIRECT_UP_MAX, true, 401);
	assert_false(pays(MEM_DIRECT_UP_MAX));
	assert_true(pays(MEM_DIRECT_UP_MAX - 1));
}

static void three_times_are_not_enough(void **state)
{
	(void)state;
	measure(8, false, 100);
	for (unsigned i = 1; i < MEM_DIRECT_TIMES; i++) {
		took(8, true, 5000);
		assert_true(pays(8));
		assert_true(wants(8, true));
	}
	took(8, true, 5000);
	assert_false(pays(8));
}

static void the_shortest_time_counts(void **state)
{
	(void)state;
	for (unsigned shortest = 0; shortest < MEM_DIRECT_TIMES; shortest++) {
		size_t bytes = (size_t)2 << 2 * shortest; /* the class below has no times */

		for (unsigned i = 0; i < MEM_DIRECT_TIMES; i++) {
			took(bytes, true, i == shortest ? 100 : 900);
			took(bytes, false, 107);
		}
		assert_true(pays(bytes));
		for (unsigned i = 0; i < MEM_DIRECT_TIMES; i++) {
			took(2 * bytes, true, 100);
			took(2 * bytes, false, i == shortest ? 99 : 900);
		}
		assert_false(pays(2 * bytes));
	}
}

static void times_that_cannot_be_told_are_asked_for_a_while(void **state)
{
	(void)state;
	for (unsigned i = 0; i < MEM_DIRECT_UNTIMED_MAX; i++) {
		assert_true(wants(8, false));
		took(8, false, MEM_DIRECT_UNTIMED);
	}
	assert_false(wants(8, false));
	assert_true(wants(8, true));
	assert_true(wants(16, false));
	took(16, false, MEM_DIRECT_UNTIMED);
	measure(16, false, 200); /* it counts for nothing else */
	measure(16, true, 188);
	assert_true(pays(16));
}

static void times_that_cannot_be_told_are_forgotten_when_it_is_measured_again(void **state)
{
	(void)state;
	for (unsigned i = 1; i < MEM_DIRECT_UNTIMED_MAX; i++) {
		took(8, false, MEM_DIRECT_UNTIMED);
	}
	measure(8, false, 200);
	measure(8, true, 300);
	for (unsigned i = 0; i < MEM_DIRECT_RETRY; i++) {
		assert_false(pays(8));
	}
	for (unsigned i = 0; i < MEM_DIRECT_UNTIMED_MAX; i++) {
		assert_true(wants(8, false));
		took(8, false, MEM_DIRECT_UNTIMED);
	}
	assert_false(wants(8, false));
}

static void long_times_stay_long(void **state)
{
	(void)state;
	for (unsigned i = 0; i < MEM_DIRECT_TIMES; i++) {
		took(8, true, ((uint64_t)1 << 32) + 5);
		took(8, false, 1000);
	}
	assert_false(pays(8));
}

static void the_plan_is_measured_again_after_some_copies(void **state)
{
	(void)state;
	measure(8, true, 300);
	measure(8, false, 200);
	for (unsigned again = 0; again < 2; again++) {
		for (unsigned i = 0; i < MEM_DIRECT_RETRY; i++) {
			assert_false(wants(8, true) || wants(8, false));
			assert_false(pays(8));
		}
		assert_true(pays(8));
		measure(8, true, 300);
		assert_false(pays(8)); /* the driver's time is wanted */
		measure(8, false, 200);
	}
	for (unsigned i = 0; i < MEM_DIRECT_RETRY; i++) {
		assert_false(pays(8));
	}
	measure(8, true, 150);
	measure(8, false, 200);
	for (unsigned i = 0; i < 2 * MEM_DIRECT_RETRY; i++) {
		assert_true(pays(8));
	}
	assert_false(wants(8, true) || wants(8, false));
}

#define WITH_RIG(test) cmocka_unit_test_setup_teardown(test, rig_begin, rig_end)

int main(void)
{
	const struct CMUnitTest tests[] = {
		WITH_RIG(a_window_opens_after_some_copies),
		WITH_RIG(a_unit_gets_one_window),
		cmocka_unit_test(copies_are_small_up_to_a_size),
		WITH_RIG(refused_units_stay_refused_until_their_memory_goes),
		WITH_RIG(windows_may_cover_a_part_of_a_unit),
		WITH_RIG(a_copy_across_units_needs_both_windows),
		WITH_RIG(copies_across_units_open_both_windows),
		WITH_RIG(windows_have_a_limit),
		WITH_RIG(the_limit_holds_for_callers_that_were_told_to_open_before),
		WITH_RIG(units_that_are_counted_have_a_limit),
		WITH_RIG(windows_on_freed_memory_are_closed_and_no_others),
		WITH_RIG(ranges_that_go_may_be_huge),
		WITH_RIG(windows_are_closed_by_a_condition),
		WITH_RIG(a_window_that_is_being_opened_is_closed_too),
		WITH_RIG(nothing_is_opened_after_the_end),
		WITH_RIG(a_child_does_not_touch_the_windows),
		WITH_RIG(units_with_unfinished_work_are_left_alone_for_some_copies),
		WITH_RIG(the_plan_pays_if_its_shortest_time_is_less),
		WITH_RIG(times_pay_that_are_shorter_by_a_16th),
		WITH_RIG(sizes_without_times_go_by_the_next_smaller),
		WITH_RIG(three_times_are_not_enough),
		WITH_RIG(the_shortest_time_counts),
		WITH_RIG(times_that_cannot_be_told_are_asked_for_a_while),
		WITH_RIG(times_that_cannot_be_told_are_forgotten_when_it_is_measured_again),
		WITH_RIG(long_times_stay_long),
		WITH_RIG(the_plan_is_measured_again_after_some_copies),
	};

	alarm(200);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
