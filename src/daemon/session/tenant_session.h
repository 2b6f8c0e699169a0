/* Sessions: one connected process each, which becomes a tenant when it has said hello and was
 * admitted. */
#ifndef GBPF_DAEMON_SESSION_TENANT_SESSION_H
#define GBPF_DAEMON_SESSION_TENANT_SESSION_H

#include "base/fd.h"
#include "daemon/daemon.h"
#include "daemon/session/outbox.h"
#include "proto/wire.h"

enum session_state {
	SESSION_NEW,	  /* connected, no hello yet */
	SESSION_QUEUED,	  /* admit said wait */
	SESSION_LANE,	  /* admitted; what serves its lane is being started */
	SESSION_WELCOMED, /* has its pages, has not said that it mapped them */
	SESSION_READY,
};

enum session_end {
	END_CLOSED, /* the socket was closed, or the process ended */
	END_REFUSED,
	END_DROPPED, /* by us: garbage, does not read ... */
	END_SHUTDOWN,
};

struct session {
	struct daemon *d;
	struct session *next;
	sd_event_source *io, *timer, *death;
	int sock, pidfd;
	struct peer peer;
	enum session_state state;
	bool dying, dead; /* to be ended by the reaper; its process is known to be dead */
	bool early;	  /* it said hello before it started the driver: its devices follow */
	bool has_devices;
	enum session_end end;

	int tenant; /* -1: none yet */
	char name[WIRE_NAME], command[WIRE_TEXT];
	uint32_t class_id, weight, gpus, gpu_mask;
	uint32_t told_class, told_weight; /* what the process knows */
	uint32_t gpu_index[WIRE_GPUS];	  /* number of gbpfd by the process's ordinal */
	uint32_t peer_version;		  /* of the protocol, where it is not ours */
	uint32_t asked_mask;		  /* GPUs for which admit has been asked */
	/* What admit decided, of what the process can take. */
	uint32_t lane, lanes, slice_us, sm_percent;
	int32_t priority;
	uint32_t rhythm, lead_us; /* of announcements, as admit said */
	uint32_t restart; /* how often it may be started again when a neighbour has ended it */
	char hurt[NEIGHBOUR_WHY]; /* by whom it may have been, in the shared lane; empty: nobody */
	uint64_t slice_version;	  /* of the policy whose admit said slice_us */
	uint64_t connected_ns;
	bool reattached, told_queued;
	bool tallied;	      /* what its page counted has been added to the version's */
	uint64_t had_version; /* reattached: the version that it runs */
	struct page board, stats;
	int lc_slot;				 /* -1: board not published */
	uint64_t lc_seen;			 /* slots whose boards it was sent */
	struct flag_page *flag[WIRE_GPUS];	 /* owned: its flag pages, by its ordinal */
	struct flag_page *flag_seen[WIRE_FLAGS]; /* those that it was sent, by number */
	struct steer *steer; /* owned; NULL: nothing can be, or is to be, done to it */
	uint32_t capable;    /* bits of enum gpu_control, as it says */
	/* Its requests as gbpfd sees them. */
	uint64_t request_since[SCHED_MAX_GPUS], request_key[SCHED_MAX_GPUS];
	/* preempt.c: until when a policy wants to hear of its requests at once, whether it tells,
	 * and how often it did in this second; what was done last for somebody's request */
	uint64_t tell_until_ns, tell_second;
	bool tells;
	unsigned tell_count;
	int tried_for;
	uint32_t tried;
	uint64_t tried_since;
	struct outbox out;
	uint64_t prepares_sent, prepares_acked;
	bool offered;	   /* the version of the swap under way */
	bool cannot;	   /* run it, as it has said */
	uint64_t wait_for; /* acknowledgement that the swap under way waits for; 0: none */
	uint64_t note_second;
	unsigned note_count;
	uint64_t offer_second;
	unsigned offer_count;
	uint64_t change_second;
	unsigned change_count;
	uint64_t last_progress; /* launches when the ticker last looked */
};

int sessions_open(struct daemon *d, const char *path);
void sessions_close(struct daemon *d);
/* Ends those whose process has begun to die (struct sched_board, owner). */
void sessions_look(struct daemon *d);

/* Watches its socket, until hello with a limit of time. 0 or -errno. */
int session_listen(struct session *s);
/* It was welcomed early: the driver takes its time. */
void session_driver_starts(struct session *s);
/* For the history. Other users must not be able to push everything else out of it: their processes'
 * events are limited in number. */
bool session_event_allowed(struct daemon *d, uid_t uid);
void session_event(struct session *s, const char *kind, const char *fmt, ...) PRINTF_LIKE(3, 4);
/* Sends, or ends the session when that is hopeless. Descriptors are borrowed. Only live versions
 * call it with PREPARE. */
void session_send(struct session *s, union wire_message *m, enum wire_type type, const int *fds,
		  unsigned nfds);
/* Ends the session soon (from the loop, so that walks over sessions stay valid). */
void session_end(struct session *s, enum session_end end);
/* Records why, then ends it as END_DROPPED. */
void session_drop(struct session *s, const char *fmt, ...) PRINTF_LIKE(2, 3);
void session_refuse(struct session *s, int err, const char *fmt, ...) PRINTF_LIKE(3, 4);

/* Each change of class is told to all, so there are not many in a second. */
#define SESSION_CHANGES_PER_SECOND 50u
bool session_may_change_class(struct session *s);
/* class or weight changed: tells the process, publishes or withdraws its board. */
void session_tell(struct session *s);
void session_set(struct session *s, uint32_t class_id, uint32_t weight);

/* hello.c. fds are taken. */
void session_hello(struct session *s, const struct wire_hello *h, int *fds, unsigned nfds);
void session_devices(struct session *s, const struct wire_devices *m);
void session_mapped(struct session *s);
void session_admitted(struct session *s); /* its lane is there: it is welcomed */
void session_readmit(struct daemon *d);	  /* asks again for those that are queued */

/* lc.c: boards of latency tenants */
void lc_publish(struct session *s);
bool lc_any(const struct daemon *d);
void lc_withdraw(struct session *s);
void lc_introduce(struct session *s); /* sends it the boards of the others */

/* flags.c: pages that tenants' kernels read; latency tenants get those of their GPUs. fd is taken.
 */
void flags_take(struct session *s, const struct wire_flag *m, int fd);
void flags_forget(struct session *s);	/* it ends: its pages go from all who have them */
void flags_publish(struct session *s);	/* it has a board's slot now: it gets the others' pages */
void flags_withdraw(struct session *s); /* it has lost it: words of nobody are cleared on them */

/* obituary.c: says in the history how a process ended. pidfd is taken, -1 allowed. */
void obituary_write(struct session *s);
bool obituary_awaited(const struct daemon *d, int pid); /* it has ended, but was not written yet */
void obituaries_close(struct daemon *d);

#define session_each(d, s) for (struct session *s = (d)->sessions; s; s = s->next)

#endif
