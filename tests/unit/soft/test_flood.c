/* Clients that request too much: others are served meanwhile, and the server's own memory stays
 * bounded. */
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/shm.h"
#include "cuabi/private.h"
#include "rig.h"

#include "../eventually.h"

static int gate[2];

static void tell(void)
{
	CHECK(write(gate[1], "x", 1) == 1);
}

static void await(void)
{
	char c;

	assert_int_equal(read(gate[0], &c, 1), 1);
}

static uint64_t server_kib(void)
{
	char path[64], line[128];
	unsigned long kib = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/status", (int)rig_server);
	f = fopen(path, "r");
	assert_non_null(f);
	while (fgets(line, sizeof(line), f)) {
		if (sscanf(line, "RssAnon: %lu", &kib) == 1) {
			break;
		}
	}
	fclose(f);
	return kib;
}

/* A harmless program: some rounds of copies and a kernel. */
static void victim_program(void *arg)
{
	uint32_t a[64], c[64], n = 64;
	CUdeviceptr da, dc;
	CUfunction f;

	(void)arg;
	rig_context();
	f = rig_function("add");
	CU(cuMemAlloc_v2(&da, sizeof(a)));
	CU(cuMemAlloc_v2(&dc, sizeof(c)));
	for (uint32_t round = 0; round < 10; round++) {
		for (uint32_t i = 0; i < 64; i++) {
			a[i] = i * 3 + round;
		}
		CU(cuMemcpyHtoD_v2(da, a, sizeof(a)));
		rig_launch(f, 2, 32, NULL, (void *[]){ &da, &da, &dc, &n });
		CU(cuMemcpyDtoH_v2(c, dc, sizeof(c)));
		for (uint32_t i = 0; i < 64; i++) {
			CHECK(c[i] == 2 * a[i]);
		}
	}
}

static int raw_connect(void)
{
	char path[96];

	snprintf(path, sizeof(path), "%s/softgpu.sock", rig_dir);
	return unix_connect(path, SOCK_SEQPACKET);
}

static ssize_t raw_ask(int sock, const struct soft_request *q, struct soft_reply *r, int *fds,
		       unsigned *n)
{
	if (msg_send(sock, q, SOFT_REQUEST_MIN + 1, NULL, 0) < 0) {
		return -1;
	}
	return msg_recv(sock, r, sizeof(*r), fds, n);
}

/* Connects without keeping the doorbell. */
static int raw_hello(struct soft_shared **ret, int *ret_event)
{
	struct soft_request q = { .op = SOFT_REQ_HELLO, .object = SOFT_VERSION };
	static struct soft_reply r;
	int fds[FD_PASS_MAX], sock = raw_connect();
	unsigned n;

	CHECK(sock >= 0 && raw_ask(sock, &q, &r, fds, &n) > 0 && n == 3);
	*ret = shm_map(fds[0], sizeof(**ret), 1);
	*ret_event = fds[1];
	close(fds[0]);
	close(fds[2]);
	q = (struct soft_request){ .op = SOFT_REQ_CONTEXT_CREATE };
	CHECK(*ret && raw_ask(sock, &q, &r, fds, &n) > 0);
	return sock;
}

/* The attackers. Each floods forever after it has notified the test. */

static void flood_copies(void *arg)
{
	CUstream s[200];
	CUdeviceptr p;

	(void)arg;
	rig_context();
	CU(cuMemAlloc_v2(&p, 1u << 20));
	for (int i = 0; i < 200; i++) {
		CU(cuStreamCreate(&s[i], CU_STREAM_NON_BLOCKING));
	}
	tell();
	for (unsigned i = 0;; i++) { /* small enough to be copied at once */
		CU(cuMemcpyDtoDAsync_v2(p, p + (512u << 10), 16384, s[i % 200]));
	}
}

