/* probe_hazards: a program for probe_hazards.bats whose launches, contexts and errors are hard on
 * probes. It obeys lines of standard input and answers each with "ok".
 *
 *   load       loads the module and gets its functions
 *   tick N     N launches of tick, 1 block each, then synchronizes
 *   context    makes a context of its own, which stays, loads the module there and launches tick
 *   library N  makes two contexts and a library, and launches tick N times in each, in turn, by one
 *              thread; destroys the first, and launches N times more in the other
 *   full       launches a kernel with as much shared memory as a block can have
 *   spin       launches a kernel that runs until "release"
 *   first      launches tock for the first time
 *   release    ends what "spin" launched
 *   busy       from now on the context is never idle, and no work that is queued ends within 20 ms
 *   idle       ends that
 *   pin        pins host memory until there is none
 *   fault      as context, with a kernel that ends the context's work by a write to address 8
 */
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../programs/program.h"
#include "check.h"

#define ALL_SHARED (99u << 10)

static const char text[] =
	".version 6.0\n.target sm_70\n.address_size 64\n"
	".visible .entry tick()\n{\nret;\n}\n"
	".visible .entry tock()\n{\nret;\n}\n"
	".visible .entry spin(.param .u64 at)\n{\n"
	".reg .pred %p<2>; .reg .b32 %r<2>; .reg .b64 %rd<2>;\n"
	"ld.param.u64 %rd1, [at];\n"
	"again: ld.volatile.global.u32 %r1, [%rd1]; setp.eq.u32 %p1, %r1, 0;\n"
	"@%p1 bra again; ret;\n}\n"
	".visible .entry fault()\n{\n"
	".reg .b64 %rd<2>; mov.u64 %rd1, 8; st.global.u32 [%rd1], 1; ret;\n}\n"
	".extern .shared .align 16 .b8 dynamic[];\n"
	".visible .entry full(.param .u32 last)\n{\n"
	".reg .b32 %r<4>;\n"
	"ld.param.u32 %r1, [last]; mov.u32 %r2, dynamic; add.u32 %r2, %r2, %r1;\n"
	"st.shared.u32 [%r2], 1; ret;\n}\n";

static CUdevice device;
static CUcontext context;
static CUmodule module;
static CUstream own, side; /* that wait for no other */
static unsigned *flag;

static CUfunction function(CUmodule m, const char *name)
{
	CUfunction f;

	CU(cuModuleGetFunction(&f, m, name));
	return f;
}

static void launch(CUfunction f, CUstream s)
{
	CU(cuLaunchKernel(f, 1, 1, 1, 32, 1, 1, 0, s, NULL, NULL));
}

static void tick(unsigned n)
{
	CUfunction f = function(module, "tick");

	while (n--) {
		launch(f, own);
	}
	CU(cuStreamSynchronize(own));
}

static CUcontext other_context(const char *kernel)
{
	CUcontext c;
	CUmodule m;

	CU(cuCtxCreate(&c, 0, device));
	CU(cuModuleLoadData(&m, text));
	launch(function(m, kernel), NULL);
	return c;
}

static void library(unsigned n)
{
	CUcontext c[2];
	CUlibrary l;
	CUkernel k;

	CU(cuLibraryLoadData(&l, text, NULL, NULL, 0, NULL, NULL, 0));
	CU(cuLibraryGetKernel(&k, l, "tick"));
	CU(cuCtxCreate(&c[0], 0, device));
	CU(cuCtxCreate(&c[1], 0, device));
	for (unsigned i = 0; i < 2 * n; i++) {
		CU(cuCtxSetCurrent(c[i % 2]));
		launch((CUfunction)(void *)k, NULL);
	}
	CU(cuCtxDestroy(c[0]));
	CU(cuCtxSetCurrent(c[1]));
	for (unsigned i = 0; i < n; i++) {
		launch((CUfunction)(void *)k, NULL);
	}
	CU(cuCtxSynchronize());
	CU(cuCtxSetCurrent(context));
}

static void full(void)
{
	CUfunction f = function(module, "full");
	unsigned last = ALL_SHARED - 4;
	void *params[] = { &last };

	CU(cuFuncSetAttribute(f, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, ALL_SHARED));
	CU(cuLaunchKernel(f, 1, 1, 1, 32, 1, 1, ALL_SHARED, NULL, params, NULL));
	CU(cuStreamSynchronize(NULL));
}

