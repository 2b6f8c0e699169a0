/* auto: latency-critical tenants at their own speed, batch work in all that they leave, and nothing to be configured. The
 * recommended policy: it chooses lane, level, bounds and time slices for each pair from what it sees them do.
 *
 * Use it with gbpf run --class latency for what somebody waits for and --class batch for the rest. The rest includes class
 * normal, which is treated like batch but never moved to the shared lane. Among batch programs it is fair, no more: use
 * fair, shares or cfs where all are batch and weights matter.
 *
 * What it knows, and where from (docs/POLICIES.md has the measurements):
 *  - Kernels with a twin (made from PTX) stop between blocks within microseconds, best in the shared lane, where there is no
 *    context switch (~145 us on an H200).
 *  - Library kernels without PTX run worst in the shared lane: they do not stop, and priorities do not help a long queue.
 *    They are best off in the process lane with a very short time slice for batch. A request that is one long queue of
 *    launches then needs nothing else, and batch need not even be held. But each time a request synchronizes, or its next
 *    launch is late, batch comes back, and leaving again costs two switches: beside requests with pauses batch is held, and
 *    where it costs less what it has on the GPU may finish, at the usual slice.
 *  - Two batch programs with very short slices would do nothing but switch: they take turns.
 *
 * How it decides:
 *  admit		the lane is fixed before a program has loaded anything, so the first run of a program is in the process lane
 *		(where its crash also harms nobody). What share of its GPU time could be stopped between blocks is remembered
 *		by user and program: batch of which nearly all can starts in the shared lane from then on, and latency
 *		programs go where the batch programs are.
 *  submit	while a request is open batch holds, unless slices alone serve it. Otherwise what can be stopped between
 *		blocks goes at block level, large grids in pieces; the rest goes within a bound that follows how long
 *		requests are, and how often they come. Announced requests find the GPU empty.
 *  preempt	who keeps the GPU nevertheless loses it: slice, then off (process lane); in the shared lane its blocks stop, and
 *		its process is ended only if end_after_ns says so.
 *  retire	a request lingers for a little longer than the pauses that gBPF has found worth it, and for longer still
 *		while requests turn out to end too early.
 *  tick		learns, hands the turns on, sets slices: very short for batch while there is a latency tenant, longer for who
 *		starves. Who stops between blocks keeps the usual slice: with a short one its last blocks would be cut off, and
 *		come back in each gap of the request (40 synchronized kernels: 13 ms instead of 0.7, on an H200). Takes
 *		slices back when the last latency tenant has left. */
#include <gbpf/gbpf.bpf.h>

GBPF_LICENSE("Apache-2.0");

/* lanes */
const volatile u32 shared_from_percent = 90;	/* of its GPU time can be stopped between blocks: batch starts in the shared lane */
const volatile u64 unknown_ns = 100000;		/* what a kernel counts until its duration is known: some launches */
const volatile u64 known_from_ns = 50000000;	/* GPU time that one must have had before that is remembered */
/* block level */
const volatile u64 worth_ns = 20000;		/* kernels shorter than this drain soon enough, */
const volatile u64 worth_shared_ns = 8000;	/* in the shared lane, where what several have queued drains one after the other, this, */
const volatile u64 block_short_ns = 4000;	/* and when their blocks are shorter than this, which makes a ticket each dear, */
const volatile u64 worth_short_ns = 500000;	/* those shorter than this */
/* in-flight bound of what cannot be stopped */
const volatile u64 least_bound_ns = 100000;
const volatile u64 most_bound_ns = 8000000;
const volatile u64 first_bound_ns = 1000000;	/* beside latency tenants whose requests nobody has seen */
const volatile u32 unknown_limit = 2;		/* launches, while durations are not known yet */
/* requests */
const volatile u32 often_syncs = 24;		/* sixteenths of synchronizations a request from which holding pays (1.5) */
const volatile u64 back_ns = 300000;		/* what batch coming back in a pause and leaving again costs a request, slices being short */
const volatile u64 launches_many = 16;		/* of one request, which are short together: the processor is slower than the GPU, */
const volatile u32 pauses_many = 5;		/* and the GPU has pauses; so many of them cost */
const volatile u64 ahead_ns = 320000;		/* so long before an announced request nothing new: a switch, and the tail of it; */
const volatile u64 ahead_shared_ns = 180000;	/* some blocks, in the shared lane, */
const volatile u32 lead_shared_us = 150;	/* where so long before it what can be stopped between blocks leaves */
const volatile u64 burst_ns = 1000000;		/* a pause so long is between requests, whatever was learned */
const volatile u64 linger_least_ns = 10000, linger_most_ns = 2000000;
const volatile u64 linger_process_ns = 200000;	/* at least, in the process lane, where batch coming back costs two switches: */
						/* unless every request so far had one synchronization and was one burst */
