/* The scheduling mechanism of one process: queues, requests, hook calls, holding, deferring,
 * learned durations. Decisions are the policy's: without one nothing is held, reordered or delayed.
 *
 * Life of a launch: the shim's gate fills a struct sched_launch and calls sched_submit; on SCHED_GO
 * it calls the driver and then sched_submitted. In a process that has latency queues beside others
 * sched_submit may answer SCHED_DEFER: the gate then hands over a copy of the call with
 * sched_defer, and the agent thread issues it later, in order.
 *
 * Threads: sched_submit and friends from any application thread; sched_agent_step from one agent
 * thread only. */
#ifndef GBPF_SCHED_SCHED_H
#define GBPF_SCHED_SCHED_H

#include <stdbool.h>
#include <stdint.h>

#include "base/atomic.h"
#include "base/compiler.h"
#include "sched/device.h"
#include "proto/pages.h"

struct sched;
struct sched_queue;
struct sched_kernel;

struct sched_config {
	uint32_t tenant;
	uint32_t class_id; /* GBPF_CLASS_* */
	uint32_t weight;
	uint64_t hold_limit_ns; /* default 100 ms */
	uint32_t min_share_ppm; /* of time that a held tenant gets all the same; default 20000 (2 %)
				 */
	uint32_t sm_percent;	/* process lane: of the multiprocessors; 0: all */
	const struct sched_device_ops *device;
	void *dev;
	/* Called when the agent thread should run soon (first open request, first deferred call):
	 * any thread, async-signal not needed, must be cheap (an eventfd or futex). */
	void (*wake_agent)(void *arg);
	/* Something worth an event in gbpfd's history: rate-limited by sched. text is borrowed. */
	void (*note)(void *arg, const char *what, const char *text);
	void *arg;
};

int sched_create(struct sched **ret, const struct sched_config *cfg);
void sched_destroy(struct sched *s); /* no other thread may be inside */

/* ---- what the session tells (agent thread) ---- */

/* Pages are borrowed until sched_destroy or the next call with another; NULL takes them away (gbpfd
 * is gone: the last policy stays in force, boards of others count as closed). False: a thread may
 * still be looking at the pages from before, which must stay mapped. */
bool sched_set_pages(struct sched *s, const struct proto_directory *dir, struct proto_board *own,
		     struct proto_stats *stats, const uint32_t gpu_index[PROTO_MAX_GPUS]);
/* tenant's board at a slot 0..SCHED_MAX_LC-1; the mapping stays valid until sched_board_remove has
 * returned true: all calls that were inside have left (sched waits for that, but not for ever). */
int sched_board_add(struct sched *s, uint32_t slot, uint32_t tenant,
		    const struct proto_board *board);
bool sched_board_remove(struct sched *s, uint32_t slot);
/* First phase of a swap: maps the version and keeps it ready; the directory's version word
 * activates it. 0 or -errno. */
int sched_policy_prepare(struct sched *s, uint64_t version, int image_fd, const int region_fds[3]);
/* Forgets a version that is no longer active: unmapped when no call is inside any more. */
void sched_policy_drop(struct sched *s, uint64_t version);
bool sched_policy_is_prepared(const struct sched *s, uint64_t version);
/* After pages came back: forgets what only the gbpfd before knew of, such as a version whose swap
 * it did not live to finish. false: not yet, a version that is in force has not been prepared anew.
 */
bool sched_policy_sweep(struct sched *s);
void sched_set_class(struct sched *s, uint32_t class_id, uint32_t weight);
/* GBPF_OFF=1 or `gbpf off`: everything passes; holds end at once. */
void sched_set_off(struct sched *s, bool off);
void sched_set_limits(struct sched *s, uint64_t hold_limit_ns, uint32_t min_share_ppm);

/* Closes finished requests, retires reached markers, issues deferred calls. Returns nanoseconds
 * until it wants to be called again (20-50 us while something is open), or UINT64_MAX when it may
 * sleep until wake_agent. */
uint64_t sched_agent_step(struct sched *s);

/* ---- queues ---- */

/* dev_queue identifies the stream to the device ops (borrowed); gpu is the process's device
 * ordinal. NULL: no memory or more than SCHED_MAX_QUEUES. Runs the hook queue_create. */
struct sched_queue *sched_queue_open(struct sched *s, void *dev_queue, uint32_t gpu,
				     int32_t priority);
