/* Regions by address, and their chunks by place (mem/swap_map.h). */
#include "mem/swap_map.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/array_grow.h"
#include "base/compiler.h"

struct mem_swap_region *mem_swap_region_create(uint64_t bytes, uint64_t large, uint64_t most,
					       int row)
{
	struct mem_swap_region *r;
	uint64_t reserved, rest, n;

	if (bytes > UINT64_MAX - MEM_SWAP_UNIT) {
		return NULL;
	}
	reserved = ROUND_UP(bytes, MEM_SWAP_UNIT);
	rest = reserved % large;
	n = reserved / large + rest / most + (rest % most != 0);
	if (!n || n > UINT32_MAX) {
		return NULL;
	}
	r = calloc(1, sizeof(*r) + n * sizeof(r->chunk[0]));
	if (!r) {
		return NULL;
	}
	r->bytes = bytes;
	r->reserved = reserved;
	r->row = row;
	r->n = (uint32_t)n;
	for (uint64_t i = 0; i < n; i++) {
		r->chunk[i].region = r;
		r->chunk[i].bytes = reserved >= large ? large : MIN(most, reserved);
		reserved -= r->chunk[i].bytes;
	}
	return r;
}

/* Returns the number of regions whose base is at most the address. */
static size_t count_to(const struct mem_swap_map *m, uint64_t address)
{
	size_t lo = 0, hi = m->n;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (m->region[mid]->base <= address) {
			lo = mid + 1;
		} else {
			hi = mid;
		}
	}
	return lo;
}

int mem_swap_add(struct mem_swap_map *m, struct mem_swap_region *r, uint64_t base)
{
	struct mem_swap_region **grown =
		array_grow(m->region, m->n, &m->room, sizeof(*grown), 64, SIZE_MAX);
	size_t at;

	if (!grown) {
		return -ENOMEM;
	}
	m->region = grown;
	at = count_to(m, base);
	memmove(&m->region[at + 1], &m->region[at], (m->n - at) * sizeof(*m->region));
	m->region[at] = r;
	m->n++;
	r->base = base;
	for (uint32_t i = 0; i < r->n; i++) {
		r->chunk[i].address = base;
		r->chunk[i].named = 0; /* what the program had there is no longer known */
		r->chunk[i].worth = 0;
		base += r->chunk[i].bytes;
	}
	return 0;
}

struct mem_swap_region *mem_swap_find(const struct mem_swap_map *m, uint64_t address)
{
	size_t n = count_to(m, address);
	struct mem_swap_region *r = n ? m->region[n - 1] : NULL;

	return r && address - r->base < r->bytes ? r : NULL;
}

struct mem_swap_region *mem_swap_next(const struct mem_swap_map *m, uint64_t address)
{
	size_t n = count_to(m, address);

	if (n && address - m->region[n - 1]->base < m->region[n - 1]->reserved) {
		return m->region[n - 1];
	}
	return n < m->n ? m->region[n] : NULL;
}

void mem_swap_remove(struct mem_swap_map *m, struct mem_swap_region *r)
{
	size_t at = count_to(m, r->base) - 1;

	memmove(&m->region[at], &m->region[at + 1], (m->n - at - 1) * sizeof(*m->region));
	m->n--;
}

struct mem_swap_region *mem_swap_of_owner(const struct mem_swap_map *m, uint64_t owner,
					  uint64_t epoch)
{
	for (size_t i = 0; i < m->n; i++) {
		if (m->region[i]->owner == owner && m->region[i]->epoch <= epoch) {
			return m->region[i];
		}
	}
	return NULL;
}

void mem_swap_place(struct mem_swap_map *m, struct mem_swap_chunk *c, enum mem_swap_place place)
{
	struct mem_swap_list *from = &m->at[c->region->row][c->place],
			     *to = &m->at[c->region->row][place];

	if (c->place == MEM_SWAP_NOWHERE) {
		c->used = m->uses;
		c->due = 0;
		memset(c->gap, 0, sizeof(c->gap));
	} else {
		*(c->prev ? &c->prev->next : &from->first) = c->next;
		*(c->next ? &c->next->prev : &from->last) = c->prev;
		from->bytes -= c->bytes;
	}
	c->lost = place == c->place ? c->lost : 0;
	c->place = place;
	c->prev = c->next = NULL;
	if (place != MEM_SWAP_NOWHERE) {
		c->prev = to->last;
		*(to->last ? &to->last->next : &to->first) = c;
		to->last = c;
		to->bytes += c->bytes;
	}
}

