/* Events that other processes may know. */
#ifndef GBPF_SHIM_OBJECT_INTERPROCESS_H
#define GBPF_SHIM_OBJECT_INTERPROCESS_H

#include "shim/shim.h"

/* The driver alone answers for it, here and elsewhere. */
bool shim_interprocess_event(CUevent event);
void shim_interprocess_destroyed(CUevent event);
void shim_interprocess_forget(void); /* in a child after fork */

#endif
