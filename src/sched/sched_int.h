/* The state of one process, and the parts that its files share. The state of one group of files
 * is in its own header: queue_int.h, retire_int.h, request_int.h, decision_int.h, run_int.h.
 *
 * Words that several threads write are read and written through base/atomic.h. Marks: [atomic] any
 * thread; [agent] the agent thread only; [L] guarded by s->lock; [section] read inside a read-side
 * section (policy/read.h), replaced by publishing and policy_synchronize. docs/LOCKING.md lists the
 * order of the locks and the pairs of atomics. */
#ifndef GBPF_SCHED_SCHED_INT_H
#define GBPF_SCHED_SCHED_INT_H

#include <pthread.h>

#include "base/strmap.h"
#include "bpf/run/policy_image.h"
#include "policy/ctx.h"
#include "sched/gap.h"
#include "policy/read.h"
#include "sched/rhythm.h"
#include "sched/sched.h"
#include "sched/tally.h"

#define MAX_PREPARED 8u
#define NO_PREPARED MAX_PREPARED /* index of an entry that is always empty */
#define EST_CLASSES 8u		 /* launches of one kernel differ by their grid */
#define BYTE_CLASSES 40u
#define RING 64u
#define MARK_NS 50000u /* a marker after so much estimated work */
#define MAX_EST_NS 60000000000u
#define WAIT_CAP_NS 2000000u	 /* longest single wait; then off, swaps and limits are looked at */
#define POLL_NS 30000u		 /* polling own work */
#define OPEN_POLL_NS 40000u	 /* agent, while a request is open */
#define STEADY_NS 1000000u	 /* agent: statistics and idle queues are looked at no more often */
#define PENDING_POLL_NS 5000000u /* agent, while work is on the device */
#define AWAKE_NS 50000000u	 /* agent: stays on its slow poll for so long after the last work */
#define UNKNOWN_NS 20000000u /* then a queue that the device cannot speak of counts as drained */
#define DEFAULT_LINGER_NS 200000u
#define MAX_LINGER_NS 10000000u
#define SPIN_NS 100000u		     /* shortest linger for whose end the agent does not spin */
#define STALL_NS 1000000000u	     /* a request in which nothing moves for so long is cut */
#define REQUEST_MOST_NS 10000000000u /* ... or that is open for so long without a pause */
#define CUT_POLL_NS 1000000u
#define REQUESTS_KEPT 8u
/* A thread that was torn away while it looked at a request holds nobody up for longer. */
#define STOLEN_NS 1000000000u
#define LEASE_NS 20000000u /* leases run out by themselves */
#define RENEW_NS 5000000u
#define LEAD_NS 300000u			   /* leases go up so long before an announced request, */
#define LEAD_SHARED_NS 60000u		   /* in the shared lane: a block or two */
#define LATE_NS 5000000u		   /* which may come so much later */
#define SCHED_ANNOUNCE_MAX_NS 10000000000u /* ... and be announced so long before */
#define WRONG_MAX 3u			   /* wrong ones in a row, */
#define MUTE_NS 1000000000u		   /* then they are ignored for so long */
#define CHAINED (1u << 31)	/* in a queue's `deferred`: it has a chain that may be unfinished */
#define AHEAD_HALF 192u		/* calls behind a marker that was not reached: twice so many */
#define AHEAD_FAR 384u		/* and so many more where somebody waits in vain */
#define FAR_NS 200000000u	/* for so long: longer than leases stop blocks */
#define FIFO_MAX 4096u		/* deferred calls of a queue, then callers wait */
#define CHAIN_QUIET_NS 1000000u /* how often a chain is looked at that nobody waits for */

/* Launches and their time in one word, so that one atomic add accounts both: count in the low 24
 * bits, units of 16 ns above. Only differences are ever looked at; they are exact while fewer than
 * 2^24 launches and 4.8 h are in flight. */
