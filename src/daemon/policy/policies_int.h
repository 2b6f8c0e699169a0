/* Inside policy*.c: an operation under way, and the state of all. */
#ifndef GBPF_DAEMON_POLICY_POLICIES_INT_H
#define GBPF_DAEMON_POLICY_POLICIES_INT_H

#include "base/report.h"
#include "daemon/policy/keep_maps.h"
#include "daemon/policy/policies.h"

struct request {
	struct job job; /* first: the worker hands it back */
	struct request *next;
	struct daemon *d;
	struct policy_order o;
	char name[EBPF_NAME_BYTES], dir[4096];
	/* filled by the worker */
	struct ebpf_built *built; /* owned until a live version takes it */
	struct live *live;	  /* owned until it is among the lives */
	struct report report;
	json_t *meta; /* owned */
	int err, store_err;
	uint64_t removed; /* version that gave way in the store */
	/* the swap */
	uint64_t prepare_begin_ns, waited_ns, flip_ns, copy_ns;
	unsigned asked, acked, failed;
	bool sending;	   /* not all have been told of it yet */
	bool readying;	   /* all have answered: copying, init */
	struct keep *keep; /* owned; NULL: nothing is carried over */
	json_t *kept;	   /* owned: what the answer says of the maps */
	uint64_t old[SCHED_MAX_GPUS], was_active;
	char *state_text; /* owned: for the worker */
};

struct policies {
	struct store store;
	struct request *first; /* owned; the head is under way */
	unsigned n;
	struct live *lives;   /* owned: active versions, and the one that is being prepared */
	struct live *pending; /* borrowed from lives */
	sd_event_source *timer;
};

/* policy_build.c: on the worker */
void request_build(struct job *j);
void request_save_state(struct job *j);
json_t *built_meta(const struct request *q, const struct buf *object);

/* policy.c: the line */
void request_free(struct request *q);
/* Ends the request at the head with failure (r of the request says why) and begins the next. */
void request_fail(struct request *q, int exit_code);
void request_leave(struct request *q);
const char *request_what(const struct request *q); /* "load", ... */
void requests_next(struct daemon *d);
void request_drop(struct job *j); /* when the daemon ends: it stays in the line, which
				     policies_close empties */

/* policy_swap.c: both end with the answer and the next request, at once or later */
void swap_prepare(struct request *q, struct live *l);
void swap_flip(struct request *q);

/* policy_ready.c: all have prepared the pending version, or are late. Copies the maps that are
 * kept, runs init, and flips; or refuses, and the old policy stays. */
void swap_ready(struct request *q);

/* policy_json.c: what gbpfd's own instance and the tenants' pages have counted. */
json_t *policy_counters_json(struct daemon *d, const struct live *l);

/* policy_live.c */
/* Takes off what is neither active nor being prepared; exit of what was active runs with that
 * reason (GBPF_EXIT_*). */
void policy_drop_unused(struct daemon *d, uint32_t reason);

#endif
