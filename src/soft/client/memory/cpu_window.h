/* Device memory mapped into the client; see window_open of cuabi/private.h. */
#ifndef GBPF_SOFT_CLIENT_MEMORY_CPU_WINDOW_H
#define GBPF_SOFT_CLIENT_MEMORY_CPU_WINDOW_H

#include "cuabi/private.h"

CUresult soft_cpu_window_open(CUdeviceptr address, uint64_t unit, CUdeviceptr *ret_base,
			      uint64_t *ret_bytes, void **ret_at);
CUresult soft_cpu_windows_watch(void (*gone)(CUdeviceptr base, uint64_t bytes));
/* Reports memory that is being freed, and is in no range any more; without locks. */
void soft_cpu_windows_gone(uint64_t address, uint64_t bytes);

#endif
