/* Inside the probe folder: the tools, their parts in sessions, and the callers that wait. */
#ifndef GBPF_DAEMON_PROBE_PROBES_INT_H
#define GBPF_DAEMON_PROBE_PROBES_INT_H

#include "base/report.h"
#include "daemon/probe/probes.h"

#define DAEMON_PROBE_WAITS 64u
#define DAEMON_COVERAGE_WAITS 32u

/* A process, distinguished from later ones with the same number. */
struct daemon_process {
	pid_t pid;	 /* 0: gbpfd cannot see it */
	long long start; /* as in /proc/PID/stat */
};

/* The sessions that a tool is sent to: all that fit each condition. */
struct daemon_probe_target {
	int64_t uid;	       /* of their user; -1: any */
	char name[PROTO_NAME]; /* of the tenant; "": any */
	int tenant;	       /* number; -1: any */
	uint64_t connected_ns; /* of the session with that number, which may be given again */
	struct daemon_process process; /* of that session */
	bool awaited; /* it had a session with an earlier gbpfd, and none here yet: fits no other */
	char text[PROTO_NAME]; /* as shown; "": all */
};

/* Waits for the end of a process. */
struct daemon_probe_watch {
	int fd;			 /* owned pidfd, if there is a source */
	sd_event_source *source; /* owned; NULL: not watched */
};

struct daemon_probe {
	struct daemon *d;
	uint32_t id;
	unsigned slot;		     /* in daemon_probes.at, and of its parts in sessions */
	struct daemon_version *live; /* owned; NULL while it is built */
	char name[EBPF_NAME_BYTES];
	char kernel[PROTO_PATTERN];
	uint32_t budget_ppm;		    /* 0: no limit */
	struct proto_probe_control control; /* which blocks run its programs */
	bool partial;			    /* kernels may run a part of its programs */
	bool verify;			    /* its forms are compared with the kernels themselves */
	struct daemon_probe_target target;
	struct peer owner;
	bool by_admin;
	uint64_t hash; /* of its object */
	uint64_t attached_ns;
	bool held;		      /* it ends with a connection or, restored, with a process */
	uint64_t hold;		      /* number of the connection that it ends with; 0: none */
	struct daemon_process holder; /* at the other end of that connection */
	struct daemon_probe_watch holder_watch, target_watch;
	struct buf object;	       /* until it is stored */
	bool stored;		       /* or being stored */
	struct daemon_probe *replaces; /* borrowed; NULL: none, or it has ended */
	struct daemon_probe *replaced; /* borrowed: by this one */
	bool ending;		       /* PROBE_END was sent */
	sd_event_source *timer;	       /* owned; while PROBE is being sent to sessions */
	uint64_t conn;		       /* to be answered once it has been sent to all */
	json_int_t call;
};

/* A tool in a session: owned by the session's table. */
struct daemon_probe_part {
	bool answered;			   /* PROBE, with a state */
	bool gone;			   /* the session does not have it any more, or never had */
	bool told;			   /* that it was refused: in the history */
	uint64_t end;			   /* number of PROBE_END; 0: not sent */
	uint64_t drain_sent, drain_wanted; /* numbers of PROBE_DRAIN: last one sent, last wanted */
	uint64_t drain_done;		   /* last one answered */
	uint64_t drain_shown;		   /* last one answered when the holder was last answered */
	uint64_t drain_read;  /* drain_shown when the holder asked next: it has read these values */
	int32_t drain_status; /* of that answer */
	int32_t status;
	uint32_t kernels, waiting, refused, falls_back;
	uint32_t cost_ppm; /* PROTO_PROBE_COST_UNKNOWN */
	uint64_t launches, probed;
	uint32_t resident_before, resident_after;
	uint32_t stubs, brackets; /* of `kernels`, at most as many in all */
	uint32_t parts;		  /* of `kernels`, at most as many */
	uint32_t unseen;
	uint32_t equal, differing, not_compared;
	uint32_t siteless;	   /* of `kernels`, at most as many: without a site for a program */
	uint32_t placed, unplaced; /* programs with, and without, a site in one of them */
	struct proto_probe_gap gaps[PROTO_PROBE_GAPS];
	bool told_gap; /* that there is one: in the history */
	char why[PROTO_TEXT], compared[PROTO_TEXT];
};

/* What a caller waits for. */
enum daemon_probe_wait_kind {
	DAEMON_PROBE_WAIT_ATTACH, /* that sessions have answered PROBE */
	DAEMON_PROBE_WAIT_SWAP,	  /* that all kernels run it, to end the one that it replaces */
	DAEMON_PROBE_WAIT_END,
	DAEMON_PROBE_WAIT_DRAIN,
};

