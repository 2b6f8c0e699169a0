/* Windows on device memory, and copies through them. A unit is counted in `units` from its first
 * copy on; `owner` is then 1 plus the number of its window, 0 without one. */
#include "mem/direct.h"

#include <string.h>

#include "base/atomic.h"
#include "base/compiler.h"

#define CHUNK ((size_t)8 << 10) /* stored under the lock at a time, in 0.5 us; on the stack */
#define SKIP_MAX 64u
#define IS_REFUSED UINT32_MAX /* as a unit's count: it cannot be mapped */

void mem_direct_init(struct mem_direct *d, const struct mem_window_ops *ops, void *dev)
{
	memset(d, 0, sizeof(*d));
	d->ops = ops;
	d->dev = dev;
	lock_init(&d->lock, LOCK_DIRECT);
}

/* ---- windows ---- */

/* Returns the bytes from the address to the end of its unit. */
static size_t in_unit(uint64_t address)
{
	return MEM_WINDOW_BYTES - address % MEM_WINDOW_BYTES;
}

/* Returns the window that the whole range lies in, or NULL. */
static struct mem_slot *window_of(struct mem_direct *d, uint64_t address, size_t bytes)
	REQUIRES(d->lock)
{
	struct mem_region *u = mem_regions_find(&d->units, address / MEM_WINDOW_BYTES);
	struct mem_slot *s = u && u->owner ? &d->slot[u->owner - 1] : NULL;

	return s && address >= s->w.base && address - s->w.base <= s->w.bytes &&
			       bytes <= s->w.bytes - (address - s->w.base)
		       ? s
		       : NULL;
}

/* The unit is no longer counted. */
static void close_window(struct mem_direct *d, struct mem_slot *s) REQUIRES(d->lock)
{
	d->ops->close(d->dev, &s->w);
	s->w.bytes = 0;
	store_relaxed(&d->n_windows, d->n_windows - 1);
}

/* Forgets the counts of all units that have no window, so that new ones can be counted. */
static void forget_counts(struct mem_direct *d) REQUIRES(d->lock)
{
	struct mem_region gone;
	size_t cursor = 0;

	while (mem_regions_take_owned(&d->units, 0, UINT64_MAX, &cursor, &gone)) {
	}
}

/* Counts a copy of a unit that has no window. Returns true if it should get one. */
static bool count(struct mem_direct *d, uint64_t unit) REQUIRES(d->lock)
{
	struct mem_region *u = mem_regions_find(&d->units, unit);

	if (d->closed || d->n_windows == MEM_WINDOWS_MAX) {
		return false;
	}
	if (!u) {
		if (d->units.n == MEM_UNITS_MAX) {
			forget_counts(d);
		}
		(void)mem_regions_add(&d->units, &(struct mem_region){ .key = unit, .count = 2 });
		return false;
	}
	if (u->owner || u->count == IS_REFUSED) {
		return false;
	}
	return ++u->count > MEM_WINDOW_HITS;
}

static struct mem_slot *unused(struct mem_direct *d) REQUIRES(d->lock)
{
	for (unsigned i = 0; i < MEM_WINDOWS_MAX; i++) {
		if (!d->slot[i].w.bytes) {
			return &d->slot[i];
		}
	}
	return NULL;
}

static void open_window(struct mem_direct *d, uint64_t address, bool may) REQUIRES(d->lock)
{
	struct mem_region *u = mem_regions_find(&d->units, address / MEM_WINDOW_BYTES);
	struct mem_slot *s = d->closed ? NULL : unused(d);

	if (!s || !u || u->owner || u->count == IS_REFUSED) { /* another thread was here */
		return;
	}
	*s = (struct mem_slot){ 0 };
	/* It counts before it is opened: a thread that frees the memory first makes ops->open fail
	 * to find it, and then looks at n_windows in mem_direct_gone_if(). If ops->open found the
	 * memory, that thread sees the count, ordered by the lock of what ops->open searches, and
	 * waits for the window. */
	store_relaxed(&d->n_windows, d->n_windows + 1);
	if (!may || d->ops->open(d->dev, address, &s->w)) {
		store_relaxed(&d->n_windows, d->n_windows - 1);
		s->w.bytes = 0;
		u->count = IS_REFUSED;
		return;
	}
	u->owner = (uint64_t)(s - d->slot) + 1;
}

