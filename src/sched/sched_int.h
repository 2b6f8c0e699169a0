/* The state of one process, and the parts that its files share. The state of one group of files
 * is in its own header: queue_int.h, grant_int.h, retire_int.h, request_int.h, decision_int.h,
 * run_int.h.
 *
 * Words that several threads write are read and written through base/atomic.h. Marks: [atomic] any
 * thread; [agent] the agent thread only; [L] guarded by s->lock; [section] read inside a read-side
 * section (policy/read.h), replaced by publishing and policy_synchronize. docs/LOCKING.md lists the
 * order of the locks and the pairs of atomics. */
#ifndef GBPF_SCHED_SCHED_INT_H
#define GBPF_SCHED_SCHED_INT_H

#include "base/lock.h"
#include "base/strmap.h"
#include "base/time_budget.h"
#include "policy/ctx.h"
#include "policy/read.h"
#include "policy/versions.h"
#include "sched/decision_int.h"
#include "sched/grant_int.h"
#include "sched/group.h"
#include "sched/queue_int.h"
#include "sched/request_int.h"
#include "sched/retire_int.h"
#include "sched/run_int.h"
#include "sched/sched.h"
#include "sched/tally.h"

#define SCHED_STEADY_NS                                                                            \
	1000000u /* agent: shortest period of statistics and of looking at idle queues             \
		  */

/* Boards of other processes, by gbpfd's slot. */
struct sched_boards {
	uint32_t n; /* [atomic] one more than the highest slot in use */
	struct sched_board_slot {
		const struct proto_board *board; /* [section] */
		uint32_t tenant;
	} slot[PROTO_MAX_LC];
};

/* How deep the agent sleeps. An opened request and a deferred call wake it even from NEAR, a run
 * that begins from SLOW, and a launch from ASLEEP. */
enum sched_agent_sleep {
	SCHED_AGENT_AWAKE,
	SCHED_AGENT_NEAR,
	SCHED_AGENT_SLOW,
	SCHED_AGENT_ASLEEP,
};

/* Of the agent thread. [agent] unless marked. */
struct sched_agent {
	uint32_t asleep;      /* [atomic] enum sched_agent_sleep */
	uint32_t first_queue; /* where the next pass over FIFOs begins */
	uint64_t last_work_ns, last_idle_ns, last_stats_ns, last_kernels_ns;
};

/* The minimum share of held launches. Guarded by lock. */
struct sched_share {
	struct lock lock;
	uint64_t until_ns;  /* a launch was forced lately: the share accrues until then */
	uint64_t last_ns;   /* accrued up to then */
	uint64_t credit_ns; /* device time that the next forced launch may use */
};

/* Whether leases are ignored; see lease_doubt.c. */
struct sched_lease_doubt {
	uint32_t on; /* [atomic] */
	struct lock lock;
	struct time_budget budget;
	uint64_t charged_ns; /* time up to then has been charged */
};

/* Settings of announcements. [atomic] */
struct sched_announce_settings {
	uint64_t lead_ns;     /* SCHED_LEAD_AUTO, or how early leases are raised */
	uint64_t warm_ns;     /* how early a kernel is launched in process mode; 0: not */
	uint32_t rhythm_mode; /* enum sched_rhythm */
	uint64_t rhythm_ns;   /* period of SCHED_RHYTHM_PERIOD */
};

/* [L] to write; entries never change once set, so any thread reads them. */
struct sched_table {
	struct sched_queue *queues[PROTO_MAX_QUEUES];
	/* [atomic] By queue: launched since its last synchronization. Together, so that looking at
	 * all of them touches few cache lines. */
	uint8_t touched[PROTO_MAX_QUEUES];
	uint32_t n_queues; /* [atomic] entries ever used */
	uint32_t n_open;
	struct sched_queue *free;
};

/* [L] */
struct sched_kernels {
	struct strmap by_name;
	struct sched_kernel *shown[PROTO_KERNELS]; /* in the statistics */
	uint64_t divided_ns;			   /* under s->lock; proto_stats.divided_ns */
};

