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
 *    stoppable	a launch that can be stopped between blocks (by a preemptible clone, or in its machine code) and leaves soon: its
 *		blocks are short, and those that have not begun exit soon. A persistent launch, all of whose blocks run at once,
 *		leaves when they end
 *    way	how batch work gets off the GPU in the process lane: sliced (it keeps a time slice of 1 us and continues, its gates
 *		are off) or leaving (it is held, and what is on the GPU stops, or runs to its end, under the usual slice)
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
 *      than the shortest of their kind. The other way is tried when it is predicted to be cheaper, or may be, and ever more
 *      rarely while it is not. Between two measured ways of equal cost batch's progress decides.
 *    - Blocks that have not begun must begin and exit: 0.6 us for 1000 of them. With grids of more than about 50 000 blocks slices
 *      serve requests without pauses as well as stopping does.
 *    - Services change: a warm-up, then requests of another kind. What was learned of one kind says nothing of the next, so
 *      two similar bursts that differ from those before begin a new kind; more of them where kinds are mixed at random.
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
const volatile u64 profile_min_ns = 50000000;	 /* ns: GPU time of a run from which its profile is stored, */
const volatile u32 remember_ticks = 4;		 /* ticks: one tenant's at a time */

const volatile u32 stays_stoppable_percent = 80; /* %: a tenant that was stoppable remains so above this, */
const volatile u64 recent_ns = 250000000;	/* ns: counted over its last GPU time, one or two of these */
const volatile u64 longest_window_ns = 1000000000; /* ns: its longest launch is that of the last one or two of these */

/* Block level (submit). Shorter kernels drain soon enough by themselves. */
const volatile u64 preempt_min_kernel_ns = 20000;	/* ns: shortest kernel, process lane (a context switch follows anyway) */
const volatile u64 preempt_min_kernel_shared_ns = 8000;	/* ns: ... shared lane, where queued kernels drain in turn */
const volatile u64 short_block_ns = 4000;		/* ns: the ticket of each block is noticeable in blocks shorter than this, */
const volatile u64 preempt_min_short_block_ns = 500000; /* ns: so with such blocks the kernel must be at least this long */

const volatile u64 ungated_max_ns = 100000;	/* ns: machine code that is not worth the block level, until one launch goes at it */
const volatile u64 leave_max_ns = 500000;	/* ns: a stoppable launch leaves within this: a context switch and its return cost more */
/* Blocks that have not begun must begin and exit: ns per 1000 of them, H200, docs/BENCHMARKS.md ("Batch that is machine code only",
 * "Queued"). A request waits for those that are left; when the launch continues, those that have run exit in the same way. */
const volatile u64 exit_code_ns = 600;
const volatile u64 exit_clone_ns = 300;		/* ... of a clone, of which */
const volatile u64 exit_clone_max = 32768;	/* blocks: at most these wait on the device */

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
const volatile u32 way_min_seen = 8;		/* bursts from which the cost of the way in force counts as measured */
const volatile u64 way_min_gain_ns = 50000;	/* ns: the other way must be cheaper by this and a fifth */
const volatile u64 way_keep_ns = 5000000000;	/* ns: shortest time between two changes of the way for one kind, and between the */
const volatile u64 way_retry_max_ns = 320000000000; /* ns: ... first two trials; the time between trials that fail doubles up to this */
const volatile u32 trial_bursts = 32;		/* bursts of a trial of the other way; and of the way in force before it */
const volatile u32 trial_min_bursts = 3;	/* bursts after which a trial may fail */
const volatile u64 trial_min_leave_ns = 60000;	/* ns: slices are tried where batch takes longer than this to stop: with 93 us both ways */
						/* serve alike (105 600 blocks of 30 us; H200, docs/BENCHMARKS.md) */
const volatile u64 way_switch_ns = 10000000;	/* ns: a change between stopping and slices takes effect: gates, slices, work in flight */
const volatile u32 kind_proof_mixed = 16;	/* similar bursts that begin a new kind: 2, or this when the one before */
const volatile u32 kind_min_bursts = 16;	/* ... had fewer bursts than this, */
const volatile u32 kind_pure_bursts = 64;	/* ... after that one no other way is tried for this number of bursts */
const volatile u32 kind_max_odd = 16;		/* ... or more than one in this number that differed from its average */
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

enum { SHARED_TURNS_GPUS = 8, LATENCY_MAX = 128 /* latency tenants whose requests are learned; a process reads 64 boards */ };
/* Numbers of gbpf_note(), shown by `gbpf policy show`: how often each decision was made. */
enum { NOTE_HELD_REQUEST, NOTE_HELD_ANNOUNCED, NOTE_HELD_INFLIGHT, NOTE_HELD_TURN, NOTE_BLOCK_LEVEL, NOTE_SLICED, NOTE_SWITCHED_OFF,
	NOTE_STARVED };

#define NO_PROGRAMS (~0ull) /* value of batch while nothing is known of the ways */
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
	u64 recent_seen_ns, recent_block_ns; /* as seen_ns and block_ns; halved when the first exceeds twice recent_ns */
	u64 longest_ns; /* ns: longest time that a launch takes to leave, of the previous window and of this one */
	u64 window_longest_ns, window_ns; /* ns: the same of this window; its start */
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

