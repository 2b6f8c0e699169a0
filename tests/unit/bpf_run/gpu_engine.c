/* Launches of the test engine on a GPU of the driver API; see gpu_engine.h. */
#include "gpu_engine.h"

#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/compiler.h"

/* CUDA's numbers that are used here. */
#define JIT_ERROR_LOG 5
#define JIT_ERROR_LOG_BYTES 6
#define LIMIT_STACK_SIZE 0
#define PARAM_END ((void *)0)
#define PARAM_POINTER ((void *)1)
#define PARAM_SIZE ((void *)2)

/* For programs with functions, whose depth the driver cannot compute. */
#define STACK_BYTES ((size_t)8 << 10)

/* The driver calls used; results are CUresult. */
static struct {
	int (*init)(unsigned flags);
	int (*device)(int *ret, int n);
	int (*context)(void **ret, unsigned flags, int device);
	int (*limit)(int limit, size_t value);
	int (*load)(void **ret, const void *image, unsigned n, const int *options, void **values);
	int (*unload)(void *module);
	int (*function)(void **ret, void *module, const char *name);
	int (*alloc)(uint64_t *ret, size_t bytes);
	int (*to_device)(uint64_t to, const void *from, size_t bytes);
	int (*from_device)(void *to, uint64_t from, size_t bytes);
	int (*launch)(void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
		      unsigned bz, unsigned shared, void *stream, void **params, void **extra);
	int (*synchronize)(void);
} cuda;

static const struct {
	const char *name;
	void *at;
} symbols[] = {
	{ "cuInit", &cuda.init },
	{ "cuDeviceGet", &cuda.device },
	{ "cuCtxCreate_v2", &cuda.context },
	{ "cuCtxSetLimit", &cuda.limit },
	{ "cuModuleLoadDataEx", &cuda.load },
	{ "cuModuleUnload", &cuda.unload },
	{ "cuModuleGetFunction", &cuda.function },
	{ "cuMemAlloc_v2", &cuda.alloc },
	{ "cuMemcpyHtoD_v2", &cuda.to_device },
	{ "cuMemcpyDtoH_v2", &cuda.from_device },
	{ "cuLaunchKernel", &cuda.launch },
	{ "cuCtxSynchronize", &cuda.synchronize },
};

static uint64_t base;

static void start(int error, const char *call)
{
	if (error) {
		fprintf(stderr, "%s: error %d\n", call, error);
		exit(1);
	}
}

static void begin(const char *path)
{
	void *lib = dlopen(path, RTLD_NOW | RTLD_LOCAL), *context;
	int device;

	if (!lib) {
		fprintf(stderr, "GBPF_TEST_GPU: %s\n", dlerror());
		exit(1);
	}
	for (unsigned i = 0; i < ARRAY_SIZE(symbols); i++) {
		void *f = dlsym(lib, symbols[i].name);

		if (!f) {
			fprintf(stderr, "GBPF_TEST_GPU: %s has no %s\n", path, symbols[i].name);
			exit(1);
		}
		memcpy(symbols[i].at, &f, sizeof(f));
	}
	start(cuda.init(0), "cuInit");
	start(cuda.device(&device, 0), "cuDeviceGet");
	start(cuda.context(&context, 0, device), "cuCtxCreate");
	start(cuda.limit(LIMIT_STACK_SIZE, STACK_BYTES), "cuCtxSetLimit");
	start(cuda.alloc(&base, ENGINE_BYTES), "cuMemAlloc");
}

bool gpu_engine(void)
{
	const char *path = getenv("GBPF_TEST_GPU");

	if (path && !base) {
		begin(path);
	}
	return path;
}

uint64_t gpu_engine_base(void)
{
	return base;
}

void *gpu_engine_load(const char *text)
{
	static char log[8192];
	const int options[] = { JIT_ERROR_LOG, JIT_ERROR_LOG_BYTES };
	void *values[] = { log, (void *)(uintptr_t)(sizeof(log) - 1) };
	void *module;
	int error;

	log[0] = '\0';
	error = cuda.load(&module, text, ARRAY_SIZE(options), options, values);
	if (error) {
		fail_msg("cuModuleLoadDataEx: error %d: %s\n%s", error, log,
			 strlen(text) < 16384 ? text : "");
	}
	return module;
}

void gpu_engine_unload(void *module)
{
	assert_int_equal(cuda.unload(module), 0);
}

/* Calls copy for each range of pages of the window that the test has taken. */
static void for_ranges(struct engine *e, void (*copy)(struct engine *e, size_t at, size_t bytes))
{
	const size_t n = ENGINE_BYTES / EXEC_PAGE_BYTES;
	size_t i = 0, end;

	while (i < n) {
		for (end = i; end < n && e->pages[end]; end++) {
		}
		if (end > i) {
			copy(e, i * EXEC_PAGE_BYTES, (end - i) * EXEC_PAGE_BYTES);
		}
		i = end + 1;
	}
}

static void copy_to(struct engine *e, size_t at, size_t bytes)
{
	assert_int_equal(cuda.to_device(base + at, e->host + at, bytes), 0);
}

static void copy_from(struct engine *e, size_t at, size_t bytes)
{
	assert_int_equal(cuda.from_device(e->host + at, base + at, bytes), 0);
}

void gpu_engine_launch(struct engine *e, void *module, const struct engine_launch *l,
		       size_t param_bytes)
{
	uint8_t params[64];
	void *extra[] = { PARAM_POINTER, params, PARAM_SIZE, &param_bytes, PARAM_END };
	void *f;

	assert_true(param_bytes <= sizeof(params));
	memcpy(params, l->params, param_bytes);
	assert_int_equal(cuda.function(&f, module, l->kernel), 0);
	for_ranges(e, copy_to);
	assert_int_equal(cuda.launch(f, l->grid[0], l->grid[1], l->grid[2], l->block[0],
				     l->block[1], l->block[2], l->shared, NULL, NULL, extra),
			 0);
	assert_int_equal(cuda.synchronize(), 0);
	for_ranges(e, copy_from);
}
