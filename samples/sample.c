/* Common part of the samples; see sample.h. */
#include "sample.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static CUdevice device;

void sample_check(CUresult result, const char *call)
{
	const char *name = "unknown error";

	if (result == CUDA_SUCCESS) {
		return;
	}
	cuGetErrorName(result, &name);
	fprintf(stderr, "%s: %s (%d)\n", call, name ? name : "unknown error", result);
	exit(3);
}

void sample_begin(void)
{
	CUcontext ctx;

	CHECK(cuInit(0));
	CHECK(cuDeviceGet(&device, 0));
	CHECK(cuDevicePrimaryCtxRetain(&ctx, device));
	CHECK(cuCtxSetCurrent(ctx));
}

void sample_end(void)
{
	CHECK(cuDevicePrimaryCtxRelease(device));
}

CUmodule sample_module(const char *ptx)
{
	static char log[4096];
	int options[] = { CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES };
	void *values[] = { log, (void *)sizeof(log) };
	CUmodule module;
	CUresult result = cuModuleLoadDataEx(&module, ptx, 2, options, values);

	if (result != CUDA_SUCCESS) {
		fprintf(stderr, "%s\n", log);
	}
	CHECK(result);
	return module;
}

CUfunction sample_function(CUmodule module, const char *name)
{
	CUfunction f;

	CHECK(cuModuleGetFunction(&f, module, name));
	return f;
}

CUdeviceptr sample_upload(const void *data, size_t bytes)
{
	CUdeviceptr p;

	CHECK(cuMemAlloc(&p, bytes));
	CHECK(cuMemcpyHtoD(p, data, bytes));
	return p;
}

CUdeviceptr sample_zeros(size_t bytes)
{
	CUdeviceptr p;

	CHECK(cuMemAlloc(&p, bytes));
	CHECK(cuMemsetD32(p, 0, (bytes + 3) / 4));
	return p;
}

void sample_download(void *data, CUdeviceptr from, size_t bytes)
{
	CHECK(cuMemcpyDtoH(data, from, bytes));
	CHECK(cuMemFree(from));
}

void *sample_alloc(size_t count, size_t bytes)
{
	void *p = calloc(count, bytes);

	if (!p) {
		fprintf(stderr, "out of memory\n");
		exit(3);
	}
	return p;
}

void sample_launch(CUfunction f, unsigned blocks, unsigned threads, void **params)
{
	CHECK(cuLaunchKernel(f, blocks, 1, 1, threads, 1, 1, 0, NULL, params, NULL));
}

uint64_t sample_random(uint64_t *state)
{
	uint64_t x = *state;

	x ^= x >> 12;
	x ^= x << 25;
	x ^= x >> 27;
	*state = x;
	return x * 0x2545f4914f6cdd1du;
}

float sample_random_float(uint64_t *state)
{
	return (float)(sample_random(state) >> 40) / 16777216.0f;
}

double sample_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

bool sample_close(double got, double want, double relative)
{
	return fabs(got - want) <= relative * fmax(1.0, fabs(want));
}
