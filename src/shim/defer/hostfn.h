/* Host functions that streams call: what they call in turn is never held, since the stream waits
 * for them. */
#ifndef GBPF_SHIM_DEFER_HOSTFN_H
#define GBPF_SHIM_DEFER_HOSTFN_H

#include "shim/entry/gate.h"

struct shim_hostfn;

/* Replaces function and argument of a call that puts a host function on a stream. NULL: left as it
 * is (all wrappers are in use). */
struct shim_hostfn *shim_hostfn_wrap(const struct shim_call *c, uint64_t *a);
/* The driver did not take it. NULL is fine. */
void shim_hostfn_release(struct shim_hostfn *h);

#endif
