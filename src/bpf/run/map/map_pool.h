/* The elements of a map: preallocated, claimed and freed without locks. The first word of an
 * element holds its state; the bits of the pool are hints to free elements. A search of the
 * elements themselves finds those that were lost with a killed process. */
#ifndef GBPF_BPF_RUN_MAP_MAP_POOL_H
#define GBPF_BPF_RUN_MAP_MAP_POOL_H

#include "bpf/run/map/map_int.h"

/* Returns the size in bytes of a pool of n elements. */
uint32_t ebpf_pool_bytes(uint32_t n);

/* Returns whether an element in a state other than FREE and CLAIMED is lost: nothing refers to it,
 * and its owner, if alive, can no longer link it once its word has changed. */
typedef int (*ebpf_pool_lost_fn)(const struct ebpf_map *m, uint32_t i, uint64_t link);

/* Claims an element and returns its index, or -1 if none is free. *ret_link is its current word,
 * which the owner changes only by compare-and-exchange. Bounded. */
int ebpf_pool_claim(const struct ebpf_map *m, ebpf_pool_lost_fn lost, uint64_t *ret_link);
/* Like ebpf_pool_claim(), but does not search for lost elements. */
int ebpf_pool_claim_quick(const struct ebpf_map *m, uint64_t *ret_link);
/* Takes over element i if it is free or lost. Returns 1 or 0. */
int ebpf_pool_take(const struct ebpf_map *m, uint32_t i, ebpf_pool_lost_fn lost,
		   uint64_t *ret_link);
/* Changes the word of an element that the caller has claimed. Returns 0 if another thread took it.
 */
int ebpf_pool_change(const struct ebpf_map *m, uint32_t i, uint64_t *link, uint32_t state,
		     uint32_t next);
/* Frees an element if its word is still link; otherwise another thread owns it, and the call has no
 * effect. */
void ebpf_pool_free(const struct ebpf_map *m, uint32_t i, uint64_t link);
/* Returns the index of some element. Successive calls visit every element, with neighbours far
 * apart. */
uint32_t ebpf_pool_sample(const struct ebpf_map *m);
/* Returns the current time, measured in insertions. */
uint32_t ebpf_pool_time(const struct ebpf_map *m);
void ebpf_pool_tick(const struct ebpf_map *m);
/* Returns the number of its calls, for work that is done only at every Nth failure. */
uint32_t ebpf_pool_failures(const struct ebpf_map *m);

/* Age in seconds from which a claimed element counts as lost. */
#define POOL_LOST_SECONDS 60u

#endif
