/* auto: what is known. Maps and global variables, the thread that writes each of them, and what is
 * kept across runs of a program. Programs in tenants write `accounts` only; gbpfd's write the rest,
 * and programs in tenants read what is published at the end of this file. */
#ifndef GBPF_POLICIES_AUTO_STATE_H
#define GBPF_POLICIES_AUTO_STATE_H

#include "tunables.h"

static __always_inline u64 min_u64(u64 a, u64 b)
{
	return a < b ? a : b;
}

static __always_inline u64 max_u64(u64 a, u64 b)
{
	return a > b ? a : b;
}

/* GPUs whose batch tenants take turns in the shared lane, and latency tenants whose requests are
 * learned (gbpfd publishes the boards of 64). */
enum { SHARED_TURNS_GPUS = 8, LATENCY_MAX = 64 };

/* Counters of gbpf_note(), shown by `gbpf policy show`: how often each decision was made. */
enum {
	NOTE_HELD_REQUEST,
	NOTE_HELD_ANNOUNCED,
	NOTE_HELD_INFLIGHT,
	NOTE_HELD_TURN,
	NOTE_BLOCK_LEVEL,
	NOTE_SLICED,
	NOTE_SWITCHED_OFF,
	NOTE_STARVED,
};

#define NO_PROGRAMS (~0ull)  /* ways.batch while nothing is known of the ways */
#define NO_TURNS 0xffffffffu /* turn while tenants do not take turns */
#define TURN_FREE 1024u	     /* ... while they do, but none has the turn */

/* How passing serves requests: not known; it is in force, and measured; trials have failed, and the
 * requests are open for most of the time; or they are so seldom that it matters little. */
enum { PASSING_UNKNOWN, PASSING_SERVES, PASSING_FAILS, PASSING_SELDOM };

/* ---- counted by the programs that run in each tenant; the tenant may write any value ---- */

struct account {
	/* latency tenants */
	u64 end_ns;    /* estimated end of all its launches so far, ns */
	u64 bursts;    /* launches that followed a pause of burst_gap_ns */
	u64 launch_ns; /* time of the last launch */
	u64 span_ns;   /* time from the first to the last launch of each burst, summed, ns */
	u64 launches;  /* all launches, */
	u64 known;     /* those with a known duration, */
	u64 known_ns;  /* and their summed duration, ns */
	/* other tenants */
	u64 seen_ns; /* estimated GPU time of all its launches, ns */
	u64 soon_ns; /* part of seen_ns whose launches leave within leave_max_ns: short or stoppable
		      */
	u64 held_ns; /* time of the last hold for a turn, or of any hold in the shared lane */
	u64 threads; /* largest launch, decaying by 1/256 per launch */
	u64 recent_seen_ns;    /* as seen_ns; halved when it exceeds 2 recent_ns */
	u64 recent_block_ns;   /* as soon_ns, of stoppable launches only; halved as well */
	u64 recent_short_ns;   /* part of recent_seen_ns in short launches, */
	u64 recent_passing_ns; /* in these and those with short blocks; halved as well */
	u64 longest_ns; /* longest time that a launch takes to leave, last and this window, ns */
	u64 window_longest_ns; /* the same of this window, ns */
	u64 window_ns;	       /* start of this window */
};

struct {
	__uint(type, GBPF_MAP_ARRAY);
	__uint(max_entries, 1);
	__uint(map_flags, GBPF_F_TENANT);
	__type(key, u32);
	__type(value, struct account);
} accounts SEC(".maps");

/* ---- kept by gbpfd ---- */

/* The two ways to get batch off the GPU (auto.bpf.c, 2): in the process lane sliced or leaving, in
 * the shared lane passing or leaving. */
enum { WAY_SLICED, WAY_LEAVING, WAY_PASSING = WAY_SLICED };

