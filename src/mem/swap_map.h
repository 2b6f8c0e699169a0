/* Memory that can leave the device: regions at reserved addresses, each of chunks of its own, which
 * are on the device or on the host. Only records: the caller moves the chunks. Not thread-safe: the
 * caller serializes. */
#ifndef GBPF_MEM_SWAP_MAP_H
#define GBPF_MEM_SWAP_MAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MEM_SWAP_UNIT (UINT64_C(2) << 20) /* of addresses and chunks, bytes */

enum mem_swap_place {
	MEM_SWAP_NOWHERE,
	MEM_SWAP_DEVICE,
	MEM_SWAP_HOST,
	MEM_SWAP_SHARED, /* on the device, where it stays: other processes may use it */
	MEM_SWAP_PEER,	 /* likewise: other devices of the process may */
	MEM_SWAP_PLACES
};

#define MEM_SWAP_KEY 16u /* bytes */
#define MEM_SWAP_GAPS 6u /* training uses weights three times in a step; twice that is known */

struct mem_advice_map;
struct mem_pack;

struct mem_swap_chunk {
	struct mem_swap_chunk *prev,
		*next; /* of those at its place, in the order in which they came or were used */
	struct mem_swap_region *region;
	uint64_t address, bytes; /* multiples of MEM_SWAP_UNIT */
	enum mem_swap_place place;
	uint64_t handle; /* the caller's: of device memory */
	/* The caller's: of host memory, and the address at which that is mapped as well. */
	uint64_t host, host_address;
	uint64_t copied; /* the caller's: since when the host's memory has had its bytes; 0: not */
	uint64_t used;	 /* number of its latest use; of the one before it was made, at first */
	uint32_t gap[MEM_SWAP_GAPS]; /* from one use to the next, the latest first; 0: none */
	double mean_gap;
	uint64_t due;	/* number of the use that is expected to be its next one; 0: not known */
	double urgency; /* by which the latest choice has ordered it */
	double worth;	/* what its uses would have cost on the host, the latest most; scaled */
	uint64_t lost;	/* what they have cost since it is there */
	/* In a region that the program maps: the lowest address in it that uses have named, and
	 * the latest of them; 0: none. */
	uint64_t named, named_use;
};

/* An allocation of the program. */
struct mem_swap_region {
	uint64_t base, bytes;  /* as the program has asked */
	uint64_t reserved;     /* bytes of addresses */
	uint64_t owner, epoch; /* the caller's: context, and when it was made */
	uint64_t id;	       /* the caller's */
	bool freed;	       /* the caller's: the program has freed it; it is not to move */
	uint32_t awaited;      /* the caller's: freed: events of several contexts, not reached */
	bool by_handle;	       /* the caller's: the program maps it, by a handle */
	bool was_mapped;       /* the caller's: the program may have written to it */
	bool imported;	       /* the caller's: of another process; its chunks are nowhere */
	uint32_t opens;	       /* the caller's: imported: uses by the program */
	uint32_t *opened;      /* the caller's: those of each address in a pack, by grain; owned */
	uint32_t share; /* the caller's: number of the note that other processes may use it */
	uint8_t key[MEM_SWAP_KEY]; /* the caller's: by which other processes know it; 0: none does
				    */
	uint32_t handle_types;	   /* the caller's: that the handle could be exported to */
	uint32_t pool;		   /* the caller's: number of what it was allocated from; 0: none */
	int row;		   /* the caller's: of the account */
	uint32_t slot;		   /* the caller's */
	struct mem_advice_map *advice; /* the caller's: of managed memory */
	struct mem_pack *pack;	       /* the caller's: of small allocations; NULL: it is one */
	int device;		       /* the caller's */
	uint32_t n;
	struct mem_swap_chunk chunk[];
};

struct mem_swap_list {
	struct mem_swap_chunk *first, *last;
	uint64_t bytes;
};

#define MEM_SWAP_ROWS 16u

struct mem_swap_map {
	struct mem_swap_region **region; /* owned, by base */
	size_t n, room;
	struct mem_swap_list at[MEM_SWAP_ROWS][MEM_SWAP_PLACES];
	uint64_t uses;	   /* number of the latest use */
	uint64_t unscaled; /* number of the use of which a cost of 1 is worth 1 */
};

/* Returns a region, of which no chunk has a place and which is in no map, or NULL: out of memory.
 * It consists of chunks of `large` bytes as long as these fit, then of `most`, and one of the rest.
 * The caller owns it, and frees it by free(). bytes is not 0; large and most are multiples of
 * MEM_SWAP_UNIT, and most is not greater. */
