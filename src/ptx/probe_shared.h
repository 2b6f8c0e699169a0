/* One variable in shared memory. The driver's linker compiles a form as a part of a program, so the
 * addresses of its variables in shared memory are not constants, and each use of a second one
 * computes its address. With one variable that is the first, all are. */
#ifndef GBPF_PTX_PROBE_SHARED_H
#define GBPF_PTX_PROBE_SHARED_H

#include "ptx/module.h"

/* Makes one variable of the static variables in shared memory that an entry and the functions that
 * it calls use; their uses become places in it. What cannot be a place stays a variable of its own.
 * Changes nothing if the entry has dynamic shared memory, reads its size of shared memory, calls
 * through pointers, or uses fewer than two variables. Afterwards the module serves for this entry
 * only. Stores the number of variables that became one unless ret_n is NULL. Returns 0, or -ENOMEM
 * with the reason in r: then the module is useless. */
int ptx_shared_merge(struct ptx_module *m, const char *entry, uint32_t *ret_n, struct report *r);

#endif
