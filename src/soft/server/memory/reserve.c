/* Reserved address ranges of a window and the mappings in them. Access rights are set per whole
 * mapping. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "soft/server/machine.h"
#include "soft/server/memory/device_memory_int.h"
#include "soft/server/memory/shadow.h"

/* Returns the index of the first mapping that begins at page or later. */
static uint32_t map_at(const struct softd_memory *m, uint64_t page)
{
	uint32_t lo = 0, hi = m->n_maps;

	while (lo < hi) {
		uint32_t mid = lo + (hi - lo) / 2;

		if (m->maps[mid].first < page) {
			lo = mid + 1;
		} else {
			hi = mid;
		}
	}
	return lo;
}

bool softd_memory_mappings_allow(const struct softd_memory *m, uint64_t first, uint64_t last,
				 uint8_t rights)
{
	uint32_t i = map_at(m, first + 1);

	if (i == 0) {
		return false;
	}
	for (i--; i < m->n_maps && m->maps[i].first <= first; i++) {
		const struct softd_mapping *p = &m->maps[i];

		if (first - p->first >= p->pages || (m->pages[first] & rights) != rights) {
			return false;
		}
		first = (uint64_t)p->first + p->pages;
		if (first > last) {
			return true;
		}
	}
	return false;
}

/* Converts a range to pages. Returns false if it is empty, unaligned or outside the window. */
static bool range_pages(const struct softd_memory *m, uint64_t address, uint64_t bytes,
			uint64_t *ret_first, uint64_t *ret_pages)
{
	uint64_t offset = address - m->space.base;

	if (address < m->space.base || offset >= m->space.bytes ||
	    bytes > m->space.bytes - offset || !bytes || offset % SOFT_GRANULARITY ||
	    bytes % SOFT_GRANULARITY) {
		return false;
	}
	*ret_first = offset / EXEC_PAGE_BYTES;
	*ret_pages = bytes / EXEC_PAGE_BYTES;
	return true;
}

static bool is_free(const struct softd_memory *m, uint64_t first, uint64_t pages)
	REQUIRES(softd_lock)
{
	uint32_t i = softd_memory_find_after(m, first);

	if (i > 0 && m->allocs[i - 1].first + (uint64_t)m->allocs[i - 1].pages > first) {
		return false;
	}
	return i == m->n || m->allocs[i].first >= first + pages;
}

uint64_t softd_memory_reserve(struct softd_memory *m, uint64_t bytes, uint64_t align, uint64_t wish)
{
	uint64_t first, pages;
	struct softd_alloc *a;

	if (wish % MAX(align, 1u) == 0 && range_pages(m, wish, bytes, &first, &pages) &&
	    first >= m->shared_page && is_free(m, first, pages) && softd_memory_grow(m) == 0) {
		struct softd_alloc wanted = { .first = (uint32_t)first,
					      .pages = (uint32_t)pages,
					      .bytes = bytes,
					      .kind = SOFTD_ALLOC_RESERVED,
					      .owner = SOFTD_NO_OWNER };

		softd_memory_insert(m, softd_memory_find_after(m, first), &wanted);
		return wish;
	}
	if (bytes % SOFT_GRANULARITY || bytes > m->space.bytes) {
		return 0;
	}
	a = softd_memory_place(m, SOFTD_ALLOC_RESERVED, SOFTD_NO_OWNER, bytes,
			       MAX(align, SOFT_GRANULARITY));
	return a ? softd_memory_address(m, a) : 0;
}

void softd_memory_reservation(const struct softd_memory *m, uint64_t address, uint64_t *ret_address,
			      uint64_t *ret_bytes)
{
	uint64_t page = (address - m->space.base) / EXEC_PAGE_BYTES;
	const struct softd_alloc *a = &m->allocs[softd_memory_find_after(m, page) - 1];

	*ret_address = softd_memory_address(m, a);
	*ret_bytes = a->bytes;
}

/* Returns true if no mapping overlaps the range, and the index for a new one in *ret_at. */
static bool unmapped(const struct softd_memory *m, uint64_t first, uint64_t pages, uint32_t *ret_at)
{
	uint32_t i = map_at(m, first);

	*ret_at = i;
	if (i > 0 && m->maps[i - 1].first + (uint64_t)m->maps[i - 1].pages > first) {
		return false;
	}
	return i == m->n_maps || m->maps[i].first >= first + pages;
}