struct mem_swap_region *mem_swap_region_create(uint64_t bytes, uint64_t large, uint64_t most,
					       int row);
/* Gives the region and its chunks their addresses, which no other one has, and adds it; the map
 * owns it then. Returns 0 or -ENOMEM. */
int mem_swap_add(struct mem_swap_map *m, struct mem_swap_region *r, uint64_t base);
/* Returns the region whose bytes an address is in, or NULL. */
struct mem_swap_region *mem_swap_find(const struct mem_swap_map *m, uint64_t address);
/* Returns the region that has the address, or else the first one behind it, or NULL. */
struct mem_swap_region *mem_swap_next(const struct mem_swap_map *m, uint64_t address);
/* Removes a region, whose chunks have no place any more: the caller owns it. */
void mem_swap_remove(struct mem_swap_map *m, struct mem_swap_region *r);
/* Returns a region of that owner whose epoch is at most the given one, or NULL. */
struct mem_swap_region *mem_swap_of_owner(const struct mem_swap_map *m, uint64_t owner,
					  uint64_t epoch);
/* Moves a chunk of a region in the map to a place, as the last of those there. One that had no
 * place counts as used now, for the first time. */
void mem_swap_place(struct mem_swap_map *m, struct mem_swap_chunk *c, enum mem_swap_place place);

/* What a use of chunks costs on the host has any unit, the caller's, for each MEM_SWAP_UNIT. What
 * a chunk is worth is the sum over its uses, of which one counts half as much after another
 * MEM_SWAP_HALF_LIFE of them. */
#define MEM_SWAP_HALF_LIFE 16384u

/* What a use needs. */
struct mem_swap_need {
	uint64_t bytes, missing; /* of all chunks, and of those on the host */
	uint64_t lost;		 /* of the latter, by their bytes: sum over units */
	double worth;		 /* likewise; scaled */
};
/* Begins a use, m->uses. */
void mem_swap_begin_use(struct mem_swap_map *m);
/* Notes that it needs the chunks from that address on to the end of its region, until these have
 * that many bytes; they become the last ones at their places. Adds them to *n, unless the same use
 * has noted them before. r: the region of the address. What the program maps may contain many
 * allocations of its own, and one of these may lie in several regions, each of which begins where
 * the one before ends: there the use needs the chunks up to the next address that one of the last
 * MEM_SWAP_HALF_LIFE uses has named. Returns the bytes of the chunks that it has looked at: fewer
 * than `most` if it has come to an end. */
uint64_t mem_swap_use(struct mem_swap_map *m, struct mem_swap_region *r, uint64_t address,
		      uint64_t most, uint32_t cost, struct mem_swap_need *n);
/* Fills the list with chunks on the device of at most that size that were not used since that use
 * and are the least urgent, the least first, until they have that many bytes. Returns how many;
 * *ret_worth becomes the sum of what they are worth over their units. Only MEM_SWAP_SEARCHED chunks
 * are looked at, those that were not used for the longest time; chunks of freed regions are passed
 * over, and 16 of them count as one.
 *
 * A chunk is as urgent as it is worth. If uses have been as far apart before as its latest two, the
 * next one is expected as far on as the one that followed then: until that time the chunk is more
 * urgent by the mean of its gaps over what is left of this one. So of chunks that are used in turn
 * one leaves that was just used, not the one that is needed next. */
#define MEM_SWAP_SEARCHED 1024u
unsigned mem_swap_pick(const struct mem_swap_map *m, int row, uint64_t since, uint64_t bytes,
		       uint64_t largest, struct mem_swap_chunk *list[], unsigned room,
		       double *ret_worth);
/* Returns what the memory of a need is worth in comparison with what would leave for it, in
 * thousandths and at most 1e9; UINT64_MAX: the room suffices, in bytes. since: as above. Where more
 * leaves than MEM_SWAP_LEAVING chunks, the rest counts as worth as much for each byte. */
#define MEM_SWAP_LEAVING 64u
uint64_t mem_swap_ratio(const struct mem_swap_map *m, int row, const struct mem_swap_need *n,
			uint64_t room, uint64_t since);
/* The same as mem_swap_pick(), of chunks for which may() returns true. */
unsigned mem_swap_pick_if(const struct mem_swap_map *m, int row, uint64_t since, uint64_t bytes,
			  uint64_t largest,
			  bool (*may)(const struct mem_swap_chunk *c, uint64_t arg), uint64_t arg,
			  struct mem_swap_chunk *list[], unsigned room, double *ret_worth);

#endif
