/* auto: the recommended policy. Latency-critical tenants run at their own speed; batch tenants get
 * the GPU time that is left. It needs no configuration: sharing mode, preemption level, in-flight
 * limit and time slices are chosen for each pair of programs from what the policy observes.
 *
 * 1. When to use it
 *    Start the programs that users wait for with `gbpf run --class latency` and the others with
 *    `--class batch`. Class normal is treated as batch, but never moved to the shared lane. Among
 *    batch tenants auto is fair and knows no weights: use fair or shares where all tenants are
 *    batch. Groups that communicate across GPUs have these in turns, by weight (groups.h).
 *
 * 2. Definitions
 *    stoppable	a launch that can be stopped between blocks (by a preemptible clone, or in its
 *		machine code) and leaves soon: its blocks are short, and those that have not begun
 *		exit soon. A persistent launch, all of whose blocks run at once, leaves when they end
 *    way	how batch work gets off the GPU. Process lane: sliced (it keeps a time slice of 1 us,
 *		or a long one up to the end of requests that are bound by the processor, and
 *		continues, its gates are off) or leaving (it is held, and what is on the GPU
 *		stops, or runs to its end, under the usual slice). Shared lane: leaving, or passing
 *		(launches that are short, or have short blocks where requests are bound by the
 *		processor, continue with their gates off, and priorities serve the requests)
 *    burst	the launches of a latency tenant without a pause of burst_gap_ns between them: one
 *		unit of its work
 *    request	what gBPF reports open (lc_open): from the first launch until the queues are drained
 *		and the close delay has passed. When the close delay is shorter than the pauses inside
 *		a burst, one burst is several requests
 *    close delay	how long a request stays open after its last work, in case more follows
 *    turn	the time for which one batch tenant may launch while the others wait
 *    starved	a batch tenant that wanted the GPU for share_window_ns and got less than share_min_ns
 *
 * 3. Reasons (measurements, all on an H200: docs/POLICIES.md)
 *    - A stoppable kernel leaves the GPU within microseconds, best in the shared lane, where no
 *      context switch (145 us) follows.
 *    - A kernel that is not stoppable does worst in the shared lane: it cannot be stopped, and
 *      stream priorities do not help a long queue. It belongs in the process lane, where a batch
 *      time slice of 1 us serves a request that is one long queue.
 *    - A program that is bound by the processor launches on while batch has the GPU, and what it has
 *      launched is soon done. So batch may have the GPU in long slices until shortly before the
 *      request ends. Only a trial shows whether its kernels are not awaited before.
 *    - Short launches in the shared lane delay each kernel of a request by one block of theirs at
 *      most, which requests that are bound by the processor do not notice; to hold them costs batch
 *      more than the time of the request. Nor do these notice long launches of short blocks. So
 *      passing is tried, and kept where it costs requests no more.
 *    - Each synchronization inside a request, and each gap because the CPU is late, lets batch
 *      return to the GPU; to leave again costs two context switches. Next to such requests batch is
 *      held, and where it is cheaper, batch work that is on the GPU already runs to its end under
 *      the usual time slice. Of the way in force the cost is measured: the time of requests beyond
 *      that of the shortest of their kind. The other way is tried when it is predicted to be
 *      cheaper, or may be, and ever more rarely while it is not. Between two measured ways of equal
 *      cost batch's progress decides.
 *    - Blocks that have not begun must begin and exit: 0.6 us for 1000 of them. With grids of more
 *      than about 50 000 blocks slices serve requests without pauses as well as stopping does.
 *    - Services change: a warm-up, then requests of another kind. Knowledge of one kind is of no
 *      use for the next, so two similar bursts that differ from those before begin a new kind; more
 *      of them where kinds are mixed at random.
 *    - Several batch tenants with very short slices would only switch contexts, so they take turns.
 *
 * 4. The hooks, and the parts in auto/ that they use
 *    admit	chooses the lane, which is fixed from then on. The first run of a program is in the
 *		process lane, where a crash harms no other tenant (unless start_shared is set). Later
 *		runs of batch programs of whose GPU time shared_min_stoppable_percent leaves soon
 *		start in the shared lane, with a part of the multiprocessors if it was held there next
 *		to requests that leave the GPU idle; a latency tenant goes where the batch tenants are.
 *    submit	holds batch while a request is open, unless time slices or priorities alone serve it.
 *		Otherwise a launch that can be stopped between blocks goes at block level (gBPF splits
 *		large grids of clones), and any other one within the in-flight limit, short machine
 *		code with its gate off. Batch stays clear of announced requests.
 *    dispatch	orders held queues of one process: latency first, then CUDA priority, then the
 *		longest wait.
 *    retire	sets the close delay: 1.25 times the gap that gBPF learned, and more while requests
 *		end too early.
 *    preempt	acts on a tenant that keeps the GPU although a request waits: blocks in the shared
 *		lane; switching off, then a time slice, in the process lane; ending its process only if
 *		end_after_ns is set.
 *    tick	(gbpfd, 1 ms) learns what requests look like, advances turns, sets time slices and
 *		publishes all of it.
 *    exit	gives back the time slices that the policy set.
 *
 *    part		what it is for				used by
 *    tunables		the constants				all
 *    state		maps and variables			all
 *    profile		kept for a program's next start		admit, tick
 *    stop		what stopping a launch costs		submit
 *    account		what tenants count			submit
 *    submit		level, gate, holds, limits		submit
 *    scan		what a scan finds and publishes		tick
 *    batch		what batch tenants are like		tick
 *    turns		turns of several batch tenants		tick
 *    slices		time slices				tick
 *    latency		what latency tenants need, by:		tick
 *	kind		what their requests are like
 *	close_delay	when a request ends
 *	cost		what each way costs: measured, predicted
 *	pairs		what is known next to other batch programs
 *	choice		trials of the other way, and the choice
 *
 * 5. Limits
 *    It ends no process by default, has no weights but those of groups, and cannot remove a kernel
 *    that is not stoppable from the GPU in less than a time slice and a context switch. */
