/* The process's state before anything has happened: idle, so every call passes through. */
#include "shim/shim.h"

struct sched_shared shim_idle;

struct shim_state shim = { .sched = (struct sched *)(void *)&shim_idle };
