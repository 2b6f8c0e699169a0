/* A queue, and the table of all. One member struct for each lock or feature; the fields of the
 * launch path come first. Marks: [atomic] any thread, through base/atomic.h; [agent] the agent
 * thread only; [L] guarded by s->lock. */
#ifndef GBPF_SCHED_QUEUE_INT_H
#define GBPF_SCHED_QUEUE_INT_H

#include "base/lock.h"
#include "sched/retire_int.h"
#include "sched/sched.h"
#include "sched/tally.h"

#define SCHED_DEFAULT_CLOSE_DELAY_NS 200000u
#define SCHED_FIFO_MAX 4096u /* deferred calls of a queue; beyond it callers wait */

/* sched_queue.pending is the queue's work that the driver does not have yet: in the low 31 bits the
 * number of deferred calls, in the FIFO or being submitted, and in the highest bit whether the
 * queue has a resumable run that may be unfinished. While it is 0, a launch goes straight to the
 * driver.
 *
 * Example: a launch runs at block level and a lease stops it: pending = SCHED_HAS_RUN. The program
 * copies the result on the same stream. The copy must not overtake the missing blocks, so it is
 * deferred, and a second copy, too: pending = SCHED_HAS_RUN | 2. When the last block has ended, the
 * bit is cleared; each submitted copy subtracts 1.
 *
 * Of similar names in the shim, shim_pending() returns whether any queue of the process has such
 * work, and sched_launch.behind means that a launch is ordered, through the legacy default stream,
 * behind the work of another queue. */
#define SCHED_HAS_RUN (1u << 31)

#define SCHED_KINDS 3u /* GBPF_KIND_COPY, MEMSET and GRAPH, in this order */

/* When the queue's work has ended, for the close of requests and for queues without markers. */
struct sched_idle {
	/* [atomic] A synchronization returned at sync_ns and saw the end of the first sync_seq
	 * launches (compare sched_queue.entered). */
	uint64_t sync_seq, sync_ns;
	uint64_t seen_seq,
		seen_ns; /* closer of the request: `entered` when last seen idle, and when */
	uint64_t quiet_since_ns, quiet_total; /* [agent] unchanged account of a mute queue */
	/* Closer of the request: since when the device cannot say whether the queue is idle, and
	 * `entered` then. */
	uint64_t unknown_since_ns, unknown_seq;
	uint32_t mark_each;	 /* [atomic] a marker is needed after each launch */
	uint64_t close_delay_ns; /* [atomic] last verdict of `retire` */
};

/* The parts of the sums that the statistics page includes already. [L] */
struct sched_published {
	uint64_t total, threads, taken, kinds[SCHED_KINDS], bytes;
};

/* Launches that the driver took, by kind, and the bytes of copies and memsets. */
struct sched_kinds {
	struct sched_tally n[SCHED_KINDS], bytes;
};

/* Use of an entry of the table by threads that found it there. */
struct sched_life {
	uint32_t live, closing, users; /* [atomic] */
};

/* Deferred calls that have not been given to the driver. */
struct sched_fifo {
	struct lock lock; /* guards first, last, submitting */
	struct sched_call *first, **last;
	uint64_t submitting; /* number of the call between the list and the driver; 0: none */
	uint64_t n_deferred, n_submitted; /* [atomic] calls that ever came and went */
};

/* The order of submission of deferred calls and of launches of a run. Guarded by `lock`, which is
 * taken before fifo.lock; a device call may be made under it. */
struct sched_issue {
	struct lock lock;
	bool next_is_plain; /* the first call must wait for the end of the run */
	uint64_t retry_ns;  /* the policy is not asked about the first call before; 0: at once */
	uint32_t n_asked;   /* how often it was asked about the first call */
	uint32_t why;	    /* of the latest answer that held it: enum proto_why */
	uint64_t held_since_ns; /* when it was first asked about it, or the group held it: the hold
				   limit counts from then; 0: not yet */
	uint64_t n_let;		/* launches that went by a verdict, not by a limit */
	uint32_t n_orders;	/* [atomic to read] calls submitted that were no launches */
	uint32_t n_extra;	/* [atomic] launches of gBPF's own that went with others */
	/* [atomic to read] Launches and orders submitted up to `marker`, with bit 31 set; 0: no
	 * marker has been placed yet. */
	uint32_t marker_seq;
	struct sched_marker marker; /* shows how far the stream has come */
	uint32_t beyond_marker;	    /* calls submitted beyond what queue_has_room allows */
};

/* Interruptions as charge_doubt() has seen them. Guarded by issue.lock. */
struct sched_run_doubt {
	uint32_t interruptions, futile;
	bool in_vain;	  /* no block has got through since the last one */
	uint64_t calm_ns; /* until then none was without an open request, or it was charged */
};

