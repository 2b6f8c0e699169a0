/* Isolation of failures: faults, exits of clients and of the server, hostile clients. */
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
#include <sys/stat.h>
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

static int gate[2]; /* through which children notify the test */

static void tell(void)
{
	CHECK(write(gate[1], "x", 1) == 1);
}

static void await(void)
{
	char c;

	assert_int_equal(read(gate[0], &c, 1), 1);
}

static void correct_program(void *arg)
{
	uint32_t a[64], b[64], c[64], n = 64, rounds = *(int *)arg;
	CUdeviceptr da, db, dc;
	CUfunction f;

	rig_context();
	f = rig_function("add");
	CU(cuMemAlloc_v2(&da, sizeof(a)));
	CU(cuMemAlloc_v2(&db, sizeof(b)));
	CU(cuMemAlloc_v2(&dc, sizeof(c)));
	for (uint32_t round = 0; round < rounds; round++) {
		for (uint32_t i = 0; i < 64; i++) {
			a[i] = i + round;
			b[i] = i * round;
		}
		CU(cuMemcpyHtoD_v2(da, a, sizeof(a)));
		CU(cuMemcpyHtoD_v2(db, b, sizeof(b)));
		rig_launch(f, 2, 32, NULL, (void *[]){ &da, &db, &dc, &n });
		CU(cuMemcpyDtoH_v2(c, dc, sizeof(c)));
		for (uint32_t i = 0; i < 64; i++) {
			CHECK(c[i] == a[i] + b[i]);
		}
	}
}

static void fault_program(void *arg)
{
	const char *kernel = arg;
	CUresult expected = strcmp(kernel, "odd") == 0 ? CUDA_ERROR_MISALIGNED_ADDRESS
						       : CUDA_ERROR_ILLEGAL_ADDRESS;
	CUdeviceptr p;
	CUcontext other;
	CUevent ev;

	rig_context();
	CU(cuEventCreate(&ev, 0));
	CU(cuMemAlloc_v2(&p, 64));
	rig_launch(rig_function(kernel), 3, 40, NULL, (void *[]){ &p });
	CU_IS(expected, cuCtxSynchronize());
	CU_IS(expected, cuMemAlloc_v2(&p, 64));
	CU_IS(expected, cuStreamQuery(NULL));
	CU_IS(expected, cuEventRecord(ev, NULL));
	/* Another context of the same process is not affected. */
	CU(cuCtxCreate_v2(&other, 0, 0));
	CU(cuMemAlloc_v2(&p, 64));
	CU(cuMemsetD8_v2(p, 1, 64));
	CU(cuCtxSynchronize());
}

static void a_fault_is_sticky_in_its_context_alone(void **state)
{
	int rounds = 3000;
	pid_t neighbour = rig_spawn(correct_program, &rounds);

	(void)state;
	for (int i = 0; i < 10; i++) {
		assert_int_equal(rig_run(fault_program, (void *)(uintptr_t) "wild"), 0);
		assert_int_equal(rig_run(fault_program, (void *)(uintptr_t) "odd"), 0);
	}
	assert_int_equal(rig_wait(neighbour), 0);
}

static void log_program(void *arg)
{
	struct stat st;

	setenv("GBPF_SOFT_LOG", arg, 1);
	rig_context();
	rig_launch(rig_function("wild"), 1, 1, NULL, NULL);
	CU_IS(CUDA_ERROR_ILLEGAL_ADDRESS, cuCtxSynchronize());
	/* The text arrives independently of the error. */
	eventually(stat(arg, &st) == 0 && st.st_size > 0);
}

static void a_fault_is_explained_in_the_log(void **state)
{
	char path[96], text[512] = { 0 };
	FILE *f;

	(void)state;
	snprintf(path, sizeof(path), "%s/log", rig_dir);
	assert_int_equal(rig_run(log_program, path), 0);
	f = fopen(path, "r");
	assert_non_null(f);
	assert_non_null(fgets(text, sizeof(text), f));
	fclose(f);
	unlink(path);
	assert_non_null(strstr(text, "kernel wild"));
	assert_non_null(strstr(text, "line "));
}

