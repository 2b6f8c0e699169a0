/* Which kernels may run from a copy of their image. */
#ifndef GBPF_CUBIN_CUBIN_COPY_INT_H
#define GBPF_CUBIN_CUBIN_COPY_INT_H

#include "cubin/cubin_redirect_int.h"
#include "cubin/cubin_scan_int.h"

/* Returns 0 if kernel k of the scan computes the same when it is loaded a second time; -ENOTSUP
 * with the reason; -ENOMEM. *ret: where it must have the addresses of the first one's variables for
 * that. */
int cubin_copy_check(const struct cubin_elf *e, const struct cubin_scan *s,
		     const struct cubin_kernel *k, struct cubin_uses *ret, struct report *r);

/* Returns whether a relocation of the section fills in the address of a function of the driver in a
 * call. The driver has one of each for all modules. */
bool cubin_calls_driver(const struct cubin_elf *e, uint32_t text, struct cubin_reloc l);
/* Stores whether a section's code has calls, by registers or addresses, that may differ in a copy.
 * 0 or -ENOMEM. */
int cubin_calls_check(const struct cubin_elf *e, uint32_t text, bool *ret_unknown);

#endif
