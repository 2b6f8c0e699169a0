/* barwait: how long warps wait at barriers of their block, at mbarriers and for asynchronous copies. A warp stores its time in
 * front of the instruction, in the slot of its place on the multiprocessor, and counts the difference behind it: the wait, and the
 * instruction itself. Of an mbarrier each try is counted; the kernel's loop tries again. */
#include <gbpf/gbpf.bpf.h>

#include "fine.h"
#include "sites.h"

#define SMS 256
#define PLACES 64 /* of warps on a multiprocessor */

struct site {
	u64 count, wait_ns;
	u64 blocks, mbarriers, copies; /* of count, by kind */
};

PLACE_MAP(struct site)

FINE_HISTOGRAM(waits);

struct {
	__uint(type, GBPF_MAP_ARRAY);
	__uint(map_flags, GBPF_F_DEVICE);
	__uint(max_entries, SMS * PLACES);
	__type(key, u32);
	__type(value, u64);
} begins SEC(".maps");

static __always_inline u64 *place(u32 sm, u32 slot)
{
	u32 k = sm * PLACES + slot;

	return slot < PLACES ? bpf_map_lookup_elem(&begins, &k) : NULL;
}

SEC("gdev/barrier/*/before")
int GBPF_PROG(arrive, gdev_barrier)
{
	u64 *begin = place(ctx->sm, ctx->warp_slot);

	if (begin && ctx->kind != GBPF_BARRIER_ARRIVE) {
		*begin = ctx->time_ns;
	}
	return 0;
}

SEC("gdev/barrier/*/after")
int GBPF_PROG(leave, gdev_barrier)
{
	u64 *begin = place(ctx->sm, ctx->warp_slot), *n, ns;
	struct site *s = site_of(ctx->place);
	u32 k;

	if (!begin || !s || !*begin) {
		return 0;
	}
	ns = ctx->time_ns - *begin;
	*begin = 0;
	ADD(s->count, 1);
	ADD(s->wait_ns, ns);
	ADD(*(ctx->kind == GBPF_BARRIER_BLOCK	   ? &s->blocks
	      : ctx->kind == GBPF_BARRIER_MBARRIER ? &s->mbarriers
						   : &s->copies),
	    1);
	k = fine_bucket(ns);
	n = bpf_map_lookup_elem(&waits, &k);
	if (n) {
		ADD(*n, 1);
	}
	return 0;
}

GBPF_LICENSE("MIT");
