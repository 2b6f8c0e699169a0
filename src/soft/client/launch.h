/* One launch as data: checked here, then submitted to a stream or stored in a graph node. */
#ifndef GBPF_SOFT_CLIENT_LAUNCH_H
#define GBPF_SOFT_CLIENT_LAUNCH_H

#include "soft/client/process.h"

struct soft_launch_spec {
	unsigned grid[3], block[3], shared;
	void **params, **extra;
	const CUlaunchAttribute *attrs;
	unsigned n_attrs;
};

/* Checks the launch and fills the record and the kernel's packed parameters (params:
 * SOFT_MAX_PARAM_BYTES bytes). */
CUresult soft_launch_prepare(const CUfunction f, const struct soft_launch_spec *l,
			     struct soft_record_launch *ret, unsigned char *params);
/* Applies one attribute to a record. Accepts attributes that have no effect here. */
CUresult soft_launch_attribute(const CUlaunchAttribute *a, struct soft_record_launch *r);
CUresult soft_launch_check_shape(const CUfunction f, const struct soft_record_launch *r);

/* occupancy.c: returns how many blocks of the function one SM holds at once under the server's
 * placement rules; 0 if not even one fits. */
unsigned soft_occupancy_blocks(const CUfunction f, unsigned threads, size_t dynamic_shared);

#endif
