/* Clients of the soft GPU: children with the driver library open, which exit when a call fails. */
#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/compiler.h"
#include "bench/soft/bench_soft.h"

struct bench_soft_calls soft_cuda;

static void find(void *lib, const char *name, void *slot)
{
	void *p = dlsym(lib, name);

	if (!p) {
		fprintf(stderr, "gbpf: bench dev soft: the driver library lacks %s\n", name);
		_exit(1);
	}
	memcpy(slot, &p, sizeof(p));
}

void bench_soft_check(CUresult r, const char *call)
{
	const char *name = NULL;

	if (r == CUDA_SUCCESS) {
		return;
	}
	soft_cuda.cuGetErrorName(r, &name);
	fprintf(stderr, "gbpf: bench dev soft: %s: %s\n", call, name ? name : "unknown error");
	_exit(1);
}

void bench_soft_client_open(const struct bench_soft *b)
{
	const CUuuid uuid = CUABI_SOFT_UUID;
	void *lib = dlopen(b->testbed.libcuda, RTLD_NOW | RTLD_LOCAL);
	const void *table = NULL;

	if (!lib) {
		fprintf(stderr, "gbpf: bench dev soft: %s\n", dlerror());
		_exit(1);
	}
#define SOFT_CALL(name) find(lib, #name, &soft_cuda.name);
	SOFT_CALLS(SOFT_CALL)
#undef SOFT_CALL
	CU(cuInit(0));
	CU(cuGetExportTable(&table, &uuid));
	soft_cuda.soft = table;
	CU(cuCtxCreate_v2(&soft_cuda.ctx, 0, 0));
	CU(cuModuleLoadData(&soft_cuda.module, ptx_bench_soft));
}

CUfunction bench_soft_function(const char *name)
{
	CUfunction f = NULL;

	CU(cuModuleGetFunction(&f, soft_cuda.module, name));
	return f;
}

void bench_soft_launch(CUfunction f, unsigned grid, unsigned block, CUstream s, void **params)
{
	CU(cuLaunchKernel(f, grid, 1, 1, block, 1, 1, 0, s, params, NULL));
}

pid_t bench_soft_spawn(struct bench_soft *b, void (*fn)(struct bench_soft *b, void *arg), void *arg)
{
	pid_t pid;

	fflush(stdout);
	pid = fork();
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		signal(SIGTERM, SIG_DFL);
		fn(b, arg);
		_exit(0);
	}
	return pid;
}

bool bench_soft_wait(pid_t pid)
{
	int status = 1;

	if (pid < 0) {
		return false;
	}
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
	}
	return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

bool bench_soft_run(struct bench_soft *b, void (*fn)(struct bench_soft *b, void *arg), void *arg)
{
	return bench_soft_wait(bench_soft_spawn(b, fn, arg));
}

void *bench_soft_shared(size_t bytes)
{
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	return p == MAP_FAILED ? NULL : p;
}