/* ---- the same, for callers ---- */

enum mem_direct_answer mem_direct_find(struct mem_direct *d, uint64_t address, size_t bytes,
				       bool asks_if_done)
{
	enum mem_direct_answer answer = MEM_DIRECT_NO;
	struct mem_slot *s;

	lock_take(&d->lock);
	s = window_of(d, address, MIN(bytes, in_unit(address)));
	if (!s) {
		answer = count(d, address / MEM_WINDOW_BYTES) ? MEM_DIRECT_OPEN : MEM_DIRECT_NO;
	} else if (asks_if_done && s->skip) {
		s->skip--;
	} else if (bytes > in_unit(address) &&
		   !window_of(d, address + in_unit(address), bytes - in_unit(address))) {
		answer = count(d, address / MEM_WINDOW_BYTES + 1) ? MEM_DIRECT_OPEN_NEXT
								  : MEM_DIRECT_NO;
	} else {
		answer = MEM_DIRECT_YES;
	}
	lock_release(&d->lock);
	return answer;
}

/* A thread that is cancelled in between would leave the lock held. */
void mem_direct_open(struct mem_direct *d, uint64_t address, bool may)
{
	int state;

	(void)pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
	lock_take(&d->lock);
	open_window(d, address, may);
	lock_release(&d->lock);
	(void)pthread_setcancelstate(state, NULL);
}

/* Returns how many copies are left alone, after `last` of them. */
static uint8_t more(uint8_t last)
{
	return (uint8_t)MIN(MAX(2u * last, 1u), SKIP_MAX);
}

void mem_direct_asked(struct mem_direct *d, uint64_t address, bool was_done)
{
	struct mem_slot *s;

	lock_take(&d->lock);
	s = window_of(d, address, 1);
	if (s && was_done) {
		s->busy = 0;
	} else if (s) {
		s->busy = more(s->busy);
		s->skip = s->busy;
	}
	lock_release(&d->lock);
}

bool mem_direct_up(struct mem_direct *d, uint64_t address, const void *host, size_t bytes)
{
	const unsigned char *from = host;
	unsigned char chunk[CHUNK];

	while (bytes) {
		size_t n = MIN(MIN(bytes, CHUNK), in_unit(address));
		struct mem_slot *s;

		memcpy(chunk, from, n);
		lock_take(&d->lock);
		s = window_of(d, address, n);
		if (s) {
			mem_direct_store(s->w.at + (address - s->w.base), chunk, n);
		}
		lock_release(&d->lock);
		if (!s) {
			return false;
		}
		address += n;
		from += n;
		bytes -= n;
	}
	return true;
}

static bool is_all_ones(const unsigned char *p, size_t bytes)
{
	return p[0] == 0xff && memcmp(p, p + 1, bytes - 1) == 0;
}

/* Reads to `to`. Returns false if a window was closed, or its next copies down are left alone.
 * *ret_ones: an earlier one of the first window read all ones. */
static bool load(struct mem_direct *d, unsigned char *to, uint64_t address, size_t bytes,
		 bool *ret_ones)
{
	ALIGNED(MEM_DIRECT_LINE) unsigned char chunk[MEM_DIRECT_DOWN_MAX + 2 * MEM_DIRECT_LINE];

	for (size_t done = 0; done < bytes;) {
		size_t n = MIN(bytes - done, in_unit(address + done));
		struct mem_slot *s;

		lock_take(&d->lock);
		s = window_of(d, address + done, n);
		if (s && s->skip_down) {
			s->skip_down--;
			s = NULL;
		}
		if (s) {
			*ret_ones = *ret_ones || (!done && s->ones);
			mem_direct_load(chunk, s->w.at + (address + done - s->w.base), n);
		}
		lock_release(&d->lock);
		if (!s) {
			return false;
		}
		memcpy(to + done, chunk + (address + done) % MEM_DIRECT_LINE, n);
		done += n;
	}
	return true;
}