#define SCHED_ACC(n, ns) ((uint64_t)(n) + (((uint64_t)(ns) >> 4) << 24))
#define SCHED_ACC_COUNT(acc) ((uint32_t)((acc)&0xffffffu))
#define SCHED_ACC_NS(acc) (((acc) >> 24) << 4)

struct sched_estimate {	 /* all [atomic], relaxed: a lost update costs one sample */
	uint64_t est_ns; /* 0: nothing measured yet */
	uint32_t interval, left, seen;
};

struct sched_kernel {
	uint64_t hash;
	uint64_t count; /* relaxed; two threads that launch it at once may lose one */
	struct sched_estimate est[EST_CLASSES];
	uint64_t block_ns; /* [atomic] learned duration of one block; 0: not known */
	uint8_t block_why; /* [atomic] enum ptx_block_why */
	char name[PROTO_KERNEL_NAME];
};

struct policy_version {
	uint64_t version; /* [section] */
	uint32_t life;	  /* [A] of struct sched, when it was prepared */
	struct ebpf_policy policy;
	uint64_t failures[POLICY_HOOKS][PROTO_FAILURES];
};

struct sched_mark {
	struct sched_marker end, start; /* start.event NULL: not measured */
	uint64_t total;			/* the queue's total when it was put */
	uint64_t begin_ns, est_ns, held_ns, version, hash;
	struct sched_estimate *est; /* borrowed; where the measurement goes */
	uint64_t run;		/* reached when so many launches of the chain are through; 0: not
				   of a chain */
	uint32_t interruptions; /* of the chain, as of then */
	bool fed;		/* the chain held some of it back: no event could measure it */
	uint64_t took_ns; /* reached: what the chain saw instead of a measurement; 0: nothing */
};

/* Of the agent thread. [agent] unless marked. */
struct sched_queue {
	struct sched *s;
	void *dev_queue;	       /* borrowed until close */
	uint32_t gpu, index, class_id; /* class_id [atomic] */
	int32_t priority;
	struct sched_tally total;   /* [atomic] ACC of launches that the driver took */
	uint64_t entered;	    /* [atomic] launches of a latency queue that came in ... */
	uint64_t left;		    /* [atomic] ... and that the driver has taken or refused */
	uint64_t unmarked_ns;	    /* [atomic] about */
	uint32_t deferred;	    /* [atomic] calls in the FIFO or being issued, and CHAINED */
	uint32_t shared;	    /* [atomic] more than one thread has submitted to it */
	uint32_t guests;	    /* [atomic] threads without a slot that are just submitting */
	struct sched_tally threads; /* [atomic] blocks times block size */

	uint32_t ring_lock ALIGNED(64); /* tried, never waited for */
	uint32_t head, tail;		/* under ring_lock; read anywhere */
	uint64_t retired;		/* ACC, under ring_lock; read anywhere */
	uint64_t retired_version, retired_held_ns,
		retired_hash; /* [atomic] enum sched_agent_sleep */
	uint32_t retired_level, retired_interruptions;
	struct sched_mark ring[RING]; /* where the next pass over FIFOs begins */
	uint64_t sync_seq, sync_ns;   /* [atomic] a synchronization saw everything up to entered ==
					 sync_seq finished */
	uint64_t drained, drain_ns;   /* [A] entered when it was last seen idle, and when */
	uint64_t quiet_since, quiet_total;	 /* [A] likewise, of any queue */
	uint64_t unknown_since, unknown_entered; /* [A] the device could not say since then */
	uint32_t marks_all;
	uint64_t linger_ns; /* a launch was forced lately: the share accrues until then */
	uint64_t published; /* accrued up to then */
	uint64_t published_threads;

	uint32_t live, closing, users; /* [atomic] who looks at a queue of the table is a user */
	bool class_fixed;	       /* [L] the policy chose its class */
	uint32_t sm_percent;	       /* of the multiprocessors, as of queue_create */

	pthread_mutex_t fifo_lock; /* the list */
	pthread_mutex_t issue_lock;

