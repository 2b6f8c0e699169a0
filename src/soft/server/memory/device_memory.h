/* The memory of clients, and memory shared by several of them. All contexts of a client on one GPU
 * share a window of device addresses in three parts: device memory, one memfd mapped from end to
 * end; pinned host memory, one memfd per allocation; and addresses mapped on demand: reserved
 * ranges with mappings in them, and memory imported from other processes. An allocation belongs to
 * a context and goes with it; reserved ranges and what is mapped there belong to the client. Only
 * device_memory.c, reserve.c and share.c map, unmap or change page rights. Everything is guarded by
 * the machine's lock. */
#ifndef GBPF_SOFT_SERVER_MEMORY_DEVICE_MEMORY_H
#define GBPF_SOFT_SERVER_MEMORY_DEVICE_MEMORY_H

#include <stdbool.h>
#include <stdint.h>

#include <sys/stat.h>

#include "soft/server/exec/exec.h"
#include "soft/server/machine_lock.h"
#include "soft/protocol.h"

struct softd_client;
struct softd_machine;
struct softd_gpu;
struct softd_memory;

/* A memfd that holds device memory. */
struct softd_store {
	int fd;
	unsigned refs;
};

/* Memory with several users: an exported allocation, or the physical memory of cuMemCreate. It is
 * charged to its GPU, or as pinned host memory, until the last reference is dropped. */
struct softd_extent {
	struct softd_store *store; /* a reference */
	struct softd_gpu *gpu;
	bool host;
	uint64_t offset, bytes; /* in the store; whole pages */
	unsigned refs;		/* allocations, mappings, handles, tokens */
	struct softd_memory
		*home; /* the window it was allocated in; NULL: none, or the client has gone */
	uint32_t home_page;
	uint64_t secret[2]; /* permits opening it */
	uint64_t maker;	    /* number of the client that has created it by cuMemCreate; 0: none */
	uint64_t walk;	    /* request_device.c: the last one that has counted it */
};

enum softd_alloc_kind {
	SOFTD_ALLOC_DEVICE = SOFT_MEMORY_DEVICE,
	SOFTD_ALLOC_PINNED = SOFT_MEMORY_PINNED,
	SOFTD_ALLOC_OPENED,   /* maps an extent of another context */
	SOFTD_ALLOC_RESERVED, /* addresses only; mappings come and go in it */
	SOFTD_ALLOC_ORPHAN,   /* freed, but its extent still has users: the pages must not be reused
			       */
};

#define SOFTD_NO_OWNER SOFT_MAX_CONTEXTS

struct softd_alloc {
	uint32_t first; /* page of the window */
	uint32_t pages;
	uint64_t bytes;
	enum softd_alloc_kind kind;
	uint32_t owner;		     /* slot of the context, or SOFTD_NO_OWNER */
	struct softd_extent *extent; /* OPENED, ORPHAN, and DEVICE once exported; a reference */
	uint64_t serial;	     /* different for each allocation of the window */
};

/* A mapping in a reserved range. */
struct softd_mapping {
	uint32_t first, pages;
	struct softd_extent *extent; /* a reference */
};

/* The memory of one client on one GPU. pages[] of the space is written under the lock and read by
 * kernels without it. */
struct softd_memory {
	struct exec_space space;
	struct softd_gpu *gpu; /* the GPU that is charged */
	struct softd_store *store;
	uint8_t *pages;
	uint64_t device_pages;	    /* the first part of the window */
	uint64_t shared_page;	    /* first page of the third part */
	struct softd_alloc *allocs; /* owned, sorted by page */
	struct softd_mapping *maps; /* owned, sorted by page */
	uint32_t pinned;	    /* mappings of descriptors other than the store */
	uint32_t n, cap;
	uint64_t serials; /* the last one given out */
	uint32_t n_maps, cap_maps;
	uint64_t owned_bytes[SOFT_MAX_CONTEXTS]; /* bytes of device memory allocations */
};

/* device_memory.c. Sizes and addresses come from clients and are checked here. */
uint64_t softd_memory_window_bytes(uint64_t device_bytes, uint64_t pinned_bytes,
				   uint64_t memory_bytes);
int softd_memory_init(struct softd_memory *m, struct softd_gpu *gpu) REQUIRES(softd_lock);
/* Frees everything. Releases the lock while pages are given back, so the client must not be
 * reachable any more. */
void softd_memory_finish(struct softd_memory *m, struct softd_machine *machine)
	REQUIRES(softd_lock);
/* Frees what belongs to a context. Releases the lock while pages are given back; the context must
 * not allocate any more. */
void softd_memory_drop(struct softd_memory *m, struct softd_machine *machine, uint32_t owner)
	REQUIRES(softd_lock);
/* Returns a device address, or 0 if there is no room. fd: the backing of pinned memory, -1 for
 * device memory. */
uint64_t softd_memory_alloc(struct softd_memory *m, struct softd_machine *machine, uint32_t owner,
			    uint64_t bytes, enum soft_memory_kind kind, int fd)
	REQUIRES(softd_lock);
/* Returns the slot of the context that the address belongs to, or SOFTD_NO_OWNER. */
uint32_t softd_memory_owner(const struct softd_memory *m, uint64_t address) REQUIRES(softd_lock);
/* Returns the serial of the allocation that the address belongs to, or 0. */
uint64_t softd_memory_serial(const struct softd_memory *m, uint64_t address) REQUIRES(softd_lock);
/* Returns 0, or -ENOENT if no allocation begins there. */
int softd_memory_free(struct softd_memory *m, struct softd_machine *machine, uint64_t address)
	REQUIRES(softd_lock);
/* Sets the rights (1 read, 2 write) of kernels and copies to a whole allocation. */
int softd_memory_restrict(struct softd_memory *m, uint64_t address, uint8_t rights)
	REQUIRES(softd_lock);
