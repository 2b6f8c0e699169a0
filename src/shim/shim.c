/* The process's state before anything has happened: idle, so every call passes through. */
#include "shim/shim.h"

static struct sched_shared idle;

struct shim_state shim = { .sched = (struct sched *)(void *)&idle };
