/* orion: while a request computes, kernels that need memory bandwidth may run next to it, and vice
 * versa; kernels of the same kind are held.
 *
 * Use it in the shared lane, when batch should get more than what requests leave, and requests may
 * be slowed a little: two kernels that want different parts of an SM cost each other little. In the
 * process lane nothing runs concurrently, so it just holds batch there.
 *
 * How: each kernel's kind is learned from its launches: time per wave of threads, shared memory,
 * bytes moved. A kernel whose threads end after some microseconds streams data; one whose threads
 * stay long, or that keeps tiles in shared memory, computes. That is a guess where Orion has
 * offline profiles. Every millisecond gbpfd publishes the kind of the latency tenants' requests.
 * Next to an open request a batch kernel runs if it is of the other kind, small enough to leave SMs
 * free, and short compared with the request; its work in flight is limited.
 *
 * After: Strati and others, Orion: Interference-aware, Fine-grained GPU Sharing for ML
 * Applications, EuroSys 2024. No tenant starves: after the hold limit (100 ms) gBPF grants a
 * minimum share. */
#include <gbpf/gbpf.bpf.h>

#include "ahead.h"
#include "alone.h"

GBPF_LICENSE("Apache-2.0");

const volatile u64 resident_threads = 270336;	/* threads that the GPU holds: 132 SMs of 2048 */
const volatile u64 stream_wave_ns = 12000;	/* ns: a kernel with shorter waves of threads streams data */
const volatile u32 tile_bytes = 16384;		/* bytes: a kernel with more shared memory per block computes */
const volatile u32 room_percent = 50;		/* %: of the GPU's threads: largest grid that runs next to a request */
const volatile u32 beside_percent = 3;		/* %: of a request's duration: work in flight next to it */
const volatile u64 inflight_limit_ns = 1000000; /* ns: work in flight while no request is open */
const volatile u32 unknown_limit = 2;		/* launches: the same while durations are unknown */
const volatile u64 stale_ns = 50000000;		/* ns: without a tick for this time (gbpfd is not running) no work runs next to a request */

/* Share of the SMs for batch programs, in percent, from their start on; 0: all. Set by the
 * operator. */
u32 cap_percent;

enum { HELD_FOR_REQUEST, HELD_FOR_DRAIN, BESIDE };
enum kind { UNKNOWN, COMPUTES, STREAMS };

/* Kinds of a tenant's own kernels: time spent in each, decaying. */
struct account {
	u64 computing_ns, streaming_ns;
};

struct {
	__uint(type, GBPF_MAP_ARRAY);
	__uint(max_entries, 1);
	__uint(map_flags, GBPF_F_TENANT);
	__type(key, u32);
	__type(value, struct account);
} accounts SEC(".maps");

/* Published by tick. */
enum kind request_kind; /* kind of the open requests; UNKNOWN: several kinds */
u64 beside_ns;		/* limit of work in flight next to them, ns */
u64 ticked_ns;

SEC("gbpf/admit")
int GBPF_PROG(orion_admit, admit)
{
	if (ctx->lanes & 1 << GBPF_LANE_SHARED && ctx->class_id != GBPF_CLASS_NORMAL) {
		ctx->lane = GBPF_LANE_SHARED;
		ctx->priority = ctx->class_id == GBPF_CLASS_BATCH;
		if (ctx->class_id == GBPF_CLASS_BATCH && cap_percent && cap_percent < 100) {
			ctx->sm_percent = cap_percent;
		}
	}
	return GBPF_ADMIT;
}

static __always_inline enum kind kind_of(const struct gbpf_submit_ctx *ctx)
{
	u64 threads = ctx->blocks * ctx->threads, waves;

	if (ctx->kind == GBPF_KIND_COPY || ctx->kind == GBPF_KIND_MEMSET) {
		return STREAMS;
	}
	if (ctx->kind != GBPF_KIND_KERNEL || !ctx->est_ns) {
		return UNKNOWN;
	}
	waves = (threads + resident_threads - 1) / resident_threads;
	if (ctx->smem_bytes >= tile_bytes || ctx->est_ns >= (waves ? waves : 1) * stream_wave_ns) {
		return COMPUTES;
	}
	return STREAMS;
}