static void flood_requests(void *arg)
{
	struct soft_request q[] = { { .op = SOFT_REQ_STATS },
				    { .op = SOFT_REQ_GPUS },
				    { .op = SOFT_REQ_UNSUPPORTED },
				    { .op = SOFT_REQ_ALLOC, .value = 4096 },
				    { .op = SOFT_REQ_MEMORY },
				    { .op = SOFT_REQ_GROUP, .object = SOFT_GROUP_PREEMPT } };
	static struct soft_reply r;
	struct soft_shared *s;
	int fds[FD_PASS_MAX], event, sock = raw_hello(&s, &event);
	unsigned n;

	(void)arg;
	tell();
	for (unsigned i = 0;; i++) {
		CHECK(raw_ask(sock, &q[i % ARRAY_SIZE(q)], &r, fds, &n) > 0);
	}
}

static void flood_notices(void *arg)
{
	struct soft_notice done = { .op = SOFT_NOTICE_HOST_DONE, .stream = 3 };
	struct soft_shared *s;
	int event, sock = raw_hello(&s, &event);

	(void)arg;
	(void)sock;
	tell();
	for (;;) {
		msg_send(event, &done, offsetof(struct soft_notice, text), NULL, 0);
	}
}

static void flood_connections(void *arg)
{
	int socks[512];

	(void)arg;
	tell();
	for (unsigned i = 0;; i++) {
		if (i >= 512) {
			fd_close(socks[i % 512]);
		}
		socks[i % 512] = raw_connect();
		clock_sleep_ns(10000); /* the attack's rate: a full backlog would only block it */
	}
}

static void flood_contexts(void *arg)
{
	const struct cuabi_soft_table *t;
	uint32_t forever = UINT32_MAX;
	CUresult r;

	(void)arg;
	CU(cuInit(0));
	t = rig_table();
	for (int i = 0; i < 16; i++) {
		CUdeviceptr p;

		rig_context();
		CU(cuMemAlloc_v2(&p, 64));
		CU_IS(CUDA_ERROR_INVALID_VALUE, t->timeslice_set(NULL, 10000000));
		r = t->timeslice_set(NULL, 50000);
		CHECK(i < 2 ? r == CUDA_SUCCESS : r == CUDA_ERROR_INVALID_VALUE);
		rig_launch(rig_function("spin"), 8, 64, NULL, (void *[]){ &p, &forever });
	}
	tell();
	for (;;) {
		pause();
	}
}

static void flood_compiler(void *arg)
{
	size_t cap = 26u << 20, n = 0;
	char *ptx = malloc(cap);
	CUmodule m;

	(void)arg;
	CHECK(ptx != NULL);
	n += (size_t)snprintf(ptx, cap,
			      ".version 6.0\n.target sm_70\n.address_size 64\n"
			      ".visible .entry f()\n{\n.reg .b32 %%r<9>;\nmov.u32 %%r1, 1;\n");
	while (n < (25u << 20)) {
		n += (size_t)snprintf(ptx + n, cap - n, "add.s32 %%r1, %%r1, %%r1;\n");
	}
	snprintf(ptx + n, cap - n, "ret;\n}\n");
	rig_context();
	tell();
	for (;;) {
		CUresult r = cuModuleLoadData(&m, ptx);

		if (r == CUDA_SUCCESS) {
			CU(cuModuleUnload(m));
		}
	}
}

