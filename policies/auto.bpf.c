/* auto: the recommended policy. Latency-critical tenants run at their own speed; batch tenants get the GPU time that is left.
 * It needs no configuration: sharing mode, preemption level, in-flight limit and time slices are chosen for each pair of
 * programs from what the policy observes.
 *
 * 1. When to use it
 *    Start the programs that users wait for with `gbpf run --class latency` and the others with `--class batch`. Class normal
 *    is treated as batch, but never moved to the shared lane. Among batch tenants auto is fair and knows no weights: use fair,
 *    shares or cfs where all tenants are batch.
 *
 * 2. Definitions
 *    stoppable	a launch that can be stopped between blocks (by a preemptible clone, or in its machine code) and whose blocks are
 *		short enough for it to leave soon. A persistent launch, all of whose blocks run at once, leaves when they end
 *    way	how batch work that is not stoppable gets off the GPU in the process lane: sliced (it keeps a time slice of 1 us)
 *		or drained (it runs to its end under the usual slice)
 *    burst	the launches of a latency tenant without a pause of burst_gap_ns between them: one unit of its work
 *    request	what gBPF reports open (lc_open): from the first launch until the queues are drained and the close delay
 *		has passed. When the close delay is shorter than the pauses inside a burst, one burst is several requests
 *    close delay	how long a request stays open after its last work, in case more follows
 *    turn	the time for which one batch tenant may launch while the others wait
 *    starved	a batch tenant that wanted the GPU for share_window_ns and got less than share_min_ns of it
 *
 * 3. Reasons (measurements, all on an H200: docs/POLICIES.md)
 *    - A stoppable kernel leaves the GPU within microseconds, best in the shared lane, where no context switch (145 us) follows.
 *    - A kernel that is not stoppable does worst in the shared lane: it cannot be stopped, and stream priorities do not help a long
 *      queue. It belongs in the process lane, where a batch time slice of 1 us serves a request that is one long queue.
 *    - Each synchronization inside a request, and each gap because the CPU is late, lets batch return to the GPU; to leave again
 *      costs two context switches. Next to such requests batch is held, and where it is cheaper, batch work that is on the GPU
 *      already runs to its end under the usual time slice. Of the way in force the cost is measured: what requests take more
 *      than the shortest of their kind. Of the other way it is predicted, or remembered for way_known_ns. Between two measured
 *      ways of equal cost batch's progress decides.
 *    - Services change: a warm-up, then requests of another kind. What was learned of one kind says nothing of the next, so
 *      two similar bursts that differ from those before begin a new kind.
 *    - Several batch tenants with very short slices would only switch contexts, so they take turns.
 *
 * 4. The hooks
 *    admit	chooses the lane, which is fixed from then on. The first run of a program is in the process lane, where a crash
 *		harms no other tenant (unless start_shared is set). Later runs of batch programs with at least shared_min_stoppable_percent stoppable GPU time
 *		start in the shared lane; a latency tenant goes where the batch tenants are.
 *    submit	holds batch while a request is open, unless time slices alone serve it. Otherwise a launch that can be stopped
 *		between blocks goes at block level (gBPF splits large grids of clones), or with its gate off if it is short
 *		machine code, and any other one within the in-flight limit. Batch stays clear of
 *		announced requests.
 *    dispatch	orders held queues of one process: latency first, then CUDA priority, then the longest wait.
 *    retire	sets the close delay: 1.25 times the gap that gBPF learned, and more while requests end too early.
 *    preempt	acts on a tenant that keeps the GPU although a request waits: blocks in the shared lane; switching off, then a
 *		time slice, in the process lane; ending its process only if end_after_ns is set.
 *    tick	(gbpfd, 1 ms) learns what requests look like, advances turns, sets time slices and publishes all of it.
 *    exit	gives back the time slices that the policy set.
 *
 * 5. Limits
 *    It ends no process by default, has no weights, and cannot remove a kernel that is not stoppable from the GPU in less than a
 *    time slice and a context switch. */
#include <gbpf/gbpf.bpf.h>

GBPF_LICENSE("Apache-2.0");

/* ---- tunables: change them here and rebuild; "H200" marks a value chosen by measurement on one ---- */

/* Sharing mode (admit) */
const volatile u32 shared_min_stoppable_percent = 90; /* %: stoppable GPU time from which batch starts in the shared lane */
const volatile u64 unknown_kernel_ns = 100000;	 /* ns: assumed duration of a kernel that was not measured yet */
const volatile u64 profile_min_ns = 50000000;	 /* ns: GPU time of a run from which its profile is stored */

/* Block level (submit). Shorter kernels drain soon enough by themselves. */
const volatile u64 preempt_min_kernel_ns = 20000;	/* ns: shortest kernel, process lane (a context switch follows anyway) */
const volatile u64 preempt_min_kernel_shared_ns = 8000;	/* ns: ... shared lane, where queued kernels drain in turn */
const volatile u64 short_block_ns = 4000;		/* ns: the ticket of each block is noticeable in blocks shorter than this, */
const volatile u64 preempt_min_short_block_ns = 500000; /* ns: so with such blocks the kernel must be at least this long */

const volatile u64 ungated_max_ns = 100000;	/* ns: machine code that is not worth the block level, until one launch goes at it */
const volatile u64 leave_max_ns = 500000;	/* ns: longest blocks of a stoppable launch: a context switch and its return cost more */

/* In-flight limit of launches that are not stoppable */
const volatile u64 inflight_min_ns = 100000;	  /* ns: lower end of the limit */
const volatile u64 inflight_max_ns = 8000000;	  /* ns: upper end, and the limit where time slices serve the requests */
const volatile u64 inflight_initial_ns = 1000000; /* ns: until the first requests of a latency tenant were seen */
const volatile u32 inflight_max_unknown = 2;	  /* launches, while their durations are not known */

/* Requests */
const volatile u32 hold_min_syncs_x16 = 24;	/* synchronizations per burst, times 16, from which holding pays (1.5) */
const volatile u64 batch_return_ns = 300000;	/* ns: two context switches, what each return of batch costs a request; H200 */
const volatile u64 gappy_min_launches = 16;	/* launches per burst from which a burst that is mostly idle counts as CPU-bound, */
const volatile u32 gappy_gaps = 5;		/* and the gaps that such a burst is charged with */
const volatile u32 way_min_seen = 8;		/* bursts from which the cost of a way counts as measured */
const volatile u64 way_known_ns = 5000000000;	/* ns: a measured cost of the way that is not in force is remembered for this */
const volatile u64 way_min_gain_ns = 50000;	/* ns: the other way must be cheaper by this and a fifth */
const volatile u64 announce_lead_ns = 320000;	/* ns: process lane: last launch before an announced request (switch, tail) */
const volatile u64 announce_lead_shared_ns = 180000; /* ns: ... shared lane: a few blocks, */
const volatile u32 lease_lead_shared_us = 150;	/* us: where stoppable launches leave this long before it */
const volatile u64 burst_gap_ns = 1000000;	/* ns: a pause this long separates two bursts */
const volatile u64 close_delay_min_ns = 10000, close_delay_max_ns = 2000000; /* ns: range of the close delay */
const volatile u64 close_delay_process_min_ns = 200000; /* ns: minimum in the process lane, where a return costs two switches, */
						/* unless each burst was one request with one synchronization */