static void jit_program(void *arg)
{
	static const unsigned char cubin[64] = { 0x7f, 'E', 'L', 'F', 2, 1, 1, [18] = 190 };
	static const char bad[] =
		".version 6.0\n.target sm_70\n.address_size 64\n.visible .entry f()\n{\n"
		"\tfrobnicate.u32 %r1, %r2;\n\tret;\n}\n";
	CUjit_option o[] = { CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES };
	char log[300] = { 0 };
	void *v[] = { log, (void *)(uintptr_t)sizeof(log) };
	CUmodule m;

	(void)arg;
	rig_context();
	CU_IS(CUDA_ERROR_INVALID_PTX, cuModuleLoadDataEx(&m, bad, 2, o, v));
	CHECK(strstr(log, ":6") && strstr(log, "frobnicate"));
	CU_IS(CUDA_ERROR_NO_BINARY_FOR_GPU, cuModuleLoadData(&m, cubin));
	CU_IS(CUDA_ERROR_FILE_NOT_FOUND, cuModuleLoad(&m, "/nonexistent/k.ptx"));
}

static void a_ptx_error_names_its_line(void **state)
{
	(void)state;
	assert_int_equal(rig_run(jit_program, NULL), 0);
}

/* Holds resources of every kind, with work that never ends. */
static void hoarder_program(void *arg)
{
	uint32_t forever = UINT32_MAX;
	CUdeviceptr p, flag;
	CUstream s[8];
	CUevent ev;
	void *host;

	(void)arg;
	rig_context();
	CU(cuMemAlloc_v2(&p, 40u << 20));
	CU(cuMemAlloc_v2(&flag, 64));
	CU(cuMemsetD8_v2(flag, 0, 64));
	CU(cuMemAllocHost_v2(&host, 8u << 20));
	for (int i = 0; i < 8; i++) {
		CU(cuStreamCreate(&s[i], CU_STREAM_NON_BLOCKING));
		CU(cuEventCreate(&ev, 0));
		if (i % 2) {
			rig_launch(rig_function("until"), 100, 64, s[i], (void *[]){ &flag });
		} else {
			rig_launch(rig_function("spin"), 100, 256, s[i],
				   (void *[]){ &p, &forever });
		}
		CU(cuMemcpyDtoHAsync_v2(host, p, 8u << 20, s[i]));
		CU(cuEventRecord(ev, s[i]));
	}
	tell();
	cuCtxSynchronize();
}

static void killed_clients_leave_nothing(void **state)
{
	struct soft_stats before = rig_stats_idle(), after;

	(void)state;
	for (int i = 0; i < 12; i++) {
		pid_t a = rig_spawn(hoarder_program, NULL), b = rig_spawn(hoarder_program, NULL);

		await();
		await();
		kill(a, SIGKILL);
		kill(b, SIGKILL);
		assert_int_equal(rig_wait(a), 128 + SIGKILL);
		assert_int_equal(rig_wait(b), 128 + SIGKILL);
	}
	after = rig_stats_idle();
	assert_int_equal(after.clients, 1);
	assert_int_equal(after.contexts, 0);
	assert_int_equal(after.streams, 0);
	assert_int_equal(after.modules, 0);
	assert_int_equal(after.allocations, 0);
	assert_int_equal(after.memory_used, before.memory_used);
	assert_int_equal(after.pinned_used, before.pinned_used);
	rig_check_descriptors(&before);
}

/* Kills clients at random moments, also while they connect and load modules. */
static void clients_killed_at_random_moments_leave_nothing(void **state)
{
	struct soft_stats before = rig_stats_idle(), after;
	uint64_t x = 12345;
	int rounds = 1000000;
	int few = 2000;
	pid_t neighbour = rig_spawn(correct_program, &few);

	(void)state;
	for (int i = 0; i < 40; i++) {
		pid_t p = rig_spawn(correct_program, &rounds);

		x = x * 6364136223846793005ull + 1442695040888963407ull;
		/* The moment is the random variable; no result depends on it. */
		clock_sleep_ns((x >> 33) % 15000000);
		kill(p, SIGKILL);
		assert_int_equal(rig_wait(p), 128 + SIGKILL);
	}
	assert_int_equal(rig_wait(neighbour), 0);
	after = rig_stats_idle();
	assert_int_equal(after.contexts, 0);
	assert_int_equal(after.memory_used, before.memory_used);
	rig_check_descriptors(&before);
	assert_int_equal(after.refused, before.refused);
}

static int connect_raw(struct soft_shared **ret, int *ret_bell)
{
	struct soft_request q = { .op = SOFT_REQ_HELLO, .object = SOFT_VERSION };
	struct soft_reply r;
	int fds[FD_PASS_MAX], none[FD_PASS_MAX], sock;
	unsigned n;

	sock = rig_connect();
	assert_int_equal(msg_send(sock, &q, SOFT_REQUEST_MIN + 1, NULL, 0), 0);
	assert_true(msg_recv(sock, &r, sizeof(r), fds, &n) > 0);
	assert_int_equal(n, 3);
	*ret = shm_map(fds[0], sizeof(**ret), 1);
	assert_non_null(*ret);
	q.op = SOFT_REQ_CONTEXT_CREATE;
	assert_int_equal(msg_send(sock, &q, SOFT_REQUEST_MIN + 1, NULL, 0), 0);
	assert_true(msg_recv(sock, &r, sizeof(r), none, &n) > 0);
	close(fds[0]);
	*ret_bell = fds[2];
	/* The event socket stays open until the end of the test program. */
	return sock;
}

