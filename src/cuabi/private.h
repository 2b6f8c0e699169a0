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

/* More of it; append-only, filled as far as the caller's size says. */
struct cuabi_soft_switches {
	uint64_t left_idle;    /* the device went to another group: this one had nothing to run, */
	uint64_t left_between; /* had blocks to start but none started, */
	uint64_t left_inside;  /* had blocks inside kernels (their state is kept) */
	uint64_t held_ns;      /* wall time that the group had the device */
};

/* What a control descriptor may be asked for. */
enum cuabi_soft_control {
	CUABI_SOFT_SLICE_SET, /* value: µs, 0 for the default */
	CUABI_SOFT_SLICE_GET, /* *ret: µs */
	CUABI_SOFT_PREEMPT,   /* value 1: returns when the group has left the device */
	CUABI_SOFT_SCHEDULE,  /* value 0: off, returns when nothing of it runs; 1: on */
};

#define CUABI_SOFT_FLAG_KERNELS_WRITE 1u /* kernels may write to the page, not only read it */
#define CUABI_SOFT_FLAG_SEALED 2u /* whoever gets the descriptor may read, not write; we may */

/* Append-only: a caller checks size before it uses a member that a first version did not have. */
struct cuabi_soft_table {
	size_t size;
	/* Time slice of the context's group in µs; 0 sets the default. More than the
	 * device allows (--timeslice-max-us, 100 ms) is CUDA_ERROR_INVALID_VALUE, and so is what
	 * makes all slices of this process that exceed the default longer than that together. */
	CUresult (*timeslice_set)(CUcontext ctx, uint32_t us);
	CUresult (*timeslice_get)(CUcontext ctx, uint32_t *ret_us);
	/* Ends the group's slice now, if it has the device and another group waits. */
	CUresult (*preempt)(CUcontext ctx);
	/* 0: the group's blocks and copies are not run until it is set to 1 again; returns when
	 * nothing of it runs any more. */
	CUresult (*schedule)(CUcontext ctx, int on);
	CUresult (*counters)(CUcontext ctx, struct cuabi_soft_counters *ret_counters);
	/* The server's process id, for tests and for the doctor. */
	CUresult (*server_pid)(int *ret_pid);

	/* As preempt; returns when the group has left the device. CUDA_ERROR_NOT_READY when that
	 * takes more than a second. */
	CUresult (*preempt_wait)(CUcontext ctx);
	CUresult (*switches)(CUcontext ctx, struct cuabi_soft_switches *ret, size_t bytes);

	/* A descriptor (caller closes) that stands for the context's group: whoever holds it, also
	 * another process to which it was passed, may use the two calls below on it, with or
	 * without cuInit. CUDA_ERROR_CONTEXT_IS_DESTROYED once the context has gone,
	 * CUDA_ERROR_NO_DEVICE without a server. */
	CUresult (*control_open)(CUcontext ctx, int *ret_fd);
	CUresult (*control)(int fd, enum cuabi_soft_control what, uint64_t value,
			    uint64_t *ret_value);
	CUresult (*control_counters)(int fd, struct cuabi_soft_counters *ret_counters);

	/* A flag page: device memory of at most 64 KiB that processes write while kernels read it
	 * at *ret_device, which is also where the caller's own processor sees it. *ret_fd (caller
	 * closes) may be passed on and mapped shared. */
	CUresult (*flag_new)(CUcontext ctx, size_t bytes, unsigned flags, CUdeviceptr *ret_device,
			     int *ret_fd);
	/* The flag page of another process for kernels of this context. */
	CUresult (*flag_open)(CUcontext ctx, int fd, unsigned flags, CUdeviceptr *ret_device,
			      size_t *ret_bytes);
	CUresult (*flag_close)(CUcontext ctx, CUdeviceptr device, size_t bytes);
};

#endif
