/* Scheduling on the soft GPU: priorities, blocks that wait for each other, concurrent copies,
 * several GPUs, and control from another process. */
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
#include <unistd.h>

#include <cmocka.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/shm.h"
#include "cuabi/private.h"
#include "rig.h"

#include "../eventually.h"

/* rounds(counter, bad, n): n grid barriers, as nvcc compiles grid.sync(). */
static const char own_ptx[] = ".version 7.0\n"
			      ".target sm_80\n"
			      ".address_size 64\n"
			      ".visible .entry rounds(\n"
			      " .param .u64 rounds_param_0,\n"
			      " .param .u64 rounds_param_1,\n"
			      " .param .u32 rounds_param_2\n"
			      ")\n"
			      "{\n"
			      " .reg .pred  %p<13>;\n"
			      " .reg .b32  %r<41>;\n"
			      " .reg .b64  %rd<13>;\n"
			      " ld.param.u64  %rd6, [rounds_param_0];\n"
			      " ld.param.u64  %rd5, [rounds_param_1];\n"
			      " ld.param.u32  %r10, [rounds_param_2];\n"
			      " cvta.to.global.u64  %rd1, %rd6;\n"
			      " mov.u32 %r11, %envreg2;\n"
			      " cvt.u64.u32  %rd7, %r11;\n"
			      " mov.u32 %r12, %envreg1;\n"
			      " cvt.u64.u32  %rd8, %r12;\n"
			      " bfi.b64  %rd2, %rd8, %rd7, 32, 32;\n"
			      " setp.eq.s32  %p1, %r10, 0;\n"
			      " @%p1 bra  $L__BB0_18;\n"
			      " mov.u32  %r1, %tid.x;\n"
			      " add.s64  %rd3, %rd2, 4;\n"
			      " mov.u32  %r14, %tid.y;\n"
			      " add.s32  %r2, %r1, %r14;\n"
			      " mov.u32  %r15, %tid.z;\n"
			      " neg.s32  %r3, %r15;\n"
			      " mov.u32  %r40, 0;\n"
			      " mov.u32  %r16, %nctaid.y;\n"
			      " mov.u32  %r4, %nctaid.x;\n"
			      " mul.lo.s32  %r17, %r4, %r16;\n"
			      " mov.u32  %r18, %nctaid.z;\n"
			      " mul.lo.s32  %r19, %r17, %r18;\n"
			      " mov.u32  %r20, %ctaid.y;\n"
			      " mov.u32  %r21, %ctaid.x;\n"
			      " add.s32  %r22, %r21, %r20;\n"
			      " mov.u32  %r23, %ctaid.z;\n"
			      " neg.s32  %r24, %r23;\n"
			      " setp.eq.s32  %p2, %r22, %r24;\n"
			      " mov.u32  %r25, -2147483647;\n"
			      " sub.s32  %r26, %r25, %r19;\n"
			      " selp.b32  %r5, %r26, 1, %p2;\n"
			      " cvta.to.global.u64  %rd4, %rd5;\n"
			      "$L__BB0_2:\n"
			      " setp.ne.s32  %p3, %r1, 0;\n"
			      " @%p3 bra  $L__BB0_4;\n"
			      " atom.global.add.u32  %r27, [%rd1], 1;\n"
			      "$L__BB0_4:\n"
			      " setp.ne.s64  %p4, %rd2, 0;\n"
			      " @%p4 bra  $L__BB0_6;\n"
			      " trap;\n"
			      "$L__BB0_6:\n"
			      " setp.ne.s32  %p5, %r2, %r3;\n"
			      " barrier.sync  0;\n"
			      " @%p5 bra  $L__BB0_9;\n"
			      " atom.add.release.gpu.u32 %r28,[%rd3],%r5;\n"
			      "$L__BB0_8:\n"
			      " ld.acquire.gpu.u32 %r30,[%rd3];\n"
			      " xor.b32   %r31, %r30, %r28;\n"
			      " setp.gt.s32  %p6, %r31, -1;\n"
			      " @%p6 bra  $L__BB0_8;\n"
			      "$L__BB0_9:\n"
			      " barrier.sync  0;\n"
			      " @%p3 bra  $L__BB0_12;\n"
			      " ld.volatile.global.u32  %r32, [%rd1];\n"
			      " add.s32  %r33, %r40, 1;\n"
			      " mul.lo.s32  %r34, %r33, %r4;\n"
			      " setp.eq.s32  %p8, %r32, %r34;\n"
			      " @%p8 bra  $L__BB0_12;\n"
			      " atom.global.add.u32  %r35, [%rd4], 1;\n"
			      "$L__BB0_12:\n"
			      " @%p4 bra  $L__BB0_14;\n"
			      " trap;\n"
			      "$L__BB0_14:\n"
			      " barrier.sync  0;\n"
			      " @%p5 bra  $L__BB0_17;\n"
			      " atom.add.release.gpu.u32 %r36,[%rd3],%r5;\n"
			      "$L__BB0_16:\n"
			      " ld.acquire.gpu.u32 %r38,[%rd3];\n"
			      " xor.b32   %r39, %r38, %r36;\n"
			      " setp.gt.s32  %p11, %r39, -1;\n"
			      " @%p11 bra  $L__BB0_16;\n"
			      "$L__BB0_17:\n"
			      " barrier.sync  0;\n"
			      " add.s32  %r40, %r40, 1;\n"
			      " setp.lt.u32  %p12, %r40, %r10;\n"
			      " @%p12 bra  $L__BB0_2;\n"
			      "$L__BB0_18:\n"
			      " ret;\n"
			      "}\n";

