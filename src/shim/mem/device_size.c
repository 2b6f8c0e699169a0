/* The size that the program sees: a device as large as the limit, of which as much is free as the
 * vGPU may still take, but not more than the device has; and in addition the vGPU's swap, and what
 * is left of it, with what the process's pool has of it. Where swap is not shown, as much is free
 * as can be taken before memory leaves the device: nothing, if more than the limit is held. */
#include "mem/account_figures.h"
#include "shim/mem/charge.h"
#include "shim/mem/swap_pool.h"
#include "shim/shim.h"

/* Returns the bytes by which the device of a row seems larger. *ret_away: what its chunks have on
 * the host, if that counts as memory of the device. */
static uint64_t shown_swap(int row, uint64_t *ret_away)
{
	bool hidden = mem_account_shows_mem(shim_mem_account());

	*ret_away = hidden ? mem_account_away(shim_mem_account(), (uint32_t)row) : 0;
	return hidden ? 0 : shim_mem_swap_limit(row);
}

static CUresult get_info(size_t *ret_free, size_t *ret_total)
{
	CUresult r = shim_driver.cuMemGetInfo_v2(ret_free, ret_total);
	int row = r == CUDA_SUCCESS ? shim_mem_row_current() : -1;
	uint64_t swap, left, away;

	if (row < 0) {
		return r;
	}
	shim_mem_settle();
	swap = shown_swap(row, &away); /* once: it may be changed meanwhile */
	left = shim_mem_left(row);
	*ret_total = MIN(*ret_total, shim_mem_limit(row)) + swap;
	*ret_free = MIN(*ret_free, left - MIN(left, away));
	*ret_free += min_once(swap, shim_mem_left(PROTO_ACCOUNT_SWAP) + shim_swap_pool_bytes());
	return r;
}

static CUresult total(size_t *ret, CUdevice device)
{
	CUresult r = shim_driver.cuDeviceTotalMem_v2(ret, device);
	int row = r == CUDA_SUCCESS ? shim_mem_row(device) : -1;
	uint64_t away;

	if (row >= 0) {
		*ret = MIN(*ret, shim_mem_limit(row)) + shown_swap(row, &away);
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
