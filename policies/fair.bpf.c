/* fair: every tenant gets GPU time in proportion to its weight; latency-critical ones may run ahead further, and who has a
 * target for its requests gets as much more as it needs to reach it.
 *
 * Use it as the default, when tenants are busy rather than urgent. It does not make a request fast while others are busy;
 * lc_first does.
 *
 * How: each tenant has a virtual time, its GPU time divided by its weight. Every millisecond gbpfd looks who wants the GPU
 * all the time, and finds the lowest virtual time among them: the floor. Who is ahead of the floor by more than its slack is
 * put off until the others have caught up. Who comes back after a pause begins at the floor: time that was not used is not
 * saved up. When nobody competes, the floor follows whoever runs, and nobody is put off.
 *
 * Targets (SLA): gbpf map set targets NUMBER 5ms is how long requests of a latency tenant may take on average. Twenty times
 * a second gbpfd looks what they took; while it is more, the tenant's weight grows by a quarter each time, to 16 times at
 * most, and while it is less than three quarters of the target it falls back. */
#include <gbpf/gbpf.bpf.h>

GBPF_LICENSE("Apache-2.0");

const volatile u64 slack_ns = 4000000;		/* ahead of the floor, at weight 100 */
const volatile u64 latency_slack_ns = 40000000; /* the same for latency-critical tenants: their priority */
const volatile u64 inflight_limit_ns = 8000000; /* on the GPU at once, so that nobody has to wait for a long queue */
const volatile u32 unknown_limit = 16;		/* launches in flight while durations are not known yet */
const volatile u64 stale_ns = 50000000;		/* without a tick for so long (gbpfd is gone) everybody just goes */

enum { PUT_OFF, HELD_FOR_OWN_WORK };

/* What a tenant has used. One instance a tenant: its own programs write it, gbpfd reads all. */
struct account {
	u64 vtime_ns; /* GPU time / weight * 100 */
	u64 seen_ns;  /* last asked to launch */
	u64 put_off_ns; /* last put off */
	u64 out;      /* launches that have not retired, about */
};

struct {
	__uint(type, GBPF_MAP_ARRAY);
	__uint(max_entries, 1);
	__uint(map_flags, GBPF_F_TENANT);
	__type(key, u32);
	__type(value, struct account);
} accounts SEC(".maps");

/* By tenant: how long its requests may take, nanoseconds; 0: no target. Set by the operator. */
struct {
	__uint(type, GBPF_MAP_ARRAY);
	__uint(max_entries, 1024);
	__type(key, u32);
	__type(value, u64);
} targets SEC(".maps");

/* What gbpfd publishes: written by tick alone, read by all. */
u32 extra[1024]; /* what a target adds to the tenant's weight, in sixteenths of it */
u64 floor_ns;
u64 ticked_ns;
u64 demand[1024]; /* how much of the last milliseconds a tenant wanted the GPU, 0-1024 */

static __always_inline int too_much_in_flight(struct gbpf_submit_ctx *ctx)
{
	if (!ctx->inflight || ctx->kind >= GBPF_KIND_HOST) {
		return 0; /* one may always run, however long it is; host functions and the like take no GPU time */
	}
	return ctx->est_ns ? ctx->inflight_ns + ctx->est_ns > inflight_limit_ns : ctx->inflight >= unknown_limit;
}

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
	ahead = a->vtime_ns - lowest;
	if (ahead > slack && now < ticked_ns + stale_ns) {
		if (!ctx->asked) {
			gbpf_note(PUT_OFF, 1);
		}
		a->put_off_ns = now;
		ahead -= slack;
		ctx->hold_ns = ahead < 100000 ? 100000 : ahead > 1000000 ? 1000000 : ahead;
		return GBPF_DEFER;
	}
	if (too_much_in_flight(ctx)) {
		if (!ctx->asked) {
			gbpf_note(HELD_FOR_OWN_WORK, 1);
		}
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
	__sync_fetch_and_add(&a->vtime_ns, ctx->duration_ns * 100 / ctx->weight * 16 / (16 + extra[ctx->tenant & 1023]));
	if (n > a->out) {
		n = a->out;
	}
	__sync_fetch_and_add(&a->out, -n);
	return 0;
}

/* What tick finds among those who are not idle. */
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

/* What gbpfd knew of a tenant's requests at the look before. */
struct seen {
	u64 requests, request_ns;
};
struct seen seen[1024];

/* Gives the tenant more or less, after what its requests took since the look before. */
static __always_inline void aim(u32 t)
{
	u64 requests = gbpf_tenant_stat(t, GBPF_STAT_REQUESTS), took = gbpf_tenant_stat(t, GBPF_STAT_REQUEST_NS);
	u64 *target = bpf_map_lookup_elem(&targets, &t), new, mean;
	struct seen *s = &seen[t & 1023];
	u32 *more = &extra[t & 1023];

	new = requests - s->requests;
	if (!target || !*target || requests < s->requests) {
		*more = 0; /* no target, or another program has the number now */
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
		s.lowest_ns = s.highest_ns; /* nobody competes */
	}
	if (s.lowest_ns > floor_ns) {
		floor_ns = s.lowest_ns;
	}
	ticked_ns = ctx->now_ns;
	return 0;
}
