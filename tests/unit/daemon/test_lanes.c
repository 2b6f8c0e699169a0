/* Steps before scheduling: early hellos and lanes, and the distribution of flag pages. */
#include "harness.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/compiler.h"
#include "base/fd.h"
#include "base/shm.h"

enum { LATENCY, NORMAL, BATCH };
enum { PROCESS, SHARED };
#define PAGE 4096u

static void say_early(struct fake *f, uint32_t weight, uint32_t lane, uint32_t lanes)
{
	union proto_message m = { 0 };

	m.hello.flags = PROTO_EARLY;
	m.hello.class_id = BATCH;
	m.hello.weight = weight;
	m.hello.lane = lane;
	m.hello.lanes = lanes;
	snprintf(m.hello.name, sizeof(m.hello.name), "early");
	fake_send(f, &m, PROTO_HELLO);
}

static struct proto_welcome early_welcome(struct fake *f, struct gd *d, uint32_t weight,
					  uint32_t lane, uint32_t lanes)
{
	union proto_message m;
	int fds[8];
	unsigned n;

	fake_connect(f, d);
	say_early(f, weight, lane, lanes);
	assert_int_equal(fake_receive(f, &m, fds, &n), 1);
	assert_int_equal(m.head.type, PROTO_WELCOME);
	assert_int_equal(n, 3);
	while (n) {
		close(fds[--n]);
	}
	return m.welcome;
}

static void say_devices(struct fake *f, union proto_message *answer)
{
	memset(answer, 0, sizeof(*answer));
	answer->devices.gpus = 2;
	memset(answer->devices.uuid[0], 7, 16);
	memset(answer->devices.uuid[1], 8, 16);
	fake_send(f, answer, PROTO_DEVICES);
	fake_expect(f, answer, PROTO_DEVICES_ARE);
}

static void expect_refused(struct fake *f, const char *why)
{
	union proto_message m;

	fake_expect(f, &m, PROTO_REFUSED);
	assert_non_null(strstr(m.refused.text, why));
	fake_leave(f);
}

static void expect_dropped(struct fake *f)
{
	union proto_message m;
	int fds[8];
	unsigned n;

	assert_int_equal(fake_receive(f, &m, fds, &n), 0);
	fake_leave(f);
}

static void devices_follow_an_early_hello(void **state)
{
	struct gd *d = *state;
	union proto_message m;
	struct fake f;

	early_welcome(&f, d, 0, PROCESS, 0);
	say_devices(&f, &m);
	assert_int_equal(m.devices.gpus, 2);
	assert_int_equal(m.devices.gpu_index[0], 0);
	assert_int_equal(m.devices.gpu_index[1], 1);
	fake_send(&f, &m, PROTO_BOARD_MAPPED);
	gd_await_event(d, 0, "start", "early");
	fake_leave(&f);
}

static void pages_are_not_mapped_before_devices_are_known(void **state)
{
	struct gd *d = *state;
	union proto_message m = { 0 };
	struct fake f;

	early_welcome(&f, d, 0, PROCESS, 0);
	fake_send(&f, &m, PROTO_BOARD_MAPPED);
	expect_dropped(&f);
}

static void devices_are_named_once(void **state)
{
	struct gd *d = *state;
	union proto_message m;
	struct fake f;

	early_welcome(&f, d, 0, PROCESS, 0);
	say_devices(&f, &m);
	fake_send(&f, &m, PROTO_DEVICES);
	expect_dropped(&f);
}

static void an_early_hello_names_no_devices(void **state)
{
	struct gd *d = *state;
	union proto_message m = { 0 };
	struct fake f;

	fake_connect(&f, d);
	m.hello.flags = PROTO_EARLY;
	m.hello.gpus = 1;
	fake_send(&f, &m, PROTO_HELLO);
	expect_refused(&f, "names no devices");
}

static void lanes_that_do_not_exist_are_refused(void **state)
{
	struct gd *d = *state;
	struct fake f;

	fake_connect(&f, d);
	say_early(&f, 0, 2, 0);
	expect_refused(&f, "lane 2");
	fake_connect(&f, d);
	say_early(&f, 0, 0, 4);
	expect_refused(&f, "0x4");
}

