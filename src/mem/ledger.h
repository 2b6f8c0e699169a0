/* The ledger: charges device memory to a line of a vGPU's account (proto/account.h), exactly across
 * processes and without a lock that a dead process could hold.
 *
 * A line holds `charged` less `released`, which only increase. To charge, a process stores
 * the bytes in its line's `wanted`, then sums what all lines hold and want. Within the limit, it
 * adds them to `charged`; else it takes them back. Why the limit is never exceeded: of two charges
 * that are decided at the same time, one has stored `wanted` first (all stores and loads of the
 * protocol are sequentially consistent), so the other one's sum contains it: as `wanted`, or as
 * `charged`, since a line's `wanted` is read before its `charged`, and cleared after that was
 * raised. `released` is read before both, so that it contains nothing that the sum does not. A sum
 * may contain bytes twice, never not at all.
 *
 * A charge is refused only if it did not fit at a moment: the sum, less what was released until a
 * second reading of `released`, is at most what was held between the two, to the byte.
 *
 * Charges of which either would fit alone may see each other and all exceed the limit, or see bytes
 * twice. Each then takes a turn behind all turns that it reads. The first in turn keeps its
 * `wanted` and sums again; all others, and charges that begin while another one has a turn,
 * withdraw until it is their turn. So nothing disturbs the first one for long, and no line is
 * overtaken for ever. A process that dies or is stopped in between delays a charge by
 * MEM_GIVE_WAY_NS at most if it fits in addition, else by MEM_COLLIDE_NS, after which it is
 * refused.
 *
 * Memory that moves from one line to another, because its creator has exited while an importer
 * holds it (mem/account_shares.h), is added to the one line before it is taken off the other. So
 * what was taken off is read before the lines, and what was added after all of them: a sum has such
 * memory once, or twice.
 *
 * Threads of one process charge one after the other: a mutex of the process, which ends with it. */
#ifndef GBPF_MEM_LEDGER_H
#define GBPF_MEM_LEDGER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/lock.h"
#include "proto/account.h"

#define MEM_COLLIDE_NS 1000000000u /* longest wait for a charge of another process */
#define MEM_GIVE_WAY_NS 10000000u  /* the same of a charge that fits in addition to it */

struct mem_ledger {
	struct proto_account *page;	       /* borrowed; mapped writable, PROTO_ACCOUNT_BYTES */
	uint32_t line;			       /* of this process, below PROTO_ACCOUNT_LINES */
	struct lock mutex[PROTO_ACCOUNT_ROWS]; /* one charge at a time for each row */
	uint64_t asked[PROTO_ACCOUNT_ROWS];    /* [atomic] charged and not answered by the driver,
						  bytes */
};

/* Initializes a ledger on a page that gbpfd has sent. Returns 0, or -EPROTO if it is no account or
 * has no such line. */
int mem_ledger_init(struct mem_ledger *l, struct proto_account *page, uint32_t line);
/* Returns the row of a device, or -ENOENT. */
int mem_ledger_row(const struct mem_ledger *l, const uint8_t uuid[16]);

/* Charges bytes to this process's line. Returns 0, or -ENOMEM if they exceed what is allowed, or,
 * with _whole(), the limit: for a process without gbpfd, which could allow more. */
int mem_ledger_charge(struct mem_ledger *l, uint32_t row, uint64_t bytes);
int mem_ledger_charge_whole(struct mem_ledger *l, uint32_t row, uint64_t bytes);
/* The driver has given bytes that were charged, or refused them, and they are released: until then
 * they are no part of the most that the process has held. */
void mem_ledger_answered(struct mem_ledger *l, uint32_t row, uint64_t bytes);
/* Returns bytes that were charged. */
void mem_ledger_release(struct mem_ledger *l, uint32_t row, uint64_t bytes);

/* Adds bytes that the device has given without being asked, within the limit or not. No charge that
 * is decided later is granted next to them unless all of it fits; one that is being decided may
 * have been granted in the same moment, so that the sum exceeds the limit by at most these bytes.
 */
