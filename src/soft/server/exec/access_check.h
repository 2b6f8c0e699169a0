/* What --check detects: accesses outside allocations, reads of memory that nothing has written,
 * races on shared memory between barriers. With checking enabled the decoder emits a check
 * operation before every access; otherwise nothing here runs. */
#ifndef GBPF_SOFT_SERVER_EXEC_ACCESS_CHECK_H
#define GBPF_SOFT_SERVER_EXEC_ACCESS_CHECK_H

#include "soft/server/exec/op.h"

/* How an access is made (bit mask). */
enum {
	CHECK_READ = 1,
	CHECK_WRITE = 2,
	CHECK_STRONG = 4, /* atomic, volatile or ordered: not part of a race */
	CHECK_VALUE = 8,  /* a store of register d: no race if it stores the value that is there */
};

/* The accesses to one byte of shared memory since the last barrier. */
struct exec_check_byte {
	uint32_t epoch; /* epoch of the other fields; they are stale unless it equals the block's */
	uint32_t generation; /* generation of the block that wrote the byte; other blocks see it as
				uninitialized */
	uint32_t writer_line, reader_line, other_line, atomic_line;
	uint16_t writer, reader; /* thread + 1; 0: none */
	uint16_t other_reader;	 /* a reader in another warp than `reader` */
	uint16_t atomic;	 /* thread + 1 of an atomic access */
};

struct exec_block_check {
	uint32_t epoch, generation;
	struct exec_check_byte *bytes; /* owned; one per byte of shared memory */
};

/* Per-block state. All of these do nothing while checking is disabled. */
int exec_check_create(struct exec_block *b);
void exec_check_destroy(struct exec_block *b);
void exec_check_reset(struct exec_block *b);
void exec_check_barrier(struct exec_block *b); /* starts a new epoch: later accesses are ordered
						  after earlier ones */
uint64_t exec_check_bytes(uint32_t shared_bytes);

/* Checks the access of the operation that follows: address as in a load or store, e bytes, sub:
 * CHECK_*. */
int exec_op_check(struct exec_warp *w, const struct exec_op *o, uint32_t m);

#endif
