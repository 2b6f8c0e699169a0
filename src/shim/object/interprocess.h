/* Events that are shared with other processes. */
#ifndef GBPF_SHIM_OBJECT_INTERPROCESS_H
#define GBPF_SHIM_OBJECT_INTERPROCESS_H

#include "shim/shim.h"

/* Returns true if another process may use the event, so that its state must be the driver's at any
 * time. */
bool shim_interprocess_event(CUevent event);
void shim_interprocess_destroyed(CUevent event);
void shim_interprocess_forget(void); /* in a child after fork */

#endif
