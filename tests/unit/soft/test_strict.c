/* GBPF_SOFT_STRICT and GBPF_SOFT_QUEUE: an invalid handle ends the process with a message that
 * names the reason, and a full queue blocks as the driver's does. */
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/atomic.h"
#include "rig.h"

#include "../eventually.h"

#define STRICT_ABORT (128 + SIGABRT)

static void enable_strict(void)
{
	struct rlimit none = { 0, 0 };

	setrlimit(RLIMIT_CORE, &none);
	setenv("GBPF_SOFT_STRICT", "1", 1);
}

/* Returns what the child wrote to standard error; caller frees. */
static char *said(void (*fn)(void *), int *ret_code)
{
	char path[128], *text = calloc(1, 4096);
	int before = dup(STDERR_FILENO);
	FILE *f;

	snprintf(path, sizeof(path), "%s/said", rig_dir);
	f = fopen(path, "w+");
	assert_true(text && f && before >= 0);
	dup2(fileno(f), STDERR_FILENO);
	*ret_code = rig_run(fn, NULL);
	dup2(before, STDERR_FILENO);
	close(before);
	rewind(f);
	(void)!fread(text, 1, 4095, f);
	fclose(f);
	return text;
}

static void ends_with(void (*fn)(void *), const char *call, const char *what)
{
	int code;
	char *text = said(fn, &code);

	if (code != STRICT_ABORT || !strstr(text, call) || !strstr(text, what)) {
		fail_msg("exit code %d, \"%s\" instead of %s ... %s", code, text, call, what);
	}
	free(text);
}

static void query_destroyed_stream(void *arg)
{
	CUstream s;

	(void)arg;
	enable_strict();
	rig_context();
	CU(cuStreamCreate(&s, 0));
	CU(cuStreamDestroy_v2(s));
	(void)cuStreamQuery(s);
}

static void record_destroyed_event(void *arg)
{
	CUevent e;

	(void)arg;
	enable_strict();
	rig_context();
	CU(cuEventCreate(&e, 0));
	CU(cuEventDestroy_v2(e));
	(void)cuEventRecord(e, NULL);
}

static void launch_unloaded(void *arg)
{
	CUmodule m;
	CUfunction f;

	(void)arg;
	enable_strict();
	rig_context();
	CU(cuModuleLoadData(&m, rig_ptx));
	CU(cuModuleGetFunction(&f, m, "empty"));
	CU(cuModuleUnload(m));
	(void)cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
}

static void launch_destroyed_exec(void *arg)
{
	CUgraphExec x;
	CUgraph g;

	(void)arg;
	enable_strict();
	rig_context();
	CU(cuGraphCreate(&g, 0));
	CU(cuGraphInstantiateWithFlags(&x, g, 0));
	CU(cuGraphExecDestroy(x));
	(void)cuGraphLaunch(x, NULL);
}

static void use_nothing(void *arg)
{
	(void)arg;
	enable_strict();
	rig_context();
	(void)cuStreamSynchronize((CUstream)(uintptr_t)0x1234560);
}

static void destroy_twice(void *arg)
{
	CUgraph g;

	(void)arg;
	enable_strict();
	rig_context();
	CU(cuGraphCreate(&g, 0));
	CU(cuGraphDestroy(g));
	(void)cuGraphDestroy(g);
}

static void *enter(void *ctx)
{
	(void)cuCtxSetCurrent(ctx);
	return NULL;
}

static void enter_in_turn(CUcontext ctx)
{
	pthread_t t;

	CHECK(pthread_create(&t, NULL, enter, ctx) == 0);
	pthread_join(t, NULL);
}

/* It is allowed once the other thread has exited or has made another context current. */
static void enter_in_two_threads(void *arg)
{
	CUdevResourceDesc desc;
	CUcontext ctx, popped;
	CUdevResource all;
	CUgreenCtx g;

	(void)arg;
	enable_strict();
	rig_context();
	CU(cuDeviceGetDevResource(0, &all, CU_DEV_RESOURCE_TYPE_SM));
	CU(cuDevResourceGenerateDesc(&desc, &all, 1));
	CU(cuGreenCtxCreate(&g, desc, 0, CU_GREEN_CTX_DEFAULT_STREAM));
	CU(cuCtxFromGreenCtx(&ctx, g));
	enter_in_turn(ctx);
	CU(cuCtxPushCurrent_v2(ctx));
	CU(cuCtxPopCurrent_v2(&popped));
	enter_in_turn(ctx);
	CU(cuCtxPushCurrent_v2(ctx));
	fputs("now\n", stderr);
	enter_in_turn(ctx);
}

