/* Epoch arrays: programs of gbpfd write a working copy, and all their writes become visible at once
 * when they have ended. There are four copies. A call that latched epoch e reads copy e % 4, which
 * is written again only after epoch e + 3 was published; so a call may span two publications, and a
 * call that spans three is detected. One word, at the start of the GLOBAL region, holds the epoch
 * of all arrays. */
#include "bpf/run/map/map_int.h"

#include <errno.h>

#include "base/point.h"

TLS_FAST struct ebpf_latch ebpf_latch;

/* Returns the epoch word, which is at the start of the region if there are epoch arrays
 * (ebpf_maps_layout). */
static uint64_t *word_of(const struct ebpf_map *m)
{
	return (uint64_t *)(void *)(m->data - m->region_offset);
}

uint64_t *ebpf_maps_epoch(const struct ebpf_map *maps, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		if (maps[i].flags & GBPF_F_EPOCH) {
			return maps[i].data ? word_of(&maps[i]) : NULL;
		}
	}
	return NULL;
}

static uint8_t *copy_of(const struct ebpf_map *m, uint64_t epoch)
{
	return m->data + (size_t)(epoch % EBPF_EPOCH_COPIES) * m->copy_bytes;
}

const uint8_t *ebpf_epoch_published(const struct ebpf_map *m)
{
	return copy_of(m, load_acquire(word_of(m)));
}

void *ebpf_epoch_lookup(const struct ebpf_map *m, uint32_t index)
{
	uint64_t epoch;

	if (index >= m->max_entries || !m->data) {
		return NULL;
	}
	epoch = ebpf_latch.epoch ? ebpf_latch.epoch - 1 : load_acquire(word_of(m));
	if (!(m->flags & GBPF_F_RDONLY) && ebpf_latch.epoch) {
		((struct ebpf_map *)(uintptr_t)m)->touched =
			1; /* a program of gbpfd may write to it */
	}
	return copy_of(m, epoch) + (size_t)index * m->stride;
}

int ebpf_epoch_update(const struct ebpf_map *m, uint32_t index, const void *value)
{
	if (index >= m->max_entries || !m->data) {
		return -ENOENT;
	}
	((struct ebpf_map *)(uintptr_t)m)->touched = 1;
	ebpf_value_store(copy_of(m, load_relaxed(word_of(m)) + 1) + (size_t)index * m->stride,
			 value, m->value_bytes);
	return 0;
}

/* Initializes the working copy of the next epoch from the published copy. A map that was not
 * written in the last four epochs has four equal copies. */
static void prepare(struct ebpf_map *m, uint64_t published)
{
	if (!m->touched) {
		return;
	}
	memcpy(copy_of(m, published + 1), copy_of(m, published), m->copy_bytes);
	m->touched = m->touched == EBPF_EPOCH_COPIES ? 0 : m->touched + 1;
}

uint64_t ebpf_maps_publish(struct ebpf_map *maps, unsigned n)
{
	uint64_t *word = ebpf_maps_epoch(maps, n), epoch;
	int any = 0;

	if (!word) {
		return 0;
	}
	epoch = load_relaxed(word);
	for (unsigned i = 0; i < n; i++) {
		any |= (maps[i].flags & GBPF_F_EPOCH) && maps[i].touched == 1;
	}
	if (!any) {
		return epoch;
	}
	store_release(word, ++epoch);
	POINT("map.epoch.publish.stored");
	fence_seqcst(); /* Orders the epoch before later writes: a call that sees them also sees the
			   new epoch at its end. */
	for (unsigned i = 0; i < n; i++) {
		if (maps[i].flags & GBPF_F_EPOCH) {
			prepare(&maps[i], epoch);
		}
	}
	return epoch;
}
