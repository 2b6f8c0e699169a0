/* The hook preempt: a tenant keeps the GPU although a latency request waits. */
#ifndef GBPF_DAEMON_HW_PREEMPT_H
#define GBPF_DAEMON_HW_PREEMPT_H

#include "daemon/daemon.h"

#define PREEMPT_AFTER_NS 1000000u /* that a request has been open, unless it was told of */

/* Asks the policies of those GPUs where that is so, and does what they say. */
void daemon_preempt_tick(struct daemon *d, uint64_t now);
/* A request of that latency tenant has opened or ended: asks at once, or takes back what was done
 * for it. */
void daemon_preempt_request_changed(struct daemon_session *s);

#endif
