#pragma GCC diagnostic ignored "-Wpedantic" /* functions as dlsym returns them */

#include "gbpfd.h"

#include <dlfcn.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "base/fd.h"
#include "base/shm.h"
#include "bpf/run/policy_image.h"

char socket_path[96];

/* ---- gbpfd ---- */

struct test_gbpfd d = { .listener = -1, .sock = -1 };

void make_pages(void)
{
	d.dir_fd = shm_create("dir", PROTO_PAGE_BYTES, SHM_NOEXEC);
	d.board_fd = shm_create("board", PROTO_PAGE_BYTES, SHM_NOEXEC);
	d.stats_fd = shm_create("stats", PROTO_STATS_BYTES, SHM_NOEXEC);
	d.other_fd = shm_create("other", PROTO_PAGE_BYTES, SHM_NOEXEC);
	d.dir = shm_map(d.dir_fd, PROTO_PAGE_BYTES, 1);
	d.board = shm_map(d.board_fd, PROTO_PAGE_BYTES, 1);
	d.other = shm_map(d.other_fd, PROTO_PAGE_BYTES, 1);
	CHECK(d.dir && d.board && d.other);
	d.dir->magic = PROTO_DIRECTORY_MAGIC;
	d.dir->abi = PROTO_ABI;
	d.dir->generation = 1;
}

void receive(union proto_message *m, enum proto_type type, int fds[8], unsigned *nfds)
{
	struct pollfd p = { .fd = d.sock, .events = POLLIN };

	CHECK(poll(&p, 1, WAIT_MS) == 1);
	CHECK(proto_recv(d.sock, m, fds, nfds) == 1);
	CHECK(m->head.type == type);
}

void accept_hello(void)
{
	struct pollfd p = { .fd = d.listener, .events = POLLIN };
	union proto_message m;

	CHECK(poll(&p, 1, WAIT_MS) == 1);
	d.sock = accept(d.listener, NULL, NULL);
	CHECK(d.sock >= 0);
	receive(&m, PROTO_HELLO, d.hello_fds, &d.hello_nfds);
	d.hello = m.hello;
}

void tell_devices(void)
{
	union proto_message m;
	int none[8];
	unsigned n;

	receive(&m, PROTO_DEVICES, none, &n);
	d.devices = m.devices;
	CHECK(proto_send(d.sock, &m, PROTO_DEVICES_ARE, NULL, 0) == 0);
}

void welcome_early(unsigned nfds)
{
	int fds[3] = { d.dir_fd, d.board_fd, d.stats_fd };
	union proto_message m = { 0 };

	m.welcome.tenant = 5;
	m.welcome.class_id = d.hello.class_id;
	m.welcome.weight = 100;
	m.welcome.min_share_ppm = 1;
	m.welcome.hold_limit_ns =
		60000000000u; /* nothing is released by the limit while the test runs */
	m.welcome.lane = d.hello.flags & PROTO_EARLY ? d.lane : d.hello.lane;
	m.welcome.sm_percent = 40;
	m.welcome.priority = 1;
	snprintf(m.welcome.mps_pipe, sizeof(m.welcome.mps_pipe), "/nowhere/mps");
	CHECK(proto_send(d.sock, &m, PROTO_WELCOME, fds, nfds) == 0);
}

void welcome(unsigned nfds)
{
	union proto_message m;
	int none[8];
	unsigned n;

	welcome_early(nfds);
	if (d.hello.flags & PROTO_EARLY) {
		tell_devices();
	}
	receive(&m, PROTO_BOARD_MAPPED, none, &n);
	name_all_tools();
}

void name_all_tools(void)
{
	union proto_message m = { 0 };

	CHECK(proto_send(d.sock, &m, PROTO_PROBE_END, NULL, 0) == 0);
}

void add_other_board(void)
{
	union proto_message m = { 0 };

	m.board.slot = 3;
	m.board.tenant = 9;
	CHECK(proto_send(d.sock, &m, PROTO_BOARD_ADD, &d.other_fd, 1) == 0);
}