/* The two ways to get batch in the process lane off the GPU, [0] sliced and [1] leaving, for one kind of requests. */
struct ways {
	u64 ns[2];	 /* measured cost per burst, ns */
	u64 progress[2]; /* batch's work per time, of 1024 */
	u32 seen[2];	 /* bursts measured, up to trial_bursts */
	u64 changed_ns;	 /* time of the last change; 0: none */
	u64 retry_ns;	 /* until then the cost of the way that is not in force counts as known */
	u64 wait_ns;	 /* time between the last trial and retry_ns */
	u64 leave_ns;	 /* longest_ns when the measurement began */
	u64 batch;	 /* the batch programs next to which it was made */
	u32 guesses;	 /* changes for this kind that were not measured */
	u32 moved;	 /* 1: there was one that was */
	u32 trial;	 /* 1: the way in force is being tried */
	u32 stops;	 /* 1: batch was stoppable */
};

/* What was learned of a latency tenant's requests. */
struct kind {
	u64 syncs16, mean_ns, gap_ns;	 /* per burst: synchronizations times 16; duration, ns; distance from start to start, ns */
	u64 launches16, gpu_ns;		 /* per burst: launches times 16; their GPU time, ns */
	u64 best_ns;			 /* shortest burst of this kind, forgotten slowly */
	u64 close_delay_ns;		 /* close delay with which requests do not end too early */
	u64 bursts, odd_bursts;		 /* since the kind began; those of them that differ from its average */
	struct ways ways;
	u32 prefers_drain;	 /* 1: the way is leaving */
	u32 single_burst;	 /* 1: each burst was one request */
	u32 proof;		 /* similar bursts that begin a new kind */
	u32 lane;
};

/* Programs, known across their runs by user and command. */
struct program {
	u64 command;
	u32 uid, gpu;
};
struct profile {
	u64 seen_ns, block_ns; /* batch: as in struct account, of the last run longer than profile_min_ns */
	struct kind kind;      /* latency: of its last run */
};

struct {
	__uint(type, GBPF_MAP_LRU_HASH);
	__uint(max_entries, 1024);
	__uint(map_flags, GBPF_F_DAEMON);
	__type(key, struct program);
	__type(value, struct profile);
} profiles SEC(".maps");

/* What a latency tenant did since the last scan. */
struct seen {
	u64 since_ns; /* time of that scan */
	u64 requests, syncs, took_ns, n; /* n: bursts; 0: nothing is to be learned */
};

