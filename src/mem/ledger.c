/* Charges and releases (mem/ledger.h). */
#include "mem/ledger.h"

#include <errno.h>
#include <sched.h>
#include <string.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "base/compiler.h"

#define READS 8u /* of a figure to show, while memory is released */

/* Sums of a row. */
struct sums {
	uint64_t used;	   /* at least what was granted and not released before they were made */
	uint64_t all;	   /* the same, and what is being decided */
	uint64_t released; /* modulo 2^64: all that was ever released */
	uint32_t lines;
	uint64_t gone; /* modulo 2^64: all that was ever taken off orphans */
};

static uint64_t add_saturating(uint64_t a, uint64_t b)
{
	uint64_t r;

	return __builtin_add_overflow(a, b, &r) ? UINT64_MAX : r;
}

static uint32_t lines_of(const struct proto_account *page)
{
	return (uint32_t)min_once(load_seqcst(&page->lines), PROTO_ACCOUNT_LINES);
}

static uint64_t bytes_of(uint64_t word)
{
	return (word & PROTO_SHARE_UNITS_MASK) * PROTO_SHARE_UNIT;
}

static uint64_t gone_of(const struct proto_account_orphans *o)
{
	return load_seqcst(&o->disowned) + bytes_of(load_seqcst(&o->returned));
}

/* Returns all that was ever taken off the orphans of a row, modulo 2^64. While no process has ever
 * shared memory, there is none. All lines count, also those that are not in use: their words are
 * never lowered, and memory may pass to a line that comes into use during a sum. */
static uint64_t gone_of_row(const struct proto_account *page, uint32_t row)
{
	uint32_t n = load_seqcst(&page->shares) ? PROTO_ACCOUNT_LINES : 0;
	uint64_t gone = 0;

	for (uint32_t i = 0; i < n; i++) {
		gone += gone_of(&page->orphans[row][i]);
	}
	return gone;
}

/* Returns all that lines were ever given of orphans. */
static uint64_t inherited_of_row(const struct proto_account *page, uint32_t row)
{
	uint32_t n = load_seqcst(&page->shares) ? PROTO_ACCOUNT_LINES : 0;
	uint64_t inherited = 0;

	for (uint32_t i = 0; i < n; i++) {
		inherited += bytes_of(load_seqcst(&page->orphans[row][i].inherited));
	}
	return inherited;
}

static struct sums sums_of(const struct proto_account *page, uint32_t row)
{
	struct sums s = { 0, 0, 0, lines_of(page) };
	uint64_t orphans;

	s.gone = gone_of_row(page, row); /* first, as `released` */
	for (uint32_t i = 0; i < s.lines; i++) {
		const struct proto_account_line *line = &page->line[row][i];
		/* In this order: see mem/ledger.h. */
		uint64_t released = load_seqcst(&line->released);
		uint64_t wanted = load_seqcst(&line->wanted);
		uint64_t used = load_seqcst(&line->charged) - released;

		s.used = add_saturating(s.used, used);
		s.all = add_saturating(s.all, add_saturating(used, wanted));
		s.released += released;
	}
	/* Last: memory is given to a line before it is taken off another one. */
	orphans = inherited_of_row(page, row) - s.gone;
	s.used = add_saturating(s.used, orphans);
	s.all = add_saturating(s.all, orphans);
	return s;
}

/* Returns at most what was in use at the moment between the sums and this call: all that they have
 * counted was charged before it, and what was released until now is taken off. *ret_exact: nothing
 * was released meanwhile. */
static uint64_t used_since(const struct proto_account *page, uint32_t row, const struct sums *s,
			   bool *ret_exact)
{
	uint64_t released = 0;

	for (uint32_t i = 0; i < s->lines; i++) {
		released += load_seqcst(&page->line[row][i].released);
	}
	released += gone_of_row(page, row) - s->gone - s->released;
	*ret_exact = !released;
	return s->used > released ? s->used - released : 0;
}

