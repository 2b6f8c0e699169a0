/* gpreempt: very unequal time slices let the hardware switch to latency-critical work: seconds for
 * latency tenants, 200 us for batch. Announced requests find the GPU empty.
 *
 * Use it to compare with GPreempt (Fan and others, USENIX ATC 2025), and where kernels have no PTX
 * and requests are long queues of launches. Batch is not held while a request is open; its context
 * just does not get the hardware. Each synchronization of a request costs two context switches;
 * auto and lc_first hold batch instead.
 *
 * How: slices are set when a program starts, and by gbpfd for programs that were running before. An
 * announced request (gbpf_hint) holds batch early enough that the GPU is empty when it arrives: the
 * paper's pre-preemption. A launch that can be stopped between blocks runs at block level, the
 * paper's other mechanism: it is stopped at once and held while the request lasts. Where slices
 * cannot be set batch is held, too. Several batch programs with slices of 200 us pay a context
 * switch each (about 145 us on an H200) and lose much of the GPU; auto makes them take turns. */
#include <gbpf/gbpf.bpf.h>

GBPF_LICENSE("Apache-2.0");

const volatile u32 latency_slice_us = 1000000;
const volatile u32 batch_slice_us = 200;	/* us: as in the paper; its published program uses 1 */
const volatile u64 ahead_ns = 200000;		/* ns: batch submits nothing from this time before an announced request on */
const volatile u32 block_level = 1;		/* 0: slices and hints only */
const volatile u64 inflight_limit_ns = 8000000; /* ns: batch work in flight: a long queue would delay the hardware's switch */
const volatile u32 unknown_limit = 16;		/* launches: the same while durations are unknown */
const volatile u64 slice_after_ns = 2000000;	/* ns: after this wait batch is taken off the GPU */

enum { HELD_FOR_ANNOUNCED, HELD_FOR_REQUEST, HELD_FOR_DRAIN, SLICES_SET, FORCED };

/* Published by gbpfd. */
u32 given[1024]; /* by tenant: its slice plus 1, us; 0: none was set */
u32 no_slices;	 /* 1: slices cannot be set on this machine */

static __always_inline u32 slice_of(long class_id)
{
	return class_id == GBPF_CLASS_LATENCY ? latency_slice_us : class_id == GBPF_CLASS_BATCH ? batch_slice_us : 0;
}

SEC("gbpf/admit")
int GBPF_PROG(gpreempt_admit, admit)
{
	given[ctx->tenant & 1023] = 0;
	if (ctx->lane == GBPF_LANE_PROCESS) {
		ctx->slice_us = slice_of(ctx->class_id);
		given[ctx->tenant & 1023] = ctx->slice_us + 1;
	}
	return GBPF_ADMIT;
}

SEC("gbpf/submit")
int GBPF_PROG(gpreempt_submit, submit)
{
	int stops = block_level && ctx->block_ok;

	if (ctx->class_id != GBPF_CLASS_BATCH || ctx->kind >= GBPF_KIND_HOST) {
		return GBPF_GO;
	}
	if (ctx->lc_open && (stops || no_slices || ctx->lane == GBPF_LANE_SHARED)) {
		if (!ctx->asked) {
			gbpf_note(HELD_FOR_REQUEST, 1);
		}
		ctx->why = GBPF_WHY_LATENCY;
		ctx->hold_ns = 5000000;
		return GBPF_HOLD;
	}
	if (ctx->lc_next_ns < ahead_ns || (!stops && ctx->lc_next_ns < ctx->inflight_ns + ctx->est_ns)) {
		if (!ctx->asked) {
			gbpf_note(HELD_FOR_ANNOUNCED, 1);
		}
		ctx->why = GBPF_WHY_ANNOUNCED;
		ctx->hold_ns = ctx->lc_next_ns + 1000000;
		return GBPF_HOLD;
	}
	if (stops) {
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

SEC("gbpf/preempt")
int GBPF_PROG(gpreempt_preempt, preempt)
{
	if (ctx->class_id != GBPF_CLASS_BATCH || ctx->tried != GBPF_LEVEL_NONE || ctx->waited_ns < slice_after_ns ||
	    !(ctx->levels & 1 << GBPF_LEVEL_SLICE)) {
		return GBPF_LEVEL_NONE;
	}
	gbpf_note(FORCED, 1);
	return GBPF_LEVEL_SLICE;
}

/* Sets the slices of tenants that were present before the policy, or that have changed their class. */
SEC("gbpf/tick")
int GBPF_PROG(gpreempt_tick, tick)
{
	u32 t, n = ctx->tenants < 1024 ? ctx->tenants : 1024;

	bpf_for (t, 0, n) {
		long class_id = gbpf_tenant_class(t);
		u32 want = slice_of(class_id), *have = &given[t & 1023];

		if (class_id < 0) {
			*have = 0;
			continue;
		}
		if (*have == want + 1 || (!*have && !want) || gbpf_tenant_stat(t, GBPF_STAT_LANE) != GBPF_LANE_PROCESS) {
			continue;
		}
		if (gbpf_slice_set(t, want) < 0) {
			no_slices = 1;
		} else {
			no_slices = 0;
			*have = want + 1;
			gbpf_note(SLICES_SET, 1);
		}
	}
	return 0;
}

/* Gives back the time slices that the policy set. */
SEC("gbpf/exit")
int GBPF_PROG(gpreempt_exit, exit)
{
	u32 t;

	bpf_for (t, 0, 1024) {
		if (given[t & 1023] && ctx->reason != GBPF_EXIT_DAEMON) {
			gbpf_slice_set(t, 0);
		}
	}
	return 0;
}