const volatile u64 close_delay_shared_max_ns = 60000; /* ns: maximum learned in the shared lane, where a return costs one block */
const volatile u64 hold_retry_ns = 5000000;	/* ns: a held launch asks again after this; gBPF wakes it when requests end */

/* Time slices in the process lane */
const volatile u32 batch_slice_us = 1;			/* us: one batch tenant; 1 us gives it 0 % while a request runs; H200 */
const volatile u32 batch_slice_drain_us = 2000;		/* us: batch that stops by itself or had better drain: the device's usual slice */
const volatile u32 batch_slice_turns_us = 100;		/* us: several batch tenants, whose turns may overlap */
const volatile u32 batch_slice_starved_us = 200;	/* us: a starved tenant, */
const volatile u32 latency_slice_starved_us = 10000;	/* us: next to which latency tenants get this: 200/10000 is a share of 2 % */
const volatile u32 latency_slice_us = 100000;		/* us: one latency tenant */
const volatile u32 latency_slice_several_us = 5000;	/* us: several latency tenants */
const volatile u64 share_window_ns = 300000000;		/* ns: window of the minimum share, */
const volatile u64 share_min_ns = 6000000;		/* ns: GPU time in it below which a tenant is starved (2 %) */

/* Turns */
const volatile u64 turn_max_ns = 40000000;	  /* ns: longest turn in the process lane */
const volatile u64 turn_round_ns = 80000000;	  /* ns: all tenants have a turn in this time; must be below the hold limit, 100 ms */
const volatile u64 turn_overlap_ns = 300000;	  /* ns: work of the previous turn that may still be in flight when the next begins */
const volatile u32 shared_turns_min_tenants = 3;  /* shared lane: from this many wide batch tenants two at a time run; 0: never. */
						  /* More would fill every SM, and a request's first blocks crowd where the first */
						  /* block leaves: 177 us instead of 65 (DISB workload C, H200). */
const volatile u64 shared_turns_min_threads = 40000; /* threads per launch that make a tenant wide: a sixth of a large GPU */
const volatile u64 shared_turn_ns = 10000000;	  /* ns: longest turn there */

/* Preemption from outside (preempt) */
const volatile u64 preempt_after_ns = 300000;	     /* ns: a request waited this long for a tenant that still has work on the GPU */
const volatile u64 lease_ignored_after_ns = 20000000; /* ns: ... for a tenant whose blocks should have left by themselves */
const volatile u64 late_after_ns = 1000000;	     /* ns: time slices do not serve a request that waits this and twice its usual time */
const volatile u64 slice_after_ns = 3000000;	     /* ns: where the tenant cannot be switched off, its slice is cut after this */
const volatile u64 end_after_ns;		     /* ns: shared lane: its process is ended after this; 0: never */
const volatile u64 stale_ns = 50000000;		     /* ns: published values older than this (gbpfd is not running) are ignored */

enum { SHARED_TURNS_GPUS = 8 };
/* Numbers of gbpf_note(), shown by `gbpf policy show`: how often each decision was made. */
enum { NOTE_HELD_REQUEST, NOTE_HELD_ANNOUNCED, NOTE_HELD_INFLIGHT, NOTE_HELD_TURN, NOTE_BLOCK_LEVEL, NOTE_SLICED, NOTE_SWITCHED_OFF,
	NOTE_STARVED };

#define NO_TURNS 0xffffffffu /* value of turn while tenants do not take turns */
#define TURN_FREE 1024u	   /* ... while they do, but none has the turn */

/* ---- counted by the programs that run in each tenant ---- */

struct account {
	/* latency tenants */
	u64 end_ns; /* ns: estimated end of all its launches so far */
	u64 bursts; /* launches that followed a pause of burst_gap_ns */
	u64 launches, known, known_ns; /* all; those with a known duration; their summed duration, ns */
	/* other tenants */
	u64 seen_ns;  /* ns: estimated GPU time of all its launches */
	u64 block_ns; /* ns: the stoppable part of seen_ns */
	u64 held_ns;  /* time of the last hold for a turn, or of any hold in the shared lane */
	u64 threads;  /* largest launch, decaying by 1/256 per launch */
	u64 longest_ns; /* ns: longest time that a launch takes to leave, decaying likewise */
	u64 ungated_ns; /* ns: launches of machine code since the last at block level */
};

struct {
	__uint(type, GBPF_MAP_ARRAY);
	__uint(max_entries, 1);
	__uint(map_flags, GBPF_F_TENANT);
	__type(key, u32);
	__type(value, struct account);
} accounts SEC(".maps");

/* ---- kept by gbpfd ---- */

/* Programs, known across their runs by user and command. */
struct program {
	u64 command;
	u32 uid, gpu;
};
struct profile {
	u64 seen_ns, block_ns; /* as in struct account, of the last run longer than profile_min_ns */
};

struct {
	__uint(type, GBPF_MAP_LRU_HASH);
	__uint(max_entries, 1024);
	__uint(map_flags, GBPF_F_DAEMON);
	__type(key, struct program);
	__type(value, struct profile);
} profiles SEC(".maps");

