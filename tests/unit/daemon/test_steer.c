/* The hook preempt and hardware control, as far as they need no GPU: when the hook runs, invalid
 * verdicts, the end of a process, hostile handles. */
#include "harness.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/shm.h"
#include "gpu/control.h"

enum { LATENCY, NORMAL, BATCH };

static void load(struct gd *d, const char *name)
{
	struct gbpf *g = gd_open(d);

	if (gbpf_policy_load(g, gd_object(name), NULL, GBPF_LOAD_SWAP, NULL) < 0) {
		fail_msg("%s", gbpf_last_error(g)->message);
	}
	gbpf_close(g);
}

static json_int_t note(struct gd *d, unsigned i)
{
	json_t *j = gd_call(d, "policy.show", NULL);
	json_t *notes = json_object_get(json_object_get(j, "counters"), "notes");
	json_int_t v = json_integer_value(json_array_get(notes, i));

	json_decref(j);
	return v;
}

static void enter(struct fake *f, struct gd *d, uint32_t class_id, uint32_t weight,
		  const char *name)
{
	fake_connect(f, d);
	fake_say_hello(f, class_id, weight, name);
	fake_welcomed(f);
	gd_await_event(d, 0, "start", name);
}

static void open_request(struct fake *f)
{
	store_seqcst(&f->board->gpu[0].opened_ns, clock_now_ns());
	store_seqcst(&f->board->gpu[0].open, 1u);
}

static void work(struct fake *f)
{
	store_seqcst(&f->stats->inflight, 1u);
	store_seqcst(&f->stats->gpu[0].inflight, 1u);
	store_seqcst(&f->stats->launches, load_seqcst(&f->stats->launches) + 1);
}

static void the_hook_is_asked_while_a_request_waits(void **state)
{
	struct gd *d = *state;
	struct fake lc, batch;
	json_int_t before;

	load(d, "steer");
	enter(&lc, d, LATENCY, 100, "lc");
	enter(&batch, d, BATCH, 100, "batch");
	work(&batch);
	gd_await_event(d, 0, "start", "batch");
	assert_int_equal(note(d, 0), 0); /* no request waits */
	open_request(&lc);
	while (note(d, 0) == 0) {
		work(&batch);
	}
	assert_int_equal(note(d, 1), 0); /* it has sent no handles */
	store_seqcst(&lc.board->gpu[0].open, 0u);
	do { /* calls end: only a time without one shows that, a whole round of gbpfd */
		before = note(d, 0);
		(void)poll(NULL, 0, 20);
	} while (note(d, 0) != before);
	fake_leave(&lc);
	fake_leave(&batch);
}

/* Waits until lc was sent whether to report its requests. */
static void await_telling(struct fake *lc, struct fake *batch, uint32_t tell)
{
	struct pollfd p = { .fd = lc->sock, .events = POLLIN };
	union proto_message m = { 0 };

	while (m.head.type != PROTO_SET || m.set.tell_requests != tell) {
		int fds[8];
		unsigned n = 0;

		work(batch);
		m.head.type = 0;
		if (poll(&p, 1, 1) == 1) {
			assert_int_equal(fake_receive(lc, &m, fds, &n), 1);
		}
		if (m.head.type == PROTO_SET) {
			assert_int_equal(m.set.hold_limit_ns, 100000000);
			assert_int_equal(m.set.min_share_ppm, 20000);
		}
		while (n) {
			close(fds[--n]);
		}
	}
}

static void a_policy_may_be_asked_as_soon_as_a_request_opens(void **state)
{
	struct gd *d = *state;
	union proto_message m = { 0 };
	struct fake lc, batch;

	load(d, "steer");
	enter(&lc, d, LATENCY, 100, "lc");
	enter(&batch, d, BATCH, 17, "batch");
	open_request(&lc);
	await_telling(&lc, &batch, 1);
	assert_int_equal(note(d, 4), 0); /* it has not reported yet */
	while (note(d, 4) == 0) {	 /* on a slow machine a millisecond may pass meanwhile */
		store_seqcst(&lc.board->gpu[0].open, 0u);
		fake_send(&lc, &m, PROTO_REQUEST);
		work(&batch);
		open_request(&lc);
		fake_send(&lc, &m, PROTO_REQUEST);
	}
	store_seqcst(&lc.board->gpu[0].open, 0u);
	await_telling(&lc, &batch, 0);	  /* no policy has asked for it for a second */
	for (int i = 0; i < 10000; i++) { /* reports that were not asked for are ignored */
		fake_send(&lc, &m, PROTO_REQUEST);
	}
	assert_int_equal(gd_number(d, "status", "tenants"), 2);
	fake_leave(&lc);
	fake_leave(&batch);
}

