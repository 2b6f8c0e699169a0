/* Green contexts: splitting sets of SMs, descriptors, contexts and streams on them, and placement
 * of blocks. Each test is a child process; all share a soft GPU with 16 SMs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/atomic.h"
#include "rig.h"

#define SMS 16u
#define QUEUED 8300u /* more operations than the server queues for one client */

/* where(out, flag): out[block] = 1 + the number of its SM; then waits until *flag is not 0, unless
 * flag is NULL. */
static const char ptx[] = ".version 6.0\n"
			  ".target sm_70\n"
			  ".address_size 64\n"
			  ".visible .entry where(.param .u64 out, .param .u64 flag)\n"
			  "{\n"
			  "	.reg .pred %p<3>;\n	.reg .b32 %r<5>;\n	.reg .b64 %rd<6>;\n"
			  "	ld.param.u64 %rd1, [out];\n	ld.param.u64 %rd2, [flag];\n"
			  "	mov.u32 %r1, %ctaid.x;\n	mov.u32 %r2, %smid;\n"
			  "	add.s32 %r2, %r2, 1;\n"
			  "	mul.wide.u32 %rd3, %r1, 4;\n	add.s64 %rd4, %rd1, %rd3;\n"
			  "	st.volatile.global.u32 [%rd4], %r2;\n"
			  "	setp.eq.u64 %p1, %rd2, 0;\n"
			  "	@%p1 bra END;\n"
			  "AGAIN:\n"
			  "	ld.volatile.global.u32 %r3, [%rd2];\n"
			  "	setp.eq.u32 %p2, %r3, 0;\n"
			  "	@%p2 bra AGAIN;\n"
			  "END:\n"
			  "	ret;\n"
			  "}\n";

static CUfunction where;
static CUcontext primary;

/* Makes the primary context current and loads the module. */
static void begin(void)
{
	CUmodule m;

	CU(cuInit(0));
	CU(cuDevicePrimaryCtxRetain(&primary, 0));
	CU(cuCtxSetCurrent(primary));
	CU(cuModuleLoadData(&m, ptx));
	CU(cuModuleGetFunction(&where, m, "where"));
}

/* Splits the device into groups of n SMs each, and the rest. */
static void split(CUdevResource *groups, unsigned n_groups, unsigned n, CUdevResource *rest)
{
	CUdevResource all;
	unsigned count = n_groups;

	CU(cuDeviceGetDevResource(0, &all, CU_DEV_RESOURCE_TYPE_SM));
	CU(cuDevSmResourceSplitByCount(groups, &count, &all, rest, 0, n));
	CHECK(count == n_groups);
}

static CUgreenCtx green_of(CUdevResource *r, unsigned n)
{
	CUdevResourceDesc desc;
	CUgreenCtx g;

	CU(cuDevResourceGenerateDesc(&desc, r, n));
	CU(cuGreenCtxCreate(&g, desc, 0, CU_GREEN_CTX_DEFAULT_STREAM));
	return g;
}

static uint32_t *words(unsigned n)
{
	void *p;

	CU(cuMemHostAlloc(&p, n * sizeof(uint32_t), 0));
	memset(p, 0, n * sizeof(uint32_t));
	return p;
}

static void launch(CUstream s, unsigned blocks, uint32_t *out, uint32_t *flag)
{
	void *params[] = { &out, &flag };

	CU(cuLaunchKernel(where, blocks, 1, 1, 32, 1, 1, 0, s, params, NULL));
}

/* Returns the set of SMs on which the blocks ran, as bits. */
static uint64_t seen(const uint32_t *out, unsigned blocks)
{
	uint64_t sms = 0;

	for (unsigned i = 0; i < blocks; i++) {
		uint32_t at = load_acquire(&out[i]);

		CHECK(at >= 1 && at <= SMS);
		sms |= 1ull << (at - 1);
	}
	return sms;
}

