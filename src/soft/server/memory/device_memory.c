/* Windows of device addresses: their layout and the access rights of their pages. The whole window
 * stays mapped while its client exists, so a kernel or copy that races with a free touches its own
 * old or empty memory at worst; the page table alone decides validity. Fresh memory is always zero,
 * because freed pages are punched out of the memfd. */
#include "soft/server/memory/device_memory.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/fd.h"
#include "soft/server/machine.h"
#include "soft/server/memory/device_memory_int.h"
#include "soft/server/memory/shadow.h"

#define SHARED_FACTOR 16u /* size of the third part, as a multiple of the GPU's memory */
#define SHARED_MIN (16ull << 30)

static void *reserve(uint64_t bytes, int prot)
{
	void *p = mmap(NULL, bytes, prot, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	return p == MAP_FAILED ? NULL : p;
}

static uint8_t *host_of(const struct softd_memory *m, uint64_t page)
{
	return m->space.host + page * EXEC_PAGE_BYTES;
}

/* Maps descriptor pages over the window. MAP_FIXED replaces the old mapping atomically: no access
 * meets unmapped pages in between. */
int softd_memory_map_pages(const struct softd_memory *m, uint64_t page, uint64_t pages, int fd,
			   uint64_t offset)
{
	void *p = mmap(host_of(m, page), pages * EXEC_PAGE_BYTES, PROT_READ | PROT_WRITE,
		       MAP_SHARED | MAP_FIXED, fd, (off_t)offset);

	if (p == MAP_FAILED && (errno == EPERM || errno == EACCES)) {
		/* The memfd is sealed against writing. A private mapping shows its changes; a write
		 * that page rights failed to stop hits a private page instead of faulting in the
		 * server. */
		p = mmap(host_of(m, page), pages * EXEC_PAGE_BYTES, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_FIXED, fd, (off_t)offset);
	}
	return p == MAP_FAILED ? -errno : 0;
}

void softd_memory_unmap_pages(const struct softd_memory *m, uint64_t page, uint64_t pages)
{
	mmap(host_of(m, page), pages * EXEC_PAGE_BYTES, PROT_READ | PROT_WRITE,
	     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
}

uint64_t softd_memory_window_bytes(uint64_t device_bytes, uint64_t pinned_bytes,
				   uint64_t memory_bytes)
{
	uint64_t shared = MAX(SHARED_FACTOR * memory_bytes, SHARED_MIN);

	return ROUND_UP(device_bytes + pinned_bytes + shared, SOFT_GRANULARITY);
}

int softd_memory_init(struct softd_memory *m, struct softd_gpu *gpu)
{
	struct softd_machine *machine = gpu->machine;
	uint64_t bytes = machine->window_bytes, shared;

	memset(m, 0, sizeof(*m));
	m->gpu = gpu;
	m->device_pages = machine->device_window_bytes / EXEC_PAGE_BYTES;
	shared =
		machine->device_window_bytes + 2 * ROUND_UP(machine->pinned_limit, EXEC_PAGE_BYTES);
	m->shared_page = ROUND_UP(shared, SOFT_GRANULARITY) / EXEC_PAGE_BYTES;
	m->space.base = SOFT_WINDOW_FIRST + gpu->index * SOFT_WINDOW_STRIDE;
	m->space.bytes = bytes;
	m->space.host = reserve(bytes, PROT_READ | PROT_WRITE);
	m->pages = reserve(bytes / EXEC_PAGE_BYTES, PROT_READ | PROT_WRITE);
	m->space.pages = m->pages;
	m->store = softd_store_create(machine->device_window_bytes);
	if (!m->space.host || !m->pages || !m->store || softd_shadow_init(&m->space) < 0 ||
	    softd_memory_map_pages(m, 0, m->device_pages, m->store->fd, 0) < 0) {
		softd_memory_finish(m, machine);
		return -ENOMEM;
	}
	madvise(m->space.host, bytes, MADV_DONTDUMP);
	return 0;
}

bool softd_memory_charge(struct softd_gpu *gpu, uint64_t bytes)
{
	if (bytes > gpu->machine->opt.memory_bytes - gpu->memory_used) {
		return false;
	}
	gpu->memory_used += bytes;
	return true;
}

void softd_memory_uncharge(struct softd_gpu *gpu, uint64_t bytes)
{
	gpu->memory_used -= bytes;
}

bool softd_memory_count_mapping(struct softd_memory *m, struct softd_machine *machine)
{
	if (m->pinned >= SOFT_MAX_PINNED || machine->pinned >= SOFT_MAX_PINNED_ALL) {
		return false;
	}
	m->pinned++;
	machine->pinned++;
	return true;
}

void softd_memory_uncount_mapping(struct softd_memory *m, struct softd_machine *machine)
{
	m->pinned--;
	machine->pinned--;
}

static uint64_t bytes_of(const struct softd_alloc *a)
{
	return (uint64_t)a->pages * EXEC_PAGE_BYTES;
}

static uint64_t offset_of(const struct softd_alloc *a)
{
	return (uint64_t)a->first * EXEC_PAGE_BYTES;
}

/* Returns the index of the first allocation that begins after page. */
uint32_t softd_memory_find_after(const struct softd_memory *m, uint64_t page)
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

/* An allocation of at most that many pages lies in one block, as on NVIDIA's devices: programs that
 * count what they use count such blocks. */
#define SMALL_PAGES ((UINT64_C(1) << 20) / EXEC_PAGE_BYTES)
#define BLOCK_PAGES (SOFT_GRANULARITY / EXEC_PAGE_BYTES)

struct softd_room {
	uint64_t begin, end, pages, align; /* in pages; align as device addresses */
};

/* Returns the first page from `page` on at which what is asked for may begin. Windows begin at
 * multiples of the largest alignment. */
static uint64_t next_place(const struct softd_room *r, uint64_t page)
{
	page = ROUND_UP(page, r->align);
	if (r->pages <= SMALL_PAGES && page % BLOCK_PAGES + r->pages > BLOCK_PAGES) {
		page = ROUND_UP(page, BLOCK_PAGES);
	}
	return page;
}

/* First fit, leaving an invalid page between neighbours so that an overrun faults. Returns the
 * index at which to insert the new allocation and its first page in *ret_first, or -1 if there is
 * no room. */
static int64_t find_room(const struct softd_memory *m, const struct softd_room *r,
			 uint64_t *ret_first) REQUIRES(softd_lock)
{
	uint64_t begin = next_place(r, r->begin);
	uint32_t i = softd_memory_find_after(m, r->begin - 1);

	for (; i < m->n && m->allocs[i].first < r->end; i++) {
		if (m->allocs[i].first > begin && m->allocs[i].first - begin > r->pages) {
			break;
		}
		begin = next_place(r, (uint64_t)m->allocs[i].first + m->allocs[i].pages + 1);
	}
	if (begin >= r->end || r->end - begin <= r->pages) {
		return -1;
	}
	*ret_first = begin;
	return i;
}

int softd_memory_grow(struct softd_memory *m)
{
	uint32_t cap = m->cap ? m->cap * 2 : 64;
	struct softd_alloc *a;

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

void softd_memory_insert(struct softd_memory *m, uint32_t at, const struct softd_alloc *a)
{
	memmove(m->allocs + at + 1, m->allocs + at, (m->n - at) * sizeof(*a));
	m->allocs[at] = *a;
	m->allocs[at].serial = ++m->serials;
	m->n++;
}

void softd_memory_remove(struct softd_memory *m, struct softd_alloc *a)
{
	uint32_t i = (uint32_t)(a - m->allocs);

	memmove(a, a + 1, (m->n - i - 1) * sizeof(*a));
	m->n--;
}

static struct softd_room part_for(const struct softd_memory *m, enum softd_alloc_kind kind,
				  uint64_t pages)
{
	switch (kind) {
	case SOFTD_ALLOC_DEVICE:
		return (struct softd_room){ 1, m->device_pages, pages, 1 };
	case SOFTD_ALLOC_PINNED:
		return (struct softd_room){ m->device_pages + 1, m->shared_page, pages, 1 };
	default:
		return (struct softd_room){ m->shared_page, m->space.bytes / EXEC_PAGE_BYTES, pages,
					    1 };
	}
}

struct softd_alloc *softd_memory_place(struct softd_memory *m, enum softd_alloc_kind kind,
				       uint32_t owner, uint64_t bytes, uint64_t align)
{
	uint64_t pages = bytes / EXEC_PAGE_BYTES + (bytes % EXEC_PAGE_BYTES != 0), first;
	struct softd_room r = part_for(m, kind, pages);
	struct softd_alloc a;
	int64_t at;

	r.align = MAX(align / EXEC_PAGE_BYTES, 1u);
	if (!bytes || softd_memory_grow(m) < 0) {
		return NULL;
	}
	at = find_room(m, &r, &first);
	if (at < 0) {
		return NULL;
	}
	a = (struct softd_alloc){ .first = (uint32_t)first,
				  .pages = (uint32_t)pages,
				  .bytes = bytes,
				  .kind = kind,
				  .owner = owner };
	softd_memory_insert(m, (uint32_t)at, &a);
	return &m->allocs[at];
}

uint64_t softd_memory_address(const struct softd_memory *m, const struct softd_alloc *a)
{
	return m->space.base + (uint64_t)a->first * EXEC_PAGE_BYTES;
}

static uint64_t alloc_device(struct softd_memory *m, uint32_t owner, uint64_t bytes)
	REQUIRES(softd_lock)
{
	struct softd_alloc *a = softd_memory_place(m, SOFTD_ALLOC_DEVICE, owner, bytes, 0);

	if (!a) {
		return 0;
	}
	if (!softd_memory_charge(m->gpu, bytes_of(a))) {
		softd_memory_remove(m, a);
		return 0;
	}
	m->owned_bytes[owner] += bytes_of(a);
	memset(m->pages + a->first, SOFTD_RIGHTS_RW, a->pages);
	softd_shadow_set_initialized(&m->space, offset_of(a), a->bytes);
	return softd_memory_address(m, a);
}

static uint64_t alloc_pinned(struct softd_memory *m, struct softd_machine *machine, uint32_t owner,
			     uint64_t bytes, int fd) REQUIRES(softd_lock)
{
	struct softd_alloc *a =
		bytes > machine->pinned_limit - machine->pinned_used
			? NULL
			: softd_memory_place(m, SOFTD_ALLOC_PINNED, owner, bytes, 0);

	if (!a) {
		return 0;
	}
	if (bytes_of(a) > machine->pinned_limit - machine->pinned_used ||
	    !softd_memory_count_mapping(m, machine)) {
		softd_memory_remove(m, a);
		return 0;
	}
	if (softd_memory_map_pages(m, a->first, a->pages, fd, 0) < 0) {
		softd_memory_uncount_mapping(m, machine);
		softd_memory_remove(m, a);
		return 0;
	}
	machine->pinned_used += bytes_of(a);
	memset(m->pages + a->first, SOFTD_RIGHTS_RW | EXEC_PAGE_LINK, a->pages);
	softd_shadow_set_initialized(&m->space, offset_of(a), a->bytes);
	return softd_memory_address(m, a);
}

uint64_t softd_memory_alloc(struct softd_memory *m, struct softd_machine *machine, uint32_t owner,
			    uint64_t bytes, enum soft_memory_kind kind, int fd)
{
	if (bytes == 0 || bytes > m->space.bytes) {
		return 0;
	}
	return kind == SOFT_MEMORY_DEVICE ? alloc_device(m, owner, bytes)
					  : alloc_pinned(m, machine, owner, bytes, fd);
}

struct softd_alloc *softd_memory_alloc_at(const struct softd_memory *m, uint64_t address)
{
	uint64_t page = (address - m->space.base) / EXEC_PAGE_BYTES;
	uint32_t i;

	if (address < m->space.base || address - m->space.base >= m->space.bytes ||
	    address % EXEC_PAGE_BYTES) {
		return NULL;
	}
	i = softd_memory_find_after(m, page);
	return i > 0 && m->allocs[i - 1].first == page ? &m->allocs[i - 1] : NULL;
}

void softd_memory_reclaim(struct softd_memory *m, uint32_t page)
{
	struct softd_alloc *a =
		softd_memory_alloc_at(m, m->space.base + (uint64_t)page * EXEC_PAGE_BYTES);

	if (a) {
		softd_memory_remove(m, a);
	}
}

int softd_memory_free(struct softd_memory *m, struct softd_machine *machine, uint64_t address)
{
	struct softd_alloc *a = softd_memory_alloc_at(m, address);

	if (a && a->kind == SOFTD_ALLOC_OPENED) {
		return softd_memory_close_extent(m, machine, address);
	}
	if (!a || (a->kind != SOFTD_ALLOC_DEVICE && a->kind != SOFTD_ALLOC_PINNED)) {
		return -ENOENT;
	}
	memset(m->pages + a->first, 0, a->pages);
	softd_shadow_set_freed(&m->space, offset_of(a), bytes_of(a));
	m->owned_bytes[a->owner] -= a->kind == SOFTD_ALLOC_DEVICE ? bytes_of(a) : 0;
	if (a->kind == SOFTD_ALLOC_PINNED) {
		softd_memory_unmap_pages(m, a->first, a->pages);
		machine->pinned_used -= bytes_of(a);
		softd_memory_uncount_mapping(m, machine);
	} else if (a->extent) {
		a->kind = SOFTD_ALLOC_ORPHAN;
		softd_extent_unref(a->extent); /* reclaims the pages when the last user drops it */
		return 0;
	} else {
		softd_store_discard(m->store, (uint64_t)a->first * EXEC_PAGE_BYTES, bytes_of(a));
		softd_memory_uncharge(m->gpu, bytes_of(a));
	}
	softd_memory_remove(m, a);
	return 0;
}

int softd_memory_restrict(struct softd_memory *m, uint64_t address, uint8_t rights)
{
	const struct softd_alloc *a = softd_memory_alloc_at(m, address);

	if (!a || a->kind == SOFTD_ALLOC_RESERVED || a->kind == SOFTD_ALLOC_ORPHAN) {
		return -ENOENT;
	}
	memset(m->pages + a->first,
	       (m->pages[a->first] & EXEC_PAGE_LINK) | (rights & SOFTD_RIGHTS_RW), a->pages);
	return 0;
}

void softd_memory_take_local(struct softd_memory *m, uint64_t address)
{
	const struct softd_alloc *a = softd_memory_alloc_at(m, address);

	if (a) {
		memset(m->pages + a->first, m->pages[a->first] & SOFTD_RIGHTS_RW, a->pages);
	}
}

bool softd_memory_on_host(const struct softd_memory *m, uint64_t address)
{
	return m->pages[(address - m->space.base) / EXEC_PAGE_BYTES] & EXEC_PAGE_LINK;
}

/* Rights are uniform within an allocation, and no two allocations touch, so one lookup decides a
 * range of any length. */
static bool range_allows(const struct softd_memory *m, uint64_t first, uint64_t last,
			 uint8_t rights) REQUIRES(softd_lock)
{
	uint32_t i = softd_memory_find_after(m, first);
	const struct softd_alloc *a = i ? &m->allocs[i - 1] : NULL;

	if (!a || last - a->first >= a->pages) {
		return false;
	}
	return a->kind == SOFTD_ALLOC_RESERVED ? softd_memory_mappings_allow(m, first, last, rights)
					       : (m->pages[a->first] & rights) == rights;
}

static const struct softd_alloc *alloc_around(const struct softd_memory *m, uint64_t address)
	REQUIRES(softd_lock)
{
	uint64_t page = (address - m->space.base) / EXEC_PAGE_BYTES;
	uint32_t i = softd_memory_find_after(m, page);

	return i && page - m->allocs[i - 1].first < m->allocs[i - 1].pages ? &m->allocs[i - 1]
									   : NULL;
}

uint32_t softd_memory_owner(const struct softd_memory *m, uint64_t address)
{
	const struct softd_alloc *a = alloc_around(m, address);

	return a ? a->owner : SOFTD_NO_OWNER;
}

uint64_t softd_memory_serial(const struct softd_memory *m, uint64_t address)
{
	const struct softd_alloc *a = alloc_around(m, address);

	return a ? a->serial : 0;
}

void *softd_memory_at(const struct softd_memory *m, uint64_t address, uint64_t bytes,
		      uint8_t rights)
{
	uint64_t offset = address - m->space.base;

	if (address < m->space.base || offset >= m->space.bytes ||
	    bytes > m->space.bytes - offset) {
		return NULL;
	}
	if (bytes && !range_allows(m, offset / EXEC_PAGE_BYTES,
				   (offset + bytes - 1) / EXEC_PAGE_BYTES, rights)) {
		return NULL;
	}
	return m->space.host + offset;
}

/* Export and import. */

struct softd_extent *softd_memory_export(struct softd_memory *m, uint64_t address)
{
	struct softd_alloc *a = softd_memory_alloc_at(m, address);

	if (!a || a->kind != SOFTD_ALLOC_DEVICE) {
		return NULL;
	}
	if (!a->extent) {
		a->extent = softd_extent_wrap(m->store, m->gpu,
					      (uint64_t)a->first * EXEC_PAGE_BYTES, bytes_of(a));
		if (a->extent) {
			a->extent->home = m;
			a->extent->home_page = a->first;
		}
	}
	return a->extent;
}

uint64_t softd_memory_open_extent(struct softd_memory *m, struct softd_machine *machine,
				  uint32_t owner, struct softd_extent *x, uint64_t bytes)
{
	struct softd_alloc *a;

	if (!bytes || bytes > x->bytes || !softd_memory_count_mapping(m, machine)) {
		return 0;
	}
	a = softd_memory_place(m, SOFTD_ALLOC_OPENED, owner, bytes, 0);
	if (!a) {
		softd_memory_uncount_mapping(m, machine);
		return 0;
	}
	if (softd_memory_map_pages(m, a->first, a->pages, x->store->fd, x->offset) < 0) {
		softd_memory_remove(m, a);
		softd_memory_uncount_mapping(m, machine);
		return 0;
	}
	a->extent = x;
	x->refs++;
	memset(m->pages + a->first, SOFTD_RIGHTS_RW, a->pages);
	softd_shadow_set_initialized(&m->space, offset_of(a), a->bytes);
	return softd_memory_address(m, a);
}

int softd_memory_close_extent(struct softd_memory *m, struct softd_machine *machine,
			      uint64_t address)
{
	struct softd_alloc *a = softd_memory_alloc_at(m, address);
	struct softd_extent *x;

	if (!a || a->kind != SOFTD_ALLOC_OPENED) {
		return -ENOENT;
	}
	x = a->extent;
	memset(m->pages + a->first, 0, a->pages);
	softd_shadow_set_freed(&m->space, offset_of(a), bytes_of(a));
	softd_memory_unmap_pages(m, a->first, a->pages);
	softd_memory_remove(m, a);
	softd_memory_uncount_mapping(m, machine);
	softd_extent_unref(x);
	return 0;
}

#define LARGE_BYTES (4u << 20)

bool softd_memory_release_begin(struct softd_memory *m, uint64_t address, struct softd_release *ret)
{
	struct softd_alloc *a = softd_memory_alloc_at(m, address);

	if (!a || a->extent || (a->kind != SOFTD_ALLOC_DEVICE && a->kind != SOFTD_ALLOC_PINNED) ||
	    bytes_of(a) < LARGE_BYTES) {
		return false;
	}
	memset(m->pages + a->first, 0, a->pages);
	softd_shadow_set_freed(&m->space, offset_of(a), bytes_of(a));
	m->owned_bytes[a->owner] -= a->kind == SOFTD_ALLOC_DEVICE ? bytes_of(a) : 0;
	*ret = (struct softd_release){ a->first, a->pages, a->kind == SOFTD_ALLOC_PINNED };
	a->kind = SOFTD_ALLOC_ORPHAN;
	return true;
}

void softd_memory_release_pages(const struct softd_memory *m, const struct softd_release *l)
{
	if (l->pinned) {
		softd_memory_unmap_pages(m, l->first, l->pages);
	} else {
		softd_store_discard(m->store, (uint64_t)l->first * EXEC_PAGE_BYTES,
				    (uint64_t)l->pages * EXEC_PAGE_BYTES);
	}
}

void softd_memory_release_end(struct softd_memory *m, struct softd_machine *machine,
			      const struct softd_release *l)
{
	uint64_t bytes = (uint64_t)l->pages * EXEC_PAGE_BYTES;

	if (l->pinned) {
		machine->pinned_used -= bytes;
		softd_memory_uncount_mapping(m, machine);
	} else {
		softd_memory_uncharge(m->gpu, bytes);
	}
	softd_memory_reclaim(m, l->first);
}

/* Finds the first allocation from a page on that belongs to the context and is not freed yet. */
static const struct softd_alloc *next_owned(const struct softd_memory *m, uint64_t page,
					    uint32_t owner) REQUIRES(softd_lock)
{
	for (uint32_t i = page ? softd_memory_find_after(m, page - 1) : 0; i < m->n; i++) {
		if (m->allocs[i].owner == owner && m->allocs[i].kind != SOFTD_ALLOC_ORPHAN) {
			return &m->allocs[i];
		}
	}
	return NULL;
}

void softd_memory_drop(struct softd_memory *m, struct softd_machine *machine, uint32_t owner)
{
	const struct softd_alloc *a = next_owned(m, 0, owner);

	while (a) {
		uint64_t page = a->first, address = softd_memory_address(m, a);
		struct softd_release l;

		if (softd_memory_release_begin(m, address, &l)) {
			softd_machine_unlock(machine);
			softd_memory_release_pages(m, &l);
			softd_machine_lock(machine);
			softd_memory_release_end(m, machine, &l);
		} else {
			softd_memory_free(m, machine, address);
		}
		a = next_owned(m, page + 1, owner);
	}
}

/* Drops the references of the client; exported extents live on with their other users. Adds up the
 * bytes that are charged to this client alone. */
static void finish_allocs(struct softd_memory *m, uint64_t *ret_device, uint64_t *ret_pinned)
	REQUIRES(softd_lock)
{
	for (uint32_t i = 0; i < m->n; i++) {
		struct softd_alloc *a = &m->allocs[i];

		if (a->extent && a->kind != SOFTD_ALLOC_OPENED) {
			a->extent->home = NULL;
		}
		if (a->kind == SOFTD_ALLOC_PINNED) {
			*ret_pinned += bytes_of(a);
		} else if (a->kind == SOFTD_ALLOC_DEVICE && !a->extent) {
			*ret_device += bytes_of(a);
		}
	}
	for (uint32_t i = 0; i < m->n; i++) {
		if (m->allocs[i].extent && m->allocs[i].kind != SOFTD_ALLOC_ORPHAN) {
			softd_extent_unref(m->allocs[i].extent);
		}
	}
	for (uint32_t i = 0; i < m->n_maps; i++) {
		softd_extent_unref(m->maps[i].extent);
	}
}

/* Discards all pages of the window's memfd except exported extents, which their users still map.
 * Runs without the lock: the client is no longer reachable, and extents discard their own pages.
 */
static void give_back_rest(const struct softd_memory *m)
{
	uint64_t begin = 0;

	for (uint32_t i = 0; i < m->n && m->allocs[i].first < m->device_pages; i++) {
		const struct softd_alloc *a = &m->allocs[i];

		if (a->extent) {
			softd_store_discard(m->store, begin * EXEC_PAGE_BYTES,
					    (a->first - begin) * EXEC_PAGE_BYTES);
			begin = (uint64_t)a->first + a->pages;
		}
	}
	softd_store_discard(m->store, begin * EXEC_PAGE_BYTES,
			    (m->device_pages - begin) * EXEC_PAGE_BYTES);
}

void softd_memory_finish(struct softd_memory *m, struct softd_machine *machine)
{
	uint64_t device = 0, pinned = 0;
	bool shared;
	int fd = -1;

	finish_allocs(m, &device, &pinned);
	shared = m->store && m->store->refs > 1;
	fd = shared ? -1 : softd_store_unref_take_fd(m->store);
	softd_machine_unlock(machine);
	if (shared) {
		give_back_rest(m);
	}
	free(m->allocs);
	free(m->maps);
	softd_shadow_finish(&m->space);
	if (m->space.host) {
		munmap(m->space.host, m->space.bytes);
	}
	if (m->pages) {
		munmap(m->pages, m->space.bytes / EXEC_PAGE_BYTES);
	}
	fd_close(fd);
	softd_machine_lock(machine);
	if (shared) {
		softd_store_unref(m->store); /* already empty, should this be the last reference */
	}
	softd_memory_uncharge(m->gpu, device);
	machine->pinned_used -= pinned;
	machine->pinned -= m->pinned;
	memset(m, 0, sizeof(*m));
}
