/* The built library, its real scheduler and a gbpfd of the test's own: attaching, a policy that holds, refusals, gbpfd's death
 * and return, fork, exit. Each case runs in a process of its own, since a process attaches once. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/shm.h"
#include "bpf/run/image.h"
#include "fake_cuda.h"
#include "lib/wire.h"
#include "sched/ctx.h"
#include "sched/pages.h"

#define WAIT_MS 10000
#define CHECK(x) \
	do { \
		if (!(x)) { \
			fprintf(stderr, "%s:%d: %s\n", __func__, __LINE__, #x); \
			_exit(1); \
		} \
	} while (0)

static char folder[64], socket_path[96];

/* ---- gbpfd ---- */

static struct {
	int listener, sock;
	int dir_fd, board_fd, stats_fd, other_fd;
	struct sched_directory *dir;
	struct sched_board *board, *other;
	struct wire_hello hello;
	int hello_fds[8];
	unsigned hello_nfds;
} d = { .listener = -1, .sock = -1 };

static void make_pages(void)
{
	d.dir_fd = shm_create("dir", SCHED_PAGE_BYTES, SHM_NOEXEC);
	d.board_fd = shm_create("board", SCHED_PAGE_BYTES, SHM_NOEXEC);
	d.stats_fd = shm_create("stats", SCHED_STATS_BYTES, SHM_NOEXEC);
	d.other_fd = shm_create("other", SCHED_PAGE_BYTES, SHM_NOEXEC);
	d.dir = shm_map(d.dir_fd, SCHED_PAGE_BYTES, 1);
	d.board = shm_map(d.board_fd, SCHED_PAGE_BYTES, 1);
	d.other = shm_map(d.other_fd, SCHED_PAGE_BYTES, 1);
	CHECK(d.dir && d.board && d.other);
	d.dir->magic = SCHED_DIRECTORY_MAGIC;
	d.dir->abi = SCHED_ABI;
	d.dir->generation = 1;
}

static void receive(union wire_message *m, enum wire_type type, int fds[8], unsigned *nfds)
{
	struct pollfd p = { .fd = d.sock, .events = POLLIN };

	CHECK(poll(&p, 1, WAIT_MS) == 1);
	CHECK(wire_recv(d.sock, m, fds, nfds) == 1);
	CHECK(m->head.type == type);
}

static void accept_hello(void)
{
	struct pollfd p = { .fd = d.listener, .events = POLLIN };
	union wire_message m;

	CHECK(poll(&p, 1, WAIT_MS) == 1);
	d.sock = accept(d.listener, NULL, NULL);
	CHECK(d.sock >= 0);
	receive(&m, WIRE_HELLO, d.hello_fds, &d.hello_nfds);
	d.hello = m.hello;
}

static void welcome(unsigned nfds)
{
	int fds[3] = { d.dir_fd, d.board_fd, d.stats_fd }, none[8];
	union wire_message m = { 0 };
	unsigned n;

	m.welcome.tenant = 5;
	m.welcome.class_id = d.hello.class_id;
	m.welcome.weight = 100;
	m.welcome.min_share_ppm = 1;
	m.welcome.hold_limit_ns = 60000000000u; /* nothing goes by itself while the test runs */
	CHECK(wire_send(d.sock, &m, WIRE_WELCOME, fds, nfds) == 0);
	receive(&m, WIRE_BOARD_MAPPED, none, &n);
}

static void add_other_board(void)
{
	union wire_message m = { 0 };

	m.board.slot = 3;
	m.board.tenant = 9;
	CHECK(wire_send(d.sock, &m, WIRE_BOARD_ADD, &d.other_fd, 1) == 0);
}

/* submit: HOLD while requests of others are open. */
static int image_fd(uint64_t version)
{
	struct ebpf_image_header h = { .version = version, .n_insns = 4 };
	struct ebpf_insn code[] = {
		{ EBPF_LDX | EBPF_W | EBPF_MEM, 0, 1, offsetof(struct gbpf_submit_ctx, lc_open), 0 },
		{ EBPF_JMP | EBPF_JEQ | EBPF_K, 0, 0, 1, 0 },
		{ EBPF_ALU64 | EBPF_MOV | EBPF_K, 0, 0, 0, GBPF_HOLD },
		{ EBPF_JMP | EBPF_EXIT, 0, 0, 0, 0 }, /* 0 in r0: GO */
	};

	for (unsigned i = 0; i < EBPF_MAX_HOOKS; i++) {
		h.progs[i].code_offset = UINT32_MAX;
	}
	h.progs[SCHED_HOOK_submit].n_insns = 4;
	return ebpf_image_build(&h, NULL, code, NULL, 0);
}

