/* The built library with its real scheduler and the test's gbpfd: attaching, a policy that holds,
 * refusals, gbpfd's death and restart, fork, exit. */
#include "gbpfd.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "base/shm.h"

#include "../eventually.h"

static pid_t launcher; /* the thread below */

static void *launch_thread(void *ret)
{
	store_release(&launcher, gettid());
	*(CUresult *)ret = launch_one();
	return NULL;
}

static void attach_sends_hello(void)
{
	CUresult r = CUDA_ERROR_UNKNOWN;
	pthread_t t;

	setenv("GBPF_CLASS", "batch", 1);
	setenv("GBPF_NAME", "sheep", 1);
	setenv("GBPF_WEIGHT", "300", 1);
	make_pages();
	t = start_init(&r);
	accept_hello();
	CHECK(d.hello.class_id == GBPF_CLASS_BATCH);
	CHECK(d.hello.weight == 300);
	CHECK(strcmp(d.hello.name, "sheep") == 0);
	CHECK(d.hello.gpus == 0);
	CHECK(d.hello.flags == PROTO_EARLY && d.hello_nfds == 0);
	CHECK(d.hello.lane == GBPF_LANE_PROCESS && d.hello.lanes == 0);
	CHECK(strstr(d.hello.command, "test_shim_session"));
	welcome(3);
	CHECK(d.devices.gpus == 1 && d.devices.uuid[0][3] == 0x5a);
	pthread_join(t, NULL); /* no policy is in force, so cuInit waits for none */
	CHECK(r == CUDA_SUCCESS);
	CHECK(launch_one() == CUDA_SUCCESS && launches() == 1);
}

static void *init_thread(void *ret_done)
{
	CHECK(init(0) == CUDA_SUCCESS);
	store_release((uint32_t *)ret_done, 1u);
	return NULL;
}

/* A gbpfd that has not named the tools yet, or is gone, in 0.1 s or so. */
static void init_awaits_tools(bool killed)
{
	union proto_message m;
	uint64_t begin;
	uint32_t done = 0;
	pthread_t t;
	int none[8];
	unsigned n;

	make_pages();
	CHECK(pthread_create(&t, NULL, init_thread, &done) == 0);
	accept_hello();
	welcome_early(3);
	begin = clock_now_ns(); /* cuInit does not wait for the tools yet */
	tell_devices();
	receive(&m, PROTO_BOARD_MAPPED, none, &n);
	(void)poll(NULL, 0, 100);
	CHECK(!load_acquire(&done) || clock_now_ns() - begin >= clock_patience(1000000000u));
	if (killed) {
		close(d.sock);
	} else {
		name_all_tools();
	}
	pthread_join(t, NULL);
	CHECK(launch_one() == CUDA_SUCCESS && launches() == 1);
}

static void init_returns_when_tools_are_named(void)
{
	init_awaits_tools(false);
}

static void init_does_not_await_tools_of_a_dead_gbpfd(void)
{
	init_awaits_tools(true);
}

/* The version that is prepared first, as gbpfd may do during a swap, is in force before cuInit
 * waits for it. */
static void init_does_not_await_a_prepared_policy(void)
{
	CUresult r = CUDA_ERROR_UNKNOWN;
	union proto_message m;
	pthread_t t;
	int none[8];
	unsigned n;

	setenv("GBPF_PATIENCE", "1000", 1); /* as a limit only the alarm is left */
	make_pages();
	d.dir->version[0] = 7;
	t = start_init(&r);
	accept_hello();
	welcome_early(3);
	tell_devices();
	receive(&m, PROTO_BOARD_MAPPED, none, &n);
	prepare(8);
	prepare(7);
	store_seqcst(&d.dir->version[0], UINT64_C(8));
	name_all_tools();
	pthread_join(t, NULL);
	CHECK(r == CUDA_SUCCESS);
}

static void policy_applies_from_first_launch(void)
{
	CUresult r = CUDA_ERROR_UNKNOWN;
	pthread_t t;

	setenv("GBPF_CLASS", "batch", 1);
	attach_with_policy();
	CHECK(launch_one() == CUDA_SUCCESS && launches() == 1);
	store_seqcst(&d.other->gpu[0].open, 1u);
	CHECK(pthread_create(&t, NULL, launch_thread, &r) == 0);
	/* The scheduler accounts the hold when it ends; until then nothing reaches the driver. */
	eventually(load_acquire(&launcher) && thread_is_blocked(load_acquire(&launcher)));
	CHECK(launches() == 1);
	end_other_request();
	pthread_join(t, NULL);
	CHECK(r == CUDA_SUCCESS && launches() == 2);
}

