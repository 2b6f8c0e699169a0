/* Which kernels may run from a copy of their image. */
#ifndef GBPF_CUBIN_CUBIN_COPY_INT_H
#define GBPF_CUBIN_CUBIN_COPY_INT_H

#include "cubin/cubin_scan_int.h"

/* Returns 0 if kernel k of the scan computes the same when it is loaded a second time; -ENOTSUP
 * with the reason. */
int cubin_copy_check(const struct cubin_elf *e, const struct cubin_scan *s,
		     const struct cubin_kernel *k, struct report *r);

#endif