/* All ones have to be read again. Where that happens often, the load is not tried for some copies.
 */
static void note_ones(struct mem_direct *d, uint64_t address, bool ones)
{
	struct mem_slot *s;

	lock_take(&d->lock);
	s = window_of(d, address, 1);
	if (s) {
		s->ones = ones ? more(s->ones) : 0;
		s->skip_down = s->ones;
	}
	lock_release(&d->lock);
}

bool mem_direct_down(struct mem_direct *d, void *host, uint64_t address, size_t bytes)
{
	unsigned char read[MEM_DIRECT_DOWN_MAX];
	bool before = false, ones;

	if (!bytes || !load(d, read, address, bytes, &before)) {
		return false;
	}
	ones = is_all_ones(read, bytes);
	if (ones || before) {
		note_ones(d, address, ones);
	}
	if (!ones) {
		memcpy(host, read, bytes);
	}
	return !ones;
}

/* ---- memory that goes ---- */

/* Takes the next unit that is counted, from *unit to last. Ranges may be larger than the table of
 * units, which is then looked through instead. */
static bool take_unit(struct mem_direct *d, uint64_t *unit, uint64_t last, size_t *cursor,
		      struct mem_region *ret) REQUIRES(d->lock)
{
	if (last - *unit >= d->units.size) {
		return mem_regions_take_between(&d->units, *unit, last, cursor, ret);
	}
	for (; *unit < last; (*unit)++) {
		if (mem_regions_take(&d->units, *unit, ret)) {
			return true;
		}
	}
	return mem_regions_take(&d->units, last, ret);
}

void mem_direct_gone(struct mem_direct *d, uint64_t address, uint64_t bytes)
{
	uint64_t unit = address / MEM_WINDOW_BYTES, last;
	struct mem_region gone;
	size_t cursor = 0;

	if (checked_add(address, bytes ? bytes - 1 : 0, &last)) {
		last = UINT64_MAX;
	}
	lock_take(&d->lock);
	while (take_unit(d, &unit, last / MEM_WINDOW_BYTES, &cursor, &gone)) {
		if (gone.owner) {
			close_window(d, &d->slot[gone.owner - 1]);
		}
	}
	lock_release(&d->lock);
}

void mem_direct_gone_if(struct mem_direct *d, bool (*is_gone)(const struct mem_window *, void *),
			void *arg)
{
	if (!load_relaxed(&d->n_windows)) {
		return;
	}
	lock_take(&d->lock);
	for (unsigned i = 0; i < MEM_WINDOWS_MAX; i++) {
		struct mem_window *w = &d->slot[i].w;
		struct mem_region gone;

		if (w->bytes && is_gone(w, arg)) {
			(void)mem_regions_take(&d->units, w->base / MEM_WINDOW_BYTES, &gone);
			close_window(d, &d->slot[i]);
		}
	}
	lock_release(&d->lock);
}

static bool every(const struct mem_window *w, void *arg)
{
	(void)w;
	(void)arg;
	return true;
}

void mem_direct_finish(struct mem_direct *d)
{
	lock_take(&d->lock);
	d->closed = true;
	lock_release(&d->lock);
	mem_direct_gone_if(d, every, NULL);
	lock_take(&d->lock);
	mem_regions_finish(&d->units);
	lock_release(&d->lock);
}

