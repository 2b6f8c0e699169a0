/* bench-client: the programs whose work the benches measure. Plain programs of the CUDA driver API
 * that know nothing of gBPF; what they need of a coordinator is the page. A failed call ends them
 * with a message in the page. */
#ifndef GBPF_BENCH_CLIENT_LOAD_CLIENT_H
#define GBPF_BENCH_CLIENT_LOAD_CLIENT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/compiler.h"
#include "bench/common/shared_page.h"
#include "cuabi/api.h"

enum client_priority { PRIORITY_NONE, PRIORITY_LOW, PRIORITY_HIGH };

struct client {
	struct bench_page *page;
	const char *role, *libcuda;
	unsigned grid, threads, streams, depth, kernels;
	unsigned at_once; /* calibrating: blocks that the device runs at once, 0: its own figures */
	int iterations;
	unsigned slice_us; /* 0: as it is */
	double block_us[2];
	enum client_priority priority;
	bool default_stream;
	bool stamps;	     /* model: when each kernel began */
	bool burst;	     /* batch: no events, a synchronization after every depth kernels */
	unsigned hint_us;    /* announce requests so long ahead; 0: not at all */
	unsigned ballast_mb; /* steady: memory that it holds and does not use */
	/* of the load of a model (client_model.c), or latency or batch (client_steady.c) */
	const char *load;
	double rate;
	unsigned trace;

	void *lib; /* the driver library */
	CUdevice device;
	CUcontext ctx;
	CUmodule module;
	CUfunction block, timed, stamp;
	uint32_t told; /* number of the newest command that was seen */
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
struct client_calls {
#define CLIENT_CALL(name) __typeof__(name) *name;
	CLIENT_CALLS(CLIENT_CALL)
#undef CLIENT_CALL
};
extern struct client_calls cuda;

/* Ends the program. */
void NORETURN client_fail(const char *fmt, ...) PRINTF_LIKE(1, 2);
void client_check(CUresult r, const char *call);
#define CU(call) client_check(cuda.call, #call)

/* client.c: library, context, module; then the page says who we are. */
void client_open(struct client *c);
void client_ready(struct client *c);
CUstream client_stream(struct client *c);
/* The next command, or PAGE_EXIT when the coordinator has gone. */
enum page_op client_next(struct client *c);
bool client_has_next(struct client *c);
void client_answer(struct client *c);

/* client_control.c: before cuInit; with the context; before a request. */
void client_learn(struct client *c, void *lib);
void client_slice(struct client *c, void *lib);
void client_announce(struct client *c);

/* client_block.c: launches of the kernel and the check of what they left. */
struct block_work {
	struct client *c;
	CUstream stream;
	CUdeviceptr out, count;
	unsigned grid, threads, mask;
	int iterations;
	uint32_t launched; /* since the last check */
	CUdeviceptr when;  /* where launches say when they began; 0: nowhere */
};
void block_work_init(struct block_work *w, struct client *c, unsigned grid, unsigned threads,
		     int iterations);
void block_work_launch(struct block_work *w);
/* The host's clock minus the GPU's, where the error of the guess is least. when: pinned. */
int64_t block_work_clock(struct block_work *w, volatile uint64_t *when);
/* After a synchronization: every block ran once for each launch, with the right result. Adds to the
 * page what is wrong, and begins anew. */
void block_work_check(struct block_work *w);

/* The roles. */
void client_calibrate(struct client *c);
void client_latency(struct client *c);
void client_batch(struct client *c);
void client_model(struct client *c);
void client_tenant(struct client *c);
void client_steady(struct client *c);

extern const char ptx_bench_kernels[];

#endif
