/* SM_RING: for each multiprocessor a ring of values that programs inside kernels push to and never
 * wait for. A push takes a number from the ring's counter and overwrites the value of n numbers
 * before it. It has no barrier: a check word over number and value shows whether a value is whole,
 * also in a copy that was made while kernels ran. A reader keeps its own positions and counts what
 * was overwritten before it came. */
#include "bpf/run/map/map_sm_ring.h"

#include <errno.h>

#include "bpf/run/map/map_int.h"

#define HEAD_BYTES 128u /* the counter, in a line of its own */
#define MAX_VALUE_BYTES 512u
#define MAX_SLOTS 65536u /* of one ring */

static int ring_check(const struct ebpf_map_def *d)
{
	return !d->key_bytes && d->value_bytes && d->value_bytes % 8 == 0 &&
	       d->value_bytes <= MAX_VALUE_BYTES && !(d->max_entries & (d->max_entries - 1)) &&
	       (d->flags & ~(uint32_t)GBPF_F_HOST) == (uint32_t)GBPF_F_DEVICE;
}

static uint64_t ring_layout(struct ebpf_map *m)
{
	uint64_t bytes;

	m->value_off = 8;
	m->stride = 8 + m->value_bytes;
	m->elem_off = HEAD_BYTES;
	m->n_slots = m->max_entries * EBPF_SM_SLOTS;
	bytes = ROUND_UP(HEAD_BYTES + (uint64_t)m->stride * m->max_entries, (uint64_t)HEAD_BYTES);
	m->copy_bytes = (uint32_t)bytes;
	return bytes * EBPF_SM_SLOTS;
}

static const uint64_t *ring_of(const struct ebpf_map *m, uint32_t ring)
{
	return (const uint64_t *)(const void *)(m->data + (size_t)ring * m->copy_bytes);
}

/* Copies the value with a number out if the slot holds it whole. */
static int take(const struct ebpf_map *m, uint32_t ring, uint64_t number, void *value)
{
	uint32_t slot = (uint32_t)number & (m->max_entries - 1);
	const uint64_t *at =
		(const uint64_t *)(const void *)((const uint8_t *)ring_of(m, ring) + m->elem_off +
						 (size_t)slot * m->stride);
	uint64_t check = number + 1, words[MAX_VALUE_BYTES / 8];

	for (uint32_t k = 0; k < m->value_bytes / 8; k++) {
		words[k] = load_relaxed(&at[1 + k]);
		check += words[k] * EBPF_SM_RING_FACTOR(k);
	}
	if (load_relaxed(&at[0]) != check) {
		return 0;
	}
	if (value) {
		memcpy(value, words, m->value_bytes);
	}
	return 1;
}

int ebpf_sm_ring_next(const struct ebpf_map *m, uint32_t ring, int give_up, uint64_t *next,
		      uint64_t *missed, void *value)
{
	uint64_t end = load_relaxed(ring_of(m, ring));

	if (end < *next) { /* cleared, or a tenant's falsehood */
		*next = end;
	}
	if (end - *next > m->max_entries) {
		*missed += end - *next - m->max_entries;
		*next = end - m->max_entries;
	}
	while (*next != end) {
		if (take(m, ring, *next, value)) {
			++*next;
			return 1;
		}
		if (!give_up) {
			return 0;
		}
		++*next;
		++*missed;
	}
	return 0;
}

/* Slots are those of ring 0, then those of ring 1 ..., each from the oldest value on. */
static int ring_slot(const struct ebpf_map *m, uint32_t slot, UNUSED void *key, void *value)
{
	uint32_t ring = slot / m->max_entries, at = slot % m->max_entries;
	uint64_t end = load_relaxed(ring_of(m, ring)), kept = MIN(end, (uint64_t)m->max_entries);

	return take(m, ring, end - kept + at, value);
}

static uint32_t ring_count(const struct ebpf_map *m)
{
	uint32_t n = 0;

	for (uint32_t ring = 0; ring < EBPF_SM_SLOTS; ring++) {
		n += (uint32_t)MIN(load_relaxed(ring_of(m, ring)), (uint64_t)m->max_entries);
	}
	return n;
}

static int ring_clear(const struct ebpf_map *m)
{
	for (uint32_t at = 0; at + 8 <= m->bytes; at += 8) {
		store_relaxed((uint64_t *)(void *)(m->data + at), UINT64_C(0));
	}
	return 0;
}

const struct ebpf_map_type ebpf_map_type_SM_RING = {
	.traits = EBPF_MAP_KEYLESS | EBPF_MAP_ON_DEVICE,
	.max_entries = MAX_SLOTS,
	.hint = "it has no key, values of whole 8 bytes up to 512, a power of two of entries, and "
		"map_flags GBPF_F_DEVICE",
	.check = ring_check,
	.layout = ring_layout,
	.slot = ring_slot,
	.count = ring_count,
	.clear = ring_clear,
};
