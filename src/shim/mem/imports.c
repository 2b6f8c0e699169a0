/* Memory of other processes that this one uses: IPC handles, pointers of imported pools, external
 * memory. It is charged to the process that made it, and shown as shared here, until it is closed.
 * (Imported handles of virtual memory: chunks.c.) */
#include "mem/region.h"
#include "shim/mem/charge.h"
#include "shim/shim.h"

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct mem_regions imports; /* by address or handle; count: how often it was opened */
static uint32_t used;		   /* [atomic] the process has imported memory */

static void note(uint64_t key, uint64_t bytes)
{
	CUcontext ctx = NULL;
	struct mem_region *m, r = { .key = key, .bytes = bytes, .count = 1 };
	int row = shim_mem_row_current();

	if (row < 0) {
		return;
	}
	(void)shim_driver.cuCtxGetCurrent(&ctx);
	r.row = (uint32_t)row;
	r.owner = (uint64_t)(uintptr_t)ctx;
	r.epoch = shim_mem_epoch();
	store_release(&used, 1u);
	pthread_mutex_lock(&mutex);
	m = mem_regions_find(&imports, key);
	if (m) {
		m->count++;
	} else if (mem_regions_add(&imports, &r) == 0) {
		shim_mem_share(row, bytes);
	}
	pthread_mutex_unlock(&mutex);
}

static void note_address(CUdeviceptr address)
{
	CUdeviceptr base;
	size_t bytes;

	if (shim_driver.cuMemGetAddressRange_v2(&base, &bytes, address) == CUDA_SUCCESS) {
		note(address, bytes);
	}
}

static void forget(uint64_t key)
{
	struct mem_region *m, gone = { 0 };

	if (!load_acquire(&used) || !shim_mem_joined()) {
		return;
	}
	pthread_mutex_lock(&mutex);
	m = mem_regions_find(&imports, key);
	if (m && m->count > 1) {
		m->count--;
	} else if (mem_regions_take(&imports, key, &gone)) {
		shim_mem_unshare((int)gone.row, gone.bytes);
	}
	pthread_mutex_unlock(&mutex);
}

void shim_mem_import_freed(CUdeviceptr address)
{
	forget(address);
}

void shim_mem_imports_context_ended(CUcontext ctx, uint64_t epoch)
{
	struct mem_region m;
	size_t cursor = 0;

	pthread_mutex_lock(&mutex);
	while (mem_regions_take_owned(&imports, (uint64_t)(uintptr_t)ctx, epoch, &cursor, &m)) {
		shim_mem_unshare((int)m.row, m.bytes);
	}
	pthread_mutex_unlock(&mutex);
}

static CUresult opened(CUresult r, const CUdeviceptr *ret)
{
	if (r == CUDA_SUCCESS && shim_mem_joined()) {
		note_address(*ret);
	}
	return r;
}

static CUresult open_ipc(CUdeviceptr *ret, CUipcMemHandle handle, unsigned flags)
{
	return opened(shim_driver.cuIpcOpenMemHandle_v2(ret, handle, flags), ret);
}

static CUresult open_ipc_v1(CUdeviceptr *ret, CUipcMemHandle handle, unsigned flags)
{
	return opened(shim_driver.cuIpcOpenMemHandle(ret, handle, flags), ret);
}

static CUresult close_ipc(CUdeviceptr address)
{
	CUresult r = shim_driver.cuIpcCloseMemHandle(address);

	if (r == CUDA_SUCCESS) {
		forget(address);
	}
	return r;
}

static CUresult import_pointer(CUdeviceptr *ret, CUmemoryPool pool, CUmemPoolPtrExportData *data)
{
	return opened(shim_driver.cuMemPoolImportPointer(ret, pool, data), ret);
}

static CUresult import_external(CUexternalMemory *ret, const CUDA_EXTERNAL_MEMORY_HANDLE_DESC *d)
{
	CUresult r = shim_driver.cuImportExternalMemory(ret, d);

	if (r == CUDA_SUCCESS && shim_mem_joined()) {
		note((uint64_t)(uintptr_t)*ret, d->size);
	}
	return r;
}

static CUresult destroy_external(CUexternalMemory memory)
{
	CUresult r = shim_driver.cuDestroyExternalMemory(memory);

	if (r == CUDA_SUCCESS) {
		forget((uint64_t)(uintptr_t)memory);
	}
	return r;
}

void shim_mem_install_imports(void)
{
	shim_real.cuIpcOpenMemHandle = open_ipc_v1;
	shim_real.cuIpcOpenMemHandle_v2 = open_ipc;
	shim_real.cuIpcCloseMemHandle = close_ipc;
	shim_real.cuMemPoolImportPointer = import_pointer;
	shim_real.cuImportExternalMemory = import_external;
	shim_real.cuDestroyExternalMemory = destroy_external;
}