/* Has pinned memory count as the GPU's own, which it reaches without its link. */
void softd_memory_take_local(struct softd_memory *m, uint64_t address) REQUIRES(softd_lock);
/* Returns true if the page of an address in the window is memory of the host. */
bool softd_memory_on_host(const struct softd_memory *m, uint64_t address) REQUIRES(softd_lock);
/* Frees a large allocation in three steps, because giving pages back takes long. begin makes its
 * addresses invalid but keeps them reserved; pages gives the pages back without the lock, on the
 * thread of its client, the only one that could destroy the window; end removes the allocation.
 * begin returns false if softd_memory_free is to be called instead. */
struct softd_release {
	uint32_t first, pages;
	bool pinned;
};
bool softd_memory_release_begin(struct softd_memory *m, uint64_t address, struct softd_release *ret)
	REQUIRES(softd_lock);
void softd_memory_release_pages(const struct softd_memory *m, const struct softd_release *l);
void softd_memory_release_end(struct softd_memory *m, struct softd_machine *machine,
			      const struct softd_release *l) REQUIRES(softd_lock);
/* Returns the host address of a range that is valid with these rights (1 read, 2 write), or NULL.
 */
void *softd_memory_at(const struct softd_memory *m, uint64_t address, uint64_t bytes,
		      uint8_t rights) REQUIRES(softd_lock);
/* Returns the allocation that begins at address, or NULL. */
struct softd_alloc *softd_memory_alloc_at(const struct softd_memory *m, uint64_t address)
	REQUIRES(softd_lock);

/* Returns false if the bytes exceed the GPU's memory. */
bool softd_memory_charge(struct softd_gpu *gpu, uint64_t bytes) REQUIRES(softd_lock);
void softd_memory_uncharge(struct softd_gpu *gpu, uint64_t bytes) REQUIRES(softd_lock);

/* Maps an extent and takes a reference of its own. Returns the device address, or 0. */
uint64_t softd_memory_open_extent(struct softd_memory *m, struct softd_machine *machine,
				  uint32_t owner, struct softd_extent *x, uint64_t bytes)
	REQUIRES(softd_lock);
int softd_memory_close_extent(struct softd_memory *m, struct softd_machine *machine,
			      uint64_t address) REQUIRES(softd_lock);
/* Returns the extent of a plain allocation of device memory, created on demand; NULL if there is
 * none. */
struct softd_extent *softd_memory_export(struct softd_memory *m, uint64_t address)
	REQUIRES(softd_lock);
/* Frees the pages of a dropped extent. */
void softd_memory_reclaim(struct softd_memory *m, uint32_t page) REQUIRES(softd_lock);

/* Reserved ranges. Rights are per whole mapping; mappings of host memory are marked as reached over
 * the link. */
uint64_t softd_memory_reserve(struct softd_memory *m, uint64_t bytes, uint64_t align, uint64_t wish)
	REQUIRES(softd_lock);
/* Stores the reserved range that a mapped address lies in. */
void softd_memory_reservation(const struct softd_memory *m, uint64_t address, uint64_t *ret_address,
			      uint64_t *ret_bytes) REQUIRES(softd_lock);
int softd_memory_unreserve(struct softd_memory *m, uint64_t address, uint64_t bytes)
	REQUIRES(softd_lock);
int softd_memory_map(struct softd_memory *m, struct softd_machine *machine, uint64_t address,
		     uint64_t bytes, struct softd_extent *x, uint64_t offset) REQUIRES(softd_lock);
int softd_memory_unmap(struct softd_memory *m, struct softd_machine *machine, uint64_t address,
		       uint64_t bytes) REQUIRES(softd_lock);
int softd_memory_set_access(struct softd_memory *m, uint64_t address, uint64_t bytes,
			    uint8_t rights) REQUIRES(softd_lock);

/* share.c */
struct softd_store *softd_store_create(uint64_t bytes);
void softd_store_discard(struct softd_store *s, uint64_t offset, uint64_t bytes);
void softd_store_unref(struct softd_store *s) REQUIRES(softd_lock); /* NULL allowed */
/* Returns the descriptor for the caller to close, or -1 if the store has other users. */
int softd_store_unref_take_fd(struct softd_store *s) REQUIRES(softd_lock);
/* In a store of its own; charged to the GPU, or as pinned memory of the host. */
struct softd_extent *softd_extent_create(struct softd_gpu *gpu, uint64_t bytes, bool host)
	REQUIRES(softd_lock);
/* Of bytes that are already charged. */
struct softd_extent *softd_extent_wrap(struct softd_store *s, struct softd_gpu *gpu,
				       uint64_t offset, uint64_t bytes) REQUIRES(softd_lock);
void softd_extent_unref(struct softd_extent *x) REQUIRES(softd_lock);
/* Creates a descriptor that represents an extent, or a pool if x is NULL. Its holders may import
 * that; it keeps the extent alive. Returns the descriptor or -Exxx. */
int softd_token_create(struct softd_client *c, struct softd_extent *x, uint64_t pool,
		       struct softd_gpu *gpu) REQUIRES(softd_lock);
/* Finds what a received descriptor represents, by its fstat. Returns 0, or -ENOENT if it is no
 * token. */
int softd_token_find(const struct stat *st, struct softd_extent **ret_extent, uint64_t *ret_pool,
		     struct softd_gpu **ret_gpu) REQUIRES(softd_lock);
uint64_t softd_share_server_id(void); /* random, different for each server */
/* Returns the number of extents and tokens. */
uint64_t softd_share_count(void) REQUIRES(softd_lock);
void softd_share_client_exit(struct softd_client *c) REQUIRES(softd_lock);

#endif
