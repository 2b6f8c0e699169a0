/* The runtime library from a program without nvcc: it registers a fat binary by hand, as nvcc's
 * code does before main, and calls the API from C. Unlike the .cu programs it can be built with a
 * sanitizer, so this is the library's test under one. */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cudart/rt_types.h"

#include "prototypes.h"

void **__cudaRegisterFatBinary(void *wrapper);
void __cudaRegisterFatBinaryEnd(void **handle);
void __cudaUnregisterFatBinary(void **handle);
void __cudaRegisterFunction(void **handle, const char *host, char *device, const char *name,
			    int thread_limit, void *tid, void *bid, void *block, void *grid,
			    int *warp_size);
void __cudaRegisterVar(void **handle, char *host, char *device, const char *name, int ext,
		       size_t bytes, int constant, int global);
unsigned int __cudaPushCallConfiguration(struct dim3 grid, struct dim3 block, size_t shared,
					 void *stream);
cudaError_t __cudaPopCallConfiguration(struct dim3 *grid, struct dim3 *block, size_t *shared,
				       void *stream);
cudaError_t cudaGetLastError(void);

#define N 1000
#define THREADS 4

static const char ptx[] =
	".version 7.0\n.target sm_80\n.address_size 64\n"
	".visible .global .align 4 .u32 factor = 1;\n"
	".visible .entry scale(.param .u64 p, .param .u32 n)\n{\n"
	"	.reg .pred %p<2>;\n	.reg .b32 %r<7>;\n	.reg .b64 %d<4>;\n"
	"	ld.param.u64 %d1, [p];\n	ld.param.u32 %r1, [n];\n"
	"	mov.u32 %r2, %ctaid.x;\n	mov.u32 %r3, %ntid.x;\n	mov.u32 %r4, %tid.x;\n"
	"	mad.lo.u32 %r2, %r2, %r3, %r4;\n	setp.ge.u32 %p1, %r2, %r1;\n	@%p1 ret;\n"
	"	mul.wide.u32 %d2, %r2, 4;\n	add.u64 %d1, %d1, %d2;\n"
	"	ld.global.u32 %r5, [%d1];\n	ld.global.u32 %r6, [factor];\n"
	"	mul.lo.u32 %r5, %r5, %r6;\n	st.global.u32 [%d1], %r5;\n	ret;\n}\n";

/* A fat binary with one entry: PTX, not compressed. */
static struct {
	uint32_t magic;
	uint16_t version, header_bytes;
	uint64_t body_bytes;
	uint16_t kind, entry_version;
	uint32_t entry_header_bytes;
	uint64_t text_bytes;
	uint32_t compressed_bytes, options_offset;
	uint16_t minor, major;
	uint32_t arch, name_offset, name_bytes;
	uint64_t flags, reserved, uncompressed_bytes;
	char text[(sizeof(ptx) + 7) / 8 * 8];
} fat = { .magic = 0xba55ed50,
	  .version = 1,
	  .header_bytes = 16,
	  .body_bytes = sizeof(fat) - 16,
	  .kind = 1,
	  .entry_version = 0x101,
	  .entry_header_bytes = 64,
	  .text_bytes = sizeof(fat.text),
	  .major = 7,
	  .arch = 80 };
_Static_assert(offsetof(__typeof__(fat), text) == 16 + 64, "as nvcc's");

static struct {
	uint32_t magic, version;
	const void *image;
	void *unused;
} wrapper = { 0x466243b1, 1, &fat, NULL };

static char scale_stub, factor; /* their addresses name kernel and variable */

static void check(int ok, const char *what, int line)
{
	if (!ok) {
		fprintf(stderr, "host.c:%d: %s (last error %d)\n", line, what,
			(int)cudaGetLastError());
		exit(1);
	}
}
#define CHECK(condition) check(condition, #condition, __LINE__)
#define OK(call) CHECK((call) == cudaSuccess)

/* As nvcc's code for scale<<<grid, block, 0, s>>>(p, n). */
static cudaError_t launch_scale(struct dim3 grid, struct dim3 block, cudaStream_t s, uint32_t *p,
				uint32_t n)
{
	void *args[] = { &p, &n };
	size_t shared;

	if (__cudaPushCallConfiguration(grid, block, 0, s)) {
		return cudaGetLastError();
	}
	OK(__cudaPopCallConfiguration(&grid, &block, &shared, (void *)&s));
	return cudaLaunchKernel(&scale_stub, grid, block, args, shared, s);
}

static const struct dim3 grid = { 8, 1, 1 }, block = { 128, 1, 1 };

