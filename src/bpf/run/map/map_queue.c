/* Lock-free queues: values are in elements of a pool, and a ring of words orders them. A word holds
 * 1 + the element and 1 + the position for which it was last used. Positions only grow, so
 * insertion and removal are one compare-and-exchange each, and the next thread advances head and
 * tail. An element is never partly in the queue. */
#include "bpf/run/map/map_int.h"

#include <errno.h>

#include "base/point.h"
#include "bpf/run/map/map_pool.h"

#define TRIES 64u
#define POS_MASK ((UINT64_C(1) << 44) - 1)
#define POS_LOW 0xfffffu

struct queue {
	uint64_t head ALIGNED(64); /* position of the next element to take */
	uint64_t tail ALIGNED(64); /* position of the next element to insert */
	uint64_t place[];
};

_Static_assert(sizeof(struct queue) % 64 == 0, "the pool behind it is aligned");

#define PLACE_ELEM(w) ((uint32_t)(w)&0xfffffu) /* 0: taken or never used */
#define PLACE_POS(w) ((w) >> 20)	       /* 1 + position; 0: never used */

static struct queue *queue_of(const struct ebpf_map *m)
{
	return (void *)(m->data + m->head_off);
}

static uint64_t place_word(uint64_t pos, uint32_t elem)
{
	return ((pos + 1) & POS_MASK) << 20 | elem;
}

/* Compares the position of word w with pos: < 0 not used for pos yet, 0 used for pos, > 0 used for
 * a later one. */
static int64_t place_cmp(uint64_t w, uint64_t pos)
{
	return (int64_t)((PLACE_POS(w) - (pos + 1)) << 20) >> 20;
}

static uint64_t *place_of(const struct ebpf_map *m, uint64_t pos)
{
	return &queue_of(m)->place[pos & (m->n_slots - 1)];
}

static void advance(uint64_t *word, uint64_t pos)
{
	ebpf_cas_word(word, pos, pos + 1);
}

/* Returns whether an element is lost. The word of a READY element holds the position at which its
 * owner inserts it (modulo 2^20, which determines the slot). If the slot holds another element, the
 * owner's exchange fails. If it is empty and that position is its next, the position is consumed so
 * that the exchange fails. */
static int queue_lost(const struct ebpf_map *m, uint32_t i, uint64_t link)
{
	uint64_t *place = place_of(m, LINK_NEXT(link)), w = load_acquire(place), pos;

	if (PLACE_ELEM(w)) {
		return PLACE_ELEM(w) != i + 1;
	}
	pos = PLACE_POS(w) ? PLACE_POS(w) - 1 + m->n_slots : LINK_NEXT(link);
	return (pos & POS_LOW) != LINK_NEXT(link) || ebpf_cas_word(place, w, place_word(pos, 0));
}

/* Inserts element i at the end. Returns 1; 0 if there is no slot; -1 if another thread took the
 * element. */
static int put(const struct ebpf_map *m, uint32_t i, uint64_t *link)
{
	struct queue *q = queue_of(m);

	for (uint32_t try = 0; try < TRIES; try++) {
		uint64_t pos = load_acquire(&q->tail), *place = place_of(m, pos);
		uint64_t w = load_acquire(place);
		int64_t cmp = place_cmp(w, pos);

		if (cmp >= 0) { /* slot in use and tail not advanced yet, or tail is stale */
			advance(&q->tail, pos);
			continue;
		}
		if (PLACE_ELEM(w)) {
			return 0; /* cannot happen: the pool has fewer elements than the ring has
				     slots */
		}
		if (!ebpf_pool_change(m, i, link, ELEM_READY, (uint32_t)(pos & POS_LOW))) {
			return -1;
		}
		POINT("map.queue.push.ready");
		if (ebpf_cas_word(place, w, place_word(pos, i + 1))) {
			POINT("map.queue.push.placed");
			advance(&q->tail, pos);
			return 1;
		}
	}
	return 0;
}

/* Takes (or peeks at) the first element. Returns 1, 0 if the queue is empty, or -EBUSY. The value
 * is copied first and is valid if the slot is then unchanged. */
