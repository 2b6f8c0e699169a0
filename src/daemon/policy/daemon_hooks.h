/* The hooks that run in gbpfd: admit for a tenant that starts, tick while tenants are active. */
#ifndef GBPF_DAEMON_POLICY_DAEMON_HOOKS_H
#define GBPF_DAEMON_POLICY_DAEMON_HOOKS_H

#include "base/report.h"
#include "daemon/policy/version.h"

/* Returns GBPF_ADMIT, GBPF_QUEUE or GBPF_REJECT: the strictest verdict over the GPUs that the
 * process sees; ADMIT without a policy. May change the class, weight and grant of the session. */
int daemon_hook_admit(struct daemon_session *s);

struct daemon_rejoin_answer {
	uint32_t weight, slice_us;
	uint64_t version; /* that answered */
};

/* Runs admit with rejoin = 1 for a tenant that runs already: of this version (0: of those that are
 * active) for those of the tenant's GPUs that are in the mask. Returns the number of answers,
 * or -ENOENT if none of its GPUs is in the mask. *ret is the last answer; without one, the weight
 * that the tenant asked for. Changes nothing of the session. */
int daemon_hook_rejoin(struct daemon_session *s, uint64_t version, uint32_t gpus,
		       struct daemon_rejoin_answer *ret);

/* Runs admit with rejoin = 1 for a process that reattached after a restart of gbpfd, and stores the
 * weight and the time slice. */
void daemon_hook_readmit(struct daemon_session *s);

/* Runs a hook of gbpfd's instance, which must have it, and counts its failures. */
uint64_t daemon_hook_run(struct daemon_version *l, unsigned hook, void *ctx);

/* Runs init of an instance that is about to become active. 0, or a negative errno and the reason in
 * r: the version must not become active. */
int daemon_hook_init(struct daemon_version *l, uint32_t kept_maps, const char *name,
		     struct report *r);

extern const struct daemon_feature daemon_reclaim_feature; /* reclaim_hook.c */

/* Creates the ticker, which is enabled while a policy with tick or preempt is active and there are
 * sessions. */
int daemon_ticker_open(struct daemon *d);
void daemon_ticker_close(struct daemon *d);
/* Enables the ticker if it is needed; call when a policy was added. */
void daemon_ticker_wake(struct daemon *d);
extern const struct daemon_feature daemon_ticker_feature;
/* Runs preempt on a GPU once in between two ticks, us after now (at least 100 us from this moment
 * on), or earlier if another GPU's policy asked for that. Does nothing if the next tick comes
 * first. */
void daemon_ticker_preempt_in(struct daemon *d, uint32_t gpu, uint64_t now, uint32_t us);

#endif
