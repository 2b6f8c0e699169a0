/* The memory of one context: a window of device addresses, whose first part is device memory
 * (committed when touched) and whose rest maps pinned host memory that the client shares. The whole
 * window stays mapped while the context lives, so a kernel or copy that races with a free reads
 * zeros at worst; validity is the page table's business. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "soft/server/device.h"

#define RIGHTS_RW 3u

static void *reserve(uint64_t bytes, int prot)
{
	void *p = mmap(NULL, bytes, prot, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	return p == MAP_FAILED ? NULL : p;
}

int memory_init(struct memory *m, struct gpu *gpu, uint32_t slot)
{
	struct device *dev = gpu->dev;
	uint64_t bytes = dev->window_bytes;

	memset(m, 0, sizeof(*m));
	m->gpu = gpu;
	m->device_pages = dev->device_window_bytes / EXEC_PAGE_BYTES;
	m->space.base = SOFT_WINDOW_FIRST + slot * SOFT_WINDOW_STRIDE;
	m->space.bytes = bytes;
	m->space.host = reserve(bytes, PROT_READ | PROT_WRITE);
	m->pages = reserve(bytes / EXEC_PAGE_BYTES, PROT_READ | PROT_WRITE);
	m->space.pages = m->pages;
	if (!m->space.host || !m->pages) {
		memory_finish(m, dev);
		return -ENOMEM;
	}
	madvise(m->space.host, bytes, MADV_DONTDUMP);
	return 0;
}

static void account(struct memory *m, struct device *dev, const struct alloc *a, int sign)
{
	uint64_t bytes = (uint64_t)a->pages * EXEC_PAGE_BYTES;
	uint64_t *used = a->kind == SOFT_MEMORY_DEVICE ? &m->gpu->memory_used : &dev->pinned_used;

	*used = sign > 0 ? *used + bytes : *used - bytes;
	if (a->kind == SOFT_MEMORY_PINNED) {
		m->pinned = sign > 0 ? m->pinned + 1 : m->pinned - 1;
		dev->pinned = sign > 0 ? dev->pinned + 1 : dev->pinned - 1;
	}
}

void memory_finish(struct memory *m, struct device *dev)
{
	for (uint32_t i = 0; i < m->n; i++) {
		account(m, dev, &m->allocs[i], -1);
	}
	free(m->allocs);
	if (m->space.host) {
		munmap(m->space.host, m->space.bytes);
	}
	if (m->pages) {
		munmap(m->pages, m->space.bytes / EXEC_PAGE_BYTES);
	}
	memset(m, 0, sizeof(*m));
}

/* Index of the first allocation that begins after page. */
static uint32_t after(const struct memory *m, uint64_t page)
{
	uint32_t lo = 0, hi = m->n;

	while (lo < hi) {
		uint32_t mid = lo + (hi - lo) / 2;

		if (m->allocs[mid].first <= page) {
			lo = mid + 1;
		} else {
			hi = mid;
		}
	}
	return lo;
}

/* First fit, with an invalid page between neighbours so that running over an end faults. Index
 * where the new allocation belongs, page in *ret_first; -1 when there is no room. */
static int64_t find_room(const struct memory *m, uint64_t pages, enum soft_memory_kind kind,
			 uint64_t *ret_first)
{
	uint64_t begin = kind == SOFT_MEMORY_DEVICE ? 1 : m->device_pages + 1;
	uint64_t end =
		kind == SOFT_MEMORY_DEVICE ? m->device_pages : m->space.bytes / EXEC_PAGE_BYTES;
	uint32_t i = after(m, begin - 1);

	for (; i < m->n && m->allocs[i].first < end; i++) {
		if (m->allocs[i].first - begin > pages) {
			break;
		}
		begin = (uint64_t)m->allocs[i].first + m->allocs[i].pages + 1;
	}
	if (begin >= end || end - begin <= pages) {
		return -1;
	}
	*ret_first = begin;
	return i;
}

