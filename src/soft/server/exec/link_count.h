/* Counting of the host memory that kernels access, for a modelled link. The decoder emits a
 * counting operation before each access while that is enabled; otherwise nothing here runs. */
#ifndef GBPF_SOFT_SERVER_EXEC_LINK_COUNT_H
#define GBPF_SOFT_SERVER_EXEC_LINK_COUNT_H

#include "soft/server/exec/op.h"

/* Counts the access of the operation that follows: address as in a load or store, e bytes for each
 * lane, sub: CHECK_READ, CHECK_WRITE of access_check.h. Neighbouring lanes at one address count
 * once. */
int exec_op_link(struct exec_warp *w, const struct exec_op *o, uint32_t m);

#endif
