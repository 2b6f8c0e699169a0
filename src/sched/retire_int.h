/* Learned durations, and the markers that show which launches have finished. Marks as in
 * queue_int.h. */
#ifndef GBPF_SCHED_RETIRE_INT_H
#define GBPF_SCHED_RETIRE_INT_H

#include "proto/pages.h"
#include "sched/sched.h"

#define SCHED_EST_CLASSES 8u /* launches of one kernel differ by their grid */
#define SCHED_BYTE_CLASSES 40u
#define SCHED_RING 64u
#define SCHED_MARK_NS 50000u /* estimated work after which a marker is placed */
/* First samples of an estimate: each is used and the shortest counts, and until then the estimate
 * is not certain. */
#define SCHED_FIRST_SAMPLES 4u
#define SCHED_MAX_EST_NS 60000000000u
/* A sample is corrected by at most this: if the launch came later, the driver loaded the kernel's
 * code, or the thread did not run and the launch may have begun long before the driver returned. */
#define SCHED_LATE_MAX_NS 25000u
#define SCHED_LATE_LEAST_NS 1000u /* no kernel counts as shorter for it */
/* The least by which other processes lengthen a measured time. Process lane: by turns, which are
 * longer than this in the shortest time slice that policies set. Shared lane: by kernels of any
 * length, which run at once or just before. */
#define SCHED_OTHERS_TURN_NS 1500000u
#define SCHED_OTHERS_KERNEL_NS 1u
#define SCHED_PENDING_POLL_NS 5000000u /* agent's period while work is on the device */
#define SCHED_AWAKE_NS 50000000u       /* and for this long after the last work */
#define SCHED_UNKNOWN_NS                                                                           \
	20000000u /* a mute queue that does not change for this long counts as idle */

/* Launches and their time in one word, so that one atomic addition accounts both: count in the low
 * 24 bits, units of 16 ns above. Only differences are used; they are exact while fewer than 2^24
 * launches and 4.8 h are in flight. */
#define SCHED_ACC(n, ns) ((uint64_t)(n) + (((uint64_t)(ns) >> 4) << 24))
#define SCHED_ACC_COUNT(acc) ((uint32_t)((acc)&0xffffffu))
#define SCHED_ACC_NS(acc) (((acc) >> 24) << 4)
/* A launch that was retired before the driver refused it (retire.c) leaves less than nothing. */
#define SCHED_ACC_BELOW_0(acc) ((acc)&0x800000u)

struct sched_estimate {	 /* [atomic], relaxed: a lost update costs one sample */
	uint64_t est_ns; /* 0: nothing measured yet */
	uint32_t interval, left, seen;
	uint32_t above;	 /* samples in a row that contained work of other processes */
	uint64_t low_ns; /* the shortest of these */
};

#define SCHED_KERNEL_STOPPABLE 1u
#define SCHED_KERNEL_PERSISTENT 2u

struct sched_kernel {
	uint64_t hash;
	uint64_t count;	      /* [atomic], relaxed: two threads at once may lose a launch */
	uint8_t communicates; /* [atomic] 1: with kernels on other GPUs; a graph: one of its */
	uint8_t newest;	      /* [atomic] SCHED_KERNEL_*: of the newest launch asked about */
	struct sched_estimate est[SCHED_EST_CLASSES];
	uint64_t block_ns; /* [atomic] learned duration of one block; 0: not known */
	/* [atomic], as count: of its launches, those that could be stopped between blocks, and of
	 * these the persistent ones, which do not stop inside. */
	uint64_t stoppable, persistent;
	uint8_t stop;	   /* [atomic] GBPF_STOP_* of the newest of these; NONE: there is none */
	uint8_t block_why; /* [atomic] enum proto_block_why */
	uint8_t form;	   /* [atomic] enum proto_form */
	char *form_why;	   /* owned; under s->lock; NULL: "" */
	/* Under s->lock, for the share that can be probed: */
	uint64_t graph_launches, graph_ns; /* as a node of graphs; of a graph, those of nodes that
					      cannot be changed */
	uint64_t covered;		   /* of a graph: its launches that count at its kernels */
	char name[PROTO_KERNEL_NAME];
};

