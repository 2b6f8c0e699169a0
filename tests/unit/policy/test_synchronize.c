/* Waiting for read-side sections and at gates: what is waited for, and for how long. The threads of
 * these tests take a step when the test says so. */
#include "reader.h"

#include <errno.h>
#include <sys/wait.h>

/* ---- waiting for sections ---- */

struct waiter {
	uint32_t begun, done;
	bool result;
};

static void *synchronize(void *arg)
{
	struct waiter *w = arg;

	store_seqcst(&w->begun, 1u);
	w->result = policy_synchronize();
	store_seqcst(&w->done, 1u);
	return NULL;
}

static void a_section_is_waited_for(void **state)
{
	struct inside t = { 0 };
	struct waiter w = { 0 };
	pthread_t th;

	errno = 77;
	asked_ns = 0;
	assert_true(policy_synchronize()); /* no thread is inside */
	assert_int_equal(errno, 77);
	assert_int_equal(asked_ns, 0);
	assert_int_equal(policy_read_fenced, 0); /* membarrier works */
	enter(&t);
	pthread_create(&th, NULL, synchronize, &w);
	eventually(load_seqcst(&w.begun));
	clock_sleep_ns(5 * MS); /* time in which it could end if it did not wait */
	assert_int_equal(load_seqcst(&w.done), 0);
	leave(&t);
	pthread_join(th, NULL);
	assert_true(w.result);
}

/* A thread that stays inside is given up after half a second, and not waited for again. */
static void a_section_without_end_is_given_up(void **state)
{
	struct inside t = { 0 }, u = { 0 };

	enter(&t);
	assert_int_equal(given_up_after(), HALF_SECOND);
	assert_int_equal(t.slot->stuck, t.slot->seq);
	assert_int_equal(given_up_after(), ONE_LOOK);
	enter(&u);
	assert_int_equal(given_up_after(), ONE_LOOK + HALF_SECOND);
	assert_int_equal(given_up_after(), 2 * ONE_LOOK);
	t.slot->stuck = u.slot->stuck = 0; /* the half second is for all threads together */
	assert_int_equal(given_up_after(), HALF_SECOND + ONE_LOOK);
	leave(&t);
	leave(&u);
	assert_true(policy_synchronize());
}

/* A thread that sleeps inside, in read(2). */
struct sleeper {
	int wake[2];
	uint32_t in;
	struct policy_reader *slot;
	uintptr_t frame;
};

static void *sleep_inside(void *arg)
{
	struct sleeper *t = arg;
	struct policy_reader *r = policy_read_enter();
	char byte;

	t->slot = r;
	t->frame = (uintptr_t)&byte;
	store_seqcst(&t->in, 1u);
	assert_int_equal(read(t->wake[0], &byte, 1), 1);
	policy_read_leave(r);
	return NULL;
}

/* A thread that sleeps above the frame in which it entered has left that by longjmp, if both are on
 * the same stack. */
static void a_sleeping_thread_has_left_if_it_is_above_its_entry(void **state)
{
	struct sleeper t = { .in = 0 };
	uintptr_t entry;
	pthread_t th;

	assert_int_equal(pipe(t.wake), 0);
	assert_int_equal(pthread_create(&th, NULL, sleep_inside, &t), 0);
	eventually(load_seqcst(&t.in));
	entry = t.slot->sp;
	assert_int_equal(given_up_after(), HALF_SECOND); /* it sleeps below */
	t.slot->stuck = 0;
	t.slot->sp = 4096; /* on no stack */
	assert_int_equal(given_up_after(), HALF_SECOND);
	t.slot->stuck = 0;
	t.slot->sp = t.frame - 16384;
	assert_true(policy_synchronize()); /* as soon as it is asleep */
	t.slot->alt = t.frame - 16384;	   /* a handler sleeps on its alternate stack */
	t.slot->alt_end = t.frame + 16384;
	assert_int_equal(given_up_after(), HALF_SECOND);
	t.slot->alt = t.slot->alt_end = 0;
	t.slot->sp = entry;
	assert_int_equal(write(t.wake[1], "x", 1), 1);
	pthread_join(th, NULL);
	close(t.wake[0]);
	close(t.wake[1]);
}

/* ---- gates ---- */

static uint64_t stopped(void)
{
	return 1000;
}

static void a_thread_at_a_gate_is_waited_for_there(void **state)
{
	struct inside t = { .gate = &t };
	uint64_t begin;

	assert_true(policy_gate_synchronize(&t, 0));
	enter(&t);
	begin = clock_now_ns();
	errno = 77;
	assert_false(policy_gate_synchronize(&t, 2 * MS));
	assert_int_equal(errno, 77);
	assert_true(clock_now_ns() - begin >= 2 * MS);
	clock_set_source(stopped); /* no patience at all */
	assert_false(policy_gate_synchronize(&t, 0));
	clock_set_source(NULL);
	assert_true(policy_gate_synchronize(&begin, 0)); /* another gate */
	assert_true(policy_synchronize());		 /* it is in no section */
	leave(&t);
	assert_true(policy_gate_synchronize(&t, 0));
	/* the calling thread itself does not count */
	policy_read_leave(policy_read_enter());
	assert_true(policy_gate_enter(&t));
	assert_ptr_equal(policy_reader_self->gate, &t);
	assert_true(policy_gate_synchronize(&t, 0));
	policy_gate_leave();
	assert_null(policy_reader_self->gate);
}

/* ---- fork ---- */

static void a_child_has_no_other_threads(void **state)
{
	struct inside t = { 0 }, g = { .gate = &g };
	int status = 0;
	pid_t pid;

	enter(&t);
	enter(&g);
	policy_read_leave(policy_read_enter());
	pid = fork();
	if (pid == 0) {
		struct policy_reader *self = policy_reader_self;
		int wrong = 0;

		policy_read_after_fork();
		wrong |= policy_reader_self != self || !self->used ? 1 : 0;
		wrong |= self->tid != (uint32_t)syscall(SYS_gettid) ? 2 : 0;
		wrong |= t.slot->used || t.slot->seq & 1 ? 4 : 0;
		wrong |= g.slot->used || g.slot->gate ? 8 : 0;
		wrong |= !policy_synchronize() ? 16 : 0;
		wrong |= !policy_gate_synchronize(&g, 0) ? 32 : 0;
		_exit(wrong);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	leave(&t);
	leave(&g);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_section_is_waited_for),
		cmocka_unit_test(a_section_without_end_is_given_up),
		cmocka_unit_test(a_sleeping_thread_has_left_if_it_is_above_its_entry),
		cmocka_unit_test(a_thread_at_a_gate_is_waited_for_there),
		cmocka_unit_test(a_child_has_no_other_threads),
	};

	policy_read_setup();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