static void without_a_policy_the_wish_decides(void **state)
{
	struct gd *d = *state;
	struct proto_welcome w;
	struct fake f;

	w = early_welcome(&f, d, 0, PROCESS, 0);
	assert_int_equal(w.lane, PROCESS);
	fake_leave(&f);
	w = early_welcome(&f, d, 0, SHARED, 0);
	assert_int_equal(w.lane, SHARED);
	assert_int_equal(w.sm_percent, 100);
	assert_int_equal(w.slice_us, 0);
	assert_int_equal(w.priority, 0);
	assert_non_null(strstr(w.mps_pipe, d->runtime));
	fake_leave(&f);
	w = early_welcome(&f, d, 0, SHARED, 1u << PROCESS);
	assert_int_equal(w.lane, PROCESS);
	fake_leave(&f);
}

static void load(struct gd *d, const char *name)
{
	struct gbpf *g = gd_open(d);

	if (gbpf_policy_load(g, gd_object(name), NULL, GBPF_LOAD_SWAP, NULL) < 0) {
		fail_msg("%s", gbpf_last_error(g)->message);
	}
	gbpf_close(g);
}

static void admit_chooses_the_lane(void **state)
{
	struct gd *d = *state;
	struct proto_welcome w;
	struct fake f;

	load(d, "lanes");
	w = early_welcome(&f, d, 11, PROCESS, 0);
	assert_int_equal(w.lane, SHARED);
	assert_int_equal(w.sm_percent, 50);
	assert_int_equal(w.priority, 1);
	assert_int_equal(w.slice_us, 777);
	fake_leave(&f);
	/* A lane that the process does not support is not an error, and its parameters are ignored.
	 */
	w = early_welcome(&f, d, 11, PROCESS, 1u << PROCESS);
	assert_int_equal(w.lane, PROCESS);
	assert_int_equal(w.sm_percent, 100);
	assert_int_equal(w.priority, 0);
	assert_int_equal(w.slice_us, 777);
	fake_leave(&f);
	/* A share of the multiprocessors applies in either lane. */
	w = early_welcome(&f, d, 17, PROCESS, 0);
	assert_int_equal(w.lane, PROCESS);
	assert_int_equal(w.sm_percent, 40);
	fake_leave(&f);
}

static void verdicts_of_admit_are_checked(void **state)
{
	struct gd *d = *state;
	uint64_t seq = 0;

	load(d, "lanes");
	for (uint32_t weight = 13; weight <= 16; weight++) {
		struct proto_welcome w;
		struct fake f;

		w = early_welcome(&f, d, weight, PROCESS, 0);
		assert_int_equal(w.lane, PROCESS);
		assert_int_equal(w.sm_percent, 100);
		assert_int_equal(w.slice_us, 0);
		assert_int_equal(w.priority, 0);
		seq = gd_await_event(d, seq, "verdict", "built-in");
		fake_leave(&f);
	}
}

