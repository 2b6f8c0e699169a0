/* The memory of contexts, and memory that several of them share.
 *
 * A context has a window of device addresses in three parts: device memory, which is one memfd that
 * lies there from end to end; pinned host memory, a memfd for each; and room for what is mapped on
 * demand: reserved address ranges with mappings in them, and memory that other processes have
 * exported. Nothing outside memory.c, reserve.c and share.c maps, unmaps or sets a page's rights.
 * Everything here is guarded by device.lock. */
#ifndef GBPF_SOFT_SERVER_MEMORY_DEVICE_MEMORY_H
#define GBPF_SOFT_SERVER_MEMORY_DEVICE_MEMORY_H

#include <stdbool.h>
#include <stdint.h>

#include <sys/stat.h>

#include "soft/server/exec/exec.h"
#include "soft/protocol.h"

struct softd_client;
struct softd_machine;
struct softd_gpu;
struct softd_memory;

/* A memfd that device memory lies in. */
struct softd_store {
	int fd;
	unsigned refs;
};

/* Device memory that more than one may use: an allocation that was exported, or the physical memory
 * of cuMemCreate. Charged to its GPU until the last reference goes; then the bytes go back. */
struct softd_extent {
	struct softd_store *store; /* a reference */
	struct softd_gpu *gpu;
	uint64_t offset, bytes; /* in the store; whole pages */
	unsigned refs;		/* allocations, mappings, handles, tokens */
	struct softd_memory
		*home; /* the window it was allocated in; NULL: in none, or that is gone */
	uint32_t home_page;
	uint64_t secret[2]; /* whoever knows it may open it */
};

enum softd_alloc_kind {
	ALLOC_DEVICE = SOFT_MEMORY_DEVICE,
	ALLOC_PINNED = SOFT_MEMORY_PINNED,
	ALLOC_OPENED,	/* maps an extent of another context */
	ALLOC_RESERVED, /* addresses only; mappings come and go in it */
	ALLOC_ORPHAN,	/* freed, but its extent still has users: nobody else gets these pages */
};

struct softd_alloc {
	uint32_t first; /* page of the window */
	uint32_t pages;
	uint64_t bytes;
	enum softd_alloc_kind kind;
	struct softd_extent
		*extent; /* OPENED, GONE, and DEVICE once it was exported; a reference */
};

/* In a reserved range. */
struct softd_mapping {
	uint32_t first, pages;
	struct softd_extent *extent; /* a reference */
};

/* The memory of one context. pages[] of the space is written under the lock and read by kernels
 * without it. */
struct softd_memory {
	struct exec_space space;
	struct softd_gpu *gpu; /* whose memory it is */
	struct softd_store *store;
	uint8_t *pages;
	uint64_t device_pages;	    /* the first part of the window */
	uint64_t shared_page;	    /* where the third part begins */
	struct softd_alloc *allocs; /* owned, sorted by page */
	struct softd_mapping *maps; /* owned, sorted by page */
	uint32_t pinned;	    /* mappings of descriptors beside the store's */
	uint32_t n, cap;
	uint32_t n_maps, cap_maps;
	uint64_t device_bytes; /* of allocations of device memory */
};

/* memory.c. Sizes and addresses come from outside and are checked. */
uint64_t softd_memory_window_bytes(uint64_t device_bytes, uint64_t pinned_bytes,
				   uint64_t memory_bytes);
int softd_memory_init(struct softd_memory *m, struct softd_gpu *gpu, uint32_t slot);
/* Lets go of the lock while pages are given back: nobody may find the context any more. */
void softd_memory_finish(struct softd_memory *m, struct softd_machine *machine);
/* Address, or 0: no room. fd: backing of pinned memory, -1 for device memory. */
uint64_t softd_memory_alloc(struct softd_memory *m, struct softd_machine *machine, uint64_t bytes,
			    enum soft_memory_kind kind, int fd);
int softd_memory_free(struct softd_memory *m, struct softd_machine *machine,
		      uint64_t address); /* -ENOENT: not the start of an allocation */
