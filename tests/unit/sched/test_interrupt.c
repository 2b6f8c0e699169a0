/* Interruptions of a thread inside a hook: signal handlers that call hooks themselves, leave it by
 * longjmp, end the thread, or fork. The program continues or never returns; versions can be dropped
 * at any time. With both engines. */
#include "fake.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/compiler.h"
#include "bpf/load/jit/jit.h"
#include "policy/read.h"
#include "sched/sched_int.h"

#include "../eventually.h"

static struct rig r;
static struct sched_queue *q;
static struct fake_queue fq;
static void (*in_the_middle)(void); /* action of the handler */
static sigjmp_buf away;
static unsigned helper_calls, handler_calls;

static void handler(int sig)
{
	void (*f)(void) = in_the_middle;

	handler_calls++;
	in_the_middle = NULL;
	if (f) {
		f();
	}
}

/* Replaces bpf_ktime_get_ns in the policy's table. */
static uint64_t interrupted(uint64_t a1, uint64_t a2, uint64_t a3, uint64_t a4, uint64_t a5,
			    struct ebpf_env *env)
{
	helper_calls++;
	raise(SIGUSR1);
	return 0;
}

static struct policy_version *prepared(uint64_t version)
{
	for (unsigned i = 0; i < POLICY_MAX_PREPARED; i++) {
		if (r.s->policy.prepared[i].version == version) {
			return &r.s->policy.prepared[i];
		}
	}
	return NULL;
}

static unsigned mapped_versions(void)
{
	unsigned n = 0;

	for (unsigned i = 0; i < POLICY_MAX_PREPARED; i++) {
		n += r.s->policy.prepared[i].policy.image != NULL;
	}
	return n;
}

/* A submit program with a frame and saved registers; it answers HOLD if they have changed
 * meanwhile. */
static void use(uint64_t version, bool compiled)
{
	static const struct ebpf_insn code[] = {
		I_MOV(6, 6),
		I_MOV(9, 9),
		I_ST(EBPF_DW, 10, -8, 77),
		I_MOV(1, 0),
		I_MOV(2, 1),
		{ .code = EBPF_JMP | EBPF_CALL, .imm = 5 },
		I_LDX(EBPF_DW, 3, 10, -8),
		I_MOV(0, GBPF_HOLD),
		I_J(EBPF_JNE, 3, 77, 3),
		I_J(EBPF_JNE, 6, 6, 2),
		I_J(EBPF_JNE, 9, 9, 1),
		I_MOV(0, GBPF_GO),
		I_EXIT,
	};
	struct ebpf_image_header h = { .version = version, .name = "test" };
	static const int none[EBPF_REGIONS] = EBPF_NO_REGIONS;
	uint8_t machine[1024];
	size_t bytes = 0;
	int at = ebpf_jit_x86(code, ARRAY_SIZE(code), NULL, 0, machine, sizeof(machine), &bytes),
	    fd;

	h.n_insns = ARRAY_SIZE(code);
	h.progs[POLICY_HOOK_submit] =
		(struct ebpf_image_prog){ .n_insns = ARRAY_SIZE(code),
					  .cost = 1,
					  .code_offset = compiled ? (uint32_t)at : UINT32_MAX };
	assert_true(!compiled || at >= 0);
	fd = ebpf_image_build(&h, NULL, code, compiled ? machine : NULL, compiled ? bytes : 0);
	assert_true(fd >= 0);
	assert_int_equal(sched_policy_prepare(r.s, version, UINT32_MAX, fd, none), 0);
	close(fd);
	assert_int_equal(prepared(version)->policy.entry[POLICY_HOOK_submit] != NULL, compiled);
	prepared(version)->policy.env.helpers[EBPF_SLOT_bpf_ktime_get_ns] = interrupted;
	store_release(&r.dir.version[0], version);
}

static enum sched_answer submit_with(void (*f)(void))
{
	struct sched_launch l = kernel_launch(NULL);

	in_the_middle = f;
	return go(q, &fq, &l);
}

static void begin(bool compiled)
{
	struct sigaction act = { .sa_handler = handler };

	rig_init(&r, GBPF_CLASS_NORMAL, 0, 0);
	memset(&fq, 0, sizeof(fq));
	fq.eager = 1;
	q = sched_queue_open(r.s, &fq, 0, 0);
	sigaction(SIGUSR1, &act, NULL);
	helper_calls = handler_calls = 0;
	use(1, compiled);
}

static void finish(void)
{
	sched_queue_close(q);
	rig_finish(&r);
	signal(SIGUSR1, SIG_DFL);
}

static void drops_at_once(uint64_t version, uint64_t next, bool compiled)
{
	use(next, compiled);
	sched_policy_drop(r.s, version, UINT32_MAX);
	assert_null(prepared(version));
	assert_int_equal(mapped_versions(), 1);
}

/* ---- a handler that calls a hook ---- */

static uint64_t seq_in_handler, seq_after_inner;

