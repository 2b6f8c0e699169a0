/* Functions that the programs share: a context and a module from a file, buffers, launches, and the
 * line of results. They are ordinary programs of the driver API that do not depend on the GPU.
 * Usage of each: PROGRAM IMAGE..., where an image is PTX or a fat binary of its kernels. */
#ifndef GBPF_TESTS_PROGRAMS_PROGRAM_H
#define GBPF_TESTS_PROGRAMS_PROGRAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cuabi/api.h"

/* The names that cuda.h defines. */
#define cuMemAlloc cuMemAlloc_v2
#define cuMemFree cuMemFree_v2
#define cuMemcpyHtoD cuMemcpyHtoD_v2
#define cuMemcpyDtoH cuMemcpyDtoH_v2
#define cuMemcpyDtoD cuMemcpyDtoD_v2
#define cuMemcpyHtoDAsync cuMemcpyHtoDAsync_v2
#define cuMemcpyDtoHAsync cuMemcpyDtoHAsync_v2
#define cuMemcpyDtoDAsync cuMemcpyDtoDAsync_v2
#define cuMemsetD32 cuMemsetD32_v2
#define cuMemsetD8 cuMemsetD8_v2
#define cuMemAllocHost cuMemAllocHost_v2
#define cuModuleGetGlobal cuModuleGetGlobal_v2
#define cuCtxCreate cuCtxCreate_v2
#define cuCtxDestroy cuCtxDestroy_v2
#define cuEventDestroy cuEventDestroy_v2
#define cuStreamDestroy cuStreamDestroy_v2
#define cuLinkCreate cuLinkCreate_v2
#define cuLinkAddData cuLinkAddData_v2
#define cuGraphAddKernelNode cuGraphAddKernelNode_v2
#define cuGraphInstantiate cuGraphInstantiateWithFlags
#define cuStreamBeginCapture cuStreamBeginCapture_v2

struct program {
	const char *name;
	int argc;
	char **argv;
	CUdevice device;
	CUcontext context;
	CUmodule module;
	bool wrong;
	char line[4096];
};

/* Creates a context on the first GPU and loads the module of the first argument. If PROGRAM_SETTLE
 * is set, returns when the process is old enough for launches at block level. */
void program_open(struct program *p, const char *name, int argc, char **argv);
/* Prints the line of results. Returns the exit code. */
int program_close(struct program *p);

CUfunction program_kernel(struct program *p, const char *name);
CUdeviceptr program_put(const void *data, size_t bytes);
CUdeviceptr program_zeros(size_t bytes);
void program_get(void *to, CUdeviceptr from, size_t bytes);
char *program_read(const char *path, size_t *ret_bytes); /* with a terminating zero; caller frees */
void *program_room(size_t bytes); /* zeroed; exits the program if out of memory */

/* Prints `what` and fails the program unless `right`. */
void program_check(struct program *p, bool right, const char *what);
/* exact: bytes that must be equal on every GPU; about: a value with a relative tolerance. */
void program_exact(struct program *p, const char *what, const void *data, size_t bytes);
void program_about(struct program *p, const char *what, double value, double within);

uint64_t program_ns(void); /* monotonic */
/* Sets the word until the process is old enough for launches at block level: it makes none in its
 * first moments. */
void program_settle(CUdeviceptr word);
uint32_t program_random(uint64_t *state);
float program_uniform(uint64_t *state, float from, float to);

void program_cu(CUresult r, const char *call, int line);
#define CU(call) program_cu(call, #call, __LINE__)
/* As CU(), but reports an error by the program's CHECK(). */
#define OK(call)                                                                                   \
	do {                                                                                       \
		CUresult r_ = (call);                                                              \
                                                                                                   \
		CHECK(r_ == CUDA_SUCCESS, "%s: error %d", #call, (int)r_);                         \
	} while (0)
#define LAUNCH3(f, gx, gy, gz, bx, by, bz, shared, stream, ...)                                    \
	CU(cuLaunchKernel(f, gx, gy, gz, bx, by, bz, shared, stream, (void *[]){ __VA_ARGS__ },    \
			  NULL))
#define LAUNCH(f, grid, block, shared, ...)                                                        \
	LAUNCH3(f, grid, 1, 1, block, 1, 1, shared, NULL, __VA_ARGS__)

#endif
