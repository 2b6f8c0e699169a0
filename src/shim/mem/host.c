/* Pinned host memory: cuMemHostAlloc, cuMemAllocHost, cuMemHostRegister. It takes pages that the
 * kernel cannot swap, so a vGPU has a limit of it, in a row of the account of its own. Charged are
 * the pages, until the memory is freed or unregistered, or its context ends. */
#include "mem/region.h"
#include "shim/mem/charge.h"
#include "shim/shim.h"

#define PAGE_BYTES 4096u

static struct lock mutex = LOCK_INITIALIZER(MEM_HOST);
static struct mem_regions regions GUARDED_BY(mutex); /* by address */

int shim_mem_row_host(void)
{
	return shim_mem_joined() ? (int)PROTO_ACCOUNT_HOST : -1;
}

/* Returns the bytes of the pages that a range of addresses is in. */
static uint64_t pages_of(uint64_t address, uint64_t bytes)
{
	uint64_t end;

	return __builtin_add_overflow(address, bytes, &end) || end > UINT64_MAX - PAGE_BYTES
		       ? UINT64_MAX
		       : ROUND_UP(end, (uint64_t)PAGE_BYTES) - address / PAGE_BYTES * PAGE_BYTES;
}

/* Notes memory that was charged. Returns false without host memory for that. */
static bool add(const void *p, uint64_t charged, uint64_t epoch)
{
	CUcontext ctx = NULL;
	struct mem_region r = { .key = (uint64_t)(uintptr_t)p,
				.bytes = charged,
				.epoch = epoch,
				.row = PROTO_ACCOUNT_HOST,
				.count = 1 };
	int err;

	(void)shim_driver.cuCtxGetCurrent(&ctx);
	r.owner = (uint64_t)(uintptr_t)ctx;
	lock_take(&mutex);
	err = mem_regions_add(&regions, &r);
	lock_release(&mutex);
	return !err;
}

/* Removes the entry of an address before the driver frees it, since another thread may get the same
 * address at once. */
static bool take(const void *p, struct mem_region *ret)
{
	bool known;

	if (!shim_mem_joined()) {
		return false;
	}
	lock_take(&mutex);
	known = mem_regions_take(&regions, (uint64_t)(uintptr_t)p, ret);
	lock_release(&mutex);
	return known;
}

static CUresult freed(CUresult r, bool known, const struct mem_region *m)
{
	if (known && r == CUDA_SUCCESS) {
		shim_mem_release(PROTO_ACCOUNT_HOST, m->bytes);
	} else if (known) {
		lock_take(&mutex);
		(void)mem_regions_add(&regions, m); /* else it stays charged */
		lock_release(&mutex);
	}
	return r;
}

static CUresult allocate(void **ret, size_t bytes, unsigned flags)
{
	uint64_t charged = pages_of(0, bytes), epoch;
	int row = shim_mem_row_host();
	CUresult r;

	if (row < 0 || !ret || !bytes) {
		return shim_driver.cuMemHostAlloc(ret, bytes, flags);
	}
	if (!shim_mem_charge(row, charged, "cuMemHostAlloc")) {
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	epoch = shim_mem_epoch();
	r = shim_driver.cuMemHostAlloc(ret, bytes, flags);
	if (r == CUDA_SUCCESS && !add(*ret, charged, epoch)) {
		(void)shim_driver.cuMemFreeHost(*ret);
		r = CUDA_ERROR_OUT_OF_MEMORY;
	}
	if (r != CUDA_SUCCESS) {
		shim_mem_release(row, charged);
	}
	return r;
}

static CUresult allocate_plain(void **ret, size_t bytes)
{
	return bytes ? allocate(ret, bytes, 0) : shim_driver.cuMemAllocHost_v2(ret, bytes);
}

static CUresult allocate_v1(void **ret, unsigned bytes)
{
	return bytes ? allocate(ret, bytes, 0) : shim_driver.cuMemAllocHost(ret, bytes);
}

static CUresult release(void *p)
{
	struct mem_region m;
	bool known = take(p, &m);

	return freed(shim_driver.cuMemFreeHost(p), known, &m);
}

static CUresult enroll(void *p, size_t bytes, unsigned flags)
{
	uint64_t charged = pages_of((uint64_t)(uintptr_t)p, bytes), epoch;
	int row = shim_mem_row_host();
	CUresult r;

	if (row < 0 || !p || !bytes) {
		return shim_driver.cuMemHostRegister_v2(p, bytes, flags);
	}
	if (!shim_mem_charge(row, charged, "cuMemHostRegister")) {
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	epoch = shim_mem_epoch();
	r = shim_driver.cuMemHostRegister_v2(p, bytes, flags);
	if (r == CUDA_SUCCESS && !add(p, charged, epoch)) {
		(void)shim_driver.cuMemHostUnregister(p);
		r = CUDA_ERROR_OUT_OF_MEMORY;
	}
	if (r != CUDA_SUCCESS) {
		shim_mem_release(row, charged);
	}
	return r;
}

static CUresult unregister(void *p)
{
	struct mem_region m;
	bool known = take(p, &m);

	return freed(shim_driver.cuMemHostUnregister(p), known, &m);
}

void shim_mem_host_context_ended(CUcontext ctx, uint64_t epoch)
{
	struct mem_region m;
	size_t cursor = 0;

	lock_take(&mutex);
	while (mem_regions_take_owned(&regions, (uint64_t)(uintptr_t)ctx, epoch, &cursor, &m)) {
		shim_mem_release(PROTO_ACCOUNT_HOST, m.bytes);
	}
	lock_release(&mutex);
}

void shim_mem_install_host(void)
{
	shim_real.cuMemHostAlloc = allocate;
	shim_real.cuMemAllocHost_v2 = allocate_plain;
	shim_real.cuMemAllocHost = allocate_v1;
	shim_real.cuMemFreeHost = release;
	shim_real.cuMemHostRegister_v2 = enroll;
	shim_real.cuMemHostRegister = enroll;
	shim_real.cuMemHostUnregister = unregister;
}
