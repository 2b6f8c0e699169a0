/* An instance of a live version of a policy on one GPU, or a tool (daemon/probe): its image, its
 * memory, and what runs in gbpfd. A version that is active on several GPUs has an instance for
 * each, with maps of its own, so that a policy written for one GPU is right on several. Stored
 * versions that no process uses are only files of the store. */
#ifndef GBPF_DAEMON_POLICY_VERSION_H
#define GBPF_DAEMON_POLICY_VERSION_H

#include "daemon/policy/verified.h"
#include "daemon/session/tenant_session.h"

/* Memory of tenants in a version: */
#define DAEMON_LIVE_MAX_TENANT_BYTES (64u << 20)	/* of one tenant on one GPU */
#define DAEMON_LIVE_MAX_TOTAL_BYTES (UINT64_C(4) << 30) /* of all, on all GPUs */
#define DAEMON_LIVE_MAX_FOREIGN_BYTES                                                              \
	(UINT64_C(1) << 30) /* of one user that is neither root nor the daemon's, on all GPUs */

struct daemon_tally {
	uint64_t notes[PROTO_NOTES];
	uint64_t failures[PROTO_HOOKS][PROTO_FAILURES];
};

/* What the instances of a version share. */
struct daemon_program {
	unsigned users;			  /* [atomic] instances, and operations under way */
	struct daemon_verified *verified; /* one use is owned */
	int image_fd;			  /* owned: with the version number */
	struct daemon_tally tally; /* failures of gbpfd's own hooks, all counters of processes that
				      exited, and notes of instances that ended */
	struct daemon_tally told;  /* as last reported in an event */
	uint64_t told_ns;
	uint64_t region_total; /* bytes of tenants' regions in all instances */
	int all_gpus_fd;       /* memory of maps that they share; -1: the policy has none */
};

struct daemon_version {
	struct daemon_job job; /* first; for its destruction by the worker */
	unsigned last_hook;    /* that ran in gbpfd */
	struct daemon_version *next;
	struct daemon *d;
	uint64_t version;
	uint32_t gpu;			/* gbpfd's number; 0 for a tool, which is on all */
	struct daemon_program *of;	/* one use is owned */
	const struct ebpf_built *built; /* borrowed from it */
	int global_fd;			/* sealed; -1: the policy has no global memory */
	struct ebpf_policy run; /* owns gbpfd's mappings of the global and the daemon region */
	struct ebpf_tenant_ops ops;
	struct daemon_page region[PROTO_MAX_TENANTS]; /* of each tenant; the descriptor is closed
							 once it was passed on */
	uint64_t last_tick_ns, epoch;
	uint64_t slow;	/* bits of hooks whose last call was slow */
	bool pending;	/* it is being prepared for the swap under way */
	bool activated; /* was active, so exit must run */
	bool copied;	/* maps of the version before are kept in it */
	bool copying;	/* the worker reads or writes its memory, which must stay mapped */
	struct daemon_left_memory *gone; /* owned: memory of tenants that left during copying */
};

/* Makes the image of a version and the memory of maps that its instances share. Returns its first
 * use, which takes a use of v; NULL: no memory. */
struct daemon_program *daemon_program_new(struct daemon_verified *v, uint64_t version);
/* Any thread. The last one to drop it frees it. NULL: nothing. */
struct daemon_program *daemon_program_use(struct daemon_program *p);
void daemon_program_drop(struct daemon_program *p);

/* Creates an instance with new memory, which uses the program. Large memory takes long: on the
 * worker, if a caller does not have to wait for it. 0, -E2BIG (reason in r), -errno. */
int daemon_version_create(struct daemon_version **ret, struct daemon *d, struct daemon_program *of,
			  uint64_t version, uint32_t gpu, struct report *r);
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

/* Returns true if the session's process uses the instance's GPU, or may, as its devices are not
 * known. */
static inline bool daemon_version_is_for(const struct daemon_version *l,
					 const struct daemon_session *s)
{
	return s->gpu_mask ? s->gpu_mask & 1u << l->gpu : !s->hello.has_devices;
}

/* Sends PREPARE to a session that uses its GPU. Writes an event instead if the session's memory
 * cannot be created. */
void daemon_version_send_prepare(struct daemon_version *l, struct daemon_session *s);

static inline bool daemon_version_has_hook(const struct daemon_version *l, unsigned hook)
{
	return l->run.insns[hook] != NULL;
}

#endif