static void splits_program(void *arg)
{
	CUdevResource all, some[8], rest, bad;
	CUdevResourceDesc desc, again;
	unsigned n;

	(void)arg;
	begin();
	CU_IS(CUDA_ERROR_INVALID_DEVICE, cuDeviceGetDevResource(7, &all, CU_DEV_RESOURCE_TYPE_SM));
	CU_IS(CUDA_ERROR_INVALID_RESOURCE_TYPE, cuDeviceGetDevResource(0, &all, 9));
	CU_IS(CUDA_ERROR_INVALID_VALUE, cuDeviceGetDevResource(0, NULL, CU_DEV_RESOURCE_TYPE_SM));
	CU(cuDeviceGetDevResource(0, &all, CU_DEV_RESOURCE_TYPE_SM));
	CHECK(all.type == CU_DEV_RESOURCE_TYPE_SM && all.sm.smCount == SMS);
	CHECK(all.sm.minSmPartitionSize == 4 && all.sm.smCoscheduledAlignment == 2);
	CU(cuDevSmResourceSplitByCount(NULL, &n, &all, NULL, 0, 0));
	CHECK(n == 4); /* groups have at least four SMs */
	CU(cuDevSmResourceSplitByCount(NULL, &n, &all, NULL, 0, 5));
	CHECK(n == 2); /* each rounded up to six */
	CU(cuDevSmResourceSplitByCount(NULL, &n, &all, NULL,
				       CU_DEV_SM_RESOURCE_SPLIT_IGNORE_SM_COSCHEDULING, 1));
	CHECK(n == 8);
	CU_IS(CUDA_ERROR_INVALID_VALUE, cuDevSmResourceSplitByCount(NULL, &n, &all, NULL, 8, 0));
	CU_IS(CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION,
	      cuDevSmResourceSplitByCount(NULL, &n, &all, NULL, 0, SMS + 1));
	n = 8;
	CU(cuDevSmResourceSplitByCount(some, &n, &all, &rest, 0, 5));
	CHECK(n == 2 && some[0].sm.smCount == 6 && some[1].sm.smCount == 6);
	CHECK(rest.type == CU_DEV_RESOURCE_TYPE_SM && rest.sm.smCount == 4);
	CU_IS(CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION, /* needs a green context first */
	      cuDevSmResourceSplitByCount(NULL, &n, &some[0], NULL, 0, 4));
	CU(cuDevResourceGenerateDesc(&desc, some, 2));
	CU(cuDevResourceGenerateDesc(&again, some, 2));
	CHECK(desc == again);
	bad = some[0];
	bad.internal[20] ^= 1;
	CU_IS(CUDA_ERROR_INVALID_VALUE, cuDevResourceGenerateDesc(&desc, &bad, 1));
	bad.type = CU_DEV_RESOURCE_TYPE_INVALID;
	CU_IS(CUDA_ERROR_INVALID_RESOURCE_TYPE, cuDevResourceGenerateDesc(&desc, &bad, 1));
	some[2] = some[0];
	CU_IS(CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION, /* the same group twice */
	      cuDevResourceGenerateDesc(&desc, some, 3));
	n = 1;
	CU(cuDevSmResourceSplitByCount(&some[1], &n, &all, NULL, 0, 6));
	CU_IS(CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION, /* from different splits */
	      cuDevResourceGenerateDesc(&desc, some, 2));
	n = 4;
	CU(cuDevSmResourceSplitByCount(some, &n, &all, &rest, 0, 4));
	CHECK(n == 4 && rest.type == CU_DEV_RESOURCE_TYPE_INVALID);
}

static void sets_of_sms_are_split(void **state)
{
	(void)state;
	assert_int_equal(rig_run(splits_program, NULL), 0);
}

