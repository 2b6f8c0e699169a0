/* A live version of a policy, or a tool (daemon/probe): its image, its memory, and the instance
 * that runs in gbpfd. Stored versions that no process uses are only files of the store. */
#ifndef GBPF_DAEMON_POLICY_VERSION_H
#define GBPF_DAEMON_POLICY_VERSION_H

#include "bpf/load/policy.h"
#include "daemon/session/tenant_session.h"

#define DAEMON_LIVE_MAX_TENANT_BYTES (64u << 20)	/* one tenant's instance of a version */
#define DAEMON_LIVE_MAX_TOTAL_BYTES (UINT64_C(4) << 30) /* all instances of a version */
#define DAEMON_LIVE_MAX_FOREIGN_BYTES                                                              \
	(UINT64_C(1) << 30) /* all instances of one user that is neither root nor the daemon's */

struct daemon_tally {
	uint64_t notes[PROTO_NOTES];
	uint64_t failures[PROTO_HOOKS][PROTO_FAILURES];
};

struct daemon_version {
	struct daemon_job job; /* first; for its destruction by the worker */
	unsigned last_hook;    /* that ran in gbpfd */
	struct daemon_version *next;
	struct daemon *d;
	uint64_t version;
	struct ebpf_built *built; /* owned */
	int global_fd;		  /* sealed; -1: the policy has no global memory */
	struct ebpf_policy run;	  /* owns gbpfd's mappings of the global and the daemon region */
	struct ebpf_tenant_ops ops;
	struct daemon_page region[PROTO_MAX_TENANTS]; /* of each tenant; the descriptor is closed
							 once it was passed on */
	uint64_t region_total;
	uint64_t last_tick_ns, epoch;
	struct daemon_tally tally; /* failures of gbpfd's own hooks, and all counters of processes
				      that exited */
	struct daemon_tally told;  /* as last reported in an event */
	uint64_t told_ns;
	uint64_t slow;	/* bits of hooks whose last call was slow */
	uint32_t gpu;	/* lowest GPU on which it was activated */
	bool activated; /* was active, so exit must run */
	bool copying;	/* the worker reads or writes its memory, which must stay mapped */
	struct daemon_left_memory *gone; /* owned: memory of tenants that left during copying */
};

/* Creates a version with new memory. Takes built on success. For the worker, as large memory takes
 * long. 0, -E2BIG (reason in r), -errno. */
int daemon_version_create(struct daemon_version **ret, struct daemon *d, struct ebpf_built *built,
			  uint64_t version, struct report *r);
void daemon_version_destroy(struct daemon_version *l);
/* Destroys it on the worker. */
void daemon_version_destroy_later(struct daemon_version *l);

/* Creates the tenant's memory unless it exists. 0, -E2BIG, -errno. */
int daemon_version_add_tenant(struct daemon_version *l, uint32_t tenant);
/* Takes *fd as the tenant's memory if its size matches (*fd is -1 then). */
void daemon_version_adopt_tenant(struct daemon_version *l, uint32_t tenant, int *fd);
void daemon_version_remove_tenant(struct daemon_version *l, uint32_t tenant);
/* Ends `copying`: frees memory whose removal had to wait. */
void daemon_version_copy_done(struct daemon_version *l);
/* tenant_helpers.c: the functions behind the gbpf_tenant_* helpers. */
void daemon_version_tenant_ops(struct daemon_version *l);
/* Publishes what gbpfd's programs wrote to epoch maps. */
void daemon_version_publish(struct daemon_version *l);
/* Runs exit if the version was active. */
void daemon_version_run_exit(struct daemon_version *l, uint32_t reason);

/* Creates the tenant's memory unless it exists, and collects the descriptors to be sent to its
 * session: of the image and of the regions whose bits (PROTO_REGION_*) are set. Borrowed; once they
 * are sent, that of the tenant's memory is to be closed. Returns their number, -E2BIG, -errno. */
int daemon_version_descriptors(struct daemon_version *l, uint32_t tenant, int fds[3],
			       uint32_t *ret_regions);

/* Sends PREPARE to a session, once. Writes an event instead if the session's memory cannot be
 * created. */
void daemon_version_send_prepare(struct daemon_version *l, struct daemon_session *s);

static inline bool daemon_version_has_hook(const struct daemon_version *l, unsigned hook)
{
	return l->run.insns[hook] != NULL;
}

#endif
