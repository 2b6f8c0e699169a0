/* What the driver takes for arrays of a shape, learned from what a device's free memory decreases
 * by while such arrays are made. Other allocations and frees at that moment falsify single figures.
 * A figure that is seen twice, and is the smallest such, is taken for the truth: allocations of
 * others only make figures larger, and frees rarely make the same smaller figure twice. Not
 * thread-safe. */
#ifndef GBPF_MEM_LAYOUT_H
#define GBPF_MEM_LAYOUT_H

#include <stdbool.h>
#include <stdint.h>

#define MEM_LAYOUTS 256u /* shapes that are remembered; further ones replace older ones */

struct mem_layout {
	uint64_t shape; /* the caller's number of a shape; 0: free */
	uint64_t known; /* bytes, seen twice; 0: not yet */
	uint64_t least; /* smallest figure so far */
};

struct mem_layouts {
	struct mem_layout entry[MEM_LAYOUTS]; /* zero-initialized by the caller */
};

/* Returns what arrays of a shape take, bytes; 0: not known yet. */
uint64_t mem_layout_known(const struct mem_layouts *t, uint64_t shape);
/* Notes a figure, at least 1. Returns true if what is known has changed: to that figure. */
bool mem_layout_note(struct mem_layouts *t, uint64_t shape, uint64_t bytes);

#endif
