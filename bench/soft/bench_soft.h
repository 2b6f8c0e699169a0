/* What the sections of `gbpf bench soft` share: settings, the server that is measured, child
 * processes that are clients of it, and the report. */
#ifndef GBPF_BENCH_SOFT_BENCH_SOFT_H
#define GBPF_BENCH_SOFT_BENCH_SOFT_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "cuabi/api.h"
#include "cuabi/private.h"
#include "soft/protocol.h"

#define SOFT_BENCH_SECTIONS 7

struct soft_bench {
	const char *libcuda; /* the soft GPU's client library */
	const char *server;  /* the server's program */
	const char *samples; /* the sample program `kernels` */
	bool json, running;
	unsigned rounds, ms, kills;
	bool only[SOFT_BENCH_SECTIONS], some; /* some: only those */
	char dir[96], socket[128];
	pid_t server_pid;
	struct soft_hello hello;
	unsigned missed, failed;
	json_t *figures; /* NULL: a table is printed */
};

enum soft_goal { GOAL_NONE, GOAL_AT_LEAST, GOAL_AT_MOST, GOAL_WITHIN };

/* One line of the report. */
struct soft_figure {
	const char *what, *unit;
	double value;
	const char *control; /* what was measured beside it; NULL: nothing */
	double control_value;
	enum soft_goal goal;
	double target, tolerance; /* GOAL_WITHIN: target +- tolerance */
	bool ratio;		  /* the goal is about value / control_value */
};
void soft_report(struct soft_bench *b, const char *section, const struct soft_figure *f);
/* A section that could not be measured; counts as failed. */
void soft_broken(struct soft_bench *b, const char *section, const char *why);

/* soft_server.c: 0 or -errno. */
int soft_server_start(struct soft_bench *b);
void soft_server_stop(struct soft_bench *b);
int soft_server_stats(struct soft_bench *b, struct soft_stats *ret);
/* The same once no client is there any more (at most 5 s later). */
int soft_server_settled(struct soft_bench *b, struct soft_stats *ret);
uint64_t soft_server_cpu_ns(struct soft_bench *b); /* of all its threads */
uint64_t soft_server_memory(struct soft_bench *b); /* bytes that are its own */

/* soft_client.c: in children, which end with a message when a call fails. */
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
struct soft_calls {
#define SOFT_CALL(name) __typeof__(name) *name;
	SOFT_CALLS(SOFT_CALL)
#undef SOFT_CALL
	const struct cuabi_soft_table *soft;
	CUcontext ctx;
	CUmodule module;
};
extern struct soft_calls soft_cuda;
/* Library, context and module; for the rest of the process. */
void soft_client_open(const struct soft_bench *b);
CUfunction soft_function(const char *name);
void soft_check(CUresult r, const char *call);
#define CU(call) soft_check(soft_cuda.call, #call)
void soft_launch(CUfunction f, unsigned grid, unsigned block, CUstream s, void **params);

/* A child that runs fn and ends; memory that it shall write its results to is from soft_shared. */
pid_t soft_spawn(struct soft_bench *b, void (*fn)(struct soft_bench *b, void *arg), void *arg);
bool soft_wait(pid_t pid); /* true when it ended with 0 */
bool soft_run(struct soft_bench *b, void (*fn)(struct soft_bench *b, void *arg), void *arg);
void *soft_shared(size_t bytes); /* zeroed; NULL: no memory */

/* The sections. */
void soft_bench_fma(struct soft_bench *b);
void soft_bench_samples(struct soft_bench *b);
void soft_bench_empty(struct soft_bench *b);
void soft_bench_copy(struct soft_bench *b);
void soft_bench_slices(struct soft_bench *b);
void soft_bench_many(struct soft_bench *b);
void soft_bench_kills(struct soft_bench *b);

extern const char ptx_bench_soft[];

#endif