/* ---- uses ---- */

#define DOUBLINGS_MAX 512u /* of a scale, far from the largest number */

/* Returns by how much a cost of now counts: it doubles with each half-life, as that is cheaper than
 * halving what was before. */
static double scale(const struct mem_swap_map *m)
{
	uint64_t n = m->uses - m->unscaled;

	return ldexp(1.0 + (double)(n % MEM_SWAP_HALF_LIFE) / MEM_SWAP_HALF_LIFE,
		     (int)(n / MEM_SWAP_HALF_LIFE));
}

void mem_swap_begin_use(struct mem_swap_map *m)
{
	m->uses++;
	if (m->uses - m->unscaled < (uint64_t)DOUBLINGS_MAX * MEM_SWAP_HALF_LIFE) {
		return;
	}
	m->unscaled = m->uses;
	for (size_t i = 0; i < m->n; i++) {
		for (uint32_t k = 0; k < m->region[i]->n; k++) {
			struct mem_swap_chunk *c = &m->region[i]->chunk[k];

			c->worth = ldexp(c->worth, -(int)DOUBLINGS_MAX);
		}
	}
}

static bool is_named(const struct mem_swap_map *m, const struct mem_swap_chunk *c)
{
	return c->named && m->uses - c->named_use < MEM_SWAP_HALF_LIFE;
}

static void note_name(const struct mem_swap_map *m, struct mem_swap_chunk *c, uint64_t address)
{
	c->named = is_named(m, c) ? MIN(c->named, address) : address;
	c->named_use = m->uses;
}

#define NEAR 8u /* gaps are the same that differ by that part */

/* Notes the gap before the present use, and what follows from it. */
static void note_gap(struct mem_swap_chunk *c, uint64_t gap, uint64_t now)
{
	uint64_t sum = 0;
	unsigned n = 0;

	memmove(&c->gap[1], &c->gap[0], sizeof(c->gap) - sizeof(c->gap[0]));
	c->gap[0] = (uint32_t)MIN(gap, UINT32_MAX);
	c->due = 0;
	for (; n < MEM_SWAP_GAPS && c->gap[n]; n++) {
		uint32_t more = MAX(c->gap[n], c->gap[0]), less = MIN(c->gap[n], c->gap[0]);

		sum += c->gap[n];
		if (n && !c->due && more - less <= c->gap[0] / NEAR) {
			c->due = now + c->gap[n - 1];
		}
	}
	c->mean_gap = (double)sum / n;
}

static void use_chunk(struct mem_swap_map *m, struct mem_swap_chunk *c, uint32_t cost,
		      struct mem_swap_need *n)
{
	if (c->used == m->uses || c->place == MEM_SWAP_NOWHERE) {
		return;
	}
	note_gap(c, m->uses - c->used, m->uses);
	c->used = m->uses;
	c->worth += cost * scale(m);
	mem_swap_place(m, c, c->place);
	n->bytes += c->bytes;
	if (c->place == MEM_SWAP_HOST) {
		c->lost += cost;
		n->missing += c->bytes;
		n->lost += c->lost * (c->bytes / MEM_SWAP_UNIT);
		n->worth += c->worth * (double)(c->bytes / MEM_SWAP_UNIT);
	}
}

/* Returns the region that the program has mapped where this one ends, or NULL. */
static struct mem_swap_region *next_of(const struct mem_swap_map *m,
				       const struct mem_swap_region *r)
{
	size_t at = r->by_handle ? count_to(m, r->base) : m->n;
	struct mem_swap_region *next = at < m->n ? m->region[at] : NULL;

	return next && next->base == r->base + r->reserved && next->by_handle ? next : NULL;
}

/* Returns the index of the chunk that an address of a region is in. */
static uint32_t chunk_at(const struct mem_swap_region *r, uint64_t address)
{
	uint32_t lo = 0, hi = r->n;

	while (hi - lo > 1) {
		uint32_t mid = lo + (hi - lo) / 2;

		*(r->chunk[mid].address <= address ? &lo : &hi) = mid;
	}
	return lo;
}

