/* Memory that this process shares with others (shim/mem/sharing.h): exports of linear memory and of
 * pools' memory. (Descriptors of virtual memory: chunks.c. Imports: imports.c and chunks.c.) */
#include "shim/mem/sharing.h"

#include <linux/magic.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include "mem/account_shares.h"
#include "shim/mem/charge.h"
#include "shim/shim.h"

#define FABRIC_BYTES 64u /* CUmemFabricHandle */

static struct lock mutex = LOCK_INITIALIZER(MEM_SHARING);
static struct mem_regions exports GUARDED_BY(mutex); /* by address; bytes: the share's number */
static uint32_t used;				     /* [atomic] the process has exported memory */

/* ---- identities ---- */

/* Two rounds of a multiplicative hash for each word, so that handles which differ in any bit have
 * different identities in practice. What a tenant makes equal on purpose harms itself alone. */
static uint64_t mix(uint64_t h, uint64_t word)
{
	h = (h ^ word) * UINT64_C(0xff51afd7ed558ccd);
	h ^= h >> 32;
	h *= UINT64_C(0xc4ceb9fe1a85ec53);
	return h ^ h >> 29;
}

struct shim_mem_identity shim_mem_identity_of_handle(const void *handle, size_t n)
{
	uint64_t h = n, word;

	for (size_t i = 0; i + sizeof(word) <= n; i += sizeof(word)) {
		memcpy(&word, (const char *)handle + i, sizeof(word));
		h = mix(h, word);
	}
	return (struct shim_mem_identity){ h, false };
}

/* Returns true if the file is the memory's own: all descriptors of one device node have its number,
 * and all files without a name that the kernel makes for drivers have one as well. */
static bool has_own_number(int fd, const struct stat *st)
{
	struct statfs fs;

	return !S_ISCHR(st->st_mode) && fstatfs(fd, &fs) == 0 && fs.f_type != ANON_INODE_FS_MAGIC;
}

struct shim_mem_identity shim_mem_identity_of_shareable(const void *shareable,
							CUmemAllocationHandleType type)
{
	int fd = (int)(intptr_t)shareable;
	struct stat st;

	if (type == CU_MEM_HANDLE_TYPE_FABRIC) {
		return shim_mem_identity_of_handle(shareable, FABRIC_BYTES);
	}
	if (fstat(fd, &st) == 0 && has_own_number(fd, &st)) {
		return (struct shim_mem_identity){ mix(mix(1, st.st_dev), st.st_ino), false };
	}
	return (struct shim_mem_identity){ 0, true };
}

struct shim_mem_identity shim_mem_identity_of_size(int row, uint64_t bytes)
{
	const struct proto_account *page = shim_mem_account();
	uint64_t uuid[2] = { 0 };

	if (page) {
		memcpy(uuid, page->uuid[row], sizeof(uuid));
	}
	return (struct shim_mem_identity){ mix(mix(mix(2, uuid[0]), uuid[1]), bytes), true };
}

/* ---- notes ---- */

static uint32_t note(int row, enum mem_share_kind kind, struct shim_mem_identity id, uint64_t bytes)
{
	int n = mem_share_add(shim_mem_ledger(), (uint32_t)row, kind, id.is_vague, id.id,
			      shim_mem_round(bytes));

	return n < 0 ? SHIM_MEM_NO_SHARE : (uint32_t)n + 1;
}

uint32_t shim_mem_note_export(int row, struct shim_mem_identity id, uint64_t bytes)
{
	/* One claim is enough for all memory of the same size. */
	if (id.is_vague && mem_share_has_claim(shim_mem_ledger(), id.id)) {
		return SHIM_MEM_NO_SHARE;
	}
	return note(row, MEM_SHARE_CLAIM, id, bytes);
}

uint32_t shim_mem_note_import(int row, struct shim_mem_identity id, uint64_t bytes)
{
	uint32_t share = note(row, MEM_SHARE_IMPORT, id, bytes);

	/* Its creator may be in another vGPU, in none, or may have exited. */
	if (share && !mem_share_is_answered(shim_mem_account(), share - 1)) {
		shim_mem_tell_shares(row);
	}
	return share;
}

void shim_mem_unnote_share(uint32_t share)
{
	if (share && shim_mem_joined() && mem_share_drop(shim_mem_ledger(), share - 1)) {
		shim_mem_tell_shares(0);
	}
}

/* ---- exports ---- */

/* Notes an export of the allocation at an address. Without room for the note, importers are charged
 * for the memory as well. */
static void exported(CUdeviceptr address, const void *handle, size_t n)
{
	struct shim_mem_identity id = shim_mem_identity_of_handle(handle, n);
	struct mem_region *m, r = { .count = 1 };
	int row = shim_mem_row_current();
	CUcontext ctx = NULL;
	CUdeviceptr base;
	size_t bytes;

	if (row < 0 || shim_driver.cuMemGetAddressRange_v2(&base, &bytes, address)) {
		return;
	}
	r.key = base;
	(void)shim_driver.cuCtxGetCurrent(&ctx);
	r.owner = (uint64_t)(uintptr_t)ctx;
	r.epoch = shim_mem_epoch();
	store_release(&used, 1u);
	lock_take(&mutex);
	m = mem_regions_find(&exports, r.key);
	if (!m || mem_share_at(shim_mem_account(), (uint32_t)m->bytes - 1).id != id.id) {
		r.bytes = shim_mem_note_export(row, id, bytes);
		if (r.bytes && m) {
			*m = r; /* the old claim stays: its importers may live */
		} else if (r.bytes && mem_regions_add(&exports, &r) < 0) {
			shim_mem_unnote_share((uint32_t)r.bytes);
		}
	}
	lock_release(&mutex);
}

bool shim_mem_exports_begin_free(CUdeviceptr address, struct mem_region *ret)
{
	bool known;

	if (!load_acquire(&used) || !shim_mem_joined()) {
		return false;
	}
	lock_take(&mutex);
	known = mem_regions_take(&exports, address, ret);
	lock_release(&mutex);
	return known;
}

void shim_mem_exports_end_free(const struct mem_region *m, bool freed)
{
	bool kept = false;

	if (!freed) {
		lock_take(&mutex);
		kept = mem_regions_add(&exports, m) == 0;
		lock_release(&mutex);
	}
	if (!kept) {
		shim_mem_unnote_share((uint32_t)m->bytes);
	}
}

void shim_mem_exports_context_ended(CUcontext ctx, uint64_t epoch)
{
	struct mem_region m;
	size_t cursor = 0;

	lock_take(&mutex);
	while (mem_regions_take_owned(&exports, (uint64_t)(uintptr_t)ctx, epoch, &cursor, &m)) {
		shim_mem_unnote_share((uint32_t)m.bytes);
	}
	lock_release(&mutex);
}

static CUresult get_ipc(CUipcMemHandle *ret, CUdeviceptr address)
{
	CUresult r = shim_driver.cuIpcGetMemHandle(ret, address);

	if (r == CUDA_SUCCESS && shim_mem_joined()) {
		exported(address, ret, sizeof(*ret));
	}
	return r;
}

static CUresult export_pointer(CUmemPoolPtrExportData *ret, CUdeviceptr address)
{
	CUresult r = shim_driver.cuMemPoolExportPointer(ret, address);

	if (r == CUDA_SUCCESS && shim_mem_joined()) {
		exported(address, ret, sizeof(*ret));
	}
	return r;
}

void shim_mem_install_exports(void)
{
	shim_real.cuIpcGetMemHandle = get_ipc;
	shim_real.cuMemPoolExportPointer = export_pointer;
}
