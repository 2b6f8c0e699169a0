/* What the callers of a resumable run see of it. */
#ifndef GBPF_TESTS_GPU_RUN_LOOK_H
#define GBPF_TESTS_GPU_RUN_LOOK_H

#include "run_rig.h"

static inline void look(struct sched_run_progress *p)
{
	assert_int_equal(gpu_run_look(d, &q, p), 0);
}

#endif