static void prepare(uint64_t version)
{
	union wire_message m = { 0 };
	int fd = image_fd(version), none[8];
	unsigned n;

	CHECK(fd >= 0);
	m.version.version = version;
	CHECK(wire_send(d.sock, &m, WIRE_PREPARE, &fd, 1) == 0);
	receive(&m, WIRE_PREPARED, none, &n);
	CHECK(m.version.version == version);
	CHECK(m.version.status == 0);
	close(fd);
}

/* ---- the program ---- */

static CUresult (*init)(unsigned);
static CUresult (*launch)(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream,
			  void **, void **);
static const struct fake_interface *fake;

static void load(void)
{
	void *h = dlopen(getenv("GBPF_TEST_SHIM"), RTLD_NOW), *f = dlopen(getenv("GBPF_REAL_CUDA"), RTLD_NOW);
	fake_interface_fn get;

	CHECK(h && f);
	init = (CUresult(*)(unsigned))dlsym(h, "cuInit");
	launch = (CUresult(*)(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream,
			      void **, void **))dlsym(h, "cuLaunchKernel");
	get = (fake_interface_fn)dlsym(f, FAKE_INTERFACE);
	CHECK(init && launch && get);
	fake = get();
}

static CUresult launch_one(void)
{
	return launch(FAKE_FUNCTION, 1, 1, 1, 32, 1, 1, 0, NULL, NULL, NULL);
}

static unsigned launches(void)
{
	unsigned n = 0;

	for (unsigned i = 0; i < fake->count(); i++) {
		n += fake->get(i).index == CUABI_IDX_cuLaunchKernel;
	}
	return n;
}

static void *init_thread(void *ret)
{
	*(CUresult *)ret = init(0);
	return NULL;
}

static pthread_t start_init(CUresult *ret)
{
	pthread_t t;

	CHECK(pthread_create(&t, NULL, init_thread, ret) == 0);
	return t;
}

static void *launch_thread(void *ret)
{
	*(CUresult *)ret = launch_one();
	return NULL;
}

/* Attached, with version 7 in force. */
static void attach_with_policy(void)
{
	CUresult r = CUDA_ERROR_UNKNOWN;
	pthread_t t;

	make_pages();
	d.dir->version[0] = 7;
	t = start_init(&r);
	accept_hello();
	welcome(3);
	add_other_board();
	prepare(7);
	pthread_join(t, NULL);
	CHECK(r == CUDA_SUCCESS);
}

static void attaches_and_says_who_it_is(void)
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
	CHECK(d.hello.gpus == 1 && d.hello.uuid[0][3] == 0x5a);
	CHECK(d.hello.flags == 0 && d.hello_nfds == 0);
	CHECK(strstr(d.hello.command, "test_shim_session"));
	welcome(3);
	pthread_join(t, NULL); /* no policy is in force, so nothing is waited for */
	CHECK(r == CUDA_SUCCESS);
	CHECK(launch_one() == CUDA_SUCCESS && launches() == 1);
}

static void runs_under_the_policy_from_the_first_launch(void)
{
	CUresult r = CUDA_ERROR_UNKNOWN;
	pthread_t t;

	setenv("GBPF_CLASS", "batch", 1);
	attach_with_policy();
	CHECK(launch_one() == CUDA_SUCCESS && launches() == 1);
	store_seqcst(&d.other->gpu[0].open, 1u);
	CHECK(pthread_create(&t, NULL, launch_thread, &r) == 0);
	/* Its scheduler accounts the hold when it ends; until then nothing reaches the driver. */
	for (int i = 0; i < 50; i++) {
		CHECK(launches() == 1);
		clock_sleep_ns(1000000);
	}
	store_seqcst(&d.other->gpu[0].open, 0u);
	(void)add_acqrel(&d.other->gpu[0].seq, 1u);
	futex_wake_shared(&d.other->gpu[0].seq, 1);
	pthread_join(t, NULL);
	CHECK(r == CUDA_SUCCESS && launches() == 2);
}

static void a_latency_program_opens_requests(void)
{
	setenv("GBPF_CLASS", "latency", 1);
	attach_with_policy();
	CHECK(!load_seqcst(&d.board->gpu[0].open));
	CHECK(launch_one() == CUDA_SUCCESS);
	CHECK(load_seqcst(&d.board->gpu[0].seq) || load_seqcst(&d.board->gpu[0].open));
}

