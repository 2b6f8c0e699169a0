/* Inside the policy folder: one operation under way, and the state of all. */
#ifndef GBPF_DAEMON_POLICY_POLICIES_INT_H
#define GBPF_DAEMON_POLICY_POLICIES_INT_H

#include "base/report.h"
#include "daemon/policy/keep_maps.h"
#include "daemon/policy/policies.h"

/* When the steps of an operation happened. */
struct daemon_policy_times {
	uint64_t submit_ns;
	uint64_t verify_begin_ns, verify_end_ns; /* 0: it needed no verification */
	uint64_t start_ns;			 /* at the head of the queue */
	uint64_t flip_ns;
};

struct daemon_policy_op {
	struct daemon_job job; /* first: the worker passes it back */
	struct daemon_policy_op *next;
	struct daemon *d;
	uint64_t number; /* of the request: they count from 1 */
	bool started;	 /* it is at the head of the queue, and under way */
	struct daemon_policy_times times;
	struct daemon_policy_request o;
	char name[EBPF_NAME_BYTES], dir[4096];
	/* set by a verifier */
	struct daemon_verified_cache *cache; /* borrowed */
	struct daemon_verified *verified; /* one use is owned; set before if it is known already */
	bool was_verified;		  /* it was known to gbpfd */
	/* set by the worker */
	struct daemon_program *program; /* one use is owned; set before if it is live already */
	struct daemon_version *live;	/* owned until they are in live_versions: for build_gpus */
	struct report report;
	json_t *meta; /* owned */
	int err, store_err;
	uint64_t hash;	     /* of the object that was read */
	uint64_t removed;    /* version removed from the store to make room */
	uint32_t build_gpus; /* before: GPUs that need an instance of the version */
	/* the swap */
	uint64_t prepare_begin_ns, waited_ns, flip_ns, copy_ns;
	uint64_t rejoin_begin_ns, rejoin_ns; /* 0: its admit was not asked */
	unsigned asked, acked, failed;
	bool sending;		  /* PREPARE is being sent to sessions */
	bool readying;		  /* all sessions have answered: maps are copied, init runs */
	bool inited;		  /* init of all pending instances has run */
	struct daemon_keep *keep; /* owned; NULL: no map is kept */
	json_t *kept;		  /* owned: the report on kept maps */
	uint64_t old[PROTO_MAX_GPUS], was_active;
	uint32_t rejoin_gpus;		      /* GPUs on which the version changes */
	unsigned rejoined;		      /* number of tenants for which its admit has run */
	char *state_text;		      /* owned; for the worker */
	uint64_t kept_before[PROTO_MAX_GPUS]; /* store.kept before this operation changed it */
	bool kept_changed,
		durable; /* durable: state.json names the new version: policy_durable.c */
};

struct daemon_policies {
	struct daemon_store store;
	struct daemon_policy_op *first;	    /* owned; the head is under way */
	struct daemon_policy_op *verifying; /* owned; enter the queue when that has ended */
	unsigned n;			    /* of both lists */
	uint64_t requests;		    /* number of the last one */
	/* of each GPU: the last request of a caller that has taken effect */
	uint64_t in_force[PROTO_MAX_GPUS];
	struct daemon_verified_cache cache;
	struct daemon_version *live_versions; /* owned; instances of the active versions, and of the
						 one being prepared */
	uint64_t pending;		/* version whose instances are being prepared; 0: none */
	sd_event_source *timer;		/* owned; timeout of the swap under way: policy_swap.c */
	sd_event_source *failure_timer; /* owned; policy_failures.c */
	uint64_t unmapping_bytes; /* memory of exited tenants that the worker is about to unmap:
				     version.c */
	bool followed_shares;	  /* the default was replaced by one that keeps shares:
				     policy_start.c */
	char *first_failed; /* owned; why the policy given on the command line was refused, or NULL:
			       policy_start.c */
};

/* policy_build.c: on the worker */
void daemon_policy_op_build(struct daemon_job *j);
void daemon_policy_op_save_state(struct daemon_job *j);

/* verify_jobs.c */
/* Has the object verified, and then enqueues the operation, which must be in no list. */
void daemon_policy_op_verify(struct daemon_policy_op *q);
/* Keeps the verified object of the operation's version, and drops those of versions no longer in
 * use. */
