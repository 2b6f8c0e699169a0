/* Elements of a map: all there from the start, claimed and freed without locks. The first word of
 * an element is the truth about it; the bits of the pool are hints where a free one may be, so that
 * one that was lost with a killed process is found again by looking at the elements themselves. */
#ifndef GBPF_BPF_RUN_MAP_MAP_POOL_H
#define GBPF_BPF_RUN_MAP_MAP_POOL_H

#include "bpf/run/map/map_int.h"

/* Bytes that the pool of n elements needs. */
uint32_t ebpf_pool_bytes(uint32_t n);

/* Says whether an element in a state other than FREE and CLAIMED belongs to nobody any more:
 * nothing refers to it, and its owner, should it live, cannot link it any more once its word has
 * changed. */
typedef int (*ebpf_pool_lost_fn)(const struct ebpf_map *m, uint32_t i, uint64_t link);

/* Claims an element: its index, or -1 when there is none. *ret_link: its word as of now, which the
 * owner changes by compare-and-exchange alone. Bounded. */
int ebpf_pool_claim(const struct ebpf_map *m, ebpf_pool_lost_fn lost, uint64_t *ret_link);
/* Without looking for lost elements. */
int ebpf_pool_claim_quick(const struct ebpf_map *m, uint64_t *ret_link);
/* Takes element i over if it is free or lost: 1 or 0. */
int ebpf_pool_take(const struct ebpf_map *m, uint32_t i, ebpf_pool_lost_fn lost,
		   uint64_t *ret_link);
/* Changes the word of an element that one has claimed; 0: it was taken away. */
int ebpf_pool_change(const struct ebpf_map *m, uint32_t i, uint64_t *link, uint32_t state,
		     uint32_t next);
/* Frees an element whose word is link; when it is not any more somebody else has it. */
void ebpf_pool_free(const struct ebpf_map *m, uint32_t i, uint64_t link);
/* Some element; every one of them comes again and again, neighbours far apart. */
uint32_t ebpf_pool_sample(const struct ebpf_map *m);
/* A time that insertions count. */
uint32_t ebpf_pool_time(const struct ebpf_map *m);
void ebpf_pool_tick(const struct ebpf_map *m);
/* Number of calls so far, for work that is done at every so many failures only. */
uint32_t ebpf_pool_failures(const struct ebpf_map *m);

/* An element of which the owner has not been heard for so long is taken for lost. */
#define POOL_LOST_SECONDS 60u

#endif
