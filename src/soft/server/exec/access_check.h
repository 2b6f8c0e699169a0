/* What --check looks for: accesses outside allocations, reads of memory that nobody has written,
 * races on shared memory between barriers. With checking switched on the decoder puts an operation
 * of its own before every access; without it nothing here runs. */
#ifndef GBPF_SOFT_SERVER_EXEC_ACCESS_CHECK_H
#define GBPF_SOFT_SERVER_EXEC_ACCESS_CHECK_H

#include "soft/server/exec/op.h"

/* How an access is made; a sum. */
enum {
	CHECK_READ = 1,
	CHECK_WRITE = 2,
	CHECK_STRONG = 4, /* atomic, volatile or with an order of its own: no part of a race */
	CHECK_VALUE = 8, /* a store of one register, d: writing what is there already is harmless */
};

/* One byte of shared memory: who has touched it since the last barrier. */
struct exec_check_byte {
	uint32_t epoch;	     /* of the rest; stale when it is not the block's */
	uint32_t generation; /* of the block that has written it: initialized for that one only */
	uint32_t writer_line, reader_line, other_line, atomic_line;
	uint16_t writer, reader; /* thread + 1; 0: nobody */
	uint16_t other_reader;	 /* of another warp than the first one */
	uint16_t atomic;	 /* by an atomic operation */
};

struct exec_block_check {
	uint32_t epoch, generation;
	struct exec_check_byte *bytes; /* owned; one for each byte of shared memory */
};

/* Of a block; all do nothing while checking is off. */
int exec_check_create(struct exec_block *b);
void exec_check_destroy(struct exec_block *b);
void exec_check_reset(struct exec_block *b);
void exec_check_barrier(struct exec_block *b); /* what comes is ordered behind what was */
uint64_t exec_check_bytes(uint32_t shared_bytes);

/* Looks at the access that follows: address as in a load or store, e bytes, sub the access. */
int exec_op_check(struct exec_warp *w, const struct exec_op *o, uint32_t m);

#endif
