/* Events that are shared with other processes. */
#ifndef GBPF_SHIM_OBJECT_INTERPROCESS_H
#define GBPF_SHIM_OBJECT_INTERPROCESS_H

#include "shim/part.h"
#include "shim/shim.h"

/* Returns true if another process may use the event, so that its state must be the driver's at any
 * time. */
bool shim_interprocess_event(CUevent event);
void shim_interprocess_destroyed(CUevent event);
extern const struct shim_part shim_interprocess_part;

#endif