/* Present tenants; written by admit and tick. */
struct tenant {
	struct program program;
	u64 requests, syncs, request_ns, bursts; /* counters at the previous scan */
	u64 launches, known, known_ns;
	u64 syncs16, mean_ns, gap_ns;    /* per burst: synchronizations times 16; duration, ns; distance from start to start, ns */
	u64 scanned_ns;
	u64 launches16, gpu_ns;		 /* per burst: launches times 16; their GPU time, ns */
	u64 odd_syncs16, odd_launches16; /* the last burst, if it differs from the kind; 0: it does not */
	u64 best_ns;			 /* shortest burst of this kind, forgotten slowly */
	u64 way_ns[2], way_seen_ns[2];	 /* sliced, drained: measured cost per burst, ns; when it was measured last */
	u64 way_progress[2], batch_busy_ns; /* batch's work per time, of 1024; GPU time of batch at the last burst */
	u32 way_seen[2];		 /* number of measurements for this kind */
	u64 close_requests, close_bursts, close_took_ns; /* since the close delay was corrected */
	u64 close_delay_ns;			 /* latency: close delay with which requests do not end too early */
	u64 busy_ns, since_ns; /* batch: GPU time at the start of the share window; that start */
	u64 busy_seen_ns;      /* batch: GPU time at the last scan */
	u32 slice_us, set;     /* time slice that it was given, us; 1: it was given one */
	u32 starved;	       /* 1: got less than share_min_ns in the last window */
	u32 refused;	       /* 1: its slice could not be set */
	u32 single_burst;	       /* latency: 1: each burst was one request */
	u32 prefers_drain;	       /* latency: 1: batch work on the GPU should finish rather than be sliced */
	u32 stoppable;	       /* 1: nearly all its GPU time is stoppable */
	u32 pid, turns_gpu;	       /* its process; 1 + its GPU, or 0: it uses several GPUs and takes no turns */
	u32 takes_turns;	       /* 1: shared lane, and wide enough to take turns there */
};

struct {
	__uint(type, GBPF_MAP_ARRAY);
	__uint(max_entries, 1024);
	__uint(map_flags, GBPF_F_DAEMON);
	__type(key, u32);
	__type(value, struct tenant);
} tenants SEC(".maps");

/* ---- set by the operator ---- */

/* 1: batch programs whose profile is not known yet start in the shared lane, and so do latency programs before the first batch
 * program. Requests are faster from the first start on; a program that crashes can end its neighbours there. */
u32 start_shared;

/* ---- published by gbpfd ---- */

u32 latency_tenants, latency_shared;	  /* latency tenants; those in the shared lane */
u32 other_tenants, other_shared;	  /* all others; those in the shared lane */
u32 last_batch_lane, batch_seen;	  /* lane of the batch tenant admitted last; 1: there was one */
u32 hold_pays = 1;			  /* 1: time slices alone do not serve the requests */
u32 no_slices;				  /* 1: time slices cannot be set on this machine */
u32 turn = NO_TURNS;			  /* process lane: tenant that has the turn, TURN_FREE or NO_TURNS */
u32 leaving = TURN_FREE;			  /* tenant whose turn is over while its work still runs */
u32 last_turn;
u64 turn_since_ns;
u64 inflight_limit_ns = 100000;
u64 longest_ns;				  /* process lane: longest time that a launch which is not stoppable takes to leave */
u64 batch_busy_ns;			  /* process lane: GPU time of all batch tenants */
u32 batch_wants;			  /* 1: a batch tenant in the process lane wants the GPU */
u8 waits_for_turn[1024];		  /* by tenant: 1: held until its turn in the shared lane */
u32 close_delay_floor_ns[1024];		  /* by latency tenant: minimum close delay */
u64 ticked_ns;

/* ---- admit: the lane ---- */

static __always_inline u32 lane_of_new_batch(const struct profile *p)
{
	int known = p && p->seen_ns >= profile_min_ns;

	if (known ? p->block_ns * 100 < p->seen_ns * shared_min_stoppable_percent : !start_shared) {
		return GBPF_LANE_PROCESS;
	}
	return latency_tenants && !latency_shared ? GBPF_LANE_PROCESS : GBPF_LANE_SHARED;
}

static __always_inline u32 lane_of_new_latency(void)
{
	if (other_tenants) {
		return other_shared < other_tenants ? GBPF_LANE_PROCESS : GBPF_LANE_SHARED;
	}
	return batch_seen ? last_batch_lane : start_shared & 1;
}

SEC("gbpf/admit")
int GBPF_PROG(auto_admit, admit)
{
	struct program program = { .command = ctx->command, .uid = ctx->uid, .gpu = ctx->gpu };
	u32 lane = GBPF_LANE_PROCESS, number = ctx->tenant, several;
	struct tenant *t = bpf_map_lookup_elem(&tenants, &number);

	if (!t) {
		return GBPF_ADMIT;
	}
	several = t->pid == ctx->pid && (!ctx->rejoin || t->program.gpu != ctx->gpu);
	if (!ctx->rejoin || t->pid != ctx->pid) { /* else: with --keep-maps the tenant is known */
		__builtin_memset(t, 0, sizeof(*t));
		t->turns_gpu = 1 + (ctx->gpu & (SHARED_TURNS_GPUS - 1));
	}
	t->program = program;
	t->pid = ctx->pid;
	t->turns_gpu = several ? 0 : t->turns_gpu;
	t->slice_us = t->set = 0; /* slices end with the version that set them */
	if (ctx->class_id == GBPF_CLASS_LATENCY) {
		lane = lane_of_new_latency();
	} else if (ctx->class_id == GBPF_CLASS_BATCH) {
		lane = lane_of_new_batch(ctx->command ? bpf_map_lookup_elem(&profiles, &program) : (void *)0);
		ctx->priority = 1;
	}
	if (ctx->lane == GBPF_LANE_PROCESS && ctx->lanes & 1u << (lane & 1)) {
		ctx->lane = lane; /* otherwise the user asked for the shared lane */
	}
	if (ctx->class_id == GBPF_CLASS_BATCH) {
		last_batch_lane = ctx->lane & 1;
		batch_seen = 1;
	}
	if (ctx->class_id == GBPF_CLASS_LATENCY) {
		ctx->rhythm = 1;
		ctx->lead_us = ctx->lane == GBPF_LANE_SHARED ? lease_lead_shared_us : 0;
	}
	close_delay_floor_ns[number & 1023] = ctx->lane == GBPF_LANE_PROCESS ? (u32)close_delay_process_min_ns : 0;
	if (ctx->lane == GBPF_LANE_PROCESS && ctx->class_id != GBPF_CLASS_LATENCY && ctx->latency_tenants) {
		ctx->slice_us = ctx->tenants > ctx->latency_tenants ? batch_slice_turns_us : batch_slice_us;
		t->slice_us = ctx->slice_us;
		t->set = 1;
	}
	return GBPF_ADMIT;
}

/* ---- submit ---- */

/* Returns the time until the launch has left the GPU under a lease, ns. */
static __always_inline u64 leaves_after(const struct gbpf_submit_ctx *ctx)
{
	return ctx->block_ok ? ctx->block_ns : ctx->est_ns;
}