#include "groups.h"

/* In the order in which they depend on each other, so that a copy of one of them next to a copy of
 * this file takes the place of the installed one. */
#include "auto/tunables.h"
#include "auto/state.h"
#include "auto/stop.h"
#include "auto/account.h"
#include "auto/submit.h"
#include "auto/kind.h"
#include "auto/close_delay.h"
#include "auto/cost.h"
#include "auto/pairs.h"
#include "auto/profile.h"
#include "auto/choice.h"
#include "auto/scan.h"
#include "auto/turns.h"
#include "auto/batch.h"
#include "auto/latency.h"
#include "auto/slices.h"

GBPF_LICENSE("Apache-2.0");

/* Chooses what follows from class latency: what is known from earlier runs, and announcements. */
static __always_inline void admit_latency(struct gbpf_admit_ctx *ctx, struct tenant *t,
					  const struct program *program)
{
	if (program->command && !ctx->rejoin) {
		recall(t, bpf_map_lookup_elem(&profiles, program), ctx->lane & 1);
	}
	ctx->rhythm = 1;
	ctx->lead_us = ctx->lane == GBPF_LANE_SHARED ? lease_lead_shared_us : 0;
}

static __always_inline void admit_batch(const struct gbpf_admit_ctx *ctx,
					const struct program *program)
{
	last_batch = *program;
	last_batch_lane = ctx->lane & 1;
	batch_seen = 1;
}

SEC("gbpf/admit")
int GBPF_PROG(auto_admit, admit)
{
	struct program program = { .command = ctx->command, .uid = ctx->uid, .gpu = ctx->gpu };
	u32 lane = GBPF_LANE_PROCESS, number = ctx->tenant, several, known, other_gpu, part;
	struct tenant *t = bpf_map_lookup_elem(&tenants, &number);
	struct profile *profile = NULL;

	if (!t) {
		return GBPF_ADMIT;
	}
	known = t->pid == ctx->pid;
	other_gpu = known && t->program.gpu != ctx->gpu;
	several = known && (!ctx->rejoin || other_gpu);
	part = known ? t->sm_percent : 0;
	if (!ctx->rejoin || !known) { /* else: with --keep-maps the tenant is known */
		__builtin_memset(t, 0, sizeof(*t));
		t->turns_gpu = 1 + (ctx->gpu & (SHARED_TURNS_GPUS - 1));
	}
	t->program = program;
	t->pid = ctx->pid;
	t->turns_gpu = several ? 0 : t->turns_gpu;
	t->slice_us = t->set = 0; /* slices end with the version that set them */
	if (ctx->class_id == GBPF_CLASS_LATENCY) {
		lane = lane_of_new_latency(ctx);
	} else if (ctx->class_id == GBPF_CLASS_BATCH) {
		profile = program.command ? bpf_map_lookup_elem(&profiles, &program) : NULL;
		lane = lane_of_new_batch(ctx, profile);
		ctx->priority = 1;
	}
	if (ctx->lane == GBPF_LANE_PROCESS && ctx->lanes & 1u << (lane & 1)) {
		ctx->lane = lane; /* otherwise the user asked for the shared lane */
	}
	if (ctx->class_id == GBPF_CLASS_LATENCY) {
		admit_latency(ctx, t, &program);
	} else if (ctx->class_id == GBPF_CLASS_BATCH) {
		admit_batch(ctx, &program);
		t->sm_percent = ctx->rejoin || other_gpu ? part_of_running(ctx, part)
							 : part_of_new_batch(ctx, profile);
		t->part_lost |= ctx->rejoin && !known && !t->sm_percent;
		ctx->sm_percent = t->sm_percent ? t->sm_percent : 100;
	}
	close_delay_floor_ns[number & 1023] =
		ctx->lane == GBPF_LANE_PROCESS ? (u32)close_delay_process_min_ns : 0;
	if (ctx->lane == GBPF_LANE_PROCESS && ctx->class_id != GBPF_CLASS_LATENCY &&
	    ctx->latency_tenants) { /* until the next tick sets the right one */
		ctx->slice_us = ctx->tenants > ctx->latency_tenants ? batch_slice_turns_us
								    : batch_slice_us;
		t->slice_us = ctx->slice_us;
		t->set = 1;
	}
	return GBPF_ADMIT;
}

