/* The pages that gbpfd and the processes of tenants share. Their layout is fixed; each page is a
 * memfd of its own, sealed in size. The writer is named in parentheses. A reader never trusts a
 * page that another process writes: it takes indexes and sizes from private copies, reads each word
 * once, and waits on a word only with a timeout. */
#ifndef GBPF_PROTO_PAGES_H
#define GBPF_PROTO_PAGES_H

#include <stdbool.h>
#include <stdint.h>

#include "base/atomic.h"
#include "base/compiler.h"

#define PROTO_MAX_TENANTS 1024u
#define PROTO_MAX_LC 64u /* boards of latency tenants published per GPU */
#define PROTO_MAX_GPUS 16u
#define PROTO_MAX_QUEUES 4096u /* per tenant */
#define PROTO_PAGE_BYTES 4096u
#define PROTO_STATS_BYTES 32768u
#define PROTO_ABI 5u
#define PROTO_DIRECTORY_MAGIC 0x64627067u

/* The directory (gbpfd writes; sealed for other processes; one for all sessions). A swap stores to
 * the version word of a GPU: processes that have prepared that version use it from their next hook
 * call on. */
struct proto_directory {
	uint32_t magic;
	uint32_t abi;
	uint32_t generation; /* of gbpfd; changes with a restart; 0 while it is not serving */
	uint32_t off;	     /* 1: shims pass everything through */
	uint64_t version[PROTO_MAX_GPUS]; /* active policy version; 0: none */
	/* Until then (monotonic) several processes have work on this GPU, so that the time between
	 * two events of one contains turns of others. Kept while ticks run. */
	uint64_t shared_until_ns[PROTO_MAX_GPUS];
	/* Bits of GPUs on which groups are stopped by the policy of another GPU alone
	 * (sched/group.h): all work there is of groups that have ranks on that one, too. Kept like
	 * the former. */
	uint32_t led;
	uint32_t reserved;
};

/* A board (its tenant writes; gbpfd, too, once the tenant is dead; sealed for other processes). A
 * request on it counts while its owner lives and the owner's agent has run recently; see
 * proto_board_open(). */
#define PROTO_OWNER_DIED (1u << 30) /* FUTEX_OWNER_DIED, which the kernel sets */
#define PROTO_BEAT_NS                                                                              \
	1000000000u /* max age of beat_ns: the requests of an owner stopped for longer do not      \
		       count */
#define PROTO_COLLECTIVES 16u
struct proto_board {
	struct proto_board_gpu {
		uint32_t open; /* number of open requests */
		/* Futex word: incremented when open becomes 0, and when a stop below ends
		 * early. */
		uint32_t seq;
		uint64_t opened_ns;   /* opening of the newest request, monotonic */
		uint64_t last_end_ns; /* when open last became 0; 0: never */
		uint64_t next_ns;     /* announced time of the next request; 0: none */
		uint64_t deadline_ns; /* of the open or announced request; 0: none */
		/* Of a process in a group (sched/group.h), on this GPU: how many launches of
		 * kernels that communicate it has given to the driver; and until when its policy
		 * wants the group stopped (monotonic), 0: not at all. */
		uint64_t collectives, stop_until_ns;
		uint64_t hold_until_ns; /* the same by its policy's collective_phase */
	} gpu[PROTO_MAX_GPUS];
	/* Robust futex of a thread that only sleeps. The kernel sets PROTO_OWNER_DIED as the first
	 * step of the process's exit, long before the driver has ended it and its sockets close. 0:
	 * not supported. */
	uint32_t owner;
	uint32_t ranks;	  /* bits of the GPUs on which it counts `collectives` */
	uint64_t beat_ns; /* when the agent last examined an open request; 0: not reported */
	/* When it launched the last collectives, monotonic, by number modulo PROTO_COLLECTIVES. */
	uint64_t launched_ns[PROTO_MAX_GPUS][PROTO_COLLECTIVES];
};

/* Reason of the last hold, shown by `gbpf ps --why`. */
enum proto_why {
	PROTO_WHY_NONE,
	PROTO_WHY_POLICY,     /* the policy held it, and gave no reason */
	PROTO_WHY_LIMIT,      /* submitted after the hold limit */
	PROTO_WHY_MIN_SHARE,  /* submitted once the minimum share had paid for it */
	PROTO_WHY_LEASE,      /* stopped between blocks by a lease of a latency program */
	PROTO_WHY_COLLECTIVE, /* never held: its kind, capture, host function ... */
	PROTO_WHY_GROUP,      /* a policy has stopped its group */
	/* Set: the policy held it, for the reason in the other bits (GBPF_WHY_*, or any number of
	 * the policy's). One word, so that the reason is never that of another hold. */
	PROTO_WHY_REASON = 1 << 30,
};
#define PROTO_WHY_REASONS (PROTO_WHY_REASON - 1)