static CUfunction own_function(const char *name)
{
	CUmodule m;
	CUfunction f;

	CU(cuModuleLoadData(&m, own_ptx));
	CU(cuModuleGetFunction(&f, m, name));
	return f;
}

/* Returns the device time that this process has used. */
static uint64_t used_ns(void)
{
	struct cuabi_soft_counters c;

	CU(rig_table()->counters(NULL, &c));
	return c.run_ns;
}

static const char *const plain[] = { "--mem", "256M", "--workers", "1", NULL };

static void priority_program(void *arg)
{
	CUfunction spin;
	CUstream low, high;
	CUdeviceptr out;
	uint32_t n = 1000000, before, alone, during;
	uint64_t begin, used;
	volatile uint32_t *w;

	(void)arg;
	rig_context();
	spin = rig_function("spin");
	w = rig_words();
	CU(cuMemAlloc_v2(&out, 4096));
	CU(cuStreamCreateWithPriority(&low, CU_STREAM_NON_BLOCKING, 0));
	CU(cuStreamCreateWithPriority(&high, CU_STREAM_NON_BLOCKING, -5));
	rig_tick(w, 8, low);
	eventually(w[0]);
	before = w[0];
	begin = used_ns();
	rig_launch(spin, 4, 32, high, (void *[]){ &out, &n });
	CU(cuStreamSynchronize(high));
	used = used_ns() - begin;
	during = w[0] - before;
	before = w[0];
	begin = used_ns();
	eventually(used_ns() - begin >= used);
	alone = w[0] - before;
	w[16] = 1;
	CU(cuCtxSynchronize());
	fprintf(stderr, "low priority next to high: %.3f of alone\n", (double)during / alone);
	CHECK(during < alone / 4); /* every sixteenth turn ignores priorities */
}

static void urgent_blocks_go_before_resident_ones(void **state)
{
	(void)state;
	assert_int_equal(rig_run(priority_program, NULL), 0);
}

/* Every resident block of high priority spins on a value that a kernel of lower priority writes. */
static void spinning_program(void *arg)
{
	CUstream low, high;
	volatile uint32_t *w;
	CUdeviceptr flag, one;
	uint64_t begin;

	(void)arg;
	rig_context();
	w = rig_words();
	w[16] = 1;
	flag = (CUdeviceptr)(uintptr_t)w;
	one = flag + 64;
	CU(cuStreamCreateWithPriority(&low, CU_STREAM_NON_BLOCKING, 0));
	CU(cuStreamCreateWithPriority(&high, CU_STREAM_NON_BLOCKING, -5));
	rig_launch(rig_function("until"), 32, 64, high, (void *[]){ &flag });
	rig_launch(rig_function("until"), 8, 64, low, (void *[]){ &flag });
	rig_launch(rig_function("copy_first"), 1, 1, low, (void *[]){ &flag, &one });
	begin = used_ns();
	eventually(used_ns() - begin >= 20000000); /* gives the spinning blocks their turns */
	CHECK(w[0] == 0); /* "low" runs in order, and its first kernel spins too */
	CU(cuStreamCreateWithPriority(&low, CU_STREAM_NON_BLOCKING, 0));
	rig_launch(rig_function("copy_first"), 1, 1, low, (void *[]){ &flag, &one });
	CU(cuCtxSynchronize());
}

