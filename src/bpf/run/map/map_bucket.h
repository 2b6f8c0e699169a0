/* HASH and LRU_HASH in memory of the GPU (docs/MAPS.md, "Hash tables of the GPU"): the layout,
 *which programs inside kernels and the host have in common.
 *
 *	[dropped, alone in a line][seed][buckets: word, used][16 slots for each bucket: key, value]
 *
 * The word of a bucket holds 16 bits of the slots that hold a key, 16 of those that are being
 * written, and 32 that grow with every change. Bits of `used`: slots of an LRU_HASH that were found
 * since the last turn of its clock. */
#ifndef GBPF_BPF_RUN_MAP_MAP_BUCKET_H
#define GBPF_BPF_RUN_MAP_MAP_BUCKET_H

#include "bpf/run/map/map_type.h"

#define EBPF_BUCKET_SLOTS 16u
#define EBPF_BUCKET_ALL 0xffffu
#define EBPF_BUCKET_BYTES 16u /* of the word and `used` */
#define EBPF_BUCKET_USED 8u   /* offset */
#define EBPF_BUCKET_SEED 64u  /* offset in the map; the number of dropped values is at 0 */
#define EBPF_BUCKET_CHANGE (UINT64_C(1) << 32)
#define EBPF_BUCKET_MAX_KEY 64u
#define EBPF_BUCKET_MAX_VALUE 512u

/* Returns whether the map has this layout. */
static inline int ebpf_is_bucket_map(const struct ebpf_map *m)
{
	return m->ops->traits & EBPF_MAP_BUCKETS;
}

/* Sets the geometry and the operations of a HASH or LRU_HASH with GBPF_F_DEVICE; returns its size.
 */
uint64_t ebpf_bucket_layout(struct ebpf_map *m);
/* Returns whether such a map may have these sizes. */
int ebpf_bucket_check(const struct ebpf_map_def *d);
/* Returns how many values found no room; 0 for a map of another layout. */
uint64_t ebpf_bucket_dropped(const struct ebpf_map *m);
/* Adds the contents of one such map to another of the same definition, which no other thread
 * changes: the words of values of keys that both have are added up. A key that finds no room is
 * counted as dropped. `from` may change meanwhile. */
void ebpf_bucket_add(const struct ebpf_map *to, const struct ebpf_map *from);

#endif
