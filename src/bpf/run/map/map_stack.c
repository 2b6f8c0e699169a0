/* Lock-free stacks: a list of elements of which only the top changes; the tag in the top's word
 * grows with every change. If the stack seems full, an element that a killed process had claimed or
 * removed is found by comparing the list with the elements. */
#include "bpf/run/map/map_int.h"

#include <errno.h>
#include <stdlib.h>

#include "base/point.h"
#include "bpf/run/map/map_pool.h"

#define TRIES 64u
#define WINDOW 128u /* number of elements examined by one search for lost ones */

static uint64_t *top_of(const struct ebpf_map *m)
{
	return (uint64_t *)(void *)(m->data + m->head_off);
}

static int never_lost(const struct ebpf_map *m, uint32_t i, uint64_t link)
{
	(void)m, (void)i, (void)link;
	return 0;
}

static int try_push(const struct ebpf_map *m, uint32_t i, uint64_t *link)
{
	uint64_t *top = top_of(m);

	for (uint32_t try = 0; try < TRIES; try++) {
		uint64_t t = load_acquire(top);

		if (!ebpf_pool_change(m, i, link, ELEM_READY, LINK_NEXT(t))) {
			return -1;
		}
		POINT("map.stack.push.ready");
		if (ebpf_cas_word(top, t, ebpf_link_word(t, 0, i + 1))) {
			POINT("map.stack.push.linked");
			return 1;
		}
	}
	return 0;
}

static int take(const struct ebpf_map *m, void *value, int remove)
{
	uint64_t *top = top_of(m);

	for (uint32_t try = 0; try < TRIES; try++) {
		uint64_t t = load_acquire(top), link;
		uint32_t i = LINK_NEXT(t);

		if (!i || i-- > m->max_entries) {
			return 0;
		}
		link = load_acquire(ebpf_elem_link(m, i));
		if (value) {
			ebpf_value_load(value, ebpf_elem_at(m, i) + m->value_off, m->value_bytes);
		}
		POINT("map.stack.pop.read");
		fence_acquire();
		if (!remove) {
			if (load_relaxed(top) == t) {
				return 1;
			}
			continue;
		}
		if (ebpf_cas_word(top, t, ebpf_link_word(t, 0, LINK_NEXT(link)))) {
			POINT("map.stack.pop.taken");
			ebpf_pool_free(m, i, link);
			return 1;
		}
	}
	return -EBUSY;
}

/* Marks the elements of a window that are in the list. Returns 0 if the list changed during the
 * walk or is invalid. At the end, changes the tag of the top, so that every push fails that has
 * read the top before. */
static int mark_listed(const struct ebpf_map *m, uint32_t first, uint8_t listed[WINDOW])
{
	uint64_t t = load_acquire(top_of(m)), w = t;
	uint32_t steps = 0;

	for (uint32_t i = LINK_NEXT(w); i; i = LINK_NEXT(w)) {
		if (i-- > m->max_entries || steps++ > m->max_entries) {
			return 0;
		}
		if (i - first < WINDOW) {
			listed[i - first] = 1;
		}
		w = load_acquire(ebpf_elem_link(m, i));
	}
	return ebpf_cas_word(top_of(m), t, ebpf_link_word(t, 0, LINK_NEXT(t)));
}

/* Frees elements of one window that were READY before a walk of the list that did not meet them:
 * their owners were killed, or will fail to link them and then see that they have lost them. The
 * walk covers the whole list, so the longer the list can be, the less often this is done. */
static NOINLINE void free_lost(const struct ebpf_map *m)
{
	uint32_t n = m->max_entries, every = MAX(4u, n / 1024u), failure = ebpf_pool_failures(m);
	uint32_t first = failure / every % ((n + WINDOW - 1) / WINDOW) * WINDOW;
	uint64_t link[WINDOW];
	uint8_t listed[WINDOW] = { 0 };

	if (failure % every) {
		return;
	}
	n = MIN(n - first, WINDOW);
	for (uint32_t i = 0; i < n; i++) {
		link[i] = load_acquire(ebpf_elem_link(m, first + i));
	}
	if (!mark_listed(m, first, listed)) {
		return;
	}
	for (uint32_t i = 0; i < n; i++) {
		if (!listed[i] && LINK_STATE(link[i]) == ELEM_READY) {
			ebpf_pool_free(m, first + i, link[i]);
		}
	}
}

static int stack_push(const struct ebpf_map *m, const void *value, uint64_t flags)
{
	uint64_t link;
	int i, done;

	if (flags) {
		return -EINVAL; /* dropping the oldest element would require a walk of the list */
	}
	if (!ebpf_map_writable(m)) {
		return -EPERM;
	}
	i = ebpf_pool_claim(m, never_lost, &link);
	if (i < 0) {
		free_lost(m);
		i = ebpf_pool_claim_quick(m, &link);
	}
	if (i < 0) {
		return -E2BIG;
	}
	POINT("map.stack.push.claimed");
	ebpf_value_store(ebpf_elem_at(m, (uint32_t)i) + m->value_off, value, m->value_bytes);
	done = try_push(m, (uint32_t)i, &link);
	if (!done) {
		ebpf_pool_free(m, (uint32_t)i, link);
	}
	return done > 0 ? 0 : -EBUSY;
}

