/* Runs the preemptible clone of a kernel as a resumable run would: in one launch, in pieces, and
 * stopped by leases that come and go, until every block has run; checks the guarantees of clones.
 */
#ifndef GBPF_TESTS_EXEC_CLONE_H
#define GBPF_TESTS_EXEC_CLONE_H

#include "engine.h"
#include "ptx/block.h"

#define CLONE_PARAMS_MAX 4096u

enum {
	CLONE_SPLIT = 1,  /* launches of random sizes */
	CLONE_LEASES = 2, /* leases appear and expire while blocks start */
	CLONE_MIX = 4,	  /* several blocks concurrently, in random turns */
};

struct clone {
	struct ptx_module *module; /* owned; of the entries */
	const struct ptx_block_entry *entries;
	uint32_t n_entries;
	struct buf text; /* the rewritten PTX */
};

/* Runs the pass over a text. Returns 0, or an error with its message. */
int clone_make(struct clone *t, const char *ptx, size_t len, char *message, size_t room);
void clone_finish(struct clone *t);
const struct ptx_block_entry *clone_entry(const struct clone *t, const char *name);

/* Runs the clone of an entry in place of the launch l of the original, whose parameters take
 * params_bytes. Returns the engine's status, or EXEC_FAULT_INSN with e->fault.what if a guarantee
 * is violated. */
enum exec_status clone_run(struct engine *e, const struct ptx_block_entry *entry,
			   const struct engine_launch *l, unsigned mode, uint64_t seed);

#endif
