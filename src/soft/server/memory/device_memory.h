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

struct client;
struct device;
struct gpu;
struct memory;

/* A memfd that device memory lies in. */
struct store {
	int fd;
	unsigned refs;
};

/* Device memory that more than one may use: an allocation that was exported, or the physical memory
 * of cuMemCreate. Charged to its GPU until the last reference goes; then the bytes go back. */
struct extent {
	struct store *store; /* a reference */
	struct gpu *gpu;
	uint64_t offset, bytes; /* in the store; whole pages */
	unsigned refs;		/* allocations, mappings, handles, tokens */
	struct memory *home;	/* the window it was allocated in; NULL: in none, or that is gone */
	uint32_t home_page;
	uint64_t secret[2]; /* whoever knows it may open it */
};

enum alloc_kind {
	ALLOC_DEVICE = SOFT_MEMORY_DEVICE,
	ALLOC_PINNED = SOFT_MEMORY_PINNED,
	ALLOC_OPENED,	/* maps an extent of another context */
	ALLOC_RESERVED, /* addresses only; mappings come and go in it */
	ALLOC_GONE,	/* freed, but its extent still has users: nobody else gets these pages */
};

struct alloc {
	uint32_t first; /* page of the window */
	uint32_t pages;
	uint64_t bytes;
	enum alloc_kind kind;
	struct extent *extent; /* OPENED, GONE, and DEVICE once it was exported; a reference */
};

/* In a reserved range. */
struct mapping {
	uint32_t first, pages;
	struct extent *extent; /* a reference */
};

/* The memory of one context. pages[] of the space is written under the lock and read by kernels
 * without it. */
struct memory {
	struct exec_space space;
	struct gpu *gpu; /* whose memory it is */
	struct store *store;
	uint8_t *pages;
	uint64_t device_pages; /* the first part of the window */
	uint64_t shared_page;  /* where the third part begins */
	struct alloc *allocs;  /* owned, sorted by page */
	struct mapping *maps;  /* owned, sorted by page */
	uint32_t pinned;       /* mappings of descriptors beside the store's */
	uint32_t n, cap;
	uint32_t n_maps, cap_maps;
	uint64_t device_bytes; /* of allocations of device memory */
};

/* memory.c. Sizes and addresses come from outside and are checked. */
uint64_t memory_window_bytes(uint64_t device_bytes, uint64_t pinned_bytes, uint64_t memory_bytes);
int memory_init(struct memory *m, struct gpu *gpu, uint32_t slot);
/* Lets go of the lock while pages are given back: nobody may find the context any more. */
void memory_finish(struct memory *m, struct device *dev);
/* Address, or 0: no room. fd: backing of pinned memory, -1 for device memory. */
uint64_t memory_alloc(struct memory *m, struct device *dev, uint64_t bytes,
		      enum soft_memory_kind kind, int fd);
int memory_free(struct memory *m, struct device *dev,
		uint64_t address); /* -ENOENT: not the start of an allocation */
/* Kernels and copies have these rights (1 read, 2 write) to the whole allocation from now on. */
int memory_restrict(struct memory *m, uint64_t address, uint8_t rights);
/* A large allocation goes in three steps, since giving pages back takes long: its addresses become
 * invalid, but nobody gets them; the pages go, without the lock, on the thread of its client, which
 * alone could destroy the context; and it is forgotten. leave: false when memory_free is to be
 * called. */
struct leaving {
	uint32_t first, pages;
	bool pinned;
};
bool memory_leave(struct memory *m, uint64_t address, struct leaving *ret);
void memory_leave_pages(const struct memory *m, const struct leaving *l);
void memory_left(struct memory *m, struct device *dev, const struct leaving *l);
/* Host address of a range that is valid with these rights (1 read, 2 write); NULL otherwise. */
void *memory_at(const struct memory *m, uint64_t address, uint64_t bytes, uint8_t rights);
/* The allocation that begins there, or NULL. */
struct alloc *memory_alloc_at(const struct memory *m, uint64_t address);

bool memory_charge(struct gpu *gpu, uint64_t bytes); /* false: more than the GPU has */
void memory_uncharge(struct gpu *gpu, uint64_t bytes);

/* Maps an extent somewhere: its address, or 0. Takes a reference of its own. */
uint64_t memory_open(struct memory *m, struct device *dev, struct extent *x, uint64_t bytes);
int memory_close(struct memory *m, struct device *dev, uint64_t address);
/* The extent of a plain allocation of device memory, made when there is none; NULL. */
struct extent *memory_share(struct memory *m, uint64_t address);
void memory_bury(struct memory *m, uint32_t page); /* of an extent that has gone */

/* Reserved ranges. Rights are per whole mapping. */
uint64_t memory_reserve(struct memory *m, uint64_t bytes, uint64_t align, uint64_t wish);
int memory_unreserve(struct memory *m, uint64_t address, uint64_t bytes);
int memory_map(struct memory *m, struct device *dev, uint64_t address, uint64_t bytes,
	       struct extent *x, uint64_t offset);
int memory_unmap(struct memory *m, struct device *dev, uint64_t address, uint64_t bytes);
int memory_access(struct memory *m, uint64_t address, uint64_t bytes, uint8_t rights);

/* share.c */
struct store *store_create(uint64_t bytes);
void store_punch(struct store *s, uint64_t offset, uint64_t bytes);
void store_unref(struct store *s); /* NULL allowed */
int store_leave(struct store *s); /* the descriptor, to be closed by who was the last user; or -1 */
struct extent *extent_create(struct gpu *gpu, uint64_t bytes); /* of its own store; charged */
struct extent *extent_of(struct store *s, struct gpu *gpu, uint64_t offset,
			 uint64_t bytes); /* charged already */
void extent_unref(struct extent *x);
/* A descriptor that stands for an extent, or for a pool (x NULL): holders of it may import, and it
 * keeps the extent alive. Or -errno. */
int token_create(struct client *c, struct extent *x, uint64_t pool, struct gpu *gpu);
/* What a descriptor that came in stands for, by its fstat; -ENOENT: nothing of ours. */
int token_find(const struct stat *st, struct extent **ret_extent, uint64_t *ret_pool,
	       struct gpu **ret_gpu);
uint64_t share_server(void); /* differs from server to server */
uint64_t share_count(void);  /* extents and tokens */
void share_client_gone(struct client *c);

#endif
