/* The ledger: charges device memory to a line of a vGPU's account (proto/account.h), exactly across
 * processes and without a lock that a dead process could hold.
 *
 * To charge, a process stores the bytes in its line's `wanted`, then sums `wanted` and `used` of
 * all lines. Within the limit, it moves them to `used`; else it takes them back. Why the sum of
 * `used` never exceeds the limit: of two charges that are decided at the same time, one has stored
 * `wanted` first (all stores and loads of the protocol are sequentially consistent), so the other
 * one's sum contains it: as `wanted`, or as `used`, since a line's `wanted` is read before its
 * `used`, and cleared after `used` was raised. A sum may contain bytes twice, never not at all.
 *
 * Two charges of which either would fit alone may see each other and both exceed the limit. Then
 * the one with the lower line keeps its `wanted` and sums again, and the other one withdraws until
 * that is decided. So one of them succeeds. A process that dies or is stopped in between delays
 * others by MEM_COLLIDE_NS at most, after which they fail as if the memory were gone.
 *
 * Threads of one process charge one after the other: a mutex of the process, which ends with it. */
#ifndef GBPF_MEM_LEDGER_H
#define GBPF_MEM_LEDGER_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "proto/account.h"

#define MEM_COLLIDE_NS 1000000000u /* longest wait for a charge of another process */

struct mem_ledger {
	struct proto_account *page; /* borrowed; mapped writable, PROTO_ACCOUNT_BYTES */
	uint32_t line;		    /* of this process, below PROTO_ACCOUNT_LINES */
	pthread_mutex_t mutex[PROTO_ACCOUNT_ROWS]; /* one charge at a time for each row */
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
/* Returns bytes that were charged. */
void mem_ledger_release(struct mem_ledger *l, uint32_t row, uint64_t bytes);

/* Adds bytes that the device has given without being asked, within the limit or not. No charge that
 * is decided later is granted next to them unless all of it fits; one that is being decided may
 * have been granted in the same moment, so that the sum exceeds the limit by at most these bytes.
 */
void mem_ledger_force(struct mem_ledger *l, uint32_t row, uint64_t bytes);
/* The words of this process's line that say what is part of `used` (overhead), or in addition to it
 * (shared, gbpf). They decide nothing. The caller serializes changes of the first. */
uint64_t mem_ledger_overhead(const struct mem_ledger *l, uint32_t row);
void mem_ledger_set_overhead(struct mem_ledger *l, uint32_t row, uint64_t bytes);
void mem_ledger_set_gbpf(struct mem_ledger *l, uint32_t row, uint64_t bytes);
void mem_ledger_add_shared(struct mem_ledger *l, uint32_t row, uint64_t bytes);
void mem_ledger_sub_shared(struct mem_ledger *l, uint32_t row, uint64_t bytes);
uint64_t mem_ledger_shared(const struct mem_ledger *l, uint32_t row);

/* Returns the limit of a row, UINT64_MAX if it has none; and what may be charged now, which is less
 * where other vGPUs have reserved memory. */
uint64_t mem_ledger_limit(const struct mem_ledger *l, uint32_t row);
uint64_t mem_ledger_allowed(const struct mem_ledger *l, uint32_t row);
/* Returns what all processes of the vGPU hold, or this one, bytes. */
uint64_t mem_ledger_used(const struct mem_ledger *l, uint32_t row);
uint64_t mem_ledger_own(const struct mem_ledger *l, uint32_t row);

/* Returns the sum of `used` of a row of any account page, whose words are not trusted; and that of
 * what is used or wanted. */
uint64_t mem_account_used(const struct proto_account *page, uint32_t row);
uint64_t mem_account_claimed(const struct proto_account *page, uint32_t row);

#endif