int softd_memory_unreserve(struct softd_memory *m, uint64_t address, uint64_t bytes)
{
	struct softd_alloc *a = softd_memory_alloc_at(m, address);
	uint32_t at;

	if (!a || a->kind != SOFTD_ALLOC_RESERVED || a->bytes != bytes) {
		return -ENOENT;
	}
	if (!unmapped(m, a->first, a->pages, &at)) {
		return -EBUSY;
	}
	softd_memory_remove(m, a);
	return 0;
}

static int grow_maps(struct softd_memory *m)
{
	uint32_t cap = m->cap_maps ? m->cap_maps * 2 : 16;
	struct softd_mapping *grown;

	if (m->n_maps < m->cap_maps) {
		return 0;
	}
	grown = realloc(m->maps, cap * sizeof(*grown)); /* bounded by softd_memory_count_mapping */
	if (!grown) {
		return -ENOMEM;
	}
	m->maps = grown;
	m->cap_maps = cap;
	return 0;
}

int softd_memory_map(struct softd_memory *m, struct softd_machine *machine, uint64_t address,
		     uint64_t bytes, struct softd_extent *x, uint64_t offset)
{
	uint64_t first, pages;
	const struct softd_alloc *a;
	uint32_t at, i;
	int err;

	if (!range_pages(m, address, bytes, &first, &pages) || offset % SOFT_GRANULARITY ||
	    offset > x->bytes || bytes > x->bytes - offset) {
		return -EINVAL;
	}
	i = softd_memory_find_after(m, first);
	a = i ? &m->allocs[i - 1] : NULL;
	if (!a || a->kind != SOFTD_ALLOC_RESERVED || first - a->first >= a->pages ||
	    pages > a->pages - (first - a->first) || !unmapped(m, first, pages, &at)) {
		return -EINVAL;
	}
	if (grow_maps(m) < 0 || !softd_memory_count_mapping(m, machine)) {
		return -ENOMEM;
	}
	err = softd_memory_map_pages(m, first, pages, x->store->fd, x->offset + offset);
	if (err) {
		softd_memory_uncount_mapping(m, machine);
		return err;
	}
	memmove(m->maps + at + 1, m->maps + at, (m->n_maps - at) * sizeof(*m->maps));
	m->maps[at] = (struct softd_mapping){ (uint32_t)first, (uint32_t)pages, x };
	m->n_maps++;
	x->refs++;
	softd_shadow_set_initialized(&m->space, first * EXEC_PAGE_BYTES, bytes);
	return 0;
}

/* Returns the number of mappings that exactly fill the range, and the first of them in *ret_at; 0
 * if they leave a gap or cross its ends. */
static uint32_t covering(const struct softd_memory *m, uint64_t address, uint64_t bytes,
			 uint32_t *ret_at)
{
	uint64_t first, pages;
	uint32_t i, n;

	if (!range_pages(m, address, bytes, &first, &pages)) {
		return 0;
	}
	i = map_at(m, first);
	*ret_at = i;
	for (n = 0; pages && i + n < m->n_maps; n++) {
		const struct softd_mapping *p = &m->maps[i + n];

		if (p->first != first || p->pages > pages) {
			return 0;
		}
		first += p->pages;
		pages -= p->pages;
	}
	return pages ? 0 : n;
}

int softd_memory_unmap(struct softd_memory *m, struct softd_machine *machine, uint64_t address,
		       uint64_t bytes)
{
	uint32_t at, n = covering(m, address, bytes, &at);

	if (!n) {
		return -EINVAL;
	}
	for (uint32_t i = at; i < at + n; i++) {
		memset(m->pages + m->maps[i].first, 0, m->maps[i].pages);
		softd_shadow_set_freed(&m->space, (uint64_t)m->maps[i].first * EXEC_PAGE_BYTES,
				       (uint64_t)m->maps[i].pages * EXEC_PAGE_BYTES);
		softd_memory_unmap_pages(m, m->maps[i].first, m->maps[i].pages);
		softd_memory_uncount_mapping(m, machine);
		softd_extent_unref(m->maps[i].extent);
	}
	memmove(m->maps + at, m->maps + at + n, (m->n_maps - at - n) * sizeof(*m->maps));
	m->n_maps -= n;
	return 0;
}

int softd_memory_set_access(struct softd_memory *m, uint64_t address, uint64_t bytes,
			    uint8_t rights)
{
	uint32_t at, n = covering(m, address, bytes, &at);

	if (!n) {
		return -EINVAL;
	}
	for (uint32_t i = at; i < at + n; i++) {
		const struct softd_mapping *p = &m->maps[i];
		uint8_t link = p->extent->host ? EXEC_PAGE_LINK : 0;

		memset(m->pages + p->first, (rights & SOFTD_RIGHTS_RW) | link, p->pages);
	}
	return 0;
}
