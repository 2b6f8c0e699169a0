/* Charges and releases (mem/ledger.h). */
#include "mem/ledger.h"

#include <errno.h>
#include <sched.h>
#include <string.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "base/compiler.h"

/* Sums of a row: what is granted, and what is granted or being decided. */
struct sums {
	uint64_t used, all;
};

static uint64_t add_saturating(uint64_t a, uint64_t b)
{
	uint64_t r;

	return __builtin_add_overflow(a, b, &r) ? UINT64_MAX : r;
}

static uint32_t lines_of(const struct proto_account *page)
{
	return MIN(load_seqcst(&page->lines), PROTO_ACCOUNT_LINES);
}

static struct sums sums_of(const struct proto_account *page, uint32_t row)
{
	struct sums s = { 0, 0 };
	uint32_t n = lines_of(page);

	for (uint32_t i = 0; i < n; i++) {
		const struct proto_account_line *line = &page->line[row][i];
		uint64_t wanted = load_seqcst(&line->wanted); /* before used: see mem/ledger.h */
		uint64_t used = load_seqcst(&line->used);

		s.used = add_saturating(s.used, used);
		s.all = add_saturating(s.all, add_saturating(used, wanted));
	}
	return s;
}

/* Returns true if a charge of a lower line is being decided. */
static bool lower_waits(const struct mem_ledger *l, uint32_t row)
{
	for (uint32_t i = 0; i < l->line; i++) {
		if (load_seqcst(&l->page->line[row][i].wanted)) {
			return true;
		}
	}
	return false;
}

int mem_ledger_init(struct mem_ledger *l, struct proto_account *page, uint32_t line)
{
	if (page->magic != PROTO_ACCOUNT_MAGIC || page->abi != PROTO_ABI ||
	    line >= PROTO_ACCOUNT_LINES) {
		return -EPROTO;
	}
	l->page = page;
	l->line = line;
	for (unsigned i = 0; i < PROTO_ACCOUNT_ROWS; i++) {
		pthread_mutex_init(&l->mutex[i], NULL);
	}
	return 0;
}

int mem_ledger_row(const struct mem_ledger *l, const uint8_t uuid[16])
{
	static const uint8_t none[16]; /* of a free row */

	for (int i = 0; i < (int)PROTO_ACCOUNT_ROWS && memcmp(uuid, none, 16); i++) {
		if (memcmp(l->page->uuid[i], uuid, sizeof(l->page->uuid[i])) == 0) {
			return i;
		}
	}
	return -ENOENT;
}

uint64_t mem_ledger_limit(const struct mem_ledger *l, uint32_t row)
{
	uint64_t limit = load_relaxed(&l->page->limit[row]);

	return limit ? limit : UINT64_MAX;
}

uint64_t mem_ledger_allowed(const struct mem_ledger *l, uint32_t row)
{
	uint64_t allowed = load_seqcst(&l->page->allowed[row]);

	return allowed ? allowed : mem_ledger_limit(l, row);
}

uint64_t mem_account_used(const struct proto_account *page, uint32_t row)
{
	return sums_of(page, row).used;
}

uint64_t mem_account_claimed(const struct proto_account *page, uint32_t row)
{
	return sums_of(page, row).all;
}

uint64_t mem_ledger_used(const struct mem_ledger *l, uint32_t row)
{
	return mem_account_used(l->page, row);
}

uint64_t mem_ledger_own(const struct mem_ledger *l, uint32_t row)
{
	return load_relaxed(&l->page->line[row][l->line].used);
}

/* Decides on what is in `wanted`. Returns 0, -ENOMEM, or -EAGAIN if another charge is in the way.
 */
static int decide(const struct mem_ledger *l, uint32_t row, uint64_t bytes, bool whole)
{
	struct sums s = sums_of(l->page, row);
	uint64_t most = whole ? mem_ledger_limit(l, row) : mem_ledger_allowed(l, row);

	if (s.all <= most) {
		return 0;
	}
	return add_saturating(s.used, bytes) > most ? -ENOMEM : -EAGAIN;
}

