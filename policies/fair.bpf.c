/* fair: every tenant gets GPU time in proportion to its weight; latency-critical ones may run ahead further.
 *
 * Use it as the default, when tenants trust each other to be busy rather than urgent. It does not make a request fast while
 * others are busy; lc_first does.
 *
 * How: each tenant has a virtual time, its GPU time divided by its weight. Every millisecond gbpfd finds the lowest one
 * among the tenants that are active: the floor. Who is ahead of the floor by more than its slack is put off until the others
 * have caught up. Who was idle begins at the floor: time that was not used is not saved up. */
#include <gbpf/gbpf.bpf.h>

GBPF_LICENSE("Apache-2.0");

const volatile u64 slack_ns = 4000000;		/* ahead of the floor, at weight 100 */
const volatile u64 latency_slack_ns = 40000000; /* the same for latency-critical tenants: their priority */
const volatile u64 inflight_limit_ns = 8000000; /* on the GPU at once, so that nobody has to wait for a long queue */
const volatile u32 unknown_limit = 16;		/* launches in flight while durations are not known yet */
const volatile u64 active_ns = 3000000;		/* a tenant counts as active so long after its last launch */
const volatile u64 stale_ns = 50000000;		/* without a tick for so long (gbpfd is gone) everybody just goes */

enum { PUT_OFF, HELD_FOR_OWN_WORK };

/* What a tenant has used. One instance a tenant: its own programs write it, gbpfd reads all. */
struct account {
	u64 vtime_ns; /* GPU time / weight * 100 */
	u64 seen_ns;  /* last launch */
};

struct {
	__uint(type, GBPF_MAP_ARRAY);
	__uint(max_entries, 1);
	__uint(map_flags, GBPF_F_TENANT);
	__type(key, u32);
	__type(value, struct account);
} accounts SEC(".maps");

/* What gbpfd publishes. Written by tick alone, read by all. */
u64 floor_ns;
u64 ticked_ns;

SEC("gbpf/submit")
int GBPF_PROG(fair_submit, submit)
{
	u64 slack = ctx->class_id == GBPF_CLASS_LATENCY ? latency_slack_ns : slack_ns;
	u64 now = ctx->now_ns, lowest = floor_ns, ahead;
	struct account *a;
	u32 key = 0;

	a = bpf_map_lookup_elem(&accounts, &key);
	if (!a) {
		return GBPF_GO;
	}
	a->seen_ns = now;
	if (a->vtime_ns < lowest) {
		a->vtime_ns = lowest;
	}
	if (now > ticked_ns + stale_ns) {
		return GBPF_GO;
	}
	ahead = a->vtime_ns - lowest;
	if (ahead > slack) {
		if (!ctx->asked) {
			gbpf_note(PUT_OFF, 1);
		}
		ahead -= slack;
		ctx->hold_ns = ahead < 100000 ? 100000 : ahead > 1000000 ? 1000000 : ahead;
		return GBPF_DEFER;
	}
	if (ctx->inflight &&
	    (ctx->inflight_ns + ctx->est_ns > inflight_limit_ns || (!ctx->est_ns && ctx->inflight >= unknown_limit))) {
		if (!ctx->asked) {
			gbpf_note(HELD_FOR_OWN_WORK, 1);
		}
		return GBPF_HOLD;
	}
	return GBPF_GO;
}

SEC("gbpf/retire")
int GBPF_PROG(fair_retire, retire)
{
	struct account *a;
	u32 key = 0;

	a = bpf_map_lookup_elem(&accounts, &key);
	if (a && ctx->weight) {
		__sync_fetch_and_add(&a->vtime_ns, ctx->duration_ns * 100 / ctx->weight);
	}
	return 0;
}

SEC("gbpf/tick")
int GBPF_PROG(fair_tick, tick)
{
	u64 lowest = ~0ull;
	u32 key = 0;

	for (u32 t = 0; t < 1024; t++) {
		struct account *a;
		u64 v;

		if (t >= ctx->tenants) {
			break;
		}
		a = gbpf_tenant_lookup(&accounts, t, &key);
		if (!a || a->seen_ns + active_ns < ctx->now_ns) {
			continue;
		}
		v = a->vtime_ns;
		if (v < lowest) {
			lowest = v;
		}
	}
	if (lowest != ~0ull && lowest > floor_ns) {
		floor_ns = lowest;
	}
	ticked_ns = ctx->now_ns;
	return 0;
}
