/* auto: the time slices of tenants in the process lane. */
#ifndef GBPF_POLICIES_AUTO_SLICES_H
#define GBPF_POLICIES_AUTO_SLICES_H

#include "scan.h"

/* Returns the time slice of a tenant, us; 0: the device's own. */
static __always_inline u32 slice_for(const struct scan *l, const struct tenant *x, long class_id)
{
	u32 n = l->be - l->be_shared;

	if (!l->latency || !n) {
		return 0;
	}
	if (class_id == GBPF_CLASS_LATENCY) {
		return l->starved	? latency_slice_starved_us
		       : l->latency > 1 ? latency_slice_several_us
					: latency_slice_us;
	}
	if (x->stoppable ? n > 1 || (l->leaving && !l->switching)
			 : n == 1 && way_in_force == WAY_LEAVING) {
		return batch_slice_drain_us; /* it stops by itself, or had better drain */
	}
	if (slices_serve && have_gaps) {
		return batch_slice_gaps_us;
	}
	return x->starved ? batch_slice_starved_us : n > 1 ? batch_slice_turns_us : batch_slice_us;
}

/* Sets the slice if it changed, or again. Returns 1 if it was refused. */
static __always_inline u32 set_slice(struct tenant *x, u32 t, u32 slice, u32 again)
{
	if (slice == x->slice_us && (!slice || (x->set && !again))) {
		return x->refused;
	}
	x->refused = gbpf_slice_set(t, slice) < 0;
	x->slice_us = slice;
	x->set |= !x->refused;
	return x->refused;
}

#endif