struct daemon_probe_wait {
	struct daemon_probe_wait *next;
	struct daemon_probe *p; /* borrowed; ended with it */
	enum daemon_probe_wait_kind kind;
	uint64_t number;	/* DRAIN */
	int tenant;		/* DRAIN: of this tenant; -1: any */
	int64_t uid;		/* DRAIN: of this user; -1: any */
	bool holder;		/* DRAIN: the holder of the tool asks */
	sd_event_source *timer; /* owned */
	uint64_t conn;		/* 0: no caller */
	json_int_t call;
};

struct daemon_probes {
	char dir[DAEMON_PATH + 16];		     /* <state>/tools */
	struct daemon_probe *at[DAEMON_PROBE_SLOTS]; /* owned */
	unsigned building;			     /* tools that the worker builds */
	uint32_t next_id;
	uint64_t orders;		 /* counts PROBE_END and PROBE_DRAIN */
	struct daemon_probe_wait *waits; /* owned */
	unsigned n_waits;
	struct daemon_coverage_wait *coverage; /* owned; callers of probe.coverage */
	unsigned n_coverage;
};

static inline struct daemon_probe_part *daemon_probe_part(const struct daemon_probe *p,
							  const struct daemon_session *s)
{
	return s->probes.part[p->slot];
}

/* probes.c */
struct daemon_probe *daemon_probe_find(const struct daemon *d, json_int_t id);
struct daemon_probe *daemon_probe_of(const struct daemon_version *l);
/* Returns whether the caller may know of it: administrators, its owner, and users of a session that
 * has it. */
bool daemon_probe_visible(const struct daemon_call *c, const struct daemon_probe *p);
bool daemon_probe_may_change(const struct daemon_call *c, const struct daemon_probe *p);
bool daemon_probe_targets(const struct daemon_probe *p, const struct daemon_session *s);
/* Whether the session, which is ready, is one of the target. */
bool daemon_probe_target_fits(const struct daemon_probe_target *t, const struct daemon_session *s);
/* Sends PROBE to a session. Returns false if the session cannot have it. */
bool daemon_probe_send(struct daemon_probe *p, struct daemon_session *s);
/* Returns 0, or -EUSERS with the report if the user may attach no further tool; swap: one that
 * replaces another. */
int daemon_probe_check_place(const struct daemon *d, uid_t uid, bool admin, bool swap,
			     struct report *r);
/* Gives it a place. Returns 0, or -ENOSPC. */
int daemon_probe_insert(struct daemon_probe *p);
/* Begins its detachment and forgets it, unless that has begun; answers the connection (0: none)
 * when it has ended. The tool may have been freed on return. */
void daemon_probe_end(struct daemon_probe *p, uint64_t conn, json_int_t call);
/* Drops it at once; ends the waits for it. */
void daemon_probe_remove(struct daemon_probe *p);
void daemon_probe_free(struct daemon_probe *p);
/* Writes to the history and the audit log; action: "attach", "swap", "detach". */
void daemon_probe_record(const struct daemon_probe *p, const struct peer *who, bool by_admin,
			 const char *action, const char *fmt, ...) PRINTF_LIKE(5, 6);

/* probe_methods.c */
/* Reads "to": a process or tenant number, or a tenant's name; absent: all that the caller may
 * attach to. Returns false after answering an error. */
bool daemon_probe_take_target(struct daemon_call *c, bool admin, struct daemon_probe_target *t);
#define DAEMON_PROBE_EVERY_MAX 1000000u	 /* interval of blocks that run a tool */
#define DAEMON_PROBE_BUDGET_MAX 1000000u /* ppm */
/* Returns whether it is a valid pattern of kernels' names. */
bool daemon_probe_good_kernel(const char *text);

/* coverage.c */
/* Answers callers of probe.coverage that wait for nothing any more; all: each. */
void daemon_coverage_check(struct daemon *d, bool all);
bool daemon_coverage_take(struct daemon_session *s, struct daemon_received *r);

/* probe_wait.c */
/* Waits for sessions; `what` is copied. If no session is pending, or waiting is impossible, what
 * follows the wait happens at once: the tool may have been freed on return. */
