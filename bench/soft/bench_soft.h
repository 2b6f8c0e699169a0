/* Shared parts of the sections of `gbpf bench dev soft`: settings, the measured server, child
 * processes that are its clients, and the report. */
#ifndef GBPF_BENCH_SOFT_BENCH_SOFT_H
#define GBPF_BENCH_SOFT_BENCH_SOFT_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "bench/common/program.h"
#include "bench/common/testbed.h"
#include "cuabi/api.h"
#include "cuabi/private.h"
#include "soft/protocol.h"

#define SOFT_BENCH_SECTIONS 7

struct bench_soft {
	struct bench_testbed testbed; /* libcuda: the soft GPU's client library */
	const char *samples;	      /* the sample program `kernels` */
	bool running;
	unsigned rounds, ms, kills;
	bool only[SOFT_BENCH_SECTIONS], some; /* some: only those */
	char socket[128];
	pid_t server_pid;
	struct soft_hello hello;
	unsigned failed; /* sections */
};

/* Writes the record of a section that could not be measured; it counts as failed. */
void bench_soft_broken(struct bench_soft *b, const char *section, const char *why);

/* soft_server.c. Returns 0 or -errno. */
int bench_soft_server_find(struct bench_soft *b); /* by the environment */
int bench_soft_server_stats(struct bench_soft *b, struct soft_stats *ret);
/* Same, after the last client has disconnected (at most 5 s later). */
int bench_soft_server_settled(struct bench_soft *b, struct soft_stats *ret);
uint64_t bench_soft_server_cpu_ns(struct bench_soft *b); /* of all its threads */
uint64_t bench_soft_server_memory(struct bench_soft *b); /* its private memory, bytes */

/* soft_client.c: for children, which exit with a message when a call fails. */
#define SOFT_CALLS(X)                                                                              \
	X(cuInit)                                                                                  \
	X(cuCtxCreate_v2)                                                                          \
	X(cuCtxDestroy_v2)                                                                         \
	X(cuCtxSynchronize)                                                                        \
	X(cuModuleLoadData)                                                                        \
	X(cuModuleGetFunction)                                                                     \
	X(cuMemAlloc_v2)                                                                           \
	X(cuMemFree_v2)                                                                            \
	X(cuMemAllocHost_v2)                                                                       \
	X(cuMemFreeHost)                                                                           \
	X(cuMemcpyHtoD_v2)                                                                         \
	X(cuMemcpyDtoH_v2)                                                                         \
	X(cuMemcpyDtoD_v2)                                                                         \
	X(cuMemcpyHtoDAsync_v2)                                                                    \
	X(cuStreamCreate)                                                                          \
	X(cuStreamSynchronize)                                                                     \
	X(cuEventCreate)                                                                           \
	X(cuEventRecord)                                                                           \
	X(cuEventSynchronize)                                                                      \
	X(cuLaunchKernel)                                                                          \
	X(cuGetExportTable)                                                                        \
	X(cuGetErrorName)
struct bench_soft_calls {
#define SOFT_CALL(name) __typeof__(name) *name;
	SOFT_CALLS(SOFT_CALL)
#undef SOFT_CALL
	const struct cuabi_soft_table *soft;
	CUcontext ctx;
	CUmodule module;
};
extern struct bench_soft_calls soft_cuda;
/* Opens library, context and module for the lifetime of the process. */
void bench_soft_client_open(const struct bench_soft *b);
CUfunction bench_soft_function(const char *name);
void bench_soft_check(CUresult r, const char *call);
#define CU(call) bench_soft_check(soft_cuda.call, #call)
void bench_soft_launch(CUfunction f, unsigned grid, unsigned block, CUstream s, void **params);

/* Starts a child that runs fn and exits; memory for its results comes from bench_soft_shared. */
pid_t bench_soft_spawn(struct bench_soft *b, void (*fn)(struct bench_soft *b, void *arg),
		       void *arg);
bool bench_soft_wait(pid_t pid); /* returns whether it exited with 0 */
bool bench_soft_run(struct bench_soft *b, void (*fn)(struct bench_soft *b, void *arg), void *arg);
void *bench_soft_shared(size_t bytes); /* zeroed; NULL: no memory */

/* The sections. */
void bench_soft_fma(struct bench_soft *b);
void bench_soft_samples(struct bench_soft *b);
void bench_soft_empty(struct bench_soft *b);
void bench_soft_copy(struct bench_soft *b);
void bench_soft_slices(struct bench_soft *b);
void bench_soft_many(struct bench_soft *b);
void bench_soft_kills(struct bench_soft *b);

extern const char ptx_bench_soft[];

#endif
