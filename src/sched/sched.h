/* The scheduling mechanism of one process: queues, requests, hook calls, holding, deferring,
 * learned durations. Decisions are the policy's: without one nothing is held, reordered or delayed.
 *
 * Life of a launch: the shim's gate fills a struct sched_launch and begins a ticket; on SCHED_GO it
 * calls the driver and then commits or aborts the ticket. On SCHED_DEFER it hands over a copy of
 * the call with sched_defer, and the agent thread submits it later, in order.
 *
 * Threads: tickets on any application thread; sched_agent_step on one agent thread only. */
#ifndef GBPF_SCHED_SCHED_H
#define GBPF_SCHED_SCHED_H

#include <stdbool.h>
#include <stdint.h>

#include "base/atomic.h"
#include "base/compiler.h"
#include "bpf/run/map/map.h"
#include "sched/device.h"
#include "proto/pages.h"

struct sched;
struct sched_queue;
struct sched_kernel;

struct sched_config {
	uint32_t tenant;
	uint32_t class_id; /* GBPF_CLASS_* */
	uint32_t weight;
	uint32_t uid;		/* of this process, as gbpfd sees it */
	uint32_t vgpu;		/* place of its vGPU; GBPF_VGPUS: in none */
	uint64_t hold_limit_ns; /* default 100 ms */
	uint32_t min_share_ppm; /* share of the time that a held tenant gets regardless of the
				   policy; default 20000 (2 %) */
	uint32_t sm_percent;	/* process mode: share of the multiprocessors; 0: all */
	const struct sched_device_ops *device;
	void *dev;
	/* Asks for a call of sched_agent_step soon (first open request, first deferred call). Any
	 * thread; must be cheap (an eventfd or futex), need not be async-signal-safe. */
	void (*wake_agent)(void *arg);
	/* Reports an event for gbpfd's history; sched limits the rate. text is borrowed. */
	void (*note)(void *arg, const char *what, const char *text);
	void *arg;
};

int sched_create(struct sched **ret, const struct sched_config *cfg);
void sched_destroy(struct sched *s); /* no other thread may be inside a call of this scheduler */

/* ---- called by the session (agent thread) ---- */

/* Replaces the shared pages, which are borrowed until sched_destroy or the next call. NULL takes
 * them away (gbpfd has exited: its last policy stays in force, and the boards of others count as
 * closed). Returns false if a thread may still read the previous pages, which must then stay
 * mapped. */
bool sched_set_pages(struct sched *s, const struct proto_directory *dir, struct proto_board *own,
		     struct proto_stats *stats, const uint32_t gpu_index[PROTO_MAX_GPUS]);
enum sched_board_kind { SCHED_BOARD_LATENCY, SCHED_BOARD_PEER, SCHED_BOARD_KINDS };
/* Adds the board of a tenant, of class latency or of this process's group, at a slot below
 * PROTO_MAX_LC. The mapping must stay valid until sched_board_remove has returned true, which means
 * that every call that was inside has left. It waits for that, but not indefinitely. */
int sched_board_add(struct sched *s, enum sched_board_kind kind, uint32_t slot, uint32_t tenant,
		    const struct proto_board *board);
bool sched_board_remove(struct sched *s, enum sched_board_kind kind, uint32_t slot);
/* First phase of a swap: maps the instance of a version for these GPUs (bits of device ordinals)
 * and keeps it ready. The directory's version words activate it. Returns 0 or -errno. */
int sched_policy_prepare(struct sched *s, uint64_t version, uint32_t gpus, int image_fd,
			 const int region_fds[EBPF_REGIONS]);
/* Drops the instances of a version that is no longer active there. They are unmapped when no call
 * is inside any more. */
void sched_policy_drop(struct sched *s, uint64_t version, uint32_t gpus);
bool sched_policy_is_prepared(const struct sched *s, uint64_t version, uint32_t gpus);
/* Drops, after the pages are back, the versions that only the previous gbpfd knew, such as one
 * whose swap was not completed. Returns false while a version that is in force has not been
 * prepared by the new gbpfd. */