static void handles_program(void *arg)
{
	CUdevResource r[2];
	CUcontext ctx, other;
	CUgreenCtx g, of;
	CUevent ev;
	CUstream s, t, outside;
	unsigned long long id, id2;
	unsigned flags;
	int priority;

	(void)arg;
	begin();
	CU(cuEventCreate(&ev, 0));
	CU(cuStreamCreate(&outside, CU_STREAM_NON_BLOCKING));
	split(r, 2, 8, NULL);
	CU_IS(CUDA_ERROR_INVALID_VALUE, cuGreenCtxCreate(&g, (CUdevResourceDesc)r, 0, 1));
	g = green_of(&r[1], 1);
	CU_IS(CUDA_ERROR_INVALID_CONTEXT, cuCtxSetCurrent((CUcontext)g)); /* not converted */
	CU(cuCtxFromGreenCtx(&ctx, g));
	CHECK(ctx != primary);
	CU(cuGreenCtxGetId(g, &id));
	CU_IS(CUDA_ERROR_INVALID_VALUE, cuGreenCtxStreamCreate(&s, g, CU_STREAM_DEFAULT, 0));
	CU(cuGreenCtxStreamCreate(&s, g, CU_STREAM_NON_BLOCKING, -3));
	CU(cuStreamGetPriority(s, &priority));
	CU(cuStreamGetFlags(s, &flags));
	CHECK(priority == -3 && flags == CU_STREAM_NON_BLOCKING);
	CU(cuStreamGetCtx(s, &other));
	CHECK(other == ctx);
	CU(cuStreamGetCtx_v2(s, &other, &of));
	CHECK(other == primary && of == g);
	CU(cuStreamGetGreenCtx(s, &of));
	CHECK(of == g);
	CU(cuStreamGetGreenCtx(outside, &of));
	CHECK(of == NULL);
	CU(cuCtxGetDevResource(ctx, r, CU_DEV_RESOURCE_TYPE_SM));
	CHECK(r->sm.smCount == 8);
	CU(cuCtxGetDevResource(primary, r, CU_DEV_RESOURCE_TYPE_SM));
	CHECK(r->sm.smCount == SMS);
	/* While it is current, the thread uses the primary context with other default streams. */
	CU(cuCtxPushCurrent_v2(ctx));
	CU(cuCtxGetCurrent(&other));
	CHECK(other == ctx);
	CU(cuGreenCtxGetId(NULL, &id2));
	CHECK(id == id2);
	CU(cuStreamCreate(&t, CU_STREAM_DEFAULT));
	CU(cuStreamGetGreenCtx(t, &of));
	CHECK(of == g);
	CU(cuStreamGetGreenCtx(NULL, &of));
	CHECK(of == g);
	CU_IS(CUDA_ERROR_INVALID_HANDLE, cuStreamQuery(CU_STREAM_PER_THREAD));
	CU_IS(CUDA_ERROR_INVALID_CONTEXT, cuCtxDestroy_v2(ctx));
	CU(cuEventRecord(ev, t));
	CU(cuStreamWaitEvent(outside, ev, 0));
	CU(cuCtxPopCurrent_v2(&other));
	CHECK(other == ctx);
	CU(cuEventRecord(ev, s)); /* the event's context is the primary context too */
	CU(cuEventSynchronize(ev));
	/* After the green context is destroyed. */
	CU(cuGreenCtxDestroy(g));
	CU_IS(CUDA_ERROR_INVALID_CONTEXT, cuGreenCtxDestroy(g));
	CU_IS(CUDA_ERROR_CONTEXT_IS_DESTROYED, cuStreamSynchronize(s));
	CU_IS(CUDA_ERROR_CONTEXT_IS_DESTROYED, cuStreamDestroy_v2(t));
	CU_IS(CUDA_ERROR_INVALID_CONTEXT, cuCtxSetCurrent(ctx));
	CU(cuStreamSynchronize(outside));
	/* A green context retains the primary context. */
	split(r, 1, 4, NULL);
	g = green_of(r, 1);
	CU(cuDevicePrimaryCtxRelease_v2(0));
	CU(cuStreamSynchronize(outside));
	CU(cuGreenCtxDestroy(g));
	CU_IS(CUDA_ERROR_CONTEXT_IS_DESTROYED, cuStreamSynchronize(outside));
}