static __always_inline void count(struct account *a, enum kind kind, u64 ns)
{
	if (a->computing_ns + a->streaming_ns > 1000000000) {
		a->computing_ns /= 2;
		a->streaming_ns /= 2;
	}
	a->computing_ns += kind == COMPUTES ? ns : 0;
	a->streaming_ns += kind == STREAMS ? ns : 0;
}

/* Returns 1 if the launch may run while requests are open. */
static __always_inline int goes_beside(const struct gbpf_submit_ctx *ctx, enum kind kind)
{
	return ctx->lane == GBPF_LANE_SHARED && ctx->now_ns < ticked_ns + stale_ns && kind != UNKNOWN &&
	       request_kind != UNKNOWN && kind != request_kind &&
	       ctx->blocks * ctx->threads <= resident_threads * room_percent / 100 &&
	       ctx->inflight_ns + ctx->est_ns <= beside_ns;
}

SEC("gbpf/submit")
int GBPF_PROG(orion_submit, submit)
{
	enum kind kind = kind_of(ctx);
	struct account *a;
	u32 key = 0;

	a = bpf_map_lookup_elem(&accounts, &key);
	if (a && !ctx->asked) {
		count(a, kind, ctx->est_ns);
	}
	if (ctx->class_id == GBPF_CLASS_LATENCY || ctx->kind >= GBPF_KIND_HOST) {
		return GBPF_GO;
	}
	if (ctx->lc_open) {
		if (goes_beside(ctx, kind)) {
			gbpf_note(BESIDE, 1);
			return GBPF_GO; /* not at block level, where leases would stop it */
		}
		if (!ctx->asked) {
			gbpf_note(HELD_FOR_REQUEST, 1);
		}
		ctx->why = GBPF_WHY_LATENCY;
		ctx->hold_ns = 5000000;
		return GBPF_HOLD;
	}
	if (alone) {
		ctx->why = GBPF_WHY_INFLIGHT;
		return may_go_ahead(ctx) ? GBPF_GO : GBPF_HOLD;
	}
	if (ctx->block_ok) {
		ctx->level = GBPF_LEVEL_BLOCK;
		return GBPF_GO;
	}
	if (ctx->inflight &&
	    (ctx->est_ns ? ctx->inflight_ns + ctx->est_ns > inflight_limit_ns : ctx->inflight >= unknown_limit)) {
		if (!ctx->asked) {
			gbpf_note(HELD_FOR_DRAIN, 1);
		}
		ctx->why = GBPF_WHY_INFLIGHT;
		return GBPF_HOLD;
	}
	return GBPF_GO;
}

/* Returns the kind in which the tenant spends three quarters of its time. */
static __always_inline enum kind kind_of_tenant(const struct account *a)
{
	u64 all = a->computing_ns + a->streaming_ns;

	if (all < 100000) {
		return UNKNOWN;
	}
	return a->computing_ns * 4 >= all * 3 ? COMPUTES : a->streaming_ns * 4 >= all * 3 ? STREAMS : UNKNOWN;
}

SEC("gbpf/tick")
int GBPF_PROG(orion_tick, tick)
{
	u32 key = 0, t, n = ctx->tenants < 1024 ? ctx->tenants : 1024, mixed = 0;
	enum kind all = UNKNOWN;
	u64 shortest = ~0ull;

	bpf_for (t, 0, n) {
		struct account *a = gbpf_tenant_lookup(&accounts, t, &key);
		u64 requests, mean;
		enum kind kind;

		if (!a || gbpf_tenant_class(t) != GBPF_CLASS_LATENCY) {
			continue;
		}
		requests = gbpf_tenant_stat(t, GBPF_STAT_REQUESTS);
		mean = requests ? gbpf_tenant_stat(t, GBPF_STAT_REQUEST_NS) / requests : 0;
		shortest = mean < shortest ? mean : shortest;
		kind = kind_of_tenant(a);
		mixed |= kind == UNKNOWN || (all != UNKNOWN && kind != all);
		all = kind;
	}
	look_for_others(ctx);
	request_kind = mixed ? UNKNOWN : all;
	beside_ns = shortest == ~0ull ? 0 : shortest * beside_percent / 100;
	ticked_ns = ctx->now_ns;
	return 0;
}
