/* The room's own interface. */
#ifndef GBPF_SHIM_KERNEL_KERNEL_INT_H
#define GBPF_SHIM_KERNEL_KERNEL_INT_H

#include <pthread.h>

#include "base/strmap.h"
#include "shim/kernel/kernel_handle.h"

/* Held over calls of the driver that ask for names. clone.c takes it under its own mutex. */
extern pthread_mutex_t shim_kernels_mutex;
extern struct strmap
	shim_kernels; /* shim_kernels_mutex; handle in hexadecimal > struct shim_kernel */

#endif