/* 16 contexts whose blocks need 64 MiB of host memory each. */
static void flood_blocks(void *arg)
{
	static const char ptx[] =
		".version 6.0\n.target sm_70\n.address_size 64\n"
		".visible .entry big(.param .u64 flag)\n{\n"
		".local .align 4 .b8 depot[65536];\n"
		".reg .pred %p<3>;\n.reg .b32 %r<4>;\n.reg .b64 %rd<5>;\n"
		"ld.param.u64 %rd1, [flag];\nmov.u64 %rd2, depot;\nmov.u32 %r1, 0;\n"
		"FILL:\nst.local.u32 [%rd2], %r1;\nadd.s64 %rd2, %rd2, 1024;\n"
		"add.s32 %r1, %r1, 1;\nsetp.lt.u32 %p1, %r1, 64;\n@%p1 bra FILL;\n"
		"AGAIN:\nld.volatile.global.u32 %r2, [%rd1];\nsetp.eq.u32 %p2, %r2, 0;\n"
		"@%p2 bra AGAIN;\nret;\n}\n";

	(void)arg;
	for (int i = 0; i < 16; i++) {
		CUdeviceptr flag;
		CUmodule m;
		CUfunction f;

		rig_context();
		CU(cuMemAlloc_v2(&flag, 64));
		CU(cuMemsetD8_v2(flag, 0, 64));
		CU(cuModuleLoadData(&m, ptx));
		CU(cuModuleGetFunction(&f, m, "big"));
		rig_launch(f, 64, 1024, NULL, (void *[]){ &flag });
	}
	tell();
	for (;;) {
		pause();
	}
}

/* As many launches as possible with the longest parameters: 4 KiB each. */
static void flood_parameters(void *arg)
{
	static const char head[] = ".version 6.0\n.target sm_70\n.address_size 64\n";
	static char ptx[512], params[4096];
	size_t bytes = sizeof(params);
	void *extra[] = { (void *)1, params, (void *)2, &bytes, NULL };
	CUstream s;
	CUdeviceptr flag;
	CUmodule m;
	CUfunction f;

	(void)arg;
	snprintf(ptx, sizeof(ptx), "%s.visible .entry p(.param .b8 all[4096])\n{\nret;\n}\n", head);
	rig_context();
	CU(cuMemAlloc_v2(&flag, 64));
	CU(cuMemsetD8_v2(flag, 0, 64));
	CU(cuModuleLoadData(&m, ptx));
	CU(cuModuleGetFunction(&f, m, "p"));
	CU(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
	rig_launch(rig_function("until"), 1, 32, s, (void *[]){ &flag });
	for (unsigned i = 0;; i++) {
		if (i == 2000) {
			tell(); /* further launches wait for room */
		}
		CU(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, s, NULL, extra));
	}
}

/* While n attackers flood the server, a victim connects, works and exits. */
static void withstand(void (*attack)(void *), unsigned n, uint64_t limit_kib)
{
	struct soft_stats before = rig_stats_idle(), after;
	uint64_t begin, kib = server_kib();
	pid_t pid[4], victim;
	siginfo_t ended = { 0 };
	int code;

	for (unsigned i = 0; i < n; i++) {
		pid[i] = rig_spawn(attack, NULL);
		await();
	}
	begin = clock_now_ns();
	victim = rig_spawn(victim_program, NULL);
	eventually(waitid(P_PID, (id_t)victim, &ended, WEXITED | WNOHANG | WNOWAIT) == 0 &&
		   ended.si_pid == victim);
	code = rig_wait(victim);
	begin = clock_now_ns() - begin;
	kib = server_kib() - MIN(server_kib(), kib);
	print_message("victim: %llu ms; server grew by %llu KiB\n",
		      (unsigned long long)(begin / 1000000), (unsigned long long)kib);
	for (unsigned i = 0; i < n; i++) {
		kill(pid[i], SIGKILL);
		assert_int_equal(rig_wait(pid[i]), 128 + SIGKILL);
	}
	assert_int_equal(code, 0); /* checked after the attackers have been killed */
#ifdef __SANITIZE_ADDRESS__
	limit_kib += 256u << 10; /* AddressSanitizer's quarantine of freed memory */
#endif
	assert_true(kib < limit_kib);
	/* A client killed while its module is compiled remains until that has ended. */
	after = rig_stats_idle();
	assert_int_equal(after.streams, 0);
	assert_int_equal(after.memory_used, before.memory_used);
	rig_check_descriptors(&before);
}

