/* probe_limits: a program with kernels for probe_limits.bats, which obeys lines of standard input
 * and answers each with "ok".
 *
 *   load            loads the module
 *   launch N BLOCKS launches of work with that many blocks of 32 threads, which call a function 20
 *                   times each; checks the results
 *   stay BLOCKS     launches stay, whose threads call a function again and again
 *   leave           ends it
 *   queue N MS      a thread keeps N launches of wait queued from now on, which take that many ms
 * each drain           ends it shared N        launches fill with the most shared memory at which
 * an SM holds N blocks together N      the same by one cooperative launch of N blocks for each SM
 *   exit            returns from main()
 */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "../programs/program.h"
#include "check.h"

#define THREADS 32u
#define ROUNDS 20u
#define BLOCKS_MAX 64u
#define QUEUED_MAX 16u

static const char text[] =
	".version 6.0\n.target sm_70\n.address_size 64\n"
	".func (.param .b32 r) next(.param .b32 a)\n{\n"
	".reg .b32 %r<2>;\n"
	"ld.param.u32 %r0, [a]; add.u32 %r1, %r0, 3; st.param.b32 [r], %r1; ret;\n}\n"
	/* at[i] += 3 * ROUNDS */
	".visible .entry work(.param .u64 at)\n{\n"
	".reg .pred %p; .reg .b32 %r<8>; .reg .b64 %rd<4>;\n"
	"ld.param.u64 %rd1, [at];\n"
	"mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x; mov.u32 %r4, %tid.x;\n"
	"mad.lo.s32 %r5, %r2, %r3, %r4;\n"
	"mul.wide.u32 %rd2, %r5, 4; add.s64 %rd3, %rd1, %rd2; ld.global.u32 %r6, [%rd3];\n"
	"mov.u32 %r1, 0;\n"
	"again:\n"
	"{ .param .b32 q; .param .b32 p; st.param.b32 [p], %r6; call (q), next, (p);\n"
	"ld.param.b32 %r6, [q]; }\n"
	"add.u32 %r1, %r1, 1; setp.lt.u32 %p, %r1, 20; @%p bra again;\n"
	"st.global.u32 [%rd3], %r6; ret;\n}\n"
	/* until *at is not 0 */
	".visible .entry stay(.param .u64 at)\n{\n"
	".reg .pred %p; .reg .b32 %r<8>; .reg .b64 %rd<4>;\n"
	"ld.param.u64 %rd1, [at];\n"
	"again:\n"
	"{ .param .b32 q; .param .b32 p; st.param.b32 [p], %r6; call (q), next, (p);\n"
	"ld.param.b32 %r6, [q]; }\n"
	"ld.volatile.global.u32 %r1, [%rd1]; setp.eq.u32 %p, %r1, 0; @%p bra again;\n"
	"ret;\n}\n"
	/* for that many ns */
	".visible .entry wait(.param .u64 ns)\n{\n"
	".reg .pred %p; .reg .b64 %rd<4>;\n"
	"ld.param.u64 %rd0, [ns]; mov.u64 %rd1, %globaltimer;\n"
	"again: mov.u64 %rd2, %globaltimer; sub.u64 %rd2, %rd2, %rd1;\n"
	"setp.lt.u64 %p, %rd2, %rd0; @%p bra again; ret;\n}\n"
	".extern .shared .align 16 .b8 room[];\n"
	".visible .entry fill()\n{\n"
	".reg .b32 %r<2>;\n"
	"mov.u32 %r1, %tid.x; st.shared.u32 [room], %r1; ret;\n}\n";

static CUdevice device;
static CUcontext context;
static CUfunction work, stay, fill, wait_ns;
static CUdeviceptr memory, flag_at;
static volatile unsigned *flag;

static void load(void)
{
	void *host;
	CUmodule m;

	CU(cuModuleLoadData(&m, text));
	CU(cuModuleGetFunction(&work, m, "work"));
	CU(cuModuleGetFunction(&stay, m, "stay"));
	CU(cuModuleGetFunction(&fill, m, "fill"));
	CU(cuModuleGetFunction(&wait_ns, m, "wait"));
	CU(cuMemAlloc(&memory, BLOCKS_MAX * THREADS * sizeof(unsigned)));
	CU(cuMemHostAlloc(&host, sizeof(*flag), CU_MEMHOSTALLOC_DEVICEMAP));
	CU(cuMemHostGetDevicePointer_v2(&flag_at, host, 0));
	flag = host;
}