/* Kernels and copies have these rights (1 read, 2 write) to the whole allocation from now on. */
int softd_memory_restrict(struct softd_memory *m, uint64_t address, uint8_t rights);
/* A large allocation goes in three steps, since giving pages back takes long: its addresses become
 * invalid, but nobody gets them; the pages go, without the lock, on the thread of its client, which
 * alone could destroy the context; and it is forgotten. leave: false when memory_free is to be
 * called. */
struct softd_release {
	uint32_t first, pages;
	bool pinned;
};
bool softd_memory_release_begin(struct softd_memory *m, uint64_t address,
				struct softd_release *ret);
void softd_memory_release_pages(const struct softd_memory *m, const struct softd_release *l);
void softd_memory_release_end(struct softd_memory *m, struct softd_machine *machine,
			      const struct softd_release *l);
/* Host address of a range that is valid with these rights (1 read, 2 write); NULL otherwise. */
void *softd_memory_at(const struct softd_memory *m, uint64_t address, uint64_t bytes,
		      uint8_t rights);
/* The allocation that begins there, or NULL. */
struct softd_alloc *softd_memory_alloc_at(const struct softd_memory *m, uint64_t address);

bool softd_memory_charge(struct softd_gpu *gpu, uint64_t bytes); /* false: more than the GPU has */
void softd_memory_uncharge(struct softd_gpu *gpu, uint64_t bytes);

/* Maps an extent somewhere: its address, or 0. Takes a reference of its own. */
uint64_t softd_memory_open_extent(struct softd_memory *m, struct softd_machine *machine,
				  struct softd_extent *x, uint64_t bytes);
int softd_memory_close_extent(struct softd_memory *m, struct softd_machine *machine,
			      uint64_t address);
/* The extent of a plain allocation of device memory, made when there is none; NULL. */
struct softd_extent *softd_memory_export(struct softd_memory *m, uint64_t address);
void softd_memory_reclaim(struct softd_memory *m, uint32_t page); /* of an extent that has gone */

/* Reserved ranges. Rights are per whole mapping. */
uint64_t softd_memory_reserve(struct softd_memory *m, uint64_t bytes, uint64_t align,
			      uint64_t wish);
int softd_memory_unreserve(struct softd_memory *m, uint64_t address, uint64_t bytes);
int softd_memory_map(struct softd_memory *m, struct softd_machine *machine, uint64_t address,
		     uint64_t bytes, struct softd_extent *x, uint64_t offset);
int softd_memory_unmap(struct softd_memory *m, struct softd_machine *machine, uint64_t address,
		       uint64_t bytes);
int softd_memory_set_access(struct softd_memory *m, uint64_t address, uint64_t bytes,
			    uint8_t rights);

/* share.c */
struct softd_store *softd_store_create(uint64_t bytes);
void softd_store_discard(struct softd_store *s, uint64_t offset, uint64_t bytes);
void softd_store_unref(struct softd_store *s); /* NULL allowed */
int softd_store_unref_take_fd(
	struct softd_store *s); /* the descriptor, to be closed by who was the last user; or -1 */
struct softd_extent *softd_extent_create(struct softd_gpu *gpu,
					 uint64_t bytes); /* of its own store; charged */
struct softd_extent *softd_extent_wrap(struct softd_store *s, struct softd_gpu *gpu,
				       uint64_t offset, uint64_t bytes); /* charged already */
void softd_extent_unref(struct softd_extent *x);
/* A descriptor that stands for an extent, or for a pool (x NULL): holders of it may import, and it
 * keeps the extent alive. Or -errno. */
int softd_token_create(struct softd_client *c, struct softd_extent *x, uint64_t pool,
		       struct softd_gpu *gpu);
/* What a descriptor that came in stands for, by its fstat; -ENOENT: nothing of ours. */
int softd_token_find(const struct stat *st, struct softd_extent **ret_extent, uint64_t *ret_pool,
		     struct softd_gpu **ret_gpu);
uint64_t softd_share_server_id(void); /* differs from server to server */
uint64_t softd_share_count(void);     /* extents and tokens */
void softd_share_client_exit(struct softd_client *c);

#endif
