/* Queries about the soft GPU: attributes, limits, state of contexts, queries without being a
 * client; and servers that programs start with the user's options. */
#pragma GCC diagnostic ignored "-Wpedantic" /* functions as dlsym returns them */

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/fd.h"
#include "cuabi/private.h"
#include "rig.h"

static int attribute(CUdevice_attribute what)
{
	int value;

	CU(cuDeviceGetAttribute(&value, what, 0));
	return value;
}

static void attributes_program(void *arg)
{
	int value, least, greatest, major, minor;
	CUdevprop p;
	char luid[8];
	unsigned mask;
	size_t bytes;

	(void)arg;
	rig_context();
	for (int i = 1; i <= CU_DEVICE_ATTRIBUTE_ONLY_PARTIAL_HOST_NATIVE_ATOMIC_SUPPORTED; i++) {
		CU(cuDeviceGetAttribute(&value, (CUdevice_attribute)i, 0));
	}
	CU_IS(CUDA_ERROR_INVALID_VALUE, cuDeviceGetAttribute(&value, (CUdevice_attribute)0, 0));
	CU_IS(CUDA_ERROR_INVALID_VALUE, cuDeviceGetAttribute(&value, (CUdevice_attribute)999, 0));
	CU_IS(CUDA_ERROR_INVALID_DEVICE, cuDeviceGetAttribute(&value, (CUdevice_attribute)1, 1));
	CHECK(attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) == 8);
	CHECK(attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR) == 6);
	CU(cuDeviceComputeCapability(&major, &minor, 0));
	CHECK(major == 8 && minor == 6);
	CHECK(attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT) == 3);
	CHECK(attribute(CU_DEVICE_ATTRIBUTE_CLOCK_RATE) == 1234000);
	CHECK(attribute(CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT) == 2);
	CHECK(attribute(CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH) == 0);
	CHECK(attribute(CU_DEVICE_ATTRIBUTE_HOST_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED) == 1);
	CHECK(attribute(CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED) == 1);
	CU(cuDeviceGetProperties(&p, 0));
	CHECK(p.clockRate == 1234000 && p.SIMDWidth == 32 && p.maxThreadsPerBlock == 1024);
	CU(cuDeviceTotalMem_v2(&bytes, 0));
	CHECK(bytes == 96u << 20);
	CU(cuDeviceGetLuid(luid, &mask, 0));
	CHECK(mask == 0);
	CU_IS(CUDA_ERROR_INVALID_DEVICE,
	      cuDeviceGetP2PAttribute(&value, CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED, 0, 0));
	CU(cuDeviceGetExecAffinitySupport(&value, CU_EXEC_AFFINITY_TYPE_SM_COUNT, 0));
	CHECK(value == 0);
	CU(cuCtxGetStreamPriorityRange(&least, &greatest));
	CHECK(least == 0 && greatest == SOFT_PRIORITY_GREATEST);
}

static void attributes_are_complete(void **state)
{
	(void)state;
	assert_int_equal(rig_run(attributes_program, NULL), 0);
}

static void limits_program(void *arg)
{
	CUfunc_cache cache;
	CUsharedconfig shared;
	CUcontext ctx, same;
	size_t value;

	(void)arg;
	ctx = rig_context();
	CU(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 4096));
	CU(cuCtxGetLimit(&value, CU_LIMIT_STACK_SIZE));
	CHECK(value == 4096);
	CU_IS(CUDA_ERROR_INVALID_VALUE, cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 1u << 30));
	CU_IS(CUDA_ERROR_UNSUPPORTED_LIMIT, cuCtxSetLimit(CU_LIMIT_PERSISTING_L2_CACHE_SIZE, 1));
	CU_IS(CUDA_ERROR_UNSUPPORTED_LIMIT, cuCtxGetLimit(&value, (CUlimit)77));
	CU(cuCtxGetLimit(&value, CU_LIMIT_MALLOC_HEAP_SIZE));
	CHECK(value == 8u << 20);
	CU(cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, 32u << 20));
	CU(cuCtxGetLimit(&value, CU_LIMIT_MALLOC_HEAP_SIZE));
	CHECK(value == 32u << 20);
	CU_IS(CUDA_ERROR_OUT_OF_MEMORY, cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, 1u << 30));
	CU(cuCtxSetCacheConfig(CU_FUNC_CACHE_PREFER_L1));
	CU(cuCtxGetCacheConfig(&cache));
	CHECK(cache == CU_FUNC_CACHE_PREFER_L1);
	CU_IS(CUDA_ERROR_INVALID_VALUE, cuCtxSetCacheConfig((CUfunc_cache)9));
	CU(cuCtxSetSharedMemConfig(CU_SHARED_MEM_CONFIG_EIGHT_BYTE_BANK_SIZE));
	CU(cuCtxGetSharedMemConfig(&shared));
	CHECK(shared == CU_SHARED_MEM_CONFIG_FOUR_BYTE_BANK_SIZE);
	/* A context exists until its last use is released. */
	CU(cuCtxAttach(&same, 0));
	CHECK(same == ctx);
	CU(cuCtxDetach(ctx));
	CU(cuCtxSynchronize());
	CU(cuCtxDetach(ctx));
	CU_IS(CUDA_ERROR_INVALID_CONTEXT, cuCtxSynchronize());
}