/* Waits for its deferred calls to be issued first. Runs queue_destroy. */
void sched_queue_close(struct sched_queue *q);

/* Images that are loaded now may get what the block level needs: the process is not of class
 * latency. Any thread. */
bool sched_block_wanted(const struct sched *s);
/* Why launches of that kernel go at block level or not (enum ptx_block_why), for the statistics. */
void sched_kernel_set_block(struct sched_kernel *k, uint8_t why);

/* A kernel by name: learned durations live here. Never freed before sched_destroy; at most 65536,
 * then NULL. */
struct sched_kernel *sched_kernel_get(struct sched *s, const char *name);

/* ---- the launch path ---- */

enum sched_answer {
	SCHED_GO = 0,
	SCHED_DEFER = 1, /* hand over a copy with sched_defer */
};

struct sched_launch {
	struct sched_kernel *kernel; /* NULL for other kinds */
	uint64_t blocks, bytes;
	uint32_t kind, flags; /* GBPF_KIND_*, GBPF_F_* */
	uint32_t threads, smem_bytes;
	uint32_t resident; /* blocks of it that the device holds at once; 0: not known */
	bool block_ok;	   /* the device could run it at block level; see level below */
	bool may_hold;	   /* false: capture, inside a host function, inside a collective: counted,
			      never held */
	/* filled by sched_submit, read by sched_submitted */
	uint64_t version, est_ns, held_ns, begin_ns;
	struct sched_marker sample; /* start marker when this launch is measured */
	uint64_t block_ns;	    /* learned duration of one block; 0: not known */
	uint32_t piece_blocks;	    /* level GBPF_LEVEL_BLOCK: blocks of a piece, 0: gpu's choice */
	uint8_t level; /* GBPF_LEVEL_*: at GBPF_LEVEL_BLOCK the gate launches it as preemptible */
	bool owns;     /* the queue is this thread's until sched_submitted */
	uint8_t phase;
};

/* True while launches may skip everything else: no policy, no latency class, nothing deferred, or
 * off. One load. */
static inline bool sched_idle(const struct sched *s);

/* Opens the request of a latency queue, runs `submit`, holds the caller as decided. */
enum sched_answer sched_submit(struct sched_queue *q, struct sched_launch *l);
/* What `submit` says of a launch that nobody makes. version 0: there was no policy; failed: a
 * helper failed or the verdict was out of range. For `gbpf bench swap`. */
struct sched_verdict {
	uint64_t version, hold_ns;
	uint32_t verdict;
	bool failed;
};
void sched_ask(struct sched_queue *q, const struct sched_launch *l, uint64_t now_ns,
	       struct sched_verdict *ret);
/* After the driver took (or refused: ok false) the launch. Puts markers when due. */
void sched_submitted(struct sched_queue *q, struct sched_launch *l, bool ok);

/* A deferred call: a copy that owns all that it points to. run is called once, by the agent thread
 * or by a thread that flushes, in the order of the queue; then sched calls sched_submitted itself
 * when is_launch, then free. */
struct sched_call {
	struct sched_call *next; /* sched's */
	uint64_t number; /* sched's: its place among all that the process deferred; they grow in
			    each queue */
	int (*run)(struct sched_call
			   *c); /* 0, or the driver's error, which is remembered for the queue */
	/* NULL, or whether what other queues keep lets it go by now; asked again and again, by
	 * whoever issues. Only calls that were handed over before it may be in its way. */
	bool (*ready)(struct sched_call *c);
	/* NULL, or told that it has its place behind the queue's others, before it can be issued:
	 * what it counts is in the order of the queue. Gives it its number (sched_number). Under
	 * the FIFO's lock: must not wait. */
	uint64_t (*placed)(struct sched_call *c);
	void (*free)(struct sched_call *c);
	struct sched_launch launch;
	bool is_launch; /* false: only ordered behind launches, no hook is asked */
	bool joins_run; /* may follow an unfinished chain: run launches at block level when
			   launch.level says so, and only then; not a launch: it joins the chain as
			   gpu_chain_record does */
};
/* Takes c. While 4096 calls wait in the queue it waits, as a full hardware queue would. */
void sched_defer(struct sched_queue *q, struct sched_call *c);
/* The next number; 1 and more. */
uint64_t sched_next_number(struct sched *s);
/* The launch is handed to sched_defer unasked: what sched_submit knows of those that it defers. */
void sched_defer_unasked(struct sched_queue *q, struct sched_launch *l);
/* No other queue has calls, or blocks that have not begun. Asked by who issues the queue's. */
bool sched_queue_alone(const struct sched_queue *q);
/* The queue still has a call of a lower number, or blocks of its launches that have not begun. */
bool sched_queue_behind(struct sched_queue *q, uint64_t number);
/* True while calls of this queue are waiting, or blocks of its last launches may have to be
 * launched again: whatever is ordered behind them must be deferred or flush first. */