/* Counts a launch that waits for its group's turn, or for its own work in it. */
static __always_inline int go_in_turn(const struct gbpf_submit_ctx *ctx, struct account *a, u32 verdict)
{
	if (verdict != GBPF_GO) {
		if (!ctx->asked) {
			gbpf_note(NOTE_HELD_TURN, 1);
		}
		a->held_ns = ctx->now_ns;
	}
	return verdict;
}

/* Decides on a launch of batch next to latency tenants. ticking: published values are current. */
static __always_inline int submit_batch(struct gbpf_submit_ctx *ctx, struct account *a,
					const struct stop *s, int ticking)
{
	u32 verdict;
	int sliced = ticking && ctx->lane == GBPF_LANE_PROCESS && slices_serve;
	int fills = sliced && have_gaps;
	u64 bound = ticking ? inflight_limit_ns : inflight_min_ns;

	if (ticking && passes(ctx)) {
		return go_unstopped(ctx);
	}
	if (ctx->lc_open) {
		a->held_ns = ctx->lane == GBPF_LANE_SHARED ? ctx->now_ns : a->held_ns;
		if ((s->worth && !sliced) || hold_pays || no_slices || !ticking ||
		    ctx->lane == GBPF_LANE_SHARED) {
			return hold(ctx, NOTE_HELD_REQUEST, GBPF_WHY_LATENCY, hold_retry_ns);
		}
		bound = inflight_max_ns; /* the hardware's time slices serve the request */
	} else if (!fills && delays_announced(ctx, s)) {
		return hold(ctx, NOTE_HELD_ANNOUNCED, GBPF_WHY_ANNOUNCED,
			    ctx->lc_next_ns + announce_wait_ns);
	}
	if (ticking && group_decides(ctx, &verdict)) {
		if (verdict != GBPF_GO) {
			return go_in_turn(ctx, a, verdict);
		}
	} else if (ticking && waits_turn(ctx)) {
		a->held_ns = ctx->now_ns;
		return hold(ctx, NOTE_HELD_TURN, GBPF_WHY_TURN, ask_again_ns);
	}
	if (sliced && (fills || ctx->lc_next_ns == ~0ull)) {
		return go_unstopped(ctx); /* but an announced request finds the GPU empty */
	}
	/* Calls behind a launch at block level are deferred while it runs, and while calls wait: for
	 * as long as a group waits for turns in between. */
	if ((ticking || !is_of_group(ctx)) && choose_level(ctx, s)) {
		return GBPF_GO; /* gBPF splits large grids of clones */
	}
	if (fits_inflight(ctx, bound_of(ctx, bound))) {
		return GBPF_GO;
	}
	if (s->pays && !ctx->lc_open && ctx->stop == GBPF_STOP_CLONE) {
		/* A short clone behind long ones: its tickets cost less than a pause of the GPU. */
		go_at_block_level(ctx);
		return GBPF_GO;
	}
	return hold(ctx, NOTE_HELD_INFLIGHT, GBPF_WHY_INFLIGHT, ask_again_ns);
}