void mem_direct_forget(struct mem_direct *d)
{
	lock_init(&d->lock, LOCK_DIRECT); /* another thread may have held it */
	memset(d->slot, 0, sizeof(d->slot));
	d->units = (struct mem_regions){ 0 }; /* as well as have been changing it: leaked */
	d->n_windows = 0;
	d->closed = true;
}

/* ---- times ---- */

static unsigned class_of(size_t bytes)
{
	return MIN((unsigned)(63 - __builtin_clzll(bytes)), MEM_DIRECT_CLASSES - 1);
}

/* Called when the plan does not pay. After some copies both times are measured again. */
static void refuse(struct mem_direct_time *of_plan, struct mem_direct_time *of_driver)
{
	if (add_relaxed(&of_plan->refused, 1u) % MEM_DIRECT_RETRY == MEM_DIRECT_RETRY - 1) {
		store_relaxed(&of_plan->of_plan.n, 0u);
		store_relaxed(&of_driver->of_driver.n, 0u);
		store_relaxed(&of_driver->untimed, 0u);
	}
}

/* The shortest of few times differs by some percent from run to run. */
static bool is_less(uint32_t of_plan_ns, uint32_t of_driver_ns)
{
	return of_plan_ns <= of_driver_ns - of_driver_ns / 16;
}

bool mem_direct_pays(struct mem_direct *d, enum mem_copy_way way, enum mem_direct_kind kind,
		     size_t bytes)
{
	struct mem_direct_time *t = d->time[way][kind];
	unsigned plan = class_of(bytes), driver = plan;

	while (plan && load_relaxed(&t[plan].of_plan.n) < MEM_DIRECT_TIMES) {
		plan--;
	}
	while (driver && load_relaxed(&t[driver].of_driver.n) < MEM_DIRECT_TIMES) {
		driver--;
	}
	if (load_relaxed(&t[plan].of_plan.n) < MEM_DIRECT_TIMES) {
		return true;
	}
	if (load_relaxed(&t[driver].of_driver.n) < MEM_DIRECT_TIMES) {
		/* The driver's turn, or its times would never be known; unless they cannot be. */
		return load_relaxed(&t[class_of(bytes)].untimed) >= MEM_DIRECT_UNTIMED_MAX;
	}
	if (is_less(load_relaxed(&t[plan].of_plan.ns), load_relaxed(&t[driver].of_driver.ns))) {
		return true;
	}
	refuse(&t[plan], &t[driver]);
	return false;
}

bool mem_direct_wants_time(const struct mem_direct *d, enum mem_copy_way way,
			   enum mem_direct_kind kind, size_t bytes, bool by_plan)
{
	const struct mem_direct_time *t = &d->time[way][kind][class_of(bytes)];

	return by_plan ? load_relaxed(&t->of_plan.n) < MEM_DIRECT_TIMES
		       : load_relaxed(&t->of_driver.n) < MEM_DIRECT_TIMES &&
				 load_relaxed(&t->untimed) < MEM_DIRECT_UNTIMED_MAX;
}

void mem_direct_took(struct mem_direct *d, enum mem_copy_way way, enum mem_direct_kind kind,
		     size_t bytes, bool by_plan, uint64_t ns)
{
	struct mem_direct_time *t = &d->time[way][kind][class_of(bytes)];
	uint32_t *shortest = by_plan ? &t->of_plan.ns : &t->of_driver.ns;
	uint32_t *n = by_plan ? &t->of_plan.n : &t->of_driver.n;

	lock_take(&d->lock);
	if (ns == MEM_DIRECT_UNTIMED) {
		store_relaxed(&t->untimed, t->untimed + 1);
	} else if (*n < MEM_DIRECT_TIMES) {
		store_relaxed(shortest, *n ? MIN(*shortest, (uint32_t)MIN(ns, UINT32_MAX))
					   : (uint32_t)MIN(ns, UINT32_MAX));
		store_relaxed(n, *n + 1);
	}
	lock_release(&d->lock);
}
