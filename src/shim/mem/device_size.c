/* The size that the program sees: a device as large as the limit, of which as much is free as the
 * vGPU may still take, but not more than the device has; and in addition the vGPU's swap, and what
 * is left of it, with what the process's pool has of it. */
#include "shim/mem/charge.h"
#include "shim/mem/swap_pool.h"
#include "shim/shim.h"

static CUresult get_info(size_t *ret_free, size_t *ret_total)
{
	CUresult r = shim_driver.cuMemGetInfo_v2(ret_free, ret_total);
	int row = r == CUDA_SUCCESS ? shim_mem_row_current() : -1;
	uint64_t swap;

	if (row < 0) {
		return r;
	}
	shim_mem_settle();
	swap = shim_mem_swap_limit(row); /* once: it may be changed meanwhile */
	*ret_total = MIN(*ret_total, shim_mem_limit(row)) + swap;
	*ret_free = MIN(*ret_free, shim_mem_left(row));
	*ret_free += min_once(swap, shim_mem_left(PROTO_ACCOUNT_SWAP) + shim_swap_pool_bytes());
	return r;
}

static CUresult total(size_t *ret, CUdevice device)
{
	CUresult r = shim_driver.cuDeviceTotalMem_v2(ret, device);
	int row = r == CUDA_SUCCESS ? shim_mem_row(device) : -1;

	if (row >= 0) {
		*ret = MIN(*ret, shim_mem_limit(row)) + shim_mem_swap_limit(row);
	}
	return r;
}

static unsigned saturated(size_t bytes)
{
	return bytes > UINT32_MAX ? UINT32_MAX : (unsigned)bytes;
}

static CUresult get_info_v1(unsigned *ret_free, unsigned *ret_total)
{
	size_t available, all;
	CUresult r;

	if (!ret_free || !ret_total) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	r = get_info(&available, &all);
	if (r == CUDA_SUCCESS) {
		*ret_free = saturated(available);
		*ret_total = saturated(all);
	}
	return r;
}

static CUresult total_v1(unsigned *ret, CUdevice device)
{
	size_t all;
	CUresult r;

	if (!ret) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	r = total(&all, device);
	if (r == CUDA_SUCCESS) {
		*ret = saturated(all);
	}
	return r;
}

void shim_mem_install_info(void)
{
	shim_real.cuMemGetInfo_v2 = get_info;
	shim_real.cuDeviceTotalMem_v2 = total;
	shim_real.cuMemGetInfo = get_info_v1;
	shim_real.cuDeviceTotalMem = total_v1;
}
