/* Requests of this process, their announcements and leases, and the boards of other tenants. Marks
 * as in queue_int.h. */
#ifndef GBPF_SCHED_REQUEST_INT_H
#define GBPF_SCHED_REQUEST_INT_H

#include "sched/gap.h"
#include "sched/rhythm.h"
#include "sched/sched.h"

#define SCHED_OPEN_POLL_NS 40000u  /* agent's period while a request is open */
#define SCHED_STALL_NS 1000000000u /* a request without progress for this long has timed out, */
#define SCHED_REQUEST_MAX_NS 10000000000u /* and one that is open for this long without a pause */
#define SCHED_TIMED_OUT_POLL_NS 1000000u
#define SCHED_DURATIONS 8u
#define SCHED_STEAL_NS                                                                             \
	1000000000u		 /* the agent takes the turn from a preempted closer after this    \
				  */
#define SCHED_LEASE_NS 20000000u /* leases expire this long after they were raised */
#define SCHED_RENEW_NS 5000000u
#define SCHED_LEAD_NS 300000u	    /* leases are raised this long before an announced request, */
#define SCHED_LEAD_SHARED_NS 60000u /* in shared mode: the duration of a block or two */
#define SCHED_LATE_NS PROTO_LATE_NS /* an announced request may come this much later */
#define SCHED_ANNOUNCE_MAX_NS 10000000000u /* and be announced this long before */
#define SCHED_WRONG_MAX 3u		   /* after this many wrong announcements in a row */
#define SCHED_MUTE_NS 1000000000u	   /* they are ignored for this long */

/* SCHED_REQUEST_TIMED_OUT: still not drained, but others are no longer held for it. */
enum sched_request_state {
	SCHED_REQUEST_CLOSED,
	SCHED_REQUEST_OPEN,
	SCHED_REQUEST_TIMED_OUT,
};

/* Whether the open request has ended. Guarded by `turn` unless marked. */
struct sched_request_close {
	uint32_t turn;	   /* [atomic] odd: taken; only ever tried */
	uint32_t at_once;  /* [atomic] the thread of a synchronization may close it */
	uint64_t delay_ns; /* close delay at the last look */
	uint64_t lasted_ns[SCHED_DURATIONS]; /* durations of the last requests, */
	uint64_t shortest_ns;		     /* the shortest of them, */
	uint32_t n_lasted;		     /* and how many there were */
	uint32_t by_sync;		/* requests in a row that ended with a synchronization */
	uint64_t asked_ns;		/* when the device was asked last */
	uint64_t progress, progress_ns; /* sum of the queues' counters, and when it last changed */
	uint64_t watched_ns;		/* when that was looked at last */
	uint64_t stuck_since_ns;	/* [agent] turn has been at stuck_turn since then */
	uint32_t stuck_turn;		/* [agent] */
};

/* [agent] unless marked */
struct sched_announcement {
	uint64_t since_ns;    /* leases have been raised ahead since then; 0: they are not */
	uint64_t mute_ns;     /* [atomic] announcements are ignored until then */
	uint32_t seen, wrong; /* announcements seen; wrong ones in a row [atomic] */
	uint64_t warmed_ns;   /* announced time for which a kernel was launched */
	uint64_t opened_ns;   /* opening that the rhythm has counted */
	struct sched_rhythm_log rhythm;
};

/* The request of one GPU. The first cache line is what launches read. */
struct sched_request {
	uint32_t open;	      /* [atomic] enum sched_request_state */
	uint32_t ahead;	      /* [atomic] leases are raised for an announced request */
	uint64_t opened_ns;   /* [atomic] */
	uint64_t idle_ns;     /* [atomic] queues idle since then, and no launch since; 0: no */
	uint64_t gap_ns;      /* [atomic] learned close delay; 0: none pays off */
	uint64_t next_ns;     /* [atomic] announced for; 0: none */
	uint64_t deadline_ns; /* [atomic] of the open request; 0: none */
	uint64_t lease_ns;    /* [atomic] leases expire then; 0: none are raised */
	uint64_t next_deadline_ns ALIGNED(64); /* [atomic] of the announced one */
	struct sched_gaps gaps;
	uint64_t late_ns;   /* [atomic] how late the announced one may come */
	uint32_t announced; /* [atomic] number of announcements */
	uint64_t looked_ns; /* [atomic] opened_ns when the agent last looked at it */
	struct sched_request_close close;
	struct sched_announcement ann;
};

struct sched_decision;

/* ---- request.c ---- */

/* Opens the request of a GPU, unless it is open. Inside a read-side section. True: the agent is to
 * be woken. */
bool sched_request_open(struct sched *s, uint32_t gpu, uint64_t now);
uint64_t sched_requests_step(struct sched *s, uint64_t now);
/* A request is open that the agent has not looked at yet: on that GPU, on any. */
bool sched_request_unseen(const struct sched *s, uint32_t gpu);
bool sched_requests_unseen(const struct sched *s);
/* A synchronization of latency queues of that GPU returned: closes the request at once if the
 * policy wants no close delay. */
void sched_request_synced(struct sched *s, uint32_t gpu, uint64_t now);
/* The latency queues have been idle since then. */
void sched_request_idle(struct sched_request *r, uint64_t since);
/* A launch came after such a pause: learns its length. */
void sched_request_gap(struct sched *s, uint32_t gpu, uint64_t now);
/* The part of this process's board for a GPU; NULL: gbpfd does not know that GPU. Inside a
 * read-side section, or the agent. */
struct proto_board_gpu *sched_own_board(struct sched *s, uint32_t gpu);

/* ---- lease.c; all inside a read-side section, or the agent ---- */

/* A policy is in force on that GPU, and there is a gbpfd: other tenants read our board. */
bool sched_lease_allowed(struct sched *s, uint32_t gpu);
/* Makes the leases match the request's state, whatever other threads change meanwhile. */
void sched_lease_update(struct sched *s, uint32_t gpu, uint64_t now);
/* The request has just been opened: raises them if a policy is in force. */
void sched_lease_raise(struct sched *s, uint32_t gpu, uint64_t now);
/* Agent: renews them, and follows a policy that comes or goes. */
void sched_lease_step(struct sched *s, uint32_t gpu, uint64_t now);

/* ---- announce.c ---- */

uint64_t sched_announce_step(struct sched *s, uint64_t now);
bool sched_announce_pending(const struct sched *s); /* one came since the last step */
/* The announced request has come: takes its announcement. Inside a read-side section. */
void sched_announce_met(struct sched *s, uint32_t gpu, uint64_t now);

/* ---- board.c ---- */

/* Counts the open requests of other tenants. *ret_idle_ns: time since the last one ended, 0 while
 * one is open, UINT64_MAX if there was none; *ret_next_ns: time until the next announced one,
 * UINT64_MAX if there is none. Fills a->word and a->seq. Inside a read-side section. */
uint32_t sched_boards_scan(struct sched *s, uint32_t gpu_index, uint64_t now,
			   struct sched_decision *a, uint64_t *ret_idle_ns, uint64_t *ret_next_ns);
/* No latency request of other tenants since that time, and none of our own if they count. */
bool sched_boards_quiet_since(struct sched *s, uint32_t gpu, uint64_t since_ns, bool own_counts);

#endif
