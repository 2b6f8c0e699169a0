/* Host functions on streams. Calls made by a host function are never held, since the stream waits
 * for it. */
#ifndef GBPF_SHIM_DEFER_HOSTFN_H
#define GBPF_SHIM_DEFER_HOSTFN_H

#include "shim/gated_call.h"

struct shim_hostfn;

/* Replaces function and argument of a call that enqueues a host function by a wrapper. NULL:
 * unchanged, because all wrappers are in use. */
struct shim_hostfn *shim_hostfn_wrap(const struct shim_call *c, uint64_t *a);
/* Returns a wrapper that the driver has not accepted. Accepts NULL. */
void shim_hostfn_release(struct shim_hostfn *h);

#endif
