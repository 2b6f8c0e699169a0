/* Asking the policy about a launch, and holding it. */
#ifndef GBPF_SCHED_DECISION_INT_H
#define GBPF_SCHED_DECISION_INT_H

#include "sched/sched.h"

#define SCHED_WAIT_CAP_NS                                                                          \
	2000000u /* longest single wait; then off, swaps and limits are checked                    \
		  */
#define SCHED_MAX_CLOSE_DELAY_NS 10000000u

enum sched_fault {
	SCHED_FAULT_NONE,
	SCHED_FAULT_RANGE,
	SCHED_FAULT_HELPER,
	SCHED_FAULT_SPLIT,
	SCHED_FAULT_OUTLIVED,
	SCHED_FAULT_GATE,
};

/* The answer of `submit` about one launch. */
struct sched_decision {
	uint64_t version; /* 0: no policy is in force */
	uint64_t hold_ns;
	const uint32_t *word; /* board to wait on; NULL: no request of others is open */
	uint32_t seq;	      /* its value before the policy was asked */
	uint32_t lc_open;
	uint32_t why;	 /* HOLD, DEFER: the policy's reason, GBPF_WHY_* or any number */
	uint32_t pieces; /* level: blocks of a piece; 0: not said */
	uint32_t grant;	 /* verdict GO: launches that may follow without asking */
	uint8_t level;	 /* GBPF_LEVEL_BLOCK if the launch can and the policy wants it */
	uint8_t gate;	 /* level BLOCK of machine code: GBPF_GATE_*, not DEFAULT; else 0 */
	uint8_t verdict; /* GBPF_GO, GBPF_HOLD or GBPF_DEFER */
	uint8_t fault;	 /* enum sched_fault */
	bool group;	 /* held for the group (sched/group.h); the policy was not asked */
};

struct sched_retired {
	uint64_t hash, duration_ns, overlap_ns, held_ns, version;
	uint32_t count, flags, level, interrupted;
	uint64_t collective; /* the newest one that has ended since the last call; 0: none has */
};

/* ---- sched_hook.c ---- */

/* Asks `submit`. asked: how often it was asked about this launch before. Inside a read-side
 * section; the caller reports a fault after it. */
void sched_decide_inside(struct sched_queue *q, const struct sched_launch *l, uint64_t now,
			 uint64_t held_ns, uint32_t asked, struct sched_decision *a);
/* The same in a section of its own, with the report. */
void sched_decide(struct sched_queue *q, const struct sched_launch *l, uint64_t now,
		  uint64_t held_ns, uint32_t asked, struct sched_decision *a);
/* Counts and notes a fault of a policy version in a hook (POLICY_HOOK_*); failed: the program did,
 * else its verdict is out of range. Not inside a read-side section. */
void sched_fault_report(struct sched *s, uint64_t version, unsigned hook, bool failed,
			const char *what);
/* The same for submit. */
void sched_decision_report(struct sched_queue *q, const struct sched_decision *a);
void sched_hook_queue_create(struct sched_queue *q);
void sched_hook_queue_destroy(struct sched_queue *q, uint64_t launches);
uint64_t sched_hook_dispatch(struct sched_queue *q, const struct sched_launch *l, uint64_t now);
/* Returns the close delay in ns. */
uint64_t sched_hook_retire(struct sched_queue *q, const struct sched_retired *r, uint64_t now);
/* A policy is in force on the queue's GPU. */
bool sched_policy_in_force(struct sched_queue *q);

/* ---- hold.c ---- */

#define SCHED_MAX_HOLD_NS UINT64_C(10000000000) /* unless the hold limit is longer */

/* Returns the time left until a launch that is held since begin_ns goes whatever the policy says.
 */
uint64_t sched_share_left(struct sched *s, const struct sched_launch *l, uint64_t begin_ns,
			  uint64_t now);
/* The launch goes against the policy: charges it to the minimum share. Returns PROTO_WHY_LIMIT, or
 * PROTO_WHY_MIN_SHARE if an earlier launch went so shortly before: the share has paid for this one.
 */
uint32_t sched_share_take(struct sched *s, const struct sched_launch *l, uint64_t now);
/* The policy let a held launch go, so nothing starves. */
void sched_share_reset(struct sched *s);
/* Waits until the policy lets the launch go, at most until its limit. */
void sched_hold_caller(struct sched_queue *q, struct sched_launch *l, struct sched_decision *a);
/* Returns the version word of the queue's GPU, to notice a swap. *ret_off: every launch is to pass.
 */
uint64_t sched_version_word(struct sched_queue *q, bool *ret_off);
/* Adds a hold to the statistics. */
void sched_hold_account(struct sched_queue *q, const struct sched_launch *l, uint32_t why,
			uint64_t held_ns);
/* Returns the enum proto_why for a reason that a policy has set. */
uint32_t sched_hold_reason(uint32_t why);
/* Returns the reason (enum proto_why) of a decision that holds the launch, as the policy has set
 * it.
 */
uint32_t sched_hold_why(const struct sched_decision *a);
/* Sets this thread's timer slack to 1 us (the default of 50 us would leave the GPU idle that long),
 * and returns the one to restore with prctl(PR_SET_TIMERSLACK). */
int sched_sharpen_timers(void);

#endif