static void a_policy_may_be_asked_between_two_ticks(void **state)
{
	struct gd *d = *state;
	struct fake lc, none, batch;

	load(d, "steer");
	enter(&lc, d, LATENCY, 100, "lc");
	enter(&none, d, BATCH, 17, "none");
	open_request(&lc);
	while (note(d, 0) < 5) {
		work(&none);
	}
	assert_int_equal(note(d, 6), 0); /* it has not asked for it */
	fake_leave(&none);
	enter(&batch, d, BATCH, 18, "batch");
	for (json_int_t n = note(d, 0); note(d, 6) < 5 && note(d, 0) < n + 5000;) {
		work(&batch);
	}
	assert_true(note(d, 6) >= 5);
	store_seqcst(&lc.board->gpu[0].open, 0u);
	fake_leave(&lc);
	fake_leave(&batch);
}

static void a_process_is_ended_by_the_policys_word(void **state)
{
	struct gd *d = *state;
	int fd = (int)syscall(SYS_pidfd_open, getpid(), 0), status;
	struct fake lc;
	pid_t pid;

	if (fd < 0) {
		skip();
	}
	close(fd);
	load(d, "steer");
	enter(&lc, d, LATENCY, 100, "lc");
	open_request(&lc);
	pid = fork();
	if (pid == 0) {
		struct fake hog;

		alarm(EVENTUALLY_S);
		enter(&hog, d, BATCH, 11, "hog");
		for (;;) {
			work(&hog);
			(void)poll(NULL, 0, 1); /* the rate of its launches, until it is killed */
		}
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFSIGNALED(status));
	assert_int_equal(WTERMSIG(status), SIGKILL);
	gd_await_event(d, 0, "preempt", "is ended");
	fake_leave(&lc);
}

static void verdicts_of_preempt_are_checked(void **state)
{
	struct gd *d = *state;
	struct fake lc, batch;

	load(d, "steer");
	enter(&lc, d, LATENCY, 100, "lc");
	enter(&batch, d, BATCH, 13, "batch");
	open_request(&lc);
	while (gd_number(d, "status", "counters.verdict_errors") == 0) {
		work(&batch);
	}
	fake_leave(&lc);
	fake_leave(&batch);
}

/* Policies decide by how long a request has waited, up to ending a process. */
static void a_request_is_as_old_as_it_was_seen(void **state)
{
	static const uint64_t lies[] = { 1, UINT64_MAX, 0 };
	struct gd *d = *state;
	struct fake lc, batch;

	load(d, "steer");
	enter(&lc, d, LATENCY, 100, "lc");
	enter(&batch, d, BATCH, 100, "batch");
	for (unsigned i = 0; i < 3; i++) {
		json_int_t before = note(d, 0);

		store_seqcst(&lc.board->gpu[0].opened_ns, lies[i]);
		store_seqcst(&lc.board->gpu[0].last_end_ns, clock_now_ns()); /* another request */
		store_seqcst(&lc.board->gpu[0].open, 1u);
		while (note(d, 0) < before + 5) {
			work(&batch);
		}
	}
	assert_int_equal(note(d, 5), 0);
	fake_leave(&lc);
	fake_leave(&batch);
}

/* Without handles nothing can be switched off, and no stronger level is used instead. */
static void levels_that_cannot_be_had_are_skipped(void **state)
{
	struct gd *d = *state;
	struct fake lc, batch;

	load(d, "steer");
	enter(&lc, d, LATENCY, 100, "lc");
	enter(&batch, d, BATCH, 12, "batch");
	open_request(&lc);
	while (note(d, 0) < 20) {
		work(&batch);
	}
	assert_int_equal(gd_number(d, "status", "tenants"), 2);
	fake_leave(&lc);
	fake_leave(&batch);
}