const volatile u64 linger_shared_ns = 60000;	/* is the most that is learned in the shared lane: batch coming back costs a block there */
const volatile u64 hold_ns = 5000000;		/* asks again after so long even if nothing changes */
/* time slices in the process lane, microseconds */
const volatile u32 batch_slice_us = 1;
const volatile u32 batch_slice_stops_us = 2000; /* of who stops between blocks, or had better drain: that must end, not be cut off */
const volatile u32 batch_slice_many_us = 100;	/* with several batch programs: their turns may touch */
const volatile u32 batch_slice_hungry_us = 200; /* for who had less than the minimum share, */
const volatile u32 latency_slice_hungry_us = 10000; /* beside this for latency tenants: a share of 2 % */
const volatile u32 latency_slice_us = 100000;
const volatile u32 latency_slice_many_us = 5000; /* with several latency tenants */
const volatile u64 share_window_ns = 300000000; /* in which batch must have had its minimum, */
const volatile u64 share_least_ns = 6000000;	/* so much GPU time */
const volatile u64 turn_most_ns = 40000000;
const volatile u64 turns_ns = 80000000;		/* in which everybody has had one: less than gBPF's hold limit */
const volatile u64 touch_ns = 300000;		/* of one turn may still be on the GPU when the next begins */
/* the shared lane */
const volatile u32 crowd_from = 3;		/* from so many batch programs on a GPU two at a time run there: more fill each multiprocessor, */
						/* and a request's first blocks then crowd where the first one leaves; 0: never. */
const volatile u64 crowd_threads = 40000;	/* Those with so many threads a launch: some sixth of what a large GPU holds */
const volatile u64 crowd_turn_ns = 10000000;
/* stopping from outside */
const volatile u64 patience_ns = 300000;	/* of a request that others keep waiting */
const volatile u64 ignored_after_ns = 20000000; /* of one that should have left by itself, at the end of its blocks */
const volatile u64 slice_after_ns = 3000000;	/* where it cannot be switched off */
const volatile u64 end_after_ns;		/* shared lane: the process is ended after this; 0: never */
const volatile u64 stale_ns = 50000000;		/* without a tick for so long (gbpfd is gone) what it published is not used */

enum { CROWD_GPUS = 8 };
enum { HELD_FOR_REQUEST, HELD_FOR_ANNOUNCED, HELD_FOR_BOUND, HELD_FOR_TURN, BLOCK_LEVEL, SLICED, SWITCHED_OFF, FED };

#define NOBODY 0xffffffffu /* there are no turns */
#define FREE 1024u	   /* there are, but nobody has one */

/* ---- what each tenant's own programs count ---- */

struct account {
	/* of latency tenants */
	u64 end_ns; /* when its launches so far have finished, by their estimates */
	u64 bursts; /* how often it launched after a pause of burst_ns */
	u64 launches, known, known_ns; /* of them those whose duration was known, and what they take */
	/* of the others */
	u64 seen_ns;  /* estimated GPU time of its launches, ever */
	u64 block_ns; /* of that, what could be stopped between blocks */
	u64 held_ns;  /* when a launch was last held for its turn, or in the shared lane */
	u64 threads;  /* most of a launch lately */
	u64 longest_ns; /* of its launches lately */
};

struct {
	__uint(type, GBPF_MAP_ARRAY);
	__uint(max_entries, 1);
	__uint(map_flags, GBPF_F_TENANT);
	__type(key, u32);
	__type(value, struct account);
} accounts SEC(".maps");

/* ---- what gbpfd remembers ---- */

/* Of programs, across their runs. */
struct program {
	u64 command;
	u32 uid, gpu;
};
struct profile {
	u64 seen_ns, block_ns; /* as in the account, of its last run that was long enough */
};

struct {
	__uint(type, GBPF_MAP_LRU_HASH);
	__uint(max_entries, 1024);
	__uint(map_flags, GBPF_F_DAEMON);
	__type(key, struct program);
	__type(value, struct profile);
} profiles SEC(".maps");