SEC("gbpf/submit")
int GBPF_PROG(auto_submit, submit)
{
	u32 key = 0, verdict;
	struct account *a;
	struct stop s;
	int ticking;

	a = bpf_map_lookup_elem(&accounts, &key);
	if (!a) {
		return GBPF_GO;
	}
	if (ctx->class_id == GBPF_CLASS_LATENCY) {
		ctx->grant = grant_in_request(ctx, ctx->now_ns - a->launch_ns);
		if (ctx->granted) {
			count_granted(a, ctx);
		}
		count_burst(a, ctx);
		return GBPF_GO;
	}
	ticking = ctx->now_ns < ticked_ns + stale_ns;
	s = stop_of(ctx);
	if (!ctx->asked) {
		count_batch(a, ctx, &s);
	}
	if (ticking && !latency_tenants && !ctx->lc_open) { /* no latency tenant */
		if (group_decides(ctx, &verdict)) {
			return go_in_turn(ctx, a, verdict);
		}
		ctx->grant = grant_launches;
		return GBPF_GO;
	}
	return submit_batch(ctx, a, &s, ticking);
}

/* Ranks a held queue in a process with several: class latency, then CUDA priority, then the longest
 * wait, of 100 ms at most. */
SEC("gbpf/dispatch")
int GBPF_PROG(auto_dispatch, dispatch)
{
	u32 rank = (u32)min_u64(ctx->held_ns / NSEC_PER_USEC, 99999);

	if (ctx->class_id == GBPF_CLASS_LATENCY) {
		rank += 500000;
	}
	if (ctx->priority < 0) {
		rank += 100000;
	}
	return rank;
}

/* Sets the close delay: a quarter longer than the pauses that gBPF found worth waiting for. */
SEC("gbpf/retire")
int GBPF_PROG(auto_retire, retire)
{
	u64 floor = close_delay_floor_ns[ctx->tenant & 1023];
	u64 close_delay = ctx->gap_ns + ctx->gap_ns / 4;

	if (ctx->class_id == GBPF_CLASS_LATENCY) {
		close_delay = max_u64(close_delay, max_u64(floor, close_delay_min_ns));
		ctx->linger_ns = min_u64(close_delay, close_delay_max_ns);
	}
	return 0;
}

/* Returns 1 if the request of tenant x waits for much longer than its requests usually take. */
static __always_inline int is_late(const struct gbpf_preempt_ctx *ctx, const struct tenant *x)
{
	return x && ctx->waited_ns > late_after_ns + 2 * x->kind.mean_ns;
}

/* Returns 1 if the request of tenant x, in whose gaps batch runs, is about to end: its last kernels,
 * which are awaited, are to find the GPU free. Shortly before that the hook asks to run when it is. */
static __always_inline int ends_soon(struct gbpf_preempt_ctx *ctx, const struct tenant *x)
{
	u64 at_ns = x ? x->kind.ends_ns - min_u64(x->kind.ends_ns, gaps_end_ns) : 0;
	int can = ctx->tried != GBPF_LEVEL_OFF && ctx->levels & 1 << GBPF_LEVEL_OFF;

	if (!x || !slices_serve || !have_gaps) {
		return 0;
	}
	if (can && ctx->waited_ns < at_ns && at_ns - ctx->waited_ns < NSEC_PER_MSEC) {
		ctx->again_us = (u32)((at_ns - ctx->waited_ns) / NSEC_PER_USEC) + 1;
	}
	return ctx->waited_ns > at_ns;
}

/* Returns 1 if a control from outside is due for a tenant in the process lane. needed: the request
 * needs it although time slices serve requests. */
static __always_inline int preempt_due(const struct gbpf_preempt_ctx *ctx, int needed)
{
	u64 waited = ctx->waited_ns;
	u32 number = ctx->tenant;
	const struct tenant *x;

	if (!needed && !hold_pays && !no_slices) {
		return 0;
	}
	/* Spare starved tenants, and work that ends before a control would take effect (1 ms). */
	x = bpf_map_lookup_elem(&tenants, &number);
	if (waited < preempt_after_ns || (x && x->starved) ||
	    (ctx->inflight_ns && ctx->inflight_ns < preempt_after_ns && waited < slice_after_ns)) {
		return 0;
	}
	/* Launches stopped between blocks count as in flight although they are not on the GPU. */
	return !x || !x->stoppable || slices_serve || waited >= lease_ignored_after_ns;
}

