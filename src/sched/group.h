/* Groups: processes whose kernels wait for each other across GPUs (NCCL, NVSHMEM). A kernel of such
 * a collective occupies its GPU until all ranks have launched theirs, so that a rank that a policy
 * holds also stops the others, inside their kernels and at their cost. So a group is stopped as a
 * whole, and between collectives. A rank is a process on one of its GPUs.
 *
 * Each rank counts the collectives that it has given to the driver, on its board, which its peers
 * read. Where a policy holds a rank's launch, these rules apply.
 *
 * The rank says on its board that it wants the group stopped, for a few milliseconds at a time and
 * as long as the launch is held. Meanwhile no other rank launches, and its policy is not asked. But
 * a rank that is behind another one, by its count, goes on until it is not, whatever its policy
 * says: the others' kernels wait for it already.
 *
 * So all ranks stop at the highest count of any, with no kernel that waits. A launch that
 * another rank's decision overtakes raises that count, and the others follow.
 *
 * Two groups that share several GPUs must not be stopped by each other, one on each. Where all work
 * on a GPU is of groups that have ranks on another one as well, in step with each other, gbpfd lets
 * that other GPU lead: the policy's verdicts there stop these groups, and those about ranks on the
 * GPU that is led do not, except for their own work in flight (docs/SCHEDULING.md, Groups).
 *
 * Why no rank is misled for long, whatever is on the boards of others: what waits for its group is
 * held like any held launch, at most for the hold limit. A rank is excused for being behind for
 * CATCH_UP_NS; after that, a stop holds it until it is not behind, or no stop is left. Counts that
 * differ by more than LAG_MAX name no common collective (ranks with different work, or of another
 * communicator) and excuse nothing. The stop of a process that was killed ends when its death is
 * known, that of a stopped one with its time.
 *
 * What a policy holds because of the rank's own work in flight, or while requests of latency
 * programs are open, is soon over, and a rank that is excused would delay the requests: neither
 * stops the group. Launches of latency queues never wait for the group. */
#ifndef GBPF_SCHED_GROUP_H
#define GBPF_SCHED_GROUP_H

#include <stdbool.h>
#include <stdint.h>

struct sched;
struct sched_decision;
struct sched_launch;
struct sched_queue;

/* Of a rank. [atomic] */
struct sched_stop {
	uint32_t queue;	    /* 1 + index of the queue whose launch the policy held last; 0: none */
	uint64_t behind_ns; /* it has been excused for being behind since then; 0: it is not */
	/* Verdicts of collective_phase, of that version. hold_again_ns: no HOLD counts before, so
	 * that holds leave the minimum share of the time. boost: number of the collective of
	 * boost_queue (1 + index), until whose end, or that time, launches go without a question;
	 * 0: none. */
	uint64_t version, hold_again_ns, boost, boost_until_ns;
	uint32_t boost_queue;
};

/* Counts the launch among the rank's collectives if it is one, and asks collective_phase about it.
 * It goes to the driver now, under the queue's gate or lock where it has one. Returns its number;
 * 0: it is none. Not inside a read-side section. */
uint64_t sched_group_count(struct sched_queue *q, const struct sched_launch *l);
/* The driver has refused the newest one that was counted: its number is the next one's. */
void sched_group_refused(struct sched_queue *q);
/* The queue's collectives up to that number have ended: calls collective_phase. Not inside a
 * read-side section. */
void sched_group_ended(struct sched_queue *q, uint64_t number, uint64_t now);
/* The queue is closed: collective_phase is not called for the ends of its collectives any more, and
 * no launch is boosted by one of them. */
void sched_group_forget(struct sched_queue *q);

/* What the ranks' boards say about a collective; only the own times are certainly true. */
struct sched_ranks {
	uint32_t ranks, ready;		    /* with the caller's; those that have launched it */
	uint64_t first_ns, last_ns, own_ns; /* launches of it; 0: not known any more */
};

/* The rules, about launches that may be held. */

/* Before the policy is asked: returns whether the launch waits for its group, and how, in a. Inside
 * a read-side section. */
bool sched_group_waits(struct sched_queue *q, uint64_t now, struct sched_decision *a);
/* Likewise: returns whether the launch goes because of a BOOST by the version in force. Inside a
 * read-side section. */
bool sched_group_boosted(struct sched_queue *q, uint64_t now, uint64_t version);
/* Afterwards: applies the group to the policy's verdict. Inside a read-side section. */
void sched_group_apply(struct sched_queue *q, uint64_t now, struct sched_decision *a);
/* While the policy's verdict holds the caller, at least every SCHED_WAIT_CAP_NS: keeps the group
 * stopped. Returns whether the launch goes instead. */
bool sched_group_goes(struct sched_queue *q, uint64_t now, const struct sched_decision *a);

struct sched_phase_verdict {
	uint32_t verdict;	   /* GBPF_COLLECTIVE_* */
	bool failed, out_of_range; /* GO then; to be reported */
	uint64_t hold_ns, version;
};
/* phase_hook.c: asks collective_phase about a collective whose launch goes, of the kernel with that
 * hash, or that has ended (kernel 0). GO without a version in force that has the hook. Inside a
 * read-side section. */
struct sched_phase_verdict sched_hook_phase(struct sched_queue *q, uint64_t number, uint64_t kernel,
					    uint64_t now);
/* Looks at the boards of all ranks, this one's included. Inside a read-side section. */
struct sched_ranks sched_group_look(const struct sched_queue *q, uint64_t number, uint64_t now);

#endif