static void wait_refused(uint64_t more_than)
{
	eventually(rig_stats().refused > more_than);
}

static void garbage_in_the_ring_drops_only_its_sender(void **state)
{
	int rounds = 2000;
	pid_t neighbour = rig_spawn(correct_program, &rounds);
	uint64_t x = 99;

	(void)state;
	for (int i = 0; i < 20; i++) {
		uint64_t before = rig_stats().refused;
		struct soft_shared *s;
		uint64_t one = 1;
		int bell, sock = connect_raw(&s, &bell);

		for (size_t k = 0; k < SOFT_RING_BYTES; k += 8) {
			x ^= x << 13;
			x ^= x >> 7;
			x ^= x << 17;
			memcpy(s->ring + k, &x, 8);
		}
		for (size_t k = 0; k < sizeof(s->streams); k += 8) {
			memcpy((char *)s->streams + k, &x, 8);
		}
		store_release(&s->tail, (uint32_t)x);
		store_release(&s->head, i % 2 ? (uint32_t)x | 1 : 4096u);
		assert_int_equal(write(bell, &one, sizeof(one)), sizeof(one));
		wait_refused(before);
		close(sock);
		close(bell);
		shm_unmap(s, sizeof(*s));
	}
	assert_int_equal(rig_wait(neighbour), 0);
}

static void garbage_requests_drop_only_their_sender(void **state)
{
	uint64_t x = 7, refused = rig_stats().refused;
	int rounds = 500;
	pid_t neighbour = rig_spawn(correct_program, &rounds);

	(void)state;
	for (int i = 0; i < 50; i++) {
		unsigned char junk[3000];
		int sock;

		for (size_t k = 0; k < sizeof(junk); k += 8) {
			x ^= x << 13;
			x ^= x >> 7;
			x ^= x << 17;
			memcpy(junk + k, &x, 8);
		}
		sock = rig_connect();
		(void)msg_send(sock, junk, 1 + (x % sizeof(junk)), &sock, i % 2);
		close(sock);
	}
	assert_int_equal(rig_wait(neighbour), 0);
	wait_refused(refused + 40);
}

/* Requests with random fields: errors, but no harm. */
static void requests_with_random_fields_get_errors(void **state)
{
	struct soft_request q;
	struct soft_shared *s;
	static struct soft_reply r;
	uint64_t x = 31;
	int bell, sock = connect_raw(&s, &bell), rounds = 300;

	(void)state;
	for (int i = 0; i < 3000; i++) {
		int fds[FD_PASS_MAX];
		unsigned n;

		memset(&q, 0, sizeof(q));
		x = x * 6364136223846793005ull + 1442695040888963407ull;
		q.op = SOFT_REQ_STATS + (uint32_t)(x >> 60) % (SOFT_REQ_COUNT - SOFT_REQ_STATS);
		q.context = (uint32_t)(x >> 40) % 20;
		q.object = (uint32_t)(x >> 30) % 7;
		q.index = (uint32_t)(x >> 20);
		q.value = i % 3 ? x >> (x % 64) : SOFT_WINDOW_FIRST + x % (1u << 30);
		snprintf(q.name, sizeof(q.name), "n%d", i);
		assert_int_equal(msg_send(sock, &q, SOFT_REQUEST_MIN + strlen(q.name) + 1, NULL, 0),
				 0);
		n = 0;
		assert_true(msg_recv(sock, &r, sizeof(r), fds, &n) >= (ssize_t)SOFT_REPLY_MIN);
		while (n) {
			close(fds[--n]);
		}
	}
	close(sock);
	close(bell);
	shm_unmap(s, sizeof(*s));
	assert_int_equal(rig_run(correct_program, &rounds), 0);
}