/* The queue's resumable run: launches at block level that follow each other. Guarded by
 * issue.lock unless marked. */
struct sched_run {
	uint32_t draining;	      /* [atomic] threads that wait for its end: nothing may join */
	uint64_t look_ns;	      /* [atomic] it needs no attention before */
	uint64_t step_ns, stepped_ns; /* when the device wants its next step; its last one */
	uint64_t scanned_ns;	      /* when the boards were scanned last */
	/* A request came: until then, or until suspect_done launches are through, blocks may be
	 * missing although the device shows no interruption yet. */
	uint64_t suspect_until_ns, suspect_done;
	uint64_t request_ns;	   /* shortest duration of recent requests, smoothed */
	uint64_t stopped_since_ns; /* 0: not interrupted */
	uint64_t held_since_ns;	   /* the minimum share accrues since then; 0: it does not */
	uint32_t interruptions;	   /* of the run, as accounted */
	struct sched_run_doubt doubt;
};

/* Launches that may follow without asking the policy (gbpf_submit_ctx.grant), and those that it was
 * not asked about since the last time. [atomic], but only the owner of `total` reads or writes it,
 * so plain loads and stores serve: the launch path avoids locked additions. The queue's close reads
 * it when no thread launches any more. */
struct sched_grant {
	uint64_t version;     /* of the policy that gave it */
	uint32_t left, n;     /* launches still allowed; those to be accounted */
	uint64_t ns, threads; /* estimated time of these; blocks times block size */
	uint64_t taken;	      /* granted launches since the queue was opened */
	uint64_t skipped_ns;  /* the GPU's when it was given; of the thread that uses it */
	uint64_t opened_ns;   /* begin of the request to which it is limited; 0: to none */
	uint64_t last_ns;     /* when the last launch of a request went by it */
	/* Accounted, and not reported to the policy yet. */
	uint32_t report_n;
	uint64_t report_ns;
};

/* Memory is type-stable: reused by later queues, freed by sched_destroy. */
struct sched_queue {
	struct sched *s;
	void *dev_queue;	       /* borrowed until close */
	uint32_t gpu, index, class_id; /* class_id [atomic] */
	int32_t priority;
	struct sched_grant grant;
	struct sched_tally total; /* SCHED_ACC of the launches that the driver took */
	uint64_t entered;	  /* [atomic] launches of a latency queue that began ... */
	struct sched_tally left;  /* ... and that the driver has taken or refused */
	uint64_t sample_at; /* [atomic] one of known duration is to be measured when `left` is this
			     */
	uint64_t unmarked_ns;	    /* [atomic] estimated work behind the last marker, about */
	uint32_t pending;	    /* [atomic] deferred calls, and SCHED_HAS_RUN; see there */
	uint32_t shared;	    /* [atomic] more than one thread has submitted to it */
	uint32_t guests;	    /* [atomic] threads at the gate that have no reader slot */
	uint64_t collective;	    /* [atomic] number of its newest collective; 0: none */
	struct sched_tally threads; /* blocks times block size */
	struct sched_kinds kinds;

	struct sched_ring marks ALIGNED(64);
	struct sched_idle idle;
	struct sched_published published;
	struct sched_life life;
	bool class_fixed;    /* [L] the policy chose its class */
	uint32_t sm_percent; /* share of the multiprocessors, set by queue_create */
	struct sched_fifo fifo;
	struct sched_issue issue;
	struct sched_run run;
	/* [atomic] 1 + progress of the queue at which a wait for it was given up; 0: none */
	uint64_t stall_token;
	int error; /* [atomic] first error of a deferred call since the last drain */
	struct sched_queue *next_free;
};

/* A known launch of a latency queue may be measured. That is rare, since it costs the program some
 * microseconds, but each kernel's first four launches are: until then its launches count as no GPU
 * time, or as far too much. */
static inline bool sched_latency_due(const struct sched_queue *q)
{
	return (int64_t)(sched_tally_sum(&q->left) - load_relaxed(&q->sample_at)) >= 0;
}

/* ---- queue.c ---- */

/* Keeps the queue from being closed until sched_queue_unuse. Returns false if it is closed or
 * closing; then it is not in use. */
bool sched_queue_use(struct sched_queue *q);
void sched_queue_unuse(struct sched_queue *q);
#define sched_queues_each(s, q)                                                                    \
	for (uint32_t q##_i = 0, q##_n = load_acquire(&(s)->table.n_queues); q##_i < q##_n;        \
	     q##_i++)                                                                              \
		for (struct sched_queue *q = load_acquire(&(s)->table.queues[q##_i]); q; q = NULL)

#endif