#define PROTO_HIST_SUB 8u /* buckets per power of two: 12 % wide */
#define PROTO_HIST_BUCKETS (48u * PROTO_HIST_SUB)
#define PROTO_KERNELS 64u
#define PROTO_KERNEL_NAME 64u
#define PROTO_NOTES 16u
#define PROTO_HOOKS 64u

enum proto_failure {
	PROTO_FAILED_HELPER,  /* a helper returned an error, and the program continued */
	PROTO_FAILED_VERDICT, /* the verdict was out of range */
	PROTO_FAILED_EPOCH,   /* the call outlived three publications of the epoch maps it read */
	PROTO_FAILED_SLOW,    /* gbpfd's hooks: took longer than a tick */
	PROTO_FAILURES
};

/* How a kernel can be observed from inside, in the order of what a form offers. UNKNOWN: not looked
 * at. */
enum proto_form {
	PROTO_FORM_UNKNOWN,
	PROTO_FORM_NONE,
	PROTO_FORM_BRACKETS, /* its launches, from outside */
	PROTO_FORM_STUB,     /* its machine code, at the entry */
	PROTO_FORM_PTX,
	PROTO_FORMS
};
#define PROTO_FORM_WHY 160u

/* Outcome of limiting a stream to a share of the multiprocessors. */
enum proto_cap {
	PROTO_CAP_DONE,	    /* in a green context of that share */
	PROTO_CAP_BLOCKING, /* not limited: it is ordered with the default stream */
	PROTO_CAP_CONTEXT,  /* not limited: its context is not the device's primary one */
	PROTO_CAP_DRIVER, /* not limited: the driver has no green contexts, or none of that size */
	PROTO_CAPS
};

/* Statistics (the tenant writes with relaxed stores, gbpfd reads). Counters start at zero. New
 * words are appended; they stay 0 when an older process writes the page. */
