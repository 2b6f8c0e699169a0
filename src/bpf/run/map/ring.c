/* The writer side of ring buffers. Record headers are separate from the records, so that a header
 * word never holds anything else: one word per block holds the position (positions only grow) at
 * which a record begins there, its length, and whether it is finished.
 *
 * A reservation is one compare-and-exchange of the header at the end of the ring. The header
 * determines where the next record begins, so any writer can advance the end, and a killed writer
 * leaves either a complete header or none. */
#include "bpf/run/map/ring.h"

#include <errno.h>

#include "base/point.h"
#include "bpf/run/map/map_int.h"
#include "bpf/run/map/ring_int.h"

#define TRIES 64u

/* Claims the header at pos, whose value was seen, for a record with that state and length, and
 * advances the end. Returns 1, or 0 if another writer was faster. */
static int begin_record(struct ebpf_ring *g, uint64_t pos, uint64_t seen, uint32_t state,
			uint32_t bytes)
{
	uint64_t *header = ebpf_ring_header(g, pos);

	if (!ebpf_cas_word(header, seen, ebpf_ring_word(pos, state, bytes))) {
		return 0;
	}
	POINT("ring.reserve.claimed");
	ebpf_cas_word(&g->shared->tail, pos, pos + RING_BLOCKS(bytes));
	POINT("ring.reserve.advanced");
	return 1;
}

void *ebpf_ring_reserve(const struct ebpf_map *ring, uint64_t bytes)
{
	struct ebpf_ring g = ebpf_ring_of(ring);
	uint32_t n;

	if (!ebpf_map_writable(ring) || !bytes || bytes > ebpf_ring_max_record(ring)) {
		return NULL;
	}
	n = RING_BLOCKS((uint32_t)bytes);
	for (uint32_t try = 0; try < TRIES; try++) {
		uint64_t pos = load_acquire(&g.shared->tail), read = load_acquire(&g.shared->head);
		uint64_t seen = load_acquire(ebpf_ring_header(&g, pos));
		uint32_t to_end = g.blocks - (uint32_t)(pos & (g.blocks - 1));
		uint32_t need = n <= to_end ? n : to_end + n;

		if (ebpf_ring_compare(seen, pos) >= 0) {
			/* a record begins here and tail is not advanced yet, or tail is stale */
			if (ebpf_ring_compare(seen, pos) == 0) {
				ebpf_cas_word(&g.shared->tail, pos,
					      pos + RING_BLOCKS(RING_BYTES(seen)));
			}
			continue;
		}
		if ((pos - read) + need > g.blocks || pos - read > g.blocks) {
			(void)add_relaxed(&g.shared->dropped, 1u);
			return NULL;
		}
		if (n > to_end) { /* records are contiguous: skip the rest of this round */
			begin_record(&g, pos, seen, RING_DISCARDED, to_end * EBPF_RING_BLOCK);
		} else if (begin_record(&g, pos, seen, RING_BUSY, (uint32_t)bytes)) {
			return ebpf_ring_block(&g, pos);
		}
	}
	return NULL;
}

int ebpf_ring_has(const struct ebpf_map *ring, const void *record)
{
	uintptr_t base = (uintptr_t)ring->data + ring->elem_off;

	return ring->data && (uintptr_t)record >= base &&
	       (uintptr_t)record - base < (uint64_t)ring->n_slots * EBPF_RING_BLOCK;
}

int ebpf_ring_finish(const struct ebpf_map *ring, void *record, int discard)
{
	struct ebpf_ring g = ebpf_ring_of(ring);
	uint64_t at, *header, seen;

	if (!ebpf_ring_has(ring, record)) {
		return -EINVAL;
	}
	at = (uint64_t)((uint8_t *)record - g.data);
	if (at % EBPF_RING_BLOCK) {
		return -EINVAL;
	}
	header = ebpf_ring_header(&g, at / EBPF_RING_BLOCK);
	seen = load_acquire(header);
	if (RING_STATE(seen) != RING_BUSY) {
		return -ESTALE;
	}
	POINT("ring.submit.before");
	return ebpf_cas_word(header, seen, RING_WITH(seen, discard ? RING_DISCARDED : RING_DONE))
		       ? 0
		       : -ESTALE;
}

int ebpf_ring_output(const struct ebpf_map *ring, const void *data, uint64_t bytes)
{
	void *record;

	if (!ebpf_map_writable(ring)) {
		return -EPERM;
	}
	if (!bytes || bytes > ebpf_ring_max_record(ring)) {
		return -EINVAL;
	}
	record = ebpf_ring_reserve(ring, bytes);
	if (!record) {
		return -EAGAIN;
	}
	memcpy(record, data, bytes);
	POINT("ring.output.copied");
	(void)ebpf_ring_finish(ring, record, 0);
	return 0;
}

uint64_t ebpf_ring_query(const struct ebpf_map *ring, uint64_t what)
{
	struct ebpf_ring g = ebpf_ring_of(ring);
	uint64_t head, tail;

	if (!ring->data) {
		return 0;
	}
	head = load_relaxed(&g.shared->head);
	tail = load_relaxed(&g.shared->tail);
	switch (what) {
	case 0:
		return (tail - head) * EBPF_RING_BLOCK;
	case 1:
		return (uint64_t)g.blocks * EBPF_RING_BLOCK;
	case 2:
		return head * EBPF_RING_BLOCK;
	case 3:
		return tail * EBPF_RING_BLOCK;
	default:
		return 0;
	}
}

static int ring_check(const struct ebpf_map_def *d)
{
	uint32_t writer = d->flags & ((uint32_t)GBPF_F_TENANT | GBPF_F_DAEMON);

	return !d->key_bytes && !d->value_bytes && writer && d->flags == writer &&
	       d->max_entries % 4096 == 0 && !(d->max_entries & (d->max_entries - 1));
}

static uint64_t ring_layout(struct ebpf_map *m)
{
	m->n_slots = m->max_entries / EBPF_RING_BLOCK;
	m->stride = EBPF_RING_BLOCK;
	m->elem_off =
		ROUND_UP((uint32_t)sizeof(struct ebpf_ring_shared) + m->n_slots * 8, MAP_ALIGN);
	return m->elem_off + (uint64_t)m->max_entries;
}

const struct ebpf_map_type ebpf_map_type_RINGBUF = {
	.traits = EBPF_MAP_RECORDS,
	.max_entries = EBPF_MAX_RING_BYTES,
	.hint = "a ring buffer has max_entries bytes, a power of two from 4096 on, no __type(key), "
		"and map_flags GBPF_F_TENANT, or GBPF_F_DAEMON for gbpfd's programs",
	.check = ring_check,
	.layout = ring_layout,
};
