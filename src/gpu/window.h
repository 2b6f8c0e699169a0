/* Device memory mapped into this process, for mem/direct.h. On NVIDIA's driver through the resource
 * manager, with the client that the driver library has there; on the soft GPU through its private
 * table. */
#ifndef GBPF_GPU_WINDOW_H
#define GBPF_GPU_WINDOW_H

#include "cuabi/table.h"
#include "mem/direct.h"

/* dev: NULL. Opens a window on memory of cuMemAlloc; -ENOTSUP: the device does not show the CPU all
 * of its memory at once, so that windows would be taken from other processes; -ENOENT: no memory
 * that is known. */
extern const struct mem_window_ops gpu_window_ops;

/* Prepares it; once, before there is a context. gone: called for memory that goes, as
 * mem_direct_gone() needs it. Returns false if this driver has no windows. */
bool gpu_windows_begin(const struct cuabi_table *real, struct mem_direct *d);
/* Returns false if some of it may be the device's, which the CPU must not touch. */
bool gpu_windows_is_host(const struct cuabi_table *real, const void *p, size_t bytes);

#endif