static void a_refusal_reaches_the_program(void)
{
	union wire_message m = { 0 };
	CUresult r = CUDA_SUCCESS;
	pthread_t t = start_init(&r);

	accept_hello();
	CHECK(wire_send(d.sock, &m, WIRE_QUEUED, NULL, 0) == 0); /* waits first */
	m.refused.error = EPERM;
	snprintf(m.refused.text, sizeof(m.refused.text), "not today");
	CHECK(freopen("/dev/null", "w", stderr));
	CHECK(wire_send(d.sock, &m, WIRE_REFUSED, NULL, 0) == 0);
	pthread_join(t, NULL);
	CHECK(r == CUDA_ERROR_NOT_PERMITTED);
	CHECK(init(0) == CUDA_ERROR_NOT_PERMITTED);
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

static void off_means_no_session(void)
{
	struct pollfd p = { .fd = d.listener, .events = POLLIN };

	setenv("GBPF_OFF", "1", 1);
	CHECK(init(0) == CUDA_SUCCESS);
	CHECK(poll(&p, 1, 0) == 0);
}

/* gbpfd dies and another comes: the policy stays in force, and the program brings its pages. */
static void survives_gbpfd(void)
{
	struct sched_board *brought;

	setenv("GBPF_CLASS", "batch", 1);
	attach_with_policy();
	close(d.sock);
	CHECK(launch_one() == CUDA_SUCCESS && launches() == 1);
	accept_hello();
	CHECK(d.hello.flags & WIRE_REATTACH);
	CHECK(d.hello.tenant == 5);
	CHECK(d.hello.policy_version == 7);
	CHECK(d.hello_nfds == 2);
	CHECK(shm_check(d.hello_fds[0], SCHED_PAGE_BYTES) == 0);
	CHECK(shm_check(d.hello_fds[1], SCHED_STATS_BYTES) == 0);
	brought = shm_map(d.hello_fds[0], SCHED_PAGE_BYTES, 1);
	CHECK(brought);
	brought->gpu[2].reserved[0] = 77;
	CHECK(d.board->gpu[2].reserved[0] == 77);
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
	store_seqcst(&d.other->gpu[0].open, 1u); /* the parent would be held */
	pid = fork();
	if (pid == 0) {
		CHECK(launch_one() == CUDA_SUCCESS && launches() == 1);
		_exit(0);
	}
	CHECK(waitpid(pid, &status, 0) == pid && status == 0);
}

/* Garbage from gbpfd ends the session, not the program. */
static void survives_garbage(void)
{
	setenv("GBPF_CLASS", "batch", 1);
	attach_with_policy();
	CHECK(send(d.sock, "what?", 5, 0) == 5);
	CHECK(launch_one() == CUDA_SUCCESS);
	accept_hello(); /* it begins anew */
	CHECK(d.hello.flags & WIRE_REATTACH);
}

/* ---- running them ---- */

static void in_a_process(void (*run)(void))
{
	int status;
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (pid == 0) {
		alarm(60);
		unlink(socket_path);
		d.listener = unix_listen(socket_path, SOCK_SEQPACKET, 0600);
		CHECK(d.listener >= 0);
		load();
		run();
		exit(0); /* with the library's handlers: it must not hang */
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

#define CASE(name) \
	static void test_##name(void **state) \
	{ \
		in_a_process(name); \
	}
CASE(attaches_and_says_who_it_is)
CASE(runs_under_the_policy_from_the_first_launch)
CASE(a_latency_program_opens_requests)
CASE(a_refusal_reaches_the_program)
CASE(without_gbpfd_everything_passes)
CASE(strict_programs_need_gbpfd)
CASE(off_means_no_session)
CASE(survives_gbpfd)
CASE(a_forked_child_passes_through)
CASE(survives_garbage)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_attaches_and_says_who_it_is),
		cmocka_unit_test(test_runs_under_the_policy_from_the_first_launch),
		cmocka_unit_test(test_a_latency_program_opens_requests),
		cmocka_unit_test(test_a_refusal_reaches_the_program),
		cmocka_unit_test(test_without_gbpfd_everything_passes),
		cmocka_unit_test(test_strict_programs_need_gbpfd),
		cmocka_unit_test(test_off_means_no_session),
		cmocka_unit_test(test_survives_gbpfd),
		cmocka_unit_test(test_a_forked_child_passes_through),
		cmocka_unit_test(test_survives_garbage),
	};
	int failed;

	snprintf(folder, sizeof(folder), "/tmp/gbpf-test-XXXXXX");
	if (!mkdtemp(folder)) {
		return 1;
	}
	snprintf(socket_path, sizeof(socket_path), "%s/session.sock", folder);
	setenv("GBPF_SESSION_SOCKET", socket_path, 1);
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	unlink(socket_path);
	rmdir(folder);
	return failed;
}
