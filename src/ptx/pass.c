/* The list of passes, and a function that runs them in order. */
#include "ptx/pass.h"

const struct ptx_pass *const ptx_passes[] = { &ptx_block_pass, NULL };

int ptx_passes_run(struct ptx_module *m, struct ptx_pass_results *ret, struct report *r)
{
	int err = 0;

	*ret = (struct ptx_pass_results){ 0 };
	for (const struct ptx_pass *const *p = ptx_passes; *p && err == 0; p++) {
		if ((*p)->may_apply(m)) {
			err = (*p)->run(m, ret, r);
		}
	}
	return err;
}
