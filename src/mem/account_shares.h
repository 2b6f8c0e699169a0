/* Exports and imports of a vGPU's processes, in their account: by which gbpfd finds those that hold
 * memory whose creator has exited, and charges it to them.
 *
 * A share belongs to the line of a process, which alone adds and drops it. gbpfd alone gives an
 * import to its line, and takes back what the process has left:
 *
 *     CLAIM ---process---> free              exported; the line's process is charged for it
 *       `----gbpfd-------> DEAD -> free      its process has exited
 *     IMPORT --process---> free              imported: another process is charged for it
 *       `----gbpfd-------> GIVEN -> OWNED    charged to the line: counted in `inherited`
 *     GIVEN, OWNED --process--> LEFT         closed
 *     LEFT ----process---> free              counted in `disowned`: no other import needs it
 *       `----gbpfd-------> RETURNING -> free counted in `returned`: another import has it now
 *
 * Each arrow is one compare-and-exchange of `state`. The generation in it differs for each use of a
 * share, so a late exchange fails. GIVEN and RETURNING contain the number of changes that the word
 * to be changed has had before. A gbpfd that is restarted, or the process that closes the import,
 * changes the word if it still has that number, so that the change is made exactly once. A line has
 * at most one share in either of these kinds.
 *
 * A process that imports stores its share first, then looks for a claim; gbpfd marks claims as dead
 * first, then looks for imports. So one of them finds the other, and with it the import that no
 * process is charged for. Likewise a process that closes an import stores LEFT first, then looks
 * for other imports.
 */
#ifndef GBPF_MEM_ACCOUNT_SHARES_H
#define GBPF_MEM_ACCOUNT_SHARES_H

#include <stdbool.h>
#include <stdint.h>

#include "mem/ledger.h"
#include "proto/account.h"

enum mem_share_kind {
	MEM_SHARE_FREE = 0,
	MEM_SHARE_FILLING, /* its process writes id and bytes */
	MEM_SHARE_CLAIM,
	MEM_SHARE_DEAD,
	MEM_SHARE_IMPORT,
	MEM_SHARE_GIVEN,
	MEM_SHARE_OWNED,
	MEM_SHARE_LEFT,
	MEM_SHARE_RETURNING,
};

/* What a share contained. Its words come from a page that is not trusted. */
struct mem_share {
	uint64_t state; /* for exchanges */
	uint64_t id, bytes;
	enum mem_share_kind kind;
	uint32_t row, line;
	bool is_vague; /* other memory may have the same id */
};

/* ---- for the process ---- */

/* Adds a CLAIM or an IMPORT of this process. bytes are rounded up to PROTO_SHARE_UNIT. Returns its
 * number, or -ENOSPC. */
int mem_share_add(const struct mem_ledger *l, uint32_t row, enum mem_share_kind kind, bool is_vague,
		  uint64_t id, uint64_t bytes);
/* Returns true if this process has a CLAIM of that id. */
bool mem_share_has_claim(const struct mem_ledger *l, uint64_t id);
/* Drops one. Returns true if gbpfd has to look for imports that this may leave without a charge. */
bool mem_share_drop(const struct mem_ledger *l, uint32_t number);
/* Returns true if a process of the vGPU is charged for what share `number`, an import, has
 * imported. */
bool mem_share_is_answered(const struct proto_account *page, uint32_t number);

/* ---- for gbpfd ---- */

/* Returns one more than the highest share that was ever used, at most PROTO_ACCOUNT_SHARES. */
uint32_t mem_shares_of(const struct proto_account *page);
struct mem_share mem_share_at(const struct proto_account *page, uint32_t number);
/* Completes changes that an earlier gbpfd has begun. */
void mem_share_complete(struct proto_account *page, uint32_t number);
/* Charges an import to its line. Returns false if it has changed since it was read. */
bool mem_share_give(struct proto_account *page, uint32_t number, const struct mem_share *s);
/* Takes a share that was LEFT off its line. */
void mem_share_return(struct proto_account *page, uint32_t number, const struct mem_share *s);
/* Marks a claim as that of a process which has exited; and frees a share of such a process. */
void mem_share_mark_dead(struct proto_account *page, uint32_t number, const struct mem_share *s);
void mem_share_free(struct proto_account *page, uint32_t number, const struct mem_share *s);

#endif
