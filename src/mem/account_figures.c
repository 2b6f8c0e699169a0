/* Reading accounts (mem/account_figures.h). */
#include "mem/account_figures.h"

#include <errno.h>
#include <string.h>

#include "base/atomic.h"
#include "base/compiler.h"

bool mem_account_valid(const struct proto_account *page)
{
	return page->magic == PROTO_ACCOUNT_MAGIC && page->abi == PROTO_ABI;
}

int mem_account_row(const struct proto_account *page, const uint8_t uuid[16])
{
	static const uint8_t none[16]; /* of a free row */

	for (int i = 0; i < (int)PROTO_MAX_GPUS && memcmp(uuid, none, 16); i++) {
		if (memcmp(page->uuid[i], uuid, sizeof(page->uuid[i])) == 0) {
			return i;
		}
	}
	return -ENOENT;
}

uint64_t mem_account_limit(const struct proto_account *page, uint32_t row)
{
	return mem_limit_stated(row, load_relaxed(&page->limit[row]));
}

uint64_t mem_account_left(const struct proto_account *page, uint32_t row)
{
	uint64_t used = mem_account_used(page, row), limit = mem_account_limit(page, row);

	return used < limit ? limit - used : 0;
}

bool mem_account_shows_mem(const struct proto_account *page)
{
	return load_relaxed(&page->show_mem) == 1;
}

uint64_t mem_account_away(const struct proto_account *page, uint32_t row)
{
	uint64_t lines = min_once(load_seqcst(&page->lines), PROTO_ACCOUNT_LINES), sum = 0;

	for (uint32_t i = 0; i < lines; i++) {
		sum += min_once(load_relaxed(&page->kinds[row][i].away), INT64_MAX - sum);
	}
	return sum;
}

static uint64_t bytes_of(uint64_t units)
{
	return (units & PROTO_SHARE_UNITS_MASK) * PROTO_SHARE_UNIT;
}

void mem_account_note_peak(struct proto_account *page, uint32_t row, uint32_t line,
			   const uint64_t *asked)
{
	struct proto_account_orphans *o = &page->orphans[row][line];
	const struct proto_account_line *own = &page->line[row][line];
	uint64_t seen = load_relaxed(&o->peak), before, asking, added, held;

	do {
		/* What was added is read first: a release and a charge in between would count
		 * twice. So would a charge that is refused if what is asked were read last, since
		 * it is lowered after the release. */
		before = asked ? load_seqcst(asked) : 0;
		added = load_seqcst(&own->charged) + bytes_of(load_seqcst(&o->inherited));
		asking = asked ? load_seqcst(asked) : 0;
		held = added - asking - load_seqcst(&own->released) - load_seqcst(&o->disowned) -
		       bytes_of(load_seqcst(&o->returned));
		/* Otherwise it is less than was held if one was refused in between. */
	} while (asked && (before != asking || load_seqcst(asked) != asking));

	/* Negative: what was added since then was released. */
	while ((int64_t)held > 0 && held > seen && !cas_acqrel(&o->peak, &seen, held)) {
		;
	}
}

uint64_t mem_account_peak(const struct proto_account *page, uint32_t row, uint32_t line)
{
	/* The process may have been killed between a charge and the note of it. */
	return MAX(load_relaxed(&page->orphans[row][line].peak),
		   mem_account_line_used(page, row, line));
}

uint64_t mem_account_line(const struct proto_account *page, uint32_t row, uint32_t line,
			  int32_t *ret_pid)
{
	bool is_used = line < min_once(load_seqcst(&page->lines), PROTO_ACCOUNT_LINES);

	*ret_pid = is_used ? load_relaxed(&page->owner[line].pid) : 0;
	return *ret_pid ? mem_account_line_used(page, row, line) : 0;
}

/* Returns a part that a word states, at most what is left, from which it is taken. */
static uint64_t part_of(uint64_t *left, uint64_t bytes)
{
	uint64_t part = MIN(bytes, *left);

	*left -= part;
	return part;
}

void mem_account_kinds(const struct proto_account *page, uint32_t row, uint32_t line,
		       struct mem_account_kinds *ret)
{
	const struct proto_account_kinds *k = &page->kinds[row][line];
	uint64_t left;

	ret->held = mem_account_line_used(page, row, line);
	ret->held = ret->held <= INT64_MAX ? ret->held : 0; /* it has released more than it had */
	left = ret->held;
	for (unsigned i = 0; i < PROTO_KINDS; i++) {
		ret->kind[i] = part_of(&left, load_relaxed(&k->bytes[i]));
	}
	ret->overhead = part_of(&left, load_relaxed(&page->line[row][line].overhead));
	ret->inherited = part_of(&left, mem_account_orphans(page, row, line));
	ret->other = left;
	ret->away = min_once(load_relaxed(&k->away), INT64_MAX);
	ret->chunks = load_relaxed(&k->chunks) == 1;
}

void mem_account_clear_kinds(struct proto_account *page, uint32_t line)
{
	for (unsigned row = 0; row < PROTO_MAX_GPUS; row++) {
		struct proto_account_kinds *k = &page->kinds[row][line];

		for (unsigned i = 0; i < PROTO_KINDS; i++) {
			store_relaxed(&k->bytes[i], (uint64_t)0);
		}
		store_relaxed(&k->away, (uint64_t)0);
		store_relaxed(&k->chunks, (uint64_t)0);
	}
}