static void latency_program_opens_requests(void)
{
	setenv("GBPF_CLASS", "latency", 1);
	attach_with_policy();
	CHECK(!load_seqcst(&d.board->gpu[0].open));
	CHECK(launch_one() == CUDA_SUCCESS);
	CHECK(load_seqcst(&d.board->gpu[0].seq) || load_seqcst(&d.board->gpu[0].open));
}

/* The kernel marks the board before it closes the process's files; the driver's files may take long
 * to close. */
static void killed_program_is_marked_before_its_socket_closes(void)
{
	struct pollfd p;
	pid_t program;
	char byte;

	setenv("GBPF_CLASS", "latency", 1);
	make_pages();
	program = fork();
	if (program == 0) {
		(void)init(0);
		for (;;) {
			pause();
		}
	}
	CHECK(program > 0);
	accept_hello();
	welcome(3);
	eventually(load_acquire(&d.board->owner) || waitpid(program, NULL, WNOHANG) != 0);
	CHECK(load_acquire(&d.board->owner)); /* by a newly created thread */
	CHECK(!proto_board_dead(d.board));
	CHECK(kill(program, SIGKILL) == 0);
	p = (struct pollfd){ .fd = d.sock, .events = POLLIN };
	CHECK(poll(&p, 1, -1) == 1 && recv(d.sock, &byte, 1, 0) <= 0);
	CHECK(proto_board_dead(d.board));
	CHECK(waitpid(program, NULL, 0) == program);
}

static void refusal_reaches_the_program(void)
{
	union proto_message m = { 0 };
	CUresult r = CUDA_SUCCESS;
	pthread_t t = start_init(&r);

	accept_hello();
	CHECK(proto_send(d.sock, &m, PROTO_QUEUED, NULL, 0) == 0); /* waits first */
	m.refused.error = EPERM;
	snprintf(m.refused.text, sizeof(m.refused.text), "not today");
	CHECK(freopen("/dev/null", "w", stderr));
	CHECK(proto_send(d.sock, &m, PROTO_REFUSED, NULL, 0) == 0);
	pthread_join(t, NULL);
	CHECK(r == CUDA_ERROR_NOT_PERMITTED);
	CHECK(init(0) == CUDA_ERROR_NOT_PERMITTED);
}

/* A gbpfd of an older or newer protocol: the message names both versions. */
static void version_mismatch_is_reported(void)
{
	union proto_message m = { 0 };
	CUresult r = CUDA_SUCCESS;
	char text[PROTO_TEXT] = { 0 };
	int told[2];
	pthread_t t = start_init(&r);

	accept_hello();
	m.refused.error = EPROTONOSUPPORT;
	m.head.version = PROTO_VERSION - 1;
	snprintf(m.refused.text, sizeof(m.refused.text), "one speaks 2 and the other 3");
	CHECK(pipe(told) == 0 && dup2(told[1], 2) == 2);
	CHECK(proto_send(d.sock, &m, PROTO_REFUSED, NULL, 0) == 0);
	pthread_join(t, NULL);
	CHECK(read(told[0], text, sizeof(text) - 1) > 0);
	CHECK(strstr(text, "one speaks 2 and the other 3"));
	CHECK(r == CUDA_ERROR_NOT_PERMITTED);
}

static void shared_mode_sets_the_environment(void)
{
	CUresult r = CUDA_ERROR_UNKNOWN;
	pthread_t t;

	setenv("GBPF_LANE", "shared", 1);
	make_pages();
	d.lane = GBPF_LANE_SHARED;
	t = start_init(&r);
	accept_hello();
	CHECK(d.hello.lane == GBPF_LANE_SHARED && d.hello.lanes == 1u << GBPF_LANE_SHARED);
	welcome(3);
	pthread_join(t, NULL);
	CHECK(r == CUDA_SUCCESS);
	CHECK(strcmp(fake->init_env(0), "/nowhere/mps") == 0);
	CHECK(strcmp(fake->init_env(1), "1") == 0);
	CHECK(strcmp(fake->init_env(2), "40") == 0);
}

