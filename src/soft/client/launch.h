/* One launch as data: checked here, put on a stream or kept in a graph node. */
#ifndef GBPF_SOFT_CLIENT_LAUNCH_H
#define GBPF_SOFT_CLIENT_LAUNCH_H

#include "soft/client/process.h"

struct soft_launch_spec {
	unsigned grid[3], block[3], shared;
	void **params, **extra;
	const CUlaunchAttribute *attrs;
	unsigned n_attrs;
};

/* Checks everything and fills the record, and the parameters as the kernel gets them (params:
 * SOFT_MAX_PARAM_BYTES bytes). */
CUresult soft_launch_prepare(const CUfunction f, const struct soft_launch_spec *l,
			     struct soft_record_launch *ret, unsigned char *params);
/* What one attribute changes in a record; the attributes without effect here are accepted. */
CUresult soft_launch_attribute(const CUlaunchAttribute *a, struct soft_record_launch *r);
CUresult soft_launch_check_shape(const CUfunction f, const struct soft_record_launch *r);

/* occupancy.c: blocks of the function that one SM holds at once, as the server places them; 0: not
 * even one. */
unsigned soft_occupancy_blocks(const CUfunction f, unsigned threads, size_t dynamic_shared);

#endif