/* Returns true once the process may decide again: at once while no lower line waits, with `wanted`
 * in place; else withdraws it and stores it again when none does. False: it has waited too long. */
static bool retry(const struct mem_ledger *l, uint32_t row, uint64_t bytes, uint64_t deadline)
{
	struct proto_account_line *own = &l->page->line[row][l->line];

	if (lower_waits(l, row)) {
		store_seqcst(&own->wanted, (uint64_t)0);
		while (lower_waits(l, row)) {
			if (clock_now_ns() >= deadline) {
				return false;
			}
			sched_yield();
		}
		store_seqcst(&own->wanted, bytes);
		return true;
	}
	sched_yield();
	return clock_now_ns() < deadline;
}

static int charge(struct mem_ledger *l, uint32_t row, uint64_t bytes, bool whole)
{
	struct proto_account_line *own = &l->page->line[row][l->line];
	uint64_t deadline = 0;
	int err;

	store_seqcst(&own->wanted, bytes);
	while ((err = decide(l, row, bytes, whole)) == -EAGAIN) {
		deadline = deadline ? deadline : clock_now_ns() + MEM_COLLIDE_NS;
		if (!retry(l, row, bytes, deadline)) {
			err = -ENOMEM;
			break;
		}
	}
	if (!err) {
		__atomic_fetch_add(&own->used, bytes, __ATOMIC_SEQ_CST);
	}
	store_seqcst(&own->wanted, (uint64_t)0);
	return err;
}

static int charge_locked(struct mem_ledger *l, uint32_t row, uint64_t bytes, bool whole)
{
	int err;

	if (!bytes) {
		return 0;
	}
	pthread_mutex_lock(&l->mutex[row]);
	err = charge(l, row, bytes, whole);
	pthread_mutex_unlock(&l->mutex[row]);
	return err;
}

int mem_ledger_charge(struct mem_ledger *l, uint32_t row, uint64_t bytes)
{
	return charge_locked(l, row, bytes, false);
}

int mem_ledger_charge_whole(struct mem_ledger *l, uint32_t row, uint64_t bytes)
{
	return charge_locked(l, row, bytes, true);
}

void mem_ledger_release(struct mem_ledger *l, uint32_t row, uint64_t bytes)
{
	__atomic_fetch_sub(&l->page->line[row][l->line].used, bytes, __ATOMIC_SEQ_CST);
}

void mem_ledger_force(struct mem_ledger *l, uint32_t row, uint64_t bytes)
{
	__atomic_fetch_add(&l->page->line[row][l->line].used, bytes, __ATOMIC_SEQ_CST);
}

uint64_t mem_ledger_overhead(const struct mem_ledger *l, uint32_t row)
{
	return load_relaxed(&l->page->line[row][l->line].overhead);
}

void mem_ledger_set_overhead(struct mem_ledger *l, uint32_t row, uint64_t bytes)
{
	store_relaxed(&l->page->line[row][l->line].overhead, bytes);
}

void mem_ledger_set_gbpf(struct mem_ledger *l, uint32_t row, uint64_t bytes)
{
	store_relaxed(&l->page->line[row][l->line].gbpf, bytes);
}

void mem_ledger_add_shared(struct mem_ledger *l, uint32_t row, uint64_t bytes)
{
	add_relaxed(&l->page->line[row][l->line].shared, bytes);
}

void mem_ledger_sub_shared(struct mem_ledger *l, uint32_t row, uint64_t bytes)
{
	__atomic_fetch_sub(&l->page->line[row][l->line].shared, bytes, __ATOMIC_RELAXED);
}

uint64_t mem_ledger_shared(const struct mem_ledger *l, uint32_t row)
{
	return load_relaxed(&l->page->line[row][l->line].shared);
}
