/* Counters of gBPF's own device memory (gpu/own_memory.h). */
#include "gpu/own_memory.h"

#include "base/atomic.h"

#define DEVICES 64

static uint64_t taken[DEVICES]; /* [atomic] bytes */

void gpu_own_memory_add(const struct cuabi_table *real, uint64_t bytes, CUdevice *ret_device)
{
	if (real->cuCtxGetDevice(ret_device) != CUDA_SUCCESS || *ret_device < 0 ||
	    *ret_device >= DEVICES) {
		*ret_device = -1;
		return;
	}
	(void)add_acqrel(&taken[*ret_device], bytes);
}

void gpu_own_memory_sub(CUdevice device, uint64_t bytes)
{
	if (device >= 0 && device < DEVICES) {
		(void)sub_acqrel(&taken[device], bytes);
	}
}

CUresult gpu_own_memory_alloc(const struct cuabi_table *real, uint64_t bytes, CUdeviceptr *ret,
			      CUdevice *ret_device)
{
	CUresult e;

	gpu_own_memory_add(real, bytes, ret_device);
	e = real->cuMemAlloc_v2(ret, bytes);
	if (e != CUDA_SUCCESS) {
		gpu_own_memory_sub(*ret_device, bytes);
		*ret = 0;
	}
	return e;
}

void gpu_own_memory_free(const struct cuabi_table *real, CUdeviceptr mem, uint64_t bytes,
			 CUdevice device)
{
	(void)real->cuMemFree_v2(mem);
	gpu_own_memory_sub(device, bytes);
}

uint64_t gpu_own_memory(CUdevice device)
{
	return device >= 0 && device < DEVICES ? load_acquire(&taken[device]) : 0;
}
