/* Merges PTX modules into one, as the driver's linker does: names that one module declares .extern
 * are another's .visible, .weak or .common ones; names local to a module are renamed if several
 * modules use them. Line information is dropped: it refers to other texts. */
#ifndef GBPF_PTX_MERGE_H
#define GBPF_PTX_MERGE_H

#include "base/buf.h"
#include "base/report.h"
#include "base/strmap.h"
#include "ptx/module.h"

#define PTX_MERGE_MAX 1024u /* modules */

struct ptx_merge {
	struct report *report;
	struct ptx_merge_unit *units; /* owned */
	uint32_t n;
	struct strmap symbols; /* struct ptx_merge_symbol */
	struct strmap
		taken; /* names that are in use, as struct ptx_merge_name of the first module */
	struct ptx_arena arena;
};

void ptx_merge_init(struct ptx_merge *m, struct report *r);
void ptx_merge_free(struct ptx_merge *m);
/* Parses one module. Returns 0; -EINVAL with place and reason; -EFBIG, -ENOMEM. */
int ptx_merge_add(struct ptx_merge *m, const char *text, size_t len, const char *name);
/* Appends the merged text. To be called once; only free is allowed afterwards. Returns 0; -EINVAL
 * if a name is defined twice or not at all (the report names it); -ENOMEM. */
int ptx_merge_finish(struct ptx_merge *m, struct buf *out);

#endif
