/* auto: the constants. Each states its unit in its name; "H200" marks a value that was chosen by
 * measurement on one (docs/POLICIES.md, docs/BENCHMARKS.md). To change one, copy auto.bpf.c and
 * this file (as auto/tunables.h next to it), and build the copy: `gbpf policy build auto.bpf.c`. */
#ifndef GBPF_POLICIES_AUTO_TUNABLES_H
#define GBPF_POLICIES_AUTO_TUNABLES_H

#include <gbpf/gbpf.bpf.h>

#define NSEC_PER_USEC 1000ull
#define NSEC_PER_MSEC 1000000ull
#define NSEC_PER_SEC 1000000000ull

/* ---- profiles and sharing mode (admit) ---- */

/* Part of a run's GPU time that leaves soon from which the program starts in the shared lane. */
const volatile u32 shared_min_stoppable_percent = 90;
/* Assumed duration of a kernel that was not measured yet. */
const volatile u64 unknown_kernel_ns = 100 * NSEC_PER_USEC;
/* GPU time of a run from which its profile is stored. */
const volatile u64 profile_min_ns = 50 * NSEC_PER_MSEC;
/* The profile of one tenant is stored in this number of ticks. */
const volatile u32 remember_ticks = 4;

/* ---- what is known of batch ---- */

/* A tenant that was stoppable remains so while this part of its recent GPU time is. */
const volatile u32 stays_stoppable_percent = 80;
/* Recent is its last GPU time, between one and two of these. */
const volatile u64 recent_ns = 250 * NSEC_PER_MSEC;
/* Its longest launch is that of the last one or two of these. */
const volatile u64 longest_window_ns = 1 * NSEC_PER_SEC;

/* ---- stopping a launch between its blocks (submit) ---- */

/* Shortest kernel that is worth the block level; shorter ones drain soon enough. Process lane,
 * where a context switch follows anyway; and shared lane, where queued kernels drain in turn. */
const volatile u64 preempt_min_kernel_ns = 20 * NSEC_PER_USEC;
const volatile u64 preempt_min_kernel_shared_ns = 8 * NSEC_PER_USEC;
/* The ticket of each block is noticeable in blocks shorter than the first; a kernel of such blocks
 * must be as long as the second. */
const volatile u64 short_block_ns = 4 * NSEC_PER_USEC;
const volatile u64 preempt_min_short_block_ns = 500 * NSEC_PER_USEC;
/* Likewise of machine code in the shared lane in blocks shorter than this, which leave soon enough
 * for a request that has priority, and in persistent launches. */
const volatile u64 short_block_shared_ns = 8 * NSEC_PER_USEC;
/* While there is no latency tenant, this many short launches of a queue go without asking after one
 * that was asked about. */
const volatile u32 grant_launches = 64;
/* In a request this many launches of a latency queue go without asking, or as many as come in the
 * second time, which is short against burst_gap_ns: bursts are counted where launches are seen. */
const volatile u32 grant_request_launches = 32;
const volatile u64 grant_request_ns = 250 * NSEC_PER_USEC;
/* Machine code from which a launch goes at block level. While such a launch is unfinished the
 * copies and further launches of its stream go through gBPF's thread, which costs a program of many
 * short launches more than half of its speed. */
const volatile u64 preempt_min_code_ns = 100 * NSEC_PER_USEC;
/* Work in flight up to which launches go that are shorter than that, by lane; and in the shared
 * lane up to which machine code goes whose gate is off although it is longer. */
const volatile u64 inflight_short_ns = 500 * NSEC_PER_USEC;
const volatile u64 inflight_short_shared_ns = 2 * NSEC_PER_MSEC;
const volatile u64 inflight_code_shared_ns = 500 * NSEC_PER_USEC;
/* A stoppable launch leaves within this; for a longer one a context switch and return cost less. */
const volatile u64 leave_max_ns = 500 * NSEC_PER_USEC;
/* Blocks that have not begun must begin and exit: ns per 1000 of them, H200 (docs/BENCHMARKS.md,
 * "Batch that is machine code only", "Queued"). A request waits for those that are left; when the
 * launch continues, those that have run exit in the same way. Of a clone at most exit_clone_max
 * blocks wait on the device. */