/* Of tenants that are there: written by admit and tick. */
struct tenant {
	struct program who;
	u64 requests, syncs, request_ns, bursts; /* at the look before */
	u64 launches, known, known_ns;
	u64 syncs16, mean_ns, gap_ns;    /* a request: synchronizations, in sixteenths; time; from begin to begin */
	u64 looked_ns;
	u64 launches16, gpu_ns;		 /* its launches, in sixteenths; their time on the GPU */
	u64 linger_ns;			 /* latency: what it takes for requests not to end too early */
	u64 busy_ns, since_ns; /* batch: GPU time at the beginning of the share window, and when that was */
	u32 slice_us, set;     /* what it has been given, 1 when it has been given any */
	u32 hungry;	       /* had less than its minimum in the last share window */
	u32 refused;	       /* its slice cannot be set */
	u32 whole;	       /* latency: each burst was one request */
	u32 drains;	       /* latency: it is better served when what batch has on the GPU may finish */
	u32 stops;	       /* nearly all that it launches can be stopped between blocks */
	u32 pid, crowd;	       /* its process; batch in the shared lane: 1 + its GPU, 0: it takes no turns, since it has several */
	u32 wide;	       /* so many threads that it takes turns there */
};

struct {
	__uint(type, GBPF_MAP_ARRAY);
	__uint(max_entries, 1024);
	__uint(map_flags, GBPF_F_DAEMON);
	__type(key, u32);
	__type(value, struct tenant);
} tenants SEC(".maps");

/* ---- what gbpfd publishes ---- */

u32 latency_tenants, latency_shared;	  /* how many there are, and how many of them in the shared lane */
u32 others, others_shared;
u32 last_batch_lane;			  /* of who came last */
u32 hold_pays = 1;			  /* slices alone do not serve the requests */
u32 no_slices;				  /* time slices cannot be set here */
u32 turn = NOBODY;			  /* whose turn it is among batch in the process lane, FREE or NOBODY */
u32 leaving = FREE;			  /* whose turn is over; what it has on the GPU still runs */
u32 last_turn;
u64 turn_since_ns;
u64 bound_ns = 100000;
u64 longest_ns;				  /* launch of batch in the process lane that cannot be stopped */
u8 waits_its_turn[1024];		  /* batch in the shared lane */
u32 linger_floor_ns[1024];		  /* of a latency tenant: its requests linger at least so long */
u64 ticked_ns;

/* ---- admit: the lane ---- */

static __always_inline u32 lane_of_new_batch(const struct profile *p)
{
	if (!p || p->seen_ns < known_from_ns || p->block_ns * 100 < p->seen_ns * shared_from_percent) {
		return GBPF_LANE_PROCESS;
	}
	return latency_tenants && !latency_shared ? GBPF_LANE_PROCESS
											: GBPF_LANE_SHARED;
}

static __always_inline u32 lane_of_new_latency(void)
{
	if (others) {
		return others_shared < others ? GBPF_LANE_PROCESS : GBPF_LANE_SHARED;
	}
	return last_batch_lane;
}

SEC("gbpf/admit")
int GBPF_PROG(auto_admit, admit)
{
	struct program who = { .command = ctx->command, .uid = ctx->uid, .gpu = ctx->gpu };
	u32 lane = GBPF_LANE_PROCESS, number = ctx->tenant, several;
	struct tenant *t = bpf_map_lookup_elem(&tenants, &number);

	if (!t) {
		return GBPF_ADMIT;
	}
	several = t->pid == ctx->pid;
	__builtin_memset(t, 0, sizeof(*t));
	t->who = who;
	t->pid = ctx->pid;
	t->crowd = several ? 0 : 1 + (ctx->gpu & (CROWD_GPUS - 1));
	if (ctx->class_id == GBPF_CLASS_LATENCY) {
		lane = lane_of_new_latency();
	} else if (ctx->class_id == GBPF_CLASS_BATCH) {
		lane = lane_of_new_batch(ctx->command ? bpf_map_lookup_elem(&profiles, &who) : (void *)0);
		ctx->priority = 1;
	}
	if (ctx->lane == GBPF_LANE_PROCESS && ctx->lanes & 1u << (lane & 1)) {
		ctx->lane = lane; /* else the shared one was asked for */
	}
	if (ctx->class_id == GBPF_CLASS_BATCH) {
		last_batch_lane = ctx->lane & 1;
	}
	if (ctx->class_id == GBPF_CLASS_LATENCY) {
		ctx->rhythm = 1;
		ctx->lead_us = ctx->lane == GBPF_LANE_SHARED ? lead_shared_us : 0;
	}
	linger_floor_ns[number & 1023] = ctx->lane == GBPF_LANE_PROCESS ? (u32)linger_process_ns : 0;
	if (ctx->lane == GBPF_LANE_PROCESS && ctx->class_id != GBPF_CLASS_LATENCY && ctx->latency_tenants) {
		ctx->slice_us = ctx->tenants > ctx->latency_tenants ? batch_slice_many_us : batch_slice_us;
		t->slice_us = ctx->slice_us;
		t->set = 1;
	}
	return GBPF_ADMIT;
}

