/* Read-side sections and gates: what a thread's slot says, what is waited for, and for how long.
 * The threads of these tests take a step when the test says so. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../await.h"
#include "base/atomic.h"
#include "base/clock.h"
#include "policy/read.h"

#define MS UINT64_C(1000000)
/* Pauses grow: 64 rounds spin, 192 sleep for 10 us, the others for 200 us. A thread is looked at
 * after the 257th, and after each 16 more. */
#define ONE_LOOK (192 * UINT64_C(10000) + 200000)
#define HALF_SECOND (ONE_LOOK + 160 * 16 * UINT64_C(200000))

/* Replaces libc's: what the calling code asks for is counted, and slept only if `sleeps`. */
static uint64_t asked_ns;
static bool sleeps = true;

int clock_nanosleep(clockid_t id, int flags, const struct timespec *t, struct timespec *left)
{
	asked_ns += (uint64_t)t->tv_sec * 1000 * MS + (uint64_t)t->tv_nsec;
	return sleeps ? (int)syscall(SYS_clock_nanosleep, id, flags, t, left) : 0;
}

/* Returns the time for which policy_synchronize sleeps, which gives up. */
static uint64_t given_up_after(void)
{
	sleeps = false;
	asked_ns = 0;
	assert_false(policy_synchronize());
	sleeps = true;
	return asked_ns;
}

/* A thread that is inside a section, or at a gate, until it is let go. */
struct inside {
	const void *gate; /* NULL: a section */
	bool shared;	  /* without a slot */
	uint32_t in, leave;
	struct policy_reader *slot;
	uint32_t tid;
	pthread_t thread;
};

static void *stay(void *arg)
{
	struct inside *t = arg;
	struct policy_reader *r = policy_read_enter();

	t->slot = r;
	t->tid = (uint32_t)syscall(SYS_gettid);
	if (t->gate) {
		policy_read_leave(r);
		assert_true(policy_gate_enter(t->gate));
	}
	store_seqcst(&t->in, 1u);
	while (!load_seqcst(&t->leave)) {
		cpu_relax(); /* not asleep: where a sleeping thread is could be found out */
	}
	if (t->gate) {
		policy_gate_leave();
	} else {
		policy_read_leave(r);
	}
	return NULL;
}

static void enter(struct inside *t)
{
	assert_int_equal(pthread_create(&t->thread, NULL, stay, t), 0);
	while (!load_seqcst(&t->in)) {
		clock_sleep_ns(10000);
	}
}

static void leave(struct inside *t)
{
	store_seqcst(&t->leave, 1u);
	pthread_join(t->thread, NULL);
}

