/* ends IMAGE HOW: `refused`: calls that end modules and contexts, and that the driver refuses or
 * that leave them in place, and what the module's kernels do afterwards; `reused`: handles that the
 * driver uses again. The output must be the same with and without gBPF, which keeps records of
 * patched machine code until the code is gone, and no longer. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "../programs/program.h"

#define BLOCKS 96u
#define THREADS 64u
#define WORDS (BLOCKS * THREADS)
#define SAY(call) printf("%s: %d\n", #call, (int)(call))

static struct program p;
static CUdeviceptr to;
static uint32_t a = 3;
static uint16_t b = 5;
static void **params; /* at the end of a page, so that reading a fourth one faults */
static CUstream stream;

static void make_params(void)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	char *two =
		mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (two == MAP_FAILED || mprotect(two + page, page, PROT_NONE) != 0) {
		exit(2);
	}
	params = (void **)(void *)(two + page) - 3;
	params[0] = &to;
	params[1] = &a;
	params[2] = &b;
}

/* Launches and prints a checksum of the words, which it clears. */
static void use(CUfunction f, const char *after)
{
	static uint32_t words[WORDS];
	uint64_t sum = 0;

	SAY(cuLaunchKernel(f, BLOCKS, 1, 1, THREADS, 1, 1, 0, stream, params, NULL));
	SAY(cuLaunchCooperativeKernel(f, 8, 1, 1, THREADS, 1, 1, 0, stream, params));
	SAY(cuStreamSynchronize(stream));
	program_get(words, to, sizeof(words));
	for (uint32_t i = 0; i < WORDS; i++) {
		sum = sum * 31 + words[i];
	}
	printf("%s: %016llx\n", after, (unsigned long long)sum);
	SAY(cuMemsetD32(to, 0, WORDS));
	SAY(cuCtxSynchronize()); /* the stream is not ordered with the default stream */
}

/* A module cannot be unloaded while a thread captures. */
static void unload_in_capture(CUfunction f)
{
	CUgraph g = NULL;

	SAY(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	SAY(cuModuleUnload(p.module));
	SAY(cuStreamEndCapture(stream, &g));
	use(f, "unloaded in a capture");
}

/* Nor does a library's module end without its library. */
static void unload_of_library(void)
{
	CUfunction f = NULL;
	CUlibrary l = NULL;
	CUmodule m = NULL;

	SAY(cuLibraryLoadFromFile(&l, p.argv[1], NULL, NULL, 0, NULL, NULL, 0));
	SAY(cuLibraryGetModule(&m, l));
	SAY(cuModuleGetFunction(&f, m, "add"));
	use(f, "library's module");
	SAY(cuModuleUnload(m));
	use(f, "unloaded library's module");
	SAY(cuLibraryUnload(l));
}

/* The driver may give a handle that it has taken back to another kernel. */
static void reuse(void)
{
	CUfunction f = NULL;
	CUlibrary l = NULL;
	CUmodule m = NULL;

	for (int i = 0; i < 12; i++) {
		SAY(cuLibraryLoadFromFile(&l, p.argv[1], NULL, NULL, 0, NULL, NULL, 0));
		SAY(cuLibraryGetModule(&m, l));
		if (i % 2) {
			SAY(cuModuleGetFunction(&f, m, "count"));
			SAY(cuLaunchKernel(f, BLOCKS, 1, 1, THREADS, 1, 1, 0, stream, NULL, NULL));
			SAY(cuStreamSynchronize(stream));
		} else {
			SAY(cuModuleGetFunction(&f, m, "add"));
			use(f, "reused");
		}
		SAY(cuLibraryUnload(l));
	}
}

static void detach(CUfunction f)
{
	CUcontext ctx = NULL;

	SAY(cuCtxAttach(&ctx, 0));
	printf("%d\n", ctx == p.context);
	SAY(cuCtxDetach(ctx));
	use(f, "detached");
}

/* The primary context ends with its last release only, or when it is reset. */
static void primary(void)
{
	CUcontext ctx = NULL;
	CUmodule m = NULL;
	CUfunction f = NULL;
	CUdeviceptr before = to;
	CUstream outer = stream;

	SAY(cuDevicePrimaryCtxRetain(&ctx, p.device));
	SAY(cuDevicePrimaryCtxRetain(&ctx, p.device));
	SAY(cuCtxSetCurrent(ctx));
	SAY(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	SAY(cuModuleLoad(&m, p.argv[1]));
	SAY(cuModuleGetFunction(&f, m, "add"));
	to = program_zeros(WORDS * sizeof(uint32_t));
	SAY(cuCtxSynchronize()); /* as above */
	use(f, "primary");
	SAY(cuCtxDestroy(ctx));
	use(f, "primary destroyed");
	SAY(cuCtxDetach(ctx));
	use(f, "primary detached");
	SAY(cuDevicePrimaryCtxRelease_v2(p.device));
	use(f, "primary released once");
	SAY(cuDevicePrimaryCtxRelease_v2(p.device));
	SAY(cuCtxSetCurrent(p.context));
	to = before;
	stream = outer;
}

int main(int argc, char **argv)
{
	CUfunction f;

	program_open(&p, "ends", argc, argv);
	make_params();
	f = program_kernel(&p, "add");
	to = program_zeros(WORDS * sizeof(uint32_t));
	SAY(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	program_settle(to);
	use(f, "before");
	if (strcmp(argv[2], "reused") == 0) {
		reuse();
	} else {
		unload_in_capture(f);
		unload_of_library();
		detach(f);
		primary();
	}
	use(f, "after");
	return program_close(&p);
}