/* ---- submit ---- */

static __always_inline int stops_quickly(const struct gbpf_submit_ctx *ctx)
{
	u64 worth = ctx->lane == GBPF_LANE_SHARED ? worth_shared_ns : worth_ns;

	worth = ctx->block_ns && ctx->block_ns < block_short_ns ? worth_short_ns : worth;

	return ctx->block_ok && (!ctx->est_ns || ctx->est_ns >= worth);
}

/* One launch may always be on the GPU: a kernel longer than the bound must run too. */
static __always_inline int within(const struct gbpf_submit_ctx *ctx, u64 bound)
{
	if (!ctx->inflight || ctx->kind >= GBPF_KIND_HOST) {
		return 1;
	}
	return ctx->est_ns ? ctx->inflight_ns + ctx->est_ns <= bound : ctx->inflight < unknown_limit;
}

static __always_inline int hold(struct gbpf_submit_ctx *ctx, u32 why, u64 ns)
{
	if (!ctx->asked) {
		gbpf_note(why, 1);
	}
	ctx->hold_ns = ns;
	return GBPF_HOLD;
}

/* An announced request comes before this launch would be out of its way. */
static __always_inline int in_the_way(const struct gbpf_submit_ctx *ctx, int stops)
{
	u64 ahead = ctx->lane == GBPF_LANE_SHARED ? ahead_shared_ns : ahead_ns;

	if (ctx->lc_next_ns == ~0ull || ctx->kind >= GBPF_KIND_HOST) {
		return 0;
	}
	return ctx->lc_next_ns < ahead || (!stops && ctx->lc_next_ns < ctx->inflight_ns + ctx->est_ns + ahead &&
					   ctx->lc_next_ns < most_bound_ns);
}

/* A latency program launches: does a burst begin? */
static __always_inline void count_burst(struct account *a, u64 now, u64 est_ns)
{
	u64 end = a->end_ns;

	if (now > end + burst_ns) {
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
	int stops, ticking = ctx->now_ns < ticked_ns + stale_ns;
	u64 bound = ticking ? bound_ns : least_bound_ns;
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
		u64 est = ctx->est_ns || ctx->kind != GBPF_KIND_KERNEL ? ctx->est_ns : unknown_ns;

		a->seen_ns += est; /* about is enough: no atomics */
		a->block_ns += ctx->block_ok ? est : 0;
		note_threads(a, ctx);
		a->longest_ns = est > a->longest_ns ? est : a->longest_ns - a->longest_ns / 256;
	}
	if (ticking && !latency_tenants && !ctx->lc_open) {
		return GBPF_GO; /* nobody to be quick for */
	}
	stops = stops_quickly(ctx);
	if (ctx->lc_open) {
		a->held_ns = ctx->lane == GBPF_LANE_SHARED ? ctx->now_ns : a->held_ns;
		if (stops || hold_pays || no_slices || !ticking || ctx->lane == GBPF_LANE_SHARED) {
			return hold(ctx, HELD_FOR_REQUEST, hold_ns); /* gBPF wakes it when the request ends */
		}
		bound = most_bound_ns; /* the hardware's slices serve the request */
	} else if (in_the_way(ctx, stops)) {
		return hold(ctx, HELD_FOR_ANNOUNCED, ctx->lc_next_ns + 1000000);
	}
	if (ticking && ctx->kind < GBPF_KIND_HOST &&
	    (ctx->lane == GBPF_LANE_PROCESS ? turn != NOBODY && turn != ctx->tenant : waits_its_turn[ctx->tenant & 1023])) {
		a->held_ns = ctx->now_ns;
		return hold(ctx, HELD_FOR_TURN, 1000000);
	}
	if (stops) {
		gbpf_note(BLOCK_LEVEL, 1);
		ctx->level = GBPF_LEVEL_BLOCK;
		return GBPF_GO; /* gBPF cuts large grids */
	}
	return within(ctx, bound) ? GBPF_GO : hold(ctx, HELD_FOR_BOUND, 1000000);
}

