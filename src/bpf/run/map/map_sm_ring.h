/* Rings of values that programs inside kernels push to, one for each multiprocessor. */
#ifndef GBPF_BPF_RUN_MAP_MAP_SM_RING_H
#define GBPF_BPF_RUN_MAP_MAP_SM_RING_H

#include <stdint.h>

#include "bpf/run/map/map.h"

/* The check word of the value with a number (from 0) is 1 + number + the sum of each word of 8
 * bytes times the factor of its index. */
#define EBPF_SM_RING_FACTOR(k) (UINT64_C(0x9e3779b97f4a7c15) * (2 * (uint64_t)(k) + 1))

/* Reads the next value of ring 0..EBPF_SM_SLOTS - 1 of a copy of the map's memory, whose data is
 * set. *next: the reader's position, 0 at first. Returns 1 with the value (which may be NULL), or 0
 * if there is none or it is not whole: its push has not ended, or was not copied whole. With
 * give_up such values are skipped. Adds to *missed the number of values skipped or overwritten
 * before they were read. Bounded: at most max_entries steps. */
int ebpf_sm_ring_next(const struct ebpf_map *m, uint32_t ring, int give_up, uint64_t *next,
		      uint64_t *missed, void *value);

#endif
