/* The hooks that run in gbpfd: admit when a tenant asks to start, tick while tenants are active. */
#ifndef GBPF_DAEMON_POLICY_DAEMON_HOOKS_H
#define GBPF_DAEMON_POLICY_DAEMON_HOOKS_H

#include "base/report.h"
#include "daemon/policy/version.h"

/* GBPF_ADMIT, GBPF_QUEUE or GBPF_REJECT: the strictest verdict of the GPUs that the process sees;
 * ADMIT where no policy decides. May change s->class_id and s->weight. */
int daemon_hook_admit(struct daemon_session *s);

/* The same for a process that comes back after gbpfd was restarted: its class, weight and lane
 * stay. */
void daemon_hook_readmit(struct daemon_session *s);

/* Runs a hook of gbpfd's instance that is filled; counts what failed in it. */
uint64_t daemon_hook_run(struct daemon_version *l, unsigned hook, void *ctx);

/* Runs init of a version that is about to become active on these GPUs. 0, or a negative errno and
 * the reason in r: it must not. */
int daemon_hook_init(struct daemon_version *l, uint32_t gpu_mask, uint32_t kept_maps,
		     const char *name, struct report *r);

/* Starts the clock; it ticks only while a policy with a tick is active and tenants do something. */
int daemon_ticker_open(struct daemon *d);
void daemon_ticker_close(struct daemon *d);
/* A policy or a session came: look whether to tick. */
void daemon_ticker_wake(struct daemon *d);

#endif
