/* The memory of a tenant that can leave the device, and the link over which it moves: a model of
 * time. Which chunks a launch needs and which leave for them is decided by mem/swap_map.h, as in a
 * program under gBPF; instead of copies there are durations. Movement in one direction takes its
 * bytes divided by the rate of the link; both directions work at the same time, and a chunk that
 * needs the room of others comes after them. Does not read the clock or run programs. */
#ifndef GBPF_SIM_SIM_MEMORY_H
#define GBPF_SIM_SIM_MEMORY_H

#include <stdbool.h>
#include <stdint.h>

#include "mem/swap_map.h"

/* As in the processes (shim/mem): the sizes of chunks, what moves in one pause at most, and what a
 * launch names at most, also by a region that is larger than the limit. */
#define SIM_CHUNK (UINT64_C(16) << 20)
#define SIM_CHUNK_MAX (UINT64_C(64) << 20)
#define SIM_LARGE (4 * SIM_CHUNK_MAX) /* from here on a region has chunks of the latter size */
#define SIM_BATCH 64u
#define SIM_BATCH_BYTES (UINT64_C(1) << 30)
#define SIM_NAMED_MAX (UINT64_C(64) << 30)
#define SIM_NAMED_LARGE SIM_BATCH_BYTES

#define SIM_MIB (UINT64_C(1) << 20)

/* An H200's, of docs/BENCHMARKS.md (movement in chunks of 64 MiB) and docs/MEMORY.md (reads in
 * place); bytes per second. */
#define SIM_OUT_RATE UINT64_C(45300000000)
#define SIM_BACK_RATE UINT64_C(51900000000)
#define SIM_IN_PLACE_RATE UINT64_C(51000000000)
#define SIM_RATE_MIN (256 * SIM_MIB)
#define SIM_RATE_MAX (UINT64_C(1) << 50)

/* Bytes per second: to the host, to the device, and of launches that read memory of the host. */
struct sim_link {
	uint64_t out, back, in_place;
};

/* Bytes that the limit leaves on the device, and swap on the host. Calls that move memory change
 * both. */
struct sim_room {
	uint64_t device, host;
};

/* Of one process on one GPU. All zero: no regions. */
struct sim_memory {
	struct mem_swap_map map; /* all regions have row 0 */
	uint64_t next_base;
	uint64_t out_bytes, back_bytes; /* that have moved */
};

void sim_memory_finish(struct sim_memory *m);
/* Returns the time that bytes take at a rate, in nanoseconds. */
uint64_t sim_memory_time(uint64_t bytes, uint64_t rate);
uint64_t sim_memory_at(const struct sim_memory *m, enum mem_swap_place place);
uint64_t sim_memory_region_at(const struct mem_swap_region *r, enum mem_swap_place place);
/* Makes a region. Where the device has no room for it, what is worth least leaves, unless busy; the
 * rest of it lies on the host. Returns 0, -ENOMEM, or -ENOSPC if the host has no room for that:
 * then there is no region, but what has left does not come back. *ret_ns: the time of the movement.
 * The map owns the region. */
int sim_memory_add(struct sim_memory *m, uint64_t bytes, bool busy, const struct sim_link *l,
		   struct sim_room *room, struct mem_swap_region **ret, uint64_t *ret_ns);
void sim_memory_remove(struct sim_memory *m, struct mem_swap_region *r);
/* Brings chunks back into the room, those that were used last first, as many as move in one pause.
 * Returns the time of the movement. */
uint64_t sim_memory_fill(struct sim_memory *m, const struct sim_link *l, struct sim_room *room);
/* Returns the time that it takes to bring missing bytes back into that room. */
uint64_t sim_memory_move_ns(const struct sim_link *l, uint64_t missing, uint64_t room);
/* Brings back what that use and later ones have named, and moves out what is worth least, in one
 * pause; repeat until it returns false: nothing has come back. Adds the time to *ns. */
bool sim_memory_fetch_once(struct sim_memory *m, uint64_t use, const struct sim_link *l,
			   struct sim_room *room, uint64_t *ns);
/* Returns true if memory that the use has named is on the host. */
bool sim_memory_is_missing(const struct sim_memory *m, uint64_t use);

#endif
