/* A policy version while processes use it: its image, its memory, and the instance that runs in
 * gbpfd. Kept versions that nobody uses are files of the store, nothing more. */
#ifndef GBPF_DAEMON_POLICY_VERSION_H
#define GBPF_DAEMON_POLICY_VERSION_H

#include "bpf/load/policy.h"
#include "daemon/session/tenant_session.h"

#define LIVE_MAX_TENANT_BYTES (64u << 20)	 /* one tenant's instance of one policy */
#define LIVE_MAX_TOTAL_BYTES (UINT64_C(4) << 30) /* all instances of one policy */
#define LIVE_MAX_FOREIGN_BYTES                                                                     \
	(UINT64_C(1) << 30) /* those of one user that is neither root nor the daemon's */

struct daemon_tally {
	uint64_t notes[PROTO_NOTES];
	uint64_t failures[POLICY_HOOKS][PROTO_FAILURES];
};

struct daemon_version {
	struct daemon_job job; /* first: its end is the worker's */
	struct daemon_version *next;
	struct daemon *d;
	uint64_t version;
	struct ebpf_built *built; /* owned */
	int global_fd;		  /* sealed; -1: the policy has no global memory */
	struct ebpf_policy run;	  /* owns gbpfd's mappings of the global and the daemon region */
	struct ebpf_tenant_ops ops;
	struct daemon_page region[PROTO_MAX_TENANTS]; /* of each tenant; descriptor closed once it
						  was passed */
	uint64_t region_total;
	uint64_t last_tick_ns, epoch;
	struct daemon_tally
		tally; /* of gbpfd's own hooks (failures alone), and processes that ended */
	struct daemon_tally told; /* what the history was told of */
	uint64_t told_ns;
	uint64_t slow;	/* hooks whose last call took long, by their bits */
	uint32_t gpu;	/* the lowest on which it was activated */
	bool activated; /* was active, so exit is owed */
	bool copying;	/* the worker reads or writes its memory, which therefore stays mapped */
	struct daemon_left_memory *gone; /* owned: memory of tenants that left meanwhile */
};

/* Memory is initialised anew. Takes built on success. On the worker: large memory takes long. 0,
 * -E2BIG (r says so), -errno. */
int daemon_version_create(struct daemon_version **ret, struct daemon *d, struct ebpf_built *built,
			  uint64_t version, struct report *r);
void daemon_version_destroy(struct daemon_version *l);
/* The same, by the worker. */
void daemon_version_destroy_later(struct daemon_version *l);

/* Makes the tenant's memory unless it is there. 0, -E2BIG, -errno. */
int daemon_version_add_tenant(struct daemon_version *l, uint32_t tenant);
/* Takes *fd as the tenant's memory when its size fits (*fd is -1 then). */
void daemon_version_adopt_tenant(struct daemon_version *l, uint32_t tenant, int *fd);
void daemon_version_remove_tenant(struct daemon_version *l, uint32_t tenant);
/* The worker is done. */
void daemon_version_copy_done(struct daemon_version *l);
/* tenants.c: what its programs can ask of tenants and do to them. */
void daemon_version_tenant_ops(struct daemon_version *l);
/* What gbpfd's programs wrote to epoch maps becomes visible. */
void daemon_version_publish(struct daemon_version *l);
/* Runs exit if the version was active. */
void daemon_version_run_exit(struct daemon_version *l, uint32_t reason);

/* Sends PREPARE to a session; not when its memory cannot be had, which the history then says. Once
 * a session. */
void daemon_version_send_prepare(struct daemon_version *l, struct daemon_session *s);

static inline bool daemon_version_has_hook(const struct daemon_version *l, unsigned hook)
{
	return l->run.insns[hook] != NULL;
}

#endif
