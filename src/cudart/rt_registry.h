/* The device code that the program registered: images, and by host address their kernels and
 * variables. An image becomes a library of the driver on first use. */
#ifndef GBPF_CUDART_RT_REGISTRY_H
#define GBPF_CUDART_RT_REGISTRY_H

#include "cudart/rt_types.h"

/* Returns the kernel of a host function, or a kernel handle given as such;
 * cudaErrorInvalidDeviceFunction if it is neither. Needs no context. */
cudaError_t cudart_kernel(const void *func, CUkernel *ret);

/* Returns the same as a function of the current context. */
cudaError_t cudart_function(const void *func, CUfunction *ret);

/* Returns the host function of a kernel handle or of a function; NULL: not one of the program's. */
const void *cudart_host_function(const void *handle);

/* Returns address and size of a variable in the current context; cudaErrorInvalidSymbol if the
 * address is not a registered variable's. */
cudaError_t cudart_symbol(const void *symbol, CUdeviceptr *ret, size_t *ret_bytes);

#endif
