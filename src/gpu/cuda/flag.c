/* The owner's side of a flag page: allocates memory for it by the means that the device has, and
 * checks that the device reads what a processor stores there. Where no descriptor is available, the
 * owner writes the page in stream order. */
#include "gpu/flag.h"

#include <stdio.h>
#include <stdlib.h>
#include <errno.h>

#include "base/atomic.h"
#include "base/fd.h"
#include "gpu/flag_int.h"
#include "gpu/gpu_int.h"
#include "gpu/own_memory.h"

#define NVIDIA_BYTES ((size_t)2 << 20) /* granularity of device memory */

struct gpu_flag {
	struct gpu_device *device; /* borrowed */
	CUcontext ctx;		   /* borrowed */
	CUdeviceptr address;
	size_t bytes;
	const struct cuabi_soft_table *soft; /* the table that made it; NULL: NVIDIA's driver */
	CUmemGenericAllocationHandle memory;
	CUdevice counted;	    /* device that has the memory; -1: it is not counted */
	CUstream stream;	    /* for stream writes; NULL where the page is mapped */
	int fd;			    /* owned */
	struct gpu_lease_page page; /* mapping of fd */
};

const struct cuabi_soft_table *gpu_soft_table(const struct cuabi_table *real)
{
	static const CUuuid id = CUABI_SOFT_UUID;
	const void *table = NULL;

	if (real->cuGetExportTable(&table, &id) != CUDA_SUCCESS || !table) {
		return NULL;
	}
	return ((const struct cuabi_soft_table *)table)->size >= sizeof(struct cuabi_soft_table)
		       ? table
		       : NULL;
}

static void why(struct gpu_device *d, const char *what, int number)
{
	lock_take(&d->lock);
	if (number) {
		snprintf(d->flag_why, sizeof(d->flag_why), "%s 0x%x", what, (unsigned)number);
	} else {
		snprintf(d->flag_why, sizeof(d->flag_why), "%s", what);
	}
	lock_release(&d->lock);
}

const char *gpu_flag_why(const struct gpu_device *d)
{
	return d->flag_why;
}

CUdeviceptr gpu_flag_address(const struct gpu_flag *f)
{
	return f->address;
}

int gpu_flag_fd(const struct gpu_flag *f)
{
	return f->fd;
}

/* ---- making a page; the context is current ---- */

static int from_soft(struct gpu_flag *f)
{
	CUresult e = f->soft->flag_new(f->ctx, GPU_FLAG_BYTES, 0, &f->address, &f->fd);

	f->bytes = GPU_FLAG_BYTES;
	if (e != CUDA_SUCCESS) {
		f->fd = -1;
		why(f->device, "the soft GPU gives no flag page: CUDA error", (int)e);
		return e == CUDA_ERROR_OUT_OF_MEMORY ? -ENOMEM : -EIO;
	}
	return 0;
}

