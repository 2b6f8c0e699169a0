/* Work sections: what closing them waits for, and that none begins while they are closed. */
#include "reader.h"

#include <errno.h>

#define SOON (10 * MS)
#define LATE (UINT64_C(60000) * MS) /* longer than a test may last */

static TLS_FAST bool no_slot;

int __real_pthread_setspecific(pthread_key_t key, const void *value);
int __wrap_pthread_setspecific(pthread_key_t key, const void *value);

int __wrap_pthread_setspecific(pthread_key_t key, const void *value)
{
	return no_slot ? ENOMEM : __real_pthread_setspecific(key, value);
}

/* A thread that enters a section when the test says so, and stays in it. */
struct worker {
	pthread_t thread;
	uint32_t go, tid, in, leave, out;
	bool without_slot;
};

static void *work(void *arg)
{
	struct worker *w = arg;
	struct policy_reader *p;

	no_slot = w->without_slot;
	eventually(load_seqcst(&w->go));
	store_seqcst(&w->tid, (uint32_t)gettid());
	p = policy_work_enter();
	assert_true((p == NULL) == w->without_slot);
	store_seqcst(&w->in, 1u);
	eventually(load_seqcst(&w->leave));
	policy_work_leave(p);
	store_seqcst(&w->out, 1u);
	return NULL;
}

static void begin(struct worker *w)
{
	assert_int_equal(pthread_create(&w->thread, NULL, work, w), 0);
	store_seqcst(&w->go, 1u);
}

static void end(struct worker *w)
{
	store_seqcst(&w->leave, 1u);
	pthread_join(w->thread, NULL);
	assert_int_equal(load_seqcst(&w->out), 1);
}

static void closing_is_given_up_while_a_thread_works(void **state)
{
	struct worker w = { .without_slot = *state != NULL };

	begin(&w);
	eventually(load_seqcst(&w.in));
	errno = 77;
	assert_false(policy_work_close(SOON));
	assert_int_equal(errno, 77);
	assert_int_equal(load_seqcst(&policy_work_closed), 0); /* they are open again */
	end(&w);
	assert_true(policy_work_close(SOON));
	policy_work_open();
}

static void *close_late(void *arg)
{
	store_seqcst((uint32_t *)arg, policy_work_close(LATE) ? 1u : 2u);
	return NULL;
}

static void closing_waits_for_a_thread_that_works(void **state)
{
	struct worker w = { .without_slot = *state != NULL };
	uint32_t closed = 0;
	pthread_t t;

	begin(&w);
	eventually(load_seqcst(&w.in));
	assert_int_equal(pthread_create(&t, NULL, close_late, &closed), 0);
	eventually(load_seqcst(&policy_work_closed));
	assert_int_equal(load_seqcst(&closed), 0);
	end(&w);
	pthread_join(t, NULL);
	assert_int_equal(closed, 1);
	policy_work_open();
}

/* Whichever slot it has. */
static void closing_waits_for_each_of_two_threads(void **state)
{
	for (unsigned last = 0; last < 2; last++) {
		struct worker w[2] = { 0 };
		bool early;

		for (unsigned i = 0; i < 2; i++) {
			begin(&w[i]);
			eventually(load_seqcst(&w[i].in));
		}
		end(&w[!last]);
		early = policy_work_close(SOON);
		policy_work_open();
		end(&w[last]);
		assert_false(early);
		assert_true(policy_work_close(SOON));
		policy_work_open();
	}
}

/* While it sleeps before its section it is not waited for. */
static void no_section_begins_while_they_are_closed(void **state)
{
	struct worker w = { .without_slot = *state != NULL };
	bool in, again;

	assert_true(policy_work_close(SOON));
	store_seqcst(&w.go, 1u); /* it does not sleep before that */
	begin(&w);
	eventually(load_seqcst(&w.in) ||
		   (load_seqcst(&w.tid) && thread_is_blocked((pid_t)load_seqcst(&w.tid))));
	in = load_seqcst(&w.in);
	again = policy_work_close(SOON);
	policy_work_open();
	eventually(load_seqcst(&w.in));
	end(&w);
	assert_false(in);
	assert_true(again);
}

/* A thread on its way into a section, as it is once it has seen them closed. */
static struct policy_reader *waiting; /* [atomic] */
static uint32_t waited;

