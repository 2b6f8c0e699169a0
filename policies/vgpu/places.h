/* The places of virtual GPUs in a policy's tables, and how much of the time one wants: for shares.h
 * and copies.h. */
#ifndef GBPF_POLICIES_VGPU_PLACES_H
#define GBPF_POLICIES_VGPU_PLACES_H

#include <gbpf/gbpf.bpf.h>

#define GROUPS (GBPF_VGPUS + 1) /* one more for programs in no vGPU */
#define WANTED 1024		/* demand of a vGPU that always has work */

static __always_inline u32 group_of(u32 tenant)
{
	long place = gbpf_tenant_vgpu(tenant);

	return place < 0 || place > GBPF_VGPUS ? GBPF_VGPUS : (u32)place;
}

/* Returns the demand over about 8 samples, up to WANTED. */
static __always_inline u32 average(u32 demand, int sample)
{
	return demand - demand / 8 + (sample ? WANTED / 8 : 0);
}

#endif
