/* Chunks of memory of the device and of the host (shim/mem/swap_chunk.h).
 *
 * Memory of the host is mapped for the device at an address of its own as long as it exists, so
 * that a chunk can be copied there while the chunk's address still leads to the device. */
#include "shim/mem/swap_chunk.h"

#include <stdio.h>

#include "shim/mem/charge.h"
#include "shim/mem/swap_pool.h"
#include "shim/mem/swap_region.h"
#include "shim/mem/work.h"
#include "shim/shim.h"

CUresult shim_swap_set_access(CUdeviceptr at, uint64_t bytes, uint32_t devices)
{
	CUmemAccessDesc access[PROTO_MAX_GPUS] = { 0 };
	size_t n = 0;

	for (int d = 0; d < (int)PROTO_MAX_GPUS; d++) {
		if (devices >> d & 1) {
			access[n].location.type = CU_MEM_LOCATION_TYPE_DEVICE;
			access[n].location.id = d;
			access[n++].flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
		}
	}
	return shim_work_driver.cuMemSetAccess(at, bytes, access, n);
}

CUresult shim_swap_map_memory(CUdeviceptr at, uint64_t bytes, uint64_t handle, uint32_t devices)
{
	CUresult r = shim_work_driver.cuMemMap(at, bytes, 0, handle, 0);

	if (r == CUDA_SUCCESS) {
		r = shim_swap_set_access(at, bytes, devices);
		if (r != CUDA_SUCCESS) {
			(void)shim_work_driver.cuMemUnmap(at, bytes);
		}
	}
	return r;
}

static uint32_t can_share; /* [atomic] constant once the process has joined its vGPU */

void shim_swap_chunk_setup(uint32_t gpus)
{
	uint32_t all = 1;

	for (uint32_t i = 0; i < gpus; i++) {
		int can = 0;

		(void)shim_driver.cuDeviceGetAttribute(
			&can, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED,
			(CUdevice)i);
		all &= can != 0;
	}
	store_release(&can_share, all);
}

bool shim_swap_can_share(void)
{
	return load_acquire(&can_share) != 0;
}

/* Memory of the device is made so that it can be shared with other processes, should the program
 * ask for that. */
static CUresult create(uint64_t *ret, uint64_t bytes, CUmemLocationType type, CUdevice device)
{
	CUmemAllocationProp p = {
		.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.requestedHandleTypes = type == CU_MEM_LOCATION_TYPE_DEVICE && shim_swap_can_share()
						? CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
						: CU_MEM_HANDLE_TYPE_NONE,
		.location = { .type = type, .id = device }
	};
	CUmemGenericAllocationHandle handle = 0;
	CUresult r = shim_work_driver.cuMemCreate(&handle, bytes, &p, 0);

	*ret = handle;
	return r;
}

CUresult shim_swap_chunk_create(struct mem_swap_chunk *c)
{
	CUresult r = create(&c->handle, c->bytes, CU_MEM_LOCATION_TYPE_DEVICE, c->region->device);

	if (r != CUDA_SUCCESS) {
		c->handle = 0;
	}
	return r;
}

void shim_swap_chunk_release(struct mem_swap_chunk *c)
{
	(void)shim_work_driver.cuMemRelease(c->handle);
	c->handle = 0;
}

static bool map(const struct mem_swap_chunk *c, uint64_t handle) REQUIRES(shim_swap_mutex)
{
	return shim_swap_map_memory(c->address, c->bytes, handle, shim_swap_access(c->region)) ==
	       CUDA_SUCCESS;
}

CUresult shim_swap_chunk_map(const struct mem_swap_chunk *c)
{
	return shim_swap_map_memory(c->address, c->bytes, c->handle ? c->handle : c->host,
				    shim_swap_access(c->region));
}

CUresult shim_swap_chunk_unmap(const struct mem_swap_chunk *c)
{
	return shim_work_driver.cuMemUnmap(c->address, c->bytes);
}

bool shim_swap_charge_host(uint64_t bytes)
{
	int swap = shim_mem_row_swap();

	if (swap < 0 || !shim_mem_try_charge(swap, bytes)) {
		return false;
	}
	if (!shim_mem_try_charge(PROTO_ACCOUNT_HOST, bytes)) {
		shim_mem_release(swap, bytes);
		return false;
	}
	return true;
}

void shim_swap_uncharge_host(uint64_t bytes)
{
	shim_mem_release(PROTO_ACCOUNT_SWAP, bytes);
	shim_mem_release(PROTO_ACCOUNT_HOST, bytes);
}

bool shim_swap_chunk_make_host(uint64_t bytes, CUdevice device, uint64_t *ret_handle,
			       uint64_t *ret_address)
{
	CUdeviceptr at = 0;
	uint64_t handle;

	if (!shim_swap_charge_host(bytes)) {
		return false;
	}
	if (create(&handle, bytes, CU_MEM_LOCATION_TYPE_HOST, 0) == CUDA_SUCCESS) {
		if (shim_work_driver.cuMemAddressReserve(&at, bytes, 0, 0, 0) == CUDA_SUCCESS) {
			if (shim_swap_map_memory(at, bytes, handle, 1u << device) == CUDA_SUCCESS) {
				*ret_handle = handle;
				*ret_address = at;
				return true;
			}
			(void)shim_work_driver.cuMemAddressFree(at, bytes);
		}
		(void)shim_work_driver.cuMemRelease(handle);
	}
	shim_swap_uncharge_host(bytes);
	return false;
}

void shim_swap_chunk_free_host(uint64_t handle, uint64_t address, uint64_t bytes)
{
	(void)shim_work_driver.cuMemUnmap(address, bytes);
	(void)shim_work_driver.cuMemRelease(handle);
	(void)shim_work_driver.cuMemAddressFree(address, bytes);
	shim_swap_uncharge_host(bytes);
}

/* The pool may have the last of what swap allows, in chunks of other sizes. */
bool shim_swap_chunk_back(struct mem_swap_chunk *c)
{
	CUdevice device = c->region->device;
	bool made = shim_swap_pool_take(c);

	while (!made) {
		made = shim_swap_chunk_make_host(c->bytes, device, &c->host, &c->host_address);
		if (!made && !shim_swap_pool_free_oldest()) {
			return false;
		}
	}
	return true;
}

void shim_swap_chunk_unback(struct mem_swap_chunk *c)
{
	if (!c->host) {
		return;
	}
	shim_swap_pool_put(c->host, c->host_address, c->bytes, c->region->device);
	c->host = c->host_address = c->copied = 0;
}

void shim_swap_say_lost(const struct mem_swap_chunk *c)
{
	fprintf(stderr, "gbpf: memory at 0x%llx cannot be mapped again: work that uses it fails\n",
		(unsigned long long)c->address);
}

bool shim_swap_chunk_remap(const struct mem_swap_chunk *c, uint64_t from, uint64_t to)
{
	if (shim_work_driver.cuMemUnmap(c->address, c->bytes) != CUDA_SUCCESS) {
		return false;
	}
	if (map(c, to)) {
		return true;
	}
	if (!map(c, from)) {
		shim_swap_say_lost(c);
	}
	return false;
}