/* The launch is worth the block level. */
static __always_inline int preemptible(const struct gbpf_submit_ctx *ctx)
{
	u64 min_ns = ctx->lane == GBPF_LANE_SHARED ? preempt_min_kernel_shared_ns : preempt_min_kernel_ns;

	min_ns = ctx->block_ns && ctx->block_ns < short_block_ns ? preempt_min_short_block_ns : min_ns;

	return ctx->block_ok && (!ctx->est_ns || ctx->est_ns >= min_ns);
}

/* One launch may always be in flight, so that a kernel longer than the limit runs, too. */
static __always_inline int fits_inflight(const struct gbpf_submit_ctx *ctx, u64 bound)
{
	if (!ctx->inflight || ctx->kind >= GBPF_KIND_HOST) {
		return 1;
	}
	return ctx->est_ns ? ctx->inflight_ns + ctx->est_ns <= bound : ctx->inflight < inflight_max_unknown;
}

static __always_inline int hold(struct gbpf_submit_ctx *ctx, u32 why, u64 ns)
{
	if (!ctx->asked) {
		gbpf_note(why, 1);
	}
	ctx->hold_ns = ns;
	return GBPF_HOLD;
}

/* Chooses the block level and the gate's mode. Short launches of machine code go with their gate off, which costs nothing; every
 * so often one is stoppable all the same, so that a long queue of them leaves as soon as its turn comes. Returns whether the
 * launch needs no in-flight limit. */
static __always_inline int choose_level(struct gbpf_submit_ctx *ctx, struct account *a, int worth)
{
	int code = ctx->stop == GBPF_STOP_MACHINE_CODE;

	if (worth) {
		gbpf_note(NOTE_BLOCK_LEVEL, 1);
		ctx->level = GBPF_LEVEL_BLOCK;
		a->ungated_ns = 0;
		return 1;
	}
	if (code) {
		a->ungated_ns += ctx->est_ns;
		ctx->level = GBPF_LEVEL_BLOCK;
		ctx->gate = a->ungated_ns < ungated_max_ns ? GBPF_GATE_OFF : GBPF_GATE_TOGETHER;
		a->ungated_ns = a->ungated_ns < ungated_max_ns ? a->ungated_ns : 0;
	}
	return code;
}

/* The launch would still be on the GPU when an announced request arrives. */
static __always_inline int delays_announced(const struct gbpf_submit_ctx *ctx, int stoppable)
{
	u64 ahead = ctx->lane == GBPF_LANE_SHARED ? announce_lead_shared_ns : announce_lead_ns;
	u64 leaves = ctx->stop == GBPF_STOP_MACHINE_CODE ? ungated_max_ns : ctx->inflight_ns + ctx->est_ns;

	leaves = stoppable ? ctx->block_ns : leaves;
	if (ctx->lc_next_ns == ~0ull || ctx->kind >= GBPF_KIND_HOST) {
		return 0;
	}
	return ctx->lc_next_ns < ahead || (ctx->lc_next_ns < ahead + leaves && ctx->lc_next_ns < inflight_max_ns);
}

/* Counts a launch of a latency tenant, and a burst if it follows a pause. */
static __always_inline void count_burst(struct account *a, u64 now, u64 est_ns)
{
	u64 end = a->end_ns;

	if (now > end + burst_gap_ns) {
		a->bursts++;
	}
	a->end_ns = (now > end ? now : end) + est_ns;
	a->launches++;
	a->known += est_ns != 0;
	a->known_ns += est_ns;
}

static __always_inline void note_threads(struct account *a, const struct gbpf_submit_ctx *ctx)
{
	u64 threads = (ctx->blocks < 1 << 20 ? ctx->blocks : 1 << 20) * ctx->threads;

	a->threads = threads > a->threads ? threads : a->threads - a->threads / 256;
}

SEC("gbpf/submit")
int GBPF_PROG(auto_submit, submit)
{
	int stoppable, ticking = ctx->now_ns < ticked_ns + stale_ns;
	u64 bound = ticking ? inflight_limit_ns : inflight_min_ns;
	struct account *a;
	u32 key = 0;

	a = bpf_map_lookup_elem(&accounts, &key);
	if (!a) {
		return GBPF_GO;
	}
	if (ctx->class_id == GBPF_CLASS_LATENCY) {
		count_burst(a, ctx->now_ns, ctx->est_ns);
		return GBPF_GO;
	}
	if (!ctx->asked) {
		u64 est = ctx->est_ns || ctx->kind != GBPF_KIND_KERNEL ? ctx->est_ns : unknown_kernel_ns;

		u64 leaves = ctx->block_ok ? leaves_after(ctx) : est;

		a->seen_ns += est; /* approximate: threads of one tenant may lose updates */
		a->block_ns += ctx->block_ok && leaves <= leave_max_ns ? est : 0;
		note_threads(a, ctx);
		a->longest_ns = leaves > a->longest_ns ? leaves : a->longest_ns - a->longest_ns / 256;
	}
	if (ticking && !latency_tenants && !ctx->lc_open) {
		return GBPF_GO; /* no latency tenant */
	}
	stoppable = preemptible(ctx);
	if (ctx->lc_open) {
		a->held_ns = ctx->lane == GBPF_LANE_SHARED ? ctx->now_ns : a->held_ns;
		if (stoppable || hold_pays || no_slices || !ticking || ctx->lane == GBPF_LANE_SHARED) {
			return hold(ctx, NOTE_HELD_REQUEST, hold_retry_ns); /* gBPF wakes it when the request ends */
		}
		bound = inflight_max_ns; /* the hardware's time slices serve the request */
	} else if (delays_announced(ctx, stoppable)) {
		return hold(ctx, NOTE_HELD_ANNOUNCED, ctx->lc_next_ns + 1000000);
	}
	if (ticking && ctx->kind < GBPF_KIND_HOST &&
	    (ctx->lane == GBPF_LANE_PROCESS ? turn != NO_TURNS && turn != ctx->tenant : waits_for_turn[ctx->tenant & 1023])) {
		a->held_ns = ctx->now_ns;
		return hold(ctx, NOTE_HELD_TURN, 1000000);
	}
	if (choose_level(ctx, a, stoppable)) {
		return GBPF_GO; /* gBPF splits large grids of clones */
	}
	if (fits_inflight(ctx, bound)) {
		return GBPF_GO;
	}
	if (ctx->block_ok && !ctx->lc_open) { /* a short clone behind long ones: its tickets cost less than a pause of the GPU */
		(void)choose_level(ctx, a, 1);
		return GBPF_GO;
	}
	return hold(ctx, NOTE_HELD_INFLIGHT, 1000000);
}