static void calls_a_hook(void)
{
	seq_in_handler = policy_reader_self->seq;
	assert_int_equal(submit_with(NULL), SCHED_GO);
	seq_after_inner = policy_reader_self->seq;
}

static void a_handler_calls_a_hook(bool compiled)
{
	begin(compiled);
	assert_int_equal(submit_with(NULL), SCHED_GO);
	assert_int_equal(submit_with(calls_a_hook), SCHED_GO);
	assert_int_equal(helper_calls, 3);
	assert_int_equal(seq_in_handler & 1, 1);
	assert_int_equal(seq_after_inner, seq_in_handler); /* the outer call is still protected */
	assert_int_equal(policy_reader_self->seq & 1, 0);
	drops_at_once(1, 2, compiled);
	finish();
}

/* The same on an alternate stack above or below the thread's own. */
static void a_handler_on_its_own_stack_calls_a_hook(bool compiled)
{
	struct sigaction act = { .sa_handler = handler, .sa_flags = SA_ONSTACK };
	stack_t alt = { .ss_sp = malloc(1u << 17), .ss_size = 1u << 17 },
		none = { .ss_flags = SS_DISABLE };

	begin(compiled);
	sigaltstack(&alt, NULL);
	sigaction(SIGUSR1, &act, NULL);
	assert_int_equal(submit_with(calls_a_hook), SCHED_GO);
	assert_int_equal(helper_calls, 2);
	assert_int_equal(seq_after_inner, seq_in_handler);
	assert_int_equal(policy_reader_self->seq & 1, 0);
	sigaltstack(&none, NULL);
	drops_at_once(1, 2, compiled);
	finish();
	free(alt.ss_sp);
}

/* ---- longjmp ---- */

static void jumps_away(void)
{
	siglongjmp(away, 1);
}

static NOINLINE void torn_from_below(unsigned depth)
{
	volatile char room[1024];

	room[0] = 1;
	if (depth) {
		torn_from_below(depth - 1);
	} else {
		submit_with(jumps_away);
		fail();
	}
	room[1] = room[0];
}

static void tear(void)
{
	if (sigsetjmp(away, 1) == 0) {
		torn_from_below(16);
	}
}

static void after_a_jump_the_next_call_is_as_ever(bool compiled)
{
	begin(compiled);
	tear();
	assert_int_equal(policy_reader_self->seq & 1, 1);
	assert_int_equal(submit_with(NULL), SCHED_GO);
	assert_int_equal(policy_reader_self->seq & 1, 0);
	drops_at_once(1, 2, compiled);
	finish();
}

/* The thread sleeps outside the section, and another thread drops the version. */
struct torn {
	pthread_t id;
	pthread_mutex_t lock;
	pthread_cond_t change;
	int state;
	uint32_t spin;
	pid_t tid; /* valid from state 1 on */
};

static void torn_set(struct torn *t, int state)
{
	pthread_mutex_lock(&t->lock);
	t->state = state;
	pthread_cond_broadcast(&t->change);
	pthread_mutex_unlock(&t->lock);
}

static void torn_await(struct torn *t, int state)
{
	pthread_mutex_lock(&t->lock);
	while (t->state != state) {
		pthread_cond_wait(&t->change, &t->lock);
	}
	pthread_mutex_unlock(&t->lock);
}

static void *torn_thread(void *arg)
{
	struct torn *t = arg;

	tear();
	t->tid = gettid();
	torn_set(t, 1);
	while (load_acquire(&t->spin)) {
	}
	torn_await(t, 2);
	assert_int_equal(submit_with(NULL), SCHED_GO);
	return NULL;
}

/* A failed wait for it would leave its version mapped. */
static void a_thread_that_left_by_longjmp_and_sleeps_is_not_waited_for(bool compiled)
{
	struct torn t = { .lock = PTHREAD_MUTEX_INITIALIZER, .change = PTHREAD_COND_INITIALIZER };

	begin(compiled);
	pthread_create(&t.id, NULL, torn_thread, &t);
	torn_await(&t, 1);
	eventually(thread_is_blocked(t.tid));
	drops_at_once(1, 2, compiled);
	torn_set(&t, 2);
	pthread_join(t.id, NULL);
	drops_at_once(2, 3, compiled);
	finish();
}

/* It cannot be seen to be outside, so the version stays mapped until its next call. */
static void a_thread_that_left_by_longjmp_and_runs_keeps_its_version(bool compiled)
{
	struct torn t = { .lock = PTHREAD_MUTEX_INITIALIZER,
			  .change = PTHREAD_COND_INITIALIZER,
			  .spin = 1 };

	begin(compiled);
	pthread_create(&t.id, NULL, torn_thread, &t);
	torn_await(&t, 1);
	use(2, compiled);
	sched_policy_drop(r.s, 1, UINT32_MAX);
	assert_null(prepared(1));
	assert_int_equal(mapped_versions(), 2);
	store_release(&t.spin, 0u);
	torn_set(&t, 2);
	pthread_join(t.id, NULL);
	use(3, compiled);
	sched_policy_drop(r.s, 2, UINT32_MAX);
	assert_int_equal(mapped_versions(), 1);
	finish();
}

