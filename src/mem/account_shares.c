/* Exports and imports (mem/account_shares.h). */
#include "mem/account_shares.h"

#include <errno.h>

#include "base/atomic.h"
#include "base/compiler.h"

/* The state: kind 4 bits, vague 1 at bit 4, line 8 at 8, row 8 at 16, number of changes 16 at 24,
 * generation 24 at 40. */
#define KIND_MASK UINT64_C(0xf)
#define VAGUE (UINT64_C(1) << 4)
#define LINE_SHIFT 8u
#define ROW_SHIFT 16u
#define SEQ_SHIFT 24u
#define SEQ_MASK UINT64_C(0xffff)
#define GENERATION_SHIFT 40u

static bool change(uint64_t *word, uint64_t from, uint64_t to)
{
	return cas_seqcst(word, &from, to);
}

static uint64_t with_kind(uint64_t state, enum mem_share_kind kind, uint64_t seq)
{
	return (state & ~(KIND_MASK | SEQ_MASK << SEQ_SHIFT)) | (uint64_t)kind | seq << SEQ_SHIFT;
}

/* Returns the state of the share once it is free: only its generation remains. */
static uint64_t freed(uint64_t state)
{
	return state >> GENERATION_SHIFT << GENERATION_SHIFT;
}

/* Adds units to a word that has had `seq` changes, unless that was done. */
static void change_once(uint64_t *word, uint64_t seq, uint64_t units)
{
	uint64_t now = load_seqcst(word);

	if (now >> PROTO_SHARE_COUNT_SHIFT == seq) {
		(void)change(word, now,
			     ((seq + 1) & SEQ_MASK) << PROTO_SHARE_COUNT_SHIFT |
				     ((now + units) & PROTO_SHARE_UNITS_MASK));
	}
}

static struct proto_account_orphans *orphans_of(struct proto_account *page,
						const struct mem_share *s)
{
	return &page->orphans[s->row][s->line];
}

uint32_t mem_shares_of(const struct proto_account *page)
{
	return (uint32_t)min_once(load_seqcst(&page->shares), PROTO_ACCOUNT_SHARES);
}

struct mem_share mem_share_at(const struct proto_account *page, uint32_t number)
{
	const struct proto_account_share *at = &page->share[number];
	struct mem_share s = { .state = load_seqcst(&at->state) };

	s.kind = (enum mem_share_kind)(s.state & KIND_MASK);
	s.row = (uint32_t)(s.state >> ROW_SHIFT & 0xff);
	s.line = (uint32_t)(s.state >> LINE_SHIFT & (PROTO_ACCOUNT_LINES - 1));
	s.is_vague = s.state & VAGUE;
	s.id = load_relaxed(&at->id);
	s.bytes = load_relaxed(&at->bytes);
	if (s.kind > MEM_SHARE_RETURNING || s.row >= PROTO_ACCOUNT_ROWS) {
		s.kind = MEM_SHARE_FREE; /* no process writes that */
		s.row = 0;
	}
	return s;
}

/* ---- the process ---- */

/* Raises the number of shares, before the share can be found. */
static void raise_shares(struct proto_account *page, uint32_t to)
{
	uint32_t now = load_seqcst(&page->shares);

	while (now < to && !cas_seqcst(&page->shares, &now, to)) {
		;
	}
}

int mem_share_add(const struct mem_ledger *l, uint32_t row, enum mem_share_kind kind, bool is_vague,
		  uint64_t id, uint64_t bytes)
{
	struct proto_account *page = l->page;

	for (uint32_t i = 0; i < PROTO_ACCOUNT_SHARES; i++) {
		struct proto_account_share *at = &page->share[i];
		uint64_t now = load_seqcst(&at->state);
		uint64_t filling = freed(now) + (UINT64_C(1) << GENERATION_SHIFT);

		filling |= (uint64_t)l->line << LINE_SHIFT | (uint64_t)row << ROW_SHIFT |
			   (is_vague ? VAGUE : 0) | (uint64_t)MEM_SHARE_FILLING;
		if ((now & KIND_MASK) != MEM_SHARE_FREE || !change(&at->state, now, filling)) {
			continue;
		}
		raise_shares(page, i + 1);
		store_relaxed(&at->id, id);
		store_relaxed(&at->bytes, ROUND_UP(bytes, (uint64_t)PROTO_SHARE_UNIT));
		store_seqcst(&at->state, with_kind(filling, kind, 0));
		return (int)i;
	}
	return -ENOSPC;
}

bool mem_share_has_claim(const struct mem_ledger *l, uint64_t id)
{
	for (uint32_t i = 0, n = mem_shares_of(l->page); i < n; i++) {
		struct mem_share s = mem_share_at(l->page, i);

		if (s.kind == MEM_SHARE_CLAIM && s.line == l->line && s.id == id) {
			return true;
		}
	}
	return false;
}

