/* The layout of a ring, shared by its writers (ring.c) and its reader (ring_read.c). */
#ifndef GBPF_BPF_RUN_MAP_RING_INT_H
#define GBPF_BPF_RUN_MAP_RING_INT_H

#include "bpf/run/map/map_int.h"
#include "bpf/run/map/ring.h"

struct ebpf_ring_shared {
	uint64_t tail ALIGNED(64); /* position of the next record, in blocks; written by writers */
	uint64_t head ALIGNED(
		64); /* everything before was read; a copy of the reader's private position */
	uint64_t dropped
		ALIGNED(64); /* number of records dropped for lack of space; written by writers */
	uint64_t header[];   /* one per block */
};

struct ebpf_ring {
	struct ebpf_ring_shared *shared;
	uint8_t *data;
	uint32_t blocks; /* a power of two */
};

/* A header: 2 bits of state, 18 of length in bytes, 44 of 1 + position. */
enum ebpf_ring_state { RING_BUSY, RING_DONE, RING_DISCARDED };

#define RING_STATE(w) ((uint32_t)(w)&3u)
#define RING_BYTES(w) ((uint32_t)((w) >> 2) & 0x3ffffu)
#define RING_WITH(w, state) (((w) & ~UINT64_C(3)) | (uint64_t)(state))
#define RING_BLOCKS(bytes) (((bytes) + EBPF_RING_BLOCK - 1) / EBPF_RING_BLOCK)
#define RING_POS_MASK ((UINT64_C(1) << 44) - 1)

static inline struct ebpf_ring ebpf_ring_of(const struct ebpf_map *m)
{
	if (!m->data) {
		return (struct ebpf_ring){ .blocks = m->n_slots };
	}
	return (struct ebpf_ring){ .shared = (void *)(m->data + m->head_off),
				   .data = m->data + m->elem_off,
				   .blocks = m->n_slots };
}

static inline uint64_t *ebpf_ring_header(const struct ebpf_ring *g, uint64_t pos)
{
	return &g->shared->header[pos & (g->blocks - 1)];
}

static inline uint8_t *ebpf_ring_block(const struct ebpf_ring *g, uint64_t pos)
{
	return g->data + (pos & (g->blocks - 1)) * EBPF_RING_BLOCK;
}

static inline uint64_t ebpf_ring_word(uint64_t pos, uint32_t state, uint32_t bytes)
{
	return ((pos + 1) & RING_POS_MASK) << 20 | (uint64_t)bytes << 2 | state;
}

/* Compares a header with position pos: < 0 from an earlier round, 0 begins there, > 0 later. */
static inline int64_t ebpf_ring_compare(uint64_t w, uint64_t pos)
{
	return (int64_t)(((w >> 20) - (pos + 1)) << 20) >> 20;
}

static inline uint32_t ebpf_ring_max_record(const struct ebpf_map *m)
{
	return MIN(EBPF_MAX_RECORD_BYTES, m->n_slots / 2 * EBPF_RING_BLOCK);
}

#endif