/* In a process with both kinds of streams: latency first, then by CUDA priority, then who has waited longest. */
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

/* ---- retire: how long a request lingers ---- */

SEC("gbpf/retire")
int GBPF_PROG(auto_retire, retire)
{
	u64 linger = ctx->gap_ns + ctx->gap_ns / 4, floor = linger_floor_ns[ctx->tenant & 1023];

	if (ctx->class_id == GBPF_CLASS_LATENCY) {
		floor = floor < linger_least_ns ? linger_least_ns : floor;
		linger = linger < floor ? floor : linger;
		ctx->linger_ns = linger < linger_most_ns ? linger : linger_most_ns;
	}
	return 0;
}

/* ---- preempt: who keeps the GPU although a request waits ---- */

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
		return waited >= patience_ns && ctx->tried == GBPF_LEVEL_NONE && ctx->levels & 1 << GBPF_LEVEL_BLOCK
			       ? GBPF_LEVEL_BLOCK
			       : GBPF_LEVEL_NONE;
	}
	/* Slices alone serve the request: that others have work on the GPU beside it does no harm. */
	if (!hold_pays && !no_slices) {
		return GBPF_LEVEL_NONE;
	}
	/* Who starves is left alone, and what will have left before a control takes effect (a millisecond). */
	x = bpf_map_lookup_elem(&tenants, &number);
	if (waited < patience_ns || (ctx->inflight_ns && ctx->inflight_ns < patience_ns && waited < slice_after_ns) ||
	    (x && x->hungry)) {
		return GBPF_LEVEL_NONE;
	}
	/* What has been stopped between blocks still counts as in flight, but is not on the GPU. */
	if (x && x->stops && waited < ignored_after_ns) {
		return GBPF_LEVEL_NONE;
	}
	/* Requests that synchronize: batch would come back in each gap. */
	if (ctx->tried != GBPF_LEVEL_OFF && ctx->levels & 1 << GBPF_LEVEL_OFF) {
		gbpf_note(SWITCHED_OFF, 1);
		return GBPF_LEVEL_OFF;
	}
	if (waited >= slice_after_ns && ctx->tried == GBPF_LEVEL_NONE && ctx->levels & 1 << GBPF_LEVEL_SLICE) {
		gbpf_note(SLICED, 1);
		return GBPF_LEVEL_SLICE;
	}
	return GBPF_LEVEL_NONE;
}

/* ---- tick ---- */

/* What one look at all tenants finds. */
struct look {
	u64 now_ns;
	u64 bound_ns;	      /* the least that a latency tenant needs */
	u64 longest_ns;
	u32 drains;	      /* latency tenants that batch had better drain for */
	u32 latency, often;   /* those; whose requests synchronize often, or are not known yet */
	u32 lc_shared, be, be_shared; /* latency tenants and others in the lanes */
	u32 wanting, next;    /* batch in the process lane that wants the GPU; who of them comes after the one whose turn it is */
	u32 first;	      /* the first one of them */
	u32 holder_wants;
	u32 hungry;
};
/* Batch in the shared lane of a GPU, of which two at a time run when there are many. */
struct crowd {
	u64 since_ns;	     /* the newer turn's begin */
	u64 many_ns;	     /* when there were many last */
	u32 turn[2];	     /* who has them; NOBODY */
	u32 older, last;     /* whose turn began first; who got one last */
	u32 wanting, have;   /* found by this look: who wants the GPU; bits: holders of turns that do */
	u32 first, next;     /* the first that wants one and has none; who of them comes after the last one */
};
struct crowd crowds[CROWD_GPUS];
struct look look; /* of the tick that runs; not on its stack: the verifier would tell apart what it finds */

static __always_inline u64 average(u64 old, u64 new)
{
	return old ? old - old / 4 + new / 4 : new;
}

/* Pauses are learned, which may go wrong: when there are more requests than bursts they end too early. Up to four times
 * what such a piece of a burst takes; where pauses are longer than that batch may come back. In the shared lane to wait
 * for longer than batch coming back takes gains nothing. */