	/* Settings of announcements. [atomic] */
	struct sched_call *first, **last;
	uint64_t issuing; /* under fifo_lock: number of the call that is no more in the list, and
			     not yet with the driver; 0: none */
	uint64_t put, issued; /* SCHED_LEAD_AUTO, or how early leases are raised */
	uint64_t still;	      /* how early a kernel is launched in process mode; 0: not */
	uint32_t draining;    /* [atomic] threads that wait for the chain's end: nothing joins it */
	bool plain_next;      /* enum sched_rhythm */
	uint64_t retry_ns;    /* under issue_lock: not asked again before */
	uint32_t asked;	      /* under issue_lock: about the first call */
	uint32_t orders;      /* under issue_lock: calls issued that were no launches */
	uint32_t way;

	/* [L] to write; entries never change once set, so any thread reads them. */
	struct sched_marker way_mark;  /* or 0: none yet */
	uint32_t far;		       /* under issue_lock: calls issued beyond that way */
	uint64_t chain_ns;	       /* [atomic] the chain need not be looked at before */
	uint64_t step_ns, stepped_ns;  /* under issue_lock: nor the device; its last look */
	uint64_t looked_ns;	       /* under issue_lock: the last look at others */
	uint64_t doubt_ns, doubt_done; /* under issue_lock: a request came; see chain.c */
	uint64_t request_ns;	       /* under issue_lock: what those last at least, lately */
	uint64_t stopped_ns, held_since_ns;
	uint32_t interruptions; /* under issue_lock: of the chain, as counted */
	int error;
	struct sched_queue *next_free;
};

enum request_state { REQUEST_CLOSED, REQUEST_OPEN, REQUEST_CUT };

/* [L] */
struct sched_request {
	uint32_t open;	      /* [atomic] enum request_state */
	uint32_t ahead;	      /* [atomic] leases are up for an announced request */
	uint64_t opened_ns;   /* [atomic] */
	uint64_t idle_ns;     /* [atomic] queues idle since then, and no launch since; 0: no */
	uint64_t gap_ns;      /* [atomic] learned: lingering so long is worth it; 0: it is not */
	uint64_t next_ns;     /* [atomic] announced for; 0: none */
	uint64_t deadline_ns; /* [atomic] of the open request; 0: none */
	uint64_t lease_ns;    /* [atomic] leases stand until then; 0: none are up */
	uint64_t next_deadline_ns ALIGNED(64); /* [atomic] of the announced one */
	struct sched_gaps gaps;
	uint64_t late_ns;   /* [atomic] how late that may come */
	uint32_t announced; /* [atomic] grows with each announcement */
	uint32_t closing; /* [atomic] odd: taken, never waited for, by who looks whether it ends */
	uint32_t linger_short; /* [atomic] a synchronization's thread may close it at once */
	uint64_t linger_ns;    /* under closing: as of the last look */
	uint64_t looked_ns;    /* [atomic] opened_ns when the agent last looked at it */
	uint64_t lasted_ns[REQUESTS_KEPT]; /* under closing: the last requests, */
	uint64_t shortest_ns;		   /* and the shortest of them */
	uint32_t n_lasted;
	uint32_t by_sync;  /* under closing: requests in a row that ended with a synchronization */
	uint64_t asked_ns; /* under closing: when the device was asked last */
	uint64_t progress, progress_ns; /* under closing */
	uint64_t watched_ns;		/* under closing: when that was looked at last */
	uint64_t blocked_ns;		/* [A] closing has stood at blocked_seq since then */
	uint32_t blocked_seq;

	/* What stands in for gbpfd's pages while they are absent. */
	struct sched_absent {	      /* [A] */
		uint64_t since_ns;    /* leases have been up ahead since then; 0: they are not */
		uint64_t mute_ns;     /* announcements are ignored until then; [atomic] */
		uint32_t seen, wrong; /* announcements seen; wrong ones in a row, [atomic] */
		uint64_t warmed_ns;   /* announced time for which a kernel was launched */
		uint64_t opened_ns;   /* opening that the rhythm has counted */
		struct sched_rhythm_log rhythm;
	} ann;
};
struct sched_board_slot {
	const struct proto_board *board; /* [pin] */
	uint32_t tenant;
};

