/* Where the scheduler's device operations and the shim meet: a queue's stream and context. */
#ifndef GBPF_SHIM_DEVICE_H
#define GBPF_SHIM_DEVICE_H

#include "cuabi/types.h"
#include "sched/sched.h"

struct gpu_queue {
	CUstream stream;
	CUcontext ctx;
};

int device_setup(struct sched_config *cfg);

#endif