bool sched_policy_sweep(struct sched *s);
void sched_set_class(struct sched *s, uint32_t class_id, uint32_t weight);
/* Sets the user id that the hooks see: that of this process as gbpfd sees it. */
void sched_set_uid(struct sched *s, uint32_t uid);
void sched_set_vgpu(struct sched *s, uint32_t place);
/* Sets the number of the process's group, which counts while it has peers. */
void sched_set_group(struct sched *s, uint32_t number);
/* GBPF_OFF=1 or `gbpf off`: every call passes through, and holds end at once. */
void sched_set_off(struct sched *s, bool off);
void sched_set_limits(struct sched *s, uint64_t hold_limit_ns, uint32_t min_share_ppm);

/* The process has a kernel that communicates with kernels on other GPUs (proto_communicates): its
 * launches are counted from here on, also while nothing else is to be done. Any thread. */
void sched_will_communicate(struct sched *s);
bool sched_may_communicate(const struct sched *s);

/* Closes finished requests, retires reached markers, and submits deferred calls. Returns ns until
 * the next call (20-50 us while a request is open), or UINT64_MAX to sleep until wake_agent. */
uint64_t sched_agent_step(struct sched *s);

/* ---- queues ---- */

/* Opens a queue and runs queue_create. dev_queue names the stream to the device ops and is
 * borrowed; gpu is the process's device ordinal. Returns NULL without memory, or beyond
 * PROTO_MAX_QUEUES queues. */
struct sched_queue *sched_queue_open(struct sched *s, void *dev_queue, uint32_t gpu,
				     int32_t priority);
/* Submits the queue's deferred calls, runs queue_destroy and closes the queue. */
void sched_queue_close(struct sched_queue *q);

/* Returns whether images loaded now may get what the block level needs: the process is not of class
 * latency. Any thread. */
bool sched_block_wanted(const struct sched *s);
/* Reports an event to gbpfd's history, at most one a second. Not inside a read-side section. */
void sched_note(struct sched *s, const char *what, const char *text);
/* The same for events that a process has once, or a few times: no limit. */
void sched_note_once(struct sched *s, const char *what, const char *text);
/* Sets why launches of a kernel run at block level or not (enum proto_block_why), for the
 * statistics.
 */
void sched_kernel_set_block(struct sched_kernel *k, uint8_t why);
/* Sets the probed form that it can have (enum proto_form), and why it cannot have a better one. Any
 * thread. */
void sched_kernel_set_form(struct sched *s, struct sched_kernel *k, uint8_t form, const char *why);
/* Returns what was set last, PROTO_FORM_UNKNOWN before. Any thread. */
uint8_t sched_kernel_form(const struct sched_kernel *k);
/* Sets whether a graph has a kernel that communicates with kernels on other GPUs (of a kernel it is
 * known by its name): each launch of the graph is one collective then. Any thread. */
void sched_kernel_set_communicates(struct sched_kernel *k, bool communicates);
/* The kernels of graphs, for the share that can be probed. */
struct sched_kernel *sched_kernel_find(struct sched *s, const char *name); /* NULL: none */
uint64_t sched_kernel_launches(const struct sched_kernel *k);
uint64_t sched_kernel_duration(const struct sched_kernel *k); /* ns, learned; 0: not known */
/* Counts launches of a kernel as nodes of a graph, which took that time. */
void sched_kernel_add_graph(struct sched *s, struct sched_kernel *k, uint64_t launches,
			    uint64_t ns);
/* Does not count so many launches of a graph any more. divided_ns: of their time, what was divided
 * evenly among its kernels. */
void sched_kernel_cover(struct sched *s, struct sched_kernel *graph, uint64_t launches,
			uint64_t divided_ns);
/* Writes the kernels' counters to the statistics now. Any thread. */
void sched_publish_kernels(struct sched *s);

/* Returns the kernel of that name, which holds its learned durations; NULL without memory or beyond
 * 65536 kernels. Freed by sched_destroy. */
struct sched_kernel *sched_kernel_get(struct sched *s, const char *name);
uint64_t sched_kernel_hash(const struct sched_kernel *k); /* of its name, as policies see it */

