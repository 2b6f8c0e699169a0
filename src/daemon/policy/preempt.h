/* The hook preempt: runs when a latency request waits for a GPU that other tenants keep busy. */
#ifndef GBPF_DAEMON_POLICY_PREEMPT_H
#define GBPF_DAEMON_POLICY_PREEMPT_H

#include "daemon/daemon.h"
#include "daemon/feature.h"

#define DAEMON_PREEMPT_AFTER_NS                                                                    \
	1000000u /* age at which a request counts as waiting, unless its process reported it */

/* Runs the hook where a request waits, and applies its verdicts. */
void daemon_preempt_tick(struct daemon *d, uint64_t now);
/* Likewise between two ticks, on GPUs whose policy has asked for it, and however young the request
 * is. */
void daemon_preempt_between(struct daemon *d, uint32_t gpus, uint64_t now);
extern const struct daemon_feature daemon_preempt_feature;

#endif