static void *wait_in_section(void *arg)
{
	struct policy_reader *p = policy_work_enter();

	policy_work_leave(p);
	store_seqcst(&waiting, p);
	eventually(load_seqcst(&policy_work_closed));
	store_seqcst(&p->working, 1u);
	store_seqcst(&waited, 1u);
	policy_work_wait(p);
	policy_work_leave(p);
	return arg;
}

static void a_thread_that_waits_is_not_inside(void **state)
{
	struct policy_reader *p;
	pthread_t t;

	assert_int_equal(pthread_create(&t, NULL, wait_in_section, NULL), 0);
	eventually((p = load_seqcst(&waiting)) != NULL);
	assert_true(policy_work_close(SOON));
	eventually(load_seqcst(&waited) && !load_seqcst(&p->working));
	policy_work_open();
	pthread_join(t, NULL);
}

static void a_thread_that_works_cannot_close(void **state)
{
	struct policy_reader *p = policy_work_enter();

	assert_false(policy_work_close(LATE));
	policy_work_leave(p);
	assert_true(policy_work_close(SOON));
	policy_work_open();
}

/* As a handler does that interrupts the section: closing waits for the outer one. */
static void a_nested_section_does_not_wait(void **state)
{
	struct policy_reader *outer = policy_work_enter(), *inner;

	store_seqcst(&policy_work_closed, 1u);
	inner = policy_work_enter();
	policy_work_leave(inner);
	policy_work_open();
	assert_int_equal(outer->working, 1);
	policy_work_leave(outer);
	assert_int_equal(outer->working, 0);
}

static void *work_and_exit(void *arg)
{
	(void)policy_work_enter();
	return arg;
}

static void a_thread_that_has_exited_is_not_waited_for(void **state)
{
	pthread_t t;

	assert_int_equal(pthread_create(&t, NULL, work_and_exit, NULL), 0);
	pthread_join(t, NULL);
	assert_true(policy_work_close(SOON));
	policy_work_open();
}

/* Many threads work all the time, and each closing finds none in a section. */
#define THREADS 4u
static uint32_t inside, stop, rounds;

static void *work_always(void *arg)
{
	while (!load_seqcst(&stop)) {
		struct policy_reader *p = policy_work_enter();

		(void)add_seqcst(&inside, 1u);
		(void)sub_seqcst(&inside, 1u);
		policy_work_leave(p);
		(void)add_seqcst(&rounds, 1u);
	}
	return arg;
}

static void closed_means_that_none_is_inside(void **state)
{
	pthread_t t[THREADS];
	unsigned done = 0;

	for (unsigned i = 0; i < THREADS; i++) {
		assert_int_equal(pthread_create(&t[i], NULL, work_always, NULL), 0);
	}
	while (done < 2000) {
		if (!policy_work_close(SOON)) {
			continue;
		}
		for (unsigned i = 0; i < 100; i++) {
			assert_int_equal(load_seqcst(&inside), 0);
		}
		policy_work_open();
		done++;
	}
	eventually(load_seqcst(&rounds) > THREADS);
	store_seqcst(&stop, 1u);
	for (unsigned i = 0; i < THREADS; i++) {
		pthread_join(t[i], NULL);
	}
}

int main(void)
{
	static int without_slot;
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(closing_is_given_up_while_a_thread_works),
		cmocka_unit_test_prestate(closing_is_given_up_while_a_thread_works, &without_slot),
		cmocka_unit_test(closing_waits_for_a_thread_that_works),
		cmocka_unit_test_prestate(closing_waits_for_a_thread_that_works, &without_slot),
		cmocka_unit_test(closing_waits_for_each_of_two_threads),
		cmocka_unit_test(no_section_begins_while_they_are_closed),
		cmocka_unit_test_prestate(no_section_begins_while_they_are_closed, &without_slot),
		cmocka_unit_test(a_thread_that_waits_is_not_inside),
		cmocka_unit_test(a_thread_that_works_cannot_close),
		cmocka_unit_test(a_nested_section_does_not_wait),
		cmocka_unit_test(a_thread_that_has_exited_is_not_waited_for),
		cmocka_unit_test(closed_means_that_none_is_inside),
	};

	policy_read_setup();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
