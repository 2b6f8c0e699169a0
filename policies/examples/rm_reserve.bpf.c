/* rm_reserve: GPU time by reservation: a guaranteed budget in each period; shorter periods are more
 * urgent.
 *
 * Use it when programs have rates to keep (a camera at 30 Hz needs 6 ms in each 33) and must be
 * protected from each other: a program that uses more than its reservation harms no other
 * reservation. Reservations that together take less than 69 % of the GPU keep all their deadlines,
 * whatever the periods (Liu and Layland, 1973).
 *
 * A reservation is a budget and a period. Without one (gbpf map set reservations NUMBER
 * budget_ns=6ms period_ns=33ms) a tenant has weight/1000 of the period of its class: a tenth at
 * weight 100.
 *
 * The variable a_priori chooses the enforcement, after TimeGraph (Kato and others, 2011).
 * Posterior: a tenant runs while any budget is left, and pays for an overrun later; the GPU never
 * idles for fear of an overrun, which can be as long as one launch. A priori: a tenant runs only if
 * the estimated time fits into the remaining budget; no overruns of known launches, but a budget
 * too small for the next launch stays unused. A tenant without budget waits for its next period or,
 * unless use_idle is 0, runs while no tenant with a budget wants the GPU. */
#include <gbpf/gbpf.bpf.h>

GBPF_LICENSE("Apache-2.0");

const volatile u32 use_idle = 1;		 /* 1: tenants without budget may use the GPU's idle time */
const volatile u64 latency_period_ns = 10000000; /* ns: periods of tenants without a reservation, by class */
const volatile u64 normal_period_ns = 20000000;
const volatile u64 batch_period_ns = 50000000;
const volatile u64 inflight_limit_ns = 2000000; /* ns: work in flight: the longest wait of the more urgent tenant */
const volatile u32 unknown_limit = 4;		/* launches: the same while durations are unknown */
const volatile u64 stale_ns = 50000000;		/* ns: published values older than this (gbpfd is not running) are ignored */

enum { NO_BUDGET, LESS_URGENT, IN_IDLE_TIME };

#define NONE (~0ull)

struct reservation {
	u64 budget_ns, period_ns; /* 0: by weight and class */
};
/* By tenant; set by the operator. */
struct {
	__uint(type, GBPF_MAP_ARRAY);
	__uint(max_entries, 1024);
	__type(key, u32);
	__type(value, struct reservation);
} reservations SEC(".maps");
u32 a_priori; /* 0: posterior enforcement, 1: a priori. gbpf map set a_priori 1 */

/* Remaining budget of a tenant. Its own programs write it, gbpfd reads all. */
struct account {
	s64 left_ns;	 /* remaining budget; negative after an overrun */
	u64 begin_ns;	 /* start of the period */
	u64 period_ns;	 /* its length */
	u64 held_ns;	 /* time of the last hold */
	u64 out;	 /* launches not retired, approximately */
};

struct {
	__uint(type, GBPF_MAP_ARRAY);
	__uint(max_entries, 1);
	__uint(map_flags, GBPF_F_TENANT);
	__type(key, u32);
	__type(value, struct account);
} accounts SEC(".maps");

/* Published by tick: shortest period of the tenants that want the GPU and have a budget. */
u64 urgent_period_ns = NONE;
u64 ticked_ns;

static __always_inline u64 period_of(const struct reservation *r, u32 class_id)
{
	if (r->period_ns) {
		return r->period_ns;
	}
	return class_id == GBPF_CLASS_LATENCY ? latency_period_ns
	       : class_id == GBPF_CLASS_NORMAL ? normal_period_ns
						 : batch_period_ns;
}

static __always_inline u64 budget_of(const struct reservation *r, u64 period, u32 weight)
{
	u64 budget = r->budget_ns ? r->budget_ns : period * weight / 1000;

	return budget < period ? budget : period;
}

/* Starts a new period if the current one has passed: debt is carried over, unused budget is not. */
static __always_inline void replenish(struct account *a, u64 now, u64 period, s64 budget)
{
	u64 begin = a->begin_ns, passed;
	s64 left = a->left_ns, now_left;

	if (begin && now < begin + period) {
		return;
	}
	passed = begin ? (now - begin) / period : 0;
	if (__sync_val_compare_and_swap(&a->begin_ns, begin, begin ? begin + passed * period : now) != begin) {
		return; /* another thread has done it */
	}
	if (!begin || passed > 64) {
		now_left = budget; /* debts are limited, too */
	} else {
		now_left = left + budget * (s64)passed;
		now_left = now_left < budget ? now_left : budget;
	}
	a->period_ns = period;
	__sync_fetch_and_add(&a->left_ns, now_left - left);
}

