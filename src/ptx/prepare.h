/* Prepares a module at load so that its kernels can be sliced later (ptx/probe.h), although they
 * use what only their own module has: variables that a body declares, which the driver does not
 * find by name, become variables of the module; and the functions whose addresses are taken are
 * listed in a variable, because a function's address is a number of its module. The module computes
 * what it did: only names change, and nothing reads the list but probed forms.
 * docs/DEVICE-RUNTIME.md has the argument. */
#ifndef GBPF_PTX_PREPARE_H
#define GBPF_PTX_PREPARE_H

#include "ptx/module.h"

#define PTX_PREPARED "gbpf$own_"	/* begins the names of variables that a body declared */
#define PTX_FUNCTIONS "gbpf$functions_" /* begins the name of the list, an array of addresses */

/* Changes the module if it has something to prepare, and was not prepared before. id distinguishes
 * modules that are linked together. Returns 1, 0: unchanged, or -ENOMEM: the module is useless. */
int ptx_prepare(struct ptx_module *m, uint64_t id);

#endif