static void limits_and_uses_are_remembered(void **state)
{
	(void)state;
	assert_int_equal(rig_run(limits_program, NULL), 0);
}

static void clock_program(void *arg)
{
	static const char ptx[] = ".version 6.0\n.target sm_70\n.address_size 64\n"
				  ".visible .entry ticks(.param .u64 out)\n{\n"
				  ".reg .pred %p<2>;\n.reg .b64 %rd<9>;\n"
				  "ld.param.u64 %rd1, [out];\n"
				  "mov.u64 %rd2, %globaltimer;\nmov.u64 %rd3, %clock64;\n"
				  "AGAIN:\nmov.u64 %rd4, %globaltimer;\nsub.s64 %rd5, %rd4, %rd2;\n"
				  "setp.lt.u64 %p1, %rd5, 2000000;\n@%p1 bra AGAIN;\n"
				  "mov.u64 %rd6, %clock64;\nsub.s64 %rd7, %rd6, %rd3;\n"
				  "st.global.u64 [%rd1], %rd7;\nst.global.u64 [%rd1+8], %rd5;\n"
				  "ret;\n}\n";
	CUdeviceptr out;
	uint64_t seen[2];
	CUmodule m;
	CUfunction f;
	double mhz;

	(void)arg;
	rig_context();
	CU(cuMemAlloc_v2(&out, 16));
	CU(cuModuleLoadData(&m, ptx));
	CU(cuModuleGetFunction(&f, m, "ticks"));
	rig_launch(f, 1, 1, NULL, (void *[]){ &out });
	CU(cuMemcpyDtoH_v2(seen, out, 16));
	mhz = (double)seen[0] * 1e3 / (double)seen[1];
	fprintf(stderr, "%%clock64 runs at %.0f MHz\n", mhz);
	CHECK(mhz > 1234 * 0.9);
}

static void the_clock_runs_at_the_given_rate(void **state)
{
	(void)state;
	assert_int_equal(rig_run(clock_program, NULL), 0);
}

/* ---- queries without being a client ---- */

static struct soft_reply *question(struct soft_request q)
{
	static struct soft_reply r;
	int fds[FD_PASS_MAX], sock;
	unsigned n;

	sock = rig_connect();
	memset(&r, 0, sizeof(r));
	assert_int_equal(msg_send(sock, &q, SOFT_REQUEST_MIN + 1, NULL, 0), 0);
	assert_true(msg_recv(sock, &r, sizeof(r), fds, &n) >= (ssize_t)SOFT_REPLY_MIN);
	close(sock);
	return &r;
}

static int steps[2][2]; /* pipes to and from the child */

static void step(int i)
{
	char c = 'x';

	CHECK(write(steps[1 - i][1], &c, 1) == 1);
	CHECK(read(steps[i][0], &c, 1) == 1);
}

static void listed_program(void *arg)
{
	CUexternalMemory m;
	CUdeviceptr p;

	(void)arg;
	rig_context();
	CU(cuMemAlloc_v2(&p, 3u << 20));
	rig_launch(rig_function("empty"), 1, 1, NULL, NULL);
	CU(cuCtxSynchronize());
	for (int i = 0; i < 3; i++) {
		CU_IS(CUDA_ERROR_NOT_SUPPORTED, cuImportExternalMemory(&m, NULL));
	}
	step(0);
}