static void floods_of_small_copies(void **state)
{
	(void)state;
	withstand(flood_copies, 2, 64 << 10);
}

static void floods_of_requests(void **state)
{
	(void)state;
	withstand(flood_requests, 2, 64 << 10);
}

static void floods_of_notices(void **state)
{
	(void)state;
	withstand(flood_notices, 2, 64 << 10);
}

static void floods_of_connections(void **state)
{
	(void)state;
	withstand(flood_connections, 1, 64 << 10);
}

static void sixteen_contexts_that_never_end(void **state)
{
	(void)state;
	withstand(flood_contexts, 1, 64 << 10);
}

static void huge_modules(void **state)
{
	(void)state;
	withstand(flood_compiler, 2, 3 << 20);
}

static void huge_blocks(void **state)
{
	(void)state;
	withstand(flood_blocks, 2, 600 << 10);
}

static void many_parameters(void **state)
{
	(void)state;
	withstand(flood_parameters, 2, 64 << 10);
}

/* Descriptors of the wrong type, or none. */
static void invalid_descriptors_are_refused(void **state)
{
	struct soft_stats before = rig_stats_idle();
	static const uint32_t ops[] = { SOFT_REQ_CONTROL, SOFT_REQ_FLAG_MAP, SOFT_REQ_MODULE_LOAD,
					SOFT_REQ_HANDLE_IMPORT, SOFT_REQ_POOL_IMPORT };
	static struct soft_reply r;
	struct soft_shared *s;
	int event, sock = raw_hello(&s, &event), p[2], odd[6], got[FD_PASS_MAX];
	unsigned n;

	(void)state;
	assert_int_equal(pipe(p), 0);
	odd[0] = p[0];
	odd[1] = open("/dev/null", O_RDWR | O_CLOEXEC);
	odd[2] = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	odd[3] = memfd_create("loose", MFD_CLOEXEC);
	odd[4] = sock;
	odd[5] = -1;
	for (size_t i = 0; i < ARRAY_SIZE(ops) * ARRAY_SIZE(odd); i++) {
		struct soft_request q = { .op = ops[i / ARRAY_SIZE(odd)] };
		int fd = odd[i % ARRAY_SIZE(odd)];

		assert_int_equal(msg_send(sock, &q, SOFT_REQUEST_MIN + 1, &fd, fd >= 0), 0);
		assert_true(msg_recv(sock, &r, sizeof(r), got, &n) >= (ssize_t)SOFT_REPLY_MIN);
		assert_int_not_equal(r.result, 0);
		assert_int_equal(n, 0);
	}
	for (unsigned i = 0; i < 4; i++) {
		close(odd[i]);
	}
	close(p[1]);
	close(event);
	close(sock);
	shm_unmap(s, sizeof(*s));
	rig_stats_idle();
	rig_check_descriptors(&before);
}

/* Whichever socket a client closes, the server drops the client. */
static void half_closed_clients_are_dropped(void **state)
{
	struct soft_stats before = rig_stats_idle();

	(void)state;
	for (unsigned i = 0; i < 20; i++) {
		struct soft_shared *s;
		int event, sock = raw_hello(&s, &event);

		if (i % 2) {
			fd_close(event);
		} else {
			shutdown(sock, SHUT_WR);
		}
		eventually(rig_stats().contexts == 0);
		fd_close(sock);
		if (i % 2 == 0) {
			fd_close(event);
		}
		shm_unmap(s, sizeof(*s));
	}
	rig_stats_idle();
	rig_check_descriptors(&before);
}

/* ---- the server's log ---- */

static int log_file;