const volatile u64 exit_code_ns = 600;
const volatile u64 exit_clone_ns = 300;
const volatile u64 exit_clone_max = 32768;

/* ---- in-flight limit of launches that are not stoppable (submit) ---- */

/* Range of the limit. The maximum is also the limit where time slices serve the requests. */
const volatile u64 inflight_min_ns = 100 * NSEC_PER_USEC;
const volatile u64 inflight_max_ns = 8 * NSEC_PER_MSEC;
/* The limit until the first requests of a latency tenant were seen. */
const volatile u64 inflight_initial_ns = 1 * NSEC_PER_MSEC;
/* At least this much of a program that communicates across GPUs, in the process lane: while its GPU
 * is idle between two launches those of the others wait for it. Of the time that requests leave,
 * DDP has 0.83 with 0.5 ms, 0.91 with 1 ms, 0.97 with 2 ms, 0.98 with 4 ms; medians of four, two
 * H200. */
const volatile u64 inflight_group_ns = 2 * NSEC_PER_MSEC;
/* Maximum number of launches in flight while their durations are not known. */
const volatile u32 inflight_max_unknown = 2;

/* ---- bursts and kinds of requests ---- */

/* A pause this long separates two bursts. */
const volatile u64 burst_gap_ns = 1 * NSEC_PER_MSEC;
/* The end of the last burst is awaited, for a second at most, unless so many have begun. */
const volatile u32 bursts_awaited = 4;
/* Similar bursts that begin a new kind: 2, or kind_proof_mixed when the kind before had fewer
 * bursts than kind_min_bursts, or more than one in kind_max_odd that differed from its average. */
const volatile u32 kind_proof_mixed = 16;
const volatile u32 kind_min_bursts = 16;
const volatile u32 kind_max_odd = 16;
/* What is counted of a kind is halved at this number, so that it is of the recent bursts. */
const volatile u32 kind_window_bursts = 512;
/* After such a kind batch that stops is not sliced for this number of bursts. */
const volatile u32 kind_pure_bursts = 64;

/* ---- the way that gets batch in the process lane off the GPU ---- */

/* Pauses per burst, times 16, from which holding batch pays (1.5). */
const volatile u32 hold_min_syncs_x16 = 24;
/* Each return of batch costs a request two context switches; H200. */
const volatile u64 batch_return_ns = 300 * NSEC_PER_USEC;
/* A burst of this number of launches that is mostly idle counts as bound by the processor, and is
 * charged with this number of pauses. */
const volatile u64 gappy_min_launches = 16;
const volatile u32 gappy_gaps = 5;
/* Bursts from which the cost of the way in force counts as measured. */
const volatile u32 way_min_seen = 8;
/* Another way is cheaper if it saves a fifth of the cost, and this. */
const volatile u64 way_min_gain_ns = 50 * NSEC_PER_USEC;
/* Shortest time between two changes of the way for one kind, and between the first two trials; the
 * time between trials that fail doubles up to way_retry_max_ns. */
const volatile u64 way_keep_ns = 5 * NSEC_PER_SEC;
const volatile u64 way_retry_max_ns = 320 * NSEC_PER_SEC;
/* Time until the other way is tried again after a trial in which both took turns and one was kept. */
const volatile u64 way_kept_ns = 80 * NSEC_PER_SEC;
/* Bursts of the other way in a trial. Where ways are compared by means both have as many, and half of
 * them may do; else the way in force has as many before. A trial may fail after trial_min_bursts. */
const volatile u32 trial_bursts = 32;
const volatile u32 trial_min_bursts = 3;
/* Slices are tried where batch takes longer than this to stop. With 93 us both ways serve alike
 * (105 600 blocks of 30 us; H200). */
