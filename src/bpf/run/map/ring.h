/* Ring buffers: records from the programs of one process (or of gbpfd) to gbpfd. Many threads
 * write, one reader reads; nobody waits for anybody. docs/MAPS.md has the layout. */
#ifndef GBPF_BPF_RUN_MAP_RING_H
#define GBPF_BPF_RUN_MAP_RING_H

#include <stddef.h>

#include "bpf/run/map/map.h"

/* A ring of n bytes has n / 32 blocks; a record takes whole blocks. */
#define EBPF_RING_BLOCK 32u

/* ---- behind the helpers ---- */

/* Room for a record of 1..min(EBPF_MAX_RECORD_BYTES, half of the ring) bytes, to be submitted or
 * discarded; NULL: full, too long, or no ring that can be written here. */
void *ebpf_ring_reserve(const struct ebpf_map *ring, uint64_t bytes);
/* Ends a reservation; record need not be one (then nothing happens). 0, or -EINVAL; -ESTALE: it
 * came so late that the reader had given it up. */
int ebpf_ring_finish(const struct ebpf_map *ring, void *record, int discard);
/* Copies a record in. 0, -EINVAL, -EPERM, -EAGAIN (full). */
int ebpf_ring_output(const struct ebpf_map *ring, const void *data, uint64_t bytes);
/* what: as bpf_ringbuf_query, in bytes. */
uint64_t ebpf_ring_query(const struct ebpf_map *ring, uint64_t what);
/* Whether the address lies in the ring's records. */
int ebpf_ring_has(const struct ebpf_map *ring, const void *record);

/* ---- the reader ---- */

/* The reader's own position; what lies in the ring is never believed without being checked. */
struct ebpf_ring_reader {
	uint64_t pos;		/* blocks */
	uint64_t busy_since_ns; /* an unfinished record was first seen at pos; 0: none */
	uint64_t lost;		/* records given up: reserved and never submitted in time */
	uint64_t dropped;	/* records that found the ring full, as its writers say */
	uint64_t broken;	/* times that the contents made no sense and were skipped */
};

/* An unfinished record holds the ones behind it back for so long at most. */
#define EBPF_RING_PATIENCE_NS 1000000000u

/* Begins where the last reader of this ring ended. */
void ebpf_ring_open(struct ebpf_ring_reader *r, const struct ebpf_map *ring);

/* Copies the next record out. Its length; 0: nothing to read now; -EMSGSIZE: it is longer than cap
 * (it is skipped). owner_dead: nobody writes any more, so what is unfinished is skipped at once.
 * Bounded, on any contents. */
int ebpf_ring_read(const struct ebpf_map *ring, struct ebpf_ring_reader *r, void *buf, size_t cap,
		   uint64_t now_ns, int owner_dead);

#endif