static void spinning_blocks_do_not_starve_what_they_wait_for(void **state)
{
	(void)state;
	assert_int_equal(rig_run(spinning_program, NULL), 0);
}

static void gang_program(void *arg)
{
	CUdeviceptr counter, bad, flag;
	uint32_t n = 10, words2[2];
	CUfunction f;
	CUstream other;
	volatile uint32_t *w;
	CUresult r;

	(void)arg;
	rig_context();
	f = own_function("rounds");
	w = rig_words();
	CU(cuMemAlloc_v2(&counter, 64));
	bad = counter + 4;
	CU(cuMemsetD8_v2(counter, 0, 64));
	/* Next to a resident kernel that does not end before. */
	flag = (CUdeviceptr)(uintptr_t)w;
	CU(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
	rig_launch(rig_function("until"), 4, 64, other, (void *[]){ &flag });
	CU(cuLaunchCooperativeKernel(f, 40, 1, 1, 64, 1, 1, 0, NULL,
				     (void *[]){ &counter, &bad, &n }));
	CU(cuStreamSynchronize(NULL));
	CU(cuMemcpyDtoH_v2(words2, counter, 8));
	CHECK(words2[0] == 40 * n && words2[1] == 0);
	/* Exactly as many as fit: waits until the other blocks have left. */
	CU(cuMemsetD8_v2(counter, 0, 64));
	CU(cuLaunchCooperativeKernel(f, 64, 1, 1, 64, 1, 1, 0, NULL,
				     (void *[]){ &counter, &bad, &n }));
	CHECK(cuStreamQuery(NULL) == CUDA_ERROR_NOT_READY);
	w[0] = 1;
	CU(cuCtxSynchronize());
	CU(cuMemcpyDtoH_v2(words2, counter, 8));
	CHECK(words2[0] == 64 * n && words2[1] == 0);
	/* More than fit: fails at once or at its turn. */
	r = cuLaunchCooperativeKernel(f, 65, 1, 1, 64, 1, 1, 0, NULL,
				      (void *[]){ &counter, &bad, &n });
	r = r ? r : cuCtxSynchronize();
	CHECK(r == CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);
}

static void cooperative_blocks_are_resident_together(void **state)
{
	(void)state;
	assert_int_equal(rig_run(gang_program, NULL), 0);
}

static void copy_beside_program(void *arg)
{
	CUdeviceptr from, to;
	CUstream s;
	volatile uint32_t *w;
	uint8_t *host;
	uint32_t before;

	(void)arg;
	rig_context();
	w = rig_words();
	rig_tick(w, 4, NULL);
	eventually(w[0]);
	CU(cuMemAlloc_v2(&from, 32u << 20));
	CU(cuMemAlloc_v2(&to, 32u << 20));
	CU(cuMemAllocHost_v2((void **)&host, 32u << 20));
	CU(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
	before = w[0];
	CU(cuMemsetD8Async(from, 7, 32u << 20, s));
	CU(cuMemcpyDtoDAsync_v2(to, from, 32u << 20, s));
	CU(cuMemcpyDtoHAsync_v2(host, to, 32u << 20, s));
	CU(cuStreamSynchronize(s));
	CHECK(host[0] == 7 && host[(32u << 20) - 1] == 7);
	CHECK(w[0] > before); /* the kernel continued meanwhile */
	w[16] = 1;
	CU(cuCtxSynchronize());
}

static void copies_run_concurrently_with_kernels(void **state)
{
	(void)state;
	assert_int_equal(rig_run(copy_beside_program, NULL), 0);
}

static void slow_copy_program(void *arg)
{
	CUdeviceptr from, to;
	uint64_t begin, ms = UINT64_MAX;

	(void)arg;
	rig_context();
	CU(cuMemAlloc_v2(&from, 10u << 20));
	CU(cuMemAlloc_v2(&to, 10u << 20));
	for (int i = 0; i < 5 && ms >= 1000; i++) { /* a loaded host takes longer */
		begin = clock_now_ns();
		CU(cuMemcpyDtoD_v2(to, from, 10u << 20));
		CU(cuCtxSynchronize());
		ms = (clock_now_ns() - begin) / 1000000;
		fprintf(stderr, "10 MiB at 100 MiB/s: %llu ms\n", (unsigned long long)ms);
		CHECK(ms >= 95);
	}
	CHECK(ms < 1000);
}

static void the_copy_bandwidth_is_kept(void **state)
{
	const char *const args[] = { "--mem", "256M", "--copy-bandwidth", "100M", NULL };

	(void)state;
	rig_restart(args);
	assert_int_equal(rig_run(slow_copy_program, NULL), 0);
	rig_restart(plain);
}

/* Copies that come while the engine is idle, or just becomes so, at any moment of a worker's loop.
 */
static void idle_engine_program(void *arg)
{
	CUevent done;
	CUdeviceptr p;
	CUstream s;

	(void)arg;
	rig_context();
	CU(cuMemAlloc_v2(&p, 8192));
	CU(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
	CU(cuEventCreate(&done, CU_EVENT_DISABLE_TIMING));
	srand(1);
	for (int i = 0; i < 500; i++) {
		uint64_t until = clock_now_ns() + (uint64_t)rand() % 200000;

		CU(cuMemcpyDtoDAsync_v2(p, p + 4096, 4096, s));
		while (clock_now_ns() < until) {
		}
		CU(cuMemcpyDtoDAsync_v2(p, p + 4096, 4096, s));
		CU(cuEventRecord(done, s));
		/* A query does not ring the bell again, as a wait does after some time. */
		eventually(cuEventQuery(done) == CUDA_SUCCESS);
	}
}

static void an_idle_engine_is_woken(void **state)
{
	const char *const args[] = { "--mem", "256M", "--copy-bandwidth", "1G", "--workers",
				     "1",     NULL };
	const char *slow_clock = getenv("SLOW_CLOCK");

	(void)state;
	if (!slow_clock) {
		skip(); /* a sanitizer's library must be loaded before any other */
	}
	setenv("LD_PRELOAD", slow_clock, 1);
	setenv("GBPF_CLOCK", "real", 1);
	rig_restart(args);
	unsetenv("GBPF_CLOCK");
	unsetenv("LD_PRELOAD");
	assert_int_equal(rig_run(idle_engine_program, NULL), 0);
	rig_restart(plain);
}

/* ---- control from another process ---- */

static int pair[2]; /* connects the two programs */

static void controlled_program(void *arg)
{
	const struct cuabi_soft_table *t = rig_table();
	volatile uint32_t *w;
	char byte = 0;
	int fd;

	(void)arg;
	rig_context();
	w = rig_words();
	rig_tick(w, 4, NULL);
	CU(t->control_open(NULL, &fd));
	CHECK(msg_send(pair[0], "c", 1, &fd, 1) == 0);
	for (;;) { /* replies to each byte with the counter; 'q' ends */
		uint32_t value;

		CHECK(read(pair[0], &byte, 1) == 1);
		value = w[0];
		CHECK(write(pair[0], &value, sizeof(value)) == sizeof(value));
		if (byte == 'q') {
			w[16] = 1;
			CU(cuCtxSynchronize());
			return;
		}
	}
}

static uint32_t ask(char what)
{
	uint32_t value;

	CHECK(write(pair[1], &what, 1) == 1);
	CHECK(read(pair[1], &value, sizeof(value)) == sizeof(value));
	return value;
}

static void controller_program(void *arg)
{
	const struct cuabi_soft_table *t = rig_table();
	struct cuabi_soft_counters c;
	int fd[FD_PASS_MAX], forged;
	uint64_t us;
	uint32_t v;
	unsigned n;
	char byte;

	if (arg) { /* with a context of its own, or without cuInit */
		rig_context();
	}
	CHECK(msg_recv(pair[1], &byte, 1, fd, &n) == 1 && n == 1);
	CU(t->control(fd[0], CUABI_SOFT_SLICE_SET, 777, NULL));
	CU(t->control(fd[0], CUABI_SOFT_SLICE_GET, 0, &us));
	CHECK(us == 777);
	CU_IS(CUDA_ERROR_INVALID_VALUE,
	      t->control(fd[0], CUABI_SOFT_SLICE_SET, 10000000, NULL)); /* 10 s */
	eventually(ask('?') != 0);
	CU(t->control(fd[0], CUABI_SOFT_PREEMPT, 1, NULL));
	CU(t->control(fd[0], CUABI_SOFT_SCHEDULE, 0, NULL));
	v = ask('?');
	clock_sleep_ns(3000000); /* it has no state: this shows that nothing happens */
	CHECK(ask('?') == v);	 /* the group is stopped */
	CU(t->control_counters(fd[0], &c));
	CHECK(c.run_ns > 0);
	CU(t->control(fd[0], CUABI_SOFT_SCHEDULE, 1, NULL));
	eventually(ask('?') != v);
	/* A descriptor that only looks like the server's is refused. */
	forged = shm_create("gbpf-soft-control", 4096, SHM_NOEXEC);
	CU_IS(CUDA_ERROR_CONTEXT_IS_DESTROYED, t->control(forged, CUABI_SOFT_PREEMPT, 0, NULL));
	CU_IS(CUDA_ERROR_CONTEXT_IS_DESTROYED, t->control(0, CUABI_SOFT_PREEMPT, 0, NULL));
	ask('q');
	/* After its owner has exited, the descriptor has no effect. */
	eventually(t->control(fd[0], CUABI_SOFT_SLICE_GET, 0, &us) != CUDA_SUCCESS);
}

static void run_pair(void (*a)(void *), void (*b)(void *), void *arg)
{
	pid_t pa, pb;

	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair), 0);
	pa = rig_spawn(a, arg);
	pb = rig_spawn(b, arg);
	assert_int_equal(rig_wait(pb), 0);
	assert_int_equal(rig_wait(pa), 0);
	close(pair[0]);
	close(pair[1]);
}

static void a_control_descriptor_works_in_another_process(void **state)
{
	(void)state;
	run_pair(controlled_program, controller_program, NULL);
	run_pair(controlled_program, controller_program, (void *)1);
}

/* ---- flag pages ---- */

static void flag_owner(void *arg)
{
	const struct cuabi_soft_table *t = rig_table();
	CUdeviceptr flag, sealed, out;
	CUcontext ctx;
	int fd[2];
	char byte;

	(void)arg;
	ctx = rig_context();
	CU(cuMemAlloc_v2(&out, 64));
	CU(t->flag_new(NULL, 4096, 0, &flag, &fd[0]));
	CU(t->flag_new(NULL, 100, CUABI_SOFT_FLAG_SEALED | CUABI_SOFT_FLAG_KERNELS_WRITE, &sealed,
		       &fd[1]));
	CU_IS(CUDA_ERROR_INVALID_VALUE, t->flag_new(NULL, 1u << 20, 0, &flag, &fd[0]));
	CHECK(msg_send(pair[0], "f", 1, fd, 2) == 0);
	rig_launch(rig_function("until"), 4, 32, NULL, (void *[]){ &flag });
	CU(cuCtxSynchronize());			      /* ended by the other process */
	*(volatile uint32_t *)(uintptr_t)sealed = 41; /* the creator may write */
	CHECK(write(pair[0], "w", 1) == 1);
	CHECK(read(pair[0], &byte, 1) == 1);
	/* Kernels may only read the first page. */
	rig_launch(rig_function("copy_first"), 1, 1, NULL, (void *[]){ &out, &flag });
	CU(cuCtxSynchronize());
	rig_launch(rig_function("copy_first"), 1, 1, NULL, (void *[]){ &sealed, &flag });
	CU(cuCtxSynchronize());
	CU(t->flag_close(ctx, sealed, 100));
	rig_launch(rig_function("copy_first"), 1, 1, NULL, (void *[]){ &flag, &out });
	CU_IS(CUDA_ERROR_ILLEGAL_ADDRESS, cuCtxSynchronize());
}

static void flag_writer(void *arg)
{
	const struct cuabi_soft_table *t = rig_table();
	CUdeviceptr page, out;
	volatile uint32_t *p;
	int fd[FD_PASS_MAX], loose;
	uint32_t seen;
	size_t bytes;
	unsigned n;
	char byte;

	(void)arg;
	rig_context();
	CU(cuMemAlloc_v2(&out, 64));
	CHECK(msg_recv(pair[1], &byte, 1, fd, &n) == 1 && n == 2);
	p = shm_map(fd[0], 4096, 1);
	CHECK(p != NULL);
	CHECK(shm_map(fd[1], 4096, 1) == NULL); /* sealed */
	/* A receiver cannot revoke the page from the next one. */
	CHECK(fcntl(fd[0], F_ADD_SEALS, F_SEAL_WRITE) < 0 && shm_seal_future_write(fd[0]) < 0);
	*p = 1;
	CHECK(read(pair[1], &byte, 1) == 1);
	CU_IS(CUDA_ERROR_INVALID_VALUE,
	      t->flag_open(NULL, fd[1], CUABI_SOFT_FLAG_KERNELS_WRITE, &page, &bytes));
	CU(t->flag_open(NULL, fd[1], 0, &page, &bytes));
	CHECK(bytes == 4096);
	rig_launch(rig_function("copy_first"), 1, 1, NULL, (void *[]){ &out, &page });
	CU(cuMemcpyDtoH_v2(&seen, out, 4));
	CHECK(seen == 41);
	loose = memfd_create("loose", 0); /* unsealed: could shrink while the server uses it */
	CHECK(ftruncate(loose, 4096) == 0);
	CU_IS(CUDA_ERROR_INVALID_HANDLE, t->flag_open(NULL, loose, 0, &page, &bytes));
	CHECK(write(pair[1], "r", 1) == 1);
}

static void flag_pages_are_seen_by_kernels_and_other_processes(void **state)
{
	(void)state;
	run_pair(flag_owner, flag_writer, NULL);
}

/* ---- several GPUs ---- */

static void two_gpus_program(void *arg)
{
	CUcontext c[2], primary[2];
	CUdevice dev;
	volatile uint32_t *w[2];
	CUdeviceptr p[2];
	uint32_t value = 0;
	size_t free_bytes, total;
	int n;

	(void)arg;
	CU(cuInit(0));
	CU(cuDeviceGetCount(&n));
	CHECK(n == 2);
	CU_IS(CUDA_ERROR_INVALID_DEVICE, cuDeviceGet(&dev, 2));
	for (int i = 0; i < 2; i++) {
		CU(cuCtxCreate_v2(&c[i], 0, i));
		CU(cuCtxGetDevice(&dev));
		CHECK(dev == i);
		CU(cuMemAlloc_v2(&p[i], (i + 1) * (8u << 20)));
		CU(cuMemsetD32_v2(p[i], 100 + (unsigned)i, 1024));
		w[i] = rig_words();
		rig_tick(w[i], 2, NULL);
	}
	while (!w[0][0] || !w[1][0]) { /* each GPU has a worker of its own */
		clock_sleep_ns(EVENTUALLY_POLL_NS);
	}
	CU(cuMemGetInfo_v2(&free_bytes, &total));
	CHECK(total == 64u << 20 && free_bytes <= total - (16u << 20) &&
	      free_bytes > total - (20u << 20));
	for (int i = 0; i < 2; i++) {
		w[i][16] = 1;
		CU(cuCtxSetCurrent(c[i]));
		CU(cuCtxSynchronize());
	}
	CU(cuMemcpyPeer(p[1], c[1], p[0], c[0], 64));
	CU(cuMemcpyDtoH_v2(&value, p[1], 4));
	CHECK(value == 100);
	CU(cuDeviceCanAccessPeer(&n, 0, 1));
	CHECK(n == 0);
	CU_IS(CUDA_ERROR_PEER_ACCESS_UNSUPPORTED, cuCtxEnablePeerAccess(c[0], 0));
	for (int i = 0; i < 2; i++) {
		CU(cuDevicePrimaryCtxRetain(&primary[i], i));
	}
	CHECK(primary[0] != primary[1]);
	CU(cuDevicePrimaryCtxRelease_v2(0));
	CU(cuDevicePrimaryCtxRelease_v2(1));
}

static void several_gpus_are_devices_of_their_own(void **state)
{
	const char *const args[] = { "--gpus", "2", "--mem", "64M", "--workers", "1", NULL };

	(void)state;
	rig_restart(args);
	assert_int_equal(rig_run(two_gpus_program, NULL), 0);
	rig_restart(plain);
}

/* ---- the shared lane ---- */

static struct cuabi_soft_switches switches(void)
{
	struct cuabi_soft_switches v;

	CU(rig_table()->switches(NULL, &v, sizeof(v)));
	return v;
}

/* Keeps blocks waiting for every SM throughout. */
static void filling_program(void *arg)
{
	uint32_t n = 20000;
	CUdeviceptr out;
	char byte;

	(void)arg;
	setenv("CUDA_MPS_CLIENT_PRIORITY", "1", 1);
	rig_context();
	CU(cuMemAlloc_v2(&out, 1 << 20));
	for (int i = 0; i < 100; i++) {
		rig_launch(rig_function("spin"), 4096, 64, NULL, (void *[]){ &out, &n });
	}
	CHECK(write(pair[0], "r", 1) == 1);
	CHECK(read(pair[0], &byte, 1) == 1);
	if (byte == 'f') {
		CU_IS(CUDA_ERROR_ILLEGAL_ADDRESS, cuCtxSynchronize());
	} else {
		CU_IS(CUDA_ERROR_NOT_READY, cuStreamQuery(NULL));
	}
}

static void urgent_neighbour(void *arg)
{
	const struct cuabi_soft_table *t = rig_table();
	bool fault = arg;
	CUdeviceptr out;
	uint32_t n = 10;
	uint64_t us;
	char byte;
	int fd, sms;

	setenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "50", 1);
	rig_context();
	CU(cuDeviceGetAttribute(&sms, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 0));
	CHECK(sms == 1);
	CU(cuDeviceGetAttribute(&sms, CU_DEVICE_ATTRIBUTE_MPS_ENABLED, 0));
	CHECK(sms == 1);
	CU(cuMemAlloc_v2(&out, 4096));
	CHECK(read(pair[1], &byte, 1) == 1);
	/* The slice is a second, so in a lane of its own each launch would wait that long. */
	for (int i = 0; i < 20; i++) {
		rig_launch(rig_function("spin"), 1, 32, NULL, (void *[]){ &out, &n });
		CU(cuCtxSynchronize());
	}
	CHECK(switches().left_inside == 0); /* no group had to leave for it */
	/* A shared group cannot be controlled by one member. */
	CU_IS(CUDA_ERROR_NOT_SUPPORTED, t->timeslice_set(NULL, 1));
	CU_IS(CUDA_ERROR_NOT_SUPPORTED, t->preempt(NULL));
	CU_IS(CUDA_ERROR_NOT_SUPPORTED, t->schedule(NULL, 0));
	CU(t->control_open(NULL, &fd));
	CU_IS(CUDA_ERROR_NOT_SUPPORTED, t->control(fd, CUABI_SOFT_SCHEDULE, 0, NULL));
	CU(t->control(fd, CUABI_SOFT_SLICE_GET, 0, &us));
	if (fault) {
		rig_launch(rig_function("wild"), 1, 1, NULL, (void *[]){ NULL });
		CU_IS(CUDA_ERROR_ILLEGAL_ADDRESS, cuCtxSynchronize());
	}
	CHECK(write(pair[1], fault ? "f" : "q", 1) == 1);
}