/* Rank of a held queue in a process with several: class latency, then CUDA priority, then the longest wait. */
SEC("gbpf/dispatch")
int GBPF_PROG(auto_dispatch, dispatch)
{
	u64 waited_us = ctx->held_ns / 1000;
	u32 rank = waited_us > 99999 ? 99999 : (u32)waited_us;

	if (ctx->class_id == GBPF_CLASS_LATENCY) {
		rank += 500000;
	}
	if (ctx->priority < 0) {
		rank += 100000;
	}
	return rank;
}

/* ---- retire: the close delay ---- */

SEC("gbpf/retire")
int GBPF_PROG(auto_retire, retire)
{
	u64 close_delay = ctx->gap_ns + ctx->gap_ns / 4, floor = close_delay_floor_ns[ctx->tenant & 1023];

	if (ctx->class_id == GBPF_CLASS_LATENCY) {
		floor = floor < close_delay_min_ns ? close_delay_min_ns : floor;
		close_delay = close_delay < floor ? floor : close_delay;
		ctx->linger_ns = close_delay < close_delay_max_ns ? close_delay : close_delay_max_ns;
	}
	return 0;
}

/* ---- preempt: a tenant keeps the GPU while a request waits ---- */

/* The request waits for much longer than its tenant's usually take. */
static __always_inline int is_late(const struct gbpf_preempt_ctx *ctx)
{
	u32 number = ctx->for_tenant;
	const struct tenant *x = bpf_map_lookup_elem(&tenants, &number);

	return x && ctx->waited_ns > late_after_ns + 2 * x->mean_ns;
}

SEC("gbpf/preempt")
int GBPF_PROG(auto_preempt, preempt)
{
	u32 number = ctx->tenant;
	u64 waited = ctx->waited_ns;
	struct tenant *x;

	if (ctx->class_id == GBPF_CLASS_LATENCY) {
		return GBPF_LEVEL_NONE;
	}
	if (ctx->lane == GBPF_LANE_SHARED) {
		if (end_after_ns && waited >= end_after_ns && ctx->levels & 1 << GBPF_LEVEL_END) {
			return GBPF_LEVEL_END;
		}
		return waited >= preempt_after_ns && ctx->tried == GBPF_LEVEL_NONE && ctx->levels & 1 << GBPF_LEVEL_BLOCK
			       ? GBPF_LEVEL_BLOCK
			       : GBPF_LEVEL_NONE;
	}
	/* Time slices serve the request, and other work on the GPU does not delay it, unless it is of another kind than before. */
	if (!hold_pays && !no_slices && !is_late(ctx)) {
		return GBPF_LEVEL_NONE;
	}
	/* Spare starved tenants, and work that ends before a control would take effect (1 ms). */
	x = bpf_map_lookup_elem(&tenants, &number);
	if (waited < preempt_after_ns || (ctx->inflight_ns && ctx->inflight_ns < preempt_after_ns && waited < slice_after_ns) ||
	    (x && x->starved)) {
		return GBPF_LEVEL_NONE;
	}
	/* Launches stopped between blocks count as in flight although they are not on the GPU. */
	if (x && x->stoppable && waited < lease_ignored_after_ns) {
		return GBPF_LEVEL_NONE;
	}
	/* Switch off rather than slice: with a slice batch would return in each gap of the request. */
	if (ctx->tried != GBPF_LEVEL_OFF && ctx->levels & 1 << GBPF_LEVEL_OFF) {
		gbpf_note(NOTE_SWITCHED_OFF, 1);
		return GBPF_LEVEL_OFF;
	}
	if (waited >= slice_after_ns && ctx->tried == GBPF_LEVEL_NONE && ctx->levels & 1 << GBPF_LEVEL_SLICE) {
		gbpf_note(NOTE_SLICED, 1);
		return GBPF_LEVEL_SLICE;
	}
	return GBPF_LEVEL_NONE;
}

/* ---- tick ---- */

/* What one scan of all tenants finds. */
struct scan {
	u64 now_ns;
	u64 inflight_limit_ns;	      /* smallest in-flight limit that a latency tenant needs */
	u64 longest_ns;	      /* longest launch that is not stoppable */
	u64 busy_ns;	      /* process lane: GPU time of batch tenants */
	u32 prefers_drain;	      /* latency tenants for which batch should drain */
	u32 latency, often;   /* latency tenants; those for which holding pays, or that are not known yet */
	u32 lc_shared, be, be_shared; /* latency tenants in the shared lane; other tenants; those in the shared lane */
	u32 wanting, next;    /* process lane: tenants that want the GPU; the one after the last turn */
	u32 first;	      /* the first one that wants the GPU */
	u32 holder_wants;     /* 1: the tenant that has the turn wants it */
	u32 starved;	      /* 1: some tenant is starved */
};
/* Turns of wide batch tenants in the shared lane of one GPU: two run at a time while there are many. */
struct shared_turns {
	u64 since_ns;	     /* start of the newer turn */
	u64 many_ns;	     /* last time at which there were shared_turns_min_tenants */
	u32 turn[2];	     /* tenants that have the two turns, or NO_TURNS */
	u32 older, last;     /* index of the older turn; tenant that got a turn last */
	u32 wanting, have;   /* this scan: tenants that want the GPU; bit mask of turns still wanted */
	u32 first, next;     /* this scan: first tenant that wants a turn; the one after the last turn */
};
struct shared_turns shared_turns_of[SHARED_TURNS_GPUS];
struct scan scan; /* of the running tick; a global, since on the stack the verifier would track each value apart */

/* Averages over about 32 bursts; the new value is that of n of them. */
static __always_inline u64 average(u64 old, u64 new, u64 n)
{
	n = n < 8 ? n : 8;
	return old ? old - old * n / 32 + new * n / 32 : new;
}

/* Doubles the close delay of a latency tenant while it has more requests than bursts, that is, while requests end too early, and
 * shrinks it slowly otherwise. At most four times what one piece of a burst takes (after longer pauses batch may return), and in
 * the shared lane at most what a return of batch costs. */
static __always_inline void correct_close_delay(struct tenant *x, u32 lane, u64 requests, u64 bursts, u64 took_ns)
{
	u64 limit = lane == GBPF_LANE_SHARED ? close_delay_shared_max_ns : close_delay_max_ns;
	u64 most = 4 * (took_ns / requests), ns = x->close_delay_ns;

	most = most < limit ? most : limit;
	x->single_burst = requests * 16 <= bursts * 18;
	if (requests * 16 > bursts * 20) {
		ns = ns ? 2 * ns : close_delay_min_ns;
	} else if (x->single_burst) {
		ns -= ns / 8;
	}
	x->close_delay_ns = ns < most ? ns : most;
}