/* Variables inherited from a parent in the shared mode are removed; a directory of the user's own
 * is kept. */
static void process_mode_removes_pipes_of_gbpfd(void)
{
	CUresult r = CUDA_ERROR_UNKNOWN;
	pthread_t t;

	setenv("GBPF_LANE", "process", 1);
	setenv("GBPF_MPS_PIPE", "/nowhere/mps", 1);
	setenv("CUDA_MPS_PIPE_DIRECTORY", "/nowhere/mps", 1);
	setenv("CUDA_MPS_CLIENT_PRIORITY", "1", 1);
	make_pages();
	t = start_init(&r);
	accept_hello();
	CHECK(d.hello.lanes == 1u << GBPF_LANE_PROCESS);
	welcome(3);
	pthread_join(t, NULL);
	CHECK(r == CUDA_SUCCESS);
	CHECK(!fake->init_env(0) && !fake->init_env(1) && !fake->init_env(2));
}

static void users_own_mps_is_kept(void)
{
	setenv("CUDA_MPS_PIPE_DIRECTORY", "/own", 1);
	setenv("GBPF_MPS_PIPE", "/nowhere/mps", 1);
	unlink(socket_path);
	CHECK(init(0) == CUDA_SUCCESS);
	CHECK(strcmp(fake->init_env(0), "/own") == 0);
}

static void driver_failing_in_shared_mode_starts_in_process_mode(void)
{
	struct pollfd p = { .events = POLLIN };
	union proto_message m;
	CUresult r = CUDA_ERROR_UNKNOWN;
	int none[8];
	unsigned n;
	pthread_t t;

	setenv("FAKE_NO_MPS", "1", 1);
	make_pages();
	d.lane = GBPF_LANE_SHARED;
	t = start_init(&r);
	accept_hello();
	welcome_early(3);
	p.fd = d.sock;
	CHECK(poll(&p, 1, WAIT_MS) == 1 &&
	      proto_recv(d.sock, &m, none, &n) == 0); /* the variables are removed */
	close(d.sock);
	d.lane = GBPF_LANE_PROCESS;
	accept_hello();
	CHECK(d.hello.flags == PROTO_EARLY && d.hello.lanes == 1u << GBPF_LANE_PROCESS);
	welcome(3);
	receive(&m, PROTO_NOTE, none, &n);
	CHECK(strcmp(m.note.what, "lane") == 0);
	pthread_join(t, NULL);
	CHECK(r == CUDA_SUCCESS && !fake->init_env(0));
}

/* The driver runs by then, so the next gbpfd gets devices and sharing mode at once. */
static void gbpfd_may_die_while_the_driver_starts(void)
{
	CUresult r = CUDA_ERROR_UNKNOWN;
	pthread_t t;

	make_pages();
	d.lane = GBPF_LANE_SHARED;
	t = start_init(&r);
	accept_hello();
	welcome_early(3);
	close(d.sock);
	accept_hello();
	CHECK(d.hello.flags == 0 && d.hello.gpus == 1);
	CHECK(d.hello.lane == GBPF_LANE_SHARED && d.hello.lanes == 1u << GBPF_LANE_SHARED);
	welcome(3);
	pthread_join(t, NULL);
	CHECK(r == CUDA_SUCCESS);
	CHECK(launch_one() == CUDA_SUCCESS && launches() == 1);
}

/* Steps of the first hello at which gbpfd dies. */
enum step { CONNECTED, HELLO_READ, QUEUED, DEVICES_READ, DEVICES_TOLD, BOARD_MAPPED, STEPS };
static enum step dies_at;

static void hello_until_it_dies(void)
{
	struct pollfd p = { .fd = d.listener, .events = POLLIN };
	union proto_message m = { 0 };
	int none[8];
	unsigned n;

	if (dies_at == CONNECTED) {
		CHECK(poll(&p, 1, -1) == 1);
		d.sock = accept(d.listener, NULL, NULL);
		return;
	}
	accept_hello();
	if (dies_at == QUEUED) {
		CHECK(proto_send(d.sock, &m, PROTO_QUEUED, NULL, 0) == 0);
	}
	if (dies_at > QUEUED) {
		welcome_early(3);
	}
	if (dies_at == DEVICES_READ) {
		receive(&m, PROTO_DEVICES, none, &n);
	}
	if (dies_at > DEVICES_READ) {
		tell_devices();
	}
	if (dies_at == BOARD_MAPPED) {
		receive(&m, PROTO_BOARD_MAPPED, none, &n);
	}
}

