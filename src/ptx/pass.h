/* Rewriting passes. A module goes through an ordered list of passes before it is printed; each may
 * add items to it and reports what it did per entry. A pass changes no existing item, so that the
 * original entries of the module stay usable. */
#ifndef GBPF_PTX_PASS_H
#define GBPF_PTX_PASS_H

#include "ptx/module.h"

struct ptx_block_entry;

/* What the passes report, of the module's arena. All zero before the first pass. */
struct ptx_pass_results {
	const struct ptx_block_entry
		*block; /* block pass: one for each entry with a body, in order */
	uint32_t n_block;
};

/* Constant tables; all members are mandatory. Any thread, one module per thread. */
struct ptx_pass {
	const char *name; /* for messages: "block" */
	/* Returns false if the pass has nothing to do in the module; run is not called then, and
	 * the pass's results stay zero. Changes nothing. */
	bool (*may_apply)(const struct ptx_module *m);
	/* Rewrites the module and fills its part of ret. 0, also if the pass found nothing to
	 * rewrite; -ENOMEM; -EINVAL, with the reason in r: the module cannot be loaded. After an
	 * error the module is useless. */
	int (*run)(struct ptx_module *m, struct ptx_pass_results *ret, struct report *r);
	/* Returns a static text for one of the reason codes in the pass's results. */
	const char *(*reason_text)(unsigned reason);
};

extern const struct ptx_pass ptx_block_pass; /* preemptible clones: ptx/block.h */

/* All passes, in the order in which they run; the last pointer is NULL. */
extern const struct ptx_pass *const ptx_passes[];

/* Runs all passes that may apply. Returns as ptx_pass.run; the first error ends the list. */
int ptx_passes_run(struct ptx_module *m, struct ptx_pass_results *ret, struct report *r);

#endif
