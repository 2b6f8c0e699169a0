/* Memory that this process shares with others: notes in the account by which gbpfd finds those that
 * hold memory whose creator has exited (mem/account_shares.h). */
#ifndef GBPF_SHIM_MEM_SHARING_H
#define GBPF_SHIM_MEM_SHARING_H

#include <stdbool.h>
#include <stdint.h>

#include "cuabi/types.h"
#include "mem/region.h"

#define SHIM_MEM_NO_SHARE 0u

/* By what memory is known to its creator and to importers alike. */
struct shim_mem_identity {
	uint64_t id;
	bool is_vague; /* other memory may have the same */
};

/* That of a handle which the driver has made, of n bytes. */
struct shim_mem_identity shim_mem_identity_of_handle(const void *handle, size_t n);
/* That of a descriptor or fabric handle of virtual memory; without an id if it tells nothing. */
struct shim_mem_identity shim_mem_identity_of_shareable(const void *shareable,
							CUmemAllocationHandleType type);
/* That of memory of which only device and size are known. */
struct shim_mem_identity shim_mem_identity_of_size(int row, uint64_t bytes);

/* Notes that this process is charged for memory which it has exported, or that it has imported it.
 * Returns a number for shim_mem_unnote_share(); SHIM_MEM_NO_SHARE: there is no room. */
uint32_t shim_mem_note_export(int row, struct shim_mem_identity id, uint64_t bytes);
uint32_t shim_mem_note_import(int row, struct shim_mem_identity id, uint64_t bytes);
/* Notes memory of another process that was opened in the current context, until
 * shim_mem_import_freed(). */
void shim_mem_import_opened(CUdeviceptr address, uint64_t bytes, struct shim_mem_identity id);
void shim_mem_unnote_share(uint32_t share);

/* The memory at an address is about to be freed: takes what is noted of its export. Returns false
 * if it was not exported. _exports_end(): the driver has freed it, or (freed false) has refused. */
bool shim_mem_exports_begin_free(CUdeviceptr address, struct mem_region *ret);
void shim_mem_exports_end_free(const struct mem_region *m, bool freed);
void shim_mem_exports_context_ended(CUcontext ctx, uint64_t epoch);
void shim_mem_install_exports(void);

#endif
