/* fair: GPU time in proportion to weight. Latency tenants may run ahead further, and a tenant with
 * a target for its requests gets as much more as it needs to meet it. Groups that communicate across
 * GPUs have these in turns (groups.h).
 *
 * Use it as the default, when tenants are busy rather than urgent. It does not make a request fast
 * while other tenants are busy; lc_first does.
 *
 * How: each tenant has a virtual time, its GPU time divided by its weight. Every millisecond gbpfd
 * finds the tenants that want the GPU continuously, and the lowest virtual time among them: the
 * floor. A tenant ahead of the floor by more than its slack is deferred until the others have
 * caught up. A tenant that returns after a pause starts at the floor: unused time is not saved.
 * Without competition the floor follows the running tenant, and nothing is deferred.
 *
 * Targets (SLA): `gbpf map set targets NUMBER 5ms` sets the mean duration that requests of a
 * latency tenant may have. Twenty times a second gbpfd compares it with the measured mean; while
 * that is higher, the tenant's weight grows by a quarter each time, up to 16 times, and while it is
 * below three quarters of the target it falls back. */
#include "groups.h"

GBPF_LICENSE("Apache-2.0");

const volatile u64 slack_ns = 4000000;		/* ns: virtual time ahead of the floor, at weight 100 */
const volatile u64 latency_slack_ns = 40000000; /* ns: the same for latency tenants: their priority */
const volatile u64 inflight_limit_ns = 8000000; /* ns: work in flight per tenant, so that no tenant waits for a long queue */
const volatile u32 unknown_limit = 16;		/* launches: the same while durations are unknown */
const volatile u64 stale_ns = 50000000;		/* ns: published values older than this (gbpfd is not running) are ignored */

enum { PUT_OFF, HELD_FOR_OWN_WORK };

/* GPU time of a tenant. One instance per tenant: its own programs write it, gbpfd reads all. */
struct account {
	u64 vtime_ns; /* GPU time / weight * 100 */
	u64 seen_ns;  /* time of the last launch or request to launch */
	u64 put_off_ns; /* time of the last deferral */
	u64 out;      /* launches not retired, approximately */
};

struct {
	__uint(type, GBPF_MAP_ARRAY);
	__uint(max_entries, 1);
	__uint(map_flags, GBPF_F_TENANT);
	__type(key, u32);
	__type(value, struct account);
} accounts SEC(".maps");

/* By tenant: target for the mean duration of its requests, ns; 0: none. Set by the operator. */
struct {
	__uint(type, GBPF_MAP_ARRAY);
	__uint(max_entries, 1024);
	__type(key, u32);
	__type(value, u64);
} targets SEC(".maps");

/* Published by tick. */
u32 extra[1024]; /* by tenant: addition to its weight because of a target, in sixteenths */
u64 floor_ns;
u64 ticked_ns;
u64 demand[1024]; /* by tenant: fraction of the last milliseconds in which it wanted the GPU, 0-1024 */

static __always_inline int too_much_in_flight(struct gbpf_submit_ctx *ctx)
{
	if (!ctx->inflight || ctx->kind >= GBPF_KIND_HOST) {
		return 0; /* one launch may always run; host functions take no GPU time */
	}
	return ctx->est_ns ? ctx->inflight_ns + ctx->est_ns > inflight_limit_ns : ctx->inflight >= unknown_limit;
}

/* Records the decision of turns. The account has no lead after them, since they divide the time. */
static __always_inline int go_in_turn(const struct gbpf_submit_ctx *ctx, struct account *a, u32 verdict)
{
	if (verdict == GBPF_GO) {
		a->vtime_ns = floor_ns;
		a->out = ctx->inflight + 1;
	} else {
		a->put_off_ns = ctx->now_ns;
	}
	return verdict;
}

