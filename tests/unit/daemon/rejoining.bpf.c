/* admit marks the tenant's own memory and changes its weight and slice; the requested weight selects
 * other answers. With CHANGED the weight is tripled instead of doubled. */
#include <gbpf/gbpf.bpf.h>

GBPF_LICENSE("Apache-2.0");

#ifdef CHANGED
#define FACTOR 3
#else
#define FACTOR 2
#endif

struct {
	__uint(type, GBPF_MAP_ARRAY);
	__uint(max_entries, 4);
	__uint(map_flags, GBPF_F_TENANT);
	__type(key, u32);
	__type(value, u64);
} own SEC(".maps");

u64 spent;

static long spend(u32 i, void *unused)
{
	spent += i;
	return 0;
}

SEC("gbpf/admit")
int GBPF_PROG(rejoining_admit, admit)
{
	u32 key = 0;
	u64 *mark = gbpf_tenant_lookup(&own, ctx->tenant, &key);

	if (mark) {
		*mark = ctx->rejoin ? 1000 + ctx->weight : 1;
	}
	gbpf_note(ctx->rejoin, 1);
	if (ctx->weight == 16) {
		bpf_loop(80000, spend, NULL, 0); /* most of the budget */
	}
	if (ctx->weight == 15) {
		ctx->sm_percent = 101;
	}
	if (ctx->lanes == 1 << GBPF_LANE_PROCESS) {
		gbpf_note(2, 1);
	}
	ctx->class_id = GBPF_CLASS_BATCH;
	ctx->lane = GBPF_LANE_SHARED;
	ctx->slice_us = 500 * FACTOR;
	ctx->weight *= FACTOR;
	return ctx->weight == 13 * FACTOR ? GBPF_REJECT : ctx->weight == 14 * FACTOR ? GBPF_QUEUE : GBPF_ADMIT;
}
