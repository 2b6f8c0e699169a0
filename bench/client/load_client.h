/* bench-client: the programs that the benches measure. They are plain programs of the CUDA driver
 * API without knowledge of gBPF; the page connects them to a coordinator. A failed call ends them
 * with a message in the page. */
#ifndef GBPF_BENCH_CLIENT_LOAD_CLIENT_H
#define GBPF_BENCH_CLIENT_LOAD_CLIENT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/compiler.h"
#include "bench/common/shared_page.h"
#include "cuabi/api.h"

enum bench_client_priority { PRIORITY_NONE, PRIORITY_LOW, PRIORITY_HIGH };

struct bench_client {
	struct bench_page *page;
	const char *role, *libcuda;
	const char *image; /* file of machine code: compile writes it, other roles load it in place
			      of the PTX; NULL: PTX */
	unsigned grid, threads, streams, depth, kernels;
	unsigned at_once; /* calibrating: blocks that the device runs at once, 0: the device's own
			     figures */
	int iterations;
	unsigned slice_us; /* 0: unchanged */
	double block_us[2];
	enum bench_client_priority priority;
	bool default_stream;
	bool stamps;	   /* model: record when each kernel began */
	bool burst;	   /* batch: no events, a synchronization after every depth kernels */
	unsigned hint_us;  /* lead time of announced requests; 0: not announced */
	unsigned think_us; /* latency: work of the host after each kernel of a host-bound request */
	unsigned ballast_mb; /* steady: memory that it holds but does not use */
	unsigned moving_mb; /* batch, steady: its swap, MiB, if it has memory that moves; 0: none */
	/* of the load of a model (load_model.c), or latency or batch (load_steady.c) */
	const char *load;
	double rate;
	unsigned trace;

	void *lib; /* the driver library */
	CUdevice device;
	CUcontext ctx;
	CUmodule module;
	CUfunction block, timed, stamp;
	uint32_t told; /* number of the newest command seen */
};

#define CLIENT_CALLS(X)                                                                            \
	X(cuInit)                                                                                  \
	X(cuDeviceGet)                                                                             \
	X(cuDeviceGetName)                                                                         \
	X(cuDeviceGetAttribute)                                                                    \
	X(cuDevicePrimaryCtxRetain)                                                                \
	X(cuCtxSetCurrent)                                                                         \
	X(cuCtxSynchronize)                                                                        \
	X(cuCtxGetStreamPriorityRange)                                                             \
	X(cuModuleLoadData)                                                                        \
	X(cuModuleGetFunction)                                                                     \
	X(cuMemGetInfo_v2)                                                                         \
	X(cuMemAlloc_v2)                                                                           \
	X(cuMemFree_v2)                                                                            \
	X(cuMemAllocHost_v2)                                                                       \
	X(cuMemFreeHost)                                                                           \
	X(cuMemcpyDtoH_v2)                                                                         \
	X(cuMemsetD32_v2)                                                                          \
	X(cuStreamCreateWithPriority)                                                              \
	X(cuStreamSynchronize)                                                                     \
	X(cuEventCreate)                                                                           \
	X(cuEventRecord)                                                                           \
	X(cuEventSynchronize)                                                                      \
	X(cuLaunchKernel)                                                                          \
	X(cuGetErrorName)
struct bench_client_calls {
#define CLIENT_CALL(name) __typeof__(name) *name;
	CLIENT_CALLS(CLIENT_CALL)
#undef CLIENT_CALL
};
extern struct bench_client_calls cuda;

/* Ends the program. */
void NORETURN bench_client_fail(const char *fmt, ...) PRINTF_LIKE(1, 2);
void bench_client_check(CUresult r, const char *call);
#define CU(call) bench_client_check(cuda.call, #call)

/* load_client.c: opens library, context and module; then fills in the page. */
void bench_client_open(struct bench_client *c);
void bench_client_ready(struct bench_client *c);
CUstream bench_client_stream(struct bench_client *c);
/* Waits for the next command; returns PAGE_EXIT if the coordinator has exited. */
enum bench_page_op bench_client_next(struct bench_client *c);
bool bench_client_has_next(struct bench_client *c);
void bench_client_answer(struct bench_client *c);

/* load_control.c: called before cuInit; with the context; before a request. */
void bench_client_learn(struct bench_client *c, void *lib);
void bench_client_slice(struct bench_client *c, void *lib);
void bench_client_announce(struct bench_client *c);

/* load_block.c: launches of the kernel and checks of its traces. */
struct bench_block_work {
	struct bench_client *c;
	CUstream stream;
	CUdeviceptr out, count;
	unsigned grid, threads, mask;
	int iterations;
	uint32_t launched; /* since the last check */
	CUdeviceptr when;  /* where launches store their start time; 0: nowhere */
};
void bench_block_work_init(struct bench_block_work *w, struct bench_client *c, unsigned grid,
			   unsigned threads, int iterations);
void bench_block_work_launch(struct bench_block_work *w);
/* Returns the host's clock minus the GPU's, from the sample with the smallest error. when: pinned.
 */
int64_t bench_block_work_clock(struct bench_block_work *w, volatile uint64_t *when);
/* Checks after a synchronization that every block ran once for each launch, with the right result.
 * Adds the errors to the page, and resets the traces. */
void bench_block_work_check(struct bench_block_work *w);

/* load_moving.c: memory that moves, of a client with moving_mb; without, nothing is done. */
struct bench_moving {
	struct bench_client *c;
	CUdeviceptr at;
	uint64_t bytes, next;
};
void bench_moving_init(struct bench_moving *m, struct bench_client *c);
/* Makes memory leave and come back, which needs a time without work on the device. Compares some of
 * it; adds the errors to the page, as does the next one. */
void bench_moving_step(struct bench_moving *m);
void bench_moving_check(struct bench_moving *m);

/* The roles. */
void bench_client_compile(struct bench_client *c);
void bench_client_calibrate(struct bench_client *c);
void bench_client_latency(struct bench_client *c);
void bench_client_batch(struct bench_client *c);
void bench_client_model(struct bench_client *c);
void bench_client_share(struct bench_client *c);
void bench_client_tenant(struct bench_client *c);
void bench_client_steady(struct bench_client *c);

extern const char ptx_bench_kernels[];

#endif
