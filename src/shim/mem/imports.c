/* Memory of other processes that this one uses: IPC handles, pointers of imported pools, external
 * memory. It is charged to the process that made it, and shown as shared here, until it is closed.
 * (Imported handles of virtual memory: chunks.c.) */
#include "mem/region.h"
#include "shim/mem/charge.h"
#include "shim/mem/sharing.h"
#include "shim/mem/swap_region.h"
#include "shim/mem/swap_share.h"
#include "shim/shim.h"

static struct lock mutex = LOCK_INITIALIZER(MEM_IMPORTS);
/* By address or handle; count: how often it was opened. */
static struct mem_regions imports GUARDED_BY(mutex);
static uint32_t used; /* [atomic] the process has imported memory */

/* A region's row, and the number of its share (shim/mem/sharing.h) above it. */
#define ROW_BITS 8u

/* An import is closed, with the last use of it. row: of its region. */
static void closed(uint32_t row, uint64_t bytes)
{
	shim_mem_unshare((int)(row & ((1u << ROW_BITS) - 1)), bytes);
	shim_mem_unnote_share(row >> ROW_BITS);
}

/* Adds an import that the process did not have. id: NULL if it has none. */
static void add(struct mem_region *r, const struct shim_mem_identity *id) REQUIRES(mutex)
{
	uint32_t share = id ? shim_mem_note_import((int)r->row, *id, r->bytes) : SHIM_MEM_NO_SHARE;
	int row = (int)r->row;

	r->row |= share << ROW_BITS;
	if (mem_regions_add(&imports, r) < 0) {
		shim_mem_unnote_share(share);
		return;
	}
	shim_mem_share(row, r->bytes);
}

/* Notes that memory was opened. id: NULL if it has none. */
static void note(uint64_t key, uint64_t bytes, const struct shim_mem_identity *id)
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
	lock_take(&mutex);
	m = mem_regions_find(&imports, key);
	if (m) {
		m->count++;
	} else {
		add(&r, id);
	}
	lock_release(&mutex);
}

static void forget(uint64_t key)
{
	struct mem_region *m, gone = { 0 };

	if (!load_acquire(&used) || !shim_mem_joined()) {
		return;
	}
	lock_take(&mutex);
	m = mem_regions_find(&imports, key);
	if (m && m->count > 1) {
		m->count--;
	} else if (mem_regions_take(&imports, key, &gone)) {
		closed(gone.row, gone.bytes);
	}
	lock_release(&mutex);
}

void shim_mem_import_opened(CUdeviceptr address, uint64_t bytes, struct shim_mem_identity id)
{
	note(address, bytes, &id);
}

void shim_mem_import_freed(CUdeviceptr address)
{
	forget(address);
}

void shim_mem_imports_context_ended(CUcontext ctx, uint64_t epoch)
{
	struct mem_region m;
	size_t cursor = 0;

	lock_take(&mutex);
	while (mem_regions_take_owned(&imports, (uint64_t)(uintptr_t)ctx, epoch, &cursor, &m)) {
		closed(m.row, m.bytes);
	}
	lock_release(&mutex);
}

/* Notes the import of a handle of n bytes at an address. */
static CUresult opened(CUresult r, const CUdeviceptr *ret, const void *handle, size_t n)
{
	struct shim_mem_identity id;
	CUdeviceptr base;
	size_t bytes;

	if (r == CUDA_SUCCESS && shim_mem_joined() &&
	    shim_driver.cuMemGetAddressRange_v2(&base, &bytes, *ret) == CUDA_SUCCESS) {
		id = shim_mem_identity_of_handle(handle, n);
		note(*ret, bytes, &id);
	}
	return r;
}

/* A handle of gBPF's, for memory in chunks. */
static bool is_token(const CUipcMemHandle *handle)
{
	return shim_mem_joined() && shim_swap_is_token(handle);
}

static CUresult open_ipc(CUdeviceptr *ret, CUipcMemHandle handle, unsigned flags)
{
	if (is_token(&handle)) {
		return shim_swap_open(ret, &handle, flags);
	}
	return opened(shim_driver.cuIpcOpenMemHandle_v2(ret, handle, flags), ret, &handle,
		      sizeof(handle));
}

static CUresult open_ipc_v1(CUdeviceptr *ret, CUipcMemHandle handle, unsigned flags)
{
	if (is_token(&handle)) {
		return shim_swap_open(ret, &handle, flags);
	}
	return opened(shim_driver.cuIpcOpenMemHandle(ret, handle, flags), ret, &handle,
		      sizeof(handle));
}

static CUresult close_ipc(CUdeviceptr address)
{
	CUresult r;

	if (shim_swap_close(address, &r)) {
		return r;
	}
	r = shim_driver.cuIpcCloseMemHandle(address);
	if (r == CUDA_SUCCESS) {
		forget(address);
	}
	return r;
}

static CUresult import_pointer(CUdeviceptr *ret, CUmemoryPool pool, CUmemPoolPtrExportData *data)
{
	return opened(shim_driver.cuMemPoolImportPointer(ret, pool, data), ret, data,
		      sizeof(*data));
}

static CUresult import_external(CUexternalMemory *ret, const CUDA_EXTERNAL_MEMORY_HANDLE_DESC *d)
{
	CUresult r = shim_driver.cuImportExternalMemory(ret, d);

	if (r == CUDA_SUCCESS && shim_mem_joined()) {
		note((uint64_t)(uintptr_t)*ret, d->size, NULL);
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
	shim_swap_install_questions();
	shim_real.cuIpcOpenMemHandle = open_ipc_v1;
	shim_real.cuIpcOpenMemHandle_v2 = open_ipc;
	shim_real.cuIpcCloseMemHandle = close_ipc;
	shim_real.cuMemPoolImportPointer = import_pointer;
	shim_real.cuImportExternalMemory = import_external;
	shim_real.cuDestroyExternalMemory = destroy_external;
}