static __always_inline void correct_linger(struct tenant *x, u32 lane, u64 requests, u64 bursts, u64 took_ns)
{
	u64 limit = lane == GBPF_LANE_SHARED ? linger_shared_ns : linger_most_ns;
	u64 most = 4 * (took_ns / requests), ns = x->linger_ns;

	most = most < limit ? most : limit;
	x->whole = requests * 16 <= bursts * 18;
	if (requests * 16 > bursts * 20) {
		ns = ns ? 2 * ns : linger_least_ns;
	} else if (x->whole) {
		ns -= ns / 8;
	}
	x->linger_ns = ns < most ? ns : most;
}

/* How long requests of a latency tenant linger at least. */
static __always_inline u32 least_linger(const struct tenant *x, u32 lane)
{
	int short_is_right = lane == GBPF_LANE_SHARED || (x->whole && x->syncs16 && x->syncs16 < often_syncs);

	return (u32)(short_is_right || x->linger_ns > linger_process_ns ? x->linger_ns : linger_process_ns);
}

/* Few are measured; what they take says what all take. Where none was, nothing is said. */
static __always_inline void learn_launches(struct tenant *x, const struct account *a, u64 n)
{
	u64 launches = a->launches - x->launches, known = a->known - x->known;

	x->launches16 = average(x->launches16, launches * 16 / n + 1);
	if (known) {
		x->gpu_ns = average(x->gpu_ns, (a->known_ns - x->known_ns) / known * launches / n + 1);
	}
}

/* What batch has on the GPU when a request comes can be cut off by short slices: then it comes back in each pause of the
 * request, for nothing, and leaves again, which takes longer than many pauses. Or it may finish: half of its longest launch,
 * on the average, and then the request is alone, since batch is held. Pauses are after synchronizations, and between many
 * short launches. The first choice keeps a margin against the other. */
static __always_inline u32 better_drained(const struct tenant *x)
{
	u64 pauses16 = x->syncs16;
	u64 cost = longest_ns / 2;

	if (x->launches16 >= 16 * launches_many && x->gpu_ns && x->gpu_ns * 2 < x->mean_ns) {
		pauses16 += 16 * (u64)pauses_many;
	}
	cost = x->drains ? cost / 2 : cost;
	return longest_ns && pauses16 * back_ns / 16 > cost + back_ns;
}

/* How a latency tenant's requests are, from what was added since the look before. What counts as one request are its bursts:
 * while the linger is not learned yet gBPF may have taken each of its gaps for the end of a request. */