const volatile u64 trial_min_leave_ns = 60 * NSEC_PER_USEC;
/* In the shared lane, and for requests with gaps, ways cost the same if they differ by less than the
 * shortest request divided by the first, at most 50 us, or by the part of it that the operator sets,
 * and batch does more work if it is a sixteenth more; for others in the process lane 50 us, and a
 * quarter. */
const volatile u32 way_shared_tolerance = 8;
const volatile u32 way_shared_min_progress = 16;
/* Passing is tried where launches that pass are this part of batch's recent GPU time. */
const volatile u32 passing_min_short_percent = 50;
/* Next to requests that are bound by the processor, longer launches pass, too, if their blocks are
 * at most as long as the first, or as the shortest request divided by the second. Trials show
 * whether the kernels that wait for these are awaited. A launch that passes
 * runs to its end even if requests turn out to be slower next to it, so it is at most as long as the
 * third. Blocks of ResNet-50's batch normalization take 100 to 250 us, some of a GPT-2's training 1 to
 * 3 ms (H200), and one kernel that does not pass ends what batch has of a request. */
const volatile u64 passing_max_block_ns = 1 * NSEC_PER_MSEC;
const volatile u64 passing_request_blocks = 16;
const volatile u64 passing_max_ns = 50 * NSEC_PER_MSEC;
/* Time until a change between stopping and slices is in force: gates, slices, work in flight. */
const volatile u64 way_switch_ns = 10 * NSEC_PER_MSEC;

/* ---- the multiprocessors of batch in the shared lane (admit) ---- */

/* Part that a batch program has after passing with all of them has failed next to requests that are
 * bound by the processor, in percent. With nothing held next to GPT-2 that generates tokens, training
 * of a GPT-2 has 122, 112, 101 and 85 % of the time that requests leave on 100, 85, 70 and 50 %, and
 * requests take 1.30, 1.35, 1.09 and 1.08 of their time (H200). */
const volatile u32 confined_percent = 70;
/* A program is confined to that part if, held in requests, it has less of the time than the first, of
 * 1024; one that has more than the second has all multiprocessors again. */
const volatile u64 confined_below = 512;
const volatile u64 confined_never = 768;
/* Time after which a latency program that has left is not expected again. */
const volatile u64 confined_after_ns = 600 * NSEC_PER_SEC;

/* ---- announced requests (submit) ---- */

/* Last launch before an announced request. Process lane: a context switch and a tail; shared lane:
 * a few blocks, and there stoppable launches leave lease_lead_shared_us before it. */
const volatile u64 announce_lead_ns = 320 * NSEC_PER_USEC;
const volatile u64 announce_lead_shared_ns = 180 * NSEC_PER_USEC;
const volatile u32 lease_lead_shared_us = 150;

/* ---- the close delay (retire) ---- */

const volatile u64 close_delay_min_ns = 10 * NSEC_PER_USEC;
const volatile u64 close_delay_max_ns = 2 * NSEC_PER_MSEC;
/* Minimum in the process lane, where a return of batch costs two context switches, unless each
 * burst was one request with one synchronization. */
const volatile u64 close_delay_process_min_ns = 200 * NSEC_PER_USEC;
/* Maximum that is learned in the shared lane, where a return of batch costs one block. */
const volatile u64 close_delay_shared_max_ns = 60 * NSEC_PER_USEC;

/* ---- held launches ask again after this (submit) ---- */

/* Held for an open request: gBPF wakes the launch when the request ends. */
const volatile u64 hold_retry_ns = 5 * NSEC_PER_MSEC;
/* Held for a turn, which tick passes on, or for own work on the GPU. */
const volatile u64 ask_again_ns = 1 * NSEC_PER_MSEC;
/* Held for an announced request: this time after it should have come. */
const volatile u64 announce_wait_ns = 1 * NSEC_PER_MSEC;

/* ---- time slices in the process lane (tick) ---- */

