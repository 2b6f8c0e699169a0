/* The reader side of ring buffers, which gbpfd runs on memory that hostile processes may write. It
 * keeps its position private, reads each header once, checks position and length against private
 * values, and makes a bounded number of steps. It skips and counts invalid contents. */
#include <errno.h>

#include "base/point.h"
#include "bpf/run/map/ring_int.h"

#define STEPS 256u /* maximum number of records skipped in one call */

void ebpf_ring_open(struct ebpf_ring_reader *r, const struct ebpf_map *ring)
{
	memset(r, 0, sizeof(*r));
	if (ring->data) {
		r->pos = load_relaxed(&ebpf_ring_of(ring).shared->head) & RING_POS_MASK;
	}
}

static void move_to(struct ebpf_ring *g, struct ebpf_ring_reader *r, uint64_t pos)
{
	r->pos = pos & RING_POS_MASK;
	r->busy_since_ns = 0;
	store_release(&g->shared->head, pos);
}

/* Gives up an unfinished record, whose writer is running, stopped or dead, by one exchange, after
 * which its submit fails. Returns 1 if the record may be skipped. */
static int give_up(struct ebpf_ring *g, struct ebpf_ring_reader *r, uint64_t header,
		   uint64_t now_ns, int owner_dead)
{
	if (!r->busy_since_ns) {
		r->busy_since_ns = now_ns ? now_ns : 1;
	}
	if (!owner_dead && now_ns < r->busy_since_ns + EBPF_RING_PATIENCE_NS) {
		return 0;
	}
	if (ebpf_cas_word(ebpf_ring_header(g, r->pos), header, RING_WITH(header, RING_DISCARDED))) {
		r->lost++;
	}
	return 1; /* the writer has just finished it: the next round reads it */
}

/* Handles a position without a record: the ring is empty, a writer was killed before it advanced
 * the end, or a process has overwritten the header. */
static int resync(struct ebpf_ring *g, struct ebpf_ring_reader *r, uint64_t header)
{
	uint64_t tail = load_acquire(&g->shared->tail);
	uint64_t ahead = (r->pos - tail) & RING_POS_MASK;

	if (ebpf_ring_compare(header, r->pos) < 0 && ahead <= g->blocks) {
		if (ahead) {
			ebpf_cas_word(&g->shared->tail, tail, tail + ahead);
		}
		return 0;
	}
	if (ebpf_ring_compare(load_acquire(ebpf_ring_header(g, r->pos)), r->pos) == 0) {
		return 1; /* a record began between the two reads */
	}
	r->broken++;
	move_to(g, r, tail);
	return 0;
}

int ebpf_ring_read(const struct ebpf_map *ring, struct ebpf_ring_reader *r, void *buf, size_t cap,
		   uint64_t now_ns, int owner_dead)
{
	struct ebpf_ring g = ebpf_ring_of(ring);

	if (!ring->data) {
		return 0;
	}
	r->dropped = load_relaxed(&g.shared->dropped);
	for (uint32_t step = 0; step < STEPS; step++) {
		uint64_t pos = r->pos, header = load_acquire(ebpf_ring_header(&g, pos));
		uint32_t bytes = RING_BYTES(header);
		uint32_t to_end = g.blocks - (uint32_t)(pos & (g.blocks - 1));

		if (ebpf_ring_compare(header, pos) != 0) {
			if (!resync(&g, r, header)) {
				return 0;
			}
			continue;
		}
		if (!bytes || RING_BLOCKS(bytes) > to_end || RING_STATE(header) > RING_DISCARDED ||
		    (RING_STATE(header) != RING_DISCARDED && bytes > ebpf_ring_max_record(ring))) {
			r->broken++;
			move_to(&g, r, load_acquire(&g.shared->tail));
			return 0;
		}
		if (RING_STATE(header) == RING_BUSY) {
			if (!give_up(&g, r, header, now_ns, owner_dead)) {
				return 0;
			}
			continue;
		}
		if (RING_STATE(header) == RING_DONE && bytes <= cap) {
			memcpy(buf, ebpf_ring_block(&g, pos), bytes);
		}
		POINT("ring.read.copied");
		move_to(&g, r, pos + RING_BLOCKS(bytes));
		if (RING_STATE(header) == RING_DONE) {
			return bytes <= cap ? (int)bytes : -EMSGSIZE;
		}
	}
	return 0;
}