/* The next gbpfd welcomes the program, whatever state the previous one had reached. */
static void gbpfd_dies_at_a_step(void)
{
	static const bool has_pages[STEPS] = { [DEVICES_TOLD] = true, [BOARD_MAPPED] = true };
	CUresult r = CUDA_ERROR_UNKNOWN;
	pthread_t t;

	make_pages();
	t = start_init(&r);
	hello_until_it_dies();
	close(d.sock);
	accept_hello();
	CHECK(!(d.hello.flags & PROTO_REATTACH) == !has_pages[dies_at]);
	CHECK(!(d.hello.flags & PROTO_EARLY) == (dies_at > QUEUED));
	welcome(has_pages[dies_at] ? 1 : 3);
	pthread_join(t, NULL);
	CHECK(r == CUDA_SUCCESS);
	CHECK(launch_one() == CUDA_SUCCESS && launches() == 1);
}

static void without_gbpfd_everything_passes(void)
{
	unlink(socket_path);
	CHECK(init(0) == CUDA_SUCCESS);
	CHECK(launch_one() == CUDA_SUCCESS && launches() == 1);
}

static void strict_programs_need_gbpfd(void)
{
	setenv("GBPF_STRICT", "1", 1);
	unlink(socket_path);
	CHECK(freopen("/dev/null", "w", stderr));
	CHECK(init(0) == CUDA_ERROR_SYSTEM_NOT_READY);
}

static void gbpf_off_opens_no_session(void)
{
	struct pollfd p = { .fd = d.listener, .events = POLLIN };

	setenv("GBPF_OFF", "1", 1);
	CHECK(init(0) == CUDA_SUCCESS);
	CHECK(poll(&p, 1, 0) == 0);
}

/* gbpfd dies and is restarted: the policy stays in force, and the program reattaches with its
 * pages. */
static void session_survives_gbpfd_restart(void)
{
	struct proto_board *brought;

	setenv("GBPF_CLASS", "batch", 1);
	attach_with_policy();
	close(d.sock);
	CHECK(launch_one() == CUDA_SUCCESS && launches() == 1);
	accept_hello();
	CHECK(d.hello.flags & PROTO_REATTACH);
	CHECK(d.hello.tenant == 5);
	CHECK(d.hello.policy_version == 7);
	CHECK(d.hello_nfds == 2);
	CHECK(shm_check(d.hello_fds[0], PROTO_PAGE_BYTES) == 0);
	CHECK(shm_check(d.hello_fds[1], PROTO_STATS_BYTES) == 0);
	brought = shm_map(d.hello_fds[0], PROTO_PAGE_BYTES, 1);
	CHECK(brought);
	brought->gpu[2].hold_until_ns = 77;
	CHECK(d.board->gpu[2].hold_until_ns == 77);
	welcome(1);
	prepare(7);
	CHECK(launch_one() == CUDA_SUCCESS && launches() == 2);
}

static void a_forked_child_passes_through(void)
{
	int status;
	pid_t pid;

	setenv("GBPF_CLASS", "batch", 1);
	attach_with_policy();
	store_seqcst(&d.other->gpu[0].open, 1u); /* in the parent it would be held */
	pid = fork();
	if (pid == 0) {
		CHECK(launch_one() == CUDA_SUCCESS && launches() == 1);
		_exit(0);
	}
	CHECK(waitpid(pid, &status, 0) == pid && status == 0);
}

static uint32_t go_on = 1;

static void *launch_forever(void *arg)
{
	while (load_relaxed(&go_on)) {
		(void)launch_one();
	}
	return NULL;
}

/* The process exits while threads are inside the library, some of them held. */
static void exits_while_threads_launch(void)
{
	pthread_t t[3];

	setenv("GBPF_CLASS", "batch", 1);
	attach_with_policy();
	for (int i = 0; i < 3; i++) {
		CHECK(pthread_create(&t[i], NULL, launch_forever, NULL) == 0);
	}
	eventually(launches() >= 1000);
	store_seqcst(&d.other->gpu[0].open, 1u);
}

