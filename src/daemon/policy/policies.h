/* Policies: operations one after the other (load, back to a kept version, unload), each a two-phase
 * swap. */
#ifndef GBPF_DAEMON_POLICY_POLICIES_H
#define GBPF_DAEMON_POLICY_POLICIES_H

#include <jansson.h>

#include "daemon/policy/version.h"
#include "daemon/policy/policy_store.h"

#define POLICY_MAX_WAITING 16u
#define POLICY_ACK_USEC 50000u
#define POLICY_ALL_GPUS 0xffffu

enum policy_op { POLICY_LOAD, POLICY_ACTIVATE, POLICY_UNLOAD };

struct request;
struct watch_order;

/* Called once on the loop. result is borrowed; NULL: failed, and r, exit_code say why. */
typedef void (*policy_reply)(struct daemon *d, uint64_t conn, json_int_t id, const json_t *result,
			     const struct report *r, int exit_code);

struct policy_order {
	enum policy_op op;
	uint32_t gpu_mask;
	bool swap, by_default, keep_maps;
	bool by_watch;		   /* ACTIVATE, UNLOAD: a watch goes back */
	struct watch_order *watch; /* taken also on failure; NULL: the version is not watched */
	const char *name;	   /* LOAD */
	int object_fd;		   /* LOAD: taken also on failure; -1: see object */
	struct buf object;	   /* LOAD: taken when object_fd is -1 */
	uint64_t version;	   /* ACTIVATE; 0: the one before */
	uid_t uid;
	policy_reply reply; /* NULL: nobody waits */
	uint64_t conn;
	json_int_t id;
};

int policies_open(struct daemon *d);
void policies_close(struct daemon *d);
/* Orders what the command line, the store or the default ask for at start. 0, or -errno when the
 * file that the command line names cannot be read. */
int policies_begin(struct daemon *d);
bool policies_busy(const struct daemon *d);

/* 0, -EBUSY (too many wait), -ENOMEM. */
int policy_order(struct daemon *d, struct policy_order *o);

/* ---- what sessions tell ---- */
void policy_introduce(struct session *s); /* it is ready: send what is live */
void policy_prepared(struct session *s, uint64_t version, int status);
void policy_check_acks(struct daemon *d); /* a session left */
void policy_forget_tenant(struct daemon *d, uint32_t tenant);
/* How many live versions hold memory of that tenant. */
unsigned policy_regions_of(struct daemon *d, uint32_t tenant);
void policy_adopt_region(struct session *s, uint64_t version, int *fd);
struct live *policy_live_find(struct daemon *d, uint64_t version); /* 0: NULL */
/* The version that is active on a GPU, or NULL. */
struct live *policy_on(struct daemon *d, uint32_t gpu);
/* Active versions, each once: NULL begins, NULL ends. */
struct live *policy_next_active(struct daemon *d, struct live *after);

/* ---- what the control socket asks ---- */
json_t *policy_list_json(struct daemon *d);
json_t *policy_show_json(struct daemon *d, uint64_t version); /* 0: active; NULL: no such version */
uint64_t policy_active_version(struct daemon *d, unsigned gpu);
uint64_t policy_first_active(struct daemon *d); /* of the lowest GPU that has one; 0 */
const char *policy_active_name(struct daemon *d, unsigned gpu); /* "" for none */
/* At once; the connection is answered when it is on disk too. 0 or -ENOMEM. */
int policy_set_off(struct daemon *d, bool off, uint64_t conn, json_int_t id);
bool policy_off(const struct daemon *d);

#endif
