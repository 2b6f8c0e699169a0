/* Grants: launches that may follow one that the policy was asked about without a call. The launch
 * path of a program that launches short kernels, next to which no latency program runs, or in its
 * open request, then costs a fraction: neither boards nor policy, agent or markers are touched. */
#ifndef GBPF_SCHED_GRANT_INT_H
#define GBPF_SCHED_GRANT_INT_H

#include "sched/queue_int.h"

/* A longer launch is asked about, each time: there a call costs little, and it may have to be
 * stopped. */
#define SCHED_GRANT_EST_NS 100000u

struct sched_decision;

/* Enters the queue's gate and takes a launch of the grant. Otherwise returns false, has entered
 * nothing, ends the grant and clears l->granted: the policy must be asked. */
bool sched_grant_take(struct sched_ticket *t);
/* The end of a ticket that has one; the gate has been left. */
void sched_grant_done(struct sched_ticket *t, bool ok);
/* Accounts the granted launches, now that the policy is asked again; l reports them to it. The
 * caller is at the queue's gate. */
void sched_grant_account(struct sched_queue *q, struct sched_launch *l);
/* A synchronization has covered all launches of the queue that had entered: accounts the granted
 * ones and ends the grant, if the caller owns the accounts. */
void sched_grant_drained(struct sched_queue *q, uint64_t now);
/* A newer answer is being carried out: what is left of the grant is void. */
void sched_grant_end(struct sched_queue *q);
/* Takes over the grant of the policy's answer GO. */
void sched_grant_give(struct sched_queue *q, const struct sched_decision *a);
/* No thread launches on the queue: accounts the granted ones. */
void sched_grant_settle(struct sched_queue *q);
void sched_grant_reset(struct sched_queue *q);

#endif
