/* Policies: operations one after the other (load, return to a stored version, unload), each a
 * two-phase swap. */
#ifndef GBPF_DAEMON_POLICY_POLICIES_H
#define GBPF_DAEMON_POLICY_POLICIES_H

#include <jansson.h>

#include "base/fd.h"
#include "daemon/policy/policy_store.h"
#include "daemon/policy/version.h"

#define DAEMON_POLICY_MAX_WAITING 16u
#define DAEMON_POLICY_ACK_USEC 50000u
#define DAEMON_POLICY_ALL_GPUS 0xffffu

enum daemon_policy_action { DAEMON_POLICY_LOAD, DAEMON_POLICY_ACTIVATE, DAEMON_POLICY_UNLOAD };

struct daemon_policy_op;

/* Called once on the loop, unless the operation has become unnecessary. result is borrowed; NULL:
 * failed, for the reason in r, with exit_code. */
typedef void (*daemon_policy_reply)(struct daemon *d, uint64_t conn, json_int_t id, json_t *result,
				    const struct report *r, int exit_code);

struct daemon_policy_request {
	enum daemon_policy_action op;
	uint32_t gpu_mask;
	bool swap, by_default, keep_maps;
	bool must_store;  /* LOAD: refused if it cannot be stored */
	bool is_volatile; /* LOAD: not stored; the worker sets it, too: policy_durable.c */
	bool by_watch;	  /* ACTIVATE, UNLOAD: a watch rolls back */
	bool is_late;	  /* ACTIVATE: for a GPU that became known, if it still has that version */
	struct daemon_stored_watch *watch; /* LOAD: taken, also on failure, with ns, keep_maps and
					      condition; NULL: the version is not watched */
	const char *name;		   /* LOAD */
	int object_fd;			   /* LOAD: taken, also on failure; -1: see object */
	struct buf object; /* LOAD: taken if object_fd is -1; ACTIVATE: of a volatile version */
	uint64_t version;  /* ACTIVATE; 0: the previous one */
	uint64_t watched;  /* by_watch: the version to leave, on GPUs where it is still active */
	uid_t uid;
	pid_t pid;		   /* of the caller; 0: none */
	daemon_policy_reply reply; /* NULL: neither a caller nor a watch waits */
	uint64_t conn;
	json_int_t id;
};

int daemon_policies_open(struct daemon *d);
void daemon_policies_close(struct daemon *d);
/* Returns the stored versions and their watches. */
struct daemon_store *daemon_policies_store(const struct daemon *d);
/* Writes state.json as it is now, later, then answers the connection with result (taken) and the
 * member stored; result NULL: no caller waits. what: a constant, named in the event if it cannot be
 * written. 0 or -ENOMEM. */
int daemon_durable_save(struct daemon *d, const char *what, json_t *result, uint64_t conn,
			json_int_t id);
/* Queues the policies to be loaded at start: from the command line, the store or the default. 0, or
 * -errno if the file given on the command line cannot be read. */
int daemon_policies_begin(struct daemon *d);
/* Replaces the default policy, if gbpfd has chosen it and no operator another one since, by one
 * that keeps the shares of virtual GPUs, if any has a share; once in gbpfd's life. Returns whether
 * that is under way, or is decided when the operations under way have ended. */
bool daemon_policy_follow_shares(struct daemon *d);
bool daemon_policies_busy(const struct daemon *d);
/* Returns why the policy given on the command line was refused, or NULL. */
const char *daemon_policies_first_failed(const struct daemon *d);

/* Queues an operation. 0, -EBUSY (queue full), -ENOMEM. */
int daemon_policy_submit(struct daemon *d, struct daemon_policy_request *o);

/* ---- for sessions ---- */
extern const struct daemon_feature daemon_policies_feature; /* policy_swap.c */
/* The session's devices are known now: drops its memory in instances of other GPUs, of which one
 * has run admit for it. */
void daemon_policy_leave_other_gpus(struct daemon_session *s);
/* Returns how many live versions have memory of that tenant. */
unsigned daemon_policy_regions_of(struct daemon *d, uint32_t tenant);
/* Takes the tenant regions of a version's instances for these device ordinals, in this order. Those
 * that it takes are -1 then. */
void daemon_policy_adopt_regions(struct daemon_session *s, uint64_t version, uint32_t ordinals,
				 int *fds);
/* A device has become known: the version that is active on its number gets an instance there,
 * unless it has one. Without one that can run the GPU has no policy, which is an event. */
void daemon_policy_add_gpu(struct daemon *d, uint32_t gpu);
/* Returns the GPUs of the mask whose devices are known; if there are none, the lowest one, as a
 * soft GPU becomes known with its first process. */
uint32_t daemon_policy_known_gpus(const struct daemon *d, uint32_t mask);
/* Return the instance of a version on the lowest GPU, or on this one. NULL: none, or version 0. */
struct daemon_version *daemon_version_find(struct daemon *d, uint64_t version);
struct daemon_version *daemon_version_on(struct daemon *d, uint64_t version, uint32_t gpu);
/* Returns the instance that is active on a GPU, or NULL. */
struct daemon_version *daemon_policy_active_on(struct daemon *d, uint32_t gpu);
/* Returns the first live instance, active or being prepared; after: the one after it. NULL ends. */
struct daemon_version *daemon_policy_next_live(struct daemon *d, struct daemon_version *after);
/* Iterates over the instances of the active versions: NULL begins, NULL ends. */
struct daemon_version *daemon_policy_next_active(struct daemon *d, struct daemon_version *after);

/* ---- for the control socket ---- */
json_t *daemon_policy_list_json(struct daemon *d);
json_t *daemon_policy_show_json(struct daemon *d,
				uint64_t version); /* 0: the active one; NULL: no such version */
uint64_t daemon_policy_first_active(
	struct daemon *d); /* returns that of the lowest GPU that has one, or 0 */
const char *daemon_policy_active_name(struct daemon *d, unsigned gpu); /* returns "" for none */
/* Takes effect at once; the connection is answered when the state is on disk too. 0 or -ENOMEM. */
int daemon_policy_set_off(struct daemon *d, bool off, const struct peer *who, uint64_t conn,
			  json_int_t id);

#endif