static CUresult map_device(struct gpu_flag *f, CUdevice device)
{
	const struct cuabi_table *real = f->device->real;
	CUmemAccessDesc access = { { CU_MEM_LOCATION_TYPE_DEVICE, device },
				   CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
	CUresult e = real->cuMemAddressReserve(&f->address, f->bytes, 0, 0, 0);

	if (e != CUDA_SUCCESS) {
		f->address = 0;
		return e;
	}
	e = real->cuMemMap(f->address, f->bytes, 0, f->memory, 0);
	if (e != CUDA_SUCCESS) {
		(void)real->cuMemAddressFree(f->address, f->bytes);
		f->address = 0;
		return e;
	}
	return real->cuMemSetAccess(f->address, f->bytes, &access, 1);
}

static int from_driver(struct gpu_flag *f)
{
	const struct cuabi_table *real = f->device->real;
	struct gpu_exported x;
	CUdevice device = 0;
	CUresult e;

	f->bytes = NVIDIA_BYTES;
	e = real->cuCtxGetDevice(&device);
	gpu_own_memory_add(real, f->bytes, &f->counted);
	e = e ? e : gpu_export_new(f->device, f->bytes, &x);
	if (e != CUDA_SUCCESS) {
		gpu_own_memory_sub(f->counted, f->bytes);
		f->memory = 0;
		why(f->device, "the driver gives no memory for a flag page: CUDA error", (int)e);
		return e == CUDA_ERROR_OUT_OF_MEMORY ? -ENOMEM : -ENOTSUP;
	}
	f->memory = x.memory;
	f->fd = x.fd;
	if (x.why) {
		why(f->device, x.why, x.error);
	}
	e = map_device(f, device);
	if (e != CUDA_SUCCESS) {
		why(f->device, "the memory for a flag page cannot be mapped: CUDA error", (int)e);
		return -EIO;
	}
	return 0;
}

static bool read_back(struct gpu_flag *f, CUdeviceptr from, uint32_t *ret)
{
	const struct cuabi_table *real = f->device->real;

	if (f->soft) { /* its memory has the same address in this process */
		*ret = *(volatile uint32_t *)(uintptr_t)from;
		return true;
	}
	return real->cuMemcpyDtoHAsync_v2(ret, from, sizeof(*ret), f->stream) == CUDA_SUCCESS &&
	       real->cuStreamSynchronize(f->stream) == CUDA_SUCCESS;
}

/* Returns true if the device sees stores to the page. Leaves the page zeroed. */
static bool seen(struct gpu_flag *f)
{
	const uint32_t probe = 0x5a17c0deu, last = GPU_FLAG_SLOTS - 1;
	uint32_t back = 0;
	bool ok;

	gpu_lease_store(&f->page, last, probe);
	gpu_lease_fence();
	ok = read_back(f, f->address + last * sizeof(uint32_t), &back) && back == probe;
	gpu_lease_store(&f->page, last, 0);
	gpu_lease_fence();
	return ok;
}

static CUresult zero(struct gpu_flag *f)
{
	const struct cuabi_table *real = f->device->real;
	CUresult e = gpu_private_stream(f->device, &f->stream);

	if (e != CUDA_SUCCESS) {
		f->stream = NULL;
		return e;
	}
	e = real->cuMemsetD32Async(f->address, 0, GPU_FLAG_BYTES / 4, f->stream);
	return e ? e : real->cuStreamSynchronize(f->stream);
}

static void drop_page(struct gpu_flag *f)
{
	gpu_lease_unmap(&f->page);
	f->fd = fd_close(f->fd);
}

static int make(struct gpu_flag *f)
{
	int err = f->soft ? from_soft(f) : from_driver(f);

	if (err) {
		return err;
	}
	if (!f->soft && zero(f) != CUDA_SUCCESS) { /* the soft GPU's page is zeroed already */
		why(f->device, "the flag page cannot be cleared", 0);
		return -EIO;
	}
	err = f->fd >= 0 ? gpu_lease_map(&f->page, f->fd) : 0;
	if (err) {
		why(f->device, "the flag page cannot be mapped here: errno", -err);
		drop_page(f);
	} else if (f->fd >= 0 && !seen(f)) {
		why(f->device, "the device does not see what is stored into the flag page", 0);
		drop_page(f);
	}
	if (f->fd >= 0 && f->stream) {
		(void)f->device->real->cuStreamDestroy_v2(f->stream);
		f->stream = NULL;
	}
	return 0;
}

/* ---- interface ---- */

static void undo(struct gpu_flag *f)
{
	const struct cuabi_table *real = f->device->real;

	drop_page(f);
	if (f->stream) {
		(void)real->cuStreamDestroy_v2(f->stream);
	}
	if (f->soft && f->address) {
		(void)f->soft->flag_close(f->ctx, f->address, f->bytes);
	} else if (f->address) {
		(void)real->cuMemUnmap(f->address, f->bytes);
		(void)real->cuMemAddressFree(f->address, f->bytes);
	}
	if (f->memory) {
		(void)real->cuMemRelease(f->memory);
		gpu_own_memory_sub(f->counted, f->bytes);
	}
}

int gpu_flag_create(struct gpu_device *d, CUcontext ctx, struct gpu_flag **ret)
{
	struct gpu_flag *f = calloc(1, sizeof(*f));
	struct gpu_scope scope;
	int err;

	if (!f) {
		return -ENOMEM;
	}
	*f = (struct gpu_flag){ .device = d, .ctx = ctx, .fd = -1, .counted = -1 };
	err = gpu_scope_enter(d, ctx, &scope);
	if (err) {
		free(f);
		return err;
	}
	f->soft = gpu_soft_table(d->real);
	err = make(f);
	if (err) {
		undo(f);
		free(f);
	} else {
		*ret = f;
	}
	gpu_scope_leave(d, &scope);
	return err;
}

int gpu_flag_write(struct gpu_flag *f, uint32_t slot, uint32_t word)
{
	struct gpu_scope scope;
	CUresult e;
	int err;

	if (slot >= GPU_FLAG_SLOTS) {
		return -EINVAL;
	}
	if (f->page.word) {
		gpu_lease_store(&f->page, slot, word);
		gpu_lease_fence();
		return 0;
	}
	err = gpu_scope_enter(f->device, f->ctx, &scope);
	if (err) {
		return err;
	}
	e = f->device->real->cuStreamWriteValue32_v2(f->stream, f->address + 4u * slot, word,
						     CU_STREAM_WRITE_VALUE_DEFAULT);
	if (e == CUDA_ERROR_NOT_SUPPORTED) {
		e = f->device->real->cuMemsetD32Async(f->address + 4u * slot, word, 1, f->stream);
	}
	gpu_scope_leave(f->device, &scope);
	return e == CUDA_SUCCESS ? 0 : -EIO;
}

void gpu_flag_destroy(struct gpu_flag *f)
{
	struct gpu_scope scope;

	if (!f) {
		return;
	}
	if (gpu_scope_enter(f->device, f->ctx, &scope) == 0) {
		/* The last block of a launch with an entry stub publishes its end before lower
		 * ones have read the leases, and unmapping waits for no kernel. */
		(void)f->device->real->cuCtxSynchronize();
		undo(f);
		gpu_scope_leave(f->device, &scope);
	} else { /* the context has ended, and its memory with it */
		drop_page(f);
		gpu_own_memory_sub(f->counted, f->bytes);
	}
	free(f);
}