static int grow(struct memory *m)
{
	uint32_t cap = m->cap ? m->cap * 2 : 64;
	struct alloc *a;

	if (m->n < m->cap) {
		return 0;
	}
	if (m->n >= SOFT_MAX_ALLOCS) {
		return -ENOSPC;
	}
	a = realloc(m->allocs, cap * sizeof(*a));
	if (!a) {
		return -ENOMEM;
	}
	m->allocs = a;
	m->cap = cap;
	return 0;
}

uint64_t memory_alloc(struct memory *m, struct device *dev, uint64_t bytes,
		      enum soft_memory_kind kind, int fd)
{
	uint64_t pages, first, free_bytes;
	struct alloc a;
	int64_t at;

	free_bytes = kind == SOFT_MEMORY_DEVICE ? dev->opt.memory_bytes - m->gpu->memory_used
						: dev->pinned_limit - dev->pinned_used;
	if (bytes == 0 || bytes > free_bytes) {
		return 0;
	}
	pages = (bytes + EXEC_PAGE_BYTES - 1) / EXEC_PAGE_BYTES;
	if (pages * EXEC_PAGE_BYTES > free_bytes || grow(m) < 0) {
		return 0;
	}
	at = find_room(m, pages, kind, &first);
	if (at < 0) {
		return 0;
	}
	if (fd >= 0 && mmap(m->space.host + first * EXEC_PAGE_BYTES, pages * EXEC_PAGE_BYTES,
			    PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED) {
		return 0;
	}
	a = (struct alloc){ (uint32_t)first, (uint32_t)pages, bytes, kind };
	memmove(m->allocs + at + 1, m->allocs + at, (m->n - (uint32_t)at) * sizeof(a));
	m->allocs[at] = a;
	m->n++;
	account(m, dev, &a, 1);
	memset(m->pages + first, RIGHTS_RW, pages);
	return m->space.base + first * EXEC_PAGE_BYTES;
}

int memory_free(struct memory *m, struct device *dev, uint64_t address)
{
	uint64_t page = (address - m->space.base) / EXEC_PAGE_BYTES;
	uint8_t *host;
	struct alloc a;
	uint32_t i;

	if (address < m->space.base || address - m->space.base >= m->space.bytes ||
	    address % EXEC_PAGE_BYTES) {
		return -ENOENT;
	}
	i = after(m, page);
	if (i == 0 || m->allocs[i - 1].first != page) {
		return -ENOENT;
	}
	a = m->allocs[i - 1];
	memset(m->pages + a.first, 0, a.pages);
	host = m->space.host + (uint64_t)a.first * EXEC_PAGE_BYTES;
	/* Replacing the mapping in one call leaves no moment without one. */
	mmap(host, (uint64_t)a.pages * EXEC_PAGE_BYTES, PROT_READ | PROT_WRITE,
	     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
	account(m, dev, &a, -1);
	memmove(m->allocs + i - 1, m->allocs + i, (m->n - i) * sizeof(a));
	m->n--;
	return 0;
}

/* A range that is valid lies in one allocation, since no two of them touch. */
void *memory_at(const struct memory *m, uint64_t address, uint64_t bytes, uint8_t rights)
{
	uint64_t offset = address - m->space.base, last;
	const struct alloc *a;
	uint32_t i;

	if (address < m->space.base || offset >= m->space.bytes ||
	    bytes > m->space.bytes - offset) {
		return NULL;
	}
	i = bytes ? after(m, offset / EXEC_PAGE_BYTES) : 0;
	if (bytes && !i) {
		return NULL;
	}
	if (bytes) {
		a = &m->allocs[i - 1];
		last = (offset + bytes - 1) / EXEC_PAGE_BYTES;
		if (last - a->first >= a->pages || (m->pages[a->first] & rights) != rights) {
			return NULL;
		}
	}
	return m->space.host + offset;
}
