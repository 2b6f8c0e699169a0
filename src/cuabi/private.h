/* The soft GPU's private table, for what gBPF needs beyond the driver API. Programs get it from
 * cuGetExportTable with the UUID below. A real driver returns CUDA_ERROR_INVALID_VALUE or NOT_FOUND
 * for that UUID, so the query is harmless. */
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

/* Counters of one context's group. Times are by the server's CLOCK_MONOTONIC. */
struct cuabi_soft_counters {
	uint64_t switches_in; /* times that the device switched to the group */
	uint64_t preempted;   /* times that it switched away although work was left */
	uint64_t run_ns;      /* execution time of blocks, summed over execution threads */
	uint64_t blocks_done;
	uint64_t launches_done;
	uint64_t bytes_copied;
};

/* More counters; append-only, filled up to the size that the caller passes. */
struct cuabi_soft_switches {
	uint64_t left_idle;    /* switches away from the group while it had nothing to run, */
	uint64_t left_between; /* ... had blocks to start but none running, */
	uint64_t left_inside;  /* ... had blocks inside kernels, whose state is saved */
	uint64_t held_ns;      /* wall time for which the group had the device */
};

/* Operations on a control descriptor. */
enum cuabi_soft_control {
	CUABI_SOFT_SLICE_SET, /* value: µs, 0 for the default */
	CUABI_SOFT_SLICE_GET, /* *ret_value: µs */
	CUABI_SOFT_PREEMPT,   /* value 1: returns when the group has left the device */
	CUABI_SOFT_SCHEDULE,  /* value 0: off, returns when nothing of the group runs; 1: on */
};

#define CUABI_SOFT_FLAG_KERNELS_WRITE 1u /* kernels may also write to the page */
#define CUABI_SOFT_FLAG_SEALED                                                                     \
	2u /* receivers of the descriptor may only read the page; the creator may write */

/* Append-only: check `size` before using a member that the first version lacked. */
struct cuabi_soft_table {
	size_t size;
	/* Sets or reads the time slice of the context's group in µs; 0 restores the default.
	 * Returns CUDA_ERROR_INVALID_VALUE if the slice, or the sum of all slices of this process
	 * that exceed the default, is longer than the device allows (--timeslice-max-us, 100 ms).
	 */
	CUresult (*timeslice_set)(CUcontext ctx, uint32_t us);
	CUresult (*timeslice_get)(CUcontext ctx, uint32_t *ret_us);
	/* Ends the group's time slice now, if the group has the device and another group waits. */
	CUresult (*preempt)(CUcontext ctx);
	/* on 0: stops blocks and copies of the group until a call with 1; returns when none runs
	 * any more. */
	CUresult (*schedule)(CUcontext ctx, int on);
	CUresult (*counters)(CUcontext ctx, struct cuabi_soft_counters *ret_counters);
	/* Returns the server's process id, for tests and gbpf doctor. */
	CUresult (*server_pid)(int *ret_pid);

	/* As preempt, but returns when the group has left the device; CUDA_ERROR_NOT_READY if that
	 * takes more than a second. */
	CUresult (*preempt_wait)(CUcontext ctx);
	CUresult (*switches)(CUcontext ctx, struct cuabi_soft_switches *ret, size_t bytes);

	/* Opens a descriptor (caller closes) that denotes the context's group. Any process that
	 * holds it, including one that received it, may pass it to control and control_counters,
	 * with or without cuInit. These return CUDA_ERROR_CONTEXT_IS_DESTROYED after the context
	 * has been destroyed, CUDA_ERROR_SYSTEM_NOT_READY if the server cannot be reached. */
	CUresult (*control_open)(CUcontext ctx, int *ret_fd);
	CUresult (*control)(int fd, enum cuabi_soft_control what, uint64_t value,
			    uint64_t *ret_value);
	CUresult (*control_counters)(int fd, struct cuabi_soft_counters *ret_counters);

	/* Allocates a flag page: at most 64 KiB of device memory that processes write while kernels
	 * read it. *ret_device is its address on the device and in this process. *ret_fd (caller
	 * closes) may be passed to other processes and mapped shared. */
	CUresult (*flag_new)(CUcontext ctx, size_t bytes, unsigned flags, CUdeviceptr *ret_device,
			     int *ret_fd);
	/* Maps the flag page of another process for kernels of this context. */
	CUresult (*flag_open)(CUcontext ctx, int fd, unsigned flags, CUdeviceptr *ret_device,
			      size_t *ret_bytes);
	CUresult (*flag_close)(CUcontext ctx, CUdeviceptr device, size_t bytes);

	/* Maps device memory of cuMemAlloc into this process, a second time if it is there already:
	 * what the allocation has of the unit of `unit` bytes (a power of two) that the address is
	 * in. The caller unmaps *ret_at with munmap, before the memory is freed: see windows_watch.
	 * Accesses through it are no copies, and do not take the link's bandwidth.
	 * CUDA_ERROR_NOT_SUPPORTED with --check, which would not see them. */
	CUresult (*window_open)(CUdeviceptr address, uint64_t unit, CUdeviceptr *ret_base,
				uint64_t *ret_bytes, void **ret_at);
	/* Has that function called, by any thread, when memory is being freed that can no longer be
	 * mapped. */
	CUresult (*windows_watch)(void (*gone)(CUdeviceptr base, uint64_t bytes));
};

#endif