/* Present tenants; written by admit and tick. */
struct tenant {
	struct program program;
	u64 requests, syncs, request_ns, bursts; /* counters at the previous scan */
	u64 launches, known, known_ns;
	u64 scanned_ns;
	u64 batch_busy_ns;		 /* GPU time of batch at the last burst */
	u64 odd_syncs16, odd_launches16; /* the last burst, if it differs from the kind; 0: it does not */
	u64 close_requests, close_bursts, close_took_ns; /* since the close delay was corrected */
	struct seen seen;      /* latency: of this scan */
	struct kind kind;      /* latency: its requests */
	u64 busy_ns, since_ns; /* batch: GPU time at the start of the share window; that start */
	u64 busy_seen_ns;      /* batch: GPU time at the last scan */
	u32 odd;	       /* number of similar bursts in a row that differ from the kind */
	u32 slice_us, set;     /* time slice that it was given, us; 1: it was given one */
	u32 starved;	       /* 1: got less than share_min_ns in the last window */
	u32 refused;	       /* 1: its slice could not be set */
	u32 stoppable;	       /* 1: nearly all its recent GPU time is stoppable */
	u32 pid, turns_gpu;	       /* its process; 1 + its GPU, or 0: it uses several GPUs and takes no turns */
	u32 takes_turns;	       /* 1: shared lane, and wide enough to take turns there */
	u32 lane;	       /* as of this scan */
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
struct program last_batch;		  /* the batch tenant admitted last */
u32 last_batch_lane, batch_seen;	  /* its lane; 1: there was one */
u32 hold_pays = 1;			  /* 1: time slices alone do not serve the requests */
u32 no_slices;				  /* 1: time slices cannot be set on this machine */
u32 turn = NO_TURNS;			  /* process lane: tenant that has the turn, TURN_FREE or NO_TURNS */
u32 leaving = TURN_FREE;			  /* tenant whose turn is over while its work still runs */
u32 last_turn;
u64 turn_since_ns;
u64 inflight_limit_ns = 100000;
u32 slices_serve;			  /* 1: time slices alone get batch in the process lane off the GPU; its gates are off */
u64 longest_ns;				  /* process lane: longest time that a launch takes to leave */
u64 batch_busy_ns;			  /* process lane: GPU time of all batch tenants */
u64 batch_programs;			  /* process lane: sum of the hashes of the batch programs */
u32 batch_wants;			  /* 1: a batch tenant in the process lane wants the GPU */
u32 batch_stops;			  /* 1: the batch tenants in the process lane are stoppable */
u32 batch_alone;			  /* 1: there is one batch tenant in the process lane */
u8 waits_for_turn[1024];		  /* by tenant: 1: held until its turn in the shared lane */
u32 close_delay_floor_ns[1024];		  /* by latency tenant: minimum close delay */
u64 ticked_ns;

/* ---- admit: the lane ---- */

/* Returns whether the profile belongs in the shared lane: 1, 0, or -1 if it is not known. */
static __always_inline int stoppable_profile(const struct profile *p)
{
	if (!p || p->seen_ns < profile_min_ns) {
		return -1;
	}
	return p->block_ns * 100 >= p->seen_ns * shared_min_stoppable_percent;
}

static __always_inline u32 lane_of_new_batch(const struct profile *p)
{
	int stoppable = stoppable_profile(p);

	if (!(stoppable < 0 ? start_shared : (u32)stoppable)) {
		return GBPF_LANE_PROCESS;
	}
	return latency_tenants && !latency_shared ? GBPF_LANE_PROCESS : GBPF_LANE_SHARED;
}

/* Without batch: the lane that the last batch program will get when it starts again, which may not be the one that it had. */
static __always_inline u32 lane_of_new_latency(void)
{
	struct program last = last_batch;
	int stoppable;

	if (other_tenants) {
		return other_shared < other_tenants ? GBPF_LANE_PROCESS : GBPF_LANE_SHARED;
	}
	if (latency_tenants) {
		return latency_shared < latency_tenants ? GBPF_LANE_PROCESS : GBPF_LANE_SHARED;
	}
	stoppable = batch_seen && last.command ? stoppable_profile(bpf_map_lookup_elem(&profiles, &last)) : -1;
	if (stoppable >= 0) {
		return (u32)stoppable;
	}
	return batch_seen ? last_batch_lane : start_shared & 1;
}

/* Takes over what the last run of a latency program taught. What depends on the lane is of use in the same one only. */
static __always_inline void recall(struct tenant *t, const struct profile *p, u32 lane)
{
	if (!p || !p->kind.syncs16) {
		return;
	}
	t->kind = p->kind;
	t->kind.bursts = t->kind.odd_bursts = 0;
	t->kind.ways.trial = 0;
	if (p->kind.lane != lane) {
		t->kind.mean_ns = t->kind.best_ns = t->kind.close_delay_ns = 0;
		t->kind.prefers_drain = 0;
		__builtin_memset(&t->kind.ways, 0, sizeof(t->kind.ways));
	}
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
		last_batch = program;
		last_batch_lane = ctx->lane & 1;
		batch_seen = 1;
	}
	if (ctx->class_id == GBPF_CLASS_LATENCY) {
		if (ctx->command && !ctx->rejoin) {
			recall(t, bpf_map_lookup_elem(&profiles, &program), ctx->lane & 1);
		}
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

/* Returns the time that blocks of the launch which have not begun take to begin and exit, ns. */
static __always_inline u64 exits_ns(const struct gbpf_submit_ctx *ctx)
{
	u64 blocks = ctx->persistent ? 0 : ctx->blocks;

	if (ctx->stop == GBPF_STOP_MACHINE_CODE) {
		return blocks * exit_code_ns / 1000;
	}
	return (blocks < exit_clone_max ? blocks : exit_clone_max) * exit_clone_ns / 1000;
}

/* A launch gains nothing from being stopped if its blocks exit nearly as slowly as they run. */
static __always_inline int can_stop(const struct gbpf_submit_ctx *ctx)
{
	return ctx->block_ok && (!ctx->est_ns || 2 * exits_ns(ctx) <= ctx->est_ns);
}

/* The launch is worth the block level. */
static __always_inline int preemptible(const struct gbpf_submit_ctx *ctx)
{
	u64 min_ns = ctx->lane == GBPF_LANE_SHARED ? preempt_min_kernel_shared_ns : preempt_min_kernel_ns;

	min_ns = ctx->block_ns && ctx->block_ns < short_block_ns ? preempt_min_short_block_ns : min_ns;

	return can_stop(ctx) && (!ctx->est_ns || ctx->est_ns >= min_ns);
}

/* Returns the time until a launch at block level has left the GPU under a lease, ns. */
static __always_inline u64 stops_after(const struct gbpf_submit_ctx *ctx)
{
	return ctx->block_ns + exits_ns(ctx);
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
	int code = ctx->stop == GBPF_STOP_MACHINE_CODE, stops = can_stop(ctx);

	if (worth) {
		gbpf_note(NOTE_BLOCK_LEVEL, 1);
		ctx->level = GBPF_LEVEL_BLOCK;
		a->ungated_ns = 0;
		return 1;
	}
	if (code) {
		a->ungated_ns += ctx->est_ns;
		ctx->level = GBPF_LEVEL_BLOCK;
		ctx->gate = a->ungated_ns < ungated_max_ns || !stops ? GBPF_GATE_OFF : GBPF_GATE_TOGETHER;
		a->ungated_ns = a->ungated_ns < ungated_max_ns ? a->ungated_ns : 0;
	}
	return code && stops;
}

/* The hardware's time slices alone get the launch off the GPU: it goes as if it could not be stopped, within the upper limit of
 * work in flight. */
static __always_inline int go_sliced(struct gbpf_submit_ctx *ctx)
{
	if (!fits_inflight(ctx, inflight_max_ns)) {
		return hold(ctx, NOTE_HELD_INFLIGHT, 1000000);
	}
	if (ctx->stop == GBPF_STOP_MACHINE_CODE) {
		ctx->level = GBPF_LEVEL_BLOCK;
		ctx->gate = GBPF_GATE_OFF;
	}
	return GBPF_GO;
}

/* The launch would still be on the GPU when an announced request arrives. */
static __always_inline int delays_announced(const struct gbpf_submit_ctx *ctx, int stoppable)
{
	u64 ahead = ctx->lane == GBPF_LANE_SHARED ? announce_lead_shared_ns : announce_lead_ns;
	u64 leaves = ctx->stop == GBPF_STOP_MACHINE_CODE && can_stop(ctx) ? ungated_max_ns : ctx->inflight_ns + ctx->est_ns;

	leaves = stoppable ? stops_after(ctx) : leaves;
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

/* Counts a launch of a batch tenant: its GPU time, how much of that is stoppable, and how long it takes to leave. Approximate:
 * threads of one tenant may lose updates. */
static __always_inline void count_batch(struct account *a, const struct gbpf_submit_ctx *ctx)
{
	u64 est = ctx->est_ns || ctx->kind != GBPF_KIND_KERNEL ? ctx->est_ns : unknown_kernel_ns;
	u64 leaves = preemptible(ctx) ? stops_after(ctx) : est, stoppable = ctx->block_ok && leaves <= leave_max_ns ? est : 0;

	a->seen_ns += est;
	a->block_ns += stoppable;
	if (a->recent_seen_ns >= 2 * recent_ns) {
		a->recent_seen_ns /= 2;
		a->recent_block_ns /= 2;
	}
	a->recent_seen_ns += est;
	a->recent_block_ns += stoppable;
	if (ctx->now_ns >= a->window_ns + longest_window_ns) {
		a->longest_ns = a->window_longest_ns;
		a->window_longest_ns = 0;
		a->window_ns = ctx->now_ns;
	}
	a->window_longest_ns = leaves > a->window_longest_ns ? leaves : a->window_longest_ns;
	a->longest_ns = leaves > a->longest_ns ? leaves : a->longest_ns;
	note_threads(a, ctx);
}

SEC("gbpf/submit")
int GBPF_PROG(auto_submit, submit)
{
	int stoppable, sliced, ticking = ctx->now_ns < ticked_ns + stale_ns;
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
		count_batch(a, ctx);
	}
	if (ticking && !latency_tenants && !ctx->lc_open) {
		return GBPF_GO; /* no latency tenant */
	}
	stoppable = preemptible(ctx);
	sliced = ticking && ctx->lane == GBPF_LANE_PROCESS && slices_serve;
	if (ctx->lc_open) {
		a->held_ns = ctx->lane == GBPF_LANE_SHARED ? ctx->now_ns : a->held_ns;
		if ((stoppable && !sliced) || hold_pays || no_slices || !ticking || ctx->lane == GBPF_LANE_SHARED) {
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
	if (sliced && ctx->lc_next_ns == ~0ull) {
		return go_sliced(ctx); /* but an announced request finds the GPU empty */
	}
	if (choose_level(ctx, a, stoppable)) {
		return GBPF_GO; /* gBPF splits large grids of clones */
	}
	if (fits_inflight(ctx, bound)) {
		return GBPF_GO;
	}
	if (can_stop(ctx) && !ctx->lc_open) { /* a short clone behind long ones: its tickets cost less than a pause of the GPU */
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

	return x && ctx->waited_ns > late_after_ns + 2 * x->kind.mean_ns;
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
	if (x && x->stoppable && !slices_serve && waited < lease_ignored_after_ns) {
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
	u64 longest_ns;	      /* process lane: longest time that a launch takes to leave */
	u64 busy_ns;	      /* process lane: GPU time of batch tenants */
	u64 programs;	      /* process lane: sum of the hashes of their programs */
	u32 known, stops;     /* process lane: those of which launches were seen; the stoppable ones */
	u32 prefers_drain;	      /* latency tenants for which batch should leave by itself */
	u32 switching;	      /* 1: for one of them the way has just changed */
	u32 changed;	      /* 1: batch has become stoppable, or is no longer */
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
u32 latency_list[LATENCY_MAX]; /* latency tenants of the scan */
struct profile stored; /* while it is copied into the map */
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
static __always_inline void correct_close_delay(struct kind *k, u32 lane, u64 requests, u64 bursts, u64 took_ns)
{
	u64 limit = lane == GBPF_LANE_SHARED ? close_delay_shared_max_ns : close_delay_max_ns;
	u64 most = 4 * (took_ns / requests), ns = k->close_delay_ns;

	most = most < limit ? most : limit;
	k->single_burst = requests * 16 <= bursts * 18;
	if (requests * 16 > bursts * 20) {
		ns = ns ? 2 * ns : close_delay_min_ns;
	} else if (k->single_burst) {
		ns -= ns / 8;
	}
	k->close_delay_ns = ns < most ? ns : most;
}

/* Returns the minimum close delay of a latency tenant, ns. */
static __always_inline u32 close_delay_floor(const struct kind *k, u32 lane)
{
	int short_is_right = lane == GBPF_LANE_SHARED || (k->single_burst && k->syncs16 && k->syncs16 < hold_min_syncs_x16);

	return (u32)(short_is_right || k->close_delay_ns > close_delay_process_min_ns ? k->close_delay_ns : close_delay_process_min_ns);
}

/* Extrapolates from the few launches whose duration is known to all; changes nothing when none is. */
static __always_inline void learn_launches(struct tenant *x, const struct account *a, u64 launches, u64 n)
{
	struct kind *k = &x->kind;
	u64 known = a->known - x->known;

	k->launches16 = average(k->launches16, launches * 16 / n + 1, n);
	if (known) {
		k->gpu_ns = average(k->gpu_ns, (a->known_ns - x->known_ns) / known * launches / n + 1, n);
	}
}

/* More than half of a synchronization or launch, and a factor of two. */
static __always_inline int differs(u64 a16, u64 b16)
{
	return a16 > 2 * b16 + 8 || b16 > 2 * a16 + 8;
}

/* ---- tick: the way that gets batch in the process lane off the GPU ---- */

static __always_inline void set_way(struct kind *k, u32 way, u64 now)
{
	if (k->prefers_drain != way) {
		k->prefers_drain = way;
		k->ways.changed_ns = now;
	}
}

/* Forgets what both ways cost. Batch that stops between its blocks leaves: this serves requests of any kind in little more than a
 * context switch. Other batch is sliced, until requests are known for which that is expensive. */
static __always_inline void forget_ways(struct kind *k, u64 now)
{
	struct ways *w = &k->ways;

	w->seen[0] = w->seen[1] = 0;
	w->guesses = w->moved = w->trial = 0;
	w->retry_ns = w->wait_ns = 0;
	w->leave_ns = longest_ns;
	w->batch = batch_programs;
	w->stops = batch_stops;
	if (batch_stops) {
		set_way(k, 1, now);
	}
}

/* Begins a new kind of bursts when some in a row differ from those before and are alike: two, or more when kinds are mixed at
 * random. One alone is an exception, and where kinds are mixed, decisions are for their average. */
static __always_inline void tell_kind(struct tenant *x, u64 syncs16, u64 launches16, u64 n)
{
	struct kind *k = &x->kind;
	u32 proof = k->proof ? k->proof : 2, mixed;

	k->bursts += n;
	if (!differs(syncs16, k->syncs16) && !differs(launches16, k->launches16)) {
		x->odd = 0;
		return;
	}
	k->odd_bursts += n;
	x->odd = x->odd && !differs(syncs16, x->odd_syncs16) && !differs(launches16, x->odd_launches16) ? x->odd + 1 : 1;
	x->odd_syncs16 = syncs16;
	x->odd_launches16 = launches16;
	if (x->odd < proof) {
		return;
	}
	mixed = k->odd_bursts > x->odd && (k->odd_bursts - x->odd) * kind_max_odd > k->bursts;
	k->proof = k->proof && (mixed || k->bursts < kind_min_bursts) ? kind_proof_mixed : 2;
	k->syncs16 = k->launches16 = k->mean_ns = k->gap_ns = k->gpu_ns = k->best_ns = 0;
	k->bursts = k->odd_bursts = 0;
	x->odd = 0;
	k->ways.batch = NO_PROGRAMS; /* nothing is known of the ways */
}

/* Measures what the way in force costs a burst: the time beyond the shortest of its kind. After the first few bursts it rises fast
 * and falls slowly, so it is that of the slower ones. A burst that began before the way was in force tells nothing. Nor do those
 * for which batch does not want the GPU: without it any way costs nothing. */
static __always_inline void measure_way(struct tenant *x, const struct seen *s, u64 now)
{
	struct kind *k = &x->kind;
	struct ways *w = &k->ways;
	u64 took_ns = s->took_ns / s->n + 1, n = s->n;
	u64 way = k->prefers_drain & 1, cost, extra, progress = 0, since = w->changed_ns + (batch_stops ? way_switch_ns : 0);

	if (!k->best_ns || took_ns < k->best_ns) {
		k->best_ns = took_ns;
	}
	extra = took_ns - k->best_ns;
	k->best_ns += extra * (n < 8 ? n : 8) / 1024;
	if (!batch_wants || (w->changed_ns && s->since_ns <= since)) {
		return;
	}
	cost = w->seen[way] ? w->ns[way] : extra;
	extra = extra < 4 * (cost + way_min_gain_ns) ? extra : 4 * (cost + way_min_gain_ns); /* one exception is none */
	if (w->seen[way] < way_min_seen) {
		w->ns[way] = (cost * w->seen[way] + extra) / (w->seen[way] + 1);
	} else {
		w->ns[way] = extra > cost ? cost + (extra - cost) / 4 : cost - (cost - extra) / 16;
	}
	if (batch_busy_ns >= x->batch_busy_ns && now > s->since_ns) {
		progress = (batch_busy_ns - x->batch_busy_ns) * 1024 / (now - s->since_ns);
	}
	progress = progress < 2048 ? progress : 2048; /* the GPU time of a tenant that has just come is not of this burst */
	w->progress[way] = w->seen[way] ? average(w->progress[way], progress + 1, n) : progress + 1;
	w->seen[way] += w->seen[way] < trial_bursts;
}

/* Short slices let batch return in each pause of the request: after synchronizations, or between many short launches. */
static __always_inline u64 pauses16(const struct kind *k)
{
	int slow_cpu = k->launches16 >= 16 * gappy_min_launches && k->gpu_ns && k->gpu_ns * 2 < k->best_ns;

	return k->syncs16 + (slow_cpu ? 16 * (u64)gappy_gaps : 0);
}

/* Returns the predicted cost of a way per burst. Sliced: batch_return_ns for each pause. Leaving: batch leaves once. Where it stops,
 * the longest time that this takes counts, since slices would be as good; where it drains, half of its longest launch. */
static __always_inline u64 predicted(const struct kind *k, u32 way)
{
	u64 leave_ns = batch_stops ? longest_ns : longest_ns / 2;

	return way ? leave_ns + batch_return_ns : pauses16(k) * batch_return_ns / 16;
}

static __always_inline int cheaper(u64 cost, u64 than)
{
	return cost + cost / 4 + way_min_gain_ns < than;
}

/* Compares two measured ways: the cost, and where that is about the same, batch's progress. */
static __always_inline int is_better(const struct ways *w, u32 way)
{
	u32 a = way & 1, b = a ^ 1;

	if (cheaper(w->ns[a], w->ns[b])) {
		return 1;
	}
	return w->seen[a] >= trial_bursts && w->seen[b] >= trial_bursts && w->ns[a] <= w->ns[b] + way_min_gain_ns &&
	       w->progress[a] > w->progress[b] + w->progress[b] / 4;
}

/* Ends a trial when the way costs clearly more than the one before, or after trial_bursts unless it is better. Each trial that
 * fails doubles the time until the next. Returns the way. */
static __always_inline u32 judge_trial(struct ways *w, u32 way, u64 now)
{
	u32 before = (way ^ 1) & 1;

	if (w->seen[way & 1] < trial_min_bursts) {
		return way;
	}
	if (!cheaper(w->ns[before], w->ns[way & 1])) {
		if (w->seen[way & 1] < trial_bursts) {
			return way;
		}
		if (is_better(w, way)) {
			w->trial = 0;
			w->wait_ns = way_keep_ns;
			w->retry_ns = now + way_keep_ns;
			return way;
		}
	}
	w->trial = 0;
	w->wait_ns = w->wait_ns ? 2 * w->wait_ns : way_keep_ns;
	w->wait_ns = w->wait_ns < way_retry_max_ns ? w->wait_ns : way_retry_max_ns;
	w->retry_ns = now + w->wait_ns;
	return before;
}

/* Batch that stops serves a mixture of kinds. Where kinds were mixed before, the present one may be a row of similar bursts by
 * chance, so it is not sliced for that. */
static __always_inline int may_change(const struct kind *k, u32 to)
{
	return to || !batch_stops || k->proof <= 2 || k->bursts >= kind_pure_bursts;
}

/* Slices may serve as well as stopping where blocks or huge grids take long to leave and requests have no pauses; only a trial can
 * tell. */
static __always_inline int worth_trial(const struct kind *k)
{
	return batch_alone && batch_stops && k->prefers_drain && k->ways.seen[1] >= trial_bursts && longest_ns >= trial_min_leave_ns &&
	       pauses16(k) < hold_min_syncs_x16 && !no_slices;
}

/* Chooses the way for a tenant's requests: until it is measured, by prediction; then the other one when that was measured and is
 * better; or when it is predicted to be cheaper, for a trial. Two changes for one kind are at least way_keep_ns apart, except at
 * the end of a trial and for the first one. Returns 1 for leaving. */
static __always_inline u32 choose_way(struct kind *k, u64 now)
{
	struct ways *w = &k->ways;
	u32 way = k->prefers_drain & 1, other = way ^ 1;

	if (!longest_ns) {
		return way;
	}
	if (w->trial) {
		return judge_trial(w, way, now);
	}
	if (w->seen[way] < way_min_seen) {
		if (w->seen[other] || !may_change(k, other) || w->guesses >= 2 || !cheaper(predicted(k, other), predicted(k, way))) {
			return way;
		}
		w->guesses++;
		return other;
	}
	if (w->moved && now < w->changed_ns + way_keep_ns) {
		return way;
	}
	if (now < w->retry_ns) {
		if (!is_better(w, other)) {
			return way;
		}
	} else if (may_change(k, other) && (cheaper(predicted(k, other), w->ns[way]) || worth_trial(k))) {
		w->trial = 1;
		w->seen[other] = 0;
	} else {
		return way;
	}
	w->moved = 1;
	w->retry_ns = w->trial ? w->retry_ns : now + way_keep_ns;
	return other;
}

/* The batch programs or their kernels have changed since the ways were measured. While there is no batch nothing has. */
static __always_inline int batch_changed(const struct ways *w)
{
	if (!longest_ns && w->batch != NO_PROGRAMS) {
		return 0;
	}
	return w->batch != batch_programs || w->stops != batch_stops || longest_ns > 2 * w->leave_ns + way_min_gain_ns || w->leave_ns > 2 * longest_ns + way_min_gain_ns;
}

static __always_inline void learn_way(struct tenant *x, u64 now)
{
	struct seen *s = &x->seen;
	struct kind *k = &x->kind;

	if (!s->n) {
		return;
	}
	if (batch_changed(&k->ways)) {
		forget_ways(k, now);
	}
	if (s->requests == s->n) { /* else these are parts of bursts */
		measure_way(x, s, now);
	}
	x->batch_busy_ns = batch_busy_ns;
}

/* Corrects the close delay from some bursts at a time. */
static __always_inline void learn_close_delay(struct tenant *x)
{
	x->close_requests += x->seen.requests;
	x->close_bursts += x->seen.n;
	x->close_took_ns += x->seen.took_ns;
	if (x->close_bursts >= 8 && x->close_requests) {
		correct_close_delay(&x->kind, x->lane, x->close_requests, x->close_bursts, x->close_took_ns);
		x->close_requests = x->close_bursts = x->close_took_ns = 0;
	}
}

static __always_inline void learn_burst(struct tenant *x, const struct account *a, u64 now)
{
	struct seen *s = &x->seen;
	struct kind *k = &x->kind;
	u64 launches = a ? a->launches - x->launches : 0, n = s->n;

	tell_kind(x, s->syncs * 16 / n + 1, launches * 16 / n + 1, n);
	k->syncs16 = average(k->syncs16, s->syncs * 16 / n + 1, n);
	k->mean_ns = average(k->mean_ns, s->took_ns / n + 1, n);
	k->gap_ns = average(k->gap_ns, (now - s->since_ns) / n + 1, n);
	k->lane = x->lane;
	if (a) {
		learn_launches(x, a, launches, n);
	}
}

/* Learns what the requests of a latency tenant look like from the change of its statistics since the last scan. A burst counts as
 * one request: while the close delay is still too short, gBPF reports each gap as the end of a request. */
static __always_inline void learn_latency(struct tenant *x, u32 t, u64 now)
{
	u64 requests = gbpf_tenant_stat(t, GBPF_STAT_REQUESTS), syncs = gbpf_tenant_stat(t, GBPF_STAT_SYNCS);
	u64 took = gbpf_tenant_stat(t, GBPF_STAT_REQUEST_NS), bursts, n;
	struct account *a;
	u32 key = 0;

	x->seen.n = 0;
	a = gbpf_tenant_lookup(&accounts, t, &key);
	bursts = a ? a->bursts : 0;
	n = bursts - x->bursts;
	if (requests < x->requests || bursts < x->bursts || !x->scanned_ns) {
		n = 0; /* the tenant number was reused by another program */
	} else if (!n && now < x->scanned_ns + 1000000000) {
		return;
	} else if (requests > x->requests) {
		x->seen.since_ns = x->scanned_ns;
		x->seen.requests = requests - x->requests;
		x->seen.syncs = syncs - x->syncs;
		x->seen.took_ns = took - x->request_ns;
		x->seen.n = n ? n : 1; /* never pauses */
		learn_burst(x, a, now);
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
	x->scanned_ns = now;
}

/* Returns the in-flight limit of launches that are not stoppable: a quarter of a request's duration, twice that when requests take
 * less than 5 % of the time, eight times below 1 %. */
static __always_inline u64 inflight_limit_for(const struct kind *k)
{
	u64 bound = k->mean_ns ? (k->best_ns && k->best_ns < k->mean_ns ? k->best_ns : k->mean_ns) / 4 : inflight_initial_ns;

	if (k->mean_ns * 100 < k->gap_ns) {
		bound *= 8;
	} else if (k->mean_ns * 20 < k->gap_ns) {
		bound *= 2;
	}
	return bound < inflight_min_ns ? inflight_min_ns : bound > inflight_max_ns ? inflight_max_ns : bound;
}

/* Stores for the next start of a program what was learned of it: the GPU time of a batch tenant, or the requests of a latency
 * tenant. */
static __always_inline void remember(u32 t)
{
	struct tenant *x = bpf_map_lookup_elem(&tenants, &t);
	struct profile *p = &stored, *before;
	long class_id = gbpf_tenant_class(t);
	struct account *a;
	u32 key = 0;

	a = gbpf_tenant_lookup(&accounts, t, &key);
	if (!x || !a || class_id < 0 || !x->program.command) {
		return;
	}
	if (class_id == GBPF_CLASS_LATENCY ? x->kind.bursts < way_min_seen : a->seen_ns < profile_min_ns) {
		return;
	}
	before = bpf_map_lookup_elem(&profiles, &x->program); /* a program may have run in both classes */
	if (before) {
		*p = *before;
	} else {
		__builtin_memset(p, 0, sizeof(*p));
	}
	if (class_id == GBPF_CLASS_LATENCY) {
		p->kind = x->kind;
	} else {
		p->seen_ns = a->seen_ns;
		p->block_ns = a->block_ns;
	}
	bpf_map_update_elem(&profiles, &x->program, p, BPF_ANY);
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
		/* Tenants that stop have the hold limit instead. */
		x->starved = (!x->stoppable || slices_serve) && busy < x->busy_ns + share_min_ns;
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

/* Whether nearly all recent GPU time of a tenant is stoppable. */
static __always_inline u32 is_stoppable(const struct tenant *x, const struct account *a)
{
	u32 percent = x->stoppable ? stays_stoppable_percent : shared_min_stoppable_percent;

	return a->recent_seen_ns && a->recent_block_ns * 100 >= a->recent_seen_ns * percent;
}

static __always_inline void scan_batch(struct scan *l, struct tenant *x, u32 t, u32 lane)
{
	struct account *a;
	u32 key = 0;
	int wants;

	a = gbpf_tenant_lookup(&accounts, t, &key);
	if (!a) {
		return;
	}
	wants = gbpf_tenant_stat(t, GBPF_STAT_INFLIGHT_NS) || a->held_ns + 3000000 > l->now_ns;
	x->stoppable = is_stoppable(x, a);
	check_share(x, t, wants, l->now_ns);
	l->starved |= x->starved;
	if (lane == GBPF_LANE_PROCESS) {
		l->longest_ns = a->longest_ns > l->longest_ns ? a->longest_ns : l->longest_ns;
		l->programs += x->program.command;
		l->known += a->recent_seen_ns != 0;
		l->stops += x->stoppable;
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
	if (x->stoppable ? n > 1 || (l->prefers_drain && !l->switching) : n == 1 && l->prefers_drain == l->latency) {
		return batch_slice_drain_us; /* it stops by itself, or had better drain */
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

/* Publishes what the scan found of batch. */
static __always_inline void publish_batch(struct scan *l)
{
	u32 stops = l->known && l->stops == l->known;

	l->changed = l->known && stops != batch_stops;
	batch_stops = l->known ? stops : batch_stops;
	longest_ns = l->longest_ns;
	batch_busy_ns = l->busy_ns;
	batch_programs = l->programs;
	batch_wants = l->wanting != 0;
	batch_alone = l->be - l->be_shared == 1;
}

static __always_inline void publish(const struct scan *l)
{
	latency_tenants = l->latency;
	latency_shared = l->lc_shared;
	other_tenants = l->be;
	other_shared = l->be_shared;
	hold_pays = l->often != 0;
	slices_serve = l->latency && !l->often && !l->switching && !no_slices && batch_alone;
	inflight_limit_ns = l->inflight_limit_ns;
	ticked_ns = l->now_ns;
}

/* Learns from what latency tenant i of the list did: its requests, then the way, then what follows from both. These are stages of
 * their own, so that the verifier need not follow each path of one through each of the next. */
static __always_inline void learn(struct scan *l, u32 i, u32 stage)
{
	u32 t = latency_list[i & (LATENCY_MAX - 1)];
	struct tenant *x = bpf_map_lookup_elem(&tenants, &t);
	struct kind *k;
	u64 bound;

	if (!x) {
		return;
	}
	k = &x->kind;
	if (stage == 0) {
		if (!k->syncs16) {
			k->prefers_drain = batch_stops;
		} else if (l->changed) {
			set_way(k, batch_stops, l->now_ns);
		}
		learn_latency(x, t, l->now_ns);
	} else if (stage == 1) {
		learn_way(x, l->now_ns);
	} else if (stage == 2) {
		if (x->seen.n) {
			set_way(k, choose_way(k, l->now_ns), l->now_ns);
		}
	} else {
		if (x->seen.n) {
			learn_close_delay(x);
		}
		close_delay_floor_ns[t & 1023] = close_delay_floor(k, x->lane);
		bound = inflight_limit_for(k);
		l->inflight_limit_ns = bound < l->inflight_limit_ns ? bound : l->inflight_limit_ns;
		l->often += !k->syncs16 || k->syncs16 >= hold_min_syncs_x16 || k->prefers_drain;
		l->prefers_drain += k->prefers_drain;
		l->switching |= batch_stops && k->ways.changed_ns && l->now_ns < k->ways.changed_ns + way_switch_ns;
	}
}

static __always_inline void scan_begin(struct scan *l, u64 now)
{
	u32 i;

	__builtin_memset(l, 0, sizeof(*l));
	l->now_ns = now;
	l->inflight_limit_ns = inflight_max_ns;
	l->next = l->first = NO_TURNS;
	bpf_for (i, 0, SHARED_TURNS_GPUS) {
		struct shared_turns *c = &shared_turns_of[i & (SHARED_TURNS_GPUS - 1)];

		c->wanting = c->have = 0;
		c->first = c->next = NO_TURNS;
	}
}

SEC("gbpf/tick")
int GBPF_PROG(auto_tick, tick)
{
	u32 i, t, n, again = ctx->epoch % 64 == 0, refused = 0, m;
	struct scan *l = &scan;

	scan_begin(l, ctx->now_ns);
	bpf_for (t, 0, ctx->tenants) {
		struct tenant *x = bpf_map_lookup_elem(&tenants, &t);
		long class_id = gbpf_tenant_class(t);

		if (!x || class_id < 0) {
			continue;
		}
		x->lane = gbpf_tenant_stat(t, GBPF_STAT_LANE) & 1;
		if (class_id == GBPF_CLASS_LATENCY) {
			latency_list[l->latency & (LATENCY_MAX - 1)] = t;
			l->latency++;
			l->lc_shared += x->lane;
		} else {
			l->be++;
			l->be_shared += x->lane;
			scan_batch(l, x, t, x->lane);
		}
	}
	publish_batch(l);
	l->often = l->latency > LATENCY_MAX; /* of the others nothing is learned */
	m = l->latency < LATENCY_MAX ? l->latency : LATENCY_MAX;
	bpf_for (i, 0, m) {
		learn(l, i, 0);
	}
	bpf_for (i, 0, m) {
		learn(l, i, 1);
	}
	bpf_for (i, 0, m) {
		learn(l, i, 2);
	}
	bpf_for (i, 0, m) {
		learn(l, i, 3);
	}
	publish(l);
	turns_advance(l);
	bpf_for (t, 0, SHARED_TURNS_GPUS) {
		shared_turns_advance(&shared_turns_of[t & (SHARED_TURNS_GPUS - 1)], l->lc_shared, l->now_ns);
	}
	bpf_for (t, 0, ctx->tenants) {
		struct tenant *x = bpf_map_lookup_elem(&tenants, &t);
		long class_id = gbpf_tenant_class(t);

		if (!x || class_id < 0) {
			continue;
		}
		waits_for_turn[t & 1023] = class_id != GBPF_CLASS_LATENCY && x->takes_turns && waits_shared(x, t);
		if (x->lane == GBPF_LANE_PROCESS) {
			u32 no = set_slice(x, t, slice_for(l, x, class_id), again);

			refused |= no && class_id != GBPF_CLASS_LATENCY;
		}
	}
	no_slices = refused;
	n = ctx->tenants;
	if (n && ctx->epoch % remember_ticks == 0) { /* one tenant at a time */
		remember((u32)(ctx->epoch / remember_ticks) % n);
	}
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
