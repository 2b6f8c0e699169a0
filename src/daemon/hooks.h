/* The hooks that run in gbpfd: admit when a tenant asks to start, tick while tenants are active. */
#ifndef GBPF_DAEMON_HOOKS_H
#define GBPF_DAEMON_HOOKS_H

#include "daemon/session.h"

/* GBPF_ADMIT, GBPF_QUEUE or GBPF_REJECT: the strictest verdict of the GPUs that the process sees;
 * ADMIT where no policy decides. May change s->class_id and s->weight. */
int hook_admit(struct session *s);

/* Starts the clock; it ticks only while a policy with a tick is active and tenants do something. */
int ticker_open(struct daemon *d);
void ticker_close(struct daemon *d);
/* A policy or a session came: look whether to tick. */
void ticker_wake(struct daemon *d);

#endif
