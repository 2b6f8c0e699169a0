/* Sums to which mostly one thread adds: whose word an addition goes to, and running out of memory.
 */
#include "clocked.h"

#include <errno.h>
#include <stdlib.h>

/* ---- sums ---- */

static void *add_seven(void *arg)
{
	struct policy_reader *r = policy_read_enter(); /* takes a slot */

	policy_read_leave(r);
	sched_tally_add(arg, 7);
	return NULL;
}

static void *add_without_a_slot(void *arg)
{
	assert_null(policy_reader_self);
	sched_tally_add(arg, 100);
	return NULL;
}

static void in_another_thread(void *(*f)(void *), struct sched_tally *t)
{
	pthread_t th;

	assert_int_equal(pthread_create(&th, NULL, f, t), 0);
	pthread_join(th, NULL);
}

static void the_first_thread_owns_the_sum(void **state)
{
	struct sched_tally t = { 0 };

	policy_read_setup();
	policy_read_leave(policy_read_enter());
	in_another_thread(add_without_a_slot, &t); /* does not own it */
	assert_null(t.owner);
	assert_int_equal(t.others, 100);
	sched_tally_add(&t, 5);
	assert_ptr_equal(t.owner, policy_reader_self);
	sched_tally_add(&t, 6);
	assert_int_equal(t.mine, 11);
	in_another_thread(add_seven, &t);
	assert_ptr_equal(t.owner, policy_reader_self);
	assert_int_equal(t.mine, 11);
	assert_int_equal(t.others, 107);
	assert_int_equal(sched_tally_sum(&t), 118);
	sched_tally_sub(&t, 18);
	assert_int_equal(t.mine, 11); /* whichever thread subtracts */
	assert_int_equal(sched_tally_sum(&t), 100);
	sched_tally_set(&t, 3);
	assert_null(t.owner);
	assert_int_equal(sched_tally_sum(&t), 3);
	in_another_thread(add_seven, &t);
	assert_int_equal(t.mine, 7);
	assert_int_equal(sched_tally_sum(&t), 10);
}

/* Count and time share a word. */
static void accounts_hold_launches_and_time(void **state)
{
	uint64_t acc = SCHED_ACC(3, 1600);

	assert_int_equal(SCHED_ACC_COUNT(acc), 3);
	assert_int_equal(SCHED_ACC_NS(acc), 1600);
	acc += SCHED_ACC(0xfffffc, 31); /* 16 ns are the unit */
	assert_int_equal(SCHED_ACC_COUNT(acc), 0xffffff);
	assert_int_equal(SCHED_ACC_NS(acc), 1616);
}

/* ---- without memory ---- */

static bool no_memory;

/* Replaces libc's. */
void *aligned_alloc(size_t alignment, size_t size)
{
	void *p = NULL;

	return no_memory || posix_memalign(&p, alignment, size) ? NULL : p;
}

static void what_cannot_be_allocated_is_refused(void **state)
{
	struct sched_config cfg = { .tenant = 1, .device = &fake_ops };
	struct sched *s = NULL;
	struct fake_queue fq = { 0 };
	struct clocked c;

	no_memory = true;
	assert_int_equal(sched_create(&s, &cfg), -ENOMEM);
	assert_null(s);
	no_memory = false;
	clocked_init(&c, GBPF_CLASS_LATENCY);
	no_memory = true;
	assert_null(sched_queue_open(c.r.s, &fq, 0, 0));
	assert_int_equal(c.r.s->table.n_open, 1);
	assert_int_equal(c.r.s->table.n_queues, 1);
	assert_int_equal(c.r.s->latency_queues, 1);
	no_memory = false;
	assert_non_null(sched_queue_open(c.r.s, &fq, 0, 0));
	clocked_finish(&c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_first_thread_owns_the_sum),
		cmocka_unit_test(accounts_hold_launches_and_time),
		cmocka_unit_test(what_cannot_be_allocated_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
