/* Green contexts. The program's own are known, so that their handles are told from the primary
 * context that they stand for; ours cap the streams of a tenant that may use a part of the
 * multiprocessors only. */
#ifndef GBPF_SHIM_OBJECT_GREEN_CONTEXT_H
#define GBPF_SHIM_OBJECT_GREEN_CONTEXT_H

#include <stdbool.h>

#include "shim/shim.h"

/* ---- the program's ---- */

/* The primary context that a converted green one stands for; any other context itself. */
CUcontext shim_green_base(CUcontext ctx);
/* The green context of such a handle, or NULL. */
CUgreenCtx shim_green_of(CUcontext ctx);

/* ---- ours ---- */

/* Before the program uses its driver: what of the multiprocessors its streams may use. */
void shim_green_set_percent(uint32_t percent);
/* A stream that was just created, known to the scheduler and not used yet: becomes one of a green
 * context where that changes nothing but where its blocks run. */
void shim_green_cap(CUstream *stream);
void shim_green_destroyed(CUstream stream); /* any stream, before the driver destroys it */
/* A primary context is about to end: what we have on it is given back, unless streams of it are
 * left (then the context lives until it is reset). all: it is reset, they are void. */
void shim_green_context_end(CUdevice device, bool all);
/* fork: they are the parent's. */
void shim_green_forget(void);
/* Green contexts can be had and would leave something over. */
bool shim_green_possible(CUdevice device);

/* context.c: the primary context of a device if it is alive; borrowed. */
CUcontext shim_context_primary(CUdevice device);

#endif
