/* green IMAGE HOW: streams of a tenant that may use half of 16 multiprocessors (`capped`), and a
 * program that has green contexts of its own (`own`). The blocks report where they ran; order and
 * answers must be those of a program without gBPF. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../programs/program.h"

#define SMS 16
#define BLOCKS 512u
#define LOW 0xffull
#define ALL 0xffffull

static CUfunction where, step;
static CUcontext primary;
static CUmodule module;

static void right(int line, bool is, const char *what)
{
	if (!is) {
		fprintf(stderr, "green: line %d: check failed: %s\n", line, what);
		exit(1);
	}
}
#define RIGHT(x) right(__LINE__, x, #x)

static void begin(const char *image)
{
	size_t bytes;
	char *text = program_read(image, &bytes);

	CU(cuInit(0));
	CU(cuDevicePrimaryCtxRetain(&primary, 0));
	CU(cuCtxSetCurrent(primary));
	CU(cuModuleLoadData(&module, text));
	CU(cuModuleGetFunction(&where, module, "where"));
	CU(cuModuleGetFunction(&step, module, "step"));
	free(text);
}

/* Returns a bit mask of the multiprocessors on which a launch's blocks run. */
static uint64_t sms_of(CUstream s)
{
	CUdeviceptr out = program_zeros(BLOCKS * 4);
	uint32_t at[BLOCKS];
	uint64_t sms = 0;

	LAUNCH3(where, BLOCKS, 1, 1, 32, 1, 1, 0, s, &out);
	CU(cuStreamSynchronize(s));
	program_get(at, out, sizeof(at));
	CU(cuMemFree(out));
	for (unsigned i = 0; i < BLOCKS; i++) {
		RIGHT(at[i] >= 1 && at[i] <= SMS);
		sms |= 1ull << (at[i] - 1);
	}
	return sms;
}

/* Launches until blocks have run on all multiprocessors. One launch may leave one out: its first
 * block there may be interrupted when all others have run, and what is missing is resumed
 * elsewhere. */
static bool reaches_all(CUstream s)
{
	uint64_t sms = 0;

	for (unsigned i = 0; i < 1000 && sms != ALL; i++) {
		sms |= sms_of(s);
	}
	return sms == ALL;
}

/* Steps on several streams in turn, ordered by events, with a known result. */
static void ordered(CUstream *s, unsigned n_streams, CUevent ev, unsigned rounds)
{
	CUdeviceptr data = program_zeros(BLOCKS * 4);
	uint32_t got[BLOCKS], want = 0;

	program_settle(data);
	for (uint32_t i = 1; i <= rounds; i++) {
		CUstream to = s[i % n_streams];

		LAUNCH3(step, BLOCKS, 1, 1, 64, 1, 1, 0, to, &data, &i);
		want = want * 3 + i;
		CU(cuEventRecord(ev, to));
		CU(cuStreamWaitEvent(s[(i + 1) % n_streams], ev, 0));
	}
	CU(cuCtxSynchronize());
	program_get(got, data, sizeof(got));
	for (unsigned i = 0; i < BLOCKS; i++) {
		RIGHT(got[i] == want);
	}
	CU(cuMemFree(data));
}

static void looks_like_any_other(CUstream s, int priority)
{
	CUgreenCtx green = (CUgreenCtx)&primary;
	CUcontext ctx = NULL;
	unsigned flags = 0;
	int p = 1;

	CU(cuStreamGetCtx(s, &ctx));
	RIGHT(ctx == primary);
	ctx = NULL;
	CU(cuStreamGetCtx_v2(s, &ctx, &green));
	RIGHT(ctx == primary && !green);
	green = (CUgreenCtx)&primary;
	CU(cuStreamGetGreenCtx(s, &green));
	RIGHT(!green);
	CU(cuStreamGetFlags(s, &flags));
	CU(cuStreamGetPriority(s, &p));
	RIGHT(flags == CU_STREAM_NON_BLOCKING && p == priority);
}