struct sched {
	struct sched_shared shared;
	uint32_t off, forked;	 /* [atomic] this is the child of a fork: nothing is scheduled */
	uint32_t latency_queues; /* [atomic] open ones */
	uint32_t n_deferred;	 /* [atomic] calls in all FIFOs */
	uint32_t n_runs;	 /* [atomic] queues with SCHED_HAS_RUN */
	uint32_t defers;	 /* [atomic] grows with each deferred call */
	uint64_t numbers;	 /* [atomic] of deferred calls, given so far */
	uint32_t life;		 /* [A] how many gbpfds were lost */
	uint32_t agent_asleep;	 /* [atomic] grows when an empty FIFO gets a call */
	uint32_t n_boards;	 /* [atomic] high-water mark of boards[] */
	const struct proto_directory *dir;  /* [pin] never NULL */
	struct proto_board *own;	    /* [pin] never NULL */
	struct proto_stats *stats;	    /* [pin] never NULL */
	uint32_t gpu_index[PROTO_MAX_GPUS]; /* [atomic] gbpfd's number; SCHED_MAX_GPUS: unknown to
					       it */
	uint32_t hint[PROTO_MAX_GPUS];
	struct sched_tally inflight ALIGNED(64); /* SCHED_ACC over all queues */
	uint64_t limit_ns ALIGNED(64);		 /* [atomic] hold limit */
	uint64_t wait_cap_ns; /* WAIT_CAP_NS; tests that hunt for lost wakes raise it */
	uint32_t share_ppm, class_id, weight, lane; /* [atomic] */

	struct sched_board_slot boards[PROTO_MAX_LC];
	struct policy_version prepared[MAX_PREPARED + 1];
	struct sched_request req[PROTO_MAX_GPUS] ALIGNED(64);
	uint64_t active_ns; /* [atomic] no run begins before: launches may have passed unseen */
	uint64_t grace_ns;  /* length of that time; tests set it to 0 */
	bool few_cpus;	    /* polls are rarer */
	uint32_t slice_wanted[PROTO_MAX_GPUS]; /* [atomic] 1 more than microseconds; 0: nothing */
	uint32_t first_queue;		       /* [A] where the next pass over FIFOs begins */
	uint64_t lead_ns;     /* [atomic] announcements: leases go up so long before */
	uint64_t warm_ns;     /* [atomic] and a kernel, where contexts are switched; 0: none */
	uint32_t rhythm_mode; /* [atomic] enum sched_rhythm */
	uint64_t rhythm_ns;
	struct sched_config cfg;
	struct sched_estimate copy_est[2][BYTE_CLASSES]; /* copies, memsets by size */

	pthread_mutex_t lock; /* queue table, kernels, settings */
	struct sched_queue *queues[PROTO_MAX_QUEUES];
	/* [atomic] By queue: launched since it was last drained. Together, so that looking at all
	 * of them touches few lines. */
	uint8_t touched[PROTO_MAX_QUEUES];
	uint32_t n_queues;    /* [atomic] entries ever used */
	uint32_t open_queues; /* [L] */
	struct sched_queue *free_queues;
	struct strmap kernels;
	struct sched_kernel *by_slot[PROTO_KERNELS]; /* [L] shown in the statistics */

	pthread_mutex_t share_lock; /* held launches' minimum share */
	uint64_t share_until_ns, share_last_ns, share_credit_ns;
	uint64_t note_last_ns;						     /* [atomic] */
	uint64_t last_work_ns, last_idle_ns, last_stats_ns, last_kernels_ns; /* [A] */
	uint64_t submit_calls; /* [atomic] calls of `submit` beyond one for each launch */
	struct proto_directory private_dir; /* stand-ins while gbpfd's pages are absent */
	struct proto_board private_board;
	struct proto_stats private_stats;
};

