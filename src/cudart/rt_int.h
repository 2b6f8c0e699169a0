/* What every file of the runtime library uses: the driver's table, entering and leaving a call,
 * primary contexts. */
#ifndef GBPF_CUDART_RT_INT_H
#define GBPF_CUDART_RT_INT_H

#include <stdbool.h>

#include "cuabi/table.h"
#include "cudart/rt_types.h"

#define RT_EXPORT __attribute__((visibility("default")))

/* The driver's functions; each may be called once cudart_enter has returned cudaSuccess. */
extern struct cuabi_table cudart_driver;

/* Loads libcuda.so.1 and initializes it, once. Returns cudaErrorInsufficientDriver without a
 * driver, or the error of its initialization on every call. */
cudaError_t cudart_enter(void);

/* The same, and makes the primary context of the thread's device current unless the thread has a
 * current context. */
cudaError_t cudart_enter_context(void);

/* Returns the runtime's error for a result of the driver. */
cudaError_t cudart_from_driver(CUresult r);

/* Records an error as the calling thread's last one, and returns it. */
cudaError_t cudart_leave(cudaError_t e);

/* Returns cudaErrorNotSupported; with GBPF_DEBUG set, prints the name on standard error. */
cudaError_t cudart_unsupported(const char *name);

/* A null stream of a program that is compiled for per-thread default streams. */
static inline cudaStream_t cudart_own_stream(cudaStream_t s)
{
	return s ? s : CU_STREAM_PER_THREAD;
}

/* Returns the number of devices. */
int cudart_devices(void);

/* Retains the device's primary context until the device is reset. */
cudaError_t cudart_primary(int device, CUcontext *ret);

/* Returns the device of the calling thread's context, or the one that it chose. */
cudaError_t cudart_current_device(int *ret);

#endif
