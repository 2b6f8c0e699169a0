/* shares: GPU time by weight per program, in windows; unused time is carried over for a while.
 *
 * Use it when shares are promised (75:25) and must be exact while all tenants want them: a program
 * cannot take more than its share of a window, whatever its launches are like, and one that paused
 * gets some of it back. fair does the same without windows and without saving.
 *
 * How: at the end of each window, or as soon as no tenant that wants the GPU has time left, gbpfd
 * grants the next one: to each tenant that wants the GPU its share of the window, by weight. A
 * tenant keeps its remaining time (two shares of a window at most); while it does not want the GPU,
 * nine tenths of it. An overrun (a running launch is not stopped) is deducted. In the process lane
 * the hardware's time slices are set in proportion, too, so that long kernels share as exactly as
 * short ones. A program that has the GPU for itself is limited only in how far it launches ahead, and
 * owes nothing for that time.
 *
 * After: XSched's PUP (process utilization partition with a decay of 0.9). */
#include <gbpf/gbpf.bpf.h>

#include "ahead.h"
#include "alone.h"

GBPF_LICENSE("Apache-2.0");

const volatile u64 window_ns = 20000000;
const volatile u32 keep_percent = 90;		/* %: remaining time that a tenant keeps for the next window while it does not want the GPU */
const volatile u64 most_windows = 2;		/* maximum of saved time, in shares of a window */
const volatile u32 slice_us = 2000;		/* us: time slice at weight 100; 0: slices are not set */
const volatile u64 ahead_ns = 1000000;		/* ns: may be used in advance, so that the GPU does not idle at a window's end */
const volatile u32 unknown_limit = 16;		/* launches in flight while durations are unknown */
const volatile u64 busy_ns = 1000000;		/* ns: a tenant that launched within this time still uses its remaining time */
const volatile u64 stale_ns = 50000000;		/* ns: published values older than this (gbpfd is not running) are ignored */

enum { HELD_FOR_SHARE, WINDOWS };

struct account {
	u64 used_ns; /* total GPU time */
	u64 seen_ns; /* time of the last launch or request to launch */
	u64 out;     /* launches not retired, approximately */
};

struct {
	__uint(type, GBPF_MAP_ARRAY);
	__uint(max_entries, 1);
	__uint(map_flags, GBPF_F_TENANT);
	__type(key, u32);
	__type(value, struct account);
} accounts SEC(".maps");

/* Published by gbpfd. */
u64 allowed_ns[1024]; /* by tenant: limit of its total GPU time; 0: new tenant */
u64 window_end_ns;
u64 ticked_ns;

SEC("gbpf/admit")
int GBPF_PROG(shares_admit, admit)
{
	u64 slice = (u64)slice_us * ctx->weight / 100;

	if (!ctx->rejoin) { /* else it is what --keep-maps kept, or 0 */
		allowed_ns[ctx->tenant & 1023] = 0;
	}
	if (slice && ctx->lane == GBPF_LANE_PROCESS) {
		ctx->slice_us = slice < 200 ? 200 : slice > 50000 ? 50000 : (u32)slice;
	}
	return GBPF_ADMIT;
}

SEC("gbpf/submit")
int GBPF_PROG(shares_submit, submit)
{
	u64 now = ctx->now_ns, allowed = allowed_ns[ctx->tenant & 1023];
	int ticking = now < ticked_ns + stale_ns;
	struct account *a;
	u32 key = 0;

	a = bpf_map_lookup_elem(&accounts, &key);
	if (!a || ctx->kind >= GBPF_KIND_HOST) {
		return GBPF_GO;
	}
	a->seen_ns = now;
	if (ticking && (alone || !allowed)) { /* also one that has just come */
		if (!may_go_ahead(ctx)) {
			ctx->why = GBPF_WHY_INFLIGHT;
			return GBPF_HOLD;
		}
		a->out = ctx->inflight + 1;
		return GBPF_GO;
	}
	if (ticking && a->used_ns + ctx->inflight_ns >= allowed + (ctx->inflight ? ahead_ns : 0)) {
		if (!ctx->asked) {
			gbpf_note(HELD_FOR_SHARE, 1);
		}
		ctx->why = GBPF_WHY_SHARE;
		ctx->hold_ns = 500000;
		return GBPF_DEFER;
	}
	if (!ctx->est_ns && ctx->inflight >= unknown_limit) {
		ctx->why = GBPF_WHY_INFLIGHT;
		return GBPF_HOLD;
	}
	a->out = ctx->inflight + 1;
	return GBPF_GO;
}

