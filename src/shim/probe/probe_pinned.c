/* Pinned host memory of tools, for maps with GBPF_F_HOST: pages of the process that kernels write
 * and the host reads at any time, without a call of the driver. They are registered, not allocated
 * by the driver, so they stay mapped when their context fails or ends. After registration only
 * kernels write them. */
#include "shim/probe/shim_probe_int.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "shim/mem/charge.h"

static uint64_t taken GUARDED_BY(shim_probe_build_mutex); /* bytes that are pinned */

/* Counts memory as gBPF's in the account of the vGPU, where it is not charged. */
static void count(uint64_t now) REQUIRES(shim_probe_build_mutex)
{
	int row = shim_mem_row_host();

	taken = now;
	if (row >= 0) {
		shim_mem_set_gbpf(row, taken);
	}
}

/* Registers the pages in the current context. Returns the driver's result. */
static CUresult enroll(struct shim_probe_block *b, void *p, size_t bytes)
{
	CUresult r = shim_driver.cuMemHostRegister_v2(p, bytes, CU_MEMHOSTREGISTER_DEVICEMAP);

	if (r != CUDA_SUCCESS) {
		return r;
	}
	r = shim_driver.cuMemHostGetDevicePointer_v2(&b->host_mem, p, 0);
	if (r != CUDA_SUCCESS) {
		(void)shim_driver.cuMemHostUnregister(p);
	}
	return r;
}

int shim_probe_pinned_take(struct shim_probe_block *b, size_t bytes, const void *initial,
			   struct report *r)
{
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CUresult e;

	if (p == MAP_FAILED) {
		return report_set(r, -ENOMEM, "memory", "no host memory for its maps, %zu KiB",
				  bytes >> 10);
	}
	if (initial) {
		memcpy(p, initial, bytes);
	}
	e = enroll(b, p, bytes);
	if (e != CUDA_SUCCESS) {
		(void)munmap(p, bytes);
		report_hint(r, "make its maps with GBPF_F_HOST smaller, or drop the flag");
		return report_set(r, -ENOMEM, "memory",
				  "the driver pins no host memory for its maps, %zu KiB: error %d",
				  bytes >> 10, (int)e);
	}
	b->host = p;
	b->host_bytes = bytes;
	count(taken + bytes);
	return 0;
}

void shim_probe_pinned_put(struct shim_probe_block *b, bool current)
{
	if (!b->host) {
		return;
	}
	/* A context that has failed may keep the registration. The pages stay mapped then, so that
	 * nothing else comes to lie at an address that the driver believes to be registered. */
	if (current && shim_driver.cuMemHostUnregister(b->host) == CUDA_SUCCESS) {
		(void)munmap(b->host, b->host_bytes);
		count(taken - b->host_bytes);
	}
	b->host = NULL;
	b->host_bytes = 0;
}

void shim_probe_pinned_forget(void)
{
	taken = 0;
}