static int stack_take(const struct ebpf_map *m, void *value, int remove)
{
	int got;

	if (!m->data || (remove && !ebpf_map_writable(m))) {
		return m->data ? -EPERM : -ENOENT;
	}
	got = take(m, value, remove);
	return got > 0 ? 0 : got ? got : -ENOENT;
}

/* The position of the last walk on this thread, so that the next slot costs one step. */
static TLS_FAST struct {
	const uint8_t *data;
	uint32_t slot, i_1;
} walked;

/* Returns 1 + the element `slot` places below the top, or 0. The list may change during the walk.
 */
static uint32_t below_top(const struct ebpf_map *m, uint32_t slot)
{
	uint32_t i_1, at = 0;

	if (slot && walked.data == m->data && walked.slot + 1 == slot) {
		i_1 = walked.i_1;
		at = slot - 1;
	} else {
		i_1 = LINK_NEXT(load_acquire(top_of(m)));
	}
	for (; at < slot && i_1 && i_1 <= m->max_entries; at++) {
		i_1 = LINK_NEXT(load_acquire(ebpf_elem_link(m, i_1 - 1)));
	}
	walked.data = i_1 && i_1 <= m->max_entries ? m->data : NULL;
	walked.slot = slot;
	walked.i_1 = i_1;
	return i_1;
}

/* Reads a slot. Fast for tools, which read slots in order. */
static int stack_slot(const struct ebpf_map *m, uint32_t slot, UNUSED void *key, void *value)
{
	for (uint32_t try = 0; try < TRIES; try++) {
		uint32_t i_1 = below_top(m, slot);
		uint64_t link;

		if (!i_1 || i_1 > m->max_entries) {
			return i_1 ? -EIO : 0;
		}
		link = load_acquire(ebpf_elem_link(m, i_1 - 1));
		if (LINK_STATE(link) != ELEM_READY) {
			walked.data = NULL;
			return 0;
		}
		if (value) {
			ebpf_value_load(value, ebpf_elem_at(m, i_1 - 1) + m->value_off,
					m->value_bytes);
		}
		fence_acquire();
		if (load_relaxed(ebpf_elem_link(m, i_1 - 1)) == link) {
			return 1;
		}
		walked.data = NULL;
	}
	return 0;
}

/* Sets order to the elements from the top on, at most max_entries; returns their number. */
static uint32_t stack_order(const struct ebpf_map *m, uint32_t *order)
{
	uint32_t n = 0;

	for (uint32_t i = LINK_NEXT(load_acquire(top_of(m)));
	     i && i <= m->max_entries && n < m->max_entries;
	     i = LINK_NEXT(load_acquire(ebpf_elem_link(m, i - 1)))) {
		order[n++] = i - 1;
	}
	return n;
}

static uint32_t stack_count(const struct ebpf_map *m)
{
	uint32_t n = 0;

	for (uint32_t i = LINK_NEXT(load_acquire(top_of(m)));
	     i && i <= m->max_entries && n < m->max_entries; n++) {
		i = LINK_NEXT(load_acquire(ebpf_elem_link(m, i - 1)));
	}
	return n;
}

/* Copies a stack; pushes its top last. */
static int stack_copy(const struct ebpf_map *to, const struct ebpf_map *from)
{
	uint32_t *order = malloc(sizeof(*order) * from->max_entries), n;
	uint8_t *value = malloc(from->value_bytes);
	int err = order && value ? 0 : -ENOMEM;

	n = err ? 0 : stack_order(from, order);
	while (n-- > 0 && !err) {
		ebpf_value_load(value, ebpf_elem_at(from, order[n]) + from->value_off,
				from->value_bytes);
		err = stack_push(to, value, 0);
	}
	free(value);
	free(order);
	return err;
}

static int stack_check(const struct ebpf_map_def *d)
{
	return !d->key_bytes && d->value_bytes && !(d->flags & GBPF_F_RDONLY);
}

static uint64_t stack_layout(struct ebpf_map *m)
{
	return ebpf_map_lay_elements(m, 8, 0);
}

const struct ebpf_map_type ebpf_map_type_STACK = {
	.traits = EBPF_MAP_KEYLESS,
	.max_entries = EBPF_MAX_STACK_ENTRIES,
	.hint = GENERAL_HINT,
	.check = stack_check,
	.layout = stack_layout,
	.push = stack_push,
	.take = stack_take,
	.slot = stack_slot,
	.count = stack_count,
	.clear = ebpf_map_clear_pops,
	.copy = stack_copy,
};