static void a_green_context_is_current_to_one_thread(void **state)
{
	(void)state;
	ends_with(enter_in_two_threads, "now", "green context");
	ends_with(enter_in_two_threads, "cuCtxSetCurrent", "is current to another thread");
}

static void a_stale_handle_ends_the_process(void **state)
{
	(void)state;
	ends_with(query_destroyed_stream, "cuStreamQuery: stream", "was destroyed 1 calls ago");
	ends_with(record_destroyed_event, "cuEventRecord: event", "was destroyed 1 calls ago");
	ends_with(launch_unloaded, "cuLaunchKernel: function", "was destroyed");
	ends_with(launch_destroyed_exec, "cuGraphLaunch: exec", "was destroyed");
	ends_with(use_nothing, "cuStreamSynchronize: stream", "never existed");
	ends_with(destroy_twice, "cuGraphDestroy: graph", "was destroyed");
}

static uint32_t *flag; /* pinned; the kernel `until` runs until it is not 0 */

static CUcontext context;

static void *wait_for_stream(void *s)
{
	CU(cuCtxSetCurrent(context));
	store_release(&flag[1], (uint32_t)gettid());
	(void)cuStreamSynchronize(s);
	return NULL;
}

/* Destroys a stream while another thread waits for it in the driver. */
static void destroy_under_a_waiter(void *arg)
{
	CUdeviceptr p;
	CUstream s;
	pthread_t t;
	void *host, *params[] = { &p };

	(void)arg;
	enable_strict();
	context = rig_context();
	CU(cuMemHostAlloc(&host, 4096, CU_MEMHOSTALLOC_DEVICEMAP));
	memset(host, 0, 4096);
	flag = host;
	CU(cuMemHostGetDevicePointer_v2(&p, host, 0));
	CU(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
	rig_launch(rig_function("until"), 1, 1, s, params);
	CHECK(pthread_create(&t, NULL, wait_for_stream, s) == 0);
	eventually(load_acquire(&flag[1]) && thread_is_blocked((pid_t)load_acquire(&flag[1])));
	CU(cuStreamDestroy_v2(s));
	store_release(&flag[0], 1u);
	pthread_join(t, NULL);
}

static void a_handle_taken_from_under_a_call_ends_the_process(void **state)
{
	(void)state;
	ends_with(destroy_under_a_waiter, "stream", "was destroyed");
}

static void *open_later(void *arg)
{
	(void)arg;
	eventually(thread_is_blocked(getpid())); /* the thread that fills the queue */
	store_release(&flag[0], 1u);
	return NULL;
}

/* The call that finds the queue full, behind a waiting kernel, returns after that has ended. */
static void fill_the_queue(void *arg)
{
	CUdeviceptr p;
	CUfunction f;
	CUstream s;
	pthread_t t;
	void *host, *params[] = { &p };

	(void)arg;
	enable_strict();
	setenv("GBPF_SOFT_QUEUE", "8", 1);
	rig_context();
	CU(cuMemHostAlloc(&host, 4096, CU_MEMHOSTALLOC_DEVICEMAP));
	memset(host, 0, 4096);
	flag = host;
	CU(cuMemHostGetDevicePointer_v2(&p, host, 0));
	CU(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
	f = rig_function("empty");
	rig_launch(rig_function("until"), 1, 1, s, params);
	for (int i = 0; i < 6; i++) {
		rig_launch(f, 1, 1, s, NULL);
	}
	CHECK(load_acquire(&flag[0]) == 0);
	CHECK(pthread_create(&t, NULL, open_later, NULL) == 0);
	for (int i = 0; i < 8; i++) {
		rig_launch(f, 1, 1, s, NULL);
	}
	CHECK(load_acquire(&flag[0]) == 1);
	pthread_join(t, NULL);
	CU(cuStreamSynchronize(s));
}

static void a_full_queue_blocks_its_caller(void **state)
{
	(void)state;
	assert_int_equal(rig_run(fill_the_queue, NULL), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_stale_handle_ends_the_process),
		cmocka_unit_test(a_green_context_is_current_to_one_thread),
		cmocka_unit_test(a_handle_taken_from_under_a_call_ends_the_process),
		cmocka_unit_test(a_full_queue_blocks_its_caller),
	};

	return cmocka_run_group_tests_name("soft strict", tests, rig_begin_small, rig_end);
}