/* ---- the launch path ---- */

/* The answer to sched_ticket_begin, and what the caller does next. */
enum sched_answer {
	SCHED_GO = 0,	/* call the driver, then end the ticket */
	SCHED_GO_BLOCK, /* likewise, with the preemptible clone or the gate */
	SCHED_PREPARE,	/* nothing is taken: prepare the queue for block level and begin again */
	SCHED_ASK, /* nothing is taken: the launch does not go by grant. Fill all properties and
		      begin again */
	/* Nothing is taken: give a copy of the call to sched_defer. If it cannot be copied, drain
	 * what it is ordered behind, clear `behind` or else `may_hold`, and begin again. */
	SCHED_DEFER,
};

/* One launch: what it is, what the caller knows of its order, and what the scheduler decided. */
struct sched_launch {
	struct sched_kernel *kernel; /* NULL for other kinds */
	uint64_t blocks, bytes;
	uint32_t kind, flags; /* GBPF_KIND_*, GBPF_F_* */
	uint32_t threads, smem_bytes;
	uint32_t resident; /* blocks of it that the device runs at once; 0: not known */
	bool block_ok;	   /* the device can run it at block level; see level below */
	uint8_t stop;	   /* block_ok: GBPF_STOP_CLONE or GBPF_STOP_MACHINE_CODE */
	/* May be held or deferred as the policy says. false (a capture is open, inside a host
	 * function, inside a collective): counted only; what it is ordered behind is drained. */
	bool may_hold;
	bool behind;  /* calls of other queues that it is ordered behind are deferred */
	bool granted; /* sched_granted: it may go without asking. If it may not, begin clears it and
			 answers SCHED_ASK */
	bool unprepared; /* the queue lacks what a launch at block level needs: SCHED_PREPARE is
			    answered instead, and the caller makes it and begins again */
	/* filled by sched_ticket_begin */
	uint64_t version, est_ns, held_ns, begin_ns;
	uint64_t block_ns;	  /* learned duration of one block; 0: not known */
	uint64_t granted_ns;	  /* of granted launches that are reported to the policy with it */
	uint64_t granted_last_ns; /* when the last of them went; 0: not of a latency queue */
	uint32_t n_granted;	  /* their number */
	uint32_t piece_blocks;	  /* SCHED_GO_BLOCK: blocks of a piece; 0: the device's choice */
	uint8_t level;		  /* GBPF_LEVEL_BLOCK with SCHED_GO_BLOCK, else 0 */
	/* SCHED_GO_BLOCK of machine code: GBPF_GATE_TOGETHER, GBPF_GATE_FLAG_FIRST, or
	 * GBPF_GATE_OFF: it is ordered behind unfinished launches of the run, and asks in
	 * the cheapest way. Else 0. */
	uint8_t gate_mode;
};

/* The turn of one launch at its queue, between sched_ticket_begin and its end. On the caller's
 * stack; the members are the scheduler's.
 *
 * The ticket owns what the launch has taken, in this order: its place at the queue's gate, or the
 * queue's issue lock instead (a launch at block level, and one that may not be deferred behind
 * what the queue still has); its count among the launches that keep a request open (`entered`);
 * its share of the accounts of work in flight; and its start marker. There are two ends:
 *
 * - Begin itself, when it answers SCHED_DEFER or SCHED_PREPARE. It decides that before it touches
 *   the accounts, so retreat() in submit.c undoes all there is: gate or lock, and the count.
 * - sched_ticket_commit and sched_ticket_abort after SCHED_GO and SCHED_GO_BLOCK. Both run the
 *   same code (ticket_end in retire.c), which gives up the gate or the lock and settles count,
 *   accounts and marker; abort only subtracts from the accounts instead of placing a marker.
 *
 * So no caller undoes scheduler state: after the first two answers nothing is taken, after the
 * others exactly one call ends the ticket. A ticket is never begun twice without an end between. */
