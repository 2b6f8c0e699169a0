/* For policies that bound work in flight, or put a program off, for the sake of others: where no
 * other program uses the GPU nothing is gained by it. A program that sees a GPU but never launches
 * on it does not count, as the ranks of a training job that see all GPUs, unless it is of class
 * latency. One that does is seen at the tick after its first launch. A policy includes ahead.h first, so
 * that a changed copy of it takes effect. */
#ifndef GBPF_POLICIES_ALONE_H
#define GBPF_POLICIES_ALONE_H

#include "ahead.h"

u32 alone; /* published by tick: one program uses the GPU */

static __always_inline void look_for_others(const struct gbpf_tick_ctx *ctx)
{
	u32 t, present = 0, n = ctx->tenants < 1024 ? ctx->tenants : 1024;

	bpf_for (t, 0, n) {
		present += gbpf_tenant_class(t) == GBPF_CLASS_LATENCY ||
			   gbpf_tenant_stat(t, GBPF_STAT_LAUNCHES);
	}
	alone = present < 2;
}

#endif
