/* Parts of an allocation with the same advice (mem/advice.h): sorted, each up to the next one. */
#include "mem/advice.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/array_grow.h"
#include "base/compiler.h"

struct part {
	uint64_t begin;
	struct mem_advice advice;
};

struct mem_advice_map {
	struct part *part; /* owned; the first one begins at 0 */
	size_t n, room;
	uint64_t bytes;
};

struct mem_advice_map *mem_advice_create(uint64_t bytes)
{
	struct mem_advice_map *m = calloc(1, sizeof(*m));

	if (!m) {
		return NULL;
	}
	m->part = calloc(1, sizeof(*m->part));
	if (!m->part) {
		free(m);
		return NULL;
	}
	m->n = m->room = 1;
	m->bytes = bytes;
	return m;
}

void mem_advice_destroy(struct mem_advice_map *m)
{
	if (m) {
		free(m->part);
		free(m);
	}
}

/* Returns the index of the part that an offset is in. */
static size_t part_at(const struct mem_advice_map *m, uint64_t offset)
{
	size_t lo = 0, hi = m->n;

	while (hi - lo > 1) {
		size_t mid = lo + (hi - lo) / 2;

		*(m->part[mid].begin <= offset ? &lo : &hi) = mid;
	}
	return lo;
}

static uint64_t end_of(const struct mem_advice_map *m, size_t i)
{
	return i + 1 < m->n ? m->part[i + 1].begin : m->bytes;
}

/* Has a part begin at an offset, for which there is room. Returns its index; that of the end is the
 * number of parts. */
static size_t split(struct mem_advice_map *m, uint64_t offset)
{
	size_t i = part_at(m, offset);

	if (offset >= m->bytes) {
		return m->n;
	}
	if (m->part[i].begin == offset) {
		return i;
	}
	memmove(&m->part[i + 2], &m->part[i + 1], (m->n - i - 1) * sizeof(*m->part));
	m->part[i + 1] = m->part[i];
	m->part[i + 1].begin = offset;
	m->n++;
	return i + 1;
}

static void apply(struct mem_advice *a, const struct mem_advice_change *c)
{
	switch (c->kind) {
	case MEM_ADVICE_READ_MOSTLY:
		a->read_mostly = c->set;
		break;
	case MEM_ADVICE_PREFERRED:
		a->preferred = c->location;
		break;
	case MEM_ADVICE_ACCESSED_BY:
		a->accessed_by = c->set ? a->accessed_by | c->by : a->accessed_by & ~c->by;
		break;
	case MEM_ADVICE_PREFETCHED:
		a->prefetched = c->location;
		break;
	}
}

static bool is_same_location(struct mem_location a, struct mem_location b)
{
	return a.type == b.type && a.id == b.id;
}

static bool is_same(const struct mem_advice *a, const struct mem_advice *b)
{
	return a->read_mostly == b->read_mostly && a->accessed_by == b->accessed_by &&
	       is_same_location(a->preferred, b->preferred) &&
	       is_same_location(a->prefetched, b->prefetched);
}

/* Joins parts that follow each other and have the same advice: those from first to last, and the
 * ones next to them. */
static void join(struct mem_advice_map *m, size_t first, size_t last)
{
	size_t n = MAX(first, (size_t)1), i = n;

	for (; i < m->n && i <= last; i++) {
		if (!is_same(&m->part[i].advice, &m->part[n - 1].advice)) {
			m->part[n++] = m->part[i];
		}
	}
	if (n < i) {
		memmove(&m->part[n], &m->part[i], (m->n - i) * sizeof(*m->part));
		m->n -= i - n;
	}
}

int mem_advice_change(struct mem_advice_map *m, uint64_t begin, uint64_t end,
		      const struct mem_advice_change *c)
{
	size_t first, last;

	for (size_t more = 0; more < 2; more++) { /* two parts more, at most */
		struct part *grown = array_grow(m->part, m->n + more, &m->room, sizeof(*grown), 8,
						MEM_ADVICE_PARTS_MAX);

		if (!grown) {
			return -ENOMEM;
		}
		m->part = grown;
	}
	first = split(m, begin);
	last = split(m, end);
	for (size_t i = first; i < last; i++) {
		apply(&m->part[i].advice, c);
	}
	join(m, first, last);
	return 0;
}

struct mem_advice mem_advice_at(const struct mem_advice_map *m, uint64_t offset, uint64_t *ret_end)
{
	size_t i = part_at(m, offset);

	*ret_end = end_of(m, i);
	return m->part[i].advice;
}

struct mem_advice mem_advice_of(const struct mem_advice_map *m, uint64_t begin, uint64_t end)
{
	const struct mem_location none = { 0 };
	size_t i = part_at(m, begin);
	struct mem_advice all = m->part[i].advice;

	while (++i < m->n && m->part[i].begin < end) {
		const struct mem_advice *a = &m->part[i].advice;

		all.read_mostly = all.read_mostly && a->read_mostly;
		all.accessed_by &= a->accessed_by;
		all.preferred =
			is_same_location(all.preferred, a->preferred) ? all.preferred : none;
		all.prefetched =
			is_same_location(all.prefetched, a->prefetched) ? all.prefetched : none;
	}
	return all;
}