static int image_fd(uint64_t version)
{
	struct ebpf_image_header h = { .version = version, .n_insns = 10 };
	const struct ebpf_insn code[] = {
		/* submit: HOLD while other tenants have open requests */
		{ EBPF_LDX | EBPF_W | EBPF_MEM, 0, 1, offsetof(struct gbpf_submit_ctx, lc_open),
		  0 },
		{ EBPF_JMP | EBPF_JEQ | EBPF_K, 0, 0, 1, 0 },
		{ EBPF_ALU64 | EBPF_MOV | EBPF_K, 0, 0, 0, GBPF_HOLD },
		{ EBPF_JMP | EBPF_EXIT, 0, 0, 0, 0 }, /* 0 in r0: GO */
		/* queue_create: priority < 0 makes a latency queue */
		{ EBPF_LDX | EBPF_W | EBPF_MEM, 2, 1,
		  offsetof(struct gbpf_queue_create_ctx, priority), 0 },
		{ EBPF_JMP32 | EBPF_JSGE | EBPF_K, 2, 0, 2, 0 },
		{ EBPF_ALU64 | EBPF_MOV | EBPF_K, 3, 0, 0, GBPF_CLASS_LATENCY },
		{ EBPF_STX | EBPF_W | EBPF_MEM, 1, 3,
		  offsetof(struct gbpf_queue_create_ctx, class_id), 0 },
		{ EBPF_ALU64 | EBPF_MOV | EBPF_K, 0, 0, 0, 0 },
		{ EBPF_JMP | EBPF_EXIT, 0, 0, 0, 0 },
	};

	for (unsigned i = 0; i < EBPF_MAX_HOOKS; i++) {
		h.progs[i].code_offset = UINT32_MAX;
	}
	h.progs[POLICY_HOOK_submit].n_insns = 4;
	h.progs[POLICY_HOOK_queue_create].insn_first = 4;
	h.progs[POLICY_HOOK_queue_create].n_insns = 6;
	return ebpf_image_build(&h, NULL, code, NULL, 0);
}

void prepare(uint64_t version)
{
	union proto_message m = { 0 };
	int fd = image_fd(version), none[8];
	unsigned n;

	CHECK(fd >= 0);
	m.version.version = version;
	CHECK(proto_send(d.sock, &m, PROTO_PREPARE, &fd, 1) == 0);
	receive(&m, PROTO_PREPARED, none, &n);
	CHECK(m.version.version == version);
	CHECK(m.version.status == 0);
	close(fd);
}

/* ---- the program ---- */

CUresult (*init)(unsigned);
static CUresult (*launch)(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
			  unsigned, CUstream, void **, void **);
const struct fake_interface *fake;
static void *library;

void *entry(const char *name)
{
	void *p = dlsym(library, name);

	CHECK(p);
	return p;
}

static void load(void)
{
	void *f = dlopen(getenv("GBPF_REAL_CUDA"), RTLD_NOW);
	fake_interface_fn get;

	library = dlopen(getenv("GBPF_TEST_SHIM"), RTLD_NOW);
	CHECK(library && f);
	init = (CUresult(*)(unsigned))entry("cuInit");
	launch =
		(CUresult(*)(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
			     unsigned, CUstream, void **, void **))entry("cuLaunchKernel");
	get = (fake_interface_fn)dlsym(f, FAKE_INTERFACE);
	CHECK(get);
	fake = get();
	fake->params(1);
}

void close_library(void)
{
	dlclose(library);
}

CUresult launch_on(CUstream stream, uint64_t parameter)
{
	void *params[] = { &parameter };

	return launch(FAKE_FUNCTION, 1, 1, 1, 32, 1, 1, 0, stream, params, NULL);
}

CUresult launch_one(void)
{
	return launch_on(NULL, 0);
}

unsigned count_of(uint32_t index)
{
	unsigned n = 0;

	for (unsigned i = 0; i < fake->count(); i++) {
		n += fake->get(i).index == index;
	}
	return n;
}

unsigned launches(void)
{
	return count_of(CUABI_IDX_cuLaunchKernel);
}

static void *init_thread(void *ret)
{
	*(CUresult *)ret = init(0);
	return NULL;
}

pthread_t start_init(CUresult *ret)
{
	pthread_t t;

	CHECK(pthread_create(&t, NULL, init_thread, ret) == 0);
	return t;
}

void attach_with_policy(void)
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

void end_other_request(void)
{
	store_seqcst(&d.other->gpu[0].open, 0u);
	(void)add_acqrel(&d.other->gpu[0].seq, 1u);
	futex_wake_shared(&d.other->gpu[0].seq, 1);
}

/* ---- running cases ---- */

void in_a_process(void (*run)(void))
{
	int status;
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (pid == 0) {
		alarm(200); /* a hang fails the test */
		unlink(socket_path);
		d.listener = unix_listen(socket_path, SOCK_SEQPACKET, 0600);
		CHECK(d.listener >= 0);
		load();
		run();
		exit(0); /* runs the library's exit handlers, which must not hang */
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

int run_cases(int (*run)(void))
{
	char folder[64] = "/tmp/gbpf-test-XXXXXX";
	int failed;

	if (!mkdtemp(folder)) {
		return 1;
	}
	snprintf(socket_path, sizeof(socket_path), "%s/session.sock", folder);
	setenv("GBPF_SESSION_SOCKET", socket_path, 1);
	failed = run();
	unlink(socket_path);
	rmdir(folder);
	return failed;
}