static void green_contexts_answer_as_the_manual_says(void **state)
{
	(void)state;
	assert_int_equal(rig_run(handles_program, NULL), 0);
}

static void places_program(void *arg)
{
	CUdevResource r[2], rest, pair[2];
	uint32_t *out, *never;
	CUgreenCtx low, high, both;
	CUstream a, b, c;
	CUcontext ctx;

	(void)arg;
	begin();
	out = words(1024);
	never = words(1);
	split(r, 2, 6, &rest);
	low = green_of(&r[0], 1);
	high = green_of(&r[1], 1);
	pair[0] = r[0];
	pair[1] = rest;
	both = green_of(pair, 2);
	CU(cuGreenCtxStreamCreate(&a, low, CU_STREAM_NON_BLOCKING, 0));
	CU(cuGreenCtxStreamCreate(&b, high, CU_STREAM_NON_BLOCKING, 0));
	CU(cuGreenCtxStreamCreate(&c, both, CU_STREAM_NON_BLOCKING, 0));
	launch(a, 400, out, NULL);
	CU(cuStreamSynchronize(a));
	CHECK((seen(out, 400) & ~0x3full) == 0);
	launch(c, 400, out, NULL);
	CU(cuStreamSynchronize(c));
	CHECK((seen(out, 400) & ~0xf03full) == 0);
	/* More blocks than fit wait on the lower SMs; the upper SMs run work meanwhile, whatever
	 * the order of submission. */
	launch(a, 400, out, never);
	launch(b, 200, out + 512, NULL);
	CU(cuStreamSynchronize(b));
	CHECK((seen(out + 512, 200) & ~0xfc0ull) == 0);
	CU_IS(CUDA_ERROR_NOT_READY, cuStreamQuery(a));
	/* A green context has a default stream of its own. */
	CU(cuCtxFromGreenCtx(&ctx, high));
	CU(cuCtxPushCurrent_v2(ctx));
	launch(NULL, 64, out + 512, NULL);
	CU(cuCtxSynchronize()); /* does not wait for other streams' work */
	CHECK((seen(out + 512, 64) & ~0xfc0ull) == 0);
	CU(cuCtxPopCurrent_v2(&ctx));
	store_release(never, 1u);
	CU(cuCtxSynchronize());
	CU(cuStreamQuery(a));
	CHECK((seen(out, 400) & ~0x3full) == 0);
}

static void blocks_keep_to_their_sms(void **state)
{
	(void)state;
	assert_int_equal(rig_run(places_program, NULL), 0);
}

/* The server has queued as many operations as it accepts, so the launch is still in the ring. */
static void destroyed_program(void *arg)
{
	uint32_t *out, *flag, *other;
	CUdevResource r[2];
	CUgreenCtx low, high;
	CUstream closed, s;

	(void)arg;
	begin();
	out = words(64);
	other = words(64);
	flag = words(1);
	split(r, 2, 6, NULL);
	low = green_of(&r[0], 1);
	CU(cuGreenCtxStreamCreate(&s, low, CU_STREAM_NON_BLOCKING, 0));
	CU(cuStreamCreate(&closed, CU_STREAM_NON_BLOCKING));
	CU(cuStreamWaitValue32(closed, (CUdeviceptr)(uintptr_t)flag, 1, CU_STREAM_WAIT_VALUE_GEQ));
	for (unsigned i = 0; i < QUEUED; i++) {
		CU(cuMemsetD8Async((CUdeviceptr)(uintptr_t)other, 0, 1, closed));
	}
	launch(s, 64, out, NULL);
	CU(cuGreenCtxDestroy(low));
	high = green_of(&r[1], 1); /* must not reuse the number of the destroyed one */
	CU(cuGreenCtxStreamCreate(&s, high, CU_STREAM_NON_BLOCKING, 0));
	launch(s, 64, other, NULL);
	store_release(flag, 1u);
	CU(cuCtxSynchronize());
	CHECK((seen(out, 64) & ~0x3full) == 0);
	CHECK((seen(other, 64) & ~0xfc0ull) == 0);
	CU(cuGreenCtxDestroy(high));
}

