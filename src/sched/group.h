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
 * So all ranks come to stand at the highest count of any, with no kernel that waits. A launch that
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
};

/* Adds n to the number of the rank's collectives if the launch is one: 1 when it goes to the
 * driver, under the queue's gate or lock where it has one; -1 when the driver has refused it. Not
 * inside a read-side section. */
void sched_group_count(struct sched_queue *q, const struct sched_launch *l, int n);

/* The three rules, about launches that may be held. */

/* Before the policy is asked: returns whether the launch waits for its group, and how, in a. Inside
 * a read-side section. */
bool sched_group_waits(struct sched_queue *q, uint64_t now, struct sched_decision *a);
/* Afterwards: applies the group to the policy's verdict. Inside a read-side section. */
void sched_group_apply(struct sched_queue *q, uint64_t now, struct sched_decision *a);
/* While the policy's verdict holds the caller, at least every SCHED_WAIT_CAP_NS: keeps the group
 * stopped. Returns whether the launch goes instead. */
bool sched_group_goes(struct sched_queue *q, uint64_t now, const struct sched_decision *a);

#endif