/* What stands in for gbpfd's pages while they are absent. */
struct sched_absent {
	struct proto_directory dir;
	struct proto_board board;
	struct proto_stats stats;
};

struct sched {
	struct sched_shared shared;
	uint32_t forked;	 /* [atomic] this is the child of a fork: nothing is scheduled */
	uint32_t latency_queues; /* [atomic] open ones */
	uint32_t n_deferred;	 /* [atomic] calls in all FIFOs */
	uint32_t n_runs;	 /* [atomic] queues with SCHED_HAS_RUN */
	uint32_t defer_seq;	 /* [atomic] grows when an empty FIFO gets a call */
	uint32_t copy_hooks; /* [atomic] 1: a prepared version has copy_enqueue; the agent writes */
	struct proto_board *own; /* [section] never NULL */
	uint64_t last_number;	 /* [atomic] of deferred calls */
	struct sched_agent agent;
	struct policy policy;
	struct sched_gpu {
		struct sched_tally inflight; /* SCHED_ACC over the queues of a GPU */
		uint64_t charged_to; /* [atomic] time before it is charged, or no work was there */
		uint64_t skipped_ns; /* [atomic] of that, time in which no work was there */
	} ALIGNED(64) gpu[PROTO_MAX_GPUS]; /* by device ordinal */
	uint64_t limit_ns ALIGNED(64);	   /* [atomic] hold limit */
	uint64_t wait_cap_ns; /* SCHED_WAIT_CAP_NS; tests that hunt for lost wakes raise it */
	uint32_t share_ppm, class_id, weight, lane, uid, vgpu, group; /* [atomic] */

	struct sched_boards boards;		/* of latency tenants */
	struct sched_boards peers;		/* of the process's group; empty: it is in none */
	struct sched_stop stop[PROTO_MAX_GPUS]; /* by device ordinal */
	uint32_t communicates;			/* [atomic] 1: it has a kernel that communicates */
	struct sched_request req[PROTO_MAX_GPUS] ALIGNED(64);
	uint64_t active_ns; /* [atomic] no run begins before: launches may have passed unseen */
	uint64_t grace_ns;  /* length of that time; tests set it to 0 */
	bool few_cpus;	    /* polls are rarer */
	uint32_t slice_wanted[PROTO_MAX_GPUS]; /* [atomic] 1 + time slice in us; 0: nothing */
	struct sched_announce_settings announce;
	struct sched_config cfg;
	struct sched_estimate copy_est[2][SCHED_BYTE_CLASSES]; /* copies, memsets by size */

	struct lock lock; /* queue table, kernels, settings */
	struct sched_table table;
	struct sched_kernels kernels;
	struct sched_share share;
	struct sched_lease_doubt doubt;
	uint64_t note_last_ns; /* [atomic] */
	uint64_t submit_calls; /* [atomic] calls of `submit` beyond one for each launch */
	struct sched_absent absent;
};

/* SCHED_PHASE_LATENCY: counted in the queue's `entered`, and not yet in `left`.
 * SCHED_PHASE_GRANTED: goes by the queue's grant, which counts it; _IN_REQUEST: both. */
enum sched_phase {
	SCHED_PHASE_PLAIN,
	SCHED_PHASE_LATENCY,
	SCHED_PHASE_GRANTED,
	SCHED_PHASE_GRANTED_IN_REQUEST
};
/* Nothing: the scheduler is idle, or the agent submits a deferred call. */
enum sched_holds { SCHED_HOLDS_NOTHING, SCHED_HOLDS_GATE, SCHED_HOLDS_LOCK };
/* Give the queue's issue lock to the ticket, and take it back. Not analysed: t->holds determines
 * whether the ticket owns the lock. */