/* SCHED_PHASE_LATENCY: counted in the queue's `entered`, and not yet in `left`. */
enum sched_phase { AGENT_SOON, AGENT_NEAR, AGENT_SLOW, AGENT_ASLEEP };
/* Nothing: the scheduler is idle, or the agent submits a deferred call. */
enum sched_holds { PHASE_PASS, PHASE_PLAIN, PHASE_LATENCY };

/* Returns how early leases are raised before an announced request, by the sharing mode. */
static inline uint64_t sched_lead_ns(const struct sched *s)
{
	return load_relaxed(&s->lane) == GBPF_LANE_PROCESS ? LEAD_NS : LEAD_SHARED_NS;
}

/* Returns the time since then, 0 if it is ahead: the launch path's clock may lead the other a
 * little. */
static inline uint64_t sched_since_ns(uint64_t then, uint64_t now)
{
	return now > then ? now - then : 0;
}

/* ---- hook.c ---- */

struct sched_decision {
	uint64_t version; /* 0: no policy was asked */
	uint64_t hold_ns;
	const uint32_t *word; /* board to wait on, NULL: no request of others is open */
	uint32_t seq;	      /* its value from before the ask */
	uint32_t lc_open;
	uint32_t pieces; /* level: blocks of a piece, 0 not said */
	uint8_t level;	 /* GBPF_LEVEL_BLOCK when the launch can and the policy wants it */
	uint8_t verdict; /* GBPF_GO, GBPF_HOLD, GBPF_DEFER */
	uint8_t fault;	 /* enum ask_bad */
};
enum ask_bad { SCHED_FAULT_NONE, ASK_RANGE, ASK_HELPER, ASK_SPLIT, ASK_OUTLIVED };

/* All run inside a pin of their own but ask_submit_pinned. */
void sched_decide_inside(struct sched_queue *q, const struct sched_launch *l, uint64_t now,
			 uint64_t held_ns, uint32_t asked, struct sched_decision *a);
void sched_decide(struct sched_queue *q, const struct sched_launch *l, uint64_t now,
		  uint64_t held_ns, uint32_t asked, struct sched_decision *a);
void sched_hook_queue_create(struct sched_queue *q);
void sched_hook_queue_destroy(struct sched_queue *q, uint64_t launches);
uint64_t sched_hook_dispatch(struct sched_queue *q, const struct sched_launch *l, uint64_t now);
struct sched_retired {
	uint64_t hash, duration_ns, held_ns, version;
	uint32_t count, flags, level, interrupted;
};
uint64_t sched_hook_retire(struct sched_queue *q, const struct sched_retired *r,
			   uint64_t now); /* linger_ns */
/* Some policy is in force on the queue's GPU. */
bool sched_policy_in_force(struct sched_queue *q);
void sched_decision_report(struct sched_queue *q,
			   const struct sched_decision *a); /* not inside a pin */

/* ---- board.c ---- */

/* Sees the boards of others: open requests, when the last ended, and how far the next announced one
 * is (UINT64_MAX: never, none). Inside a pin. */
uint32_t sched_boards_scan(struct sched *s, uint32_t gpu_index, uint64_t now,
			   struct sched_decision *a, uint64_t *ret_idle_ns, uint64_t *ret_next_ns);
/* No latency request of others since that time, and none of our own when they count. */
bool sched_boards_quiet_since(struct sched *s, uint32_t gpu, uint64_t since_ns, bool own_counts);

/* ---- request.c ---- */

bool sched_request_open(struct sched *s, uint32_t gpu,
			uint64_t now); /* inside a pin; true: the agent is to be woken */
uint64_t sched_requests_step(struct sched *s, uint64_t now);
/* One was opened that the agent has not looked at yet: on that GPU, on any. */
bool sched_request_unseen(const struct sched *s, uint32_t gpu);
bool sched_requests_unseen(const struct sched *s);
/* A synchronization of latency queues of that GPU has returned: where the policy wants no linger,
 * the request ends here. */
