/* The trace of context switches that NVIDIA's driver keeps: when each process's contexts have the
 * compute engine. */
#ifndef GBPF_BENCH_CONTROL_SWITCH_TRACE_H
#define GBPF_BENCH_CONTROL_SWITCH_TRACE_H

#include <stdint.h>

struct bench_trace_record {
	uint8_t tag; /* 6: its context is in, 7: it has been saved; others: cl90cdfecs.h */
	uint8_t vmid;
	uint16_t number;
	uint32_t context, pid;
	uint16_t reserved;
	uint8_t instance, compute_instance;
	uint64_t gpu_ns; /* as %globaltimer */
};

struct trace;

/* Opens the trace. device_id: the driver's number of the GPU; number: its /dev/nvidiaN. Returns
 * NULL if it is refused, and prints the failed step. */
struct trace *bench_trace_open(uint32_t device_id, int number);
/* Reads the newest records, oldest first. Returns their number. */
uint32_t bench_trace_read(struct trace *t, struct bench_trace_record *ret, uint32_t max);

#endif
