/* Managed memory that can leave the device, for swap_managed.c and managed_moves.c.
 *
 * A chunk is a part of an allocation of the driver's. It is on the device if it is charged there,
 * wherever its pages are, and otherwise on the host: its pages are there, and advice of gBPF's
 * keeps them there. */
#ifndef GBPF_SHIM_MEM_MANAGED_INT_H
#define GBPF_SHIM_MEM_MANAGED_INT_H

#include "shim/mem/swap_managed.h"

/* A chunk's handle is 1 while it is charged to the device, its host while it is to swap. */

/* The device has been charged for a chunk. */
void shim_managed_on_device(struct mem_swap_chunk *c);
/* Release a charge of a chunk, if there is one. */
void shim_managed_release_device(struct mem_swap_chunk *c);
void shim_managed_release_host(struct mem_swap_chunk *c);
/* Charges a chunk to swap. Returns false without room. */
bool shim_managed_charge_host(struct mem_swap_chunk *c) REQUIRES(shim_swap_mutex);
/* Moves a chunk of a region in the map to a place, and shows what its row has at each. */
void shim_managed_place(struct mem_swap_chunk *c, enum mem_swap_place to) REQUIRES(shim_swap_mutex);
/* Returns the bytes of a chunk that belong to the allocation. */
static inline uint64_t shim_managed_bytes(const struct mem_swap_chunk *c)
{
	return MIN(c->bytes, c->region->bytes - (c->address - c->region->base));
}
/* Has a chunk stay on the host once it is there, and be used there by the device. The program's own
 * advice is taken back: read-mostly memory would have copies on the device. Returns the driver's
 * error. */
CUresult shim_managed_keep(const struct mem_swap_chunk *c);

#endif