static __always_inline void learn_latency(struct tenant *x, u32 t, u32 lane, u64 now)
{
	u64 requests = gbpf_tenant_stat(t, GBPF_STAT_REQUESTS), syncs = gbpf_tenant_stat(t, GBPF_STAT_SYNCS);
	u64 took = gbpf_tenant_stat(t, GBPF_STAT_REQUEST_NS), bursts, n;
	struct account *a;
	u32 key = 0;

	a = gbpf_tenant_lookup(&accounts, t, &key);
	bursts = a ? a->bursts : 0;
	n = bursts - x->bursts;
	if (requests < x->requests || bursts < x->bursts || !x->looked_ns) {
		n = 0; /* another program has the number now */
	} else if (n < 8 && now < x->looked_ns + 1000000000) {
		return;
	} else if (requests > x->requests) {
		n = n ? n : 1; /* always busy */
		x->syncs16 = average(x->syncs16, (syncs - x->syncs) * 16 / n + 1);
		x->mean_ns = average(x->mean_ns, (took - x->request_ns) / n + 1);
		x->gap_ns = average(x->gap_ns, (now - x->looked_ns) / n + 1);
		if (a) {
			learn_launches(x, a, n);
		}
		x->drains = better_drained(x);
		correct_linger(x, lane, requests - x->requests, n, took - x->request_ns);
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
	x->looked_ns = now;
}

/* How much that cannot be stopped may be on the GPU when a request comes: a quarter of what the request takes, and more
 * the less often one comes. */
static __always_inline u64 bound_for(const struct tenant *x)
{
	u64 bound = x->mean_ns ? x->mean_ns / 4 : first_bound_ns;

	if (x->mean_ns * 100 < x->gap_ns) {
		bound *= 8;
	} else if (x->mean_ns * 20 < x->gap_ns) {
		bound *= 2;
	}
	return bound < least_bound_ns ? least_bound_ns : bound > most_bound_ns ? most_bound_ns : bound;
}

/* What a batch tenant's launches were like, for its next start. */
static __always_inline void remember(struct tenant *x, const struct account *a)
{
	struct profile p = { .seen_ns = a->seen_ns, .block_ns = a->block_ns };

	if (x->who.command && a->seen_ns >= known_from_ns) {
		bpf_map_update_elem(&profiles, &x->who, &p, BPF_ANY);
	}
}

/* Has it had its minimum share? Only who always has work on the GPU, or is held, can starve. */
static __always_inline void watch_share(struct tenant *x, u32 t, int wants, u64 now)
{
	u64 busy = gbpf_tenant_stat(t, GBPF_STAT_BUSY_NS);

	if (!wants) {
		x->hungry = 0;
		x->since_ns = 0;
	}
	if (!x->since_ns || busy < x->busy_ns) {
		x->since_ns = now;
		x->busy_ns = busy;
	} else if (now >= x->since_ns + share_window_ns) {
		x->hungry = !x->stops && busy < x->busy_ns + share_least_ns; /* who stops goes by the hold limit */
		if (x->hungry) {
			gbpf_note(FED, 1);
			gbpf_preempt_now(t, GBPF_LEVEL_HOLD);
		}
		x->since_ns = now;
		x->busy_ns = busy;
	}
}

static __always_inline void join_crowd(const struct tenant *x, u32 t)
{
	struct crowd *c = &crowds[(x->crowd - 1) & (CROWD_GPUS - 1)];

	c->wanting++;
	if (t == c->turn[0] || t == c->turn[1]) {
		c->have |= t == c->turn[0] ? 1 : 2;
		return;
	}
	if (c->first == NOBODY) {
		c->first = t;
	}
	if (c->next == NOBODY && t > c->last) {
		c->next = t;
	}
}

/* One turn goes on in a look: that of who does not want it, or the older one when it is over. Many are many for a while: who
 * wants nothing between two of its own requests is back at once. */
static __always_inline void pass_on(struct crowd *c, u32 latency, u64 now)
{
	u32 next = c->next != NOBODY ? c->next : c->first, slot;
	u64 length = turns_ns / (c->wanting ? c->wanting : 1);

	length = length < crowd_turn_ns / 2 ? length : crowd_turn_ns / 2;
	if (crowd_from && c->wanting >= crowd_from) {
		c->many_ns = now;
	}
	if (!latency || !c->many_ns || now > c->many_ns + crowd_turn_ns) {
		c->turn[0] = c->turn[1] = NOBODY;
	} else if (next != NOBODY && (c->have != 3 || now >= c->since_ns + length)) {
		slot = !(c->have & 1) ? 0 : !(c->have & 2) ? 1 : c->older & 1;
		c->turn[slot] = c->last = next;
		c->older = slot ^ 1;
		c->since_ns = now;
	}
}

static __always_inline u8 waits(const struct tenant *x, u32 t)
{
	const struct crowd *c = &crowds[(x->crowd - 1) & (CROWD_GPUS - 1)];

	return c->turn[0] != NOBODY && t != c->turn[0] && t != c->turn[1];
}

static __always_inline void look_at_batch(struct look *l, struct tenant *x, u32 t, u32 lane, u32 learn)
{
	struct account *a;
	u32 key = 0;
	int wants;

	a = gbpf_tenant_lookup(&accounts, t, &key);
	if (!a) {
		return;
	}
	wants = gbpf_tenant_stat(t, GBPF_STAT_INFLIGHT_NS) || a->held_ns + 3000000 > l->now_ns;
	x->stops = a->seen_ns && a->block_ns * 100 >= a->seen_ns * shared_from_percent;
	if (learn) {
		remember(x, a);
	}
	watch_share(x, t, wants, l->now_ns);
	l->hungry |= x->hungry;
	if (lane == GBPF_LANE_PROCESS && !x->stops && a->longest_ns > l->longest_ns) {
		l->longest_ns = a->longest_ns;
	}
	x->wide = lane == GBPF_LANE_SHARED && x->crowd && a->threads >= crowd_threads;
	if (wants && x->wide) {
		join_crowd(x, t);
	}
	if (wants && lane == GBPF_LANE_PROCESS) {
		l->wanting++;
		l->holder_wants |= t == turn;
		if (l->first == NOBODY) {
			l->first = t;
		}
		if (l->next == NOBODY && t > last_turn) {
			l->next = t;
		}
	}
}

/* Hands the turn on when it is over: first nobody launches, until what the last one has on the GPU has nearly finished. Where
 * slices are not short there are no turns. */
static __always_inline void hand_on(const struct look *l)
{
	u64 length = turns_ns / (l->wanting ? l->wanting : 1);
	u32 next = l->next != NOBODY ? l->next : l->first;

	length = length < turn_most_ns ? length : turn_most_ns;
	if (!l->latency || l->be - l->be_shared < 2 || no_slices) {
		turn = NOBODY;
		leaving = FREE;
		return;
	}
	if (turn == NOBODY) {
		turn = FREE;
	}
	if (turn != FREE && next != turn && next != NOBODY && (l->now_ns >= turn_since_ns + length || !l->holder_wants)) {
		leaving = turn;
		turn = FREE;
	}
	if (turn == FREE && next != NOBODY && gbpf_tenant_stat(leaving, GBPF_STAT_INFLIGHT_NS) <= touch_ns) {
		turn = last_turn = next;
		leaving = FREE;
		turn_since_ns = l->now_ns;
	}
}

/* The time slice that a tenant should have; 0: the device's own. */
static __always_inline u32 slice_for(const struct look *l, const struct tenant *x, long class_id)
{
	u32 n = l->be - l->be_shared;

	if (!l->latency || !n) {
		return 0;
	}
	if (class_id == GBPF_CLASS_LATENCY) {
		return l->hungry ? latency_slice_hungry_us : l->latency > 1 ? latency_slice_many_us : latency_slice_us;
	}
	if (x->stops || (n == 1 && l->drains == l->latency)) {
		return batch_slice_stops_us;
	}
	return x->hungry ? batch_slice_hungry_us : n > 1 ? batch_slice_many_us : batch_slice_us;
}

/* Asks anew now and then: that it cannot be done may only show when the tenant has started. True: it is refused. */
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

static __always_inline void publish(const struct look *l)
{
	latency_tenants = l->latency;
	latency_shared = l->lc_shared;
	others = l->be;
	others_shared = l->be_shared;
	hold_pays = l->often != 0;
	bound_ns = l->bound_ns;
	longest_ns = l->longest_ns;
	ticked_ns = l->now_ns;
}

SEC("gbpf/tick")
int GBPF_PROG(auto_tick, tick)
{
	u32 t, n = ctx->tenants < 1024 ? ctx->tenants : 1024, learn = ctx->epoch % 64 == 0, refused;
	struct look *l = &look;

	__builtin_memset(l, 0, sizeof(*l));
	l->now_ns = ctx->now_ns;
	l->bound_ns = most_bound_ns;
	l->next = l->first = NOBODY;
	bpf_for (t, 0, CROWD_GPUS) {
		struct crowd *c = &crowds[t & (CROWD_GPUS - 1)];

		c->wanting = c->have = 0;
		c->first = c->next = NOBODY;
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
			linger_floor_ns[t & 1023] = least_linger(x, lane);
			bound = bound_for(x);
			l->bound_ns = bound < l->bound_ns ? bound : l->bound_ns;
			l->latency++;
			l->lc_shared += lane;
			l->often += !x->syncs16 || x->syncs16 >= often_syncs || x->drains;
			l->drains += x->drains;
		} else if (class_id >= 0) {
			l->be++;
			l->be_shared += lane;
			look_at_batch(l, x, t, lane, learn);
		}
	}
	publish(l);
	hand_on(l);
	bpf_for (t, 0, CROWD_GPUS) {
		pass_on(&crowds[t & (CROWD_GPUS - 1)], l->lc_shared, l->now_ns);
	}
	refused = 0;
	bpf_for (t, 0, n) {
		struct tenant *x = bpf_map_lookup_elem(&tenants, &t);
		long class_id = gbpf_tenant_class(t);

		if (x && class_id >= 0) {
			waits_its_turn[t & 1023] = class_id != GBPF_CLASS_LATENCY && x->wide && waits(x, t);
		}
		if (x && class_id >= 0 && (gbpf_tenant_stat(t, GBPF_STAT_LANE) & 1) == GBPF_LANE_PROCESS) {
			u32 no = set_slice(x, t, slice_for(l, x, class_id), learn);

			refused |= no && class_id != GBPF_CLASS_LATENCY;
		}
	}
	no_slices = refused;
	return 0;
}

/* The slices that it gave are the policy's: they go with it. */
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
