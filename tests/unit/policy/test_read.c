/* Read-side sections: what a thread's slot says. The threads of these tests take a step when the
 * test says so. */
#include "reader.h"

#include <errno.h>
#include <signal.h>
#include <sys/wait.h>

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
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
