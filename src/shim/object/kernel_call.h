/* A program's launch of a kernel, as the driver is to get it. */
#ifndef GBPF_SHIM_OBJECT_KERNEL_CALL_H
#define GBPF_SHIM_OBJECT_KERNEL_CALL_H

#include <stdbool.h>
#include <stdint.h>

#include "cuabi/types.h"

enum shim_kernel_api {
	SHIM_KERNEL_API_PLAIN,	     /* cuLaunchKernel */
	SHIM_KERNEL_API_COOPERATIVE, /* cuLaunchCooperativeKernel, which has no extra */
	SHIM_KERNEL_API_EX,	     /* cuLaunchKernelEx */
};

/* Whether a launch of a kernel that tools match takes its probed form: chosen once, where several
 * steps of a launch need it. */
enum shim_kernel_choice {
	SHIM_KERNEL_NOT_CHOSEN, /* when it is issued */
	SHIM_KERNEL_TAKES_FORM,
	SHIM_KERNEL_TAKES_NONE,
};

/* Pointers belong to the program, or to the copy of a deferred launch. */
struct shim_kernel_call {
	CUfunction f; /* or a CUkernel; NULL: no launch that this struct describes */
	CUstream stream;
	const CUlaunchConfig *config; /* of SHIM_KERNEL_API_EX, whose shape follows, too */
	uint32_t grid[3], block[3];
	uint32_t smem; /* dynamic shared memory, in bytes */
	void **params, **extra;
	uint8_t api;	  /* enum shim_kernel_api */
	uint8_t choice;	  /* enum shim_kernel_choice */
	bool per_thread;  /* the default stream is the per-thread one */
	uint8_t brackets; /* kernels that were launched with it (probe/probe_around.c) */
};

/* Makes the call, with another function, shared memory and parameters. */
CUresult shim_kernel_call_run(const struct shim_kernel_call *c, CUfunction f, uint32_t smem,
			      void **params, void **extra);

#endif
