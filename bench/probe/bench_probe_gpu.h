/* The GPU's part of `gbpf bench probe`: context, kernels and memory, and launches of vec_add whose
 * times are measured and whose results are checked. */
#ifndef GBPF_BENCH_PROBE_BENCH_PROBE_GPU_H
#define GBPF_BENCH_PROBE_BENCH_PROBE_GPU_H

#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"
#include "cuabi/api.h"

struct bench_probe;

#define BENCH_PROBE_THREADS 256u /* of a block of vec_add */
#define BENCH_PROBE_WARPS (BENCH_PROBE_THREADS / 32)

#define BENCH_PROBE_CALLS(X)                                                                       \
	X(cuInit)                                                                                  \
	X(cuDeviceGet)                                                                             \
	X(cuDeviceGetName)                                                                         \
	X(cuDevicePrimaryCtxRetain)                                                                \
	X(cuCtxSetCurrent)                                                                         \
	X(cuCtxSynchronize)                                                                        \
	X(cuMemGetInfo_v2)                                                                         \
	X(cuMemAlloc_v2)                                                                           \
	X(cuMemFree_v2)                                                                            \
	X(cuMemHostAlloc)                                                                          \
	X(cuMemHostGetDevicePointer_v2)                                                            \
	X(cuMemcpyHtoD_v2)                                                                         \
	X(cuMemcpyDtoH_v2)                                                                         \
	X(cuMemcpyDtoDAsync_v2)                                                                    \
	X(cuMemsetD32Async)                                                                        \
	X(cuModuleLoadData)                                                                        \
	X(cuModuleUnload)                                                                          \
	X(cuModuleGetFunction)                                                                     \
	X(cuFuncGetAttribute)                                                                      \
	X(cuStreamCreate)                                                                          \
	X(cuStreamDestroy_v2)                                                                      \
	X(cuStreamSynchronize)                                                                     \
	X(cuEventCreate)                                                                           \
	X(cuEventDestroy_v2)                                                                       \
	X(cuEventRecord)                                                                           \
	X(cuEventSynchronize)                                                                      \
	X(cuEventElapsedTime)                                                                      \
	X(cuLaunchKernel)                                                                          \
	X(cuLinkCreate_v2)                                                                         \
	X(cuLinkAddData_v2)                                                                        \
	X(cuLinkComplete)                                                                          \
	X(cuLinkDestroy)                                                                           \
	X(cuGetErrorName)
struct bench_probe_calls {
#define BENCH_PROBE_CALL(name) __typeof__(name) *name;
	BENCH_PROBE_CALLS(BENCH_PROBE_CALL)
#undef BENCH_PROBE_CALL
};

/* By which library a call is made; handles are the same. */
enum bench_probe_by { BENCH_PROBE_DRIVER, BENCH_PROBE_SHIM, BENCH_PROBE_BYS };

enum bench_probe_workload {
	BENCH_PROBE_CHAINED,
	BENCH_PROBE_SINGLE,
	BENCH_PROBE_LARGE, /* chained */
	BENCH_PROBE_BLOCK, /* the same, of one block */
	BENCH_PROBE_WORKLOADS
};

struct bench_probe_size {
	unsigned threads, launches;
};

/* Sums over launches of vec_add. */
struct bench_probe_work {
	uint64_t launches, blocks, sampled, warps, lanes; /* sampled: blocks 0, 8, 16 ... */
};

/* What a program counts. */
enum bench_probe_counted {
	BENCH_COUNTED_NOTHING,
	BENCH_COUNTED_WARPS,
	BENCH_COUNTED_BLOCKS,
	BENCH_COUNTED_SAMPLED,
	BENCH_COUNTED_LANES,
	BENCH_COUNTED_WARP_TIMES,
	BENCH_COUNTED_ACCESSES,
	BENCH_COUNTED_RETURNS
};

struct bench_probe_gpu {
	struct bench_probe_calls by[BENCH_PROBE_BYS];
	struct bench_probe_size size[BENCH_PROBE_WORKLOADS];
	char device[64];
	CUcontext context;
	CUmodule module;
	CUfunction vec_add, other, fill, checksum, gate, last;
	CUstream stream;
	CUevent begin, end;
	CUdeviceptr a, b, c, sum, words;
	uint32_t *flag; /* of gate; of the driver */
	CUdeviceptr flag_at;
	uint64_t expected[BENCH_PROBE_WORKLOADS]; /* checksums */
	struct bench_probe_work done;
};

/* Microseconds of a launch, and of the call that launches. */
struct bench_probe_time {
	double us, call_us;
};

/* Returns how much the launches have of what is counted; accesses_of_lane: those of each. */
uint64_t bench_probe_work_of(const struct bench_probe_work *w, enum bench_probe_counted counted,
			     uint64_t accesses_of_lane);

extern const char *const bench_probe_workloads[BENCH_PROBE_WORKLOADS];

/* Returns 0, or -1 with the call's name in the testbed's error. */
int bench_probe_check(struct bench_probe *p, CUresult r, const char *call);
#define BENCH_PROBE_CU(p, which, call) bench_probe_check(p, (p)->gpu.by[which].call, #call)
/* The same by the shim. */
#define BENCH_PROBE_GPU(p, call) BENCH_PROBE_CU(p, BENCH_PROBE_SHIM, call)

/* A launch, or a few of them, on the bench's stream. */
typedef int bench_probe_launch(struct bench_probe *p, enum bench_probe_by by, void *arg);
/* Times n of them that follow one another without a pause (bench_probe_chain.c). */
int bench_probe_chain(struct bench_probe *p, enum bench_probe_by by, unsigned n,
		      bench_probe_launch *launch, void *arg, struct bench_probe_time *ret);

/* Loads the libraries, whose settings are in the environment, and makes everything ready. */
int bench_probe_gpu_open(struct bench_probe *p);
/* Launches other, and waits for it. */
int bench_probe_launch_other(struct bench_probe *p);
/* Launches vec_add with that many blocks, and waits for it. */
int bench_probe_launch_blocks(struct bench_probe *p, unsigned blocks);
/* Launches vec_add as the workload says, by that library, and checks its result. */
int bench_probe_measure(struct bench_probe *p, enum bench_probe_by by,
			enum bench_probe_workload which, struct bench_probe_time *ret);

#endif