/* Returns the minimum close delay of a latency tenant, ns. */
static __always_inline u32 close_delay_floor(const struct tenant *x, u32 lane)
{
	int short_is_right = lane == GBPF_LANE_SHARED || (x->single_burst && x->syncs16 && x->syncs16 < hold_min_syncs_x16);

	return (u32)(short_is_right || x->close_delay_ns > close_delay_process_min_ns ? x->close_delay_ns : close_delay_process_min_ns);
}

/* Extrapolates from the few launches whose duration is known to all; changes nothing when none is. */
static __always_inline void learn_launches(struct tenant *x, const struct account *a, u64 launches, u64 n)
{
	u64 known = a->known - x->known;

	x->launches16 = average(x->launches16, launches * 16 / n + 1, n);
	if (known) {
		x->gpu_ns = average(x->gpu_ns, (a->known_ns - x->known_ns) / known * launches / n + 1, n);
	}
}

/* More than half of a synchronization or launch, and a factor of two. */
static __always_inline int differs(u64 a16, u64 b16)
{
	return a16 > 2 * b16 + 8 || b16 > 2 * a16 + 8;
}

/* Forgets what was learned of a kind of bursts when two in a row are of another kind, and alike. One alone is an exception, and
 * where two kinds take turns, decisions are for their average. */
static __always_inline void tell_kind(struct tenant *x, u64 syncs16, u64 launches16)
{
	if (!differs(syncs16, x->syncs16) && !differs(launches16, x->launches16)) {
		x->odd_syncs16 = x->odd_launches16 = 0;
	} else if (x->odd_syncs16 && !differs(syncs16, x->odd_syncs16) && !differs(launches16, x->odd_launches16)) {
		x->syncs16 = x->launches16 = x->mean_ns = x->gap_ns = x->gpu_ns = x->best_ns = 0;
		x->way_seen[0] = x->way_seen[1] = 0;
		x->odd_syncs16 = x->odd_launches16 = 0;
	} else {
		x->odd_syncs16 = syncs16;
		x->odd_launches16 = launches16;
	}
}

/* Measures what the way in force costs a burst: the time beyond the shortest of its kind. It rises fast and falls slowly, so it is
 * that of the slower ones. batch: it wants the GPU; without it any way costs nothing. */
static __always_inline void measure_way(struct tenant *x, u64 took_ns, u64 n, u64 now)
{
	u64 way = x->prefers_drain & 1, cost, extra, progress = 0;

	if (!x->best_ns || took_ns < x->best_ns) {
		x->best_ns = took_ns;
	}
	extra = took_ns - x->best_ns;
	x->best_ns += extra * (n < 8 ? n : 8) / 1024;
	if (!batch_wants) {
		return;
	}
	cost = x->way_seen[way] ? x->way_ns[way] : extra;
	extra = extra < 4 * (cost + way_min_gain_ns) ? extra : 4 * (cost + way_min_gain_ns); /* one exception is none */
	x->way_ns[way] = extra > cost ? cost + (extra - cost) / 4 : cost - (cost - extra) / 16;
	if (batch_busy_ns >= x->batch_busy_ns && now > x->scanned_ns) {
		progress = (batch_busy_ns - x->batch_busy_ns) * 1024 / (now - x->scanned_ns);
	}
	progress = progress < 2048 ? progress : 2048; /* the GPU time of a tenant that has just come is not of this burst */
	x->way_progress[way] = x->way_seen[way] ? average(x->way_progress[way], progress + 1, n) : progress + 1;
	x->way_seen_ns[way] = now;
	x->way_seen[way] += x->way_seen[way] < way_min_seen;
}

static __always_inline int is_measured(const struct tenant *x, u32 way, u64 now)
{
	return x->way_seen[way & 1] >= way_min_seen && now < x->way_seen_ns[way & 1] + way_known_ns;
}

/* Returns the cost of a way per burst: as measured, or as predicted. Short slices let batch return in each pause of the request
 * (after synchronizations, or between many short launches), for batch_return_ns each. Draining lets it finish once: half of its
 * longest launch on average. */
static __always_inline u64 cost_of(const struct tenant *x, u32 way, u64 now)
{
	u64 pauses16 = x->syncs16;

	if (is_measured(x, way, now)) {
		return x->way_ns[way & 1];
	}
	if (way) {
		return longest_ns / 2 + batch_return_ns;
	}
	if (x->launches16 >= 16 * gappy_min_launches && x->gpu_ns && x->gpu_ns * 2 < x->best_ns) {
		pauses16 += 16 * (u64)gappy_gaps;
	}
	return pauses16 * batch_return_ns / 16;
}

/* Chooses the way for a tenant's requests: the other one when it is clearly cheaper, or when both were measured, cost about the
 * same, and batch gets on clearly better. Returns 1 for draining. */
static __always_inline u32 better_drained(const struct tenant *x, u64 now)
{
	u32 way = x->prefers_drain & 1, other_way = way ^ 1;
	u64 cost = cost_of(x, way, now), other = cost_of(x, other_way, now);

	if (!longest_ns) {
		return 0;
	}
	if (is_measured(x, way, now) && is_measured(x, other_way, now) && other <= cost + way_min_gain_ns &&
	    x->way_progress[other_way] > x->way_progress[way] + x->way_progress[way] / 4) {
		return other_way;
	}
	return other + other / 4 + way_min_gain_ns < cost ? other_way : way;
}

/* Corrects the close delay from some bursts at a time. */
static __always_inline void learn_close_delay(struct tenant *x, u32 lane, u64 requests, u64 n, u64 took_ns)
{
	x->close_requests += requests;
	x->close_bursts += n;
	x->close_took_ns += took_ns;
	if (x->close_bursts >= 8 && x->close_requests) {
		correct_close_delay(x, lane, x->close_requests, x->close_bursts, x->close_took_ns);
		x->close_requests = x->close_bursts = x->close_took_ns = 0;
	}
}

/* What a latency tenant did since the last scan. */
struct seen {
	u64 requests, syncs, took_ns, n; /* n: bursts */
};

static __always_inline void learn_burst(struct tenant *x, const struct account *a, const struct seen *s, u32 lane, u64 now)
{
	u64 launches = a ? a->launches - x->launches : 0, n = s->n;

	tell_kind(x, s->syncs * 16 / n + 1, launches * 16 / n + 1);
	x->syncs16 = average(x->syncs16, s->syncs * 16 / n + 1, n);
	x->mean_ns = average(x->mean_ns, s->took_ns / n + 1, n);
	x->gap_ns = average(x->gap_ns, (now - x->scanned_ns) / n + 1, n);
	if (a) {
		learn_launches(x, a, launches, n);
	}
	if (s->requests == n) { /* else these are parts of bursts */
		measure_way(x, s->took_ns / n + 1, n, now);
	}
	x->prefers_drain = better_drained(x, now);
	learn_close_delay(x, lane, s->requests, n, s->took_ns);
}

