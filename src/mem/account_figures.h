/* Figures of any vGPU's account (proto/account.h), whose words are not trusted. */
#ifndef GBPF_MEM_ACCOUNT_FIGURES_H
#define GBPF_MEM_ACCOUNT_FIGURES_H

#include <stdbool.h>

#include "mem/ledger.h"

/* Returns true if a mapped page is an account. */
bool mem_account_valid(const struct proto_account *page);
/* Returns the row of a device, or -ENOENT. */
int mem_account_row(const struct proto_account *page, const uint8_t uuid[16]);
/* Returns the limit of a row, UINT64_MAX if it has none, which that of swap always has; and what is
 * left of it. */
uint64_t mem_account_limit(const struct proto_account *page, uint32_t row);
uint64_t mem_account_left(const struct proto_account *page, uint32_t row);
/* Returns true if a device with a limit is to seem as large as that, although more may be held with
 * swap. */
bool mem_account_shows_mem(const struct proto_account *page);
/* Returns what all processes have in chunks of a device that are on the host, bytes; at most
 * INT64_MAX. row: below PROTO_MAX_GPUS. */
uint64_t mem_account_away(const struct proto_account *page, uint32_t row);
/* Raises the peak of a line to what it holds: called once the driver has given what was charged.
 * asked [atomic]: the part of what is charged that the driver has not given yet (mem/ledger.h);
 * NULL: none. Never more than was held at some moment of the call; what other threads are charged
 * or release meanwhile may be missing, and their own calls follow. */
void mem_account_note_peak(struct proto_account *page, uint32_t row, uint32_t line,
			   const uint64_t *asked);
/* Returns the most that the process of a line has held at a time, bytes; at least what it holds. */
uint64_t mem_account_peak(const struct proto_account *page, uint32_t row, uint32_t line);

/* Returns what the process of a line holds, bytes, and its number in *ret_pid, 0: the line is free
 * or there is none. */
uint64_t mem_account_line(const struct proto_account *page, uint32_t row, uint32_t line,
			  int32_t *ret_pid);

/* How what a line holds on a device is divided, bytes. */
struct mem_account_kinds {
	uint64_t held;		    /* what the line holds */
	uint64_t kind[PROTO_KINDS]; /* parts of it, as the following ones */
	uint64_t overhead, inherited;
	uint64_t other; /* the rest */
	uint64_t away;	/* on the host */
	bool chunks;	/* cuMemAlloc gives the process chunks */
};

/* Reads that. The parts add up to what is held, whatever the page contains: memory is charged and
 * released meanwhile. row: below PROTO_MAX_GPUS. */
void mem_account_kinds(const struct proto_account *page, uint32_t row, uint32_t line,
		       struct mem_account_kinds *ret);
/* gbpfd: clears these words of a line whose process has exited. */
void mem_account_clear_kinds(struct proto_account *page, uint32_t line);

#endif