static inline void sched_ticket_keep_lock(struct sched_ticket *t, struct sched_queue *q)
	RELEASES(q->issue.lock) UNCHECKED
{
	t->holds = SCHED_HOLDS_LOCK;
}
static inline void sched_ticket_take_lock(struct sched_ticket *t, struct sched_queue *q)
	ACQUIRES(q->issue.lock) UNCHECKED
{
	t->holds = SCHED_HOLDS_NOTHING;
}

/* Returns how early leases are raised before an announced request, by the sharing mode. */
static inline uint64_t sched_lead_ns(const struct sched *s)
{
	return load_relaxed(&s->lane) == GBPF_LANE_PROCESS ? SCHED_LEAD_NS : SCHED_LEAD_SHARED_NS;
}

/* Returns the time since then, 0 if it is ahead: the launch path's clock may lead the other a
 * little. */
static inline uint64_t sched_since_ns(uint64_t then, uint64_t now)
{
	return now > then ? now - then : 0;
}

/* Returns whether the launch is of a kernel that communicates with kernels on other GPUs, or of a
 * graph with one. */
static inline bool sched_communicates(const struct sched_launch *l)
{
	return l->kernel && load_relaxed(&l->kernel->communicates);
}

/* The driver has a launch of the queue: its next synchronization looks at it. After `left` has the
 * launch: a synchronization that clears the mark reads `left` behind that. */
static inline void sched_queue_touch(const struct sched_queue *q)
{
	store_release(&q->s->table.touched[q->index], (uint8_t)1);
}

/* ---- board.c ---- */

void sched_boards_clear(struct sched_boards *b);

/* ---- stats.c ---- */

/* Adds to a counter of the statistics page. Not inside a read-side section. */
#define sched_stat_add(s, field, n)                                                                \
	do {                                                                                       \
		struct policy_reader *stat_reader = policy_read_enter();                           \
		(void)add_relaxed(&load_acquire(&(s)->policy.stats)->field, (n));                  \
		policy_read_leave(stat_reader);                                                    \
	} while (0)
void sched_stat_max(uint64_t *word, uint64_t v);
/* Returns the number of the process's group; 0: it has no peers. */
static inline uint32_t sched_group_number(const struct sched *s)
{
	return load_acquire(&s->peers.n) ? load_relaxed(&s->group) : 0;
}

/* Returns gbpfd's number of the queue's GPU. */
static inline uint32_t sched_gpu_number(const struct sched_queue *q)
{
	return load_relaxed(&q->s->policy.gpu[q->gpu].index);
}
/* Returns SCHED_ACC of what is in flight on a GPU. */
static inline uint64_t sched_gpu_inflight(const struct sched_gpu *g)
{
	uint64_t sum = sched_tally_sum(&g->inflight);

	return unlikely(SCHED_ACC_BELOW_0(sum)) ? 0 : sum;
}
/* Returns SCHED_ACC of what is in flight on all GPUs. */
uint64_t sched_inflight(const struct sched *s);
/* Returns ns until the next call. */
uint64_t sched_stats_publish(struct sched *s, uint64_t now);
void sched_stats_publish_queue(struct sched *s, struct sched_queue *q) REQUIRES(s->lock);
void sched_stats_count_kind(struct sched_queue *q, uint32_t kind, uint64_t bytes);

/* ---- lease_doubt.c ---- */

void sched_lease_doubt_init(struct sched *s);
void sched_lease_doubt_finish(struct sched *s);
/* A lease without an open request has stopped a run since then. Not inside a read-side section. */
void sched_lease_doubt_charge(struct sched *s, uint64_t from, uint64_t now);
/* Returns whether runs shall ignore leases. */
bool sched_lease_doubted(struct sched *s, uint64_t now);

/* ---- agent.c, sched.c ---- */

/* Wakes the agent if it sleeps at least as deep as that (enum sched_agent_sleep). */
void sched_wake_agent(struct sched *s, uint32_t depth);
/* Recomputes whether launches may skip the scheduler; the former takes s->lock. */
void sched_update_active(struct sched *s);
void sched_update_active_locked(struct sched *s) REQUIRES(s->lock);

#endif