/* Returns true if the memory has another import that is not charged. */
static bool is_wanted(const struct proto_account *page, uint32_t number, uint64_t id)
{
	for (uint32_t i = 0, n = mem_shares_of(page); i < n; i++) {
		struct mem_share s = mem_share_at(page, i);

		if (i != number && s.kind == MEM_SHARE_IMPORT && s.id == id) {
			return true;
		}
	}
	return false;
}

/* Drops an import that is charged to the line. Returns true if gbpfd has to look. */
static bool leave(const struct mem_ledger *l, uint32_t number, const struct mem_share *s)
{
	struct proto_account_orphans *o = &l->page->orphans[s->row][l->line];
	uint64_t *word = &l->page->share[number].state;
	uint64_t left = with_kind(s->state, MEM_SHARE_LEFT, 0);

	mem_share_complete(l->page, number);
	if (!change(word, s->state, left) &&
	    !change(word, with_kind(s->state, MEM_SHARE_OWNED, 0), left)) {
		return false; /* no process or gbpfd does that */
	}
	if (!s->is_vague && is_wanted(l->page, number, s->id)) {
		return true;
	}
	if (change(word, left, freed(left))) {
		add_seqcst(&o->disowned, s->bytes);
	}
	return false;
}

bool mem_share_drop(const struct mem_ledger *l, uint32_t number)
{
	struct mem_share s = mem_share_at(l->page, number);
	uint64_t *word = &l->page->share[number].state;

	if (s.line != l->line) {
		return false; /* gbpfd has cleared the line */
	}
	if (s.kind == MEM_SHARE_CLAIM) {
		(void)change(word, s.state, freed(s.state));
		return true;
	}
	if (s.kind == MEM_SHARE_IMPORT) {
		if (change(word, s.state, freed(s.state))) {
			return false;
		}
		s = mem_share_at(l->page, number); /* gbpfd has given it to the line */
	}
	return (s.kind == MEM_SHARE_GIVEN || s.kind == MEM_SHARE_OWNED) && leave(l, number, &s);
}

bool mem_share_is_answered(const struct proto_account *page, uint32_t number)
{
	struct mem_share own = mem_share_at(page, number);

	for (uint32_t i = 0, n = mem_shares_of(page); i < n; i++) {
		struct mem_share s = mem_share_at(page, i);
		bool is_charged = s.kind == MEM_SHARE_GIVEN || s.kind == MEM_SHARE_OWNED;

		if (i != number && s.id == own.id &&
		    (s.kind == MEM_SHARE_CLAIM || (is_charged && !own.is_vague))) {
			return true;
		}
	}
	return false;
}

/* ---- gbpfd ---- */

void mem_share_complete(struct proto_account *page, uint32_t number)
{
	struct mem_share s = mem_share_at(page, number);
	uint64_t *word = &page->share[number].state;
	uint64_t seq = s.state >> SEQ_SHIFT & SEQ_MASK, units = s.bytes / PROTO_SHARE_UNIT;

	if (s.kind == MEM_SHARE_GIVEN) {
		change_once(&orphans_of(page, &s)->inherited, seq, units);
		(void)change(word, s.state, with_kind(s.state, MEM_SHARE_OWNED, 0));
	} else if (s.kind == MEM_SHARE_RETURNING) {
		change_once(&orphans_of(page, &s)->returned, seq, units);
		(void)change(word, s.state, freed(s.state));
	}
}

bool mem_share_give(struct proto_account *page, uint32_t number, const struct mem_share *s)
{
	uint64_t seq = load_seqcst(&orphans_of(page, s)->inherited) >> PROTO_SHARE_COUNT_SHIFT;

	if (!change(&page->share[number].state, s->state,
		    with_kind(s->state, MEM_SHARE_GIVEN, seq))) {
		return false;
	}
	/* If the process closes the import meanwhile, it completes this first. */
	mem_share_complete(page, number);
	return true;
}

void mem_share_return(struct proto_account *page, uint32_t number, const struct mem_share *s)
{
	uint64_t seq = load_seqcst(&orphans_of(page, s)->returned) >> PROTO_SHARE_COUNT_SHIFT;

	if (change(&page->share[number].state, s->state,
		   with_kind(s->state, MEM_SHARE_RETURNING, seq))) {
		mem_share_complete(page, number);
	}
}

void mem_share_mark_dead(struct proto_account *page, uint32_t number, const struct mem_share *s)
{
	(void)change(&page->share[number].state, s->state, with_kind(s->state, MEM_SHARE_DEAD, 0));
}

void mem_share_free(struct proto_account *page, uint32_t number, const struct mem_share *s)
{
	(void)change(&page->share[number].state, s->state, freed(s->state));
}