static void spin(void)
{
	CUdeviceptr at;
	void *params[] = { &at };

	CU(cuStreamCreate(&side, CU_STREAM_NON_BLOCKING));
	CU(cuMemHostAlloc((void **)&flag, sizeof(*flag), CU_MEMHOSTALLOC_DEVICEMAP));
	at = (CUdeviceptr)(uintptr_t)flag; /* unified addresses */
	*(volatile unsigned *)flag = 0;
	CU(cuLaunchKernel(function(module, "spin"), 1, 1, 1, 1, 1, 1, 0, side, params, NULL));
}

static void first_launch(void)
{
	launch(function(module, "tock"), own);
	CU(cuStreamSynchronize(own));
}

static void release(void)
{
	__atomic_store_n(flag, 1u, __ATOMIC_SEQ_CST);
	CU(cuStreamSynchronize(side));
}

static pthread_t busy_thread;
static unsigned stopped; /* [atomic] */

/* Keeps two waits queued behind the one that it ends. */
static void *stay_busy(void *arg)
{
	CUdeviceptr at = (CUdeviceptr)(uintptr_t)flag;
	unsigned last = 2;

	(void)arg;
	CU(cuCtxSetCurrent(context));
	CU(cuStreamWaitValue32(side, at, 1, CU_STREAM_WAIT_VALUE_GEQ));
	CU(cuStreamWaitValue32(side, at, 2, CU_STREAM_WAIT_VALUE_GEQ));
	while (!__atomic_load_n(&stopped, __ATOMIC_SEQ_CST)) {
		CU(cuStreamWaitValue32(side, at, ++last, CU_STREAM_WAIT_VALUE_GEQ));
		usleep(20000); /* how long the work takes */
		__atomic_store_n(flag, last - 2, __ATOMIC_SEQ_CST);
	}
	__atomic_store_n(flag, last, __ATOMIC_SEQ_CST);
	CU(cuStreamSynchronize(side));
	return NULL;
}

static void busy(void)
{
	CU(cuStreamCreate(&side, CU_STREAM_NON_BLOCKING));
	CU(cuMemHostAlloc((void **)&flag, sizeof(*flag), CU_MEMHOSTALLOC_DEVICEMAP));
	*(volatile unsigned *)flag = 0;
	CHECK(pthread_create(&busy_thread, NULL, stay_busy, NULL) == 0, "thread");
}

static void idle(void)
{
	__atomic_store_n(&stopped, 1u, __ATOMIC_SEQ_CST);
	pthread_join(busy_thread, NULL);
}

static void fault(void)
{
	(void)other_context("fault");
	CHECK(cuCtxSynchronize() != CUDA_SUCCESS, "the fault has no effect");
	CU(cuCtxSetCurrent(context));
}

static void pin(void)
{
	void *p;

	for (size_t bytes = (size_t)64 << 20; bytes >= 4096; bytes /= 4) {
		while (cuMemHostAlloc(&p, bytes, 0) == CUDA_SUCCESS) {
		}
	}
}

static bool obey(const char *line)
{
	unsigned n = 0;

	if (strcmp(line, "load\n") == 0) {
		CU(cuModuleLoadData(&module, text));
	} else if (sscanf(line, "tick %u", &n) == 1) {
		tick(n);
	} else if (strcmp(line, "context\n") == 0) {
		(void)other_context("tick");
		CU(cuCtxSynchronize());
		CU(cuCtxSetCurrent(context));
	} else if (sscanf(line, "library %u", &n) == 1) {
		library(n);
	} else if (strcmp(line, "full\n") == 0) {
		full();
	} else if (strcmp(line, "spin\n") == 0) {
		spin();
	} else if (strcmp(line, "first\n") == 0) {
		first_launch();
	} else if (strcmp(line, "release\n") == 0) {
		release();
	} else if (strcmp(line, "busy\n") == 0) {
		busy();
	} else if (strcmp(line, "idle\n") == 0) {
		idle();
	} else if (strcmp(line, "pin\n") == 0) {
		pin();
	} else if (strcmp(line, "fault\n") == 0) {
		fault();
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
	CU(cuStreamCreate(&own, CU_STREAM_NON_BLOCKING));
	printf("pid %d\n", (int)getpid());
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin) && obey(line)) {
		printf("ok\n");
		fflush(stdout);
	}
	return 0;
}