SEC("gbpf/preempt")
int GBPF_PROG(auto_preempt, preempt)
{
	u32 number = ctx->for_tenant;
	const struct tenant *x; /* the one that waits */
	u64 waited = ctx->waited_ns;
	int ending;

	if (ctx->class_id == GBPF_CLASS_LATENCY) {
		return GBPF_LEVEL_NONE;
	}
	if (ctx->lane == GBPF_LANE_SHARED) {
		if (end_after_ns && waited >= end_after_ns && ctx->levels & 1 << GBPF_LEVEL_END) {
			return GBPF_LEVEL_END;
		}
		return waited >= preempt_after_ns && ctx->tried == GBPF_LEVEL_NONE &&
				       ctx->levels & 1 << GBPF_LEVEL_BLOCK
			       ? GBPF_LEVEL_BLOCK
			       : GBPF_LEVEL_NONE;
	}
	x = bpf_map_lookup_elem(&tenants, &number);
	ending = ends_soon(ctx, x);
	ctx->at_open = ending; /* the end is reported, too: batch goes on at once */
	/* Late: the request may be of another kind than before. */
	if (!preempt_due(ctx, ending || is_late(ctx, x))) {
		return GBPF_LEVEL_NONE;
	}
	/* Switch off rather than slice: with a slice batch would return in each gap of the request. */
	if (ctx->tried != GBPF_LEVEL_OFF && ctx->levels & 1 << GBPF_LEVEL_OFF) {
		gbpf_note(NOTE_SWITCHED_OFF, 1);
		return GBPF_LEVEL_OFF;
	}
	if (waited >= slice_after_ns && ctx->tried == GBPF_LEVEL_NONE &&
	    ctx->levels & 1 << GBPF_LEVEL_SLICE) {
		gbpf_note(NOTE_SLICED, 1);
		return GBPF_LEVEL_SLICE;
	}
	return GBPF_LEVEL_NONE;
}

/* Scans all tenants: lists those of class latency, and learns what the others are like. */
static __always_inline void scan_tenants(struct scan *l, const struct gbpf_tick_ctx *ctx)
{
	u32 t;

	bpf_for (t, 0, ctx->tenants) {
		struct tenant *x = bpf_map_lookup_elem(&tenants, &t);
		long class_id = gbpf_tenant_class(t);

		if (!x || class_id < 0) {
			continue;
		}
		x->lane = gbpf_tenant_stat(t, GBPF_STAT_LANE) & 1;
		if (class_id == GBPF_CLASS_LATENCY) {
			if (l->latency < LATENCY_MAX) {
				latency_list[l->latency & (LATENCY_MAX - 1)] = t;
			}
			l->latency++;
			l->lc_shared += x->lane;
		} else {
			l->be++;
			l->be_shared += x->lane;
			scan_batch(l, x, t, x->lane);
		}
	}
}

/* Applies turns and time slices to all tenants. */
static __always_inline void apply(const struct scan *l, const struct gbpf_tick_ctx *ctx)
{
	u32 t, again = ctx->epoch % slice_again_ticks == 0, refused = 0;

	bpf_for (t, 0, ctx->tenants) {
		struct tenant *x = bpf_map_lookup_elem(&tenants, &t);
		long class_id = gbpf_tenant_class(t);

		if (!x || class_id < 0) {
			continue;
		}
		waits_for_turn[t & 1023] =
			class_id != GBPF_CLASS_LATENCY && x->takes_turns && waits_shared(x, t);
		if (x->lane == GBPF_LANE_PROCESS) {
			u32 no = set_slice(x, t, slice_for(l, x, class_id), again);

			refused |= no && class_id != GBPF_CLASS_LATENCY;
		}
	}
	no_slices = refused;
}

SEC("gbpf/tick")
int GBPF_PROG(auto_tick, tick)
{
	struct scan *l = &scan;

	groups_divide(ctx);
	scan_begin(l, ctx->now_ns);
	shared_turns_begin();
	scan_tenants(l, ctx);
	publish_batch(l);
	learn_latency_tenants(l);
	publish(l);
	turns_advance(l);
	shared_turns_advance_all(l->lc_shared, l->now_ns);
	apply(l, ctx);
	if (ctx->tenants && ctx->epoch % remember_ticks == 0) {
		remember((u32)(ctx->epoch / remember_ticks) % ctx->tenants);
	}
	return 0;
}

/* Gives back the time slices that the policy set. When gbpfd ends they have ended with it. */
SEC("gbpf/exit")
int GBPF_PROG(auto_exit, exit)
{
	u32 t;

	bpf_for (t, 0, 1024) {
		struct tenant *x = bpf_map_lookup_elem(&tenants, &t);

		if (x && x->set && ctx->reason != GBPF_EXIT_DAEMON) {
			gbpf_slice_set(t, 0);
		}
	}
	return 0;
}
