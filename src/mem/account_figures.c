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
