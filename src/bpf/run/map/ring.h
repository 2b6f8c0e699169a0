/* Ring buffers carry records from the programs of one process (or of gbpfd) to gbpfd. Many threads
 * write, one thread reads, and none waits for another. docs/MAPS.md has the layout. */
#ifndef GBPF_BPF_RUN_MAP_RING_H
#define GBPF_BPF_RUN_MAP_RING_H

#include <stddef.h>

#include "bpf/run/map/map.h"

/* A ring of n bytes has n / 32 blocks; a record takes whole blocks. */
#define EBPF_RING_BLOCK 32u

/* ---- writers: the operations of the helpers ---- */

/* Reserves a record of 1..min(EBPF_MAX_RECORD_BYTES, half of the ring) bytes, which the caller
 * submits or discards. Returns NULL if the ring is full, the record is too long, or this process
 * cannot write the ring. */
void *ebpf_ring_reserve(const struct ebpf_map *ring, uint64_t bytes);
/* Submits or discards a reservation; an invalid record is ignored. Returns 0, -EINVAL, or -ESTALE
 * if the reader had given the record up. */
int ebpf_ring_finish(const struct ebpf_map *ring, void *record, int discard);
/* Copies a record into the ring. Returns 0, -EINVAL, -EPERM or -EAGAIN (full). */
int ebpf_ring_output(const struct ebpf_map *ring, const void *data, uint64_t bytes);
/* Returns a property of the ring in bytes. what: as for bpf_ringbuf_query. */
uint64_t ebpf_ring_query(const struct ebpf_map *ring, uint64_t what);
/* Returns whether the address lies in the records of the ring. */
int ebpf_ring_has(const struct ebpf_map *ring, const void *record);

/* ---- the reader ---- */

/* The private state of a reader. Contents of the ring are never used unchecked. */
struct ebpf_ring_reader {
	uint64_t pos;		/* blocks */
	uint64_t busy_since_ns; /* time when an unfinished record was first seen at pos; 0: none */
	uint64_t lost;		/* records given up: not submitted in time */
	uint64_t dropped; /* records dropped because the ring was full, as counted by its writers */
	uint64_t broken;  /* number of times that invalid contents were skipped */
};

/* Maximum time for which an unfinished record delays the records after it. */
#define EBPF_RING_PATIENCE_NS 1000000000u

/* Starts reading where the last reader of this ring stopped. */
void ebpf_ring_open(struct ebpf_ring_reader *r, const struct ebpf_map *ring);

/* Copies the next record out. Returns its length, 0 if there is none, or -EMSGSIZE if it exceeds
 * cap (it is skipped). owner_dead: the writers have exited, so unfinished records are skipped at
 * once. Bounded for any contents. */
int ebpf_ring_read(const struct ebpf_map *ring, struct ebpf_ring_reader *r, void *buf, size_t cap,
		   uint64_t now_ns, int owner_dead);

#endif