/* What is known of them for one kind of requests next to certain batch programs. By way: */
struct ways {
	u64 cost_ns[2];	 /* measured cost per burst, ns */
	u64 noise_ns;	 /* mean difference between the costs of two bursts in a row, ns */
	u64 last_ns;	 /* cost of the last one, */
	u32 last_way;	 /* and its way */
	u64 progress[2]; /* batch's GPU time per time, of 1024 */
	u32 seen[2];	 /* bursts measured, up to trial_bursts */
	/* Of the choice: */
	u64 changed_ns; /* time of the last change; 0: none */
	u64 retry_ns;	/* until then the cost of the way that is not in force counts as known */
	u64 wait_ns;	/* time between the last trial and retry_ns */
	u64 leave_ns;	/* longest_ns when the measurement began */
	u64 batch;	/* the batch programs next to which it was made */
	u32 guesses;	/* changes for this kind that were not measured */
	u32 moved;	/* 1: there was one that was */
	u32 trial;	/* 1: a way is being tried, */
	u32 tried;	/* this one; where ways are compared by means, in turn with the other one */
	u32 run;	/* bursts measured since the last of these turns began */
	u32 stops;	/* 1: batch was stoppable */
};

/* What was learned of a latency tenant's requests: averages of one kind of bursts. */
struct kind {
	u64 syncs16;	/* synchronizations per burst, times 16; 0: nothing is known */
	u64 mean_ns;	/* duration of a burst, ns */
	u64 gap_ns;	/* distance from start to start, ns */
	u64 launches16; /* launches per burst, times 16; their GPU time, ns */
	u64 gpu_ns;
	u64 best_ns;	    /* shortest burst of this kind, forgotten slowly */
	u64 ends_ns;	    /* the same, not scaled by launches */
	u64 close_delay_ns; /* close delay with which requests do not end too early */
	u64 bursts,
		odd_bursts; /* since the kind began; those of them that differ from its average */
	struct ways ways;
	u32 way;	  /* WAY_SLICED or WAY_LEAVING: in force as far as this tenant decides */
	u32 single_burst; /* 1: each burst was one request */
	u32 proof;	  /* similar bursts that begin a new kind */
	u32 lane;	  /* lane in which all this was measured */
	u32 gaps;	  /* 1: bursts had gaps that batch may fill, at the last scan */
};

/* A program, recognized across its runs by user and command. */
struct program {
	u64 command;
	u32 uid, gpu;
};

/* The multiprocessors that a batch program has at its next start in the shared lane: all; a part, since
 * passing with all of them cost requests too much; or all, since with a part it did as well. */
enum { PART_ALL, PART_CONFINED, PART_USELESS };

/* A program's last run, kept for its next start; both parts if it has run in both classes. */
struct profile {
	u64 seen_ns, soon_ns; /* batch: as in struct account, of a run longer than profile_min_ns */
	u64 part;	      /* batch: PART_* */
	struct kind kind;     /* latency */
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
	u64 requests, syncs, launches, took_ns;
	u64 n;	       /* bursts; 0: nothing is to be learned */
	u64 bursts_ns; /* their duration; longer than took_ns where requests are parts of bursts */
	u64 measured;  /* 1: they say what the way in force costs */
};

