/* Runs the twin of a kernel on the engine as a chain would: in one launch, in pieces, and stopped
 * by leases that come and go, until each block has run; and watches what the twin promises. */
#ifndef GBPF_TESTS_EXEC_CLONE_H
#define GBPF_TESTS_EXEC_CLONE_H

#include "engine.h"
#include "ptx/block.h"

#define TWIN_PARAMS_MAX 4096u

enum {
	TWIN_CUT = 1,	 /* launches of random sizes */
	TWIN_LEASES = 2, /* leases come and go while blocks start */
	TWIN_MIX = 4,	 /* several blocks at once, in random turns */
};

struct twin {
	struct ptx_module *module; /* owned; of the entries */
	const struct ptx_block_entry *entries;
	uint32_t n_entries;
	struct buf text; /* rewritten */
};

/* The pass over a text. 0, or an error with its message. */
int twin_make(struct twin *t, const char *ptx, size_t len, char *message, size_t room);
void twin_finish(struct twin *t);
const struct ptx_block_entry *twin_entry(const struct twin *t, const char *name);

/* Runs the twin of an entry as l says of the original, whose parameters are params_bytes long. What
 * the engine says; EXEC_FAULT_INSN with e->fault.what when a promise was broken. */
enum exec_status twin_run(struct engine *e, const struct ptx_block_entry *entry,
			  const struct engine_launch *l, unsigned mode, uint64_t seed);

#endif