/* One batch tenant. 1 us gives it 0 % while a request runs; H200. */
const volatile u32 batch_slice_us = 1;
/* One batch tenant next to requests that are bound by the processor: of requests of 100 kernels with
 * 60 us of work after each batch has 72 % with 2 ms, 76 with 10, and they take 1.01 of their time, if
 * it is switched off 2 ms before their end; H200. A request of another kind waits for a whole slice, so
 * at most one in gaps_max_odd bursts, later in gaps_stay_odd, may be of one. */
const volatile u32 batch_slice_gaps_us = 5000;
const volatile u32 gaps_max_odd = 24;
const volatile u32 gaps_stay_odd = 16;
/* It is switched off before such a request has lasted as long as the shortest one, of which this is at
 * most a quarter. With 0.7 ms P50 is 1.03, and trials fail; H200. */
const volatile u64 gaps_end_ns = 1 * NSEC_PER_MSEC;
/* Batch that stops by itself, or had better drain: the device's usual slice. */
const volatile u32 batch_slice_drain_us = 2000;
/* Several batch tenants, whose turns may overlap. */
const volatile u32 batch_slice_turns_us = 100;
/* A starved tenant, and latency tenants next to it: 200 of 10000 is a share of 2 %. */
const volatile u32 batch_slice_starved_us = 200;
const volatile u32 latency_slice_starved_us = 10000;
/* One latency tenant; several of them. */
const volatile u32 latency_slice_us = 100000;
const volatile u32 latency_slice_several_us = 5000;
/* A tenant is starved if it got less GPU time than share_min_ns (2 %) in this window. */
const volatile u64 share_window_ns = 300 * NSEC_PER_MSEC;
const volatile u64 share_min_ns = 6 * NSEC_PER_MSEC;

/* Slices are set again in this number of ticks: a refusal may show only once the tenant has
 * started. */
const volatile u32 slice_again_ticks = 64;

/* ---- turns of several batch tenants (tick) ---- */

/* Longest turn in the process lane. All tenants have a turn in turn_round_ns, which must be below
 * the hold limit (100 ms). */
const volatile u64 turn_max_ns = 40 * NSEC_PER_MSEC;
const volatile u64 turn_round_ns = 80 * NSEC_PER_MSEC;
/* Work of the previous turn that may still be in flight when the next begins. */
const volatile u64 turn_overlap_ns = 300 * NSEC_PER_USEC;
/* The next turn begins after this although work of the previous one is left: a long kernel. With a
 * turn before it this must be below the hold limit. */
const volatile u64 turn_drain_max_ns = 40 * NSEC_PER_MSEC;
/* Shared lane: from this number of wide batch tenants on two at a time run; 0: never. More would
 * fill every SM, and the first blocks of a request crowd where the first block leaves: 177 us
 * instead of 65 (DISB workload C, H200). */
const volatile u32 shared_turns_min_tenants = 3;
/* A tenant wants the GPU for this long after its last launch was held. */
const volatile u64 wants_after_hold_ns = 3 * NSEC_PER_MSEC;
/* Threads per launch that make a tenant wide: a sixth of a large GPU. */
const volatile u64 shared_turns_min_threads = 40000;
/* Longest turn there. */
const volatile u64 shared_turn_ns = 10 * NSEC_PER_MSEC;

/* ---- preemption from outside (preempt): time for which a request has waited ---- */

/* ... for a tenant that still has work on the GPU; if its blocks should have left by themselves. */
const volatile u64 preempt_after_ns = 300 * NSEC_PER_USEC;
const volatile u64 lease_ignored_after_ns = 20 * NSEC_PER_MSEC;
/* Time slices do not serve a request that waits for this and twice its usual duration. */
const volatile u64 late_after_ns = 1 * NSEC_PER_MSEC;
/* A tenant that cannot be switched off has its slice cut after this. */
const volatile u64 slice_after_ns = 3 * NSEC_PER_MSEC;
/* Shared lane: the tenant's process is ended after this; 0: never. */
const volatile u64 end_after_ns;
/* Published values older than this are ignored: gbpfd is not running. */
const volatile u64 stale_ns = 50 * NSEC_PER_MSEC;

#endif