/* ---- the thread ends ---- */

/* ---- a handler that sleeps on an alternate stack above the frame that entered ---- */

enum { RESTING = 1, GO_ON };
static int resting;

static void rests(void)
{
	store_seqcst(&resting, RESTING);
	eventually(load_seqcst(&resting) == GO_ON);
}

static NOINLINE void enter_and_rest(void)
{
	struct policy_reader *p = policy_read_enter();

	in_the_middle = rests;
	raise(SIGUSR1);
	policy_read_leave(p);
}

/* As runtimes of languages and thread-local buffers place it: in the thread's own mapping, above
 * all frames. */
static void *rest_above(void *arg)
{
	char room[65536];
	stack_t alt = { .ss_sp = room, .ss_size = sizeof(room) };

	sigaltstack(&alt, NULL);
	enter_and_rest();
	alt.ss_flags = SS_DISABLE;
	sigaltstack(&alt, NULL);
	return arg;
}

static void who_rests_on_another_stack_is_inside(bool compiled)
{
	struct sigaction act = { .sa_handler = handler, .sa_flags = SA_ONSTACK };
	pthread_t thread;

	begin(compiled);
	sigaction(SIGUSR1, &act, NULL);
	store_seqcst(&resting, 0);
	assert_int_equal(pthread_create(&thread, NULL, rest_above, NULL), 0);
	eventually(load_seqcst(&resting) == RESTING);
	assert_false(policy_synchronize());
	store_seqcst(&resting, GO_ON);
	pthread_join(thread, NULL);
	assert_true(policy_synchronize());
	finish();
}

static void ends_the_thread(void)
{
	pthread_exit((void *)7);
}

static void cancels_the_thread(void)
{
	pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL);
	pthread_cancel(pthread_self());
}

static void *ending(void *arg)
{
	void (*how)(void) = arg ? cancels_the_thread : ends_the_thread;

	submit_with(how);
	return NULL;
}

static void a_thread_that_ends_inside_is_gone(bool compiled)
{
	for (int cancel = 0; cancel < 2; cancel++) {
		pthread_t id;
		void *ret;

		begin(compiled);
		pthread_create(&id, NULL, ending, cancel ? &id : NULL);
		pthread_join(id, &ret);
		assert_ptr_equal(ret, cancel ? PTHREAD_CANCELED : (void *)7);
		assert_int_equal(handler_calls, 1);
		drops_at_once(1, 2, compiled);
		assert_int_equal(submit_with(NULL), SCHED_GO);
		finish();
	}
}

/* ---- fork ---- */

static pid_t child;

static void forks(void)
{
	child = fork();
	if (child == 0) {
		sched_after_fork_child(r.s); /* what the shim does in the child */
	}
}

static void a_child_goes_on_inside(bool compiled)
{
	int status;

	begin(compiled);
	child = -1;
	if (submit_with(forks) != SCHED_GO) {
		_exit(1);
	}
	if (child == 0) {
		int good = (policy_reader_self->seq & 1) == 0 && submit_with(NULL) == SCHED_GO &&
			   policy_synchronize();

		_exit(good ? 42 : 2);
	}
	assert_true(child > 0);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 42);
	drops_at_once(1, 2, compiled);
	finish();
}

/* ---- both engines ---- */

#define BOTH(name)                                                                                 \
	static void name##_compiled(void **state)                                                  \
	{                                                                                          \
		name(true);                                                                        \
	}                                                                                          \
	static void name##_interpreted(void **state)                                               \
	{                                                                                          \
		name(false);                                                                       \
	}
BOTH(a_handler_calls_a_hook)
BOTH(a_handler_on_its_own_stack_calls_a_hook)
BOTH(after_a_jump_the_next_call_is_as_ever)
BOTH(a_thread_that_left_by_longjmp_and_sleeps_is_not_waited_for)
BOTH(a_thread_that_left_by_longjmp_and_runs_keeps_its_version)
BOTH(who_rests_on_another_stack_is_inside)
BOTH(a_thread_that_ends_inside_is_gone)
BOTH(a_child_goes_on_inside)
#define TESTS(name) cmocka_unit_test(name##_compiled), cmocka_unit_test(name##_interpreted)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TESTS(a_handler_calls_a_hook),
		TESTS(a_handler_on_its_own_stack_calls_a_hook),
		TESTS(after_a_jump_the_next_call_is_as_ever),
		TESTS(a_thread_that_left_by_longjmp_and_sleeps_is_not_waited_for),
		TESTS(a_thread_that_left_by_longjmp_and_runs_keeps_its_version),
		TESTS(who_rests_on_another_stack_is_inside),
		TESTS(a_thread_that_ends_inside_is_gone),
		TESTS(a_child_goes_on_inside),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
