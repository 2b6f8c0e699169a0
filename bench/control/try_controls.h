/* bench-control: shared parts. Every process ends by an alarm. */
#ifndef GBPF_BENCH_CONTROL_TRY_CONTROLS_H
#define GBPF_BENCH_CONTROL_TRY_CONTROLS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "cuabi/table.h"
#include "gpu/control.h"
#include "gpu/flag.h"

/* Memory that all the processes share. */
struct bench_shared {
	volatile uint64_t free_bytes, total_bytes; /* as measured by the observer */
	volatile uint64_t seen_ns;		   /* time of that measurement */
	volatile uint32_t observe, stop, ready;
	volatile uint64_t allocated_bytes;
};

/* A process with a driver. */
struct bench_cuda {
	struct cuabi_table real;
	CUdevice device;
	CUcontext ctx;
	struct gpu_device *gpu;
	CUfunction beat, work, empty;
	volatile uint64_t *word; /* pinned: [0] beat, [1] stop */
	CUdeviceptr word_device;
	CUstream stream;
	int learn_error;
	uint64_t init_ns;
};

void bench_say(const char *format, ...) __attribute__((format(printf, 1, 2)));
double bench_us_since(uint64_t start);
/* Ends the process with a message if e is an error. */
void bench_must(CUresult e, const char *what);

/* Opens the driver; ends the process with a message if it fails. */
void bench_cuda_open(struct bench_cuda *c, const char *library);
/* Starts the kernel that stores %globaltimer repeatedly, for at most limit_ns. */
void bench_cuda_beat(struct bench_cuda *c, uint64_t limit_ns);
void bench_cuda_beat_stop(struct bench_cuda *c);

/* Runs the tests within one process, in the tenant; sends descriptors and handles. */
void bench_tenant_run(const char *library, int sock);
/* Runs a tenant that has memory and runs a kernel until it is killed. how: enum bench_victim. */
enum bench_victim { VICTIM_ALONE, VICTIM_PAGE, VICTIM_PAGE_SHARED, VICTIM_CONTROL, VICTIMS };
void bench_victim_run(const char *library, int sock, enum bench_victim how, struct bench_shared *s);
void bench_observer_run(const char *library, struct bench_shared *s);

#endif