static __always_inline int too_much_in_flight(struct gbpf_submit_ctx *ctx)
{
	if (!ctx->inflight || ctx->kind >= GBPF_KIND_HOST) {
		return 0;
	}
	return ctx->est_ns ? ctx->inflight_ns + ctx->est_ns > inflight_limit_ns : ctx->inflight >= unknown_limit;
}

SEC("gbpf/submit")
int GBPF_PROG(rm_submit, submit)
{
	u64 now = ctx->now_ns, period;
	u64 urgent = now < ticked_ns + stale_ns ? urgent_period_ns : NONE;
	s64 need = a_priori ? (s64)ctx->inflight_ns + (s64)ctx->est_ns : 1;
	u32 key = 0, tenant = ctx->tenant;
	const struct reservation *r;
	struct account *a;

	r = bpf_map_lookup_elem(&reservations, &tenant);
	a = bpf_map_lookup_elem(&accounts, &key);
	if (!a || !r || now >= ticked_ns + stale_ns) {
		return GBPF_GO;
	}
	period = period_of(r, ctx->class_id);
	replenish(a, now, period, (s64)budget_of(r, period, ctx->weight));
	if (a->left_ns < need || a->left_ns <= 0) {
		if (!use_idle || urgent != NONE) {
			if (!ctx->asked) {
				gbpf_note(NO_BUDGET, 1);
			}
			a->held_ns = now;
			ctx->why = GBPF_WHY_BUDGET;
			ctx->hold_ns = a->begin_ns + period > now ? a->begin_ns + period - now : 100000;
			if (use_idle && ctx->hold_ns > 1000000) {
				ctx->hold_ns = 1000000; /* the GPU may become idle earlier */
			}
			return GBPF_DEFER;
		}
		gbpf_note(IN_IDLE_TIME, 1);
	} else if (period > urgent) {
		if (!ctx->asked) {
			gbpf_note(LESS_URGENT, 1);
		}
		a->held_ns = now;
		ctx->why = GBPF_WHY_PRIORITY;
		ctx->hold_ns = 500000;
		return GBPF_DEFER;
	}
	if (too_much_in_flight(ctx)) {
		ctx->why = GBPF_WHY_INFLIGHT;
		return GBPF_HOLD;
	}
	a->out = ctx->inflight + 1;
	return GBPF_GO;
}

SEC("gbpf/retire")
int GBPF_PROG(rm_retire, retire)
{
	struct account *a;
	u32 key = 0;
	u64 n = ctx->count, used = gbpf_used_ns(ctx);

	a = bpf_map_lookup_elem(&accounts, &key);
	if (!a) {
		return 0;
	}
	/* Idle time takes nothing from other tenants: a debt is at most one period. */
	if (a->left_ns - (s64)used < -(s64)a->period_ns) {
		used = a->left_ns + (s64)a->period_ns > 0 ? (u64)(a->left_ns + (s64)a->period_ns) : 0;
	}
	__sync_fetch_and_add(&a->left_ns, -used);
	if (n > a->out) {
		n = a->out;
	}
	__sync_fetch_and_add(&a->out, -n);
	return 0;
}

SEC("gbpf/tick")
int GBPF_PROG(rm_tick, tick)
{
	u32 key = 0, t, n = ctx->tenants < 1024 ? ctx->tenants : 1024;
	u64 urgent = NONE, now = ctx->now_ns;

	bpf_for (t, 0, n) {
		struct account *a = gbpf_tenant_lookup(&accounts, t, &key);

		if (!a || (!a->out && a->held_ns + 2000000 < now)) {
			continue; /* does not want the GPU */
		}
		if ((a->left_ns > 0 || a->begin_ns + a->period_ns <= now) && a->period_ns < urgent) {
			urgent = a->period_ns;
		}
	}
	urgent_period_ns = urgent;
	ticked_ns = now;
	return 0;
}
