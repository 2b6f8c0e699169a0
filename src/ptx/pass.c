/* The list of passes, and a function that runs them in order. */
#include "ptx/pass.h"

#include "base/compiler.h"

/* Preparing moves variables out of bodies, which clones are copies of. */
static const struct ptx_pass *const passes[] = { &ptx_prepare_pass, &ptx_block_pass };

int ptx_passes_run(struct ptx_module *m, struct ptx_passes *p, struct report *r)
{
	int err = 0;

	for (size_t i = 0; i < ARRAY_SIZE(passes) && err == 0; i++) {
		err = passes[i]->run(m, p, r);
	}
	return err;
}
