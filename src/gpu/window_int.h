/* The two back ends of windows; for the files of this room. */
#ifndef GBPF_GPU_WINDOW_INT_H
#define GBPF_GPU_WINDOW_INT_H

#include "cuabi/private.h"
#include "gpu/window.h"

/* bytes: memory of the largest device. */
void gpu_windows_nvidia_begin(uint64_t bytes, struct mem_direct *d);
int gpu_window_nvidia_open(uint64_t address, struct mem_window *ret);
void gpu_window_nvidia_close(struct mem_window *w);

/* Returns false if the table is too old. */
bool gpu_windows_soft_begin(const struct cuabi_soft_table *table, struct mem_direct *d);
int gpu_window_soft_open(uint64_t address, struct mem_window *ret);
void gpu_window_soft_close(struct mem_window *w);

#endif
