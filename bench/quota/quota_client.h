/* bench-quota-client: the programs whose memory `gbpf bench memory` limits. They are plain programs
 * of the CUDA driver API without knowledge of gBPF. */
#ifndef GBPF_BENCH_QUOTA_QUOTA_CLIENT_H
#define GBPF_BENCH_QUOTA_QUOTA_CLIENT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/compiler.h"
#include "bench/quota/quota_page.h"
#include "cuabi/api.h"

struct bench_quota_client {
	struct bench_quota_page *page;
	struct bench_quota_slot *me;
	const char *role, *libcuda, *paths;
	const char *driver; /* path of the driver's library */
	char **argv;	    /* of this program, for the workers that a group starts */
	int fd;		    /* of the page */
	unsigned slot, processes, threads;
	uint64_t seed;
	bool check; /* ask the driver what is in use before each allocation, and stay below the
		       limit */
	CUdevice device;
	CUcontext ctx;
};

#define QUOTA_CALLS(X)                                                                             \
	X(cuInit)                                                                                  \
	X(cuDeviceGet)                                                                             \
	X(cuDeviceGetName)                                                                         \
	X(cuDevicePrimaryCtxRetain)                                                                \
	X(cuCtxSetCurrent)                                                                         \
	X(cuCtxSynchronize)                                                                        \
	X(cuMemGetInfo_v2)                                                                         \
	X(cuMemAlloc_v2)                                                                           \
	X(cuMemAllocPitch_v2)                                                                      \
	X(cuMemAllocManaged)                                                                       \
	X(cuMemAllocHost_v2)                                                                       \
	X(cuDeviceGetAttribute)                                                                    \
	X(cuModuleLoadData)                                                                        \
	X(cuModuleGetFunction)                                                                     \
	X(cuLaunchKernel)                                                                          \
	X(cuMemFreeHost)                                                                           \
	X(cuMemcpyHtoDAsync_v2)                                                                    \
	X(cuMemsetD32Async)                                                                        \
	X(cuEventCreate)                                                                           \
	X(cuEventRecord)                                                                           \
	X(cuStreamWaitEvent)                                                                       \
	X(cuMemcpyDtoHAsync_v2)                                                                    \
	X(cuMemcpyDtoH_v2)                                                                         \
	X(cuMemsetD32_v2)                                                                          \
	X(cuMemFree_v2)                                                                            \
	X(cuMemAddressReserve)                                                                     \
	X(cuMemAddressFree)                                                                        \
	X(cuMemCreate)                                                                             \
	X(cuMemRelease)                                                                            \
	X(cuMemMap)                                                                                \
	X(cuMemUnmap)                                                                              \
	X(cuMemSetAccess)                                                                          \
	X(cuArray3DCreate_v2)                                                                      \
	X(cuArrayDestroy)                                                                          \
	X(cuMemAllocAsync)                                                                         \
	X(cuMemFreeAsync)                                                                          \
	X(cuStreamCreate)                                                                          \
	X(cuStreamSynchronize)                                                                     \
	X(cuGetErrorName)
struct bench_quota_calls {
#define QUOTA_CALL(name) __typeof__(name) *name;
	QUOTA_CALLS(QUOTA_CALL)
#undef QUOTA_CALL
};
extern struct bench_quota_calls cuda;

/* Opens the driver's library, past gBPF, in a program that runs under gBPF. */
void *bench_quota_open_driver(struct bench_quota_client *c);
/* Finds a function of a library that dlopen() has opened, and stores it. */
void bench_quota_find(struct bench_quota_client *c, void *lib, const char *name, void *slot);

/* Ends the program with a message in its slot. */
void NORETURN bench_quota_fail(struct bench_quota_client *c, const char *fmt, ...)
	PRINTF_LIKE(2, 3);
void bench_quota_check(struct bench_quota_client *c, CUresult r, const char *call);
#define CU(c, call) bench_quota_check(c, cuda.call, #call)

/* Returns what the clients do now. */
enum bench_quota_activity bench_quota_activity(uint32_t phase);
/* Waits until the phase differs from this one, or the parent has exited. Returns the phase. */
uint32_t bench_quota_await_phase(struct bench_quota_client *c, uint32_t phase);
void bench_quota_ready(struct bench_quota_client *c);
/* Waits for a command. Returns false if the client shall end. */
bool bench_quota_await_command(struct bench_quota_client *c);
/* Reports that the command has been carried out. */
void bench_quota_complete(struct bench_quota_client *c);

/* quota_worker.c: allocates and frees. */
void bench_quota_work(struct bench_quota_client *c);
/* quota_latency.c: times allocations on command. */
void bench_quota_time(struct bench_quota_client *c);
/* quota_load.c: computes in more memory than the device may hold, on command. */
void bench_quota_compute(struct bench_quota_client *c);
/* Its state. */
struct bench_quota_kernels {
	struct bench_quota_client *c;
	CUmodule module;
	CUstream stream;
	unsigned grid, threads; /* of each launch; in all: grid * threads */
	CUdeviceptr sums;	/* a word of each thread */
};
/* quota_cycle_load.c: its cycles over layers. */
void bench_quota_make_layers(struct bench_quota_kernels *k);
void bench_quota_run_cycles(struct bench_quota_kernels *k);
/* quota_pair_load.c: runs a program of a pair, and asks the driver what is free. */
void bench_quota_run_program(struct bench_quota_kernels *k);
void bench_quota_read_free(struct bench_quota_client *c);
/* Returns a digest of the sums of all threads. */
uint64_t bench_quota_digest(struct bench_quota_kernels *k);
/* quota_mover.c: moves memory out of the device and back on command. */
void bench_quota_move(struct bench_quota_client *c);

extern const char ptx_bench_quota[];

#endif