void daemon_verified_keep(struct daemon_policy_op *q);

/* policies.c: the queue */
/* Adds an operation that is in no list, and starts it if no other one is under way. */
void daemon_policy_op_enqueue(struct daemon_policy_op *q);
int daemon_policy_op_exit(
	const struct daemon_policy_op *q); /* returns the exit code of its error */
void daemon_policy_op_free(struct daemon_policy_op *q);
/* Answers the operation with failure (its report has the reason), and begins the next if it was at
 * the head. */
void daemon_policy_op_fail(struct daemon_policy_op *q, int exit_code);
/* Takes the operation out of the lists. */
void daemon_policy_op_finish(struct daemon_policy_op *q);
const char *daemon_policy_op_name(const struct daemon_policy_op *q); /* returns "load", ... */
void daemon_policy_ops_next(struct daemon *d);
/* Writes the audit entry of an operation that took effect (failed: NULL) or did not. */
void daemon_policy_op_audit(const struct daemon_policy_op *q, const char *failed);
void daemon_policy_op_drop(struct daemon_job *j); /* when gbpfd exits: the operation stays in the
						     queue, which daemon_policies_close() empties */

/* policy_swap.c: both lead to the answer and the next operation, at once or later */
void daemon_swap_prepare(struct daemon_policy_op *q);
/* Nothing is being prepared any more. */
void daemon_swap_not_pending(struct daemon_policies *p);
void daemon_swap_flip(struct daemon_policy_op *q);

/* policy_durable.c */
/* Stores the version as the active one, then continues with daemon_swap_copy(), or refuses. */
void daemon_durable_begin(struct daemon_policy_op *q);
/* Makes state.json name this version on the operation's GPUs when it is written next. */
void daemon_durable_keep(struct daemon_policy_op *q, uint64_t version);
/* Makes it name the operation's watch, if any, from now on and to return to old[]. */
void daemon_durable_keep_watch(struct daemon_policy_op *q);
/* Reverts what daemon_durable_begin() has stored, for an operation that is refused later. */
void daemon_durable_undo(struct daemon_policy_op *q);
/* Sets the report of an operation that cannot be stored. Returns err. */
int daemon_durable_fail(struct daemon_policy_op *q, int err);
/* Returns true, with the exit code, if the operation failed for that reason. */
bool daemon_durable_failed(const struct daemon_policy_op *q, int *ret_exit);

/* policy_ready.c: copies the kept maps, runs init and continues with policy_rejoin.c. */
void daemon_swap_copy(struct daemon_policy_op *q);
/* Returns to the state before the swap and answers with the operation's report. */
void daemon_swap_refuse(struct daemon_policy_op *q, int exit_code);

/* policy_ready.c: continues when all sessions have prepared the pending version, or are late.
 * Copies the kept maps, runs init, and flips; or refuses, and the old policy stays. */
void daemon_swap_ready(struct daemon_policy_op *q);

/* policy_rejoin.c: runs admit of a live version for the tenants that are present, then flips. */
void daemon_swap_rejoin(struct daemon_policy_op *q);
/* Called at the flip: gives tenants the weight and the time slice of the version that is active
 * now, or, where no version answers, the weight that they asked for. */
void daemon_rejoin_apply(struct daemon *d, uint64_t version);

/* policy_json.c: the counters of gbpfd's own instance and the tenants' pages. */
json_t *daemon_policy_counters_json(struct daemon *d, const struct daemon_version *l);

/* active_versions.c */
/* Sends the live versions to a session that is ready. */
void daemon_policy_send_active(struct daemon_session *s);
void daemon_policy_remove_tenant(struct daemon *d, uint32_t tenant);
/* Drops the versions that are neither active nor being prepared; runs exit of those that were
 * active with this reason (GBPF_EXIT_*). */
void daemon_policy_drop_unused(struct daemon *d, uint32_t reason);
/* Drops an instance that is kept only for GPUs that become known, if there is one. */
void daemon_policy_drop_kept(struct daemon *d, uint64_t version, uint32_t gpu);
/* Returns the instance if it is in use on that GPU, else NULL. */
struct daemon_version *daemon_policy_active_of(struct daemon *d, uint64_t version, uint32_t gpu);
/* Puts an instance into live_versions, which owns it from here on. */
void daemon_version_add(struct daemon_version *l);

#endif
