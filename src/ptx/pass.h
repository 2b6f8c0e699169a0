/* Passes over a module between its parsing and its printing, at load. A module goes through all of
 * them in order and is printed once; each may add items to it and reports what it did. A pass
 * leaves the module's entries usable as the program knows them. */
#ifndef GBPF_PTX_PASS_H
#define GBPF_PTX_PASS_H

#include "ptx/module.h"

struct ptx_block_entry;

/* What the caller wants of the passes, and what they report, of the module's arena. */
struct ptx_passes {
	bool prepare; /* wanted: for probes that are attached later (ptx/prepare.h) */
	uint64_t id;  /* then: distinguishes modules that are linked together */
	/* All zero before the first pass: */
	bool changed;			     /* existing items have changed */
	const struct ptx_block_entry *block; /* one for each entry with a body, in order */
	uint32_t n_block;
};

/* Constant tables. Any thread, one module per thread. */
struct ptx_pass {
	/* Mandatory. Rewrites the module, if that is wanted, and fills its part of p. Returns 0,
	 * also if it found nothing to rewrite; -ENOMEM; -EINVAL, with the reason in r: the module
	 * cannot be loaded. After an error the module is useless. */
	int (*run)(struct ptx_module *m, struct ptx_passes *p, struct report *r);
};

extern const struct ptx_pass ptx_prepare_pass; /* for probes: ptx/prepare.h */
extern const struct ptx_pass ptx_block_pass;   /* preemptible clones: ptx/block.h */

/* Runs all passes. Returns as ptx_pass.run; the first error ends the list. */
int ptx_passes_run(struct ptx_module *m, struct ptx_passes *p, struct report *r);

#endif
