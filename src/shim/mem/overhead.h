/* Overhead: device memory that the driver takes on its own, for contexts, modules, local memory of
 * kernels, the heap of malloc in kernels and the buffer of printf. Nobody asks for it by size, so
 * it is measured once it is taken. */
#ifndef GBPF_SHIM_MEM_OVERHEAD_H
#define GBPF_SHIM_MEM_OVERHEAD_H

/* The driver may take memory soon or has just taken some: a thread measures, at once and a few
 * times in the second that follows. Costs a load while a measurement is pending or the process is
 * in no vGPU. Called by any thread, at calls that are not frequent. */
void shim_mem_overhead_changed(void);
/* At process exit, before the driver's own handlers: no measurement runs when this returns, unless
 * one takes longer than 100 ms. */
void shim_mem_overhead_stop(void);

#endif