static void admit_gets_the_nice_value(void **state)
{
	struct gd *d = *state;
	int before = getpriority(PRIO_PROCESS, 0), status;
	pid_t pid;

	load(d, "lanes");
	pid = fork();
	if (pid == 0) {
		struct proto_welcome w;
		struct fake f;

		(void)!nice(5);
		w = early_welcome(&f, d, 12, PROCESS, 0);
		_exit(w.slice_us == (uint32_t)(1000 + MIN(before + 5, 19) + 100) ? 0 : 1);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

static void a_reattached_process_keeps_its_lane(void **state)
{
	struct gd *d = *state;
	union proto_message m = { 0 };
	struct fake f;
	int fds[8], back[2];
	unsigned n;

	fake_connect(&f, d);
	say_early(&f, 0, SHARED, 0);
	assert_int_equal(fake_receive(&f, &m, fds, &n), 1);
	assert_int_equal(m.welcome.lane, SHARED);
	say_devices(&f, &m);
	fake_send(&f, &m, PROTO_BOARD_MAPPED);
	gd_await_event(d, 0, "start", "early");
	gd_kill(d);
	gbpf_close(d->g);
	d->g = NULL;
	assert_int_equal(gd_start(d, NULL), 0);
	close(f.sock);
	fake_connect(&f, d);
	memset(&m, 0, sizeof(m));
	m.hello.flags = PROTO_REATTACH;
	m.hello.class_id = BATCH;
	m.hello.lane = SHARED;
	m.hello.lanes = 1u << SHARED;
	m.hello.gpus = 1;
	back[0] = fds[1];
	back[1] = fds[2];
	assert_int_equal(proto_send(f.sock, &m, PROTO_HELLO, back, 2), 0);
	for (unsigned i = 0; i < n; i++) {
		close(fds[i]);
	}
	assert_int_equal(fake_receive(&f, &m, fds, &n), 1);
	assert_int_equal(m.head.type, PROTO_WELCOME);
	assert_int_equal(m.welcome.lane, SHARED);
	while (n) {
		close(fds[--n]);
	}
	fake_leave(&f);
}

/* ---- flag pages ---- */

static int make_page(void)
{
	int fd = shm_create("test-flags", PAGE, SHM_NOEXEC);

	assert_true(fd >= 0);
	return fd;
}

static void offer(struct fake *f, uint32_t gpu, int fd)
{
	union proto_message m = { 0 };

	m.flag.gpu = gpu;
	m.flag.number = fd < 0;
	assert_int_equal(proto_send(f->sock, &m, PROTO_FLAG, &fd, fd >= 0), 0);
}

/* Receives the next FLAG_ADD or FLAG_REMOVE; skips boards and policies. */
static int next_flag(struct fake *f, union proto_message *m)
{
	for (;;) {
		int fds[8], r;
		unsigned n;

		r = fake_receive(f, m, fds, &n);
		assert_int_equal(r, 1);
		if (m->head.type == PROTO_FLAG_ADD || m->head.type == PROTO_FLAG_REMOVE) {
			return n ? fds[0] : -1;
		}
		while (n) {
			close(fds[--n]);
		}
	}
}

static void expect_page(struct fake *f, const struct fake *owner, union proto_message *m)
{
	int fd = next_flag(f, m);

	assert_int_equal(m->head.type, PROTO_FLAG_ADD);
	assert_int_equal(m->flag.tenant, owner->tenant);
	assert_int_equal(shm_check(fd, PAGE), 0);
	close(fd);
}

static void enter_two(struct gd *d, struct fake *batch, struct fake *lc)
{
	fake_enter(batch, d, BATCH, "batch");
	fake_enter(lc, d, LATENCY, "lc");
	gd_await_event(d, 0, "start", "lc");
}

static void pages_reach_latency_tenants(void **state)
{
	struct gd *d = *state;
	struct fake batch, lc, late;
	union proto_message m;
	uint32_t first;
	int fd = make_page();

	enter_two(d, &batch, &lc);
	offer(&batch, 0, fd);
	expect_page(&lc, &batch, &m);
	first = m.flag.slot;
	fake_enter(&late, d, LATENCY, "late");
	expect_page(&late, &batch, &m);
	assert_true(m.flag.slot != first);
	fake_leave(&batch);
	next_flag(&lc, &m);
	assert_int_equal(m.head.type, PROTO_FLAG_REMOVE);
	next_flag(&late, &m);
	assert_int_equal(m.head.type, PROTO_FLAG_REMOVE);
	close(fd);
	fake_leave(&lc);
	fake_leave(&late);
}

static void a_page_may_be_taken_back_and_replaced(void **state)
{
	struct gd *d = *state;
	struct fake batch, lc;
	union proto_message m;
	int fd = make_page();

	enter_two(d, &batch, &lc);
	offer(&batch, 0, fd);
	expect_page(&lc, &batch, &m);
	offer(&batch, 0, fd); /* a second one */
	next_flag(&lc, &m);
	assert_int_equal(m.head.type, PROTO_FLAG_REMOVE);
	expect_page(&lc, &batch, &m);
	offer(&batch, 0, -1);
	next_flag(&lc, &m);
	assert_int_equal(m.head.type, PROTO_FLAG_REMOVE);
	close(fd);
	fake_leave(&batch);
	fake_leave(&lc);
}

static void pages_follow_the_class(void **state)
{
	struct gd *d = *state;
	struct fake batch, other;
	union proto_message m;
	int fd = make_page();
	uint32_t *word = shm_map(fd, PAGE, 1), slot;

	fake_enter(&batch, d, BATCH, "batch");
	fake_enter(&other, d, NORMAL, "other");
	gd_await_event(d, 0, "start", "other");
	offer(&batch, 0, fd);
	gd_await_event(d, 0, "start", "other");
	json_decref(gd_call(d, "set", "{\"tenant\":1,\"class\":\"latency\"}"));
	expect_page(&other, &batch, &m);
	slot = m.flag.slot;
	store_seqcst(&word[slot], 99u);
	json_decref(gd_call(d, "set", "{\"tenant\":1,\"class\":\"normal\"}"));
	next_flag(&other, &m);
	assert_int_equal(m.head.type, PROTO_FLAG_REMOVE);
	assert_int_equal(load_seqcst(&word[slot]), 0);
	shm_unmap(word, PAGE);
	close(fd);
	fake_leave(&batch);
	fake_leave(&other);
}

static void leases_of_a_killed_tenant_are_cleared(void **state)
{
	struct gd *d = *state;
	struct fake batch;
	int fd = make_page();
	uint32_t *word = shm_map(fd, PAGE, 1), slot;
	int told[2];
	pid_t pid;

	fake_enter(&batch, d, BATCH, "batch");
	gd_await_event(d, 0, "start", "batch");
	offer(&batch, 0, fd);
	assert_int_equal(pipe(told), 0);
	pid = fork();
	if (pid == 0) {
		union proto_message m;
		struct fake lc;
		uint32_t *his;
		int got;

		fake_enter(&lc, d, LATENCY, "lc");
		got = next_flag(&lc, &m);
		his = shm_map(got, PAGE, 1);
		store_seqcst(&his[m.flag.slot], 0x7fffffffu);
		(void)!write(told[1], &m.flag.slot, sizeof(slot));
		pause();
		_exit(0);
	}
	assert_int_equal(read(told[0], &slot, sizeof(slot)), sizeof(slot));
	assert_int_equal(load_seqcst(&word[slot]), 0x7fffffff);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	gd_await_event(d, 0, "kill", "lc");
	assert_int_equal(load_seqcst(&word[slot]), 0);
	close(told[0]);
	close(told[1]);
	shm_unmap(word, PAGE);
	close(fd);
	fake_leave(&batch);
}

/* Leases for hours, on words without owner and of another tenant. */
static void leases_of_a_hostile_tenant_end_with_it(void **state)
{
	struct gd *d = *state;
	struct fake batch, lc, hostile;
	union proto_message m;
	int fd = make_page();
	uint32_t *word = shm_map(fd, PAGE, 1), slot;

	enter_two(d, &batch, &lc);
	memset(word, 0x7f, PAGE); /* written at the time of an earlier gbpfd */
	offer(&batch, 0, fd);
	expect_page(&lc, &batch, &m);
	slot = m.flag.slot;
	for (unsigned i = 0; i < PROTO_MAX_LC; i++) {
		assert_int_equal(load_seqcst(&word[i]), i == slot ? 0x7f7f7f7f : 0);
	}
	fake_enter(&hostile, d, LATENCY, "hostile");
	expect_page(&hostile, &batch, &m);
	for (unsigned i = 0; i < PROTO_MAX_LC; i++) {
		store_seqcst(&word[i], 0x7fffffffu);
	}
	store_seqcst(&word[PROTO_MAX_LC], 1u);
	fake_leave(&hostile);
	gd_await_event(d, 0, "detach", "hostile");
	do { /* sent to the remaining session */
		int fds[8], got;
		unsigned n;

		got = fake_receive(&lc, &m, fds, &n);
		assert_int_equal(got, 1);
		while (n) {
			close(fds[--n]);
		}
	} while (m.head.type != PROTO_BOARD_REMOVE);
	for (unsigned i = 0; i < PROTO_MAX_LC; i++) { /* it restores its own word itself */
		assert_int_equal(load_seqcst(&word[i]), i == slot ? 0x7fffffff : 0);
	}
	assert_int_equal(load_seqcst(&word[PROTO_MAX_LC]), 1); /* no lease */
	shm_unmap(word, PAGE);
	close(fd);
	fake_leave(&batch);
	fake_leave(&lc);
}

/* Descriptors that are not valid pages are neither mapped nor passed on; their sender keeps its
 * session. */
static void invalid_flag_pages_are_refused(void **state)
{
	struct gd *d = *state;
	struct fake batch, lc;
	union proto_message m;
	uint64_t seq = 0;
	int bad[6], p[2], good = make_page();

	assert_int_equal(pipe(p), 0);
	bad[0] = p[0];
	bad[1] = open("/dev/null", O_RDWR);
	bad[2] = memfd_create("unsealed", MFD_ALLOW_SEALING);
	assert_int_equal(ftruncate(bad[2], PAGE), 0);
	bad[3] = shm_create("small", 100, SHM_NOEXEC);
	bad[4] = open("/proc/self/exe", O_RDONLY);
	bad[5] = shm_create("sealed", PAGE,
			    SHM_NOEXEC); /* not writable, so no lease could be raised */
	assert_int_equal(shm_seal_future_write(bad[5]), 0);
	enter_two(d, &batch, &lc);
	for (unsigned i = 0; i < 6; i++) {
		offer(&batch, 0, bad[i]);
		seq = gd_await_event(d, seq, "flag", "cannot use the flag page");
		close(bad[i]);
	}
	offer(&batch, 1, good); /* it has one device */
	seq = gd_await_event(d, seq, "flag", "cannot use the flag page");
	offer(&batch, UINT32_MAX, good);
	gd_await_event(d, seq, "flag", "cannot use the flag page");
	offer(&batch, 0, good);
	expect_page(&lc, &batch, &m);
	close(p[1]);
	close(good);
	fake_leave(&batch);
	fake_leave(&lc);
}

/* A process that floods gbpfd with pages is dropped, before their receivers are disturbed. */
static void pages_come_slowly(void **state)
{
	struct gd *d = *state;
	struct fake lc, f;
	int fd = make_page();

	fake_enter(&lc, d, LATENCY, "lc");
	fake_enter(&f, d, BATCH, "flood");
	gd_await_event(d, 0, "start", "flood");
	for (int i = 0; i < 5000; i++) {
		union proto_message m = { 0 };

		if (proto_send(f.sock, &m, PROTO_FLAG, &fd, 1) == -EPIPE) {
			break;
		}
	}
	gd_await_event(d, 0, "dropped", "it offers more than 200 flag pages and handles");
	assert_int_equal(gd_number(d, "status", "tenants"), 1);
	close(fd);
	fake_leave(&f);
	fake_leave(&lc);
}

static void nothing_is_left_of_pages(void **state)
{
	struct gd *d = *state;
	struct fake keeper;
	unsigned before;
	int fd = make_page();

	fake_enter(&keeper, d, LATENCY, "keeper");
	gd_await_event(d, 0, "start", "keeper");
	while (gd_number(d, "status", "ending") != 0) {
	}
	before = count_fds(d->pid);
	for (int i = 0; i < 50; i++) {
		union proto_message m;
		struct fake f;

		fake_enter(&f, d, BATCH, "f");
		offer(&f, 0, fd);
		expect_page(&keeper, &f, &m);
		fake_leave(&f);
		next_flag(&keeper, &m);
		assert_int_equal(m.head.type, PROTO_FLAG_REMOVE);
	}
	while (gd_number(d, "status", "tenants") != 1 || gd_number(d, "status", "ending") != 0) {
	}
	/* Descriptors of clients are closed by a thread, a moment later. */
	eventually(count_fds(d->pid) <= before);
	close(fd);
	fake_leave(&keeper);
}

#define WITH_GBPFD(f) cmocka_unit_test_setup_teardown(f, gd_setup, gd_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		WITH_GBPFD(devices_follow_an_early_hello),
		WITH_GBPFD(pages_are_not_mapped_before_devices_are_known),
		WITH_GBPFD(devices_are_named_once),
		WITH_GBPFD(an_early_hello_names_no_devices),
		WITH_GBPFD(lanes_that_do_not_exist_are_refused),
		WITH_GBPFD(without_a_policy_the_wish_decides),
		WITH_GBPFD(admit_chooses_the_lane),
		WITH_GBPFD(verdicts_of_admit_are_checked),
		WITH_GBPFD(admit_gets_the_nice_value),
		WITH_GBPFD(a_reattached_process_keeps_its_lane),
		WITH_GBPFD(pages_reach_latency_tenants),
		WITH_GBPFD(a_page_may_be_taken_back_and_replaced),
		WITH_GBPFD(pages_follow_the_class),
		WITH_GBPFD(leases_of_a_killed_tenant_are_cleared),
		WITH_GBPFD(leases_of_a_hostile_tenant_end_with_it),
		WITH_GBPFD(invalid_flag_pages_are_refused),
		WITH_GBPFD(pages_come_slowly),
		WITH_GBPFD(nothing_is_left_of_pages),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