static void schedule_program(void *arg)
{
	const struct cuabi_soft_table *t;
	struct cuabi_soft_counters c;
	uint32_t us = 0, n = 20000;
	CUdeviceptr out;
	CUcontext ctx;
	int pid = 0;

	(void)arg;
	ctx = rig_context();
	CU(cuMemAlloc_v2(&out, 4096));
	t = rig_table();
	CHECK(t->size >= sizeof(*t));
	CU(t->timeslice_get(ctx, &us));
	CHECK(us == 2000);
	CU(t->timeslice_set(ctx, 123));
	CU(t->timeslice_get(NULL, &us));
	CHECK(us == 123);
	CU_IS(CUDA_ERROR_INVALID_VALUE, t->timeslice_set(ctx, 99999999));
	CU(t->schedule(ctx, 0));
	rig_launch(rig_function("spin"), 4, 32, NULL, (void *[]){ &out, &n });
	CU_IS(CUDA_ERROR_NOT_READY, cuStreamQuery(NULL));
	CU(t->counters(ctx, &c));
	CHECK(c.blocks_done == 0);
	CU(t->schedule(ctx, 1));
	CU(t->preempt(ctx));
	CU(cuCtxSynchronize());
	CU(t->counters(ctx, &c));
	CHECK(c.blocks_done == 4 && c.launches_done == 1 && c.run_ns > 0 && c.switches_in > 0);
	CU(t->server_pid(&pid));
	CHECK(pid == rig_server);
	CU(t->schedule(ctx, 0));
	rig_launch(rig_function("spin"), 4, 32, NULL, (void *[]){ &out, &n });
	CU(cuCtxDestroy_v2(ctx)); /* returns although the kernel runs */
}

static void the_private_table_controls_the_group(void **state)
{
	(void)state;
	assert_int_equal(rig_run(schedule_program, NULL), 0);
}

/* Two endless programs share the device by time slices, here 1 to 4. */
static void share_program(void *arg)
{
	const struct cuabi_soft_table *t;
	struct cuabi_soft_counters c = { 0 };
	uint32_t forever = UINT32_MAX;
	CUdeviceptr out;
	CUcontext ctx;
	uint64_t *result = arg;

	ctx = rig_context();
	CU(cuMemAlloc_v2(&out, 4096));
	t = rig_table();
	CU(t->timeslice_set(ctx, (uint32_t)result[0]));
	rig_launch(rig_function("spin"), 16, 32, NULL, (void *[]){ &out, &forever });
	tell();
	while (load_acquire(&result[2]) == 0) {
		CU(t->counters(ctx, &c));
		store_release(&result[1], c.run_ns);
	}
}

static void time_slices_make_shares(void **state)
{
	uint64_t *shared =
		mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	uint64_t *a = shared, *b = shared + 8, a0, b0, got_a, got_b;
	pid_t pa, pb;

	(void)state;
	a[0] = 2000;
	b[0] = 8000;
	pa = rig_spawn(share_program, a);
	pb = rig_spawn(share_program, b);
	await();
	await();
	eventually(load_acquire(&a[1]) && load_acquire(&b[1]));
	a0 = load_acquire(&a[1]);
	b0 = load_acquire(&b[1]);
	/* The ideal is 4, equal slices would give 1. The limits are wide because other programs run
	 * on this machine; a program that is preempted inside a slice is charged for that time, so
	 * one such slice must not decide. Benchmarks measure precisely. */
	eventually((got_a = load_acquire(&a[1]) - a0, got_b = load_acquire(&b[1]) - b0,
		    got_a + got_b >= 600000000u && got_b * 100 / (got_a + 1) >= 150 &&
			    got_b * 100 / (got_a + 1) <= 1500));
	store_release(&a[2], 1u);
	store_release(&b[2], 1u);
	kill(pa, SIGKILL); /* their kernels never end */
	kill(pb, SIGKILL);
	rig_wait(pa);
	rig_wait(pb);
	munmap(shared, 4096);
}

static void waiter_program(void *arg)
{
	uint32_t forever = UINT32_MAX;
	CUdeviceptr out;
	CUevent ev;
	int n;

	rig_context();
	CU(cuEventCreate(&ev, 0));
	CU(cuMemAlloc_v2(&out, 4096));
	rig_launch(rig_function("spin"), 4, 32, NULL, (void *[]){ &out, &forever });
	CU(cuEventRecord(ev, NULL));
	tell();
	if (arg) {
		CU_IS(CUDA_ERROR_SYSTEM_NOT_READY, cuEventSynchronize(ev));
	} else {
		CU_IS(CUDA_ERROR_SYSTEM_NOT_READY, cuCtxSynchronize());
	}
	CU_IS(CUDA_ERROR_SYSTEM_NOT_READY, cuDeviceGetCount(&n));
	CU_IS(CUDA_ERROR_SYSTEM_NOT_READY, cuStreamQuery(NULL));
	CU_IS(CUDA_ERROR_SYSTEM_NOT_READY, cuMemAlloc_v2(&out, 4096));
	CU_IS(CUDA_ERROR_SYSTEM_NOT_READY, cuEventRecord(ev, NULL));
	CU_IS(CUDA_ERROR_SYSTEM_NOT_READY, cuInit(0));
}