/* Learns what the requests of a latency tenant look like from the change of its statistics since the last scan. A burst counts as
 * one request: while the close delay is still too short, gBPF reports each gap as the end of a request. */
static __always_inline void learn_latency(struct tenant *x, u32 t, u32 lane, u64 now)
{
	u64 requests = gbpf_tenant_stat(t, GBPF_STAT_REQUESTS), syncs = gbpf_tenant_stat(t, GBPF_STAT_SYNCS);
	u64 took = gbpf_tenant_stat(t, GBPF_STAT_REQUEST_NS), bursts, n;
	struct account *a;
	u32 key = 0;

	a = gbpf_tenant_lookup(&accounts, t, &key);
	bursts = a ? a->bursts : 0;
	n = bursts - x->bursts;
	if (requests < x->requests || bursts < x->bursts || !x->scanned_ns) {
		n = 0; /* the tenant number was reused by another program */
	} else if (!n && now < x->scanned_ns + 1000000000) {
		return;
	} else if (requests > x->requests) {
		n = n ? n : 1; /* never pauses */
		learn_burst(x, a, &(struct seen){ requests - x->requests, syncs - x->syncs, took - x->request_ns, n }, lane, now);
	} else {
		return;
	}
	x->requests = requests;
	x->syncs = syncs;
	x->request_ns = took;
	x->bursts = bursts;
	x->launches = a ? a->launches : 0;
	x->known = a ? a->known : 0;
	x->known_ns = a ? a->known_ns : 0;
	x->batch_busy_ns = batch_busy_ns;
	x->scanned_ns = now;
}

/* Returns the in-flight limit of launches that are not stoppable: a quarter of a request's duration, twice that when requests take
 * less than 5 % of the time, eight times below 1 %. */
static __always_inline u64 inflight_limit_for(const struct tenant *x)
{
	u64 bound = x->mean_ns ? (x->best_ns && x->best_ns < x->mean_ns ? x->best_ns : x->mean_ns) / 4 : inflight_initial_ns;

	if (x->mean_ns * 100 < x->gap_ns) {
		bound *= 8;
	} else if (x->mean_ns * 20 < x->gap_ns) {
		bound *= 2;
	}
	return bound < inflight_min_ns ? inflight_min_ns : bound > inflight_max_ns ? inflight_max_ns : bound;
}

/* Stores the profile of a batch tenant for its next start. */
static __always_inline void remember(struct tenant *x, const struct account *a)
{
	struct profile p = { .seen_ns = a->seen_ns, .block_ns = a->block_ns };

	if (x->program.command && a->seen_ns >= profile_min_ns) {
		bpf_map_update_elem(&profiles, &x->program, &p, BPF_ANY);
	}
}

/* Marks a tenant as starved. Only a tenant that wants the GPU for the whole window can be. */
static __always_inline void check_share(struct tenant *x, u32 t, int wants, u64 now)
{
	u64 busy = gbpf_tenant_stat(t, GBPF_STAT_BUSY_NS);

	x->busy_seen_ns = busy;
	if (!wants) {
		x->starved = 0;
		x->since_ns = 0;
	}
	if (!x->since_ns || busy < x->busy_ns) {
		x->since_ns = now;
		x->busy_ns = busy;
	} else if (now >= x->since_ns + share_window_ns) {
		x->starved = !x->stoppable && busy < x->busy_ns + share_min_ns; /* stoppable tenants have the hold limit instead */
		if (x->starved) {
			gbpf_note(NOTE_STARVED, 1);
			gbpf_preempt_now(t, GBPF_LEVEL_HOLD);
		}
		x->since_ns = now;
		x->busy_ns = busy;
	}
}

static __always_inline void shared_turns_join(const struct tenant *x, u32 t)
{
	struct shared_turns *c = &shared_turns_of[(x->turns_gpu - 1) & (SHARED_TURNS_GPUS - 1)];

	c->wanting++;
	if (t == c->turn[0] || t == c->turn[1]) {
		c->have |= t == c->turn[0] ? 1 : 2;
		return;
	}
	if (c->first == NO_TURNS) {
		c->first = t;
	}
	if (c->next == NO_TURNS && t > c->last) {
		c->next = t;
	}
}

/* Passes on at most one turn per scan: one that is no longer wanted, or the older one when its time is over. The tenants count as
 * many for a while after they were, since one that waits for its own results is back at once. */
static __always_inline void shared_turns_advance(struct shared_turns *c, u32 latency, u64 now)
{
	u32 next = c->next != NO_TURNS ? c->next : c->first, slot;
	u64 length = turn_round_ns / (c->wanting ? c->wanting : 1);

	length = length < shared_turn_ns / 2 ? length : shared_turn_ns / 2;
	if (shared_turns_min_tenants && c->wanting >= shared_turns_min_tenants) {
		c->many_ns = now;
	}
	if (!latency || !c->many_ns || now > c->many_ns + shared_turn_ns) {
		c->turn[0] = c->turn[1] = NO_TURNS;
	} else if (next != NO_TURNS && (c->have != 3 || now >= c->since_ns + length)) {
		slot = !(c->have & 1) ? 0 : !(c->have & 2) ? 1 : c->older & 1;
		c->turn[slot] = c->last = next;
		c->older = slot ^ 1;
		c->since_ns = now;
	}
}

static __always_inline u8 waits_shared(const struct tenant *x, u32 t)
{
	const struct shared_turns *c = &shared_turns_of[(x->turns_gpu - 1) & (SHARED_TURNS_GPUS - 1)];

	return c->turn[0] != NO_TURNS && t != c->turn[0] && t != c->turn[1];
}