/* Returns the turn behind those of all charges that have one. */
static uint32_t next_turn(const struct mem_ledger *l, uint32_t row)
{
	uint32_t n = lines_of(l->page), last = 0;

	for (uint32_t i = 0; i < n; i++) {
		uint32_t turn = i == l->line ? 0 : load_seqcst(&l->page->line[row][i].turn);

		last = MAX(last, turn);
	}
	return last < UINT32_MAX ? last + 1 : last;
}

/* Returns true if another charge has a turn before this one, whose own may be 0. Of equal turns,
 * which charges take that meet at the same time, the lower line's is first. */
static bool is_behind(const struct mem_ledger *l, uint32_t row, uint32_t own)
{
	uint32_t n = lines_of(l->page);

	for (uint32_t i = 0; i < n; i++) {
		uint32_t turn = i == l->line ? 0 : load_seqcst(&l->page->line[row][i].turn);

		if (turn && (!own || turn < own || (turn == own && i < l->line))) {
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
		lock_init(&l->mutex[i], LOCK_LEDGER);
		l->asked[i] = 0;
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
	return mem_limit_stated(row, load_relaxed(&l->page->limit[row]));
}

uint64_t mem_ledger_allowed(const struct mem_ledger *l, uint32_t row)
{
	uint64_t allowed = load_seqcst(&l->page->allowed[row]);

	return allowed ? allowed : mem_ledger_limit(l, row);
}

uint64_t mem_line_used(const struct proto_account_line *line)
{
	uint64_t released = load_seqcst(&line->released);

	return load_seqcst(&line->charged) - released;
}

uint64_t mem_account_orphans(const struct proto_account *page, uint32_t row, uint32_t line)
{
	const struct proto_account_orphans *o = &page->orphans[row][line];
	uint64_t gone = gone_of(o);

	return bytes_of(load_seqcst(&o->inherited)) - gone;
}

void mem_account_clear_orphans(struct proto_account *page, uint32_t row, uint32_t line)
{
	struct proto_account_orphans *o = &page->orphans[row][line];

	store_seqcst(&o->disowned,
		     bytes_of(load_seqcst(&o->inherited)) - bytes_of(load_seqcst(&o->returned)));
}

uint64_t mem_account_line_used(const struct proto_account *page, uint32_t row, uint32_t line)
{
	return add_saturating(mem_line_used(&page->line[row][line]),
			      mem_account_orphans(page, row, line));
}

uint64_t mem_account_used(const struct proto_account *page, uint32_t row)
{
	struct sums s;
	uint64_t used;
	bool exact;

	for (unsigned i = 0; i < READS; i++) {
		s = sums_of(page, row);
		used = used_since(page, row, &s, &exact);
		if (exact) {
			break;
		}
	}
	return used;
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
	return mem_line_used(&l->page->line[row][l->line]);
}

uint64_t mem_ledger_released(const struct mem_ledger *l, uint32_t row)
{
	return load_seqcst(&l->page->line[row][l->line].released);
}

uint64_t mem_ledger_own_since(const struct mem_ledger *l, uint32_t row, uint64_t released)
{
	return load_seqcst(&l->page->line[row][l->line].charged) - released;
}

/* Decides on what is in `wanted`. Returns 0, -ENOMEM if it did not fit at some moment, or -EAGAIN
 * if another charge is in the way, or memory moves. */
static int decide(const struct mem_ledger *l, uint32_t row, uint64_t bytes, bool whole)
{
	struct sums s = sums_of(l->page, row);
	/* Between the sums and what is taken off: the moment at which the charge does not fit. */
	uint64_t most = whole ? mem_ledger_limit(l, row) : mem_ledger_allowed(l, row);
	uint64_t used;
	bool exact;

	if (s.all <= most) {
		return 0;
	}
	used = used_since(l->page, row, &s, &exact);
	return add_saturating(used, bytes) > most ? -ENOMEM : -EAGAIN;
}

/* Waits for those that are before it, with `wanted` withdrawn, if there are any. Returns false once
 * it has taken too long; `wanted` is in place either way. */
static bool retry(const struct mem_ledger *l, uint32_t row, uint64_t bytes, uint32_t turn,
		  uint64_t until)
{
	struct proto_account_line *own = &l->page->line[row][l->line];

	if (clock_now_ns() >= until) {
		return false;
	}
	if (is_behind(l, row, turn)) {
		store_seqcst(&own->wanted, (uint64_t)0);
		while (is_behind(l, row, turn) && clock_now_ns() < until) {
			sched_yield();
		}
		store_seqcst(&own->wanted, bytes);
	} else {
		sched_yield();
	}
	return true;
}

static int charge(struct mem_ledger *l, uint32_t row, uint64_t bytes, bool whole)
{
	struct proto_account_line *own = &l->page->line[row][l->line];
	uint64_t begun = 0;
	uint32_t turn = 0;
	int err;

	store_seqcst(&own->wanted, bytes);
	while ((err = decide(l, row, bytes, whole)) == -EAGAIN ||
	       (!err && is_behind(l, row, turn))) {
		if (!turn) {
			turn = next_turn(l, row);
			store_seqcst(&own->turn, turn);
			begun = clock_now_ns();
		}
		if (!retry(l, row, bytes, turn, begun + (err ? MEM_COLLIDE_NS : MEM_GIVE_WAY_NS))) {
			break;
		}
	}
	if (!err) {
		(void)add_acqrel(&l->asked[row], bytes); /* before: mem_account_note_peak() */
		add_seqcst(&own->charged, bytes);
	}
	store_seqcst(&own->wanted, (uint64_t)0);
	if (turn) {
		store_seqcst(&own->turn, 0u);
	}
	return err ? -ENOMEM : 0;
}

static int charge_locked(struct mem_ledger *l, uint32_t row, uint64_t bytes, bool whole)
{
	int err;

	if (!bytes) {
		return 0;
	}
	lock_take(&l->mutex[row]);
	err = charge(l, row, bytes, whole);
	lock_release(&l->mutex[row]);
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

void mem_ledger_answered(struct mem_ledger *l, uint32_t row, uint64_t bytes)
{
	(void)sub_acqrel(&l->asked[row], bytes);
}

void mem_ledger_release(struct mem_ledger *l, uint32_t row, uint64_t bytes)
{
	add_seqcst(&l->page->line[row][l->line].released, bytes);
}

void mem_ledger_force(struct mem_ledger *l, uint32_t row, uint64_t bytes)
{
	add_seqcst(&l->page->line[row][l->line].charged, bytes);
}

uint64_t mem_ledger_overhead(const struct mem_ledger *l, uint32_t row)
{
	return load_relaxed(&l->page->line[row][l->line].overhead);
}

void mem_ledger_set_overhead(struct mem_ledger *l, uint32_t row, uint64_t bytes)
{
	store_relaxed(&l->page->line[row][l->line].overhead, bytes);
}

void mem_ledger_tried(struct mem_ledger *l, uint32_t row, uint32_t seq)
{
	/* After `charged` was raised: gbpfd, which reads this first, then counts it. */
	store_release(&l->page->line[row][l->line].tried_seq, seq);
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
	sub_relaxed(&l->page->line[row][l->line].shared, bytes);
}

uint64_t mem_ledger_shared(const struct mem_ledger *l, uint32_t row)
{
	return load_relaxed(&l->page->line[row][l->line].shared);
}

void mem_ledger_add_kind(struct mem_ledger *l, uint32_t row, enum proto_kind kind, uint64_t bytes)
{
	add_relaxed(&l->page->kinds[row][l->line].bytes[kind], bytes);
}

void mem_ledger_sub_kind(struct mem_ledger *l, uint32_t row, enum proto_kind kind, uint64_t bytes)
{
	sub_relaxed(&l->page->kinds[row][l->line].bytes[kind], bytes);
}

void mem_ledger_set_away(struct mem_ledger *l, uint32_t row, uint64_t bytes)
{
	store_relaxed(&l->page->kinds[row][l->line].away, bytes);
}

void mem_ledger_set_chunks(struct mem_ledger *l, uint32_t row, bool chunks)
{
	store_relaxed(&l->page->kinds[row][l->line].chunks, (uint64_t)chunks);
}