struct sched_ticket {
	struct sched_queue *q;	    /* borrowed until the end */
	struct sched_launch *l;	    /* borrowed until the end */
	struct sched_marker sample; /* start marker of a measured launch; event NULL: none */
	uint64_t sample_ns;	    /* time at which it was placed */
	uint8_t phase, holds;	    /* enum sched_phase, enum sched_holds */
	uint64_t collective;	    /* its number among the rank's; 0: it is none */
};

/* Returns whether launches may skip everything else: no policy, no latency class, no deferred call
 * and no kernel that communicates, or off. One load. */
static inline bool sched_idle(const struct sched *s);

/* Returns whether l, whose kind, kernel and size are filled, would go by the queue's grant: the
 * caller may leave out what only a launch that the policy is asked about needs, and sets
 * l->granted. The answer may be wrong by the time of the launch. */
bool sched_granted(const struct sched_queue *q, const struct sched_launch *l);

/* Begins the turn of l at q: opens the request of a latency queue, runs `submit`, and holds the
 * caller as decided. SCHED_GO costs one clock read, the version check, the boards, the hook and one
 * atomic addition for a latency queue; no lock, no system call, no allocation. */
enum sched_answer sched_ticket_begin(struct sched_ticket *t, struct sched_queue *q,
				     struct sched_launch *l);
/* Ends the turn after SCHED_GO or SCHED_GO_BLOCK: the driver took the launch. Puts markers that are
 * due. */
void sched_ticket_commit(struct sched_ticket *t);
/* Ends the turn after SCHED_GO or SCHED_GO_BLOCK: the driver refused the launch, or was not called.
 */
void sched_ticket_abort(struct sched_ticket *t);
/* The verdict of `submit` on a launch that is not made, for `gbpf bench dev swap`. version 0: no
 * policy is in force. failed: a helper failed, or the verdict was out of range. */
struct sched_verdict {
	uint64_t version, hold_ns;
	uint32_t verdict;
	bool failed;
};
void sched_ask(struct sched_queue *q, const struct sched_launch *l, uint64_t now_ns,
	       struct sched_verdict *ret);
/* A deferred call: a copy that owns everything it points to. run is called once, in the order of
 * the queue, by the agent thread or by a thread that drains the queue. Then sched accounts a launch
 * and calls free. */
struct sched_call {
	struct sched_call *next; /* for sched only */
	uint64_t number; /* for sched only: place among all deferred calls of the process; grows
			    within each queue */
	int (*run)(
		struct sched_call *c); /* 0, or the driver's error, which is kept for the queue */
	/* NULL, or returns whether the calls that other queues have deferred let this one go.
	 * Polled by the submitting thread. Only calls that were deferred earlier may be in its way.
	 */
	bool (*ready)(struct sched_call *c);
	/* NULL, or called when the call has its place in the queue, before it can be submitted;
	 * returns its number (sched_next_number). Called under the FIFO's lock, so that numbers
	 * grow in the order of the queue: must not block. */
	uint64_t (*placed)(struct sched_call *c);
	void (*free)(struct sched_call *c);
	struct sched_launch launch;
	bool is_launch; /* false: only ordered behind launches; no hook is asked */
	bool joins_run; /* May follow an unfinished run. A launch: run() launches it at block level
			   if launch.level says so, and only then. Otherwise it joins the run as
			   gpu_run_record does. */
};
/* Defers a call; takes c. Blocks while 4096 calls of the queue are deferred, as a full hardware
 * queue would. */
void sched_defer(struct sched_queue *q, struct sched_call *c);
/* Returns the next number of a deferred call, 1 or more. */
uint64_t sched_next_number(struct sched *s);
/* Returns whether no other queue has deferred calls or an unfinished run. Called by the thread that
 * submits the calls of q. */
bool sched_queue_alone(const struct sched_queue *q);
/* Returns whether the queue has a deferred call of a lower number, or an unfinished run. */
bool sched_queue_behind(struct sched_queue *q, uint64_t number);
/* Returns whether the queue has deferred calls or an unfinished run. Work that is ordered behind
 * them must be deferred as well, or wait for sched_drain. */