static void launches_outlive_their_green_context(void **state)
{
	(void)state;
	assert_int_equal(rig_run(destroyed_program, NULL), 0);
}

static void order_program(void *arg)
{
	CUstream inside, outside, blocking;
	uint32_t *out, *flag;
	CUdevResource r[2];
	CUevent ev;
	CUgreenCtx g;
	CUcontext ctx;

	(void)arg;
	begin();
	out = words(64);
	flag = words(1);
	CU(cuEventCreate(&ev, 0));
	split(r, 2, 8, NULL);
	g = green_of(&r[0], 1);
	CU(cuGreenCtxStreamCreate(&inside, g, CU_STREAM_NON_BLOCKING, 0));
	CU(cuStreamCreate(&outside, CU_STREAM_NON_BLOCKING));
	CU(cuCtxFromGreenCtx(&ctx, g));
	CU(cuCtxPushCurrent_v2(ctx));
	CU(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
	CU(cuCtxPopCurrent_v2(&ctx));
	/* Blocking streams synchronize with the default stream of their own green context, not with
	 * the primary's. */
	launch(NULL, 1, out, flag);
	launch(blocking, 1, out + 1, NULL);
	CU(cuStreamSynchronize(blocking));
	/* The event covers the work of the green context only. */
	CU(cuGreenCtxRecordEvent(g, ev));
	CU(cuEventSynchronize(ev));
	CU(cuCtxRecordEvent(primary, ev));
	CU_IS(CUDA_ERROR_NOT_READY, cuEventQuery(ev));
	/* Only the streams of the green context wait. */
	CU(cuGreenCtxWaitEvent(g, ev));
	launch(inside, 1, out + 2, NULL);
	launch(outside, 1, out + 3, NULL);
	CU(cuStreamSynchronize(outside));
	CU_IS(CUDA_ERROR_NOT_READY, cuStreamQuery(inside));
	CHECK(load_acquire(&out[2]) == 0);
	store_release(flag, 1u);
	CU(cuStreamSynchronize(inside));
	CU(cuCtxPushCurrent_v2(ctx));
	store_release(flag, 0u);
	launch(NULL, 1, out, flag);
	CU(cuCtxPopCurrent_v2(&ctx));
	launch(blocking, 1, out + 4, NULL);
	launch(NULL, 1, out + 5, NULL);
	CU(cuStreamSynchronize(NULL));
	CU_IS(CUDA_ERROR_NOT_READY, cuStreamQuery(blocking));
	CHECK(load_acquire(&out[4]) == 0);
	store_release(flag, 1u);
	CU(cuStreamSynchronize(blocking));
}

static void green_contexts_have_an_order_of_their_own(void **state)
{
	(void)state;
	assert_int_equal(rig_run(order_program, NULL), 0);
}

static void graphs_program(void *arg)
{
	CUgraph captured, made;
	CUgraphExec x, y;
	CUgraphNode n;
	CUdevResource r[2];
	uint32_t *out, *flag = NULL;
	CUstream s, plain;
	CUgreenCtx g;
	void *params[] = { &out, &flag };
	CUDA_KERNEL_NODE_PARAMS p = { .gridDimX = 200,
				      .gridDimY = 1,
				      .gridDimZ = 1,
				      .blockDimX = 32,
				      .blockDimY = 1,
				      .blockDimZ = 1,
				      .kernelParams = params };

	(void)arg;
	begin();
	out = words(200);
	split(r, 2, 8, NULL);
	g = green_of(&r[1], 1);
	CU(cuStreamCreate(&plain, CU_STREAM_NON_BLOCKING));
	CU(cuGreenCtxStreamCreate(&s, g, CU_STREAM_NON_BLOCKING, 0));
	CU(cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
	launch(s, 200, out, NULL);
	CU(cuStreamEndCapture(s, &captured));
	CU(cuGraphInstantiateWithFlags(&x, captured, 0));
	CU(cuGraphLaunch(x, plain)); /* a node keeps the context in which it was created */
	CU(cuStreamSynchronize(plain));
	CHECK((seen(out, 200) & ~0xff00ull) == 0);
	p.func = where;
	CU(cuCtxFromGreenCtx(&p.ctx, g));
	CU(cuGraphCreate(&made, 0));
	CU(cuGraphAddKernelNode_v2(&n, made, NULL, 0, &p));
	CU(cuGraphInstantiateWithFlags(&y, made, 0));
	CU(cuGraphLaunch(y, plain));
	CU(cuStreamSynchronize(plain));
	CHECK((seen(out, 200) & ~0xff00ull) == 0);
	p.ctx = NULL; /* unchanged */
	CU(cuGraphExecKernelNodeSetParams_v2(y, n, &p));
	CU(cuGraphLaunch(y, plain));
	CU(cuStreamSynchronize(plain));
	CHECK((seen(out, 200) & ~0xff00ull) == 0);
	p.ctx = primary;
	CU(cuGraphExecKernelNodeSetParams_v2(y, n, &p));
	CU(cuGraphLaunch(y, s));
	CU(cuStreamSynchronize(s));
	CHECK((seen(out, 200) & 0xffull) != 0);
}

static void graph_nodes_keep_their_green_context(void **state)
{
	(void)state;
	assert_int_equal(rig_run(graphs_program, NULL), 0);
}

static void limits_program(void *arg)
{
	CUgreenCtx g[SOFT_MAX_PARTS + 1];
	CUdevResourceDesc desc;
	CUdevResource r[2];
	uint32_t *out, *flag = NULL;
	void *params[] = { &out, &flag };
	unsigned n = 0;
	CUstream s;

	(void)arg;
	begin();
	out = words(1024);
	split(r, 2, 4, NULL);
	g[0] = green_of(&r[0], 1);
	CU(cuGreenCtxStreamCreate(&s, g[0], CU_STREAM_NON_BLOCKING, 0));
	/* 4 of 16 SMs with 16 blocks each. */
	CU_IS(CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE,
	      cuLaunchCooperativeKernel(where, 65, 1, 1, 32, 1, 1, 0, s, params));
	CU(cuLaunchCooperativeKernel(where, 64, 1, 1, 32, 1, 1, 0, s, params));
	CU(cuStreamSynchronize(s));
	CHECK((seen(out, 64) & ~0xfull) == 0);
	CU(cuDevResourceGenerateDesc(&desc, r, 1));
	while (++n <= SOFT_MAX_PARTS && cuGreenCtxCreate(&g[n], desc, 0, 1) == CUDA_SUCCESS) {
	}
	CHECK(n == SOFT_MAX_PARTS);
	CU(cuGreenCtxDestroy(g[5]));
	CU(cuGreenCtxCreate(&g[5], desc, 0, 1));
}

static void limits_are_reported(void **state)
{
	(void)state;
	assert_int_equal(rig_run(limits_program, NULL), 0);
}

static int start(void **state)
{
	static const char *const args[] = {
		"--sms", "16", "--mem", "256M", "--workers", "2", NULL
	};

	(void)state;
	rig_open();
	rig_start(args);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(sets_of_sms_are_split),
		cmocka_unit_test(green_contexts_answer_as_the_manual_says),
		cmocka_unit_test(blocks_keep_to_their_sms),
		cmocka_unit_test(launches_outlive_their_green_context),
		cmocka_unit_test(green_contexts_have_an_order_of_their_own),
		cmocka_unit_test(graph_nodes_keep_their_green_context),
		cmocka_unit_test(limits_are_reported),
	};

	return cmocka_run_group_tests_name("soft green", tests, start, rig_end);
}