static void helpers_answer(void **state)
{
	struct gd *d = *state;
	struct fake a, b;

	load(d, "steer");
	enter(&a, d, BATCH, 14, "a");
	enter(&b, d, BATCH, 15, "b");
	while (note(d, 2) == 0) { /* a slice is stored for handles that may arrive later */
		work(&a);
	}
	assert_int_equal(note(d, 3), 0); /* no handles to switch off with */
	fake_leave(&a);
	fake_leave(&b);
}

static void send_handles(struct fake *f, uint32_t gpu, uint32_t bytes, const struct gpu_handles *h,
			 int fd)
{
	union proto_message m = { 0 };

	m.control.gpu = gpu;
	m.control.bytes = bytes;
	memcpy(m.control.handles, h, sizeof(*h));
	assert_int_equal(proto_send(f->sock, &m, PROTO_CONTROL, &fd, fd >= 0), 0);
}

static void hostile_handles_do_no_harm(void **state)
{
	struct gd *d = *state;
	struct gpu_handles h = { .kind = GPU_KIND_SOFT, .capable = 0x7f }, bad;
	struct fake lc, f;
	uint64_t seq = 0;
	int p[2], fds[4];

	assert_int_equal(pipe(p), 0);
	fds[0] = p[0];
	fds[1] = open("/dev/null", O_RDWR);
	fds[2] = shm_create("x", 4096, SHM_NOEXEC);
	fds[3] = open("/proc/self/exe", O_RDONLY);
	load(d, "steer");
	enter(&lc, d, LATENCY, 100, "lc");
	enter(&f, d, BATCH, 12, "hostile");
	bad = h;
	bad.n_groups = GPU_MAX_GROUPS + 1;
	send_handles(&f, 0, sizeof(bad), &bad, p[0]);
	seq = gd_await_event(d, seq, "control", "cannot use the hardware handles");
	bad = h;
	bad.kind = 77;
	send_handles(&f, 0, sizeof(bad), &bad, p[0]);
	seq = gd_await_event(d, seq, "control", "cannot use the hardware handles");
	send_handles(&f, 1, sizeof(h), &h, p[0]); /* it has one device */
	seq = gd_await_event(d, seq, "control", "cannot use the hardware handles");
	send_handles(&f, 0, 8, &h, p[0]);
	seq = gd_await_event(d, seq, "control", "cannot use the hardware handles");
	open_request(&lc);
	for (unsigned i = 0; i < 2 * sizeof(fds) / sizeof(fds[0]); i++) {
		h.kind = i % 2 ? GPU_KIND_SOFT : GPU_KIND_NVIDIA;
		send_handles(&f, 0, sizeof(h), &h, fds[i / 2]);
		for (json_int_t n = note(d, 0);
		     note(d, 0) < n + 3;) { /* switched off, without effect */
			work(&f);
		}
	}
	send_handles(&f, 0, 0, &h, -1); /* withdrawn */
	assert_int_equal(gd_number(d, "status", "tenants"), 2);
	for (unsigned i = 0; i < sizeof(fds) / sizeof(fds[0]); i++) {
		close(fds[i]);
	}
	close(p[1]);
	fake_leave(&lc);
	fake_leave(&f);
}

#define WITH_GBPFD(f) cmocka_unit_test_setup_teardown(f, gd_setup, gd_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		WITH_GBPFD(the_hook_is_asked_while_a_request_waits),
		WITH_GBPFD(a_policy_may_be_asked_as_soon_as_a_request_opens),
		WITH_GBPFD(a_policy_may_be_asked_between_two_ticks),
		WITH_GBPFD(a_process_is_ended_by_the_policys_word),
		WITH_GBPFD(verdicts_of_preempt_are_checked),
		WITH_GBPFD(a_request_is_as_old_as_it_was_seen),
		WITH_GBPFD(levels_that_cannot_be_had_are_skipped),
		WITH_GBPFD(helpers_answer),
		WITH_GBPFD(hostile_handles_do_no_harm),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
