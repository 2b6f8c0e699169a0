/* For the scenario tests: admit for tenants that start and that run already, and user ids. */
#include <gbpf/gbpf.bpf.h>

GBPF_LICENSE("Apache-2.0");

u64 uid_of_stat, joined;

SEC("gbpf/admit")
int GBPF_PROG(joining_admit, admit)
{
	joined += ctx->rejoin ? 100 : 1;
	ctx->weight *= 2;
	ctx->class_id = GBPF_CLASS_BATCH;
	ctx->lane = GBPF_LANE_SHARED;
	ctx->slice_us = 300;
	return ctx->uid == 13 ? GBPF_REJECT : ctx->uid == 14 ? GBPF_QUEUE : GBPF_ADMIT;
}

SEC("gbpf/submit")
int GBPF_PROG(joining_submit, submit)
{
	return ctx->uid == 7 ? GBPF_HOLD : GBPF_GO;
}

SEC("gbpf/retire")
int GBPF_PROG(joining_retire, retire)
{
	ctx->linger_ns = ctx->uid;
	return 0;
}

SEC("gbpf/preempt")
int GBPF_PROG(joining_preempt, preempt)
{
	return ctx->uid == 7 ? GBPF_LEVEL_OFF : GBPF_LEVEL_NONE;
}

SEC("gbpf/tick")
int GBPF_PROG(joining_tick, tick)
{
	uid_of_stat = gbpf_tenant_stat(0, GBPF_STAT_UID);
	return 0;
}
