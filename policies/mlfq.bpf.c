/* mlfq: a multi-level feedback queue. Who uses little GPU time goes first, without anybody saying who that is.
 *
 * Use it when classes and weights are not known: short, interactive work stays on the upper levels, long jobs sink to the
 * lower ones, and each periodic boost lets everybody begin at the top again, so nobody starves and who has changed its ways
 * is found out.
 *
 * How: each tenant has a level, 0 to 3, and an allotment of GPU time on it. Who has used it up sinks; every boost_ns all are
 * at level 0. Each millisecond gbpfd publishes the uppermost level on which anybody wants the GPU; who is below holds. On
 * the same level the hardware's own time slices take turns.
 *
 * After: Corbató (CTSS, 1962), in the form of Arpaci-Dusseau's "Operating Systems: Three Easy Pieces"; XSched has one with as
 * many levels. */
#include <gbpf/gbpf.bpf.h>

GBPF_LICENSE("Apache-2.0");

#define LEVELS 4u

const volatile u64 allotment_ns = 4000000;	/* of level 0; each further one has four times as much */
const volatile u64 boost_ns = 200000000;	/* so often everybody is lifted to level 0 */
const volatile u64 inflight_limit_ns = 2000000; /* of who is below level 0: so long may the upper level have to wait */
const volatile u32 unknown_limit = 4;		/* the same, in launches, while durations are not known */
const volatile u64 hold_ns = 1000000;		/* asks again after so long */
const volatile u64 stale_ns = 50000000;		/* without a tick for so long (gbpfd is gone) everybody just goes */

enum { HELD_FOR_UPPER, SUNK, BOOSTS };

struct account {
	u64 used_ns; /* on this level */
	u64 held_ns; /* last put off */
	u64 out;     /* launches that have not retired, about */
	u32 level;
	u32 boost; /* the one that it was lifted by last */
};

struct {
	__uint(type, GBPF_MAP_ARRAY);
	__uint(max_entries, 1);
	__uint(map_flags, GBPF_F_TENANT);
	__type(key, u32);
	__type(value, struct account);
} accounts SEC(".maps");

/* Written by tick, read by all. */
u32 upper_level = LEVELS; /* on which somebody wants the GPU */
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
		ctx->hold_ns = hold_ns;
		return GBPF_HOLD;
	}
	if (a->level && ctx->inflight && ctx->kind < GBPF_KIND_HOST) {
		if (ctx->est_ns ? ctx->inflight_ns + ctx->est_ns > inflight_limit_ns : ctx->inflight >= unknown_limit) {
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
	__sync_fetch_and_add(&a->used_ns, ctx->duration_ns);
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
