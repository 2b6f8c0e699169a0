/* For the scenario tests: helpers and hooks through which a policy and gbpfd exchange requests. */
#include <gbpf/gbpf.bpf.h>

GBPF_LICENSE("Apache-2.0");

u64 seen[16];

SEC("gbpf/admit")
int GBPF_PROG(outside_admit, admit)
{
	if (ctx->lanes & 1 << GBPF_LANE_SHARED) {
		ctx->lane = GBPF_LANE_SHARED;
		ctx->sm_percent = 40;
	}
	ctx->slice_us = ctx->class_id == GBPF_CLASS_BATCH ? 200 : 1000000;
	return GBPF_ADMIT;
}

SEC("gbpf/submit")
int GBPF_PROG(outside_submit, submit)
{
	if (ctx->stop == GBPF_STOP_MACHINE_CODE) {
		ctx->level = GBPF_LEVEL_BLOCK;
		ctx->gate = ctx->persistent ? GBPF_GATE_OFF : ctx->waves < 4 ? GBPF_GATE_FLAG_FIRST : ctx->gate;
		return GBPF_GO;
	}
	if (ctx->block_ok && ctx->block_ns < 50000) {
		ctx->level = GBPF_LEVEL_BLOCK;
		ctx->split_blocks = 64;
		return ctx->blocks > 64 ? GBPF_SPLIT : GBPF_GO;
	}
	return ctx->lc_next_ns < 1000000 || ctx->deadline_ns ? GBPF_HOLD : GBPF_GO;
}

SEC("gbpf/preempt")
int GBPF_PROG(outside_preempt, preempt)
{
	if (ctx->lane == GBPF_LANE_SHARED || ctx->for_tenant == 9) {
		return GBPF_LEVEL_NONE;
	}
	return ctx->tried == GBPF_LEVEL_NONE ? GBPF_LEVEL_SLICE : GBPF_LEVEL_OFF;
}

SEC("gbpf/tick")
int GBPF_PROG(outside_tick, tick)
{
	u32 i;

	bpf_for (i, 0, 14) {
		seen[i & 15] = gbpf_tenant_stat(1, i);
	}
	gbpf_slice_set(1, seen[GBPF_STAT_OPEN] ? 1 : 0);
	gbpf_preempt_now(1, seen[GBPF_STAT_OPEN] ? GBPF_LEVEL_OFF : GBPF_LEVEL_HOLD);
	gbpf_note(0, gbpf_slice_set(77, 5) == -2);
	gbpf_note(1, gbpf_preempt_now(1, GBPF_LEVEL_END) < 0);
	return 0;
}