static uint64_t calls_in_vain(const char *name, uint64_t pid)
{
	uint32_t next = 0;

	do {
		struct soft_reply *r = question((struct soft_request){
			.op = SOFT_REQ_UNSUPPORTED, .index = next, .value = pid });

		assert_int_equal(r->result, 0);
		for (uint32_t i = 0; i < r->unsupported.n; i++) {
			if (strcmp(r->unsupported.entry[i].name, name) == 0) {
				return r->unsupported.entry[i].calls;
			}
		}
		next = r->value32;
	} while (next);
	return 0;
}

static void users_of_gpus_and_unsupported_calls_are_listed(void **state)
{
	struct soft_gpu_info *g;
	char c = 'x';
	pid_t pid;

	(void)state;
	assert_int_equal(pipe(steps[0]) | pipe(steps[1]), 0);
	pid = rig_spawn(listed_program, NULL);
	assert_int_equal(read(steps[1][0], &c, 1), 1);
	g = &question((struct soft_request){ .op = SOFT_REQ_GPUS })->gpu;
	assert_int_equal(g->gpus, 1);
	assert_int_equal(g->sms, 3);
	assert_int_equal(g->pid, rig_server);
	assert_int_equal(g->groups, 1);
	assert_int_equal(g->n, 1);
	assert_int_equal(g->group[0].pid, pid);
	assert_int_equal(g->group[0].enabled, 1);
	assert_true(g->group[0].memory_bytes >= 3u << 20);
	assert_true(g->memory_used >= g->group[0].memory_bytes);
	assert_int_equal(g->group[0].launches_done, 1);
	assert_true(g->busy_ns > 0 && g->busy_ns < g->now_ns);
	assert_int_equal(question((struct soft_request){ .op = SOFT_REQ_GPUS, .index = 1 })->result,
			 CUDA_ERROR_INVALID_DEVICE);
	assert_int_equal(calls_in_vain("cuImportExternalMemory", 0), 3);
	assert_int_equal(calls_in_vain("cuImportExternalMemory", (uint64_t)pid), 3);
	assert_int_equal(calls_in_vain("cuImportExternalMemory", 1), 0);
	assert_int_equal(write(steps[0][1], &c, 1), 1);
	assert_int_equal(rig_wait(pid), 0);
	for (int i = 0; i < 4; i++) {
		close(steps[i / 2][i % 2]);
	}
	rig_stats_idle();
	assert_int_equal(calls_in_vain("cuImportExternalMemory", 0),
			 3); /* also after the client has exited */
}

/* ---- servers that programs start ---- */

static void seven_program(void *arg)
{
	const struct cuabi_soft_table *t;
	int pid;

	setenv("GBPF_SOFTGPU_OPTIONS", " --sms  7 --mem 64M", 1);
	rig_context();
	CHECK(attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT) == 7);
	t = rig_table();
	CU(t->server_pid(&pid));
	CHECK(write(*(int *)arg, &pid, sizeof(pid)) == sizeof(pid));
}

static void wrong_program(void *arg)
{
	setenv("GBPF_SOFTGPU_OPTIONS", "--sms many", 1);
	dup2(*(int *)arg, 2);
	CU_IS(CUDA_ERROR_NO_DEVICE, cuInit(0));
}

static void programs_start_servers_with_the_users_options(void **state)
{
	const char *const args[] = { "--mem", "64M", NULL };
	char text[1024] = { 0 }, path[96];
	int p[2], pid;

	(void)state;
	rig_stop(SIGTERM);
	prctl(PR_SET_CHILD_SUBREAPER, 1); /* the server outlives the program that starts it */
	assert_int_equal(pipe(p), 0);
	assert_int_equal(rig_run(wrong_program, &p[1]), 0);
	assert_true(read(p[0], text, sizeof(text) - 1) > 0);
	assert_non_null(strstr(text, "invalid value \"many\" for --sms"));
	snprintf(path, sizeof(path), "%s/softgpu.log", rig_dir);
	assert_non_null(strstr(text, path));
	assert_int_equal(access(path, R_OK), 0);
	assert_int_equal(rig_run(seven_program, &p[1]), 0);
	assert_int_equal(read(p[0], &pid, sizeof(pid)), sizeof(pid));
	kill(pid, SIGTERM);
	assert_int_equal(rig_wait(pid), 0);
	close(p[0]);
	close(p[1]);
	rig_start(args);
}

