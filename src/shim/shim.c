/* The shim's state before the process attaches: an idle scheduler, so that every call passes
 * through. */
#include "shim/shim.h"

static struct sched_shared idle;

struct shim_state shim = { .sched = (struct sched *)(void *)&idle };