static void captured(CUstream s, CUstream plain)
{
	CUdeviceptr data = program_zeros(BLOCKS * 4), out = program_zeros(BLOCKS * 4);
	uint32_t got[BLOCKS], want = 0;
	CUgraphExec exec;
	CUgraph graph;
	uint64_t sms = 0;

	CU(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
	for (uint32_t i = 1; i < 5; i++) {
		LAUNCH3(step, BLOCKS, 1, 1, 64, 1, 1, 0, s, &data, &i);
		want = want * 3 + i;
	}
	LAUNCH3(where, BLOCKS, 1, 1, 32, 1, 1, 0, s, &out);
	CU(cuStreamEndCapture(s, &graph));
	CU(cuGraphInstantiate(&exec, graph, 0));
	CU(cuGraphLaunch(exec,
			 plain)); /* its nodes run on the multiprocessors of the captured stream */
	CU(cuStreamSynchronize(plain));
	program_get(got, data, sizeof(got));
	for (unsigned i = 0; i < BLOCKS; i++) {
		RIGHT(got[i] == want);
	}
	program_get(got, out, sizeof(got));
	for (unsigned i = 0; i < BLOCKS; i++) {
		sms |= 1ull << (got[i] - 1);
	}
	RIGHT((sms & ~LOW) == 0);
	CU(cuGraphExecDestroy(exec));
	CU(cuGraphDestroy(graph));
}

/* Creating a stream while another stream captures does not end that capture. */
static void created_during_a_capture(CUstream s)
{
	CUgraph graph;
	CUstream t;

	CU(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
	CU(cuStreamCreate(&t, CU_STREAM_NON_BLOCKING));
	CU(cuStreamEndCapture(s, &graph));
	CU(cuGraphDestroy(graph));
	CU(cuStreamDestroy(t));
}

/* A cooperative launch is refused by the stream's multiprocessors whether it is deferred or not. */
static void cooperative(CUstream s)
{
	CUdeviceptr data = program_zeros(BLOCKS * 4), out = program_zeros(BLOCKS * 4);
	void *params[] = { &out };
	uint32_t most, i = 1;
	int resident = 0;

	CU(cuOccupancyMaxActiveBlocksPerMultiprocessor(&resident, where, 1024, 0));
	most = (uint32_t)resident * SMS / 2;
	for (unsigned n = 0; n < 40; n++) {
		LAUNCH3(step, BLOCKS, 1, 1, 64, 1, 1, 0, s, &data, &i);
		RIGHT(cuLaunchCooperativeKernel(where, most + 1, 1, 1, 1024, 1, 1, 0, s, params) ==
		      CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);
		CU(cuLaunchCooperativeKernel(where, most, 1, 1, 1024, 1, 1, 0, s, params));
	}
	CU(cuStreamSynchronize(s));
	CU(cuMemFree(data));
	CU(cuMemFree(out));
}

static int capped(void)
{
	CUstream s[3], blocking, of_other;
	unsigned flags;
	CUcontext other;
	CUevent ev;
	int n, active;

	CU(cuDeviceGetAttribute(&n, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 0));
	RIGHT(n == SMS / 2);
	CU(cuEventCreate(&ev, CU_EVENT_DISABLE_TIMING));
	CU(cuStreamCreate(&s[0], CU_STREAM_NON_BLOCKING));
	CU(cuStreamCreateWithPriority(&s[1], CU_STREAM_NON_BLOCKING, -2));
	CU(cuStreamCreate(&s[2], CU_STREAM_DEFAULT));
	CU(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
	looks_like_any_other(s[0], 0);
	looks_like_any_other(s[1], -2);
	ordered(s, 3, ev, 120);
	captured(s[1], s[0]);
	created_during_a_capture(s[0]);
	cooperative(s[0]);
	RIGHT((sms_of(s[0]) & ~LOW) == 0 && (sms_of(s[1]) & ~LOW) == 0);
	RIGHT(reaches_all(blocking) && reaches_all(NULL));
	CU(cuCtxCreate(&other, 0, 0));
	CU(cuStreamCreate(&of_other, CU_STREAM_NON_BLOCKING));
	CU(cuCtxDestroy(other));
	CU(cuCtxSetCurrent(primary));
	CU(cuEventDestroy(ev));
	CU(cuStreamDestroy(s[0]));
	/* The shim keeps no reference to the context when the program has released everything. */
	CU(cuStreamDestroy(s[1]));
	CU(cuModuleUnload(module));
	CU(cuDevicePrimaryCtxRelease_v2(0));
	CU(cuDevicePrimaryCtxGetState(0, &flags, &active));
	RIGHT(!active);
	CU(cuDevicePrimaryCtxRetain(&primary, 0));
	CU(cuCtxSetCurrent(primary));
	CU(cuStreamCreate(&s[0], CU_STREAM_NON_BLOCKING));
	CU(cuDevicePrimaryCtxReset_v2(0));
	CU(cuDevicePrimaryCtxGetState(0, &flags, &active));
	RIGHT(!active);
	return 0;
}

static CUgreenCtx half(unsigned which)
{
	CUdevResource all, r[2];
	CUdevResourceDesc desc;
	unsigned n = 2;
	CUgreenCtx g;

	CU(cuDeviceGetDevResource(0, &all, CU_DEV_RESOURCE_TYPE_SM));
	CU(cuDevSmResourceSplitByCount(r, &n, &all, NULL, 0, SMS / 2));
	CU(cuDevResourceGenerateDesc(&desc, &r[which], 1));
	CU(cuGreenCtxCreate(&g, desc, 0, CU_GREEN_CTX_DEFAULT_STREAM));
	return g;
}

static int own(void)
{
	CUcontext ctx[2], is;
	CUgreenCtx g[2], of;
	CUstream s[3];
	CUevent ev;

	CU(cuEventCreate(&ev, CU_EVENT_DISABLE_TIMING));
	for (unsigned i = 0; i < 2; i++) {
		g[i] = half(i);
		CU(cuCtxFromGreenCtx(&ctx[i], g[i]));
		CU(cuGreenCtxStreamCreate(&s[i], g[i], CU_STREAM_NON_BLOCKING, 0));
		CU(cuStreamGetGreenCtx(s[i], &of));
		CU(cuStreamGetCtx(s[i], &is));
		RIGHT(of == g[i] && is == ctx[i]);
	}
	CU(cuStreamCreate(&s[2], CU_STREAM_NON_BLOCKING));
	ordered(s, 3, ev, 120);
	RIGHT((sms_of(s[0]) & ~LOW) == 0 && (sms_of(s[1]) & LOW) == 0 && reaches_all(s[2]));
	/* A current green context, with its default stream and a blocking stream. */
	CU(cuCtxPushCurrent_v2(ctx[1]));
	CU(cuStreamCreate(&s[0], CU_STREAM_DEFAULT));
	s[1] = NULL;
	ordered(s, 2, ev, 60);
	RIGHT((sms_of(NULL) & LOW) == 0 && (sms_of(s[0]) & LOW) == 0);
	CU(cuCtxSynchronize());
	CU(cuStreamDestroy(s[0]));
	CU(cuCtxPopCurrent_v2(&is));
	RIGHT(is == ctx[1]);
	CU(cuGreenCtxDestroy(g[1]));
	CU(cuStreamSynchronize(s[2]));
	CU(cuGreenCtxDestroy(g[0]));
	CU(cuStreamSynchronize(s[2]));
	CU(cuEventDestroy(ev));
	CU(cuModuleUnload(module));
	CU(cuDevicePrimaryCtxRelease_v2(0));
	return 0;
}

int main(int argc, char **argv)
{
	if (argc != 3) {
		fprintf(stderr, "usage: green IMAGE capped|own\n");
		return 2;
	}
	begin(argv[1]);
	return strcmp(argv[2], "own") == 0 ? own() : capped();
}