void daemon_probe_wait(const struct daemon_probe_wait *what);
/* Returns true if no further caller may wait. Half of the places are the administrators'. */
bool daemon_probe_wait_is_full(const struct daemon *d, bool admin);
void daemon_probe_waits_ended(struct daemon_probe *p);
/* Sends PROBE_DRAIN to the sessions that `what` waits for. */
void daemon_probe_drain(struct daemon_probe *p, const struct daemon_probe_wait *what);
/* Sends the next PROBE_DRAIN if one is wanted and none is unanswered. */
void daemon_probe_drain_next(const struct daemon_probe *p, struct daemon_session *s);
/* Answers callers that wait for nothing any more. */
void daemon_probes_check(struct daemon *d);
bool daemon_probes_take_state(struct daemon_session *s, struct daemon_received *r);
bool daemon_probes_take_ended(struct daemon_session *s, struct daemon_received *r);
bool daemon_probes_take_drained(struct daemon_session *s, struct daemon_received *r);

/* probe_attach.c */
struct daemon_probe_request {
	struct daemon_probe *p; /* taken: name, kernel, target, owner and hold are set */
	json_int_t replaces;	/* number of a tool; 0: none */
	int object_fd;		/* taken */
	uint64_t conn;
	json_int_t call;
};
/* Builds the tool and sends it to sessions, then answers. Takes it also on failure, with -ENOMEM.
 */
int daemon_probe_attach(struct daemon *d, const struct daemon_probe_request *o);
/* Answers the caller that has attached it (0: none) with its present state. */
void daemon_probe_answer_attach(const struct daemon_probe *p, uint64_t conn, json_int_t call);
/* All sessions have answered, or are late: answers, or takes the tool back if none can have it. */
void daemon_probe_attached(struct daemon_probe *p, uint64_t conn, json_int_t call);

/* Verifies and compiles an object and creates the tool's memory, on any thread. 0, or -errno with
 * the report. */
int daemon_probe_build(struct daemon_probe *p, const struct buf *object, struct report *r);

#define DAEMON_PROBES_NEXT "next.json"
/* probe_store.c: <state>/tools/N.bpf.o and N.json for each tool, next.json. */
/* Stores a tool and its object, which is freed, and answers the connection (0: none) with result,
 * taken, then. */
void daemon_probe_store(struct daemon_probe *p, json_t *result, uint64_t conn, json_int_t call);
/* Stores changed settings, or removes it, if it is stored. */
void daemon_probe_store_change(struct daemon_probe *p);
void daemon_probe_store_remove(struct daemon_probe *p);
/* Answers the connection (0: none) with result, taken, when what was stored or removed before is on
 * disk. */
void daemon_probe_store_answer(struct daemon *d, json_t *result, uint64_t conn, json_int_t call);

/* probe_restore.c */
/* Returns the process with this number, with pid 0 if it cannot be seen. */
struct daemon_process daemon_process_of(pid_t pid);
/* Ends the tool when its holder ends, if no connection holds it, and when the process that it
 * awaits does. 0, -ESRCH: that has ended already, or -errno. */
int daemon_probe_watch(struct daemon_probe *p);
void daemon_probe_unwatch(struct daemon_probe_watch *w);

/* probe_scopes.c: which blocks of which kernels run a tool */
/* Set the interval of blocks, unless it is 0, and on and off, unless it is PROTO_PROBE_AS_OTHERS:
 * for all kernels, or for those with matching names. Returns -E2BIG if there are too many scopes;
 * then nothing is changed. */
void daemon_probe_set_all(struct proto_probe_control *c, uint32_t every, uint32_t on_off);
int daemon_probe_set_scope(struct proto_probe_control *c, const char *kernel, uint32_t every,
			   uint32_t on_off);
/* Returns PROTO_PROBE_* of the member "off" of an object. */
uint32_t daemon_probe_on_off(const json_t *j);
json_t *daemon_probe_scopes_json(const struct proto_probe_control *c);
/* Reads what scopes_json returns. Returns false if it is not valid. */
bool daemon_probe_scopes_take(struct proto_probe_control *c, const json_t *all);

/* siteless.c: programs without a site in a kernel that runs the tool */
/* Takes them from a message of the session, and notes the first one in the history. */
void daemon_probe_gaps_take(struct daemon_session *s, const struct daemon_probe *p,
			    const struct proto_probe_state *m);
/* Sums over sessions. All zero before, and after daemon_probe_gaps_json(). */
struct daemon_probe_gaps {
	uint64_t kernels;
	uint32_t placed, unplaced;
	json_t *list; /* owned */
};
void daemon_probe_gaps_add(struct daemon_probe_gaps *g, const struct daemon_probe *p,
			   const struct daemon_probe_part *part);
json_t *daemon_probe_gaps_json(struct daemon_probe_gaps *g, const struct daemon_probe *p);

/* probe_json.c */
json_t *daemon_probe_attach_json(const struct daemon_probe *p);
/* Returns the reason that a session gave last, or "". */
const char *daemon_probe_why(const struct daemon_probe *p);

#endif