void mem_ledger_force(struct mem_ledger *l, uint32_t row, uint64_t bytes);
/* It has tried to take memory after gbpfd's answer with that number, whatever came of it: gbpfd
 * keeps nothing for it any more. */
void mem_ledger_tried(struct mem_ledger *l, uint32_t row, uint32_t seq);
/* The words of this process's line that say what is part of what it holds (overhead), or in
 * addition to it (shared, gbpf). They decide nothing. The caller serializes changes of the first.
 */
uint64_t mem_ledger_overhead(const struct mem_ledger *l, uint32_t row);
void mem_ledger_set_overhead(struct mem_ledger *l, uint32_t row, uint64_t bytes);
void mem_ledger_set_gbpf(struct mem_ledger *l, uint32_t row, uint64_t bytes);
void mem_ledger_add_shared(struct mem_ledger *l, uint32_t row, uint64_t bytes);
void mem_ledger_sub_shared(struct mem_ledger *l, uint32_t row, uint64_t bytes);
uint64_t mem_ledger_shared(const struct mem_ledger *l, uint32_t row);
/* The same for the words that divide what it holds on a device: row is below PROTO_MAX_GPUS. Bytes
 * are added once they are charged, and taken off before they are released. */
void mem_ledger_add_kind(struct mem_ledger *l, uint32_t row, enum proto_kind kind, uint64_t bytes);
void mem_ledger_sub_kind(struct mem_ledger *l, uint32_t row, enum proto_kind kind, uint64_t bytes);
void mem_ledger_set_away(struct mem_ledger *l, uint32_t row, uint64_t bytes);
void mem_ledger_set_chunks(struct mem_ledger *l, uint32_t row, bool chunks);

/* Returns the limit that a number of bytes states for a row: 0 states none, UINT64_MAX, except for
 * that of swap, where it is a limit. */
static inline uint64_t mem_limit_stated(uint32_t row, uint64_t bytes)
{
	return bytes || row == PROTO_ACCOUNT_SWAP ? bytes : UINT64_MAX;
}
/* Returns the limit of a row, UINT64_MAX if it has none, which that of swap always has; and what
 * may be charged now, which is less where other vGPUs have reserved memory. */
uint64_t mem_ledger_limit(const struct mem_ledger *l, uint32_t row);
uint64_t mem_ledger_allowed(const struct mem_ledger *l, uint32_t row);
/* Returns what all processes of the vGPU hold, or this one, bytes. */
uint64_t mem_ledger_used(const struct mem_ledger *l, uint32_t row);
uint64_t mem_ledger_own(const struct mem_ledger *l, uint32_t row);
/* Returns all that this process has ever released; and at least what it held at any moment since it
 * had released that much. */
uint64_t mem_ledger_released(const struct mem_ledger *l, uint32_t row);
uint64_t mem_ledger_own_since(const struct mem_ledger *l, uint32_t row, uint64_t released);

/* Returns what a line holds. */
uint64_t mem_line_used(const struct proto_account_line *line);
/* Returns what a line holds of memory whose creator is charged no more (mem/account_shares.h), and
 * that with what it holds itself. */
uint64_t mem_account_orphans(const struct proto_account *page, uint32_t row, uint32_t line);
uint64_t mem_account_line_used(const struct proto_account *page, uint32_t row, uint32_t line);
/* gbpfd: takes all of that off the line of a process that has exited. */
void mem_account_clear_orphans(struct proto_account *page, uint32_t row, uint32_t line);
/* Returns what all lines of a row of any account page hold, whose words are not trusted: never more
 * than they did at some moment of the call, and that exactly unless memory is released all the
 * time. _claimed(): at least what is used or wanted. */
uint64_t mem_account_used(const struct proto_account *page, uint32_t row);
uint64_t mem_account_claimed(const struct proto_account *page, uint32_t row);

#endif