void sched_request_synced(struct sched *s, uint32_t gpu, uint64_t now);
/* Latency queues have been idle since then; a launch of one has come after a pause. */
void sched_request_idle(struct sched_request *r, uint64_t since);
void sched_request_gap(struct sched *s, uint32_t gpu, uint64_t now);
/* Of this process, on the page that it writes; NULL: gbpfd does not know that GPU. Inside a pin, or
 * the agent. */
struct proto_board_gpu *sched_own_board(struct sched *s, uint32_t gpu);

/* ---- lease.c ---- */

/* A policy is in force on that GPU, and there is a gbpfd: others look at our board. Inside a pin,
 * or the agent. */
bool sched_lease_allowed(struct sched *s, uint32_t gpu);
/* Makes the leases what the request's state asks for, whatever other threads do meanwhile. Inside a
 * pin, or the agent. */
void sched_lease_update(struct sched *s, uint32_t gpu, uint64_t now);
/* The request has just been opened: raises them if a policy is in force. Inside a pin. */
void sched_lease_raise(struct sched *s, uint32_t gpu, uint64_t now);
/* Agent: renews, and follows a policy that comes or goes. */
void sched_lease_step(struct sched *s, uint32_t gpu, uint64_t now);

/* ---- announce.c ---- */

uint64_t sched_announce_step(struct sched *s, uint64_t now);
bool sched_announce_pending(const struct sched *s); /* since the last step */
/* The request that was announced has come: takes its announcement. Inside a pin. */
void sched_announce_met(struct sched *s, uint32_t gpu, uint64_t now);

/* ---- kernel.c ---- */

struct sched_estimate *sched_estimate_of(struct sched *s,
					 const struct sched_launch *l); /* NULL: not learned */
bool sched_estimate_due(struct sched_estimate *e);
void sched_estimate_learn(struct sched_estimate *e, uint64_t measured_ns);
void sched_kernels_publish(struct sched *s, struct proto_stats *st);

/* ---- retire.c ---- */

void sched_launch_start(struct sched_queue *q, struct sched_launch *l,
			const struct sched_decision *a); /* before the driver's call */
bool sched_retire_reached(struct sched_queue *q);	 /* true: something retired */
bool sched_retire_idle(struct sched_queue *q,
		       uint64_t total); /* everything up to total has finished */
bool sched_retire_all(struct sched *s);
void sched_mark_end(struct sched_queue *q); /* puts a marker behind what has none */
void sched_marks_drop(struct sched_queue *q);
uint64_t sched_inflight_step(struct sched *s, uint64_t now);

/* ---- hold.c ---- */

/* Time left until a launch that has been held for held_ns goes whatever the policy says;
 * UINT64_MAX: no limit. */
uint64_t sched_share_left(struct sched *s, const struct sched_launch *l, uint64_t begin_ns,
			  uint64_t now);
void sched_share_take(struct sched *s, const struct sched_launch *l, uint64_t now);
void sched_share_reset(struct sched *s); /* the policy let a held launch go: nobody starves */
void sched_hold_caller(struct sched_queue *q, struct sched_launch *l, struct sched_decision *a);
void sched_hold_account(struct sched_queue *q, const struct sched_launch *l, uint32_t why,
			uint64_t held_ns);
uint32_t sched_hold_why(const struct sched_decision *a, uint64_t inflight);
/* Short sleeps of this thread as short as asked (the default rounds up by 50 us): the GPU runs dry
 * meanwhile. What to restore with prctl(PR_SET_TIMERSLACK). */
int sched_sharpen_timers(void);

/* ---- chain.c: queues whose last launches can be stopped between blocks; see there ---- */

/* The launch is at the queue's gate: a chain that begins waits for it or is seen by it. */
void gate_enter(struct sched_queue *q);
void sched_gate_leave(struct sched_queue *q);
/* issue_lock is held. True: until it has ended the queue is CHAINED, and no plain launch is between
 * its look at that and the driver. False: one is; do without. */