bool sched_queue_deferred(struct sched_queue *q);
/* Counts n launches of the caller's own that went to the queue with one of the program's: they,
 * too, fill the hardware's. Any thread. */
void sched_queue_add_extra(struct sched_queue *q, uint32_t n);
/* Lets a call that is no launch join the queue's unfinished run (gpu_run_record). On success the
 * calling thread owns the queue until sched_run_joined. Returns false if the queue has no
 * unfinished run, or deferred calls behind it. */
bool sched_run_join(struct sched_queue *q);
void sched_run_joined(struct sched_queue *q);
/* Waits, helping, until every deferred call of the queue (NULL: of every queue) has gone to the
 * driver and every run has started all of its blocks. When they have waited for the policy for the
 * hold limit and none has gone by it meanwhile, or for 10 s in all, the rest goes in order whatever
 * it says; missing blocks go by the minimum share. Returns the first
 * error since the last drain of a deferred call or of a launch that had to be repeated, or 0. */
int sched_drain(struct sched *s, struct sched_queue *q);
/* Drains the deferred calls of all queues except `but` (NULL: all queues), helping. Returns when
 * they are drained or make no progress. Called before a call is submitted that may not complete
 * until they are on the device. */
void sched_drain_others(struct sched *s, const struct sched_queue *but);

/* Returns a byte that is 0 while sched_synced has nothing to do for the queue: a process has dozens
 * of streams and synchronizes often. Valid while the queue is open. */
const uint8_t *sched_queue_touched(const struct sched_queue *q);

/* Returns whether that byte of any queue is not 0. */
bool sched_any_touched(const struct sched *s);

/* Reports that a synchronization has returned: everything submitted before to the queue (NULL: to
 * all queues) has finished. */
void sched_synced(struct sched *s, struct sched_queue *q);

/* Counts a linear copy between host memory and the device, and bytes of such copies that were made
 * in pieces (mem/copy_plan.h). Any thread. */
void sched_copied(struct sched *s, bool up, uint64_t bytes);
void sched_copied_in_pieces(struct sched *s, uint64_t bytes);
void sched_copied_directly(struct sched *s, uint64_t bytes); /* one copy (mem/direct.h) */

struct sched_shared { /* first member of struct sched: what the inline tests read */
	uint32_t active;
	uint32_t copies; /* [atomic] a prepared version has the hook copy_enqueue */
};
/* Acquire: a launch that passes unseen comes after the deferred calls that kept this active. */
static inline bool sched_idle(const struct sched *s)
{
	return !load_acquire(&((const struct sched_shared *)(const void *)s)->active);
}

/* ---- copies in pieces: the hook copy_enqueue ---- */

#define SCHED_PIECE_UNIT ((uint32_t)256 << 10) /* sizes of pieces are multiples of it */

/* One copy between host memory and the device. The caller clears it, fills the first part, and is
 * the only thread that uses it. */
struct sched_copy {
	struct sched_queue *q; /* borrowed */
	uint64_t bytes, left;  /* of all of it; not issued yet: kept up by the caller */
	uint64_t unfinished;   /* issued and not known to have finished: the caller's as well */
	bool up, pinned, cut;
	/* Size of the next piece, when sched_copy_may_go() answers SCHED_COPY_GO: a multiple of
	 * SCHED_PIECE_UNIT within the hook's bounds. Before the first call: the plan's size. */
	uint32_t piece_bytes;
	uint32_t plan; /* GBPF_PLAN_*; a call may make it GBPF_PLAN_DRIVER */
	/* The scheduler's. */
	uint64_t came_ns;	  /* the piece's first call; 0: not asked about it yet */
	uint64_t ask_ns;	  /* HOLD: do not ask before this time */
	uint64_t version;	  /* of the latest verdict */
	uint64_t unfinished_then; /* when the piece came */
	uint32_t asked;
	uint32_t why; /* of the piece's latest HOLD: enum proto_why */
	bool begun;   /* the hook has been called */
	bool held;    /* by a HOLD, not only by ahead_bytes */
	bool passes;  /* the rest goes without asking */
};