struct sched_mark {
	struct sched_marker end, start; /* start.event NULL: not measured */
	uint64_t late_ns; /* time from the start marker to the launch, in which nothing ran */
	uint64_t total;	  /* the queue's total when it was placed */
	uint64_t begin_ns, est_ns, held_ns, version, hash;
	uint64_t collective;	    /* number of the newest one before it; 0: none */
	struct sched_estimate *est; /* borrowed; where the measurement goes */
	uint64_t run_seq; /* reached when this many launches of the run are through; 0: no run */
	uint32_t interruptions; /* of the run when it was placed */
	bool fed;		/* the run kept blocks back: no event could measure it */
	uint64_t took_ns; /* reached: what the run reports instead of a measurement; 0: nothing */
};

/* Markers of a queue that have not been retired. */
struct sched_ring {
	uint32_t lock;	     /* [atomic] only ever tried; guards the rest */
	uint32_t head, tail; /* [atomic to read] */
	uint64_t retired;    /* [atomic to read] SCHED_ACC of the launches known to have finished */
	uint64_t last_version, last_held_ns, last_hash; /* of the newest retired marker */
	uint64_t ended_collective; /* [atomic to read] number of the newest one that has ended */
	uint32_t last_level, last_interruptions;
	struct sched_mark entry[SCHED_RING];
};

struct sched_decision;

/* ---- kernel.c ---- */

/* Where durations of such launches are learned; NULL: nowhere. */
struct sched_estimate *sched_estimate_of(struct sched *s, const struct sched_launch *l);
/* Returns whether the launch is a copy under a policy that divides copies by bytes (copy_enqueue):
 * its time, which includes that of held pieces, is neither measured nor accounted as GPU time. */
bool sched_counts_bytes(const struct sched *s, const struct sched_launch *l);
/* Counts a launch; true: this one is to be measured. */
bool sched_estimate_due(struct sched_estimate *e);
/* Returns whether the estimate has fewer than SCHED_FIRST_SAMPLES samples, and may be far too long.
 * Samples that were left out count, too: next to others there may be no better ones for long. */
bool sched_estimate_is_new(const struct sched_estimate *e);
void sched_estimate_learn(struct sched_estimate *e, uint64_t measured_ns);
/* Returns true if a measured time contains work of other processes, as far as the estimate shows:
 * it is longer by at least others_ns, the least by which they lengthen one; 0: they do not. */
bool sched_estimate_is_above(const struct sched_estimate *e, uint64_t measured_ns,
			     uint64_t others_ns);
/* Learns a sample that other processes may have lengthened. One that is above the estimate is left
 * out, unless all have been for a while: then the kernel has become longer, and the shortest
 * of them counts. */
void sched_estimate_learn_shared(struct sched_estimate *e, uint64_t measured_ns,
				 uint64_t others_ns);
/* Counts a launch of the kernel that the driver has taken. */
void sched_kernel_count(struct sched_kernel *k, const struct sched_launch *l);
/* Counts a granted one: it is like the newest that the policy was asked about. */
void sched_kernel_count_granted(struct sched_kernel *k);
void sched_kernels_publish(struct sched *s, struct proto_stats *st);

/* ---- retire.c ---- */

struct sched_gpu;
/* The GPU was without work of the process until then: the time since it was last charged is not. */
void sched_charge_skip(struct sched_gpu *gpu, uint64_t until);

/* Before the driver's call: accounts the launch, and places a start marker if it is measured. */
void sched_launch_start(struct sched_ticket *t, const struct sched_decision *a);
/* After the driver's call; ok: it took the launch. */
void sched_launch_done(struct sched_ticket *t, bool ok);
/* Retires the markers that have been reached. True: something was retired. */
bool sched_retire_reached(struct sched_queue *q);
/* Likewise, for a queue of which everything up to total has finished, and the collectives up to
 * that number: q->collective before the look whether the queue is idle. */
bool sched_retire_idle(struct sched_queue *q, uint64_t total, uint64_t collective);
bool sched_retire_all(struct sched *s);
/* Places a marker behind launches that have none. */
void sched_mark_end(struct sched_queue *q);
void sched_marks_drop(struct sched_queue *q);
/* Agent: retires what no later launch or synchronization will notice. ns until the next call. */
uint64_t sched_inflight_step(struct sched *s, uint64_t now);
/* Returns whether collective_phase is still to be called for the end of a collective. */
bool sched_collectives_unseen(const struct sched *s);

#endif