uint64_t mem_swap_use(struct mem_swap_map *m, struct mem_swap_region *r, uint64_t address,
		      uint64_t most, uint32_t cost, struct mem_swap_need *n)
{
	uint32_t i = chunk_at(r, address);
	uint64_t seen = 0;
	bool last = false;

	if (r->by_handle) {
		note_name(m, &r->chunk[i], address);
	}
	for (; r && !last; r = next_of(m, r), i = 0) {
		for (; i < r->n && seen < most && !last; i++) {
			struct mem_swap_chunk *c = &r->chunk[i];

			last = r->by_handle && c->address > address && is_named(m, c);
			if (!last || c->named > c->address) {
				use_chunk(m, c, cost, n);
			}
			seen += c->bytes;
		}
		last |= seen >= most;
	}
	return seen;
}

static double urgency_of(const struct mem_swap_map *m, const struct mem_swap_chunk *c)
{
	return c->due > m->uses ? c->worth * c->mean_gap / (double)(c->due - m->uses) : c->worth;
}

/* Puts a chunk into the list, which is in order, before those that are more urgent. */
static void put(struct mem_swap_chunk *list[], unsigned n, struct mem_swap_chunk *c)
{
	for (; n && list[n - 1]->urgency > c->urgency; n--) {
		list[n] = list[n - 1];
	}
	list[n] = c;
}

#define PASSED 16u /* chunks that were freed, which cost as much as one that is looked at */

unsigned mem_swap_pick(const struct mem_swap_map *m, int row, uint64_t since, uint64_t bytes,
		       uint64_t largest, struct mem_swap_chunk *list[], unsigned room,
		       double *ret_worth)
{
	return mem_swap_pick_if(m, row, since, bytes, largest, NULL, 0, list, room, ret_worth);
}

uint64_t mem_swap_ratio(const struct mem_swap_map *m, int row, const struct mem_swap_need *n,
			uint64_t room, uint64_t since)
{
	struct mem_swap_chunk *list[MEM_SWAP_LEAVING];
	uint64_t leaves = 0, more;
	double worth, ratio;
	unsigned count;

	if (n->missing <= room) {
		return UINT64_MAX;
	}
	more = n->missing - room;
	count = mem_swap_pick(m, row, since, more, UINT64_MAX, list, MEM_SWAP_LEAVING, &worth);
	for (unsigned i = 0; i < count; i++) {
		leaves += list[i]->bytes;
	}
	if (leaves && leaves < more) {
		worth *= (double)more / (double)leaves; /* others leave in later pauses */
	}
	ratio = worth > 0 ? n->worth / worth * 1000 : 1e9;
	return (uint64_t)MIN(ratio, 1e9);
}

unsigned mem_swap_pick_if(const struct mem_swap_map *m, int row, uint64_t since, uint64_t bytes,
			  uint64_t largest,
			  bool (*may)(const struct mem_swap_chunk *c, uint64_t arg), uint64_t arg,
			  struct mem_swap_chunk *list[], unsigned room, double *ret_worth)
{
	struct mem_swap_chunk *c = m->at[row][MEM_SWAP_DEVICE].first;
	uint64_t sum = 0;
	unsigned n = 0;

	for (unsigned k = 0; c && c->used < since && k < MEM_SWAP_SEARCHED * PASSED; c = c->next) {
		bool full = sum >= bytes || n == room;

		k += c->region->freed ? 1 : PASSED;
		if (c->bytes > largest) {
			continue;
		}
		if (c->region->freed) { /* it is freed once its work is done */
			continue;
		}
		c->urgency = urgency_of(m, c);
		if (full && (!n || list[n - 1]->urgency <= c->urgency)) {
			continue;
		}
		if (may && !may(c, arg)) {
			continue;
		}
		if (n == room) {
			sum -= list[--n]->bytes;
		}
		put(list, n++, c);
		sum += c->bytes;
		while (n && sum - list[n - 1]->bytes >= bytes) { /* they suffice without it */
			sum -= list[--n]->bytes;
		}
	}
	*ret_worth = 0;
	for (unsigned i = 0; i < n; i++) {
		*ret_worth += list[i]->worth * (double)(list[i]->bytes / MEM_SWAP_UNIT);
	}
	return n;
}