static __always_inline void scan_batch(struct scan *l, struct tenant *x, u32 t, u32 lane, u32 learn)
{
	struct account *a;
	u32 key = 0;
	int wants;

	a = gbpf_tenant_lookup(&accounts, t, &key);
	if (!a) {
		return;
	}
	wants = gbpf_tenant_stat(t, GBPF_STAT_INFLIGHT_NS) || a->held_ns + 3000000 > l->now_ns;
	x->stoppable = a->seen_ns && a->block_ns * 100 >= a->seen_ns * shared_min_stoppable_percent;
	if (learn) {
		remember(x, a);
	}
	check_share(x, t, wants, l->now_ns);
	l->starved |= x->starved;
	if (lane == GBPF_LANE_PROCESS && !x->stoppable && a->longest_ns > l->longest_ns) {
		l->longest_ns = a->longest_ns;
	}
	x->takes_turns = lane == GBPF_LANE_SHARED && x->turns_gpu && a->threads >= shared_turns_min_threads;
	if (wants && x->takes_turns) {
		shared_turns_join(x, t);
	}
	l->busy_ns += lane == GBPF_LANE_PROCESS ? x->busy_seen_ns : 0;
	if (wants && lane == GBPF_LANE_PROCESS) {
		l->wanting++;
		l->holder_wants |= t == turn;
		if (l->first == NO_TURNS) {
			l->first = t;
		}
		if (l->next == NO_TURNS && t > last_turn) {
			l->next = t;
		}
	}
}

/* Passes the turn in the process lane on when it is over: first no tenant launches, until all but turn_overlap_ns of the previous
 * tenant's work has finished. Without short slices there are no turns. */
static __always_inline void turns_advance(const struct scan *l)
{
	u64 length = turn_round_ns / (l->wanting ? l->wanting : 1);
	u32 next = l->next != NO_TURNS ? l->next : l->first;

	length = length < turn_max_ns ? length : turn_max_ns;
	if (!l->latency || l->be - l->be_shared < 2 || no_slices) {
		turn = NO_TURNS;
		leaving = TURN_FREE;
		return;
	}
	if (turn == NO_TURNS) {
		turn = TURN_FREE;
	}
	if (turn != TURN_FREE && next != turn && next != NO_TURNS && (l->now_ns >= turn_since_ns + length || !l->holder_wants)) {
		leaving = turn;
		turn = TURN_FREE;
	}
	if (turn == TURN_FREE && next != NO_TURNS && gbpf_tenant_stat(leaving, GBPF_STAT_INFLIGHT_NS) <= turn_overlap_ns) {
		turn = last_turn = next;
		leaving = TURN_FREE;
		turn_since_ns = l->now_ns;
	}
}

/* Returns the time slice of a tenant, us; 0: the device's own. */
static __always_inline u32 slice_for(const struct scan *l, const struct tenant *x, long class_id)
{
	u32 n = l->be - l->be_shared;

	if (!l->latency || !n) {
		return 0;
	}
	if (class_id == GBPF_CLASS_LATENCY) {
		return l->starved ? latency_slice_starved_us : l->latency > 1 ? latency_slice_several_us : latency_slice_us;
	}
	if (x->stoppable || (n == 1 && l->prefers_drain == l->latency)) {
		return batch_slice_drain_us;
	}
	return x->starved ? batch_slice_starved_us : n > 1 ? batch_slice_turns_us : batch_slice_us;
}

/* Sets the slice if it changed, and again from time to time: a refusal may show only once the tenant has started. Returns 1 if
 * refused. */
static __always_inline u32 set_slice(struct tenant *x, u32 t, u32 slice, u32 again)
{
	if (slice == x->slice_us && (!slice || (x->set && !again))) {
		return x->refused;
	}
	x->refused = gbpf_slice_set(t, slice) < 0;
	x->slice_us = slice;
	x->set |= !x->refused;
	return x->refused;
}

static __always_inline void publish(const struct scan *l)
{
	latency_tenants = l->latency;
	latency_shared = l->lc_shared;
	other_tenants = l->be;
	other_shared = l->be_shared;
	hold_pays = l->often != 0;
	inflight_limit_ns = l->inflight_limit_ns;
	longest_ns = l->longest_ns;
	batch_busy_ns = l->busy_ns;
	batch_wants = l->wanting != 0;
	ticked_ns = l->now_ns;
}

SEC("gbpf/tick")
int GBPF_PROG(auto_tick, tick)
{
	u32 t, n = ctx->tenants < 1024 ? ctx->tenants : 1024, learn = ctx->epoch % 64 == 0, refused;
	struct scan *l = &scan;

	__builtin_memset(l, 0, sizeof(*l));
	l->now_ns = ctx->now_ns;
	l->inflight_limit_ns = inflight_max_ns;
	l->next = l->first = NO_TURNS;
	bpf_for (t, 0, SHARED_TURNS_GPUS) {
		struct shared_turns *c = &shared_turns_of[t & (SHARED_TURNS_GPUS - 1)];

		c->wanting = c->have = 0;
		c->first = c->next = NO_TURNS;
	}
	bpf_for (t, 0, n) {
		struct tenant *x = bpf_map_lookup_elem(&tenants, &t);
		long class_id = gbpf_tenant_class(t);
		u32 lane = gbpf_tenant_stat(t, GBPF_STAT_LANE) & 1;

		if (!x) {
			continue;
		}
		if (class_id == GBPF_CLASS_LATENCY) {
			u64 bound;

			learn_latency(x, t, lane, l->now_ns);
			close_delay_floor_ns[t & 1023] = close_delay_floor(x, lane);
			bound = inflight_limit_for(x);
			l->inflight_limit_ns = bound < l->inflight_limit_ns ? bound : l->inflight_limit_ns;
			l->latency++;
			l->lc_shared += lane;
			l->often += !x->syncs16 || x->syncs16 >= hold_min_syncs_x16 || x->prefers_drain;
			l->prefers_drain += x->prefers_drain;
		} else if (class_id >= 0) {
			l->be++;
			l->be_shared += lane;
			scan_batch(l, x, t, lane, learn);
		}
	}
	publish(l);
	turns_advance(l);
	bpf_for (t, 0, SHARED_TURNS_GPUS) {
		shared_turns_advance(&shared_turns_of[t & (SHARED_TURNS_GPUS - 1)], l->lc_shared, l->now_ns);
	}
	refused = 0;
	bpf_for (t, 0, n) {
		struct tenant *x = bpf_map_lookup_elem(&tenants, &t);
		long class_id = gbpf_tenant_class(t);

		if (x && class_id >= 0) {
			waits_for_turn[t & 1023] = class_id != GBPF_CLASS_LATENCY && x->takes_turns && waits_shared(x, t);
		}
		if (x && class_id >= 0 && (gbpf_tenant_stat(t, GBPF_STAT_LANE) & 1) == GBPF_LANE_PROCESS) {
			u32 no = set_slice(x, t, slice_for(l, x, class_id), learn);

			refused |= no && class_id != GBPF_CLASS_LATENCY;
		}
	}
	no_slices = refused;
	return 0;
}

/* Gives back the time slices that the policy set. */
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