/* Returns whether copies are to be reported to the functions below. */
static inline bool sched_copies_decided(const struct sched *s);
/* Returns whether the next piece may be issued now. Does not wait: after `false` the caller asks
 * again soon, within a fraction of a millisecond, or gives the copy up. A piece is held at most for
 * the hold limit; not while gbpfd is absent, off, or if no version in force has the hook. */
bool sched_copy_may_go(struct sched_copy *c);
/* All pieces of the copy are issued, or it has failed: reports that to a policy that was asked
 * about them. c->unfinished is current. */
void sched_copy_end(struct sched_copy *c);

static inline bool sched_copies_decided(const struct sched *s)
{
	return load_relaxed(&((const struct sched_shared *)(const void *)s)->copies) != 0;
}

/* ---- launches that name memory of the host: the hook mem_fault ---- */

/* A launch, and what is known about its memory; the context's fields of these names. */
struct sched_mem_fault {
	uint32_t gpu; /* device ordinal */
	uint64_t kernel, bytes, missing, room, in_place_ns, lost_ns, move_ns, ratio;
	uint64_t came_ns; /* the first call; 0: this is it */
	uint32_t asked;
	uint64_t drain_ns, hold_ns; /* the answer's */
};
#define SCHED_MEM_DRAIN_NS UINT64_C(1000000000) /* unless the policy changes it */
/* Asks the policy. Returns false if none in force has the hook, or its answer is worth nothing:
 * then *ret_verdict and the answer are untouched. HOLD: the caller asks again after hold_ns; after
 * the hold limit that is no answer. Any thread. */
bool sched_mem_decide(struct sched *s, struct sched_mem_fault *f, uint32_t *ret_verdict);
/* Count memory that has moved, and launches that used memory of the host in place. Any thread. */
void sched_moved(struct sched *s, bool out, uint64_t bytes);
void sched_used_in_place(struct sched *s);

/* ---- announcements (gbpf_hint, GBPF_HINT, learned) ---- */

/* Announces that this process's next request on a GPU (device ordinal) comes at at_ns and should
 * end by deadline_ns (both monotonic; 0: not known). The board shows it; leases are raised ahead of
 * it, and lowered again if the request is some milliseconds late. Returns -EINVAL in the past or
 * more than 10 s ahead, -EPERM without a latency queue, -EAGAIN for one second after three
 * announced requests in a row did not come. Any thread. */
int sched_announce(struct sched *s, uint32_t gpu, uint64_t at_ns, uint64_t deadline_ns);
/* Sets how early leases are raised before an announced request (SCHED_LEAD_AUTO: 300 us in process
 * mode, 60 us in shared mode), and how early, in process mode, an empty kernel is launched, so that
 * the switch to this process's context is over when the request comes (default SCHED_WARM_NS; 0:
 * none). At most 10 ms each. */
#define SCHED_LEAD_AUTO UINT64_MAX
#define SCHED_WARM_NS UINT64_C(200000) /* with 100 us it still delays the request (H200) */
void sched_set_lead(struct sched *s, uint64_t lead_ns, uint64_t warm_ns);
/* Announces requests automatically: by the learned period of the openings, or period_ns after each
 * opening. */
enum sched_rhythm { SCHED_RHYTHM_OFF, SCHED_RHYTHM_LEARN, SCHED_RHYTHM_PERIOD };
void sched_set_rhythm(struct sched *s, enum sched_rhythm mode, uint64_t period_ns);
/* Sets the sharing mode of the process (GBPF_LANE_*). Once, before launches. */
void sched_set_lane(struct sched *s, uint32_t lane);
/* Returns the share of the multiprocessors that admit and queue_create chose, 1-100. */
uint32_t sched_queue_sm_percent(const struct sched_queue *q);
/* Reports whether a stream that was to have less than 100 % of the multiprocessors has it, for
 * `gbpf ps`. */
void sched_report_cap(struct sched *s, uint32_t percent, enum proto_cap why);

/* Makes the child of a fork pass everything through: it has no agent and no session. */
void sched_after_fork_child(struct sched *s);

#endif