static void a_killed_server_gives_errors_within_a_second(void **state)
{
	const char *const args[] = { "--mem", "256M", NULL };
	pid_t a = rig_spawn(waiter_program, NULL), b = rig_spawn(waiter_program, (void *)1);
	uint64_t begin;
	int rounds = 10;

	(void)state;
	await();
	await();
	begin = clock_now_ns();
	rig_stop(SIGKILL);
	assert_int_equal(rig_wait(a), 0);
	assert_int_equal(rig_wait(b), 0);
	assert_true(clock_now_ns() - begin < clock_patience(1000000000u));
	rig_start(args); /* finds the dead server's socket and lock */
	assert_int_equal(rig_run(correct_program, &rounds), 0);
}

static void own_server_program(void *arg)
{
	const struct cuabi_soft_table *t;
	int pid, rounds = 3;

	correct_program(&rounds);
	t = rig_table();
	CU(t->server_pid(&pid));
	CHECK(write(*(int *)arg, &pid, sizeof(pid)) == sizeof(pid));
}

/* Eight clients start at once; the lock lets one of them start the server. */
static void clients_start_one_server_when_there_is_none(void **state)
{
	const char *const args[] = { "--mem", "256M", NULL };
	pid_t p[8];
	int pids[2], first = 0, pid;

	(void)state;
	rig_stop(SIGTERM);
	assert_int_equal(pipe(pids), 0);
	for (int i = 0; i < 8; i++) {
		p[i] = rig_spawn(own_server_program, &pids[1]);
	}
	for (int i = 0; i < 8; i++) {
		assert_int_equal(rig_wait(p[i]), 0);
		assert_int_equal(read(pids[0], &pid, sizeof(pid)), sizeof(pid));
		first = first ? first : pid;
		assert_int_equal(pid, first);
	}
	close(pids[0]);
	close(pids[1]);
	assert_true(first > 1);
	kill(first, SIGTERM); /* it would exit by itself after ten seconds */
	rig_start(args);      /* waits for its lock */
}

static void an_idle_server_leaves(void **state)
{
	const char *const args[] = { "--mem", "256M", NULL };
	const char *const idle[] = { "--mem", "256M", "--idle-exit", "1", NULL };
	char path[96];

	(void)state;
	rig_restart(idle);
	alarm(200);
	assert_int_equal(rig_wait(rig_server), 0);
	alarm(0);
	snprintf(path, sizeof(path), "%s/softgpu.sock", rig_dir);
	assert_int_not_equal(access(path, F_OK), 0);
	rig_start(args);
}

static void a_second_server_is_refused(void **state)
{
	char *argv[] = { getenv("SOFTGPU"), NULL };
	int rounds = 2;
	pid_t pid = fork();

	(void)state;
	if (pid == 0) {
		int null = open("/dev/null", O_RDWR);

		dup2(null, 2);
		execv(argv[0], argv);
		_exit(127);
	}
	assert_int_equal(rig_wait(pid), 1);
	assert_int_equal(rig_run(correct_program, &rounds), 0);
}

static int start(void **state)
{
	const char *const args[] = { "--mem", "256M", NULL };

	(void)state;
	if (pipe2(gate, O_CLOEXEC) < 0) {
		return -1;
	}
	rig_open();
	rig_start(args);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_fault_is_sticky_in_its_context_alone),
		cmocka_unit_test(a_fault_is_explained_in_the_log),
		cmocka_unit_test(a_ptx_error_names_its_line),
		cmocka_unit_test(killed_clients_leave_nothing),
		cmocka_unit_test(clients_killed_at_random_moments_leave_nothing),
		cmocka_unit_test(garbage_in_the_ring_drops_only_its_sender),
		cmocka_unit_test(garbage_requests_drop_only_their_sender),
		cmocka_unit_test(requests_with_random_fields_get_errors),
		cmocka_unit_test(the_private_table_controls_the_group),
		cmocka_unit_test(time_slices_make_shares),
		cmocka_unit_test(a_second_server_is_refused),
		cmocka_unit_test(an_idle_server_leaves),
		cmocka_unit_test(a_killed_server_gives_errors_within_a_second),
		cmocka_unit_test(clients_start_one_server_when_there_is_none),
	};

	return cmocka_run_group_tests_name("soft kill", tests, start, rig_end);
}