static void lookup_program(void *arg)
{
	CUdriverProcAddressQueryResult status;
	void *p = NULL;

	(void)arg;
	CU(cuInit(0));
	CU(cuGetProcAddress_v2("cuMemAlloc", &p, 12000, 0, &status));
	CHECK(p == (void *)cuMemAlloc_v2 && status == CU_GET_PROC_ADDRESS_SUCCESS);
	CU(cuGetProcAddress("cuMemAlloc", &p, 2000, 0));
	CHECK(p == (void *)cuMemAlloc);
	CU(cuGetProcAddress("cuLaunchKernel", &p, 12000,
			    CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM));
	CHECK(p == (void *)cuLaunchKernel_ptsz);
	CU(cuGetProcAddress("cuMemcpyHtoD", &p, 12000,
			    CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM));
	CHECK(p == (void *)cuMemcpyHtoD_v2_ptds);
	CU(cuGetProcAddress("cuGetProcAddress", &p, 12000, 0));
	CHECK(p == (void *)cuGetProcAddress_v2);
	CU(cuGetProcAddress_v2("cuLaunchKernelEx", &p, 11000, 0, &status));
	CHECK(!p && status == CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
	CU_IS(CUDA_ERROR_NOT_FOUND, cuGetProcAddress("cuNoSuchThing", &p, 12000, 0));
	CU_IS(CUDA_ERROR_NOT_SUPPORTED, cuDestroyExternalMemory(NULL));
}

static void functions_are_found_by_name_and_version(void **state)
{
	(void)state;
	assert_int_equal(rig_run(lookup_program, NULL), 0);
}

static void visible_program(void *arg)
{
	char id[32];
	int n;

	setenv("CUDA_VISIBLE_DEVICES", arg, 1);
	CU(cuInit(0));
	CU(cuDeviceGetCount(&n));
	CHECK(n == 1);
	CU(cuDeviceGetPCIBusId(id, sizeof(id), 0));
	CHECK(strcmp(id, "0000:02:00.0") == 0);
	CU(cuDeviceGetByPCIBusId(&n, "02:00.0"));
	CHECK(n == 0);
	CU_IS(CUDA_ERROR_INVALID_DEVICE, cuDeviceGetByPCIBusId(&n, "0000:01:00.0"));
}

static void invisible_program(void *arg)
{
	setenv("CUDA_VISIBLE_DEVICES", arg, 1);
	CU_IS(CUDA_ERROR_NO_DEVICE, cuInit(0));
}

static const char *const one_gpu[] = { "--sms",		 "3", "--mem", "96M", "--clock-mhz", "1234",
				       "--copy-engines", "2", NULL };

static void programs_see_the_gpus_that_the_environment_names(void **state)
{
	(void)state;
	rig_restart((const char *const[]){ "--gpus", "2", "--mem", "64M", NULL });
	assert_int_equal(rig_run(visible_program, (void *)(uintptr_t) "1"), 0);
	assert_int_equal(rig_run(visible_program, (void *)(uintptr_t) "1,9,0"), 0);
	assert_int_equal(rig_run(invisible_program, (void *)(uintptr_t) "7"), 0);
	assert_int_equal(rig_run(invisible_program, (void *)(uintptr_t) "0,0"), 0);
	rig_restart(one_gpu);
}

static int start(void **state)
{
	(void)state;
	rig_open();
	rig_start(one_gpu);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(functions_are_found_by_name_and_version),
		cmocka_unit_test(attributes_are_complete),
		cmocka_unit_test(limits_and_uses_are_remembered),
		cmocka_unit_test(the_clock_runs_at_the_given_rate),
		cmocka_unit_test(users_of_gpus_and_unsupported_calls_are_listed),
		cmocka_unit_test(programs_see_the_gpus_that_the_environment_names),
		cmocka_unit_test(programs_start_servers_with_the_users_options),
	};

	return cmocka_run_group_tests_name("soft device api", tests, start, rig_end);
}