struct proto_stats {
	uint64_t launches, copies, memsets, graphs;
	uint64_t holds, held_ns, max_held_ns, deferred, limit_hits;
	uint64_t submit_calls, verdict_errors, helper_errors;
	uint64_t busy_ns; /* device time of retired launches, measured or estimated */
	uint64_t inflight, inflight_ns;
	uint64_t requests, request_ns;
	uint64_t version_in_use; /* policy version of the last hook call */
	uint64_t swap_stall_ns;	 /* longest delay of a hook call by a swap */
	uint32_t queues;
	uint32_t why;				   /* enum proto_why of the last hold */
	uint64_t why_kernel;			   /* its kernel's hash */
	uint64_t request_hist[PROTO_HIST_BUCKETS]; /* request durations; bucket by
						      proto_hist_bucket(ns) */
	struct proto_stats_kernel {
		uint64_t hash, count, est_ns;
		char name[PROTO_KERNEL_NAME]; /* may be torn or unterminated: copy and terminate */
	} kernel[PROTO_KERNELS];
	uint64_t notes_version;	     /* policy version that the notes belong to; 0: none */
	uint64_t notes[PROTO_NOTES]; /* gbpf_note() counters of its programs in this process, since
					the version was prepared */
	/* By hook number: calls of notes_version in this process in which something failed. */
	uint64_t failures[PROTO_HOOKS][PROTO_FAILURES];
	uint64_t block_launches; /* launches at block level */
	uint64_t interruptions;	 /* number of times that one was stopped between blocks */
	uint64_t forced;	 /* relaunches with leases ignored, after the hold limit */
	uint64_t hints,
		wrong_hints;	 /* announced requests; announced requests that did not arrive */
	uint64_t syncs;		 /* synchronizations inside requests */
	uint64_t bytes, threads; /* moved by copies and memsets; blocks times block size */
	uint32_t lane, levels;	 /* GBPF_LANE_*; bit mask of available GBPF_LEVEL_* */
	uint8_t kernel_block[PROTO_KERNELS];	 /* enum proto_block_why of kernel[i] */
	uint64_t kernel_block_ns[PROTO_KERNELS]; /* learned duration of one block; 0: unknown */
	uint64_t requests_cut; /* requests that timed out: other tenants are no longer held for them
				*/
	/* Streams created while the tenant's share of the multiprocessors was below 100 %, by
	 * outcome (enum proto_cap). */
	uint32_t sm_percent, caps[PROTO_CAPS];
	/* Of kernel[i]: how it can be stopped between blocks (GBPF_STOP_*), its launches that could
	 * be, and of these the persistent ones, which do not stop inside. */
	uint8_t kernel_stop[PROTO_KERNELS];
	uint64_t kernel_stoppable[PROTO_KERNELS], kernel_persistent[PROTO_KERNELS];
	/* The same of all kernels, and their GPU time: launches times learned duration. */
	struct proto_stats_reach {
		uint64_t launches, stoppable, persistent;
		uint64_t launches_ns, stoppable_ns, persistent_ns;
	} reach;
	/* Linear copies between host memory and the device, bytes; and those of both that the
	 * pipelined plan has made. */
	uint64_t copy_up_bytes, copy_down_bytes, copy_pipelined_bytes;
	/* Copies by the direct plan, and their bytes, which are in the first two as well. */
	uint64_t copies_direct, copy_direct_bytes;
	/* Of kernel[i]: the probed form that it can have (enum proto_form), and why it cannot have
	 * a better one; the text may be torn or unterminated. */
	uint8_t kernel_form[PROTO_KERNELS];
	char kernel_form_why[PROTO_KERNELS][PROTO_FORM_WHY];
	/* Of all kernels that were launched, by form; GPU time is launches times learned duration.
	 */
	struct proto_stats_form {
		uint64_t kernels, launches, launches_ns;
	} form[PROTO_FORMS];
	/* Of kernel[i], for the share that can be probed: its launches, with those as a node of a
	 * graph and without those of a graph that count at its kernels; the former; their time. */
	struct proto_stats_cover {
		uint64_t launches, graph_launches, launches_ns;
	} kernel_cover[PROTO_KERNELS];
	/* Time of graphs that was divided evenly among their kernels, as their durations are not
	 * known. */
	uint64_t divided_ns;
	/* Parts of those above, by device ordinal. */
	struct proto_stats_gpu {
		uint64_t launches, copies, busy_ns, inflight, inflight_ns;
	} gpu[PROTO_MAX_GPUS];
	/* Memory that can leave the device: bytes that left and came back, launches that named
	 * memory of the host and used it in place. */
	uint64_t mem_out_bytes, mem_back_bytes, mem_in_place;
};

_Static_assert(sizeof(struct proto_board) <= PROTO_PAGE_BYTES, "a board is one page");
_Static_assert(sizeof(struct proto_stats) <= PROTO_STATS_BYTES, "statistics fit their pages");

static inline bool proto_board_dead(const struct proto_board *b)
{
	return load_relaxed(&b->owner) & PROTO_OWNER_DIED;
}

/* Returns the number of open requests that count. A board without open requests costs one load. */
static inline uint32_t proto_board_open(const struct proto_board *b, uint32_t gpu, uint64_t now)
{
	uint32_t open = load_acquire(&b->gpu[gpu].open);
	uint64_t beat, opened;

	if (likely(!open)) {
		return 0;
	}
	beat = load_relaxed(&b->beat_ns);
	opened = load_relaxed(&b->gpu[gpu].opened_ns);
	beat = beat && beat < opened ? opened : beat;
	return proto_board_dead(b) || (beat && beat < now && now - beat > PROTO_BEAT_NS) ? 0 : open;
}

/* Announced requests are kept clear for this long before and after their time. */
#define PROTO_ANNOUNCED_NS 10000000u
#define PROTO_LATE_NS 5000000u
/* Returns whether a request is announced for now or for soon, so that other tenants keep clear. */
static inline bool proto_board_announced(const struct proto_board *b, uint32_t gpu, uint64_t now)
{
	uint64_t at = load_relaxed(&b->gpu[gpu].next_ns);

	return at && at <= now + PROTO_ANNOUNCED_NS && now <= at + PROTO_LATE_NS;
}

/* Bucket of a duration (log-linear, PROTO_HIST_SUB per power of two), and the lower bound of a
 * bucket. */
unsigned proto_hist_bucket(uint64_t ns);
uint64_t proto_hist_floor(unsigned bucket);

#endif