/* Before policy_read_setup threads have no slots: they share a counter. */
static void without_slots_threads_share_a_counter(void **state)
{
	struct policy_reader *r = policy_read_enter();
	int status = 0;
	pid_t pid;

	assert_null(r);
	assert_null(policy_reader_self);
	assert_false(policy_gate_enter(state));
	policy_gate_leave();
	/* This thread is inside itself. And membarrier, which is not registered yet, fails as under
	 * a filter of system calls: entries fence from now on, after 20 ms for those without. */
	assert_int_equal(policy_read_fenced, 0);
	assert_int_equal(given_up_after(), HALF_SECOND + 20 * MS);
	assert_int_equal(policy_read_fenced, 1);
	assert_int_equal(given_up_after(), HALF_SECOND);
	pid = fork();
	if (pid == 0) { /* other threads of the counter do not exist here */
		policy_read_after_fork();
		_exit(policy_synchronize() ? 0 : 1);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	policy_read_leave(r);
	assert_true(policy_synchronize());
	policy_read_setup();
	policy_read_setup();
	policy_read_fenced = 0;
}

static void a_section_makes_the_slot_odd(void **state)
{
	struct policy_reader *r = policy_read_enter();
	uint64_t seq = r->seq;

	assert_ptr_equal(r, policy_reader_self);
	assert_int_equal(seq & 1, 1);
	assert_int_equal(r->used, 1);
	assert_int_equal(r->tid, (uint32_t)syscall(SYS_gettid));
	assert_true(r->sp != 0);
	policy_read_leave(r);
	assert_int_equal(r->seq, seq + 1);
	assert_ptr_equal(policy_read_enter(), r);
	assert_int_equal(r->seq, seq + 2);
	policy_read_leave(r);
	assert_int_equal(r->seq, seq + 3);
}

/* A handler that interrupts a section lies below it on the stack; its section changes nothing. */
static void a_section_inside_a_section_leaves_the_slot_alone(void **state)
{
	struct policy_reader *r = policy_read_enter(), *inner;
	uint64_t seq = r->seq;
	uintptr_t sp = r->sp;

	errno = 77;
	inner = policy_read_reenter(r, sp - 64);
	assert_int_equal(errno, 77);
	assert_ptr_not_equal(inner, r);
	policy_read_leave(inner);
	assert_int_equal(r->seq, seq);
	/* at the same place or above, the outer one was left by longjmp: the slot is used again */
	assert_ptr_equal(policy_read_reenter(r, sp), r);
	assert_int_equal(r->seq, seq + 2);
	assert_ptr_equal(policy_read_reenter(r, sp + 64), r);
	assert_int_equal(r->seq, seq + 4);
	assert_int_equal(r->sp, sp + 64);
	policy_read_leave(r);
	assert_int_equal(r->seq & 1, 0);
}

/* On an alternate stack the places cannot be compared. */
static void a_section_on_an_alternate_stack_is_inside(void **state)
{
	static char stack[65536];
	const stack_t alt = { .ss_sp = stack, .ss_size = sizeof(stack) };
	uintptr_t low = (uintptr_t)stack, high = low + sizeof(stack);
	struct policy_reader *r = policy_read_enter();
	uint64_t seq = r->seq;
	stack_t old;

	assert_int_equal(sigaltstack(&alt, &old), 0); /* a sanitizer has one of its own */
	r->sp = low - 64;
	assert_ptr_not_equal(policy_read_reenter(r, low), r);
	assert_ptr_not_equal(policy_read_reenter(r, high - 1), r);
	assert_int_equal(r->seq, seq);
	assert_ptr_equal(policy_read_reenter(r, low - 1), r);
	assert_ptr_equal(policy_read_reenter(r, high), r);
	assert_int_equal(r->seq, seq + 4);
	policy_read_leave(r);
	assert_int_equal(sigaltstack(&old, NULL), 0);
}

static void a_slot_is_free_after_its_thread(void **state)
{
	struct inside a = { 0 }, b = { 0 }, c = { 0 };
	uint64_t seq;

	enter(&a);
	enter(&b);
	assert_ptr_not_equal(a.slot, b.slot);
	assert_int_equal(a.slot->tid, a.tid);
	seq = a.slot->seq;
	leave(&a);
	assert_int_equal(a.slot->used, 0);
	assert_int_equal(a.slot->seq, seq + 1);
	enter(&c);
	assert_ptr_equal(c.slot, a.slot); /* the first free one */
	assert_int_equal(c.slot->tid, c.tid);
	assert_int_equal(c.slot->seq, seq + 2); /* numbers of sections do not come again */
	leave(&c);
	leave(&b);
}

static void *exit_inside(void *slot)
{
	*(struct policy_reader **)slot = policy_read_enter();
	return NULL;
}

/* As after a cancellation. */
static void a_thread_that_exits_inside_has_left(void **state)
{
	struct policy_reader *slot = NULL;
	uint64_t before = 0;
	pthread_t th;

	for (unsigned i = 0; i < 2; i++) {
		assert_int_equal(pthread_create(&th, NULL, exit_inside, &slot), 0);
		pthread_join(th, NULL);
		assert_int_equal(slot->used, 0);
		assert_int_equal(slot->seq & 1, 0);
		assert_true(slot->seq > before);
		before = slot->seq;
	}
	assert_true(policy_synchronize());
}

static pthread_key_t late_key;
static bool late_slot_is_own;

/* Runs a second time, after the slot of the thread was given back. */
static void enter_late(void *again)
{
	if (again == &late_key) {
		pthread_setspecific(late_key, &late_slot_is_own);
		return;
	}
	policy_read_leave(policy_read_enter());
	late_slot_is_own = policy_reader_self && policy_reader_self->used;
}

static void *enter_again_at_the_end(void *arg)
{
	policy_read_leave(policy_read_enter());
	pthread_setspecific(late_key, &late_key);
	return NULL;
}

/* A destructor of another library may launch. */
static void a_thread_that_enters_while_it_exits_gets_a_slot(void **state)
{
	pthread_t th;

	assert_int_equal(pthread_key_create(&late_key, enter_late), 0);
	assert_int_equal(pthread_create(&th, NULL, enter_again_at_the_end, NULL), 0);
	pthread_join(th, NULL);
	assert_true(late_slot_is_own);
	pthread_key_delete(late_key);
}

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
	while (!load_seqcst(&w.begun)) {
		clock_sleep_ns(10000);
	}
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
	while (!load_seqcst(&t.in)) {
		clock_sleep_ns(10000);
	}
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
		cmocka_unit_test(without_slots_threads_share_a_counter),
		cmocka_unit_test(a_section_makes_the_slot_odd),
		cmocka_unit_test(a_section_inside_a_section_leaves_the_slot_alone),
		cmocka_unit_test(a_section_on_an_alternate_stack_is_inside),
		cmocka_unit_test(a_slot_is_free_after_its_thread),
		cmocka_unit_test(a_thread_that_exits_inside_has_left),
		cmocka_unit_test(a_thread_that_enters_while_it_exits_gets_a_slot),
		cmocka_unit_test(a_section_is_waited_for),
		cmocka_unit_test(a_section_without_end_is_given_up),
		cmocka_unit_test(a_sleeping_thread_has_left_if_it_is_above_its_entry),
		cmocka_unit_test(a_thread_at_a_gate_is_waited_for_there),
		cmocka_unit_test(a_child_has_no_other_threads),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