static int take(const struct ebpf_map *m, void *value, int remove)
{
	struct queue *q = queue_of(m);

	for (uint32_t try = 0; try < TRIES; try++) {
		uint64_t pos = load_acquire(&q->head), *place = place_of(m, pos);
		uint64_t w = load_acquire(place), link;
		uint32_t i = PLACE_ELEM(w);
		int64_t cmp = place_cmp(w, pos);

		if (cmp < 0) {
			return 0;
		}
		if (cmp > 0 ||
		    !i) { /* head is stale, or the element is taken and head not advanced yet */
			advance(&q->head, pos);
			continue;
		}
		if (i-- > m->max_entries) {
			return 0;
		}
		link = load_acquire(ebpf_elem_link(m, i));
		if (value) {
			ebpf_value_load(value, ebpf_elem_at(m, i) + m->value_off, m->value_bytes);
		}
		POINT("map.queue.pop.read");
		fence_acquire();
		if (!remove) {
			if (load_relaxed(place) == w) {
				return 1;
			}
			continue;
		}
		if (ebpf_cas_word(place, w, place_word(pos, 0))) {
			POINT("map.queue.pop.taken");
			advance(&q->head, pos);
			ebpf_pool_free(m, i, link);
			return 1;
		}
	}
	return -EBUSY;
}

static int queue_push(const struct ebpf_map *m, const void *value, uint64_t flags)
{
	uint64_t link;
	int i = -1, done;

	if (flags & ~(uint64_t)UPDATE_EXIST) {
		return -EINVAL;
	}
	if (!ebpf_map_writable(m)) {
		return -EPERM;
	}
	for (uint32_t try = 0; i < 0 && try < TRIES; try++) {
		i = ebpf_pool_claim(m, queue_lost, &link);
		if (i < 0 && (!(flags & UPDATE_EXIST) || take(m, NULL, 1) < 0)) {
			return -E2BIG;
		}
	}
	if (i < 0) {
		return -EBUSY;
	}
	POINT("map.queue.push.claimed");
	ebpf_value_store(ebpf_elem_at(m, (uint32_t)i) + m->value_off, value, m->value_bytes);
	done = put(m, (uint32_t)i, &link);
	if (!done) {
		ebpf_pool_free(m, (uint32_t)i, link);
	}
	return done > 0 ? 0 : -EBUSY;
}

static int queue_take(const struct ebpf_map *m, void *value, int remove)
{
	int got;

	if (!m->data || (remove && !ebpf_map_writable(m))) {
		return m->data ? -EPERM : -ENOENT;
	}
	got = take(m, value, remove);
	return got > 0 ? 0 : got ? got : -ENOENT;
}

/* Returns the first position in use. head may lag behind positions that are already taken. If a
 * slot was used for position q, at most the n_slots - 1 positions before q are still full. */
static uint64_t first_pos(const struct ebpf_map *m)
{
	uint64_t pos = load_acquire(&queue_of(m)->head);

	for (uint32_t n = 0; n < m->n_slots + TRIES; n++) {
		uint64_t w = load_relaxed(place_of(m, pos));
		int64_t cmp = place_cmp(w, pos);

		if (cmp < 0 || (cmp == 0 && PLACE_ELEM(w))) {
			break;
		}
		pos += cmp >= m->n_slots ? (uint64_t)cmp - m->n_slots + 1 : 1;
	}
	return pos;
}

/* Reads the element at the s-th position after the first. */
static int queue_slot(const struct ebpf_map *m, uint32_t s, UNUSED void *key, void *value)
{
	uint64_t pos = first_pos(m) + s, *place = place_of(m, pos);

	for (uint32_t try = 0; try < TRIES; try++) {
		uint64_t w = load_acquire(place);
		uint32_t i = PLACE_ELEM(w);

		if (place_cmp(w, pos) || !i) {
			return 0;
		}
		if (i > m->max_entries) {
			return -EIO;
		}
		if (value) {
			ebpf_value_load(value, ebpf_elem_at(m, i - 1) + m->value_off,
					m->value_bytes);
		}
		fence_acquire();
		if (load_relaxed(place) == w) {
			return 1;
		}
	}
	return 0;
}

static int queue_check(const struct ebpf_map_def *d)
{
	return !d->key_bytes && d->value_bytes && !(d->flags & GBPF_F_RDONLY);
}

static uint64_t queue_layout(struct ebpf_map *m)
{
	m->n_slots = ebpf_map_power_of_two(m->max_entries);
	return ebpf_map_lay_elements(m, sizeof(struct queue) + (uint64_t)m->n_slots * 8, 0);
}

const struct ebpf_map_type ebpf_map_type_QUEUE = {
	.traits = EBPF_MAP_KEYLESS,
	.max_entries = EBPF_MAX_ENTRIES,
	.hint = GENERAL_HINT,
	.check = queue_check,
	.layout = queue_layout,
	.push = queue_push,
	.take = queue_take,
	.slot = queue_slot,
	.count = ebpf_map_count_present,
	.clear = ebpf_map_clear_pops,
	.copy = ebpf_map_copy_each,
};