bool sched_queue_deferred(struct sched_queue *q);
/* For what is no launch but may join a chain (gpu_chain_record). True: the queue has an unfinished
 * chain, and nothing waits behind it, so it may join now; until sched_joined the queue is this
 * thread's. False: as sched_queue_deferred says. */
bool sched_run_join(struct sched_queue *q);
void sched_run_joined(struct sched_queue *q);
/* Waits until every deferred call of the queue (NULL: of all queues of the process) has been issued
 * to the driver, and all blocks of launches at block level have begun; helps meanwhile. Bounded by
 * the hold limit, after which calls are issued in order whatever the policy says, and blocks that
 * are missing by the minimum share. Returns the first error that a deferred call, or a launch that
 * had to be repeated, met since the last flush, or 0. */
int sched_drain(struct sched *s, struct sched_queue *q);
/* Before something is put on `but` that may not end until what other queues have kept back is on
 * the device, or before something (`but` NULL) that what is kept should not need: waits for that as
 * long as any of it moves; helps meanwhile. */
void sched_drain_others(struct sched *s, const struct sched_queue *but);

/* A byte that is 0 while sched_drained would have nothing to do for the queue: a process has dozens
 * of streams and synchronizes often. Valid as long as the queue is open. */
const uint8_t *sched_queue_touched(const struct sched_queue *q);

/* A synchronization returned, so everything submitted to the queue before (NULL: to all queues) has
 * finished. */
void sched_synced(struct sched *s, struct sched_queue *q);

struct sched_shared { /* first member of struct sched: what the inline test reads */
	uint32_t active;
};
static inline bool sched_idle(const struct sched *s)
{
	return !load_relaxed(&((const struct sched_shared *)(const void *)s)->active);
}

/* ---- announcements (gbpf_hint, GBPF_HINT, learned) ---- */

/* This process's next request on that GPU (device ordinal) comes at at_ns and should have ended by
 * deadline_ns (monotonic both; 0: not known). Announced on the board; leases are raised ahead, and
 * taken back when the request has not come by some milliseconds after. -EINVAL: in the past or more
 * than 10 s ahead; -EPERM: no latency queue here; -EAGAIN: three in a row did not come, so they are
 * ignored for a second. Any thread. */
int sched_announce(struct sched *s, uint32_t gpu, uint64_t at_ns, uint64_t deadline_ns);
/* How long before an announced request the leases go up (SCHED_LEAD_AUTO: 300 us in the process
 * lane, 60 us in the shared one), and, in the process lane, a kernel is launched that does
 * nothing, so that the switch to this process's context is over when the request comes
 * (SCHED_WARM_NS unless set; 0: none). At most 10 ms. */
#define SCHED_LEAD_AUTO UINT64_MAX
#define SCHED_WARM_NS UINT64_C(200000) /* launched 100 us ahead it is still in the way (H200) */
void sched_set_lead(struct sched *s, uint64_t lead_ns, uint64_t warm_ns);
/* Announces by itself: by the learned period of the openings, or period_ns after each. */
enum sched_rhythm { SCHED_RHYTHM_OFF, SCHED_RHYTHM_LEARN, SCHED_RHYTHM_PERIOD };
void sched_set_rhythm(struct sched *s, enum sched_rhythm mode, uint64_t period_ns);
/* The lane in which the process runs: set once, before launches. */
void sched_set_lane(struct sched *s, uint32_t lane);
/* What queue_create left of admit's share of the multiprocessors, 1-100. */
uint32_t sched_queue_sm_percent(const struct sched_queue *q);
/* A stream was created for which less than 100 was wanted: whether it has that, for `gbpf ps`. */
void sched_report_cap(struct sched *s, uint32_t percent, enum proto_cap why);

/* fork: the child has no agent and no session; it passes everything through. */
void sched_after_fork_child(struct sched *s);

#endif
