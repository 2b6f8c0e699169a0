/* The machine's lock in attributes of functions. They reach the machine by different pointers,
 * which clang's analysis takes for different locks; a server has one machine. */
#ifndef GBPF_SOFT_SERVER_MACHINE_LOCK_H
#define GBPF_SOFT_SERVER_MACHINE_LOCK_H

#include "base/lock.h"

extern struct lock softd_lock; /* softd_machine.lock; never defined, for attributes only */

#endif
