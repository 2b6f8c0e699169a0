/* A kernel of a cubin, compared with what its PTX compiles to. Internal to the room. */
#ifndef GBPF_SOFT_CODE_CODE_PATCH_H
#define GBPF_SOFT_CODE_CODE_PATCH_H

#include <stdint.h>

#include "base/buf.h"
#include "base/report.h"
#include "soft/code/code_entry.h"
#include "soft/code/code_view.h"

#define SOFT_PATCH_ARGUMENT "soft$arg" /* name of the stub's argument in PTX */

struct soft_patch {
	uint32_t text, info, constants; /* sections */
	bool patched;
	struct soft_entry_param argument; /* of the stub */
	struct buf stub; /* its PTX; the reader adds how many registers it needs: */
	uint32_t stub_registers;
};

/* Reads the code of the kernel of entry e. Returns 0; -EINVAL: it is neither e's own code nor a
 * patched copy, reason in r; -ENOMEM. Finish always. */
int soft_patch_open(struct soft_patch *p, const struct soft_view *v, const struct soft_entry *e,
		    struct report *r);
void soft_patch_finish(struct soft_patch *p);

/* Checks that the tables of the file agree with the kernel's code. Returns 0; -EINVAL with the
 * reason in r; -ENOMEM. */
int soft_patch_check(const struct soft_patch *p, const struct soft_view *v,
		     const struct soft_entry *e, struct report *r);

#endif
