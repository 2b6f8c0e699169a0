/* Green contexts. The program's own are recorded, to map their handles to the primary context that
 * they represent. The shim's own limit the streams of a tenant that may use only a part of the
 * multiprocessors. */
#ifndef GBPF_SHIM_OBJECT_GREEN_CONTEXT_H
#define GBPF_SHIM_OBJECT_GREEN_CONTEXT_H

#include <stdbool.h>

#include "shim/part.h"
#include "shim/shim.h"

/* ---- the program's green contexts ---- */

/* Returns the primary context that a converted green context represents, and any other context
 * unchanged. */
CUcontext shim_green_base(CUcontext ctx);
/* Returns the green context of a converted handle, or NULL. */
CUgreenCtx shim_green_of(CUcontext ctx);

/* ---- the shim's green contexts ---- */

/* Sets the percentage of the multiprocessors that the program's streams may use. Called before the
 * program uses the driver. */
void shim_green_set_percent(uint32_t percent);
/* Replaces a newly created stream by one in the shim's green context, where the replacement changes
 * only which multiprocessors its blocks use. The stream has a queue and has not been used yet. */
void shim_green_cap(CUstream *stream);
void shim_green_destroyed(CUstream stream); /* call for any stream, before the driver destroys it */
/* Releases the shim's green context of a primary context that is about to end. If capped streams of
 * it are left, the context lives until it is reset; all: it is being reset, so those streams are
 * void. */
void shim_green_context_end(CUdevice device, bool all);
extern const struct shim_part shim_green_part;
/* Returns true if the device supports green contexts and a minimal one leaves multiprocessors over.
 */
bool shim_green_possible(CUdevice device);

/* context_calls.c: returns the primary context of a device if it is active, else NULL. Borrowed. */
CUcontext shim_context_primary(CUdevice device);

#endif
