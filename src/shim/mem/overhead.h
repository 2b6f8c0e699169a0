/* Overhead: device memory that the driver takes on its own, for contexts, modules, local memory of
 * kernels, the heap of malloc in kernels and the buffer of printf. Nobody asks for it by size, so
 * it is measured once it is taken. */
#ifndef GBPF_SHIM_MEM_OVERHEAD_H
#define GBPF_SHIM_MEM_OVERHEAD_H

#include <stdbool.h>

#include "cuabi/types.h"

/* Returns true if NVML's figure of this process shows nothing beyond what is charged. The caller is
 * between shim_mem_move_begin() and _end(); false while other threads are, too. Takes up to some
 * milliseconds. */
bool shim_mem_is_explained(CUdevice device, int row);
/* Returns true if the process has one context on the current device, and has never had another one:
 * what is allocated in it lives as long as memory of the device's pools. */
bool shim_mem_has_one_context(void);
/* The driver may take memory soon or has just taken some: a thread measures, at once and a few
 * times in the second that follows. Costs a load while a measurement is pending or the process is
 * in no vGPU. Called by any thread, at calls that are not frequent. */
void shim_mem_overhead_changed(void);
/* At process exit, before the driver's own handlers: no measurement runs when this returns, unless
 * one takes longer than 100 ms. */
void shim_mem_overhead_stop(void);

#endif
