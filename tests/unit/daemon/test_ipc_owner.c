/* Processes that are asked for memory that they share, on a clock that the test moves: how many
 * questions one has at a time, and which may come back. */
#include "parts.h"

#include <errno.h>

#include "daemon/vgpu/vgpu_int.h"

#define ASKED_MAX 16u

static struct parts *p;

static int begin(void **state)
{
	p = parts_new();
	return 0;
}

static int finish(void **state)
{
	parts_free(p);
	return 0;
}

static void take(struct part *a, union proto_message *m, enum proto_type type)
{
	struct daemon_received r = { .m = *m };
	unsigned i = 0;

	while (daemon_ipc_feature.messages[i].type != type) {
		i++;
	}
	assert_true(daemon_ipc_feature.messages[i].take(&a->s, &r));
}

static struct part *ask(int pid)
{
	union proto_message m = { .ipc = { .pid = pid } };
	struct part *a = parts_add(p, OWN_USER, GBPF_CLASS_BATCH);

	a->s.state = DAEMON_SESSION_NEW;
	take(a, &m, PROTO_IPC_OPEN);
	return a;
}

/* Returns the error that the process is answered, or -1 without an answer. */
static int answer_of(struct part *a)
{
	union proto_message m;
	unsigned fds;

	return parts_message(a, &m, &fds) == PROTO_IPC_OPENED ? m.ipc.error : -1;
}

/* Returns how many questions a process has been sent. */
static unsigned questions(struct part *owner, union proto_message *ret_last)
{
	union proto_message m;
	unsigned n = 0, fds;

	for (; parts_message(owner, &m, &fds) == PROTO_IPC_WANTED; n++) {
		*ret_last = m;
	}
	return n;
}

/* Its messages would fill, and it would be dropped for it. */
static void one_that_is_stopped_gets_no_more_questions(void **state)
{
	struct part *owner = parts_add(p, OWN_USER, GBPF_CLASS_BATCH), *a;
	union proto_message m, last;

	for (unsigned i = 0; i < ASKED_MAX; i++) {
		a = ask(owner->s.peer.pid);
		assert_int_equal(answer_of(a), -1);
		a->s.ipc.number = 0; /* it leaves */
		a->s.dying = true;
	}
	assert_int_equal(answer_of(ask(owner->s.peer.pid)), EAGAIN);
	assert_int_equal(questions(owner, &last), ASKED_MAX);
	assert_int_equal(answer_of(ask(owner->s.peer.pid)), EAGAIN);
	assert_int_equal(questions(owner, &m), 0);
	last.ipc.error = ENOENT;
	take(owner, &last, PROTO_IPC_GIVEN);
	a = ask(owner->s.peer.pid);
	assert_int_equal(questions(owner, &m), 1);
	assert_int_equal(answer_of(a), -1);
	m.ipc.error = EIO;
	take(owner, &m, PROTO_IPC_GIVEN);
	assert_int_equal(answer_of(a), EIO);
}

/* Answers that were not asked for allow no more. */
static void what_was_not_asked_counts_as_no_answer(void **state)
{
	struct part *owner = parts_add(p, OWN_USER, GBPF_CLASS_BATCH);
	union proto_message m, none = { .ipc.error = ENOENT };

	for (unsigned i = 0; i < 3; i++) {
		take(owner, &none, PROTO_IPC_GIVEN);
	}
	for (unsigned i = 0; i < ASKED_MAX; i++) {
		(void)ask(owner->s.peer.pid);
	}
	assert_int_equal(answer_of(ask(owner->s.peer.pid)), EAGAIN);
	assert_int_equal(questions(owner, &m), ASKED_MAX);
}

static void one_that_has_lost_its_connection_may_come_back(void **state)
{
	struct daemon_vgpu *v = calloc(1, sizeof(*v));
	struct daemon_vgpu_line *l;

	assert_non_null(v);
	l = &v->line[PROTO_ACCOUNT_LINES - 1];
	v->uid = OWN_USER;
	v->n_lines = 1;
	p->d->vgpus.first = v;
	assert_int_equal(answer_of(ask(77)), ENOENT);
	*l = (struct daemon_vgpu_line){ .pid = 77, .death = p->d->sessions.reaper, .left = true };
	assert_int_equal(answer_of(ask(77)), EAGAIN);
	assert_int_equal(answer_of(ask(78)), ENOENT);
	v->uid = OWN_USER + 1; /* another user's */
	assert_int_equal(answer_of(ask(77)), ENOENT);
	v->uid = OWN_USER;
	l->gone = true;
	assert_int_equal(answer_of(ask(77)), ENOENT);
	p->d->vgpus.first = NULL;
	free(v);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define TEST(f) cmocka_unit_test_setup_teardown(f, begin, finish)
		TEST(one_that_is_stopped_gets_no_more_questions),
		TEST(what_was_not_asked_counts_as_no_answer),
		TEST(one_that_has_lost_its_connection_may_come_back),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
