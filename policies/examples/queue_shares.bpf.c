/* queue_shares: GPU time by weight for each stream, across programs.
 *
 * Use it when the unit that shares is a stream and not a program: a server that runs several
 * models, each on a stream of its own, next to programs that have one. With shares or fair a
 * program with ten streams gets as much as one with a single stream.
 *
 * A stream's weight is its tenant's, doubled for each step of CUDA priority (lower is more urgent,
 * five steps at most), and four times that for a stream of class latency.
 *
 * How: each stream has a virtual time, its GPU time divided by its weight. Every millisecond gbpfd
 * publishes the least among the streams of all programs that want the GPU: the floor. A stream
 * ahead of it by more than a slice is deferred. Streams are identified by the last four bits of
 * their number: in a program with more than 16 some share an account. In a program without latency
 * streams a deferred launch blocks its thread, as a full hardware queue would.
 *
 * After: XSched's UP (utilization partition). */
#include <gbpf/gbpf.bpf.h>

GBPF_LICENSE("Apache-2.0");

#define STREAMS 16u /* accounts per tenant */

const volatile u64 slice_ns = 2000000;		/* ns: virtual time ahead of the floor, at weight 100 */
const volatile u64 inflight_limit_ns = 8000000; /* ns: work in flight per program */
const volatile u32 unknown_limit = 16;		/* launches: the same while durations are unknown */
const volatile u64 stale_ns = 50000000;		/* ns: published values older than this (gbpfd is not running) are ignored */

enum { PUT_OFF };

struct stream {
	u64 vtime_ns; /* GPU time / weight * 100 */
	u64 seen_ns;  /* time of the last launch or request to launch */
	u32 weight, pad;
};

/* The streams of a tenant. Its own programs write them, gbpfd reads all. */
struct account {
	struct stream of[STREAMS];
};

struct {
	__uint(type, GBPF_MAP_ARRAY);
	__uint(max_entries, 1);
	__uint(map_flags, GBPF_F_TENANT);
	__type(key, u32);
	__type(value, struct account);
} streams SEC(".maps");

/* Published by tick. */
u64 floor_ns;
u64 ticked_ns;

static __always_inline struct stream *stream(u32 queue)
{
	u32 key = 0;
	struct account *a = bpf_map_lookup_elem(&streams, &key);

	return a ? &a->of[queue & (STREAMS - 1)] : (void *)0;
}

static __always_inline u32 weight_of(u32 weight, s32 priority, u32 class_id)
{
	u32 steps = priority < -5 ? 5 : priority < 0 ? (u32)-priority : 0;

	return (weight ? weight : 100) << (steps & 7) << (class_id == GBPF_CLASS_LATENCY ? 2 : 0);
}

SEC("gbpf/submit")
int GBPF_PROG(streams_submit, submit)
{
	u64 now = ctx->now_ns, lowest = floor_ns, ahead;
	struct stream *s = stream(ctx->queue);

	if (!s || ctx->kind >= GBPF_KIND_HOST) {
		return GBPF_GO;
	}
	s->weight = weight_of(ctx->weight, ctx->priority, ctx->class_id);
	s->seen_ns = now;
	if (s->vtime_ns < lowest) {
		s->vtime_ns = lowest; /* unused time is not saved */
	}
	ahead = s->vtime_ns - lowest;
	if (ahead > slice_ns && now < ticked_ns + stale_ns) {
		if (!ctx->asked) {
			gbpf_note(PUT_OFF, 1);
		}
		ahead -= slice_ns;
		ctx->why = GBPF_WHY_SHARE;
		ctx->hold_ns = ahead < 100000 ? 100000 : ahead > 1000000 ? 1000000 : ahead;
		return GBPF_DEFER;
	}
	if (ctx->inflight &&
	    (ctx->est_ns ? ctx->inflight_ns + ctx->est_ns > inflight_limit_ns : ctx->inflight >= unknown_limit)) {
		ctx->why = GBPF_WHY_INFLIGHT;
		return GBPF_HOLD;
	}
	return GBPF_GO;
}

SEC("gbpf/retire")
int GBPF_PROG(streams_retire, retire)
{
	struct stream *s = stream(ctx->queue);

	if (s) {
		__sync_fetch_and_add(&s->vtime_ns, ctx->duration_ns * 100 / (s->weight ? s->weight : 100));
	}
	return 0;
}

/* Rank in a process whose launches are deferred: the stream that is least ahead. */
SEC("gbpf/dispatch")
int GBPF_PROG(streams_dispatch, dispatch)
{
	struct stream *s = stream(ctx->queue);
	u64 ahead_us, rank;

	if (!s || s->vtime_ns < floor_ns) {
		return 1000000;
	}
	ahead_us = (s->vtime_ns - floor_ns) / 1000;
	rank = 999999 - ahead_us; /* wraps if it is farther ahead than that */
	return rank > 999999 ? 0 : (u32)rank;
}

struct search {
	u64 lowest_ns, highest_ns; /* least of the streams that want the GPU; greatest of those that are not idle */
	u64 wanted_ns, idle_ns;	   /* a stream seen after this time wants the GPU; one not seen after this time is idle */
};

static __always_inline void look_at(struct search *f, const struct stream *s)
{
	if (s->seen_ns < f->idle_ns) {
		return;
	}
	if (s->vtime_ns > f->highest_ns) {
		f->highest_ns = s->vtime_ns;
	}
	if (s->vtime_ns < f->lowest_ns && s->seen_ns > f->wanted_ns) {
		f->lowest_ns = s->vtime_ns;
	}
}

SEC("gbpf/tick")
int GBPF_PROG(streams_tick, tick)
{
	struct search f = { .lowest_ns = ~0ull };
	u32 t, n = ctx->tenants < 1024 ? ctx->tenants : 1024, key = 0;

	f.wanted_ns = ctx->now_ns > 3000000 ? ctx->now_ns - 3000000 : 0;
	f.idle_ns = ctx->now_ns > 20000000 ? ctx->now_ns - 20000000 : 0;
	bpf_for (t, 0, n) {
		struct account *a = gbpf_tenant_lookup(&streams, t, &key);

		if (!a) {
			continue;
		}
#pragma clang loop unroll(full)
		for (u32 k = 0; k < STREAMS; k++) {
			look_at(&f, &a->of[k]);
		}
	}
	if (f.lowest_ns == ~0ull) {
		f.lowest_ns = f.highest_ns;
	}
	if (f.lowest_ns > floor_ns) {
		floor_ns = f.lowest_ns;
	}
	ticked_ns = ctx->now_ns;
	return 0;
}