static void *work(void *arg)
{
	uint32_t in[N], out[N], *device;
	cudaEvent_t begin, end;
	cudaStream_t s;
	float ms;

	(void)arg;
	for (uint32_t i = 0; i < N; i++) {
		in[i] = i;
	}
	OK(cudaStreamCreate(&s));
	OK(cudaEventCreate(&begin));
	OK(cudaEventCreate(&end));
	OK(cudaMallocAsync((void **)&device, sizeof(in), s));
	OK(cudaEventRecord(begin, s));
	OK(cudaMemcpyAsync(device, in, sizeof(in), cudaMemcpyHostToDevice, s));
	OK(launch_scale(grid, block, s, device, N));
	OK(cudaMemcpyAsync(out, device, sizeof(out), cudaMemcpyDeviceToHost, s));
	OK(cudaEventRecord(end, s));
	OK(cudaStreamSynchronize(s));
	OK(cudaEventElapsedTime(&ms, begin, end));
	for (uint32_t i = 0; i < N; i++) {
		CHECK(out[i] == 3 * i);
	}
	OK(cudaFreeAsync(device, s));
	OK(cudaEventDestroy(begin));
	OK(cudaEventDestroy(end));
	OK(cudaStreamDestroy(s));
	return NULL;
}

static void threads_at_once(void)
{
	pthread_t t[THREADS];

	for (int i = 0; i < THREADS; i++) {
		CHECK(pthread_create(&t[i], NULL, work, NULL) == 0);
	}
	for (int i = 0; i < THREADS; i++) {
		pthread_join(t[i], NULL);
	}
}

static void wrong_calls(void)
{
	static struct cudaDeviceProp prop;
	struct cudaFuncAttributes attributes;
	char host[64] = "";
	void *p;

	CHECK(launch_scale((struct dim3){ 0, 1, 1 }, block, NULL, NULL, 0) != cudaSuccess);
	CHECK(cudaFuncGetAttributes(&attributes, host) != cudaSuccess);
	CHECK(cudaMemcpyToSymbol(&factor, host, 8, 0, cudaMemcpyHostToDevice) ==
	      cudaErrorInvalidValue);
	CHECK(cudaGetSymbolAddress(&p, host) == cudaErrorInvalidSymbol);
	CHECK(cudaGetDeviceProperties(&prop, 5) == cudaErrorInvalidDevice);
	CHECK(cudaMalloc(NULL, 4) == cudaErrorInvalidValue);
	CHECK(cudaGetLastError() == cudaErrorInvalidValue);
	OK(cudaGetDeviceProperties(&prop, 0));
	OK(cudaFuncGetAttributes(&attributes, &scale_stub));
	CHECK(prop.name[0] && attributes.maxThreadsPerBlock == 1024);
}

static void arrays_and_graphs(void)
{
	struct cudaChannelFormatDesc desc = { .x = 32, .f = cudaChannelFormatKindUnsigned };
	struct cudaMemcpy3DParms p = { .extent = { 8, 4, 1 }, .kind = cudaMemcpyHostToDevice }, got;
	uint32_t in[4][8], out[4][8] = { { 0 } };
	cudaGraphNode_t node;
	cudaArray_t array;
	cudaGraph_t graph;

	for (uint32_t i = 0; i < 32; i++) {
		in[i / 8][i % 8] = i;
	}
	OK(cudaMallocArray(&array, &desc, 8, 4, 0));
	p.srcPtr = (struct cudaPitchedPtr){ in, 32, 32, 4 };
	p.dstArray = array;
	OK(cudaMemcpy3D(&p));
	OK(cudaMemcpy2DFromArray(out, 32, array, 0, 0, 32, 4, cudaMemcpyDeviceToHost));
	CHECK(memcmp(in, out, sizeof(in)) == 0);
	OK(cudaGraphCreate(&graph, 0));
	OK(cudaGraphAddMemcpyNode(&node, graph, NULL, 0, &p));
	OK(cudaGraphMemcpyNodeGetParams(node, &got));
	CHECK(got.dstArray == array && got.extent.width == 8);
	OK(cudaGraphDestroy(graph));
	OK(cudaFreeArray(array));
}

int main(void)
{
	const uint32_t three = 3;
	void **handle;

	memcpy(fat.text, ptx, sizeof(ptx));
	handle = __cudaRegisterFatBinary(&wrapper);
	CHECK(handle != NULL);
	__cudaRegisterFunction(handle, &scale_stub, &scale_stub, "scale", -1, NULL, NULL, NULL,
			       NULL, NULL);
	__cudaRegisterVar(handle, &factor, &factor, "factor", 0, 4, 0, 0);
	__cudaRegisterFatBinaryEnd(handle);
	OK(cudaMemcpyToSymbol(&factor, &three, 4, 0, cudaMemcpyHostToDevice));
	threads_at_once();
	wrong_calls();
	arrays_and_graphs();
	OK(cudaDeviceSynchronize());
	OK(cudaDeviceReset());
	__cudaUnregisterFatBinary(handle);
	return 0;
}