bool sched_run_begin(struct sched_queue *q);
/* issue_lock is held. Looks after the chain, ends it when it is through. In how many nanoseconds
 * again; UINT64_MAX: there is none. waited: somebody waits for its end. */
uint64_t sched_run_care(struct sched_queue *q, uint64_t now, bool waited);
/* A chain that has no unfinished launch is ended, unless somebody else is at the queue. True: the
 * queue has none. */
bool sched_run_try_end(struct sched_queue *q);
/* As of now; who is to act on it holds issue_lock or stands at the gate. */
bool sched_run_unfinished(const struct sched_queue *q);
/* issue_lock is held; the chain takes a launch now. */
bool sched_run_has_room(struct sched_queue *q);
/* What the policy answered allows the launch to join the queue's chain, or to begin one. */
bool sched_run_allowed(const struct sched_queue *q, const struct sched_launch *l,
		       const struct sched_decision *a);
/* issue_lock is held. False: it is unfinished. */
bool sched_run_end_if_done(struct sched_queue *q);
/* Takes the device's error, if any, for the next flush. */
void sched_run_look(struct sched_queue *q, struct sched_run_progress *ret);
/* A launch at block level, issue_lock is held: fills what the gate needs. */
void sched_run_add(struct sched_queue *q, struct sched_launch *l, const struct sched_decision *a);
static inline bool sched_run_here(const struct sched_queue *q)
{
	return load_acquire(&q->deferred) & CHAINED;
}
static inline uint32_t sched_fifo_count(const struct sched_queue *q)
{
	return load_acquire(&q->deferred) & ~CHAINED;
}

/* ---- defer.c ---- */

/* Launches are to be kept, so that the hardware queue does not fill: its stream stands still, and
 * what that waits for may be a chain. The caller has no lock. */
bool sched_queue_crowded(struct sched_queue *q);
uint64_t sched_deferred_step(struct sched *s, uint64_t now);
/* Waits until everything that was put on the queue before is with the driver, and its chain's
 * launches of then are through. Helps meanwhile. */
void sched_queue_drain(struct sched_queue *q);
void sched_fifo_drop(struct sched_queue *q); /* sched_destroy: frees calls that were never issued */

/* ---- queue.c ---- */

bool sched_queue_use(struct sched_queue *q); /* false: closed or closing */
void sched_queue_unuse(struct sched_queue *q);
#define sched_queues_each(s, q)                                                                    \
	for (uint32_t q##_i = 0, q##_n = load_acquire(&(s)->n_queues); q##_i < q##_n; q##_i++)     \
		for (struct sched_queue *q = load_acquire(&(s)->queues[q##_i]); q; q = NULL)

/* ---- stats.c ---- */

/* Not inside a pin. */
#define sched_stat_add(s, field, n)                                                                \
	do {                                                                                       \
		struct policy_reader *stat_pin = policy_read_enter();                              \
		(void)add_relaxed(&load_acquire(&(s)->stats)->field, (n));                         \
		policy_read_leave(stat_pin);                                                       \
	} while (0)
void sched_stat_max(uint64_t *word, uint64_t v);
/* Returns ns until the next call. */
uint64_t sched_stats_publish(struct sched *s, uint64_t now);
void sched_stats_publish_queue(struct sched_queue *q); /* caller holds s->lock */
void sched_stats_count_kind(struct sched_queue *q, uint32_t kind, uint64_t bytes);

/* ---- agent.c, sched.c ---- */

/* Wakes the agent if it sleeps at least as deep as that (enum sched_agent_sleep). */
void wake_agent(struct sched *s, uint32_t depth);
/* Reports an event to gbpfd's history, at most one a second. Not inside a read-side section. */
void note(struct sched *s, const char *what, const char *text);
/* Recomputes whether launches may skip the scheduler; the former takes s->lock. */
void sched_update_active(struct sched *s);
void sched_update_active_locked(struct sched *s);

#endif