/* A program may dlclose() the library; the agent continues to run in its code. */
static void survives_dlclose(void)
{
	setenv("GBPF_CLASS", "batch", 1);
	attach_with_policy();
	close_library();
	close(d.sock);
	accept_hello();
	CHECK(d.hello.flags & PROTO_REATTACH);
	CHECK(launch_one() == CUDA_SUCCESS);
}

/* An invalid message from gbpfd ends the session, not the program. */
static void invalid_message_ends_only_the_session(void)
{
	setenv("GBPF_CLASS", "batch", 1);
	attach_with_policy();
	CHECK(send(d.sock, "what?", 5, 0) == 5);
	CHECK(launch_one() == CUDA_SUCCESS);
	accept_hello(); /* the agent reconnects */
	CHECK(d.hello.flags & PROTO_REATTACH);
}

#define CASE(name)                                                                                 \
	static void test_##name(void **state)                                                      \
	{                                                                                          \
		in_a_process(name);                                                                \
	}
CASE(attach_sends_hello)
CASE(init_returns_when_tools_are_named)
CASE(init_does_not_await_tools_of_a_dead_gbpfd)
CASE(init_does_not_await_a_prepared_policy)
CASE(policy_applies_from_first_launch)
CASE(latency_program_opens_requests)
CASE(killed_program_is_marked_before_its_socket_closes)
CASE(refusal_reaches_the_program)
CASE(version_mismatch_is_reported)
CASE(shared_mode_sets_the_environment)
CASE(process_mode_removes_pipes_of_gbpfd)
CASE(users_own_mps_is_kept)
CASE(driver_failing_in_shared_mode_starts_in_process_mode)
CASE(gbpfd_may_die_while_the_driver_starts)
CASE(without_gbpfd_everything_passes)
CASE(strict_programs_need_gbpfd)
CASE(gbpf_off_opens_no_session)
CASE(session_survives_gbpfd_restart)
CASE(a_forked_child_passes_through)
CASE(exits_while_threads_launch)
CASE(survives_dlclose)
CASE(invalid_message_ends_only_the_session)

static void test_gbpfd_may_die_at_each_step_of_the_hello(void **state)
{
	for (dies_at = CONNECTED; dies_at < STEPS; dies_at++) {
		print_message("step %d\n", dies_at);
		in_a_process(gbpfd_dies_at_a_step);
	}
}

static int run(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_attach_sends_hello),
		cmocka_unit_test(test_init_returns_when_tools_are_named),
		cmocka_unit_test(test_init_does_not_await_tools_of_a_dead_gbpfd),
		cmocka_unit_test(test_init_does_not_await_a_prepared_policy),
		cmocka_unit_test(test_policy_applies_from_first_launch),
		cmocka_unit_test(test_latency_program_opens_requests),
		cmocka_unit_test(test_killed_program_is_marked_before_its_socket_closes),
		cmocka_unit_test(test_refusal_reaches_the_program),
		cmocka_unit_test(test_version_mismatch_is_reported),
		cmocka_unit_test(test_shared_mode_sets_the_environment),
		cmocka_unit_test(test_process_mode_removes_pipes_of_gbpfd),
		cmocka_unit_test(test_users_own_mps_is_kept),
		cmocka_unit_test(test_driver_failing_in_shared_mode_starts_in_process_mode),
		cmocka_unit_test(test_gbpfd_may_die_while_the_driver_starts),
		cmocka_unit_test(test_gbpfd_may_die_at_each_step_of_the_hello),
		cmocka_unit_test(test_without_gbpfd_everything_passes),
		cmocka_unit_test(test_strict_programs_need_gbpfd),
		cmocka_unit_test(test_gbpf_off_opens_no_session),
		cmocka_unit_test(test_session_survives_gbpfd_restart),
		cmocka_unit_test(test_a_forked_child_passes_through),
		cmocka_unit_test(test_exits_while_threads_launch),
		cmocka_unit_test(test_survives_dlclose),
		cmocka_unit_test(test_invalid_message_ends_only_the_session),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

int main(void)
{
	return run_cases(run);
}
