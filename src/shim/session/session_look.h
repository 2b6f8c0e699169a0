/* The account of the process's vGPU, for a process that is not a tenant (yet): it may show the
 * figures, without a line of its own. */
#ifndef GBPF_SHIM_SESSION_SESSION_LOOK_H
#define GBPF_SHIM_SESSION_SESSION_LOOK_H

#include "proto/account.h"

struct shim_look {
	uint64_t limit[PROTO_MAX_GPUS]; /* of the vGPU, as in struct proto_vgpu_config */
	uint64_t swap;			/* by which devices with a limit seem larger, bytes */
	struct proto_account *page; /* owned; mapped to be read; NULL: no process is in the vGPU, or
				       gbpfd is absent */
};

/* Asks gbpfd for the account of the vGPU that the environment names, waiting a second at most.
 * Returns 0, without an account too; -ENOENT: the environment names none; -EINVAL: it does so in an
 * invalid way; -EPERM: gbpfd knows none of this name, or is absent, and only gbpfd knows its
 * limits. Keeps nothing, so any thread may call it at any time. */
int shim_session_look(struct shim_look *ret);
/* The same without asking gbpfd: fills in the limits alone. */
int shim_session_look_limit(struct shim_look *ret);
void shim_look_finish(struct shim_look *l);

#endif