/* A present tenant; written by admit and tick. */
struct tenant {
	struct program program;
	/* latency: counters at the previous scan, and its time */
	u64 requests, syncs, request_ns, bursts, span_ns;
	u64 launches, known, known_ns;
	u64 scanned_ns;
	u64 batch_busy_ns;		 /* GPU time of batch at the last burst; 0: unknown */
	u64 odd_syncs16, odd_launches16; /* means of a row of bursts that differ from the kind, */
	u64 odd_bursts;			 /* and their number */
	u64 close_requests, close_bursts, close_took_ns; /* since the close delay was corrected */
	struct seen seen;				 /* of this scan */
	struct seen sample; /* bursts that are not measured yet, since_ns the scan before them */
	struct kind kind;				 /* its requests */
	/* batch */
	u64 busy_ns, since_ns; /* GPU time at the start of the share window; that start */
	u64 busy_seen_ns;      /* GPU time at the last scan */
	u32 odd;	       /* latency: similar bursts in a row that differ from the kind */
	u32 slice_us, set;     /* time slice that it was given, us; 1: it was given one */
	u32 starved;	       /* 1: got less than share_min_ns in the last window */
	u32 refused;	       /* 1: its slice could not be set */
	u32 stoppable;	       /* 1: nearly all its recent GPU time is stoppable */
	u32 sm_percent;	       /* part of the multiprocessors that it was given; 0: all, */
	u32 part_lost;	       /* or, if 1, whatever it was before gbpfd started */
	u32 pid;	       /* its process */
	u32 turns_gpu;	       /* 1 + its GPU, or 0: it uses several GPUs and takes no turns */
	u32 takes_turns;       /* 1: shared lane, and wide enough to take turns there */
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

/* 1: batch programs whose profile is not known yet start in the shared lane, and so do latency
 * programs before the first batch program. Requests are faster from the first start on; a program
 * that crashes can end its neighbours there. */
u32 start_shared;
/* By how much requests with gaps, and all in the shared lane, may take longer if batch gains by it, in
 * percent of the shortest request, in each lane; 1000 at most. */
u32 way_shared_percent = 3;
u32 way_process_percent = 5;
/* Part of the multiprocessors that a batch program which starts in the shared lane may use, in percent,
 * 1 to 100: next to one of them some have no blocks for which kernels of requests wait. 0: auto
 * chooses, for each program; above 100: as 100. */
u32 batch_sm_percent;

static __always_inline u32 shared_percent(void)
{
	return (u32)min_u64(way_shared_percent, 1000);
}

/* ---- published by gbpfd ---- */

u32 latency_tenants, latency_shared; /* latency tenants; those in the shared lane */
u32 other_tenants, other_shared;     /* all others; those in the shared lane */
u64 latency_seen_ns;		     /* time of the last scan that found a latency tenant; 0: none */
struct program last_batch;	     /* the batch tenant admitted last */
u32 last_batch_lane, batch_seen;     /* its lane; 1: there was one */
u32 hold_pays = 1;		     /* 1: time slices alone do not serve the requests */
u32 no_slices;			     /* 1: time slices cannot be set on this machine */
u32 short_passes; /* 1: short launches of batch in the shared lane go while a request is open */
u32 have_gaps;	  /* 1: requests have gaps that batch may fill: so do those with short blocks */
u64 passing_block_ns; /* that short, at most */
u32 slices_serve; /* 1: slices alone get batch in the process lane off the GPU; its gates are off */
u64 inflight_limit_ns = 100000;
/* Process lane: the tenant that has the turn, TURN_FREE or NO_TURNS; the one whose turn is over
 * while its work still runs; the one that got the last turn; when that turn, or the pause after it,
 * began. */
u32 turn = NO_TURNS;
u32 turn_ending = TURN_FREE;
u32 last_turn;
u64 turn_since_ns;
/* Batch tenants in the process lane; in the shared lane where all tenants are there. */
u32 batch_lane;	    /* that lane */
u32 way_percent;	    /* part of a request by which ways may differ that cost the same, there */
u64 longest_ns;	    /* longest time that a launch of them takes to leave */
u64 batch_busy_ns;  /* their GPU time */
u64 batch_programs; /* sum of the hashes of their programs */
u32 batch_wants;    /* 1: one of them wants the GPU */
u32 batch_stops;    /* 1: they are stoppable, or in the shared lane */
u32 batch_short;    /* 1: much of the GPU time of one of them is in short launches */
u32 batch_passes;   /* 1: ... in launches that are short or have short blocks */
u32 batch_alone;    /* 1: there is one */
u32 passing;	    /* PASSING_*: how passing serves the requests next to the only batch tenant */
/* Latency tenants that want both ways: where batch stops it leaves for all of them, else it is
 * sliced. */
u32 judged_tenants; /* those whose requests are known, or that have one now */
u32 way_in_force;   /* for batch in the process lane */
/* By tenant. */
u8 waits_for_turn[1024];	/* 1: held until its turn in the shared lane */
u32 close_delay_floor_ns[1024]; /* minimum close delay of a latency tenant */
u64 ticked_ns;			/* time of the last tick, after which all of this is written */

#endif