static void processes_of_one_lane_run_concurrently(void **state)
{
	const char *const args[] = { "--mem",	       "64M",	  "--sms", "2", "--workers", "2",
				     "--timeslice-us", "1000000", NULL };

	(void)state;
	rig_restart(args);
	setenv("CUDA_MPS_PIPE_DIRECTORY", rig_dir, 1);
	run_pair(filling_program, urgent_neighbour, NULL);
	/* A fault ends the hardware context of all members. */
	run_pair(filling_program, urgent_neighbour, (void *)1);
	unsetenv("CUDA_MPS_PIPE_DIRECTORY");
	rig_restart(plain);
}

static int start(void **state)
{
	(void)state;
	rig_open();
	rig_start(plain);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(urgent_blocks_go_before_resident_ones),
		cmocka_unit_test(spinning_blocks_do_not_starve_what_they_wait_for),
		cmocka_unit_test(cooperative_blocks_are_resident_together),
		cmocka_unit_test(copies_run_concurrently_with_kernels),
		cmocka_unit_test(the_copy_bandwidth_is_kept),
		cmocka_unit_test(an_idle_engine_is_woken),
		cmocka_unit_test(a_control_descriptor_works_in_another_process),
		cmocka_unit_test(flag_pages_are_seen_by_kernels_and_other_processes),
		cmocka_unit_test(several_gpus_are_devices_of_their_own),
		cmocka_unit_test(processes_of_one_lane_run_concurrently),
	};

	return cmocka_run_group_tests_name("soft device", tests, start, rig_end);
}
