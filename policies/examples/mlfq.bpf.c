/* mlfq: a multi-level feedback queue. Tenants that use little GPU time run first, without
 * configuration.
 *
 * Use it when classes and weights are unknown: short, interactive work stays on the upper levels,
 * long jobs sink to the lower ones, and a periodic boost lets all tenants start at the top again,
 * so no tenant starves and changed behaviour is noticed.
 *
 * How: each tenant has a level, 0 to 3, and an allotment of GPU time on it. A tenant that has used
 * it up sinks; every boost_ns all return to level 0. Every millisecond gbpfd publishes the
 * uppermost level on which a tenant wants the GPU; tenants below it hold. On the same level the
 * hardware's time slices alternate.
 *
 * After: Corbató (CTSS, 1962), in the form of Arpaci-Dusseau's "Operating Systems: Three Easy
 * Pieces"; XSched has one with as many levels. */
#include <gbpf/gbpf.bpf.h>

GBPF_LICENSE("Apache-2.0");

#define LEVELS 4u

const volatile u64 allotment_ns = 4000000;	/* ns: GPU time on level 0; each further level has four times as much */
const volatile u64 boost_ns = 200000000;	/* ns: period after which all tenants return to level 0 */
const volatile u64 inflight_limit_ns = 2000000; /* ns: work in flight of tenants below level 0: the longest wait of the upper level */
const volatile u32 unknown_limit = 4;		/* launches: the same while durations are unknown */
const volatile u64 hold_ns = 1000000;		/* ns: a held launch asks again after this */
const volatile u64 stale_ns = 50000000;		/* ns: published values older than this (gbpfd is not running) are ignored */

enum { HELD_FOR_UPPER, SUNK, BOOSTS };

struct account {
	u64 used_ns; /* GPU time used on this level */
	u64 held_ns; /* time of the last hold */
	u64 out;     /* launches not retired, approximately */
	u32 level;
	u32 boost; /* number of the boost that it has seen */
};

struct {
	__uint(type, GBPF_MAP_ARRAY);
	__uint(max_entries, 1);
	__uint(map_flags, GBPF_F_TENANT);
	__type(key, u32);
	__type(value, struct account);
} accounts SEC(".maps");

/* Published by tick. */
u32 upper_level = LEVELS; /* uppermost level on which a tenant wants the GPU */
u32 boost;
u64 boosted_ns;
u64 ticked_ns;

SEC("gbpf/submit")
int GBPF_PROG(mlfq_submit, submit)
{
	u64 now = ctx->now_ns;
	struct account *a;
	u32 key = 0;

	a = bpf_map_lookup_elem(&accounts, &key);
	if (!a || now >= ticked_ns + stale_ns) {
		return GBPF_GO;
	}
	if (a->boost != boost) {
		a->boost = boost;
		a->level = 0;
		a->used_ns = 0;
	}
	if (a->level > upper_level) {
		if (!ctx->asked) {
			gbpf_note(HELD_FOR_UPPER, 1);
		}
		a->held_ns = now;
		ctx->why = GBPF_WHY_PRIORITY;
		ctx->hold_ns = hold_ns;
		return GBPF_HOLD;
	}
	if (a->level && ctx->inflight && ctx->kind < GBPF_KIND_HOST) {
		if (ctx->est_ns ? ctx->inflight_ns + ctx->est_ns > inflight_limit_ns : ctx->inflight >= unknown_limit) {
			ctx->why = GBPF_WHY_INFLIGHT;
			return GBPF_HOLD;
		}
	}
	a->out = ctx->inflight + 1;
	return GBPF_GO;
}

SEC("gbpf/retire")
int GBPF_PROG(mlfq_retire, retire)
{
	struct account *a;
	u32 key = 0;
	u64 n = ctx->count;

	a = bpf_map_lookup_elem(&accounts, &key);
	if (!a) {
		return 0;
	}
	if (n > a->out) {
		n = a->out;
	}
	__sync_fetch_and_add(&a->out, -n);
	__sync_fetch_and_add(&a->used_ns, gbpf_used_ns(ctx));
	if (a->level < LEVELS - 1 && a->used_ns >= allotment_ns << 2 * (a->level & 3)) {
		a->level++;
		a->used_ns = 0;
		gbpf_note(SUNK, 1);
	}
	return 0;
}

SEC("gbpf/tick")
int GBPF_PROG(mlfq_tick, tick)
{
	u32 key = 0, t, n = ctx->tenants < 1024 ? ctx->tenants : 1024, upper = LEVELS;
	u64 now = ctx->now_ns;

	if (now >= boosted_ns + boost_ns) {
		boosted_ns = now;
		boost++;
		gbpf_note(BOOSTS, 1);
	}
	bpf_for (t, 0, n) {
		struct account *a = gbpf_tenant_lookup(&accounts, t, &key);

		if (!a || (!a->out && a->held_ns + 2000000 < now)) {
			continue; /* does not want the GPU */
		}
		if (a->level < upper && a->boost == boost) {
			upper = a->level;
		}
	}
	upper_level = upper;
	ticked_ns = now;
	return 0;
}
