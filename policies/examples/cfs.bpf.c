/* cfs: a completely fair scheduler for the GPU. One program at a time has the GPU: the one with the
 * least GPU time relative to its weight.
 *
 * Use it when programs should not interfere at all (caches, context switches) and each should get
 * its turn soon. fair, in contrast, runs all programs that are not far ahead and leaves the turns
 * to the hardware.
 *
 * How, as in Linux before EEVDF: each tenant has a virtual time, its GPU time divided by its
 * weight. gbpfd gives the GPU to the tenant with the least virtual time for a slice: its share of
 * latency_ns by weight, at least min_granularity_ns. The slice ends when it is used up or its
 * tenant no longer wants the GPU. A tenant that wakes after a pause is placed half a latency_ns
 * before the least virtual time: it runs soon, but has not saved up unused time; it preempts the
 * current tenant if it is behind by more than wakeup_granularity_ns. A latency tenant has eight
 * times its weight. */
#include <gbpf/gbpf.bpf.h>

GBPF_LICENSE("Apache-2.0");

const volatile u64 latency_ns = 24000000;	  /* ns: period in which each tenant has had the GPU once */
const volatile u64 min_granularity_ns = 3000000;  /* ns: shortest slice, since switching tenants has a cost */
const volatile u64 wakeup_granularity_ns = 1000000;
const volatile u64 inflight_limit_ns = 2000000;	  /* ns: work in flight per tenant, which the next one waits for */
const volatile u32 unknown_limit = 4;		  /* launches: the same while durations are unknown */
const volatile u64 sleep_ns = 3000000;		  /* ns: a tenant without a launch for this time is asleep */
const volatile u64 stale_ns = 50000000;		  /* ns: published values older than this (gbpfd is not running) are ignored */

enum { HELD_FOR_OTHER, SWITCHES, WAKEUPS };

#define NOBODY 0xffffffffu

struct account {
	u64 vtime_ns; /* GPU time / weight * 100 */
	u64 seen_ns;  /* time of the last launch or request to launch */
	u64 out;      /* launches not retired, approximately */
};

struct {
	__uint(type, GBPF_MAP_ARRAY);
	__uint(max_entries, 1);
	__uint(map_flags, GBPF_F_TENANT);
	__type(key, u32);
	__type(value, struct account);
} accounts SEC(".maps");

/* Published by tick. */
u32 current = NOBODY; /* tenant that has the GPU; NOBODY: all may run */
u64 slice_end_v;      /* virtual time at which its slice ends */
u64 least_v;	      /* least virtual time; never decreases */
u64 ticked_ns;

static __always_inline u64 weight_of(u32 class_id, u64 weight)
{
	return class_id == GBPF_CLASS_LATENCY ? weight * 8 : weight;
}

SEC("gbpf/submit")
int GBPF_PROG(cfs_submit, submit)
{
	u64 now = ctx->now_ns, floor = least_v > latency_ns / 2 ? least_v - latency_ns / 2 : 0;
	struct account *a;
	u32 key = 0;

	a = bpf_map_lookup_elem(&accounts, &key);
	if (!a || ctx->kind >= GBPF_KIND_HOST) {
		return GBPF_GO;
	}
	if (a->seen_ns + sleep_ns < now && !a->out && a->vtime_ns < floor) {
		a->vtime_ns = floor;
		gbpf_note(WAKEUPS, 1);
	}
	a->seen_ns = now;
	if (current != NOBODY && current != ctx->tenant && now < ticked_ns + stale_ns) {
		if (!ctx->asked) {
			gbpf_note(HELD_FOR_OTHER, 1);
		}
		ctx->why = GBPF_WHY_TURN;
		ctx->hold_ns = 1000000;
		return GBPF_DEFER;
	}
	if (ctx->inflight &&
	    (ctx->est_ns ? ctx->inflight_ns + ctx->est_ns > inflight_limit_ns : ctx->inflight >= unknown_limit)) {
		ctx->why = GBPF_WHY_INFLIGHT;
		return GBPF_HOLD;
	}
	a->out = ctx->inflight + 1;
	return GBPF_GO;
}

SEC("gbpf/retire")
int GBPF_PROG(cfs_retire, retire)
{
	struct account *a;
	u32 key = 0;
	u64 n = ctx->count, weight = weight_of(ctx->class_id, ctx->weight);

	a = bpf_map_lookup_elem(&accounts, &key);
	if (!a || !weight) {
		return 0;
	}
	__sync_fetch_and_add(&a->vtime_ns, gbpf_used_ns(ctx) * 100 / weight);
	if (n > a->out) {
		n = a->out;
	}
	__sync_fetch_and_add(&a->out, -n);
	return 0;
}

/* Result of a scan of the tenants that want the GPU. */
struct look {
	u64 weights, least_v, current_v;
	u32 wanting, next;
	u64 next_weight;
};

static __always_inline void look_at(struct look *l, const struct account *a, u32 t, u64 now)
{
	long class_id = gbpf_tenant_class(t), weight = gbpf_tenant_weight(t);
	u64 w;

	if (class_id < 0 || weight <= 0 || (!a->out && a->seen_ns + 1500000 < now)) {
		return; /* exited, or does not want the GPU */
	}
	w = weight_of((u32)class_id, (u64)weight);
	l->weights += w;
	l->wanting++;
	if (t == current) {
		l->current_v = a->vtime_ns;
	}
	if (a->vtime_ns < l->least_v) {
		l->least_v = a->vtime_ns;
		l->next = t;
		l->next_weight = w;
	}
}

static __always_inline u64 slice_of(const struct look *l)
{
	u64 slice = latency_ns * l->next_weight / (l->weights ? l->weights : 1);

	slice = slice > min_granularity_ns ? slice : min_granularity_ns;
	return slice * 100 / (l->next_weight ? l->next_weight : 1);
}

SEC("gbpf/tick")
int GBPF_PROG(cfs_tick, tick)
{
	u32 key = 0, t, n = ctx->tenants < 1024 ? ctx->tenants : 1024;
	struct look l = { .least_v = ~0ull, .current_v = ~0ull, .next = NOBODY };

	bpf_for (t, 0, n) {
		struct account *a = gbpf_tenant_lookup(&accounts, t, &key);

		if (a) {
			look_at(&l, a, t, ctx->now_ns);
		}
	}
	ticked_ns = ctx->now_ns;
	if (l.wanting && l.least_v > least_v) {
		least_v = l.least_v;
	}
	if (l.wanting < 2) {
		current = NOBODY; /* only one tenant */
		return 0;
	}
	/* The current tenant continues during its slice unless a tenant far behind woke up. */
	if (l.current_v < slice_end_v && l.current_v <= l.least_v + slice_of(&l) + wakeup_granularity_ns) {
		return 0;
	}
	if (l.next != current) {
		gbpf_note(SWITCHES, 1);
	}
	current = l.next;
	slice_end_v = l.least_v + slice_of(&l);
	return 0;
}