SEC("gbpf/retire")
int GBPF_PROG(shares_retire, retire)
{
	struct account *a;
	u32 key = 0;
	u64 n = ctx->count;

	a = bpf_map_lookup_elem(&accounts, &key);
	if (!a) {
		return 0;
	}
	__sync_fetch_and_add(&a->used_ns, gbpf_used_ns(ctx));
	if (n > a->out) {
		n = a->out;
	}
	__sync_fetch_and_add(&a->out, -n);
	return 0;
}

static __always_inline int wants(const struct account *a, u64 now)
{
	return a->out || a->seen_ns + 2000000 > now;
}

/* Returns the new limit of a tenant's total GPU time after a grant (0: it does not want the GPU). */
static __always_inline u64 next_allowed(const struct account *a, u64 allowed, u64 grant, u64 share)
{
	u64 left = allowed > a->used_ns ? (allowed - a->used_ns) : 0;
	u64 debt = allowed && a->used_ns > allowed ? a->used_ns - allowed : 0;

	left = grant ? left : left * keep_percent / 100;
	left = left < share * most_windows ? left : share * most_windows;
	debt = debt < share * most_windows ? debt : share * most_windows;
	return a->used_ns + left + grant - (debt < grant ? debt : grant) + 1;
}

/* Begins a window that ends at once, so that the first tick with another program grants the next. */
static __always_inline void owe_nothing(u64 now, u32 n)
{
	u32 key = 0, t;

	window_end_ns = now;
	bpf_for (t, 0, n) {
		struct account *a = gbpf_tenant_lookup(&accounts, t, &key);

		allowed_ns[t & 1023] = a && wants(a, now) ? a->used_ns + 1 : 0;
	}
}

SEC("gbpf/tick")
int GBPF_PROG(shares_tick, tick)
{
	u32 key = 0, t, n = ctx->tenants < 1024 ? ctx->tenants : 1024, left = 0;
	u64 now = ctx->now_ns, weights = 0;

	look_for_others(ctx);
	ticked_ns = now;
	if (alone) {
		owe_nothing(now, n);
		return 0;
	}
	bpf_for (t, 0, n) {
		struct account *a = gbpf_tenant_lookup(&accounts, t, &key);
		long weight = gbpf_tenant_weight(t);

		if (a && weight > 0 && wants(a, now)) {
			weights += (u64)weight;
			left += a->used_ns < allowed_ns[t & 1023] && (a->out || a->seen_ns + busy_ns > now);
		}
	}
	if (!weights || (now < window_end_ns && left)) {
		return 0;
	}
	window_end_ns = now + window_ns;
	gbpf_note(WINDOWS, 1);
	bpf_for (t, 0, n) {
		struct account *a = gbpf_tenant_lookup(&accounts, t, &key);
		long weight = gbpf_tenant_weight(t);
		u64 share;

		if (!a || weight <= 0) {
			allowed_ns[t & 1023] = 0;
			continue;
		}
		share = window_ns * (u64)weight / weights;
		share = share < window_ns ? share : window_ns;
		if (wants(a, now) || allowed_ns[t & 1023]) {
			allowed_ns[t & 1023] = next_allowed(a, allowed_ns[t & 1023], wants(a, now) ? share : 0, share);
		}
	}
	return 0;
}
