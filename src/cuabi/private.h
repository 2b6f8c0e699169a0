/* The soft GPU's private table: what gBPF needs beyond the driver API. Asked with cuGetExportTable
 * and the UUID below; a real driver answers CUDA_ERROR_INVALID_VALUE or NOT_FOUND to that UUID, so
 * asking is harmless. */
#ifndef GBPF_CUABI_PRIVATE_H
#define GBPF_CUABI_PRIVATE_H

#include "cuabi/types.h"

#define CUABI_SOFT_UUID                                                                            \
	{                                                                                          \
		{                                                                                  \
			0x67, 0x42, 0x50, 0x46, 0x2d, 0x73, 0x6f, 0x66, 0x74, 0x2d, 0x67, 0x70,    \
				0x75, 0x2d, 0x30, 0x31                                             \
		}                                                                                  \
	}

/* What the group of one context has been through; the clock is the server's CLOCK_MONOTONIC. */
struct cuabi_soft_counters {
	uint64_t switches_in; /* times the device switched to the group */
	uint64_t preempted;   /* times it was switched away with work left */
	uint64_t run_ns;      /* time that its blocks ran, summed over execution threads */
	uint64_t blocks_done;
	uint64_t launches_done;
	uint64_t bytes_copied;
};

/* Append-only: a caller checks size before it uses a member that a first version did not have. */
struct cuabi_soft_table {
	size_t size;
	/* Time slice of the context's group in µs, 1 to 10 000 000; 0 sets the default. */
	CUresult (*timeslice_set)(CUcontext ctx, uint32_t us);
	CUresult (*timeslice_get)(CUcontext ctx, uint32_t *ret_us);
	/* Ends the group's slice now, if it has the device and another group waits. */
	CUresult (*preempt)(CUcontext ctx);
	/* 0: the group's blocks and copies are not run until it is set to 1 again. */
	CUresult (*schedule)(CUcontext ctx, int on);
	CUresult (*counters)(CUcontext ctx, struct cuabi_soft_counters *ret_counters);
	/* The server's process id, for tests and for the doctor. */
	CUresult (*server_pid)(int *ret_pid);
};

#endif