SEC("gbpf/submit")
int GBPF_PROG(fair_submit, submit)
{
	u64 slack = ctx->class_id == GBPF_CLASS_LATENCY ? latency_slack_ns : slack_ns;
	u64 now = ctx->now_ns, lowest = floor_ns, ahead;
	struct account *a;
	u32 key = 0, verdict;

	a = bpf_map_lookup_elem(&accounts, &key);
	if (!a) {
		return GBPF_GO;
	}
	a->seen_ns = now;
	if (group_decides(ctx, &verdict)) {
		return go_in_turn(ctx, a, verdict);
	}
	if (a->vtime_ns < lowest) {
		a->vtime_ns = lowest;
	}
	ahead = a->vtime_ns - lowest;
	if (ahead > slack && now < ticked_ns + stale_ns) {
		if (!ctx->asked) {
			gbpf_note(PUT_OFF, 1);
		}
		a->put_off_ns = now;
		ahead -= slack;
		ctx->why = GBPF_WHY_SHARE;
		ctx->hold_ns = ahead < 100000 ? 100000 : ahead > 1000000 ? 1000000 : ahead;
		return GBPF_DEFER;
	}
	if (too_much_in_flight(ctx)) {
		if (!ctx->asked) {
			gbpf_note(HELD_FOR_OWN_WORK, 1);
		}
		ctx->why = GBPF_WHY_INFLIGHT;
		return GBPF_HOLD;
	}
	a->out = ctx->inflight + 1; /* a plain store: an atomic one would cost more than the rest of this program */
	return GBPF_GO;
}

SEC("gbpf/retire")
int GBPF_PROG(fair_retire, retire)
{
	struct account *a;
	u32 key = 0;
	u64 n = ctx->count;

	a = bpf_map_lookup_elem(&accounts, &key);
	if (!a || !ctx->weight) {
		return 0;
	}
	__sync_fetch_and_add(&a->vtime_ns, gbpf_used_ns(ctx) * 100 / ctx->weight * 16 / (16 + extra[ctx->tenant & 1023]));
	if (n > a->out) {
		n = a->out;
	}
	__sync_fetch_and_add(&a->out, -n);
	return 0;
}

/* Result of a scan of the tenants that are not idle. */
struct search {
	u64 lowest_ns, highest_ns;
};

static __always_inline void look_at(struct search *s, struct account *a, u64 *wanted, u64 now)
{
	u64 sample = a->out ? 128 : 0;

	if (a->put_off_ns + 2000000 > now) {
		sample = 128;
	}
	*wanted = *wanted - *wanted / 8 + sample;
	if (a->seen_ns + 20000000 < now) {
		return; /* idle */
	}
	if (a->vtime_ns > s->highest_ns) {
		s->highest_ns = a->vtime_ns;
	}
	if (*wanted > 768 && a->vtime_ns < s->lowest_ns) {
		s->lowest_ns = a->vtime_ns;
	}
}

/* Statistics of a tenant's requests at the previous scan. */
struct seen {
	u64 requests, request_ns;
};
struct seen seen[1024];

/* Adjusts the tenant's weight to the duration of its requests since the previous scan. */
static __always_inline void aim(u32 t)
{
	u64 requests = gbpf_tenant_stat(t, GBPF_STAT_REQUESTS), took = gbpf_tenant_stat(t, GBPF_STAT_REQUEST_NS);
	u64 *target = bpf_map_lookup_elem(&targets, &t), new, mean;
	struct seen *s = &seen[t & 1023];
	u32 *more = &extra[t & 1023];

	new = requests - s->requests;
	if (!target || !*target || requests < s->requests) {
		*more = 0; /* no target, or the tenant number was reused */
	} else if (new) {
		mean = (took - s->request_ns) / new;
		if (mean > *target) {
			*more += 4 + *more / 4;
		} else if (mean < *target - *target / 4) {
			*more -= *more / 4;
		}
		*more = *more > 240 ? 240 : *more;
	}
	s->requests = requests;
	s->request_ns = took;
}

SEC("gbpf/tick")
int GBPF_PROG(fair_tick, tick)
{
	struct search s = { .lowest_ns = ~0ull };
	u32 key = 0, t, n = ctx->tenants < 1024 ? ctx->tenants : 1024;

	groups_divide(ctx);
	bpf_for (t, 0, n) {
		struct account *a = gbpf_tenant_lookup(&accounts, t, &key);

		if (a) {
			look_at(&s, a, &demand[t], ctx->now_ns);
		}
	}
	if (ctx->epoch % 50 == 0) {
		bpf_for (t, 0, n) {
			aim(t);
		}
	}
	if (s.lowest_ns == ~0ull) {
		s.lowest_ns = s.highest_ns; /* no competition */
	}
	if (s.lowest_ns > floor_ns) {
		floor_ns = s.lowest_ns;
	}
	ticked_ns = ctx->now_ns;
	return 0;
}