/* Starts another server, which writes its log to log_file. */
static void restart_with_log(void)
{
	const char *const args[] = { "--mem", "512M", NULL };
	char path[96], *given = getenv("SOFT_TEST_LOG") ? strdup(getenv("SOFT_TEST_LOG")) : NULL;

	snprintf(path, sizeof(path), "%s/softgpu.log", rig_dir);
	rig_stop(SIGTERM);
	setenv("SOFT_TEST_LOG", path, 1);
	rig_start(args);
	unsetenv("SOFT_TEST_LOG");
	if (given) {
		setenv("SOFT_TEST_LOG", given, 1);
	}
	free(given);
	log_file = open(path, O_RDONLY | O_CLOEXEC);
	assert_true(log_file >= 0);
}

/* Returns how often the log has the text. */
static unsigned logged(const char *text)
{
	static char all[65536];
	ssize_t n = pread(log_file, all, sizeof(all) - 1, 0);
	unsigned times = 0;

	all[MAX(n, 0)] = 0;
	for (const char *at = all; (at = strstr(at, text)); at++) {
		times++;
	}
	return times;
}

static void send_half_a_request(int sock, int event)
{
	char half[4] = { 0 };

	(void)event;
	assert_int_equal(msg_send(sock, half, sizeof(half), NULL, 0), 0);
}

static void send_too_much(int sock, int event)
{
	static char much[sizeof(struct soft_request) + 1];

	(void)event;
	assert_int_equal(msg_send(sock, much, sizeof(much), NULL, 0), 0);
}

static void close_after_the_request(int sock, int event)
{
	struct soft_request q = { .op = SOFT_REQ_CONTEXT_CREATE };

	(void)event;
	shutdown(sock, SHUT_RD);
	assert_int_equal(msg_send(sock, &q, SOFT_REQUEST_MIN + 1, NULL, 0), 0);
}

static void close_control(int sock, int event)
{
	(void)event;
	shutdown(sock, SHUT_WR);
}

static void close_notices(int sock, int event)
{
	(void)sock;
	shutdown(event, SHUT_RDWR);
}

/* The server writes one line for each connection that it ends, with the reason, and none for those
 * that the client ends. */
static void the_log_says_why_a_connection_has_ended(void **state)
{
	static const struct {
		void (*end)(int sock, int event);
		const char *why;
	} cases[] = {
		{ close_control, NULL },
		{ close_notices, NULL },
		{ close_after_the_request, NULL },
		{ send_half_a_request, "dropped: a malformed request\n" },
		{ send_too_much, "dropped: a request that is too long" },
	};
	unsigned lines = 0;
	char own[32];

	(void)state;
	restart_with_log();
	snprintf(own, sizeof(own), "process %d", (int)getpid());
	for (unsigned i = 0; i < ARRAY_SIZE(cases); i++) {
		struct soft_shared *s;
		int event, sock = raw_hello(&s, &event);

		cases[i].end(sock, event);
		if (cases[i].why) {
			lines++;
			eventually(logged(cases[i].why) == 1);
		}
		fd_close(sock);
		fd_close(event);
		shm_unmap(s, sizeof(*s));
		(void)rig_stats_idle(); /* queries, whose connections are not logged */
		assert_int_equal(logged(own), lines);
	}
	close(log_file);
}

static int start(void **state)
{
	const char *const args[] = { "--mem", "512M", NULL };

	(void)state;
	if (pipe(gate) < 0) {
		return -1;
	}
	rig_open();
	rig_start(args);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(floods_of_small_copies),
		cmocka_unit_test(floods_of_requests),
		cmocka_unit_test(floods_of_notices),
		cmocka_unit_test(floods_of_connections),
		cmocka_unit_test(sixteen_contexts_that_never_end),
		cmocka_unit_test(huge_blocks),
		cmocka_unit_test(many_parameters),
		cmocka_unit_test(huge_modules),
		cmocka_unit_test(invalid_descriptors_are_refused),
		cmocka_unit_test(half_closed_clients_are_dropped),
		cmocka_unit_test(the_log_says_why_a_connection_has_ended),
	};

	return cmocka_run_group_tests_name("soft flood", tests, start, rig_end);
}