static void launch(unsigned n, unsigned blocks)
{
	unsigned host[BLOCKS_MAX * THREADS] = { 0 };
	void *params[1] = { &memory };

	CHECK(blocks && blocks <= BLOCKS_MAX, "%u", blocks);
	CU(cuMemcpyHtoD(memory, host, sizeof(host)));
	for (unsigned i = 0; i < n; i++) {
		CU(cuLaunchKernel(work, blocks, 1, 1, THREADS, 1, 1, 0, NULL, params, NULL));
	}
	CU(cuMemcpyDtoH(host, memory, sizeof(host)));
	for (unsigned i = 0; i < blocks * THREADS; i++) {
		CHECK(host[i] == 3 * ROUNDS * n, "word %u is %u", i, host[i]);
	}
}

static void begin_stay(unsigned blocks)
{
	void *params[1] = { &flag_at };

	*flag = 0;
	CU(cuLaunchKernel(stay, blocks, 1, 1, THREADS, 1, 1, 0, NULL, params, NULL));
}

static void leave(void)
{
	*flag = 1;
	CU(cuCtxSynchronize());
}

/* ---- a thread that keeps launches queued ---- */

static pthread_t queuer;
static atomic_bool queuing;
static atomic_uint launched;
static unsigned queued;
static uint64_t duration_ns;

static void *queue(void *arg)
{
	void *params[1] = { &duration_ns };
	CUevent done[QUEUED_MAX];
	CUstream stream;

	(void)arg;
	CU(cuCtxSetCurrent(context));
	CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	for (unsigned i = 0; i < queued; i++) {
		CU(cuEventCreate(&done[i], CU_EVENT_DISABLE_TIMING));
	}
	for (unsigned i = 0; queuing; i = (i + 1) % queued) {
		CU(cuEventSynchronize(done[i]));
		CU(cuLaunchKernel(wait_ns, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL));
		CU(cuEventRecord(done[i], stream));
		launched++;
	}
	CU(cuStreamSynchronize(stream));
	return NULL;
}

static void begin_queue(unsigned n, unsigned ms)
{
	CHECK(n && n <= QUEUED_MAX, "%u", n);
	queued = n;
	duration_ns = ms * UINT64_C(1000000);
	queuing = true;
	launched = 0;
	CHECK(pthread_create(&queuer, NULL, queue, NULL) == 0, "no thread");
	while (launched < queued) {
		sched_yield();
	}
}

static void drain(void)
{
	queuing = false;
	CHECK(pthread_join(queuer, NULL) == 0, "no thread");
}

static void shared(unsigned blocks, bool together)
{
	size_t bytes = 0;
	int sms;

	CU(cuOccupancyAvailableDynamicSMemPerBlock(&bytes, fill, (int)blocks, THREADS));
	CU(cuFuncSetAttribute(fill, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, (int)bytes));
	if (together) {
		CU(cuDeviceGetAttribute(&sms, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device));
		CU(cuLaunchCooperativeKernel(fill, blocks * (unsigned)sms, 1, 1, THREADS, 1, 1,
					     (unsigned)bytes, NULL, NULL));
	} else {
		CU(cuLaunchKernel(fill, 4, 1, 1, THREADS, 1, 1, (unsigned)bytes, NULL, NULL, NULL));
	}
	CU(cuCtxSynchronize());
}

static bool obey(const char *line)
{
	unsigned n = 0, m = 0;

	if (strcmp(line, "load\n") == 0) {
		load();
	} else if (sscanf(line, "launch %u %u", &n, &m) == 2) {
		launch(n, m);
	} else if (sscanf(line, "stay %u", &n) == 1) {
		begin_stay(n);
	} else if (strcmp(line, "leave\n") == 0) {
		leave();
	} else if (sscanf(line, "queue %u %u", &n, &m) == 2) {
		begin_queue(n, m);
	} else if (strcmp(line, "drain\n") == 0) {
		drain();
	} else if (sscanf(line, "shared %u", &n) == 1) {
		shared(n, false);
	} else if (sscanf(line, "together %u", &n) == 1) {
		shared(n, true);
	} else {
		CHECK(strcmp(line, "exit\n") == 0, "unknown line %s", line);
		return false;
	}
	return true;
}

int main(void)
{
	char line[64];

	CU(cuInit(0));
	CU(cuDeviceGet(&device, 0));
	CU(cuDevicePrimaryCtxRetain(&context, device));
	CU(cuCtxSetCurrent(context));
	printf("pid %d\n", (int)getpid());
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin) && obey(line)) {
		printf("ok\n");
		fflush(stdout);
	}
	return 0;
}
