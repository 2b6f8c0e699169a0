/* bench-copy-client: what its two files share. One process, one page, one context. */
#ifndef GBPF_BENCH_COPY_COPY_CLIENT_H
#define GBPF_BENCH_COPY_COPY_CLIENT_H

#include "base/compiler.h"
#include "bench/copy/copy_page.h"
#include "cuabi/api.h"

#define COPY_CALLS(X)                                                                              \
	X(cuInit)                                                                                  \
	X(cuDeviceGet)                                                                             \
	X(cuDeviceGetName)                                                                         \
	X(cuDevicePrimaryCtxRetain)                                                                \
	X(cuCtxSetCurrent)                                                                         \
	X(cuCtxSynchronize)                                                                        \
	X(cuMemAlloc_v2)                                                                           \
	X(cuMemFree_v2)                                                                            \
	X(cuStreamCreate)                                                                          \
	X(cuStreamSynchronize)                                                                     \
	X(cuMemcpyHtoDAsync_v2)                                                                    \
	X(cuMemcpyDtoHAsync_v2)                                                                    \
	X(cuMemcpyHtoD_v2)                                                                         \
	X(cuMemcpyDtoH_v2)                                                                         \
	X(cuMemHostAlloc)                                                                          \
	X(cuMemFreeHost)                                                                           \
	X(cuMemsetD8_v2)                                                                           \
	X(cuModuleLoadData)                                                                        \
	X(cuModuleUnload)                                                                          \
	X(cuModuleGetFunction)                                                                     \
	X(cuLaunchKernel)                                                                          \
	X(cuGetErrorName)
struct bench_copy_calls {
#define COPY_CALL(name) __typeof__(name) *name;
	COPY_CALLS(COPY_CALL)
#undef COPY_CALL
};

extern struct bench_copy_calls bench_copy_cuda[COPY_BYS];
extern CUstream bench_copy_stream[2]; /* up, down */

/* Reports the failure in the page and ends the process. */
void NORETURN bench_copy_fail(const char *fmt, ...) PRINTF_LIKE(1, 2);
void bench_copy_must(CUresult r, const char *call);
#define CU(by, call) bench_copy_must(bench_copy_cuda[by].call, #call)
/* Returns zeroed memory that was not touched. */
unsigned char *bench_copy_map(uint64_t bytes);

/* image_client.c: COPY_CALIBRATE and COPY_IMAGES. */
void bench_copy_calibrate(struct bench_copy_page *page);
void bench_copy_images(struct bench_copy_page *page);

#endif
